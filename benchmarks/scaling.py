"""What an engine's cost depends on: depth, members, cores; and the memory of a network.

Processor time, except against cores, where the wall's clock is the point. Time per parameter and
step should not depend on depth (once a network's state has left the cache) nor on members.
"""

import statistics
from dataclasses import dataclass

from benchmarks.engines import SIZES
from benchmarks.subjects import measure, peak_memory, whole
from benchmarks.team import Team

DEPTHS = (4, 8, 16, 32, 64, 128, 256)
DEEPEST = {64: 256, 256: 64}
MEMBERS = (1, 4, 12, 48)
RUN = 300  # steps of a run against members: as in the preset small
OPERATIONS = 3e8  # parameters times steps of one measurement: about a second


@dataclass(frozen=True, kw_only=True)
class Result:
    """Nanoseconds per parameter and step of one core; rates; bytes per network."""

    depth: dict[tuple[int, int], float]  # (width, depth)
    members: dict[tuple[str, int], float]  # (engine, members)
    cores: dict[tuple[int, int], tuple[float, float]]  # (width, depth): one process, all of them
    memory: dict[tuple[str, tuple[int, int]], float]  # (row, (width, depth))
    processes: int


def run(*, rounds: int, cores: int, native: bool, rivals: tuple[str, ...], quick: bool) -> Result:
    """Measure the best engine that is here; members and memory of both."""
    best = "native" if native else "stacked torch"
    engines = [best] if not native else ["native", "stacked torch"]
    work, steps_of_a_run = (OPERATIONS / 20, 30) if quick else (OPERATIONS, RUN)
    depth, members, rates, memory = {}, {}, {}, {}
    with Team(1) as one:
        for width, deepest in DEEPEST.items():
            for layers in DEPTHS[:2] if quick else DEPTHS:
                if layers > deepest:
                    continue
                steps = max(20, int(work / (width**2 * layers)))
                found = [one.ask(measure, best, width, layers, steps)[0] for _ in range(rounds)]
                cost = statistics.median(t.cpu / t.units for t in found)
                depth[width, layers] = 1e9 * cost / (width**2 * layers)
        print("  depth measured", flush=True)
        for row in engines:
            for count in MEMBERS:
                repeat = -(-12 // count)
                found = [
                    one.ask(whole, row, 64, 8, count, steps_of_a_run, repeat)[0]
                    for _ in range(min(rounds, 3))
                ]
                cost = statistics.median(t.cpu / t.units for t in found)
                members[row, count] = 1e9 * cost / (64**2 * 8)
        print("  members measured", flush=True)
    sizes = SIZES[:1] if quick else SIZES
    with Team(1) as one, Team(cores) as all_of_them:
        for size in sizes:
            steps = max(20, int(work / (size[0] ** 2 * size[1])))
            single, together = [], []
            for _ in range(rounds):  # in turn
                for team, rounds_of in ((one, single), (all_of_them, together)):
                    timings = team.ask(measure, best, *size, steps)
                    rounds_of.append(sum(t.units / t.wall for t in timings))
            rates[size] = (statistics.median(single), statistics.median(together))
    print("  cores measured", flush=True)
    for row in (*engines, *rivals):
        for size in sizes[-1:] if quick else sizes[1::2]:
            with Team(1) as fresh:  # memory that was given back hides what is taken
                (bytes_,) = fresh.ask(peak_memory, row, *size)
            if bytes_ is not None:
                memory[row, size] = bytes_
    print("  memory measured", flush=True)
    return Result(depth=depth, members=members, cores=rates, memory=memory, processes=cores)


def table(result: Result) -> list[str]:
    widths = list(DEEPEST)
    lines = [
        "Processor time per parameter and step, in ns of one core:",
        "",
        "| depth | " + " | ".join(f"n{n}" for n in widths) + " |",
        "| --- |" + " --- |" * len(widths),
    ]
    for layers in dict.fromkeys(layers for _, layers in result.depth):
        entries = [result.depth.get((n, layers)) for n in widths]
        lines.append(
            f"| {layers} | " + " | ".join("-" if e is None else f"{e:.2f}" for e in entries) + " |"
        )
    engines = list(dict.fromkeys(row for row, _ in result.members))
    lines += [
        "",
        "The same against members, n64 L8, from cells to records with setting up:",
        "",
        "| members | " + " | ".join(engines) + " |",
        "| --- |" + " --- |" * len(engines),
    ]
    for count in MEMBERS:
        entries = [f"{result.members[row, count]:.2f}" for row in engines]
        lines.append(f"| {count} | " + " | ".join(entries) + " |")
    lines += [
        "",
        "Model-steps per second, wall clock:",
        "",
        f"| size | one process | {result.processes} processes | of {result.processes} times |",
        "| --- | --- | --- | --- |",
    ]
    for (n, d), (one, many) in result.cores.items():
        lines.append(
            f"| n{n} L{d} | {one:.0f} | {many:.0f} | {many / one / result.processes:.0%} |"
        )
    if result.memory:
        sizes = list(dict.fromkeys(size for _, size in result.memory))
        lines += [
            "",
            "Peak memory of a network in training (Adam, batch 64; above the libraries'), in MiB:",
            "",
            "| | " + " | ".join(f"n{n} L{d}" for n, d in sizes) + " |",
            "| --- |" + " --- |" * len(sizes),
        ]
        for row in dict.fromkeys(row for row, _ in result.memory):
            entries = [f"{result.memory[row, size] / 2**20:.1f}" for size in sizes]
            lines.append(f"| {row} | " + " | ".join(entries) + " |")
    return lines
