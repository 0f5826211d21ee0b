"""The native kernel, compiled once for all tests that do something to it.

Whose it is and where it lies has nothing to do with how well it is compiled, which takes seconds.
"""

import shutil
import sys
from pathlib import Path

import pytest

from depthmup.training.native import build

BUILD = sys.modules["depthmup.training.native.build"]
QUICK = tuple(flag.replace("-O3", "-O0") for flag in BUILD.FLAGS)


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BUILD, "FLAGS", QUICK)
        return build(folder=tmp_path_factory.mktemp("kernel") / "depthmup")


@pytest.fixture
def compiled_quickly(monkeypatch):
    """Kernels that are built in this process are not optimized."""
    monkeypatch.setattr(BUILD, "FLAGS", QUICK)


@pytest.fixture
def planted(kernel, compiled_quickly):
    """Puts a copy of the kernel into a folder, where it counts as built."""

    def into(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copied = Path(shutil.copy(kernel, folder))
        assert build(folder=folder) == copied
        return copied

    return into
