"""``predict``: how SGD's best learning rate will move with depth and width, before any training.

The rule is ``limits.optimal_rate``'s, eta* lambda = constant, with the sharpness of the very
networks in place of an infinitely wide one's: a few passes through each, at several sizes. What
the rule is worth was measured; docs/studies/predict.md has the errors.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch

from depthmup._isolated import seeded
from depthmup.diagnostics.grid import Size, check_counts, refuse_along
from depthmup.diagnostics.networks import (
    batch_of,
    beside_weights,
    fresh,
    generator_of,
    planned_sizes,
)
from depthmup.diagnostics.sharpness import Sharpness, sharpness
from depthmup.model import Functions, Model, check_axes, with_factory
from depthmup.planning import Plan
from depthmup.records import Axis, AxisPrediction, Prediction, SharpnessAt
from depthmup.records.grammar import either
from depthmup.records.sizes import parse_size, size_text
from depthmup.records.study import plural
from depthmup.rules import Family, Scheme, named
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import CONFIDENCE, TOLERANCE, mean
from depthmup.statistics.drift import check_tolerance

TRUSTED = 0.02
"""Relative error of an eigenvalue that is told of: 0.03 octaves."""

NOT_FOR_ADAM = (
    "Expected an optimizer whose update is proportional to the gradient, such as sgd; got "
    "{optimizer}, whose drift the sharpness at initialization does not predict "
    "(docs/studies/predict.md). Measure it: `depthmup transfer --model ... --optimizer "
    "{optimizer}`."
)


@torch.inference_mode(False)
@torch.enable_grad()
def predict(
    model: Model,
    *,
    base: Size | tuple[int, int] | str,
    widths: Sequence[int] = (),
    depths: Sequence[int] = (),
    scheme: str | Scheme | None = None,
    optimizer: str | Family | type = "sgd",
    seeds: int = 4,
    batches: int = 1,
    tolerance: float = TOLERANCE,
    plan_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **along: Sequence[int],
) -> Prediction:
    """Predict how SGD's best learning rate moves under a scheme's plan, without training.

    Every size is built under its plan, and lambda_max(D^1/2 G D^1/2) of its loss at initialization
    is found in some ten forward and backward passes (``sharpness``), D being the plan's factors on
    the learning rate. The best learning rate is predicted to be inversely proportional to it.

    Args:
        model: the factory, its data and its loss, as for ``check``.
        base: the size with a known or cheaply found learning rate, a value for every axis;
            a width and a depth also as (64, 4) or "64x4".
        widths, depths: further sizes to predict at; other axes stay at the base's.
        scheme: a name, or alpha,gamma such as 1/2,1/2; by default the one that suits the depth of
            the model's blocks.
        optimizer: of the family raw, such as sgd; the rule holds for no other.
        seeds: number of networks of each size; their scatter gives the intervals.
        batches: number of batches over which each network's loss is averaged.
        tolerance: largest drift, in octaves per doubling, that still counts as staying.
        plan_options: further arguments of ``depthmup.plan``, such as ``own_init`` or ``branches``.
        progress: called with the number of networks that are done, and of all.
        along: further sizes along any other axis of the base, such as ``experts=(8, 16)``.

    Returns:
        For every size the predicted factor of the learning rate, and the drifts, with intervals
        over seeds. The intervals exclude the error of the rule itself.

    Raises:
        ValueError: an optimizer other than SGD, no sizes other than the base's, one seed, a factory
            that ignores a size, data or a loss that are not finite.

    Example:
        >>> import torch
        >>> from depthmup.models import ResidualMLP
        >>> def make(width, depth):
        ...     model = ResidualMLP(inputs=8, width=width, depth=depth, outputs=4, multiplier=0.5,
        ...                         activation_name="relu")
        ...     for frozen in (model.input, model.readout):
        ...         frozen.requires_grad_(False)
        ...     return model
        >>> def batch(generator):
        ...     return torch.randn(32, 8, generator=generator), torch.arange(32) % 4
        >>> moving = predict(Model(make, batch=batch), base=(64, 4), depths=(8, 16),
        ...                 scheme="1/2,0", plan_options={"own_init": "fan_in"})
        >>> moving.moves("depth"), moving.drift("depth").value < -0.3  # by about -1/2 per doubling
        (True, True)

    *Source:* full-batch training is unstable at a sharpness beyond 2 / lr (Cohen et al. 2021,
    arXiv 2103.00065); that the best learning rate keeps its distance from there was measured
    for this package (docs/studies/predict.md).
    """
    started = time.perf_counter()
    here = _base(base)
    refuse_along(along)
    check_tolerance(tolerance)
    chosen = None if scheme is None else scheme_named(scheme)
    axes = _axes(here, {"depth": depths, "width": widths, **along})
    name, family = named(optimizer)
    if family is not Family.RAW:
        raise ValueError(NOT_FOR_ADAM.format(optimizer=name))
    check_counts(seeds=seeds, batches=batches)
    if seeds < 2 or batches < 1:
        raise ValueError(
            f"Expected at least 2 seeds, for an interval, and 1 batch; got {seeds=}, {batches=}."
        )
    own = with_factory(model)
    check_axes(own, tuple(here))
    beside = ({**here, axis: n} for axis, arm in axes.items() for n in arm if n != here[axis])
    grid = [here, *beside]
    arms = {axis: [grid.index({**here, axis: n}) for n in arm] for axis, arm in axes.items()}
    plans, _ = planned_sizes(
        own,
        grid,
        scheme=chosen,
        optimizer=optimizer,
        options=plan_options or {},
        branched="depth" in axes,
    )
    logs: list[np.ndarray] = []
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    for size, plan in zip(grid, plans, strict=True):
        values = []
        for seed in range(seeds):
            sharp = _sharpness(own, size, plan, seed, batches)
            values.append(sharp.value)
            if sharp.error > TRUSTED:
                known = f"is known to {sharp.error:.1g} only."
                notes[f"The sharpness at {size_text(size)} {known}"] = None
            progress(len(logs) * seeds + seed + 1, len(grid) * seeds)
        logs.append(np.log2(values))
    return Prediction(
        title=model.name,
        scheme=scheme_named(chosen or plans[0].scheme).title,
        optimizer=name,
        base=here,
        axes=tuple(
            _along(axis, [grid[i] for i in arm], [logs[i] for i in arm], base=logs[0])
            for axis, arm in arms.items()
        ),
        seeds=seeds,
        confidence=CONFIDENCE,
        tolerance=tolerance,
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
    )


def _sharpness(own: Functions, size: Size, plan: Plan, seed: int, batches: int) -> Sharpness:
    """That of one network, per unit of the base's learning rate."""
    model = fresh(own, size, seed)
    plan.initialize(model)
    generator = generator_of(seed)
    with seeded(seed):
        data = [beside_weights(batch_of(own, generator), model) for _ in range(batches)]
    rates = {name: p.lr for p in plan.prescriptions for name in p.names}
    try:
        # A model may draw in its forward pass (dropout): the same at every size.
        with seeded(seed):
            sharp = sharpness(model, data, loss=own.loss, rates=rates)
    except ValueError as error:
        raise ValueError(f"At {size_text(size)}: {error}") from error
    if not sharp.value > 0:
        raise ValueError(
            f"At {size_text(size)} the sharpness is {max(sharp.value, 0):g}: the outputs do not "
            "depend on the trained weights to first order, or the loss does not curve upwards in "
            "them. Is the readout initialized at 0? Predict with one that is not."
        )
    return sharp


