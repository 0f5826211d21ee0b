"""``predict``: how SGD's best learning rate will move with depth and width, before any training.

The rule is ``limits.optimal_rate``'s, eta* lambda = constant, with the sharpness of the very
networks in place of an infinitely wide one's: a few passes through each, at several sizes. What
the rule is worth was measured; docs/studies/predict.md has the errors.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from depthmup.diagnostics.networks import (
    Shape,
    beside_weights,
    check_finite,
    check_width_noticed,
    fresh,
    seeded,
    survey,
)
from depthmup.diagnostics.sharpness import Sharpness, sharpness
from depthmup.model import Functions, Model, check_axes, with_factory
from depthmup.model import size as size_named
from depthmup.planning import Plan, plan
from depthmup.records import AxisPrediction, Prediction, SharpnessAt
from depthmup.records.study import Axis
from depthmup.rules import Family, Scheme
from depthmup.rules import family as family_named
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import CONFIDENCE, TOLERANCE, mean
from depthmup.training.placement import generators

TRUSTED = 0.02
"""Relative error of an eigenvalue that is told of: 0.03 octaves."""

NOT_FOR_ADAM = (
    "The rule is for SGD: Expected an optimizer whose update is proportional to the gradient; got "
    "{optimizer}, for which the sharpness at initialization, preconditioned or not, does not "
    "predict the drift (docs/studies/predict.md has the numbers). Measure it: `depthmup transfer "
    "--model ... --optimizer {optimizer}`."
)


def predict(
    model: Model,
    *,
    base: tuple[int, int] | str,
    widths: Sequence[int] = (),
    depths: Sequence[int] = (),
    scheme: str | Scheme = "depth-mup",
    optimizer: str | Family = "sgd",
    seeds: int = 4,
    batches: int = 1,
    tolerance: float = TOLERANCE,
    plan_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Prediction:
    """Predict how SGD's best learning rate moves under a scheme's plan; nothing is trained.

    Every size is built under its plan, and lambda_max(D^1/2 G D^1/2) of its loss at initialization
    is found in some ten forward and backward passes (``sharpness``), D being the plan's factors on
    the learning rate. The best learning rate is predicted to be inversely proportional to it.

    Args:
        model: the factory, its data and its loss, as for ``check``.
        base: width and depth where the best learning rate is known or cheap to find, as (64, 4)
            or "64x4".
        widths, depths: further sizes, each with the base's other size.
        scheme, optimizer: as in ``depthmup.plan``; the optimizer is SGD, with momentum or not.
        seeds: networks and batches of each size; intervals come from these.
        batches: of data that the loss of a network is averaged over.
        tolerance: octaves per doubling within which the optimum counts as staying.
        plan_options: further arguments of ``depthmup.plan``, such as ``own_init`` or ``branches``.
        progress: told how many networks of how many are done.

    Returns:
        For every size the predicted factor of the learning rate, and the drifts, with intervals
        over seeds. These hold nothing of the rule's own error.

    Raises:
        ValueError: an optimizer other than SGD, no sizes beside the base's, one seed, a factory
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
    base = size_named(base) if isinstance(base, str) else base
    here = Shape(width=base[0], depth=base[1])
    chosen, sizes = scheme_named(scheme), _sizes(here, widths, depths)
    if family_named(optimizer) is not Family.RAW:
        raise ValueError(NOT_FOR_ADAM.format(optimizer=optimizer))
    if seeds < 2 or batches < 1:
        raise ValueError(
            f"Expected at least 2 seeds, for an interval, and 1 batch; got {seeds=}, {batches=}."
        )
    own = with_factory(model)
    _refuse_factory(own, here, sizes)
    everything = tuple(dict.fromkeys(size for of_axis in sizes.values() for size in of_axis))
    values: dict[Shape, list[float]] = {}
    notes: list[str] = []
    for done, size in enumerate(everything):
        own_plan = plan(
            fresh(own, size, 0),
            base=fresh(own, here, 0),
            scheme=chosen,
            optimizer=optimizer,
            example_inputs=own.batch(seeded(0))[0],
            **dict(plan_options or {}),
        )
        notes += [note for note in own_plan.notes if note not in notes]
        for seed in range(seeds):
            sharp = _sharpness(own, size, own_plan, seed, batches)
            values.setdefault(size, []).append(sharp.value)
            at = f"{size.width}x{size.depth}"
            note = f"The sharpness at {at} is known to {sharp.error:.1g} only."
            if sharp.error > TRUSTED and note not in notes:
                notes.append(note)
            progress(done * seeds + seed + 1, len(everything) * seeds)
    return Prediction(
        title=model.name,
        scheme=chosen.title,
        optimizer=str(optimizer),
        base=base,
        axes=tuple(
            _along(axis, here, {size: np.log2(values[size]) for size in of_axis})
            for axis, of_axis in sizes.items()
        ),
        seeds=seeds,
        confidence=CONFIDENCE,
        tolerance=tolerance,
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
    )


