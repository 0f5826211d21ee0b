"""A slice of the attack: ``make attack`` is all of it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "part", ["bits", "commands", "pages", "readers", "soak", "functions", "interruptions"]
)
def test_nothing_gets_through(part):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.attack", "--slice", part],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"| {part} |") >= 1
