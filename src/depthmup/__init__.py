"""Hyperparameters that transfer across the width and depth of neural networks."""

from importlib import import_module
from typing import Any

from depthmup._version import __version__

# Loaded when first used, so that importing the rules does not load PyTorch.
_LAZY = {
    "Auto": "depthmup.sweep",
    "Branch": "depthmup.planning",
    "BuiltIn": "depthmup.sweep",
    "Design": "depthmup.sweep",
    "Execution": "depthmup.execution",
    "FitReport": "depthmup.report",
    "Model": "depthmup.model",
    "Plan": "depthmup.planning",
    "PlanOptions": "depthmup.planning",
    "RecipeReport": "depthmup.recipes",
    "Report": "depthmup.report",
    "Trial": "depthmup.records",
    "check": "depthmup.diagnostics",
    "family_of": "depthmup.planning",
    "fit": "depthmup.from_table",
    "load": "depthmup.report",
    "next_runs": "depthmup.tables",
    "plan": "depthmup.planning",
    "predict": "depthmup.diagnostics",
    "score": "depthmup.from_table",
    "transfer": "depthmup.measure",
}
_LISTS = {"schemes": "CATALOGUE", "optimizers": "OPTIMIZERS"}
_PACKAGES = ("diagnostics", "limits", "rules")

__all__ = [
    "Auto",
    "Branch",
    "BuiltIn",
    "Design",
    "Execution",
    "FitReport",
    "Model",
    "Plan",
    "PlanOptions",
    "RecipeReport",
    "Report",
    "Trial",
    "__version__",
    "check",
    "diagnostics",
    "family_of",
    "fit",
    "limits",
    "load",
    "next_runs",
    "plan",
    "predict",
    "rules",
    "score",
    "transfer",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _PACKAGES:
        return import_module(f"depthmup.{name}")
    import difflib

    near = difflib.get_close_matches(name, __all__, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    if name in _LISTS:
        meant = f" depthmup.rules.{_LISTS[name]} has the {name}."
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{meant}")


def __dir__() -> list[str]:
    return sorted(__all__)
