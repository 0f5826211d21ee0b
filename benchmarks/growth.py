"""What grows with a person's work: seconds and memory of each at several sizes, and the exponent.

    python -m benchmarks.growth                              # this tree
    python -m benchmarks.growth --beside ~/old --rounds 5    # and another, in turn, in one run
    python -m benchmarks.growth groups plan                  # some of them

Every measurement is a process of its own on one thread, by its processor time; memory is its peak
of resident memory. Of several rounds the least is shown, as other work on a machine only adds. A
speed that needs no other size has one.
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def _sweep(runs: int, folder: Path) -> Callable[[], object]:
    """Runs of two steps of the smallest networks, five seeds, in this process: all but training."""
    from depthmup.sweep import BuiltIn, Design, Store, Sweep, run
    from depthmup.sweep.executors import InProcess

    def of(rates: int) -> Sweep:
        design = Design(
            base={"width": 8, "depth": 2},
            depth=(2, 4),
            schemes=("depth-mup",),
            optimizers="adam",
            lrs=[2.0 ** (-9 + 9 * i / rates) for i in range(rates)],
            seeds=5,
            steps=2,
            window=1,
        )
        return Sweep(model=BuiltIn(batch_size=4), design=design)

    with Store(folder / "warm.sqlite") as store:
        run(of(1).runs, store=store, executor=InProcess())

    def work() -> None:
        with Store(folder / "results.sqlite") as store:
            run(of(max(runs // 10, 1)).runs, store=store, executor=InProcess())

    return work


def _driver(runs: int, folder: Path) -> Callable[[], object]:
    """What stores results and tells progress, of runs of 300 steps that cost nothing."""
    from array import array
    from dataclasses import dataclass, replace
    from functools import cached_property

    from benchmarks.subjects import cells
    from depthmup.records import Record, Status
    from depthmup.sweep import Store, run

    losses, (first, *_) = array("f", [1.0] * 300), cells(64, 8, 300)

    @dataclass(frozen=True)
    class Ready:
        cells: tuple[Any, ...]
        work = 1.0

        @cached_property
        def keys(self) -> tuple[str, ...]:
            return tuple(each.key for each in self.cells)

        def __call__(self, tell: object) -> Iterator[Record[Any]]:
            for each in self.cells:
                yield Record(cell=each, status=Status.FINISHED, losses=losses)

    def jobs(missing: Any) -> list[Any]:
        return [Ready(tuple(missing[i : i + 10])) for i in range(0, len(missing), 10)]

    def deliver(jobs: Any, listener: Any) -> None:
        for job in jobs:
            for done, result in enumerate(job(None), 1):
                listener.on_result(result)
                listener.on_progress(job, done / len(job.keys))

    def work() -> None:
        with Store(folder / "results.sqlite") as store:
            asked = [replace(first, seed=seed) for seed in range(runs)]
            run(asked, store=store, executor=deliver, jobs=jobs)

    return work


def _train(trial: Any) -> list[float]:
    return [1.0] * 20


def _own(runs: int, folder: Path) -> Callable[[], object]:
    """Runs of a person's own function that cost nothing, in this process: all but training."""
    from depthmup import Model
    from depthmup.records import Trial
    from depthmup.sweep import Store, run
    from depthmup.sweep.executors import InProcess
    from depthmup.sweep.trainer import Trainer

    size, base = {"width": 64, "depth": 8}, {"width": 64, "depth": 2}
    asked = [
        Trial(
            model="own",
            code="0" * 32,
            size=size,
            base=base,
            scheme="depth-mup",
            optimizer="adam",
            lr=2.0**-8,
            steps=20,
            seed=seed,
        )
        for seed in range(runs + 1)
    ]
    trainer = Trainer(model=Model(train=_train))

    def work(some: Sequence[Trial] = asked[1:]) -> None:
        with Store(folder / "results.sqlite") as store:
            run(some, store=store, executor=InProcess(), jobs=trainer.jobs)

    work(asked[:1])
    return work