def _refuse_factory(own: Functions, base: Shape, sizes: Mapping[Axis, Sequence[Shape]]) -> None:
    """Refuse data that are not finite, and a factory that ignores a size."""
    check_axes(own, ("width", "depth"))
    inputs, _ = own.batch(seeded(0))
    check_finite(inputs)
    model = fresh(own, base, 0)
    wider = [size.width for size in sizes.get("width", ()) if size != base]
    deeper = [size.depth for size in sizes.get("depth", ()) if size != base]
    if deeper:
        survey(own, (base.width, *wider[:1]), (base.depth, *deeper), {}, model, inputs)
    else:
        wide = fresh(own, replace(base, width=wider[0]), 0)
        check_width_noticed(model, wide, (base.width, wider[0]))


def _sharpness(own: Functions, at: Shape, own_plan: Plan, seed: int, batches: int) -> Sharpness:
    """That of one network, per unit of the base's learning rate."""
    model = fresh(own, at, seed)
    own_plan.initialize(model)
    generator = seeded(seed)
    data = [beside_weights(own.batch(generator), model) for _ in range(batches)]
    rates = {name: p.lr for p in own_plan.prescriptions for name in p.names}
    try:
        # A model may draw in its forward pass (dropout): the same at every size.
        with torch.random.fork_rng(devices=generators()):
            torch.manual_seed(seed)
            sharp = sharpness(model, data, loss=own.loss, rates=rates)
    except ValueError as error:
        raise ValueError(f"At width {at.width} and depth {at.depth}: {error}") from error
    if not sharp.value > 0:
        raise ValueError(
            f"At width {at.width} and depth {at.depth} the outputs do not depend on the trained "
            "weights to first order, so the sharpness is 0. Is the readout initialized at 0? "
            "Predict with one that is not."
        )
    return sharp


def _sizes(
    base: Shape, widths: Sequence[int], depths: Sequence[int]
) -> dict[Axis, tuple[Shape, ...]]:
    """The sizes of every axis that was asked for, the base's among them."""
    along_axes: dict[Axis, tuple[Shape, ...]] = {}
    axes: dict[Axis, Sequence[int]] = {
        "depth": (base.depth, *depths),
        "width": (base.width, *widths),
    }
    for axis, numbers in axes.items():
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"Expected {axis}s to be positive integers; got {number!r}.")
        along = sorted(set(numbers))
        if len(along) > 1:
            along_axes[axis] = tuple(
                replace(base, depth=n) if axis == "depth" else replace(base, width=n) for n in along
            )
    if not along_axes:
        raise ValueError(
            f"Expected widths or depths other than the base's, {base.width}x{base.depth}: a drift "
            "is between sizes. Give e.g. depths=(8, 16, 32)."
        )
    return along_axes


def _along(axis: Axis, base: Shape, logs: Mapping[Shape, np.ndarray]) -> AxisPrediction:
    """Octaves and drift along an axis; ``logs`` (seeds,) are log2 curvatures of every size.

    Seeds are independent networks at every size, so each gives a slope of its own, and the
    interval is Student's.
    """
    x = np.log2([size.size[axis] for size in logs])
    x = x - x.mean()
    octaves = {size: logs[base] - logs[size] for size in logs}
    slopes = sum(at * moved for at, moved in zip(x, octaves.values(), strict=True)) / (x @ x)
    return AxisPrediction(
        axis=axis,
        sizes=tuple(
            SharpnessAt(
                width=size.width,
                depth=size.depth,
                curvature=mean(logs[size].tolist()).exp2(),
                octaves=mean(moved, unit="octaves of learning rate"),
            )
            for size, moved in octaves.items()
        ),
        drift=mean(slopes, unit=f"octaves of learning rate per doubling of {axis}"),
    )
