"""One law of all axes: over the optima of all sizes, or over all runs at once."""

import math
from dataclasses import replace

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.records import UNKNOWN, Estimate, Transfer, Tuned, Verdict
from depthmup.records.certificate import AxisSlope
from depthmup.records.judgement import JointLaw
from depthmup.records.text import begin
from depthmup.statistics import cost, pooled_law
from depthmup.statistics.drift import drift_unit, judge
from depthmup.statistics.pooled import Pooled
from depthmup.statistics.runs import FEWEST_RATES, Runs
from depthmup.tables.clean import number


def joint_law(runs: Runs, tuned: Tuned) -> JointLaw | None:
    """One law of all axes over all sizes that can be used; none with fewer than three."""
    used = np.flatnonzero(~runs.optima.failed)
    varied = runs.varied(used)
    if len(used) < 3 or not varied:
        return None
    values = runs.array[used]
    x = np.log2(values / values.min(0))[:, list(varied.values())]
    design = np.column_stack([np.ones(len(x)), x])
    freedom = len(x) - int(np.linalg.matrix_rank(design))
    if freedom < 1:
        return None
    trained = [runs.trains.index(int(i)) for i in used]
    rows = runs.minima.least_squares(design, trained)
    at = runs.minima.at[trained]
    residuals = at - design @ (rows @ at)

    def term(number: int, unit: str = "") -> Estimate:
        known = np.allclose(rows[number] @ design, np.eye(len(rows))[number], atol=1e-6)
        row = np.zeros(len(runs.sizes))
        row[used] = rows[number]
        return runs.estimate(row, unit=unit) if known else replace(UNKNOWN, unit=unit)

    half, twice = octave_costs(runs)
    in_step = {axis for axes in runs.in_step for axis in axes}
    return JointLaw(
        scheme=runs.name,
        base=_base(runs, values),
        constant=term(0, f"log2 {tuned.name}"),
        exponents=tuple(
            AxisSlope(axis=axis, estimate=UNKNOWN if axis in in_step else term(1 + i))
            for i, axis in enumerate(varied)
        ),
        sizes=tuple(runs.sizes[int(i)] for i in used),
        residuals=tuple(float(r) for r in residuals),
        fit_error=float(np.linalg.norm(residuals) / math.sqrt(freedom)),
        half=half,
        twice=twice,
    )


def _base(runs: Runs, values: Array) -> dict[str, float]:
    """The smallest value along every axis."""
    return dict(zip(runs.sizes[0], map(number, values.min(0)), strict=True))


def pooled_joint_law(runs: Runs, tuned: Tuned, law: Pooled | None = None) -> JointLaw | None:
    """One law of all runs at once, for sizes with too few rates for optima of their own."""
    x, y = runs.optima.curves.log2_lrs, runs.optima.log_losses
    size, rate = np.nonzero(np.isfinite(y))
    # A law that is given has an exponent for every axis, also of sizes where all runs diverged.
    varied = runs.varied(size if law is None else slice(None))
    if not varied:
        return None
    if law is None:
        positions = np.log2(runs.array / runs.array.min(0))[:, list(varied.values())]
        law = pooled_law(positions, size, x[size, rate], y[size, rate])
    if law is None:
        return None
    half, twice = octave_costs(runs)
    return JointLaw(
        scheme=runs.name,
        base=_base(runs, runs.array),
        constant=replace(law.constant, unit=f"log2 {tuned.name}"),
        exponents=tuple(
            AxisSlope(axis=axis, estimate=estimate)
            for axis, estimate in zip(varied, law.exponents, strict=True)
        ),
        sizes=(),
        residuals=(),
        fit_error=law.scatter,
        pooled=True,
        half=half,
        twice=twice,
    )


def sparse(runs: Runs, joint: JointLaw | None) -> bool:
    """Whether most sizes have too few rates for an optimum, or the others fix no law."""
    if joint is None or not all(slope.estimate.known for slope in joint.exponents):
        return True
    rates = (~np.isnan(runs.curves.log2_lrs)).sum(-1)
    return bool((rates < FEWEST_RATES).mean() > 0.5)


def from_law(
    along: Transfer,
    axis: str,
    law: JointLaw | None,
    *,
    tolerance: float,
    tuned: Tuned,
    moved: bool = False,
    confounded: bool = False,
) -> Transfer:
    """A drift by the law of all axes, where slices show none or know it less well.

    What slices decide stands. Slices of runs that the law itself has ``moved`` to their sizes know
    nothing beyond it. Where others change with the axis, and not in step, a line along it alone
    says nothing of it; of axes that are ``confounded`` it says what they do together.
    """
    exponents = () if law is None else law.exponents
    drift = next((s.estimate for s in exponents if s.axis == axis), UNKNOWN)
    drift, own = replace(drift, unit=drift_unit(axis, tuned)), along.drift
    verdict, why = judge((), drift, seeds=2, tolerance=tolerance, axis=axis, tuned=tuned)
    of_all = "in one law of all axes"
    if along.together:
        if confounded:
            return along
        others = " and ".join(other for other in along.together if other != axis)
        why = (
            f"{why} No two sizes differ in it alone: this is from the law of all axes."
            if drift.known
            else f"{begin(others)} changes too, and not in step. Vary {axis} alone."
        )
        question = f"the best {tuned.name} against {axis}, {of_all}"
        along = replace(along, question=question, regret=UNKNOWN, bend=UNKNOWN, together=())
    else:
        narrower = own.known and own.high - own.low <= drift.high - drift.low
        decided = narrower or along.verdict is not Verdict.UNDECIDED
        if law is None or not law.pooled or not drift.known or (decided and not moved):
            return along
        why += " From all runs at once: too few sizes have an optimum of their own."
        along = replace(along, question=f"{along.question}, {of_all}")
    return replace(along, drift=drift, verdict=verdict, why=why)


def octave_costs(runs: Runs) -> tuple[Estimate, Estimate]:
    """The loss that half and twice the best value add at the largest size that can be used."""
    good = np.flatnonzero(runs.inside)
    if not len(good):
        return UNKNOWN, UNKNOWN
    found = runs.minima
    largest = runs.trains.index(int(good[np.argmax(np.log2(runs.array[good]).sum(-1))]))
    away, at = -np.eye(len(found.at))[largest], float(found.at[largest])
    half, twice = (cost(found, largest, away, at + octaves) for octaves in (-1.0, 1.0))
    return half, twice