def _gpt(width: int, depth: int, vocabulary: int = 512) -> object:
    """Of torch's own modules: GPT-2 where they are 768, 12 and 50257."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, _ = x.shape
            heads = self.qkv(self.ln_1(x)).view(batch, length, 3, -1, 64).permute(2, 0, 3, 1, 4)
            out = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.proj(out.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
            self.h = nn.ModuleList(Block() for _ in range(depth))
            self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            for name, p in self.named_parameters():
                if p.ndim == 2:
                    residual = name.endswith(("proj.weight", "down.weight"))
                    nn.init.normal_(p, std=0.02 / ((2 * depth) ** 0.5 if residual else 1))
            self.head.weight = self.wte.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.h:
                x = block(x)
            return self.head(self.ln_f(x))

    return GPT()


def _planned(model: object, base: object) -> Callable[[], object]:
    import torch

    import depthmup

    ids = torch.zeros(1, 8, dtype=torch.long)
    depthmup.plan(_gpt(64, 1), base=_gpt(64, 1), example_inputs=(ids,), proof="off")
    return lambda: depthmup.plan(
        model, base=base, scheme="completep", example_inputs=(ids,), proof="off"
    )


def _plan(millions: int, folder: Path) -> Callable[[], object]:
    """Of about so many parameters, GPT-2 at 124; its base has as many layers, a third as wide."""
    width, vocabulary = 64 * round((1e6 * millions / 144) ** 0.5 / 64), 512
    if millions == 124:
        width, vocabulary = 768, 50257
    base = 64 * max(round(width / 192), 1)
    return _planned(_gpt(width, 12, vocabulary), _gpt(base, 12, vocabulary))


def _layers(depth: int, folder: Path) -> Callable[[], object]:
    """Against layers, of width 64."""
    return _planned(_gpt(64, depth), _gpt(64, 2))


def _limit(steps: int, folder: Path) -> Callable[[], object]:
    """A linear network of infinite depth, four examples in each step."""
    import numpy as np

    from depthmup import limits

    rng = np.random.default_rng(0)
    problem = [
        limits.Step(rng.normal(size=(4, 10)) / np.sqrt(10), limits.mse(rng.normal(size=(4, 1))))
        for _ in range(steps)
    ]
    return lambda: limits.linear(problem, depth=math.inf, lr=1.0)


def _groups(count: int, folder: Path) -> Callable[[], object]:
    """The page of a table with so many groups."""
    import numpy as np
    import pandas as pd

    import depthmup

    rng = np.random.default_rng(0)
    rows = [
        {"group": f"g{g}", "depth": depth, "lr": 2.0**k, "seed": seed}
        for g in range(count)
        for depth in (2, 4, 8, 16)
        for k in range(-9, -1)
        for seed in range(2)
    ]
    frame = pd.DataFrame(rows)
    octaves = np.log2(frame["lr"]) + 5 + 0.1 * np.log2(frame["depth"])
    frame["loss"] = np.exp(0.5 + 0.03 * octaves**2 + 0.005 * rng.standard_normal(len(frame)))
    asked = {"axes": ["depth"], "lr": "lr", "loss": "loss", "seed": "seed"}
    len(depthmup.fit(frame[frame["group"] == "g0"], **asked).page)
    report = depthmup.fit(frame, by="group", **asked)
    return lambda: report.page


def _stored(runs: int, steps: int, folder: Path) -> Path:
    """A folder with the store of a sweep whose losses were made up."""
    import random
    from array import array

    from depthmup.records import Record, Status
    from depthmup.sweep import BuiltIn, Design, Store, Sweep

    rates, depths, rng = [2.0**k for k in range(-9, 1)], (2, 4, 8, 16, 32), random.Random(0)
    design = Design(
        base={"width": 16, "depth": 2},
        depth=depths,
        schemes=("depth-mup",),
        optimizers="adam",
        lrs=rates,
        seeds=max(runs // (len(rates) * len(depths)), 1),
        steps=steps,
        window=steps // 2,
    )
    sweep = Sweep(model=BuiltIn(batch_size=16), design=design)
    with Store(folder / "results.sqlite") as store:
        about = {
            "sweep": sweep.to_dict(),
            "tolerance": 0.15,
            "command": [],
            "environment": {},
            "started": 0.0,
        }
        store.open_session(about)
        store._db.execute("BEGIN")
        for run in sweep.runs:
            octaves = math.log2(run.optimizer.lr) + 4
            loss = 2.0 + 0.05 * octaves**2 + rng.gauss(0, 0.05)
            losses = array("f", [loss * (1 + 1 / (1 + step)) for step in range(steps)])
            store.add(Record(cell=run, status=Status.FINISHED, losses=losses))
        store._db.execute("COMMIT")
    return folder


def _page_of(runs: int, steps: int, folder: Path) -> Callable[[], object]:
    import depthmup

    small = folder / "small"
    small.mkdir()
    _stored(50, 20, small)
    len(depthmup.load(small).page)
    _stored(runs, steps, folder)
    return lambda: depthmup.load(folder).page


def _store(runs: int, folder: Path) -> Callable[[], object]:
    """The page of a store, a thousand steps in each run."""
    return _page_of(runs, 1000, folder)


def _report(runs: int, folder: Path) -> Callable[[], object]:
    """A store of many short runs, read and told."""
    import depthmup

    _page_of(runs, 20, folder)
    return lambda: depthmup.load(folder).summary()


CASES: dict[str, tuple[Callable[[int, Path], Callable[[], object]], str, tuple[int, ...]]] = {
    "driver": (_driver, "runs", (2000, 8000)),
    "sweep": (_sweep, "runs", (500, 2000)),
    "own": (_own, "runs", (500, 2000)),
    "plan": (_plan, "million parameters", (10, 40, 124)),
    "layers": (_layers, "layers", (50, 100, 200, 400)),
    "limit": (_limit, "steps", (10, 20, 40)),
    "groups": (_groups, "groups", (10, 40)),
    "store": (_store, "runs", (500, 2000)),
    "report": (_report, "records", (10_000, 30_000, 100_000)),
}


def one(case: str, size: int) -> None:
    """Print seconds of the processor, and MB: the peak, and how far it is above what there was."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        work = CASES[case][0](size, Path(folder))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        work()
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, peak >> 10, (peak - before) >> 10)


