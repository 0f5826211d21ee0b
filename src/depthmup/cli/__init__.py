"""The command line: names become objects here."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from depthmup.cli.main import main

if TYPE_CHECKING:
    from depthmup.cli.folders import prepare_file, prepare_folder
    from depthmup.cli.interrupts import stopped
    from depthmup.cli.output import print_json
    from depthmup.cli.reproduce import Options as ReproduceOptions
    from depthmup.cli.terminal import Display
    from depthmup.cli.transfer import parse_budget

# For the commands that a clone has besides. Loaded when first used: ``main`` comes before all else.
_LAZY = {
    "Display": ("terminal", "Display"),
    "ReproduceOptions": ("reproduce", "Options"),
    "parse_budget": ("transfer", "parse_budget"),
    "prepare_file": ("folders", "prepare_file"),
    "prepare_folder": ("folders", "prepare_folder"),
    "print_json": ("output", "print_json"),
    "stopped": ("interrupts", "stopped"),
}

__all__ = [
    "Display",
    "ReproduceOptions",
    "main",
    "parse_budget",
    "prepare_file",
    "prepare_folder",
    "print_json",
    "stopped",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(f"depthmup.cli.{module}"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
