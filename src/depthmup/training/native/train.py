"""The native engine: cells trained one after another, each by the compiled kernel."""

import math
from array import array
from collections.abc import Callable, Iterator, Sequence

from depthmup.records import Cell, Record, Status
from depthmup.training.backend import Progress, threads
from depthmup.training.built_in.data_and_weights import dataset
from depthmup.training.divergence import ceiling
from depthmup.training.native.library import Library
from depthmup.training.native.library import library as default_library
from depthmup.training.native.member import Member, Start, check, shared

# Ctrl-C and progress wait for the end of a call; a tenth of a second is not noticed.
SECONDS_PER_CALL = 0.1
OPERATIONS_PER_SECOND = 4e10  # of one core, roughly: it only sets how often progress is reported


def steps_per_call(cell: Cell) -> int:
    """Steps between reports of progress, where Ctrl-C is noticed; losses do not depend on it."""
    network = cell.network
    matrices = network.depth * network.block_depth * network.width**2
    operations = 6 * cell.batch_size * matrices + 1e5  # three products, and what is around them
    return max(1, int(SECONDS_PER_CALL * OPERATIONS_PER_SECOND / operations))


def train_native(
    cells: Sequence[Cell],
    *,
    on_progress: Progress = lambda fraction: None,
    library: Library | None = None,
) -> Iterator[Record[Cell]]:
    """Train cells on this thread with the compiled kernel; yield each record as its run ends.

    They may be of any shape. Those of one seed follow each other: they begin from one ``Start``.
    """
    for cell in cells:
        check(cell)
    kernel = library or default_library()
    total, before = sum(cell.steps for cell in cells), 0
    common: Cell | None = None
    start: Start | None = None
    for cell in sorted(cells, key=lambda cell: cell.seed):

        def tell(step: int, done: int = before) -> None:
            on_progress((done + step) / total)

        with threads(1):
            if start is None or common != shared(cell):
                start = None  # one at a time
                common, start = shared(cell), Start.of(cell, kernel.register_length)
            state = Member(cell, kernel.register_length, start)
        yield _train(cell, state, kernel, tell)
        before += cell.steps
        on_progress(before / total)


def _train(cell: Cell, state: Member, kernel: Library, tell: Callable[[int], None]) -> Record[Cell]:
    def record(status: Status, steps: int) -> Record[Cell]:
        return Record(cell=cell, status=status, losses=array("f", state.losses[:steps].tolist()))

    classes, chunk = dataset(cell.data).classes, steps_per_call(cell)
    step = state.advance(kernel, 0, 1, math.inf)
    limit = ceiling(float(state.losses[0]), classes)
    if limit == -math.inf:
        return record(Status.FAILED, 1)
    while step < cell.steps:
        stop = min(step + chunk, cell.steps)
        step = state.advance(kernel, step, stop, limit)
        if step < stop:
            return record(Status.DIVERGED, step)
        tell(step)
    return record(Status.FINISHED, step)
