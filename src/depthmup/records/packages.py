"""Packages that only some work needs, and the extras that install them."""

import os
import shlex
import sys
from importlib.util import find_spec

EXTRAS = {
    "vl_convert": "pages",
    "pandas": "tables",
    "pyarrow": "parquet",
    "tensorboard": "tensorboard",
    "wandb": "trackers",
    "mlflow": "trackers",
    "optuna": "trackers",
    "yaml": "trackers",
    "transformers": "hf",
    "datasets": "hf",
    "ray": "ray",
}
"""By the name that is imported."""


def installed(*packages: str) -> bool:
    """Whether all of these can be imported."""
    # Found and not imported: an import may take seconds.
    return all(find_spec(name) is not None for name in packages)


def need(what: str, *packages: str) -> None:
    """Refuse work whose packages are not installed, before it begins."""
    for name in packages:
        if find_spec(name) is None:
            raise ModuleNotFoundError(without(what, name))


def without(what: str, package: str) -> str:
    """The sentence that says what is missing, and how to install it."""
    extra = EXTRAS.get(package)
    wanted = f"'depthmup[{extra}]'" if extra else package
    return f"{what} needs {package}, which is not installed here: {pip()} install {wanted}."


def pip() -> str:
    """The pip of this environment; one that is not activated is named by its path."""
    activated = sys.prefix in (sys.base_prefix, os.environ.get("VIRTUAL_ENV"))
    return "pip" if activated else f"{shlex.quote(sys.executable)} -m pip"
