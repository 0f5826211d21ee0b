"""What one group says: its optima, exponents, the joint law of all axes, and what errors cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from depthmup.fitting.group import FEWEST_RATES, Group
from depthmup.records import UNKNOWN, Estimate, Place, Verdict
from depthmup.records.certificate import SizeOptimum, Slope
from depthmup.records.fit import CurvePoint, Exponent, JointLaw
from depthmup.records.study import sizes_along
from depthmup.rules import canonical
from depthmup.statistics import (
    Optima,
    Regression,
    centre_error,
    cost,
    loss_estimate,
    optima,
    pooled_law,
    rate_estimate,
)
from depthmup.statistics.intervals import Array, Flags, Index, around, student
from depthmup.statistics.table import confounded, slices

UNEVEN = 0.1
"""Octaves by which grids' spacings differ from which on their sizes are weighted."""

_FIXED = ("decay", "wd", "beta", "beta1", "beta2", "momentum", "eps", "epsilon", "warmup")
"""Words of settings that are said to be unchanged, or not, in a question."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """The usable sizes of one axis: in each slice the axis changes alone, or with its partners."""

    axis: str
    members: tuple[Index, ...]
    together: tuple[str, ...]

    @property
    def sizes(self) -> Index:
        return np.concatenate(self.members)


def usable(group: Group) -> Flags:
    """Sizes whose optimum lies inside its grid."""
    interior = np.array([location is Place.INTERIOR for location in group.fitted.places()])
    tried = (~np.isnan(group.fitted.curves.log2_lrs)).sum(-1)
    return np.asarray(interior & (tried >= FEWEST_RATES))


def slices_of(group: Group, axis: str, partners: Sequence[tuple[str, ...]]) -> Slices:
    """The slices of an axis over the sizes that can be used.

    Args:
        group: the cleaned runs.
        axis: one of the group's.
        partners: sets of axes that always change together.
    """
    number = group.axes.index(axis)
    good = np.flatnonzero(usable(group))
    together = next((p for p in partners if axis in p), ())
    if not len(good):
        return Slices(axis=axis, members=(), together=together)
    # Axes that never change apart are one: what else they are held at makes the slices.
    others = [group.axes.index(a) for a in together if a != axis]
    columns = np.delete(group.sizes[good], others, axis=1)
    members = slices(columns, number - sum(o < number for o in others))
    return Slices(axis=axis, members=tuple(good[m] for m in members), together=together)


def partners_of(group: Group) -> list[tuple[str, ...]]:
    """Axes that always change together among the sizes that can be used."""
    return confounded(group.sizes[usable(group)], group.axes)


def optimum_of(group: Group, size: int, confidence: float = 0.95) -> SizeOptimum:
    """One size's optimum, open outwards at an edge of its grid.

    Args:
        group: the cleaned runs.
        size: index of the size.
        confidence: of the intervals.
    """
    fitted, location = group.fitted, group.fitted.places()[size]
    values = dict(zip(group.axes, map(_number, group.sizes[size]), strict=True))
    if location is Place.FAILED or not np.isfinite(fitted.centre[size]):
        return SizeOptimum(
            size=values, log2_lr=UNKNOWN, curvature=UNKNOWN, loss=UNKNOWN, place=Place.FAILED
        )
    curvature = float(fitted.curvature[size])
    error, freedom = float(fitted.curvature_scatter[size]), 4.0
    if fitted.curves.fewest_seeds > 1:
        scatter, free = fitted.seed_error(fitted.curvature_without[size])
        error, freedom = float(scatter), float(free)
    loss = loss_estimate(fitted, size, confidence)
    if fitted.curves.fewest_seeds < 2:
        # The level of one curve scatters by no more than its points do.
        half = float(student(4, confidence)) * math.sqrt(float(fitted.point_variance))
        ends = [loss.value * math.exp(sign * half) for sign in (-1, 1)]
        loss = Estimate(value=loss.value, low=ends[0], high=ends[1])
    return SizeOptimum(
        size=values,
        log2_lr=rate_estimate(fitted, size, confidence),
        curvature=around(curvature, float(student(freedom, confidence)) * error),
        loss=loss,
        place=location,
    )


def points_of(group: Group) -> tuple[CurvePoint, ...]:
    """Every point of every curve, averaged over seeds."""
    x, y = group.fitted.curves.log2_lrs, group.fitted.log_losses
    return tuple(
        CurvePoint(
            size=int(size),
            log2_rate=float(x[size, rate]),
            loss=float(np.exp(min(y[size, rate], 700))) if y[size, rate] < math.inf else math.inf,
            runs=int(group.cells.runs[size, rate]),
        )
        for size, rate in zip(*np.nonzero(~np.isnan(y)), strict=True)
    )


def exponent_of(group: Group, along: Slices, *, tuned: str, tolerance: float) -> Exponent:
    """How the best value moves along an axis: one slope for all slices, a level for each.

    Args:
        group: the cleaned runs.
        along: the slices of the axis.
        tuned: the tuned hyperparameter in words.
        tolerance: octaves per doubling within which a value counts as staying.

    Returns:
        The exponent with its interval and verdict; unknown where no slice has two sizes.
    """
    question = question_of(group, along, tuned)
    unknown = Exponent(
        axis=along.axis,
        question=question,
        slices=tuple(tuple(int(i) for i in m) for m in along.members),
        exponent=UNKNOWN,
        bend=UNKNOWN,
        kept_cost=UNKNOWN,
        verdict=Verdict.UNDECIDED,
        why=f"No two sizes differ in {along.axis} alone and have an optimum inside their grid.",
        together=along.together,
    )
    if not along.members:
        return unknown
    sizes = along.sizes
    fitted = optima(group.cells.curves[sizes])
    x = np.log2(group.sizes[sizes, group.axes.index(along.axis)])
    level = np.zeros((len(sizes), len(along.members)))
    start = 0
    for number, member in enumerate(along.members):
        level[start : start + len(member), number] = 1
        start += len(member)
    # Centred, so that the bend of the curved law is not nearly parallel to its slope.
    x = x - x.mean()
    line = _regression(fitted, [level, x])
    exponent = line.estimate(level.shape[1], unit=f"log2 {tuned} per doubling of {along.axis}")
    curved = _regression(fitted, [level, x, x**2])
    bend = UNKNOWN
    if curved.rank == curved.design.shape[1] and curved.freedom >= 1:
        bend = curved.estimate(level.shape[1] + 1, scale=2.0, unit="change per doubling")
    verdict, why = judge_exponent(group, along, exponent, line, tolerance)
    longest = widest(group, along)
    return Exponent(
        axis=along.axis,
        question=question,
        slices=unknown.slices,
        exponent=exponent,
        bend=bend,
        kept_cost=cost_of(group.fitted, int(longest[0]), int(longest[-1]), 0.0),
        verdict=verdict,
        why=why,
        together=along.together,
    )


def _regression(fitted: Optima, columns: Sequence[Array]) -> Regression:
    """A law of sizes, weighted where their grids differ or some optima are beside a divergence.

    On one grid for all sizes it is the drift that ``transfer`` tells.
    """
    uneven = float(np.ptp(fitted.spacing)) > UNEVEN or bool(fitted.wall.any())
    return Regression(fitted=fitted, design=np.column_stack(columns), weighted=uneven, lenient=True)


def widest(group: Group, along: Slices) -> Index:
    """The slice that reaches farthest: what values cost is told of its ends."""
    return max(along.members, key=lambda member: _span(group, member, along.axis))


def cost_of(fitted: Optima, base: int, target: int, octaves: float) -> Estimate:
    """What the base's best value, times ``2**octaves``, costs at the target.

    Args:
        fitted: the optima of all sizes.
        base: index of the size whose best value is used.
        target: index of the size at which it is used.
        octaves: by which it is changed first.

    Returns:
        Nats.
    """
    gap = float(fitted.centre[base] - fitted.centre[target]) + octaves
    error = math.hypot(centre_error(fitted, base), centre_error(fitted, target))
    return cost(fitted, target, gap, error)


def judge_exponent(
    group: Group, along: Slices, exponent: Estimate, line: Regression, tolerance: float
) -> tuple[Verdict, str]:
    """Whether the best value stays, as ``transfer`` judges it: the interval against +-tolerance.

    An optimum at an edge of its grid is a bound. Where the law says that the optimum lies on this
    side of it, nothing is decided.

    Args:
        group: the cleaned runs.
        along: the slices of the axis.
        exponent: the slope with its interval.
        line: the regression behind it.
        tolerance: octaves per doubling within which a value counts as staying.

    Returns:
        The verdict and a sentence.
    """
    span = f"[{exponent.low:+.2f}, {exponent.high:+.2f}]".replace("-", "−")
    value = f"{exponent.value:+.2f}".replace("-", "−")
    if against := _contradicted(group, along, exponent, line):
        return Verdict.UNDECIDED, (
            f"The exponent is {value} {span}, but at {along.axis} {against} the best value is at "
            "an edge of the grid where this law does not put it: extend that grid."
        )
    failed = [i for i, location in enumerate(group.fitted.places()) if location is Place.FAILED]
    if failed and not exponent.outside(-tolerance, tolerance):
        values = sorted({group.sizes[i, group.axes.index(along.axis)] for i in failed})
        return Verdict.UNDECIDED, (
            f"Where it trains, the exponent is {value} {span}; at {along.axis} "
            f"{', '.join(f'{v:g}' for v in values)} nothing trains."
        )
    return worded(along.axis, exponent, tolerance)


def worded(axis: str, exponent: Estimate, tolerance: float) -> tuple[Verdict, str]:
    """The verdict of an interval against +-tolerance, and a sentence.

    Args:
        axis: along which the value moves.
        exponent: with its interval.
        tolerance: octaves per doubling within which a value counts as staying.
    """
    span = f"[{exponent.low:+.2f}, {exponent.high:+.2f}]".replace("-", "−")
    value = f"{exponent.value:+.2f}".replace("-", "−")
    if exponent.outside(-tolerance, tolerance):
        way = "falls" if exponent.value < 0 else "rises"
        return Verdict.DRIFTS, (
            f"The best value {way} with {axis}: exponent {value}, 95% interval {span}."
        )
    if exponent.inside(-tolerance, tolerance):
        return Verdict.TRANSFERS, (
            f"The best value stays: exponent {value}, 95% interval {span} inside ±{tolerance:g}."
        )
    return Verdict.UNDECIDED, (
        f"Exponent {value}, 95% interval {span}: neither inside nor outside ±{tolerance:g}. More "
        f"{sizes_along(axis)}, more seeds or a finer grid would tell."
    )


def _contradicted(group: Group, along: Slices, exponent: Estimate, line: Regression) -> str:
    """Values of the axis whose bound the law breaks, of the slices' own sizes."""
    if not exponent.known:
        return ""
    number = group.axes.index(along.axis)
    places, fitted = group.fitted.places(), group.fitted
    broken = []
    for member in along.members:
        others = [
            i for i, a in enumerate(group.axes) if a != along.axis and a not in along.together
        ]
        level = float(fitted.centre[member].mean())
        middle = float(np.log2(group.sizes[member, number]).mean())
        same = (group.sizes[:, others] == group.sizes[member[0], others]).all(-1)
        for size in np.flatnonzero(same):
            if places[size] not in (Place.LOW_EDGE, Place.HIGH_EDGE):
                continue
            step = float(np.log2(group.sizes[size, number])) - middle
            slopes = (exponent.low, exponent.high)
            spacing = float(fitted.spacing[size])
            expected = [level + slope * step for slope in slopes]
            if places[size] is Place.HIGH_EDGE and max(expected) < fitted.centre[size] - spacing:
                broken.append(group.sizes[size, number])
            if places[size] is Place.LOW_EDGE and min(expected) > fitted.centre[size] + spacing:
                broken.append(group.sizes[size, number])
    return ", ".join(f"{v:g}" for v in sorted(set(broken)))


