"""What a clone of this project has beside the library: the paper, measured again."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

from depthmup.model.errors import FOLDERS

PACKAGE = "reproduction"


def reproduction(part: str) -> ModuleType:
    """A module of the folder ``reproduction`` of a clone; no other of that name is imported."""
    if (root := clone()) is None:
        raise ValueError(
            "the paper's figures and claims are not part of the installed package: they are the "
            "folder `reproduction` of a clone of depthmup. Get one, and repeat the command in it "
            "(or `pip install -e .` there)."
        )
    if PACKAGE not in sys.modules:
        sys.path.insert(0, str(root))  # workers are sent this path, too
    FOLDERS.add(root.resolve() / PACKAGE)
    return import_module(f"{PACKAGE}.{part}")


def clone() -> Path | None:
    """The checkout that this package runs from, or else the current directory if it is one."""
    for folder in (Path(__file__).parents[3], Path.cwd()):
        if _is_clone(folder):
            return folder
    return None


def _is_clone(folder: Path) -> bool:
    """Whether a folder is a checkout of this project, and not another one with a like folder."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return project["name"] == "depthmup" and (folder / PACKAGE / "__main__.py").is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return False
