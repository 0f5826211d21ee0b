"""The result as strict JSON: what other programs read."""

from typing import Any

from depthmup.records import Estimate, Study, Transfer
from depthmup.records.codec import strict
from depthmup.reports.study_rows import size_of, transfers


def summary(study: Study, *more: Study) -> dict[str, Any]:
    """The headline windows' findings, with how they were measured, as strict JSON holds them.

    ``{"schemes": [{"scheme", "alpha", "gamma", "axis", "depths", "optimum": [{"depth", "log2_lr",
    "low", "high", "loss", "status"}], "drift": {"estimate", "low", "high", "unit"}, "regret": {the
    same}, "verdict", "why"}], "config": {...}, "environment": {...}}``

    ``axis`` is what grows, "depth" or "width"; where it is width, "widths" stand in place of
    "depths". An optimum has its "width" where that was said; its ``status`` is its place
    ("interior", "low edge", "high edge", "failed"). What could not be measured is null, so
    ``json.dumps(summary(study), allow_nan=False)`` never fails.
    """
    return {
        "schemes": [_scheme(s, transfer) for s in (study, *more) for transfer in transfers(s)],
        "config": strict(study.config),
        "environment": strict(study.environment),
    }


def _scheme(study: Study, transfer: Transfer) -> dict[str, Any]:
    return {
        "scheme": transfer.scheme,
        "alpha": transfer.alpha,
        "gamma": transfer.gamma,
        "axis": study.axis,
        f"{study.axis}s": [size_of(study, optimum) for optimum in transfer.optima],
        "optimum": [
            {
                **optimum.size,
                "log2_lr": strict(optimum.log2_lr.value),
                "low": strict(optimum.log2_lr.low),
                "high": strict(optimum.log2_lr.high),
                "loss": strict(optimum.loss.value),
                "status": optimum.place.value,
            }
            for optimum in transfer.optima
        ],
        "drift": _estimate(transfer.drift, f"octaves per doubling of {study.axis}"),
        "regret": _estimate(transfer.regret, "loss"),
        "verdict": transfer.verdict.value,
        "why": transfer.why,
    }


def _estimate(estimate: Estimate, unit: str) -> dict[str, Any]:
    return {
        "estimate": strict(estimate.value),
        "low": strict(estimate.low),
        "high": strict(estimate.high),
        "unit": estimate.unit or unit,
    }
