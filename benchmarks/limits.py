"""How long the limits take: ``python benchmarks/limits.py``. One core; the table names the machine.

The budgets are what the solvers were asked to stay below.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
import tracemalloc

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded

import numpy as np  # noqa: E402
import scipy  # noqa: E402

from depthmup import limits  # noqa: E402


def problem(count: int, batch: int, d_in: int = 10, d_out: int = 1) -> list[limits.Step]:
    rng = np.random.default_rng(0)
    return [
        limits.Step(
            rng.normal(size=(batch, d_in)) / np.sqrt(d_in),
            limits.mse(rng.normal(size=(batch, d_out))),
        )
        for _ in range(count)
    ]


# (steps T, batch B, depth, budget in seconds or None)
CASES: list[tuple[int, int, float, float | None]] = [
    (10, 1, 64, 0.1),
    (10, 1, 128, None),
    (10, 1, 256, None),
    (10, 1, 512, 1.0),
    (10, 1, 1024, None),
    (10, 1, 2048, None),
    (10, 1, 4096, 10.0),
    (10, 1, math.inf, 0.2),
    (100, 1, math.inf, 8.0),
    (10, 32, math.inf, 10.0),
    (10, 32, 64, None),
    (100, 1, 64, None),
]


def hardware() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            model = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    return f"{model}, one core; Python {platform.python_version()}, {versions}"


def measure(count: int, batch: int, depth: float, repeat: int) -> tuple[float, limits.Solution]:
    """The best of some runs, which is the least disturbed by other work on the machine."""
    steps, best = problem(count, batch), math.inf
    for _ in range(repeat):
        start = time.perf_counter()
        solution = limits.linear(steps, depth=depth, lr=0.5, tol=1e-10)
        best = min(best, time.perf_counter() - start)
        if best > 2:
            break
    return best, solution


def peak_memory(count: int, batch: int, depth: float) -> int:
    steps = problem(count, batch)
    tracemalloc.start()
    limits.linear(steps, depth=depth, lr=0.5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    print(f"{hardware()}\n")
    print("| T | B | depth | seconds | budget | points | error estimate |")
    print("| --: | --: | --: | --: | --: | --: | --: |")
    finite: list[tuple[float, float]] = []
    for count, batch, depth, budget in CASES:
        seconds, s = measure(count, batch, depth, repeat)
        if (count, batch) == (10, 1) and depth < math.inf:
            finite.append((depth, seconds))
        allowed = "" if budget is None else f"{budget:g}"
        print(
            f"| {count} | {batch} | {depth:g} | {seconds:.3f} | {allowed} | {len(s.positions)} "
            f"| {s.error_estimate:.0e} {'' if s.status.ok else s.status.kind} |",
            flush=True,
        )
    for activation, count, batch in (
        ("erf", 10, 1),
        ("erf", 10, 8),
        ("relu", 10, 8),
        ("tanh", 4, 1),
    ):
        start = time.perf_counter()
        s = limits.nonlinear(problem(count, batch), activation=activation, lr=0.5)
        seconds = time.perf_counter() - start
        print(
            f"| {count} | {batch} | inf, {activation} | {seconds:.3f} | | {len(s.positions)} "
            f"| {s.error_estimate:.0e} {'' if s.status.ok else s.status.kind} |",
            flush=True,
        )
    depths, times = np.log(np.array(finite[2:])).T
    print(f"\ntime ~ depth^{np.polyfit(depths, times, 1)[0]:.2f} from 256 to 4096 (T=10, B=1)")
    for depth in (64, 128):
        stacks = peak_memory(10, 8, depth) / (8 * depth * 80**2)
        print(f"peak memory at depth {depth}, T=10, B=8: {stacks:.1f} x (T B)^2 L doubles")


if __name__ == "__main__":
    main()
