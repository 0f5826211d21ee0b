"""The coordinate check: measured exponents of width and depth against those of the scheme.

Networks of every width and depth train for a few steps on one batch, under the plan that the
scheme gives from the smallest of them (``networks``). Of each observable (``rules.predictions``)
the exponents are fitted and judged (``verdicts``).
"""

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from numbers import Integral
from operator import index
from statistics import fmean
from typing import Any

import torch

from depthmup._isolated import seeded
from depthmup.diagnostics.grid import Size, check_counts, distinct, further, grid_of, refuse_along
from depthmup.diagnostics.networks import TrainedNetwork, planned_sizes, train
from depthmup.diagnostics.observations import Key, Points
from depthmup.diagnostics.preparation import Prepare, as_is, planned
from depthmup.diagnostics.verdicts import (
    MARGIN,
    Values,
    depths_of,
    judge,
    outcome_of,
    summaries,
)
from depthmup.model import Model, check_axes, with_factory
from depthmup.planning import Plan, plan
from depthmup.records import Axis, Check, Exponent, NonFinite, Outcome
from depthmup.records.grammar import either
from depthmup.records.text import counted
from depthmup.rules import Family, Kind, Observable, Role, Scheme, named
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import CONFIDENCE

# Large enough for an update to stand out of rounding, small enough for the response to be linear.
RATES = {family: 1e-2 for family in Family if family.matrices_only} | {
    Family.RAW: 0.1,
    Family.ENTRYWISE: 1e-3,
    Family.RELATIVE: 1e-2,
    Family.NORM_BALL: 1e-2,
}


MOST_REPETITIONS = 10_000
"""Of seeds and of steps: a hundred times what an exponent needs."""


