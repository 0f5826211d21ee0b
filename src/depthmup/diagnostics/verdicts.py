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

import numpy as np
import torch

from depthmup.diagnostics.causes import likely_cause
from depthmup.diagnostics.observations import Key, Points
from depthmup.diagnostics.visits import Look
from depthmup.records import Exponent, NonFinite, Outcome, Size
from depthmup.rules import Family, Kind, Observable, Prediction, Role, Scheme, predict
from depthmup.statistics import Slope, holm, log_slopes, moderated
from depthmup.tracing import matches

RIVAL = 0.5
MARGIN = RIVAL / 2
CONFIDENCE = 0.95
# What follows from all layers together. Each layer is judged on its own as well; the sum carries
# corrections of relative order L^-1/2 besides, and where a small embedding meets pre-norm blocks
# its slope was measured 0.4 too high from 4 to 16 branches. So only a rival exponent fails it.
_SUMS = (Observable.STREAM_CHANGE, Observable.LOGITS_CHANGE, Observable.BRANCH_CHANGE)
_EFFECTS = (Observable.UPDATE, Observable.READOUT_UPDATE)
_WEIGHTS = (Observable.SPECTRAL_UPDATE, Observable.ENTRY_UPDATE)


def judge(
    looks: Sequence[Look],
    scheme: Scheme,
    family: Family,
    roles: Mapping[Key, Role],
    points: Points,
    modules: str | None,
) -> tuple[tuple[Exponent, ...], list[str]]:
    """Fit every exponent and judge it; also notes on what could not be fitted."""
    by_key: dict[Key, list[Look]] = {}
    for look in looks:
        by_key.setdefault(look.key, []).append(look)
    if modules is not None and not any(_matches(modules, k.module) for k in by_key):
        raise ValueError(
            f"No module matches {modules!r}. There are "
            f"{', '.join(sorted({k.module for k in by_key}))}."
        )
    readout = next((r for r in roles.values() if r.kind is Kind.READOUT), None)
    covered = {k.module for k in by_key if k.observable in _EFFECTS}
    fitted: list[tuple[Key, str, Slope, Prediction, bool]] = []
    notes = []
    for key, found in by_key.items():
        if all(look.value == 0 for look in found):
            notes.append(f"{key} is zero at every size.")
            continue
        positive = [look for look in found if 0 < look.value < float("inf")]
        if 2 * len(positive) < len(found):
            notes.append(f"{key} is zero at most sizes, so it has no slope.")
            continue
        varied = [axis for axis in ("width", "depth") if len({p.size(axis) for p in positive}) > 2]
        if not varied:
            continue
        role = roles.get(key) or (readout if key.observable is Observable.LOGITS else None)
        prediction = predict(
            scheme, family, key.observable, role=role, head_grows=len(set(points.heads)) > 1
        )
        # Effects on outputs say what weights alone would say, and more sharply.
        shown = _only_shown(key, role, family, covered, points)
        try:
            slopes = log_slopes(
                [tuple(p.size(axis) for axis in varied) for p in positive],
                [p.value for p in positive],
                [p.seed for p in positive],
            )
        except (ValueError, np.linalg.LinAlgError):  # too few sizes, or all on one line
            notes.append(f"{key} is not zero at too few sizes for a slope.")
            continue
        fitted += [
            (key, axis, slope, prediction, shown)
            for axis, slope in zip(varied, slopes, strict=True)
        ]
    # All slopes say how seeds scatter, also those that are not asked for.
    better = moderated([slope for _, _, slope, _, _ in fitted])
    fitted = [
        (key, axis, slope, prediction, shown)
        for (key, axis, _, prediction, shown), slope in zip(fitted, better, strict=True)
        if modules is None or _matches(modules, key.module)
    ]
    p_values = {
        (key, axis): slope.p_outside(float(expected), RIVAL if key.observable in _SUMS else MARGIN)
        for key, axis, slope, prediction, shown in fitted
        if (expected := getattr(prediction, axis)) is not None
        and not shown
        and not _below(prediction, axis, slope)
    }
    rejected = holm(p_values, level=1 - CONFIDENCE)
    result = []
    for key, axis, slope, prediction, shown in fitted:
        expected = getattr(prediction, axis)
        estimate = slope.estimate(CONFIDENCE)
        if expected is None or shown:
            outcome = Outcome.SHOWN
        elif (key, axis) in rejected:
            outcome = Outcome.FAIL
        elif estimate.inside(
            -math.inf if prediction.at_most and axis == "depth" else float(expected) - RIVAL,
            float(expected) + RIVAL,
        ):
            outcome = Outcome.PASS
        else:
            outcome = Outcome.UNDECIDED
        cause = ""
        if outcome is Outcome.FAIL:
            cause = likely_cause(
                key.observable,
                axis,
                estimate.value - float(expected),
                scheme=scheme,
                family=family,
                role=roles.get(key),
            )
        result.append(
            Exponent(
                observable=str(key.observable),
                module=key.module,
                axis=axis,
                estimate=estimate,
                outcome=outcome,
                expected="" if expected is None else str(expected),
                why=prediction.why,
                cause=cause,
            )
        )
    return tuple(result), notes


def _below(prediction: Prediction, axis: str, slope: Slope) -> bool:
    """Whether an exponent lies below a prediction that is a bound."""
    expected = getattr(prediction, axis)
    return prediction.at_most and axis == "depth" and slope.value <= float(expected)


def _only_shown(
    key: Key, role: Role | None, family: Family, covered: set[str], points: Points
) -> bool:
    """Whether an observable is measured without being judged, whatever theory predicts of it."""
    if key.observable is Observable.LOGITS:
        return True  # too few numbers; the readout is judged on random inputs
    if key.observable is Observable.DECAY:
        return role is None or role.kind is Kind.VECTOR  # theirs is a matter of taste
    if key.observable in _WEIGHTS:
        # Effects on outputs say what weights alone would say, and more sharply.
        if key.module in covered or (role is not None and role.kind is Kind.READOUT):
            return True
        if key.observable is Observable.ENTRY_UPDATE and role is not None:
            return role.kind is Kind.HIDDEN
    if key.module in points.keys_biases:
        return True  # softmax ignores them: their gradient is zero but for rounding
    # Where heads grow, a fresh query and its key are not aligned and their gradients are smaller
    # by n^-1/2 until training has aligned them; what Adam makes of them does not depend on it.
    return (
        key.module in points.queries_and_keys
        and len(set(points.heads)) > 1
        and (family is Family.RAW)
    )


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


def summaries(looks: Sequence[Look]) -> tuple[Size, ...]:
    """Means and spreads over seeds at every size."""
    cells: dict[tuple[Key, int, int], list[float]] = {}
    for look in looks:
        if look.value > 0:
            cells.setdefault((look.key, look.width, look.depth), []).append(look.value)
    result = []
    for (key, width, depth), values in cells.items():
        logs = torch.tensor(values, dtype=torch.float64).log()
        result.append(
            Size(
                observable=str(key.observable),
                module=key.module,
                width=width,
                depth=depth,
                value=float(logs.mean().exp()),
                spread=float(logs.std()) if len(values) > 1 else 0.0,
                seeds=tuple(values),
            )
        )
    return tuple(result)
