"""A `transfer` whose runs are all finished trains nothing, so it loads nothing that trains."""

import shutil
import subprocess
import sys
from pathlib import Path

import own_models
import pytest

from depthmup.sweep import MAIN_STORE, Store

# One process trains what the others read.
pytestmark = pytest.mark.xdist_group("again")

LISTED = """
import sys
from depthmup.cli import main
sys.argv = ["depthmup", *sys.argv[1:]]
status = main(sys.argv[1:])
slow = "torch", "altair", "vl_convert", "sklearn", "scipy"
print(*(m for m in slow if m in sys.modules), "end")
sys.exit(status)
"""
GRID = ("--lrs", "1e-3,4e-3,1.6e-2", "--seeds", "2", "--workers", "1")
SCRIPT = "import sys; lr, out = sys.argv[1:3]; open(out + '/l.txt', 'w').write(str(1 + float(lr)))"
MINE = (
    *("--model", "mine.py:make", "--base", "16x2", "--depths", "2,4", "--steps", "5"),
    *("--schemes", "depth-mup"),
)
SWEEPS = {
    "custom": (*MINE, *GRID),
    "built-in": ("--preset", "tiny", "--depths", "8,16", "--steps", "5", *GRID),
    "command": (
        *("--command", f'{sys.executable} -c "{SCRIPT}" {{lr}} {{out}} --layers {{depth}}'),
        *("--loss", "{out}/l.txt", "--base", "depth=2", "--depths", "2,4"),
        *("--lrs", "1e-3,4e-3,1.6e-2", "--seeds", "1", "--workers", "1"),
    ),
}


def loaded(words, folder):
    """The heavy libraries that a command loads there."""
    if not (folder / "mine.py").exists():
        (folder / "mine.py").write_text(own_models.SOURCE)
    command = [sys.executable, "-c", LISTED, "transfer", *words, "--out", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a person's model whose runs are finished, and a copy of it as it then was."""
    folder = tmp_path_factory.mktemp("finished")
    assert "torch" in loaded(SWEEPS["custom"], folder)
    return folder, shutil.copytree(folder, tmp_path_factory.mktemp("kept") / "copy")


@pytest.fixture
def folder(finished):
    """The same at the same place, whatever the test before left there."""
    folder, kept = finished
    shutil.rmtree(folder)
    return Path(shutil.copytree(kept, folder))


def test_nothing_of_a_persons_model_is_loaded_again(folder):
    assert loaded(SWEEPS["custom"], folder) == ["end"]


@pytest.mark.parametrize("name", ["built-in", "command"])
def test_nothing_that_trains_or_draws_is_loaded_again(name, tmp_path):
    first = loaded(SWEEPS[name], tmp_path)
    assert ("torch" in first) == (name == "built-in")  # a command trains in a process of its own
    assert loaded(SWEEPS[name], tmp_path) == ["end"]


def _another_file(folder):
    (folder / "mine.py").write_text(own_models.SOURCE.replace("abs()", "relu()"))


def _another_module(folder):
    (folder / "math2.py").write_text("")


def _fewer_runs(folder):
    with Store(folder / "out" / MAIN_STORE) as store:
        store._db.execute("DELETE FROM records WHERE key = (SELECT min(key) FROM records)")


@pytest.mark.parametrize("change", [_another_file, _another_module, _fewer_runs])
def test_what_changed_is_loaded(change, folder):
    change(folder)
    assert "torch" in loaded(SWEEPS["custom"], folder)
    assert loaded(SWEEPS["custom"], folder) == ["end"]


def test_another_command_is_loaded(folder):
    assert "torch" in loaded((*SWEEPS["custom"], "--tolerance", "0.2"), folder)


def test_a_copy_of_the_folder_is_loaded_with_the_files_that_are_there(folder, tmp_path):
    """The same words name other files there, of which the store's session has not heard."""
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    _another_file(copied)
    assert "torch" in loaded(SWEEPS["custom"], copied)
    assert loaded(SWEEPS["custom"], copied) == ["end"]