@torch.inference_mode(False)
@torch.enable_grad()
def check(
    model: Model,
    *,
    scheme: str | Scheme | None = None,
    optimizer: str | Family | type = "adamw",
    widths: int | Sequence[int] = (32, 64, 128, 256),
    depths: int | Sequence[int] = (4, 8, 16, 32),
    seeds: int = 3,
    steps: int = 5,
    lr: float | None = None,
    modules: str | None = None,
    plan_options: Mapping[str, Any] | None = None,
    prepare: Prepare = planned,
    progress: Callable[[int, int], None] = lambda done, total: None,
    each: Callable[[TrainedNetwork], None] = lambda network: None,
    **along: Sequence[int],
) -> Check:
    """Check how a model's observables grow with width, depth and any other axis.

    Args:
        model: the factory and its data.
        scheme: a name, or alpha,gamma such as 1/2,1/2; by default the one that suits the depth of
            the model's blocks.
        optimizer: a name (sgd, adam, adamw, muon, ...) or a family (raw, entrywise, spectral).
        widths: three or more, or a single one to check depth only.
        depths: three or more, or a single one to check width only.
        seeds: number of repetitions; their scatter gives the intervals.
        steps: training steps between the two forward passes that are compared.
        lr: learning rate at the smallest size; by default a usual one for the optimizer.
        modules: judge only modules with names that match this pattern, such as ``layers.*.mlp``.
        plan_options: further arguments of ``depthmup.plan``, such as ``own_init`` or ``branches``.
        prepare: ``planned`` applies the plan; ``as_is`` leaves the model to its own code, which is
            expected to follow the scheme, with its own ``optimizers`` where it has them. Any other
            ``prepare(network, plan, lr)`` applies the plan in its own way and gives optimizers.
        progress: called with the number of networks that are done, and of all.
        each: called with each network after training.
        along: sizes along further axes that the factory takes by name, such as
            ``experts=(4, 8, 16, 32)``. Each is varied at the smallest width and depth; neither
            outputs nor updates should grow with it.

    Returns:
        Every exponent with its interval, its prediction and an outcome.

    Raises:
        ValueError: too few sizes for an exponent; a factory that ignores one of them; a
            model without residual branches; data that are not finite.

    Example:
        >>> import torch
        >>> from depthmup.models import ResidualMLP
        >>> def make(width, depth):
        ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=4, block_depth=2,
        ...                        activation_name="relu", layer_norm=True)
        >>> def batch(generator):
        ...     return torch.randn(8, 8, generator=generator), torch.arange(8) % 4
        >>> result = check(Model(make, batch=batch), scheme="completep",
        ...                widths=(16, 32, 64), depths=(2, 4, 8), seeds=3, steps=2)
        >>> str(result.outcome)
        'pass'

    *Source:* the coordinate check of Tensor Programs V (arXiv 2203.03466), Appendix D.1; along
    depth, the exponents of TP6 (arXiv 2310.02244) and of the scheme's own paper. The statistics
    are this package's (docs/studies/check.md).
    """
    started = time.perf_counter()
    axes = _axes({"width": widths, "depth": depths}, along)
    _refuse_settings(axes, seeds, steps, lr, plan_options)
    own, applied = with_factory(model), prepare is not as_is
    check_axes(own, tuple(axes))
    grid = grid_of(axes)
    plans, points = planned_sizes(
        own,
        grid,
        scheme=None if scheme is None else scheme_named(scheme),
        optimizer=optimizer,
        options=plan_options or {},
    )
    expected, family = scheme_named(scheme or plans[0].scheme), plans[0].family
    rate = RATES[family] if lr is None else lr
    values: Values = {}
    chances: Values = {}
    losses: dict[str, list[tuple[float, ...]]] = {}
    roles: dict[Key, Role] = {}
    own_depths: dict[int, Mapping[str, float]] = {}
    unmoved: set[str] = set()
    nonfinite: NonFinite | None = None
    runs = [(i, seed) for i in range(len(grid)) for seed in range(seeds)]
    for done, (i, seed) in enumerate(runs, start=1):
        # What the model draws while it trains is part of the seed, too.
        with seeded(seed):
            run = train(
                own, grid[i], seed, plans[i], points[i], prepare=prepare, lr=rate, steps=steps
            )
            if i not in own_depths and not isinstance(run, NonFinite):
                own_depths[i] = depths_of(run.model, plans[i], points[i])
        if isinstance(run, NonFinite):
            nonfinite = run
            break
        losses.setdefault(_named(grid[i]), []).append(run.losses)
        unmoved |= run.unmoved
        for observation in (run.first, run.second):
            roles.update(observation.roles)
            for key, value in observation.values.items():
                values.setdefault(key, {})[i, seed] = value
            for key, share in observation.chances.items():
                chances.setdefault(key, {})[i, seed] = share
        each(run)
        progress(done, len(runs))
    points = [replace(at, undone=at.undone | unmoved) for at in points]
    exponents, doubts = judge(
        values, chances, grid, points, expected, family, roles, modules, own_depths
    )
    outcome = outcome_of(exponents, nonfinite)
    return Check(
        title=model.name,
        scheme=expected.title,
        optimizer=named(optimizer)[0],
        applied=applied,
        widths=axes["width"],
        depths=axes["depth"],
        along={axis: sizes for axis, sizes in axes.items() if axis in along},
        seeds=seeds,
        steps=steps,
        lr=rate,
        margin=MARGIN,
        confidence=CONFIDENCE,
        outcome=outcome,
        exponents=exponents,
        sizes=summaries(values, grid),
        nonfinite=nonfinite,
        losses={k: tuple(map(fmean, zip(*v, strict=True))) for k, v in losses.items()},
        notes=(
            *_notes(plans if applied else (), points),
            *doubts,
            # Of a network that does not follow the scheme they show nothing of the scheme.
            *(() if outcome is Outcome.FAIL else _of_deep_blocks(expected, exponents, roles)),
            *_limits(expected, values, _branches(grid, points)),
        ),
        seconds=time.perf_counter() - started,
    )


ARGUMENTS = tuple(n for n in inspect.signature(check).parameters if n not in ("model", "along"))
"""What cannot be the name of a further axis."""


def _axes(
    square: Mapping[Axis, int | Sequence[int]], along: Mapping[Axis, Any]
) -> dict[Axis, tuple[int, ...]]:
    """The sizes along every axis, in order; of width and depth there may be one alone."""
    refuse_along(along)
    given = {axis: [n] if isinstance(n, Integral) else n for axis, n in square.items()}
    return {
        axis: distinct(_whole(axis, sizes), axis if axis in along else f"{axis}s")
        for axis, sizes in {**given, **along}.items()
    }


