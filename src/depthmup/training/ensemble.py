"""The stacked engine: many cells of one network shape, trained as one stacked network.

Letters: E members still training, n width, B batch. The stack itself, and what makes it fast, is in
``stack``.

On the CPU a member's arithmetic does not depend on the other members: its losses have the same bits
in any ensemble, and a member that diverges is removed without a trace in the others. That takes two
things. One thread: with several, how a sum is split depends on the batch (and they would not help:
the products are small, and cores are better used by one process each). And members whose memory
begins at a whole vector register: where sizes do not provide that, they are trained one by one.

On an accelerator the choice of algorithm may depend on the number of members, so there records of
different ensembles agree to rounding. A step touches fixed memory and never copies a number from
the device, so that it can be recorded once and replayed (see ``cuda_graphs``). A member that
diverged stays until the next reading of losses.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch

from depthmup.records import Cell, Record, Status
from depthmup.training.built_in.data_and_weights import batches, dataset
from depthmup.training.cuda_graphs import WARM_UP, NotReplayable, Recorder, replayed, warn_of
from depthmup.training.divergence import ceiling, stopped
from depthmup.training.placement import Progress, check_precision, threads
from depthmup.training.precision import single_precision
from depthmup.training.readings import Readings
from depthmup.training.schedules import factors_of
from depthmup.training.stack import stack_of

FLOATS_PER_REGISTER = 16  # of AVX-512, and a multiple of every narrower one


def check_one_shape(cells: Sequence[Cell]) -> None:
    """Refuse cells that cannot be trained as one group."""
    if len({cell.shape for cell in cells}) != 1:
        raise ValueError(
            f"The {len(cells)} cells of a group may differ in learning rate, weight decay and "
            "seed only. Group them by Cell.shape first."
        )


def train_ensemble(
    cells: Sequence[Cell],
    *,
    device: str = "cpu",
    record: Recorder | None = None,
    on_progress: Progress = lambda fraction: None,
) -> Iterator[Record[Cell]]:
    """Train cells that differ only in learning rate, decay and seed; yield each as it ends."""
    check_one_shape(cells)
    check_precision(cells[0].precision, device)
    where, size = torch.device(device), len(cells)
    network, batch = cells[0].network, cells[0].batch_size
    # Trained alone, a member's arithmetic cannot depend on others, whatever its alignment.
    if where.type == "cpu" and any(
        count % FLOATS_PER_REGISTER for count in (batch, network.width**2, network.width * batch)
    ):
        stacks = [[cell] for cell in cells]
    else:
        stacks = [list(cells)]
    # Streams, captures and workspaces belong to the current device, which is the first by default.
    current = torch.cuda.device(where) if where.type == "cuda" else nullcontext()
    with threads(1), single_precision(), torch.no_grad(), current:
        for done, stack in enumerate(stacks):
            share, before = len(stack) / size, done * len(stack) / size
            yield from _train(
                stack,
                where,
                record,
                lambda f, b=before, s=share: on_progress(b + s * f),  # type: ignore[misc]
            )


def _train(
    cells: Sequence[Cell],
    where: torch.device,
    record: Recorder | None,
    on_progress: Progress,
) -> Iterator[Record[Cell]]:
    first, classes = cells[0], dataset(cells[0].data).classes
    of_seed = {seed: batches(replace(first, seed=seed)) for seed in {c.seed for c in cells}}
    order = torch.stack([of_seed[c.seed] for c in cells], 1).to(where)  # (steps, E, B)
    stack = stack_of(cells, where)
    play: Callable[[], object] = stack
    members = list(cells)
    curves = [array("f") for _ in members]
    limits: list[float] = []
    factors, readings = factors_of(first), Readings(len(cells), steps=first.steps, device=where)
    replaying = False

    for t in range(first.steps):
        stack.index.copy_(order[t])
        if stack.scheduled:
            stack.rate.fill_(factors[t])
        if record and not replaying and t >= WARM_UP:
            try:
                play, replaying = replayed(stack, stack.state, record), True
            except NotReplayable as reason:
                warn_of(reason)
                record = None
                play()
        else:
            play()
        ended = set[int]()
        for _, values in readings(t, stack.losses):
            limits = limits or [ceiling(value, classes) for value in values]
            for e, value in enumerate(values):
                if e in ended:
                    continue
                if value <= limits[e]:
                    curves[e].append(value)
                else:  # also where it is NaN
                    ended.add(e)
                    yield stopped(members[e], curves[e], value)
        survivors = [e for e in range(len(members)) if e not in ended]
        if not survivors:
            return
        if ended:
            alive = torch.tensor(survivors, device=where)
            play = stack = stack.keep(alive)
            replaying = False
            order = order[:, alive]
            members = [members[e] for e in survivors]
            curves = [curves[e] for e in survivors]
            limits = [limits[e] for e in survivors]
            readings = Readings(len(members), steps=first.steps, device=where, first=t + 1)
        on_progress((t + 1) / first.steps)
    for cell, curve in zip(members, curves, strict=True):
        yield Record(cell=cell, status=Status.FINISHED, losses=curve)
