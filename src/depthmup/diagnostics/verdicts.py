"""Verdicts: measured exponents against those that a scheme predicts.

- An exponent *fails* if it is further from the prediction than ``MARGIN`` beyond chance, by Holm's
  procedure over all exponents of the check, so that a correct model is failed with at most 5%
  probability;
- otherwise it *passes* if its interval lies within ``RIVAL`` of the prediction;
- otherwise it is *undecided*.

The exponents of published rules are multiples of 1/2: the nearest rival of a prediction is 1/2
away, and what passes excludes it. Half of that, 1/4, is where both are equally far, and what lies
closer than that is corrections of small sizes, which shrink with size. Changes of the stream and
of the logits, sums over all layers whose parts are judged themselves, fail beyond ``RIVAL`` only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import fmean
from typing import TypeAlias

import numpy as np
from torch import nn

from depthmup.diagnostics.grid import further
from depthmup.diagnostics.labels import labels_by
from depthmup.diagnostics.observations import Key, Points
from depthmup.measuring import likely_cause
from depthmup.planning import Plan
from depthmup.records import Axis, Exponent, NonFinite, Outcome, Size
from depthmup.rules import ExpectedExponents, Family, Kind, Observable, Part, Role, Scheme, predict
from depthmup.statistics import CONFIDENCE, Slope, holm, log_slopes, moderated
from depthmup.tracing import matches

# Exponents of rival schemes are half a power apart, sqrt(width) or sqrt(depth): nearer than a
# quarter of a power to the prediction, no rival explains the measurement better.
RIVAL = 0.5
MARGIN = RIVAL / 2
# What follows from all layers together. Each layer is judged on its own as well; the sum carries
# corrections of relative order L^-1/2 besides, and where a small embedding meets pre-norm blocks
# its slope was measured 0.4 too high from 4 to 16 branches. So only a rival exponent fails it.
_SUMS = (Observable.STREAM_CHANGE, Observable.LOGITS_CHANGE, Observable.BRANCH_CHANGE)
# Of an update's effect, the most that may be chance where exponents are to be theory's.
MOST_CHANCE = 0.5
_CROWDED = (
    "At width {1} updates of {0} are mostly noise (more inputs than coordinates). Their exponent "
    "may read up to 1/2 too low. Take larger widths, a smaller batch, or fewer places."
)
_BOUND = (
    "Behind a matrix that narrows, what a network starts with is smaller the wider it is. Along "
    "width the expected exponent is an upper bound there, and {} below."
)
_FIXED = "its stream has as many branches at every depth"
_SEVERAL = "one name for layers of several depths, which follow no single power"
_EFFECTS = (Observable.UPDATE, Observable.READOUT_UPDATE)
_WEIGHTS = (Observable.SPECTRAL_UPDATE, Observable.ENTRY_UPDATE)
_STARTS = (Observable.STREAM, Observable.BRANCH, Observable.PREACTIVATION, Observable.READOUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fitted:
    """One measured exponent beside its prediction; ``shown`` if it is not to be judged.

    ``narrow``: the network narrows somewhere; what is behind starts the smaller the wider it is.
    ``crowded``: most of an update's effect is chance, which falls by half a power of the width.
    """

    key: Key
    axis: str
    slope: Slope
    prediction: ExpectedExponents
    shown: bool
    narrow: bool
    crowded: bool = False

    @property
    def expected(self) -> Fraction | None:
        """The predicted exponent; None if there is none."""
        predicted = {
            "width": self.prediction.width,
            "depth": self.prediction.depth,
            "experts": self.prediction.experts,
        }
        return predicted.get(self.axis, self.prediction.further)

    @property
    def lower(self) -> float:
        """How far below the prediction chance alone brings an exponent."""
        return RIVAL if self.crowded and self.axis == "width" else 0.0

    def p_outside(self, expected: float) -> float:
        """p-value of the hypothesis that nothing but small sizes and chance is to be seen."""
        margin = RIVAL if self.key.observable in _SUMS else MARGIN
        return self.slope.p_outside(expected - self.lower / 2, margin + self.lower / 2)

    @property
    def bounded(self) -> bool:
        """Whether the prediction is an upper bound only."""
        if self.axis == "width":
            return self.narrow and self.key.observable in _STARTS
        if self.axis == "depth":
            return self.prediction.at_most
        # A mean over more parts is smaller while they are independent: at the start.
        return self.key.observable is Observable.BRANCH


Values: TypeAlias = dict[Key, dict[tuple[int, int], float]]
"""Of every observable: its value in every network, by index of the size and seed."""


def judge(
    values: Values,
    chances: Values,
    grid: Sequence[Mapping[Axis, int]],
    points: Sequence[Points],
    scheme: Scheme,
    family: Family,
    roles: Mapping[Key, Role],
    modules: str | None,
    own_depths: Mapping[int, Mapping[str, float]],
) -> tuple[tuple[Exponent, ...], list[str]]:
    """Fit every exponent and judge it; ``points`` are where each size of the grid was observed.

    ``chances`` are the parts of updates' effects that any input of the same size would show.

    Exponents of depth refer to the number of branches; those of what lies in branches to the depths
    of their own streams (``depths_of``), by the index of the size.
    """
    if modules is not None and not any(_matches(modules, k.module) for k in values):
        raise ValueError(
            f"No module matches {modules!r}. There are "
            f"{', '.join(sorted({k.module for k in values}))}."
        )
    counted = [{**size, "depth": at.branches} for size, at in zip(grid, points, strict=True)]
    head_grows = len({frozenset(at.heads) for at in points}) > 1
    widest = max(range(len(grid)), key=lambda i: grid[i]["width"])
    readout = next((r for r in roles.values() if r.kind is Kind.READOUT), None)
    covered = {k.module for k in values if k.observable in _EFFECTS}
    narrow = any(role.narrows and role.part is not Part.ROUTER for role in roles.values())
    fitted: list[_Fitted] = []
    shares = {
        key: [part for (i, _), part in of.items() if i == widest] for key, of in chances.items()
    }
    crowded = {key.module for key, parts in shares.items() if fmean(parts or [0]) > MOST_CHANCE}
    notes = [_CROWDED.format(module, grid[widest]["width"]) for module in sorted(crowded)]
    for key, group in values.items():
        role = roles.get(key) or (readout if key.observable is Observable.LOGITS else None)
        prediction = predict(scheme, family, key.observable, role=role, head_grows=head_grows)
        ratios = [of.get(key.module) for of in own_depths.values()]
        sizes, prediction = _along_own_depth(counted, ratios, prediction)
        slopes = _slopes(key, group, sizes, notes)
        if not slopes:
            continue
        shown = _only_shown(key, role, family, covered, points[widest], head_grows=head_grows)
        if role is not None and role.kind is Kind.HIDDEN and key.module in crowded:
            # What an update is multiplied with does not change its entries.
            shown = shown and key.observable is not Observable.ENTRY_UPDATE
        fitted += [
            _Fitted(
                key=key,
                axis=axis,
                slope=slope,
                prediction=prediction,
                shown=shown and not _of_several_experts(key, axis, role, covered),
                narrow=narrow,
                crowded=key.observable in _EFFECTS and key.module in crowded,
            )
            for axis, slope in slopes.items()
        ]
    # All slopes say how seeds scatter, also those that are not asked for.
    better = moderated([fit.slope for fit in fitted])
    fitted = [
        replace(fit, slope=slope)
        for fit, slope in zip(fitted, better, strict=True)
        if modules is None or _matches(modules, fit.key.module)
    ]
    rejected = holm(
        {
            (fit.key, fit.axis): fit.p_outside(float(fit.expected))
            for fit in fitted
            if fit.expected is not None and not fit.shown and not _below(fit)
        },
        level=1 - CONFIDENCE,
    )
    below = [
        str(fit.key)
        for fit in fitted
        if fit.axis == "width"
        and _below(fit)
        and fit.slope.value < float(fit.expected or 0) - MARGIN
    ]
    if below:
        notes.append(_BOUND.format(f"{', '.join(below)} {'lies' if len(below) == 1 else 'lie'}"))
    return tuple(
        _judged(fit, (fit.key, fit.axis) in rejected, scheme, family, roles.get(fit.key))
        for fit in fitted
    ), notes


def depths_of(model: nn.Module, plan: Plan, points: Points) -> dict[str, float]:
    """The ratio of the depth that branches and their parameters are planned by, by pattern.

    Not a number where a pattern stands for several ratios.
    """
    labels = labels_by(model, plan, points.apart)
    inside = [p for p in plan.prescriptions if p.branches]
    of_branch = {p.branches[-1]: p.ratios.depth for p in inside}
    pairs = [(labels(p.name), p.ratios.depth) for p in inside]
    pairs += [(p.key.module, of_branch[p.branch]) for p in points.points if p.branch in of_branch]
    found: dict[str, set[float]] = {}
    for pattern, ratio in pairs:
        found.setdefault(pattern, set()).add(ratio)
    return {
        pattern: ratios.pop() if len(ratios) == 1 else math.nan for pattern, ratios in found.items()
    }


def _along_own_depth(
    sizes: Sequence[Mapping[Axis, int]],
    ratios: Sequence[float | None],
    prediction: ExpectedExponents,
) -> tuple[Sequence[Mapping[Axis, float]], ExpectedExponents]:
    """The sizes as a stream with these ratios of depth counts them, and what is predicted there.

    A stream that never grows is judged along the depth of the others, which must not change it.
    """
    known = [ratio for ratio in ratios if ratio is not None]
    depths = [size["depth"] for size in sizes]
    if len(known) < len(sizes) or len({*depths}) == 1:
        return sizes, prediction
    if any(map(math.isnan, known)):
        return sizes, replace(prediction, depth=None, why=f"{prediction.why}; {_SEVERAL}")
    if set(known) != {1.0}:
        own = [{**size, "depth": depths[0] * r} for size, r in zip(sizes, known, strict=True)]
        return own, prediction
    if prediction.depth is not None:
        why = f"{prediction.why}; {_FIXED}"
        prediction = replace(prediction, depth=Fraction(0), why=why)
    return sizes, prediction


def _slopes(
    key: Key,
    group: Mapping[tuple[int, int], float],
    grid: Sequence[Mapping[Axis, float]],
    notes: list[str],
) -> dict[str, Slope]:
    """Slopes of one observable along the axes that vary; a note where there are none to fit."""
    if not any(group.values()):
        notes.append(f"{key} is zero at every size.")
        return {}
    positive = {at: value for at, value in group.items() if 0 < value < math.inf}
    if 2 * len(positive) < len(group):
        notes.append(f"{key} is zero at most sizes, so it has no slope.")
        return {}
    sizes = [grid[i] for i, _ in positive]
    varied = [axis for axis in sizes[0] if len({size[axis] for size in sizes}) > 2]
    if not varied:
        return {}
    try:
        slopes = log_slopes(
            [tuple(float(size[axis]) for axis in varied) for size in sizes],
            list(positive.values()),
            [seed for _, seed in positive],
        )
    except (ValueError, np.linalg.LinAlgError):  # too few sizes, or all on one line
        notes.append(f"{key} is not zero at too few sizes for a slope.")
        return {}
    return dict(zip(varied, slopes, strict=True))


def _judged(
    fit: _Fitted, rejected: bool, scheme: Scheme, family: Family, role: Role | None
) -> Exponent:
    estimate, expected = fit.slope.estimate(CONFIDENCE), fit.expected
    cause = ""
    if expected is None or fit.shown:
        outcome = Outcome.SHOWN
    elif rejected:
        outcome = Outcome.FAIL
        cause = likely_cause(
            fit.key.observable,
            fit.axis,
            estimate.value - float(expected),
            scheme=scheme,
            family=family,
            role=role,
        )
    elif estimate.inside(
        -math.inf if fit.bounded else float(expected) - RIVAL - fit.lower, float(expected) + RIVAL
    ):
        outcome = Outcome.PASS
    else:
        outcome = Outcome.UNDECIDED
    return Exponent(
        observable=str(fit.key.observable),
        module=fit.key.module,
        axis=fit.axis,
        estimate=estimate,
        outcome=outcome,
        expected="" if expected is None else str(expected),
        why=fit.prediction.why,
        cause=cause,
    )


def _below(fit: _Fitted) -> bool:
    """Whether an exponent lies below a prediction that is a bound."""
    return fit.bounded and fit.expected is not None and fit.slope.value <= float(fit.expected)


def _only_shown(
    key: Key,
    role: Role | None,
    family: Family,
    covered: set[str],
    points: Points,
    *,
    head_grows: bool,
) -> bool:
    """Whether an observable is measured without being judged, whatever theory predicts of it."""
    if key.observable is Observable.LOGITS:
        return True  # too few numbers; the readout is judged on random inputs
    if key.observable is Observable.DECAY:
        return role is None or role.kind is Kind.VECTOR  # theirs is a matter of taste
    if key.module in points.keys_biases | points.undone:
        return True  # softmax or a batch norm ignores them: their gradient is rounding alone
    if key.observable in _WEIGHTS:
        # Effects on outputs say what weights alone would say, and more sharply.
        if key.module in covered or (role is not None and role.kind is Kind.READOUT):
            return True
        if key.observable is Observable.ENTRY_UPDATE and role is not None:
            return role.kind is Kind.HIDDEN
    # Where heads grow, a fresh query and its key are not aligned and their gradients are smaller
    # by n^-1/2 until training has aligned them; what Adam makes of them does not depend on it.
    return key.module in points.queries_and_keys and head_grows and family is Family.RAW


def _of_several_experts(key: Key, axis: str, role: Role | None, covered: set[str]) -> bool:
    """Whether one tensor holds many experts, which are no module whose effect could be measured.

    The number of entries that an entry of the output sums over is the same for any number of
    experts, so that their change says what their effect would.
    """
    expert = role is not None and role.part in (Part.EXPERT, Part.DOWN)
    entry = key.observable is Observable.ENTRY_UPDATE
    return axis == "experts" and expert and entry and key.module not in covered


def _matches(pattern: str, module: str) -> bool:
    return matches(pattern, module) is not None or module.startswith(f"{pattern}.")


def outcome_of(exponents: Sequence[Exponent], nonfinite: NonFinite | None) -> Outcome:
    """The outcome of a check: the worst of its exponents\'."""
    outcomes = {e.outcome for e in exponents}
    if nonfinite is not None or Outcome.FAIL in outcomes:
        return Outcome.FAIL
    if Outcome.UNDECIDED in outcomes or Outcome.PASS not in outcomes:
        return Outcome.UNDECIDED
    return Outcome.PASS


def summaries(values: Values, grid: Sequence[Mapping[Axis, int]]) -> tuple[Size, ...]:
    """Means and spreads over seeds at every size."""
    result = []
    for i, size in enumerate(grid):
        for key, group in values.items():
            found = [value for (at, _), value in group.items() if at == i and value > 0]
            if not found:
                continue
            logs = np.log(found)
            result.append(
                Size(
                    observable=str(key.observable),
                    module=key.module,
                    width=size["width"],
                    depth=size["depth"],
                    along=further(size),
                    value=float(np.exp(logs.mean())),
                    spread=float(logs.std(ddof=1)) if len(found) > 1 else 0.0,
                    seeds=tuple(found),
                )
            )
    return tuple(result)
