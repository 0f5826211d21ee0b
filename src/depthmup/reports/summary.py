"""The result as strict JSON: what other programs read."""

from typing import Any

from depthmup.records import Estimate, Study, Transfer
from depthmup.reports.rows import strict, transfers


def summary(study: Study) -> dict[str, Any]:
    """The headline window's findings, with how they were measured, as strict JSON holds them.

    ``{"schemes": [{"scheme", "alpha", "gamma", "depths", "optimum": [{"depth", "log2_lr", "low",
    "high", "loss", "status"}], "drift": {"estimate", "low", "high", "unit"}, "regret": {the same},
    "verdict", "why"}], "config": {...}, "environment": {...}}``

    ``status`` is the optimum's place ("interior", "low edge", "high edge", "failed"). What could
    not be measured is null, so ``json.dumps(summary(study), allow_nan=False)`` never fails.
    """
    return {
        "schemes": [_scheme(transfer) for transfer in transfers(study)],
        "config": strict(study.config),
        "environment": strict(study.environment),
    }


def _scheme(transfer: Transfer) -> dict[str, Any]:
    return {
        "scheme": transfer.scheme,
        "alpha": transfer.alpha,
        "gamma": transfer.gamma,
        "depths": [optimum.depth for optimum in transfer.optima],
        "optimum": [
            {
                "depth": optimum.depth,
                "log2_lr": strict(optimum.log2_lr.value),
                "low": strict(optimum.log2_lr.low),
                "high": strict(optimum.log2_lr.high),
                "loss": strict(optimum.loss.value),
                "status": optimum.place.value,
            }
            for optimum in transfer.optima
        ],
        "drift": _estimate(transfer.drift, "octaves per doubling of depth"),
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