def joint_law(group: Group, tuned: str) -> JointLaw | None:
    """One law of all axes over all sizes that can be used; none with fewer than three."""
    used = np.flatnonzero(usable(group))
    values = group.sizes[used]
    varied = [i for i in range(len(group.axes)) if len(np.unique(values[:, i])) > 1]
    if len(used) < 3 or not varied:
        return None
    base = values.min(0)
    x = np.log2(values / base)[:, varied]
    line = _regression(optima(group.cells.curves[used]), [np.ones(len(used)), x])
    if line.freedom < 1:
        return None
    axes = [group.axes[i] for i in varied]
    pairs = list(combinations(range(len(axes)), 2))
    products = [x[:, a] * x[:, b] for a, b in pairs]
    interactions: tuple[Slope, ...] = ()
    if products:
        wide = _regression(line.fitted, [line.design, *products])
        if wide.freedom >= 1 and wide.rank == wide.design.shape[1]:
            interactions = tuple(
                Slope(axis=f"{axes[a]} x {axes[b]}", estimate=wide.estimate(1 + len(axes) + i))
                for i, (a, b) in enumerate(pairs)
            )
    residuals = line.residuals
    return JointLaw(
        base=dict(zip(group.axes, map(_number, base), strict=True)),
        constant=line.estimate(0, unit=f"log2 {tuned}"),
        exponents=tuple(
            Slope(axis=axis, estimate=line.estimate(1 + i)) for i, axis in enumerate(axes)
        ),
        interactions=interactions,
        residuals=tuple(float(r) for r in residuals),
        used=tuple(int(i) for i in used),
        fit_error=float(np.linalg.norm(residuals) / math.sqrt(line.freedom)),
    )


