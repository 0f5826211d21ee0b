"""Shares of a sweep, for machines that do not know of each other, and the stores they leave."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from depthmup.sweep.jobs import Job, training
from depthmup.sweep.store import Asked, Store, StoreError

COPIES = 5
"""How often a store that is being written is copied before it counts as damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The ``index``-th of ``count`` shares, counted from 1.

    Example:
        >>> Shard.parse("2/8").store_name
        'results.shard-2-of-8.sqlite'
    """

    index: int
    count: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """A share as i/k.

        Raises:
            ValueError: the text is no share.
        """
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise ValueError(
                f"Expected a shard i/k with i from 1 to k, such as 3/8; got {text!r}. For Slurm: "
                "--array=1-8 and --shard $SLURM_ARRAY_TASK_ID/8."
            )
        return Shard(index=int(index), count=int(count))

    @property
    def store_name(self) -> str:
        return f"results.shard-{self.index}-of-{self.count}.sqlite"


def share(
    asked: Sequence[Asked],
    shard: Shard,
    *,
    jobs: Callable[[Sequence[Any]], Sequence[Job]] = training,
) -> list[Any]:
    """One shard's part of what is asked for: the parts are disjoint and together all of it.

    Runs are dealt in turn, the longest first: shares differ by no more than the work of the
    longest run, and of runs of one size each has as many as the others, but for one; so what a
    sweep is still missing is shared evenly too. Shares depend on nothing but what is asked for:
    shards may start at any time, and again.
    """
    works = {key: job.work / len(job.keys) for job in jobs(list(asked)) for key in job.keys}
    dealt = sorted(works, key=lambda key: -works[key])
    mine = set(dealt[shard.index - 1 :: shard.count])
    return [run for run in asked if run.key in mine]


def share_left(
    asked: Sequence[Asked],
    shard: Shard,
    *,
    jobs: Callable[[Sequence[Any]], Sequence[Job]] = training,
    held_by: Path,
) -> list[Any]:
    """What a shard has to do: its share, less what the store that all shards began from holds."""
    mine = share(asked, shard, jobs=jobs)
    if not held_by.exists():
        return mine
    with snapshot(held_by) as store:
        return store.missing(mine)


@contextmanager
def snapshot(path: Path) -> Iterator[Store]:
    """A store as it is now, to be read.

    It is a copy: machines that share a folder over a network cannot share SQLite's locks, and what
    is only read stays as it is.

    Raises:
        StoreError: there is no store, or not one that can be read.
    """
    if not path.is_file():
        raise StoreError(f"Expected a store at {path}; there is none.")
    with tempfile.TemporaryDirectory() as folder:
        store = _copied(path, Path(folder))
        with store:
            store.path = path  # what messages name
            yield store


def _copied(path: Path, folder: Path) -> Store:
    """A copy of a store, opened. While another process writes, its two files may not fit."""
    copy = folder / path.name
    problem = ""
    for _ in range(COPIES):
        for part in (path, path.with_name(path.name + "-wal")):
            if part.exists():
                shutil.copy(part, folder)
        try:
            return Store(copy)
        except StoreError as error:
            problem = str(error).replace(str(copy), str(path))
        for part in folder.iterdir():
            part.unlink()
        time.sleep(0.2)
    raise StoreError(f"{problem} If it is being written right now, try again.")


def merge(paths: Sequence[Path], *, into: Store) -> int:
    """Join stores, all of them or none; the number of results that are new.

    Raises:
        StoreError: a store is missing or cannot be read, or two of them conflict.
    """
    with ExitStack() as stack:
        return into.absorb([stack.enter_context(snapshot(path)) for path in paths])
