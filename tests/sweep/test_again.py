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
print(*sorted({"torch", "altair"} & set(sys.modules)))
"""


def _again(folder):
    """The libraries that the same command loads once more."""
    done = subprocess.run([sys.executable, "-c", AGAIN, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_the_same_again_trains_nothing_and_loads_neither_torch_nor_charts(tmp_path):
    first = transfer(BuiltIn(), DESIGN, out=tmp_path)
    page = tmp_path / "report.html"
    assert _again(tmp_path) == ["altair"]  # the page has a command now
    drawn = page.read_bytes()
    assert _again(tmp_path) == []
    assert page.read_bytes() == drawn
    page.write_bytes(drawn[:1000])
    assert _again(tmp_path) == ["altair"]
    assert len(page.read_bytes()) == len(drawn)
    page.write_bytes(drawn.replace(b"-- depthmup ", b"-- depthmup 0."))  # another version's
    assert _again(tmp_path) == ["altair"]
    again = transfer(BuiltIn(), DESIGN, out=tmp_path)
    assert again.records == first.records


def test_a_page_of_fewer_runs_is_drawn_again(tmp_path):
    page = tmp_path / "report.html"
    transfer(BuiltIn(), DESIGN, out=tmp_path)
    before = page.read_bytes()
    transfer(BuiltIn(), DESIGN, out=tmp_path)
    assert page.read_bytes() == before
    transfer(BuiltIn(), DESIGN.with_grid((0.001, 0.002, 0.004, 0.008)), out=tmp_path)
    assert page.read_bytes() != before
