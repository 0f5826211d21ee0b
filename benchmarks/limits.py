"""How long the limits take, on one core. Budgets are what the solvers were asked to stay below."""

import math
import time
import tracemalloc

import numpy as np

from depthmup import limits


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


NONLINEAR = (("erf", 10, 1), ("erf", 10, 8), ("relu", 10, 8), ("tanh", 4, 1))


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


def table(repeat: int, quick: bool) -> list[str]:
    """Seconds of every case, how they grow with depth, and what is held in memory."""
    lines = [
        "| T | B | depth | seconds | budget | points | error estimate |",
        "| --: | --: | --: | --: | --: | --: | --: |",
    ]
    finite: list[tuple[float, float]] = []
    for count, batch, depth, budget in CASES[:4] if quick else CASES:
        seconds, s = measure(count, batch, depth, repeat)
        if (count, batch) == (10, 1) and depth < math.inf:
            finite.append((depth, seconds))
        allowed = "" if budget is None else f"{budget:g}"
        lines.append(
            f"| {count} | {batch} | {depth:g} | {seconds:.3f} | {allowed} | {len(s.positions)} "
            f"| {s.error_estimate:.0e} {'' if s.status.ok else s.status.kind} |"
        )
    for activation, count, batch in NONLINEAR[:1] if quick else NONLINEAR:
        start = time.perf_counter()
        s = limits.nonlinear(problem(count, batch), activation=activation, lr=0.5)
        seconds = time.perf_counter() - start
        lines.append(
            f"| {count} | {batch} | inf, {activation} | {seconds:.3f} | | {len(s.positions)} "
            f"| {s.error_estimate:.0e} {'' if s.status.ok else s.status.kind} |"
        )
    depths, times = np.log(np.array(finite[2:])).T
    power = np.polyfit(depths, times, 1)[0]
    lines += ["", f"Time grows as depth^{power:.2f} from depth 256 on (T = 10, B = 1)."]
    for depth in (64,) if quick else (64, 128):
        stacks = peak_memory(10, 8, depth) / (8 * depth * 80**2)
        lines.append(
            f"Peak memory at depth {depth}, T = 10, B = 8: {stacks:.1f} x (T B)^2 L doubles."
        )
    return lines