def _refuse_settings(
    axes: Mapping[Axis, Sequence[int]],
    seeds: int,
    steps: int,
    lr: float | None,
    plan_options: Mapping[str, Any] | None,
) -> None:
    """Refuse settings from which no exponent follows."""
    if all(len(values) == 1 for values in axes.values()):
        raise ValueError(
            "Expected three widths or three depths at least; got one of each. An exponent is a "
            f"slope: give e.g. {either('widths=(32, 64, 128)', '--widths 32 64 128')}."
        )
    check_counts(seeds=seeds, steps=steps)
    if seeds < 2 or steps < 1:
        raise ValueError(
            f"Expected at least 2 seeds, for an interval, and 1 step; got {counted(seeds, 'seed')} "
            f"and {counted(steps, 'step')}."
        )
    if max(seeds, steps) > MOST_REPETITIONS:
        raise ValueError(
            f"Expected at most {MOST_REPETITIONS:,} seeds and steps, as a few show how "
            "observables grow; got more."
        )
    if lr is not None and not 0 < lr < math.inf:
        raise ValueError(f"Expected lr to be a positive number; got {lr!r}.")
    known = set(inspect.signature(plan).parameters) - {"model", "base", "scheme", "optimizer"}
    if unknown := sorted(set(plan_options or ()) - known):
        raise ValueError(
            f"Expected plan_options to be arguments of depthmup.plan; got {', '.join(unknown)}."
        )


def _whole(axis: str, values: Any) -> tuple[int, ...]:
    """The sizes along an axis; a misspelt argument of ``check`` seems to be one, too."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise ValueError(
            f"Expected the sizes along {axis} as whole numbers, such as (4, 8, 16); got "
            f"{values!r}. Other arguments of check: {', '.join(ARGUMENTS)}."
        ) from None


def _named(size: Size) -> str:
    """A size in words."""
    beside = "".join(f", {axis} {n}" for axis, n in further(size).items())
    return f"{size['width']} x {size['depth']}{beside}"


def _notes(plans: Sequence[Plan], points: Sequence[Points]) -> dict[str, None]:
    """The notes of all plans, and what is not observed, each once."""
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    hidden = [name for at in points for name in at.hidden_from_view]
    unseen = "Not checked: {}, because no module has it as input or output."
    of_hidden = (unseen.format(name) for name in hidden)
    return notes | dict.fromkeys(of_hidden)


def _branches(grid: Sequence[Size], points: Sequence[Points]) -> dict[int, int]:
    """The number of branches at every depth of the smallest networks."""
    return {
        size["depth"]: at.branches
        for size, at in zip(grid, points, strict=True)
        if size == {**grid[0], "depth": size["depth"]}
    }


def _of_deep_blocks(
    scheme: Scheme, exponents: Sequence[Exponent], roles: Mapping[Key, Role]
) -> Iterator[str]:
    """Of blocks of several matrices in series: that no rule is perfect, and what was seen of it."""
    inner = {
        key.module
        for key, role in roles.items()
        if role.kind is Kind.HIDDEN and role.in_branch and not role.last
    }
    seen = [
        e
        for e in exponents
        if (e.observable, e.axis) == (Observable.UPDATE, "depth")
        and e.module in inner
        and e.expected
    ]
    if not seen:
        return
    slope = fmean(e.estimate.value for e in seen)
    measured = f"{slope:+.2f}".replace("-", "−")
    keep = all(Fraction(e.expected) >= 0 for e in seen)
    price = (
        f"Under {scheme.title} their inner matrices keep learning as depth grows (exponent "
        f"{measured}), and neighbouring blocks come to do nearly the same."
        if keep
        else f"Under {scheme.title} their inner matrices learn less as depth grows (exponent "
        f"{measured})."
    )
    yield (
        "Blocks have two matrices or more in series, for which no rule of depth is perfect (Tensor "
        f"Programs VI, Section 9). {price} So exponents as predicted do not show that the learning "
        "rate transfers: measure it with `depthmup transfer`."
    )


def _limits(scheme: Scheme, observed: Iterable[Key], branches: Mapping[int, int]) -> Iterator[str]:
    """Notes on what these exponents leave open; ``branches`` by depth."""
    if not any(key.observable is Observable.DECAY for key in observed):
        yield "Weight decay is zero, so lr * decay was not checked."
    if len({count / depth for depth, count in branches.items()}) > 1:
        yield (
            f"The stream has {', '.join(map(str, branches.values()))} branches at depths "
            f"{', '.join(map(str, branches))}; exponents of depth are those of their number."
        )
    if not scheme.follows_depth and len(branches) > 1:
        yield f"{scheme.title} has no theory of depth; exponents of depth are its shape's."
