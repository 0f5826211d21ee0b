"""A sweep that is asked for again has nothing to train."""

import subprocess
import sys

from depthmup import BuiltIn, Design, transfer

DESIGN = Design(
    base={"width": 16, "depth": 2},
    depth=(2, 4),
    lrs=[0.001, 0.002, 0.004],
    optimizers="adam",
    schemes="depth-mup",
    seeds=1,
    steps=3,
)

AGAIN = """
import sys
from depthmup.cli.main import main

command = "transfer --base 16x2 --depths 2,4 --lrs 1e-3,2e-3,4e-3 --optimizers adam "
command += "--schemes depth-mup --seeds 1 --steps 3 --out"
status = main([*command.split(), sys.argv[1]])
assert status == 0, status
assert "torch" not in sys.modules
"""


def test_the_same_again_trains_nothing_and_loads_no_torch(tmp_path):
    first = transfer(BuiltIn(), DESIGN, out=tmp_path)
    done = subprocess.run([sys.executable, "-c", AGAIN, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = transfer(BuiltIn(), DESIGN, out=tmp_path)
    assert again.records == first.records