def _base(given: Size | tuple[int, int] | str) -> dict[Axis, int]:
    """The base as a value for every axis."""
    if isinstance(given, str):
        return dict(parse_size(given, option="base"))
    if isinstance(given, Mapping):
        # NumPy's integers are none to generators and to JSON.
        return {a: int(n) if isinstance(n, Integral) else n for a, n in given.items()}
    if len(given) != 2:
        raise ValueError(
            f"Expected the base as a mapping, or as a width and a depth; got {given!r}. Give "
            "base=(64, 4), or a value for every axis: {'width': 64, 'depth': 4}."
        )
    return _base({"width": given[0], "depth": given[1]})


def _axes(base: Size, asked: Mapping[Axis, Sequence[int]]) -> dict[Axis, list[int]]:
    """The sizes along every axis that was asked for, in order, the base's among them."""
    axes: dict[Axis, list[int]] = {}
    if lacking := [axis for axis in ("width", "depth", *asked) if axis not in base]:
        raise ValueError(
            f"Expected the base to have a {lacking[0]}; got {dict(base)}. What is no argument of "
            "predict is an axis of your factory."
        )
    for axis, further in asked.items():
        for number in (base[axis], *further):
            if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
                raise ValueError(
                    f"Expected {plural(axis)} to be positive integers; got {number!r}."
                )
        arm = sorted({base[axis], *map(int, further)})
        if len(arm) > 1:
            axes[axis] = arm
    if not axes:
        raise ValueError(
            f"Expected widths, depths or other sizes other than the base's, {size_text(base)}: a "
            f"drift is between sizes. Give {either('depths=(8, 16, 32)', '--depths 8,16,32')}."
        )
    return axes


def _along(
    axis: Axis, sizes: Sequence[Size], logs: Sequence[np.ndarray], *, base: np.ndarray
) -> AxisPrediction:
    """Octaves and drift along an axis, from log2 curvatures (seeds,) of the base and every size.

    Seeds are independent networks at every size, so each gives a slope of its own, and the
    interval is Student's.
    """
    x = np.log2([size[axis] for size in sizes])
    x = x - x.mean()
    octaves = [base - at for at in logs]
    slopes = sum(at * moved for at, moved in zip(x, octaves, strict=True)) / (x @ x)
    return AxisPrediction(
        axis=axis,
        sizes=tuple(
            SharpnessAt(
                size=size,
                curvature=mean(at.tolist()).exp2(),
                octaves=mean(moved, unit="octaves of learning rate"),
            )
            for size, at, moved in zip(sizes, logs, octaves, strict=True)
        ),
        drift=mean(slopes, unit=f"octaves of learning rate per doubling of {axis}"),
    )
