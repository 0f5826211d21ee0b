"""The native kernel, compiled once for all tests that do something to it."""

import shutil
from pathlib import Path

import pytest

from depthmup.training.native import build


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    return build(folder=tmp_path_factory.mktemp("kernel") / "depthmup")


@pytest.fixture
def planted(kernel):
    """Puts a copy of the kernel into a folder, where it counts as built."""

    def into(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        copied = Path(shutil.copy(kernel, folder))
        assert build(folder=folder) == copied
        return copied

    return into
