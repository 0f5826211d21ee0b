"""Running a grid: train what the store does not hold, in an order that keeps all workers busy."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from depthmup.records import Cell, Record
from depthmup.sweep.cost import work
from depthmup.sweep.executors import Executor, Group
from depthmup.sweep.store import Store

MEMBERS = 12
"""Networks trained as one stack: enough to amortize overhead, few enough for the cache."""


def groups(cells: Iterable[Cell], *, members: int = MEMBERS) -> list[Group]:
    """Cells that can be trained as one stack, together; the longest groups first.

    Neighbouring learning rates share a group, as they tend to diverge together.
    """
    by_shape: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_shape[cell.shape].append(cell)
    found = []
    for alike in by_shape.values():
        alike.sort(key=lambda cell: (cell.optimizer.lr, cell.optimizer.weight_decay, cell.seed))
        found += [tuple(alike[start : start + members]) for start in range(0, len(alike), members)]
    return sorted(found, key=lambda group: -work(group[0]) * len(group))


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a sweep is: cells done of all, and the fraction of the work that is left to do."""

    done: int
    cells: int
    fraction: float
    elapsed: float

    @property
    def remaining(self) -> float:
        """Estimated seconds to the end; infinite before anything is known."""
        if self.fraction <= 0:
            return float("inf")
        return self.elapsed * (1 - self.fraction) / self.fraction


@dataclass(kw_only=True)
class _Keeper:
    """Listens to an executor: stores records, adds up progress."""

    store: Store
    session: int
    tell: Callable[[Progress], None]
    cells: int
    done: int
    total: float
    started: float = field(default_factory=time.monotonic)
    fractions: dict[Group, float] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def on_record(self, record: Record) -> None:
        self.store.add(record)
        self.store.update_session(self.session, self.elapsed)
        self.done += 1
        self._report()

    def on_progress(self, group: Group, fraction: float) -> None:
        self.fractions[group] = fraction
        self._report()

    def _report(self) -> None:
        spent = sum(work(g[0]) * len(g) * part for g, part in self.fractions.items())
        self.tell(
            Progress(
                done=self.done,
                cells=self.cells,
                fraction=spent / self.total if self.total else 1.0,
                elapsed=self.elapsed,
            )
        )


def run(
    cells: Sequence[Cell],
    *,
    store: Store,
    executor: Executor,
    tell: Callable[[Progress], None] = lambda progress: None,
    about: Mapping[str, object] | None = None,
) -> int:
    """Train every cell that the store does not hold; the number of those.

    Each record is in the store as soon as its run ends, so whatever stops this call, the next one
    goes on from there.

    Example:
        >>> import tempfile
        >>> from depthmup.sweep import Grid, InProcess
        >>> grid = Grid(depths=(2,), base_depth=2, log2_lrs=(-3,), seeds=1, steps=2, window=1)
        >>> with Store(tempfile.mkdtemp() + "/results.sqlite") as store:
        ...     first = run(grid.cells, store=store, executor=InProcess())
        ...     again = run(grid.cells, store=store, executor=InProcess())
        >>> first, again
        (1, 0)
    """
    session = store.open_session({**(about or {}), "started": time.time()})
    missing = store.missing(cells)
    keeper = _Keeper(
        store=store,
        session=session,
        tell=tell,
        cells=len(cells),
        done=len(cells) - len(missing),
        total=sum(work(cell) for cell in missing),
    )
    try:
        executor(groups(missing), keeper)
    finally:
        store.update_session(session, keeper.elapsed)
    return len(missing)
