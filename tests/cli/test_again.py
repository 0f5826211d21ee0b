"""A `transfer` whose runs are all finished trains nothing, so it loads nothing that trains."""

import subprocess
import sys

import own_models
import pytest

from depthmup.sweep import MAIN_STORE, Store

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


@pytest.mark.parametrize("name", SWEEPS)
def test_nothing_that_trains_or_draws_is_loaded_again(name, tmp_path):
    assert loaded(SWEEPS[name], tmp_path) != ["end"]
    assert loaded(SWEEPS[name], tmp_path) == ["end"]


def _another_file(folder):
    (folder / "mine.py").write_text(own_models.SOURCE.replace("abs()", "relu()"))


def _another_module(folder):
    (folder / "math2.py").write_text("")


def _fewer_runs(folder):
    with Store(folder / "out" / MAIN_STORE) as store:
        store._db.execute("DELETE FROM records WHERE key = (SELECT min(key) FROM records)")


@pytest.mark.parametrize("change", [_another_file, _another_module, _fewer_runs])
def test_what_changed_is_loaded(change, tmp_path):
    words = (*MINE, *GRID)
    loaded(words, tmp_path)
    change(tmp_path)
    assert "torch" in loaded(words, tmp_path)
    assert loaded(words, tmp_path) == ["end"]


def test_another_command_is_loaded(tmp_path):
    loaded((*MINE, *GRID), tmp_path)
    assert "torch" in loaded((*MINE, *GRID, "--tolerance", "0.2"), tmp_path)
