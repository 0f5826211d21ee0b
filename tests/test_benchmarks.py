"""The benchmarks' command: it runs, its tables and charts hold what was measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

DRAWN = """
import json
from benchmarks import charts, engines, scaling

def rates(factor):
    return {size: [factor * 100.0, factor * 120.0, factor * 110.0] for size in engines.SIZES}

result = engines.Result(
    rates={"native": rates(6), engines.FUSED: rates(1), "sgemm": rates(2), "stream": rates(1)},
    quiet=0.98, cores=2,
)
costs = scaling.Result(
    depth={(64, 4): 4.2, (64, 8): 4.3}, members={("native", m): 4.5 for m in scaling.MEMBERS},
    cores={(64, 8): (100.0, 190.0)}, memory={("native", (64, 64)): 6.0 * 2**20}, processes=2,
)
print(json.dumps({
    "engines": engines.table(result),
    "scaling": scaling.table(costs),
    "charts": [charts.of_engines(result, "Some CPU").to_dict(),
               charts.of_scaling(costs, "Some CPU").to_dict()],
    "rates": [engines.rate([engines.Timing(units=10, wall=2, cpu=1)] * 2, clock, 2)
              for clock in ("wall", "cpu")],
    "every core": engines.rate([engines.Timing(units=10, wall=2, cpu=4)], "cpu", 2),
}))
"""


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, **options
    )


def test_tables_and_charts():
    done = run("-c", DRAWN)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    table = "\n".join(found["engines"])
    assert "| native | 660 ±9% |" in table
    assert "| **native / plain loop, fused Adam** | 6.0 (6 wanted) | 6.0 (5 wanted) |" in table
    # 660 steps of 64^2 x 8 parameters at 384 operations each, of 240 GFLOP/s
    assert (
        f"| **native, share of sgemm** | {660 * 384 * 64**2 * 8 / 240e9:.0%} (75% wanted)" in table
    )
    assert "98% of a core" in table
    assert "| n64 L8 | 100 | 190 | 95% |" in found["scaling"]
    assert "| native | 6.0 |" in found["scaling"]
    for chart in found["charts"]:
        assert "Some CPU" in json.dumps(chart["title"])
    assert found["rates"] == [10.0, 20.0]
    assert found["every core"] == 5.0  # 4 s of two cores are 2 s of the machine


@pytest.mark.long
def test_the_command_runs_and_logs_nothing_when_quick():
    log = ROOT / "benchmarks" / "log.md"
    before = log.read_text()
    done = run("-m", "benchmarks", "--quick", "engines", "imports")
    assert done.returncode == 0, done.stderr
    assert "native, share of sgemm" in done.stdout or "stacked torch" in done.stdout
    assert "depthmup --help" in done.stdout
    assert log.read_text() == before


def test_parts_that_do_not_exist_are_refused():
    done = run("-m", "benchmarks", "speed")
    assert done.returncode == 2
    assert "engines, scaling, limits, planning, imports; got speed" in done.stderr