def measured(case: str, size: int, tree: Path) -> tuple[float, int, int]:
    """Of a process of its own that imports the library of a tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{ROOT}"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.growth", "--one", case, str(size)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{case} of {size} in {tree} failed:\n{done.stderr}")
    seconds, peak, more = done.stdout.split()[-3:]
    return float(seconds), int(peak), int(more)


def table(cases: Sequence[str], *, trees: Sequence[Path], rounds: int) -> list[str]:
    """A row for each case and size: seconds and MB of every tree, and how seconds grow."""
    names = ["before", "after"] if len(trees) > 1 else ["seconds"]
    head = [*names, *(f"MB {name}" for name in names), *(f"power {name}" for name in names)]
    lines = [f"| what | size | {' | '.join(head)} |", "| --- |" + " ---: |" * (1 + len(head))]
    for case in cases:
        _, unit, sizes = CASES[case]
        last: list[float] = []
        for i, size in enumerate(sizes):
            least = [
                min(values)
                for values in zip(
                    *([measured(case, size, tree) for tree in trees] for _ in range(rounds)),
                    strict=True,
                )
            ]
            now = [seconds for seconds, _, _ in least]
            powers = [
                f"{math.log(b / a) / math.log(size / sizes[i - 1]):.2f}" if i else ""
                for a, b in zip(last or now, now, strict=True)
            ]
            cells = [f"{s:.3g} s" for s in now] + [f"{peak} (+{more})" for _, peak, more in least]
            lines.append(f"| {case} | {size:,} {unit} | {' | '.join([*cells, *powers])} |")
            print(lines[-1], flush=True)
            last = now
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    parser.add_argument("cases", nargs="*", default="all", choices=[*CASES, "all"])
    parser.add_argument("--beside", type=Path, help="another tree of the library")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("CASE", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one[0], int(options.one[1]))
        return
    trees = [options.beside.resolve(), ROOT] if options.beside else [ROOT]
    cases = list(CASES) if options.cases == "all" else options.cases
    print("\n".join(["", *table(cases, trees=trees, rounds=options.rounds)]))


if __name__ == "__main__":
    main()