def pooled_joint_law(group: Group, tuned: str) -> JointLaw | None:
    """One law of all runs at once, for sizes with too few rates for optima of their own."""
    x, y = group.fitted.curves.log2_lrs, group.fitted.log_losses
    size, rate = np.nonzero(np.isfinite(y))
    varied = [i for i in range(len(group.axes)) if len(np.unique(group.sizes[size, i])) > 1]
    if not varied:
        return None
    base = group.sizes.min(0)
    positions = np.log2(group.sizes / base)[:, varied]
    law = pooled_law(positions, size, x[size, rate], y[size, rate])
    if law is None:
        return None
    axes = [group.axes[i] for i in varied]
    return JointLaw(
        base=dict(zip(group.axes, map(_number, base), strict=True)),
        constant=replace(law.constant, unit=f"log2 {tuned}"),
        exponents=tuple(
            Slope(axis=axis, estimate=estimate)
            for axis, estimate in zip(axes, law.exponents, strict=True)
        ),
        interactions=(),
        residuals=(),
        used=(),
        fit_error=law.scatter,
        pooled=True,
    )


def sparse(group: Group, joint: JointLaw | None) -> bool:
    """Whether most sizes have too few rates for an optimum, or the others fix no law."""
    if joint is None or not all(slope.estimate.known for slope in joint.exponents):
        return True
    rates = (~np.isnan(group.fitted.curves.log2_lrs)).sum(-1)
    return bool((rates < FEWEST_RATES).mean() > 0.5)


