"""A slice of the attack: ``make attack`` is all of it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


PARTS = ("bits", "readers", "commands")
# Shorter tests have their subjects: sweep/test_command, sweep/test_executors and cli/test_cli send
# signals; every folder has tests of bad input to its functions; reports/test_browser opens a page
# with hostile names.
COSTLY = pytest.mark.long(slice=False)


@pytest.mark.long
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(PARTS, id="all that is quick"),
        pytest.param(("interruptions",), id="interruptions", marks=COSTLY),
        pytest.param(("functions",), id="functions", marks=COSTLY),
        pytest.param(("pages",), id="pages", marks=COSTLY),
        pytest.param(("soak",), id="soak"),
    ],
)
def test_nothing_gets_through(parts):
    done = subprocess.run(
        [sys.executable, "-m", "studies.attack", "--slice", *parts],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"| {part} |" in done.stdout for part in parts)
