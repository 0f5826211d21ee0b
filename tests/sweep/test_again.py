"""A sweep that is asked for again has nothing to train."""

import subprocess
import sys

from depthmup import BuiltIn, Design, transfer
from depthmup.cli import main

DESIGN = Design(
    base={"width": 16, "depth": 2},
    depth=(2, 4),
    lrs=[0.001, 0.002, 0.004],
    optimizers="adam",
    schemes="depth-mup",
    seeds=1,
    steps=3,
)

COMMAND = [
    *("transfer", "--base", "16x2", "--depths", "2,4", "--lrs", "1e-3,2e-3,4e-3"),
    *("--optimizers", "adam", "--schemes", "depth-mup", "--seeds", "1", "--steps", "3", "--out"),
]
AGAIN = """
import sys
from depthmup.cli.main import main

status = main(sys.argv[1:])
assert status == 0, status
print(*sorted({"torch", "altair"} & set(sys.modules)))
"""


def test_the_same_again_trains_nothing_and_loads_neither_torch_nor_charts(tmp_path, monkeypatch):
    command, page = [*COMMAND, str(tmp_path)], tmp_path / "report.html"
    monkeypatch.setattr(sys, "argv", ["-c", *command])  # which the page shows
    first = transfer(BuiltIn(), DESIGN, out=tmp_path)
    without_command = page.read_bytes()
    assert main(command) == 0
    drawn = page.read_bytes()
    assert drawn != without_command
    done = subprocess.run([sys.executable, "-c", AGAIN, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(page) in done.stdout.splitlines()[-2]
    assert done.stdout.splitlines()[-1] == ""  # neither was loaded
    assert page.read_bytes() == drawn
    damaged, of_another_version = drawn[:1000], drawn.replace(b"-- depthmup ", b"-- depthmup 0.")
    for other in (damaged, of_another_version):
        page.write_bytes(other)
        assert main(command) == 0
        assert len(page.read_bytes()) == len(drawn)
    assert transfer(BuiltIn(), DESIGN, out=tmp_path).records == first.records


def test_a_page_of_fewer_runs_is_drawn_again(tmp_path):
    page = tmp_path / "report.html"
    transfer(BuiltIn(), DESIGN, out=tmp_path)
    before = page.read_bytes()
    transfer(BuiltIn(), DESIGN, out=tmp_path)
    assert page.read_bytes() == before
    transfer(BuiltIn(), DESIGN.with_grid((0.001, 0.002, 0.004, 0.008)), out=tmp_path)
    assert page.read_bytes() != before