def from_pooled(measured: Exponent, law: JointLaw, tolerance: float) -> Exponent:
    """An exponent by the law of all runs, where slices show none or know it less well.

    Args:
        measured: the exponent by slices.
        law: the law of all runs at once.
        tolerance: octaves per doubling within which a value counts as staying.
    """
    estimate = next((s.estimate for s in law.exponents if s.axis == measured.axis), UNKNOWN)
    own = measured.exponent
    if not estimate.known or measured.together:
        return measured
    if own.known and own.high - own.low <= estimate.high - estimate.low:
        return measured
    verdict, why = worded(measured.axis, estimate, tolerance)
    why += " From all runs at once: most sizes have too few rates for an optimum of their own."
    question = f"{measured.question}, in one law of all axes"
    return replace(measured, exponent=estimate, verdict=verdict, why=why, question=question)


def octave_costs(group: Group) -> tuple[Estimate, ...]:
    """What half and twice the best value cost at the largest size that can be used, in nats."""
    good = np.flatnonzero(usable(group))
    if not len(good):
        return ()
    largest = int(good[np.argmax(np.log2(group.sizes[good]).sum(-1))])
    error = centre_error(group.fitted, largest)
    return tuple(cost(group.fitted, largest, octaves, error) for octaves in (-1.0, 1.0))


