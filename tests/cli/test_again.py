"""A `transfer` whose runs are all finished trains nothing, so it loads nothing that trains."""

import subprocess
import sys

import pytest

LISTED = """
import sys
from depthmup.cli import main
sys.argv = ["depthmup", *sys.argv[1:]]
status = main(sys.argv[1:])
print(*(m for m in ("torch", "altair", "vl_convert", "sklearn") if m in sys.modules), "end")
sys.exit(status)
"""
GRID = ("--lrs", "1e-3,4e-3,1.6e-2", "--seeds", "2", "--workers", "1")
SCRIPT = "import sys; lr, out = sys.argv[1:3]; open(out + '/l.txt', 'w').write(str(1 + float(lr)))"
SWEEPS = {
    "built-in": ("--preset", "tiny", "--depths", "8,16", "--steps", "5", *GRID),
    "command": (
        *("--command", f'{sys.executable} -c "{SCRIPT}" {{lr}} {{out}} --layers {{depth}}'),
        *("--loss", "{out}/l.txt", "--base", "depth=2", "--depths", "2,4"),
        *("--lrs", "1e-3,4e-3,1.6e-2", "--seeds", "1", "--workers", "1"),
    ),
}


def loaded(words, folder):
    command = [sys.executable, "-c", LISTED, "transfer", *words, "--out", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("name", SWEEPS)
def test_nothing_that_trains_or_draws_is_loaded_again(name, tmp_path):
    assert loaded(SWEEPS[name], tmp_path) != ["end"]
    assert loaded(SWEEPS[name], tmp_path) == ["end"]