def question_of(group: Group, along: Slices, tuned: str) -> str:
    """Which question a number answers, in words.

    Args:
        group: the cleaned runs.
        along: the slices of the axis.
        tuned: the tuned hyperparameter in words.
    """
    axis = along.axis
    others = [
        a
        for i, a in enumerate(group.axes)
        if a != axis and a not in along.together and len(np.unique(group.sizes[:, i])) > 1
    ]
    fixed = list(others)
    with_it = [a for a in along.together if a != axis]
    if canonical(axis) == "batch" and not {"tokens", "steps"} & set(map(canonical, group.axes)):
        budget = budget_of(group, along)
        (fixed if budget in ("tokens", "steps") else with_it).append(budget)
    text = f"the best {tuned} against {axis}"
    if with_it:
        text += f", while {' and '.join(w for w in with_it if w)} change with it" * any(with_it)
    if any(fixed):
        text += f", at fixed {' and '.join(name for name in fixed if name)}"
    return text + _settings(group, along)


def budget_of(group: Group, along: Slices) -> str:
    """What stays as the batch grows, by the column of steps: tokens, steps, or neither."""
    if not len(group.steps) or not along.members:
        return ""
    batch = group.sizes[:, group.axes.index(along.axis)]
    constant = {"steps": group.steps, "tokens": group.steps * batch}
    for what, values in constant.items():
        # Steps are counted in whole numbers and tokens to the last batch: 5% apart is the same.
        if all(np.ptp(np.log(values[m])) < 0.05 for m in along.members):
            return what
    return "steps and tokens"


def fixed_of(group: Group, along: Slices) -> str:
    """Whether tokens or steps stay fixed along the batch; empty where that is not known."""
    names = [canonical(a) for a in group.axes]
    for what in ("tokens", "steps"):
        if what in names and group.axes[names.index(what)] not in along.together:
            return what
    budget = budget_of(group, along)
    return budget if budget in ("tokens", "steps") else ""


def _settings(group: Group, along: Slices) -> str:
    """Which settings change with the axis, and which usual ones do not."""
    changed, same = [], []
    for name, codes in group.settings.items():
        if not along.members or len(codes) <= int(along.sizes.max()):
            continue
        if any(len(np.unique(codes[m])) > 1 for m in along.members):
            changed.append(name)
        elif any(word in _FIXED for word in name.lower().replace(".", "_").split("_")):
            same.append(name)
    text = f", {' and '.join(same)} unchanged" if same else ""
    return text + (f", while {' and '.join(changed)} change too" if changed else "")


def _span(group: Group, member: Index, axis: str) -> float:
    ends: Array = np.log2(group.sizes[member[[0, -1]], group.axes.index(axis)])
    return float(ends[1] - ends[0])


def _number(value: float) -> float:
    """Whole numbers as such."""
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(value)
