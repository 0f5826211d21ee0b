"""Shards: shares of a sweep for machines without connection, and how their stores are merged."""

import re
import shlex
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
"""Number of attempts to copy a store that is being written before it counts as damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The ``index``-th of ``count`` shares, counted from 1."""

    index: int
    count: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """A share as i/k."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise ValueError(
                f"Expected a shard i/k with i from 1 to k, such as 3/8; got {text!r}. For Slurm: "
                "--array=1-8 and --shard $SLURM_ARRAY_TASK_ID/8."
            )
        return Shard(index=int(index), count=int(count))

    @staticmethod
    def of_store(name: str) -> "Shard | None":
        """The share whose store has this name."""
        found = re.fullmatch(r"results\.shard-(\d+)-of-(\d{1,6})\.sqlite", name)
        return Shard(index=int(found[1]), count=int(found[2])) if found else None

    @property
    def store_name(self) -> str:
        return f"results.shard-{self.index}-of-{self.count}.sqlite"


def share(
    asked: Sequence[Asked],
    shard: Shard,
    *,
    jobs: Callable[[Sequence[Any]], Sequence[Job]] = training,
) -> list[Any]:
    """One shard's part of what is asked for; the parts are disjoint, and together everything.

    Runs are dealt in turn, the longest first, so that the work of two shares differs by at most one
    longest run. Shares depend only on what is asked for: shards may start at any time, repeatedly.
    """
    works = {key: job.work / len(job.keys) for job in jobs(list(asked)) for key in job.keys}
    dealt = sorted(works, key=lambda key: -works[key])
    mine = set(dealt[shard.index - 1 :: shard.count])
    return [run for run in asked if run.key in mine]


@contextmanager
def snapshot(path: Path) -> Iterator[Store]:
    """A copy of a store, for reading: the store's folder may be one that nobody may write.

    A copy, because SQLite writes beside what it reads, and because its locks do not work between
    machines that share a folder over a network.
    """
    if not path.is_file():
        where = path.parent
        if where.is_dir() and any(Shard.of_store(each.name) for each in where.iterdir()):
            raise StoreError(
                f"Expected a store at {path}; the folder has stores of shards alone. Join them: "
                f"`depthmup merge {shlex.quote(str(where))}`."
            )
        raise StoreError(
            f"Expected a store at {path}; there is none. Run `depthmup transfer --out "
            f"{where}` first, or name the folder of an earlier run."
        )
    with tempfile.TemporaryDirectory() as folder:
        store = _copied(path, Path(folder))
        with store:
            store.path = path  # what messages name
            yield store


def _copied(path: Path, folder: Path) -> Store:
    """Open a copy of a store. While another process writes, its two files may not match."""
    copy, parts = folder / path.name, (path, path.with_name(path.name + "-wal"))
    problem = ""
    for _ in range(COPIES):
        before = _state(*parts)
        try:
            for part in parts:
                if part.exists():
                    shutil.copyfile(part, folder / part.name)
            if _state(*parts) == before:
                return Store(copy)
            problem = f"The store {path} changed while it was copied."
        except StoreError as error:
            problem = str(error).replace(str(copy), str(path))
        except OSError as error:
            raise StoreError(f"The store {path} could not be copied: {error}.") from error
        for part in folder.iterdir():
            part.unlink()
        time.sleep(0.2)
    raise StoreError(f"{problem} If it is being written right now, try again.")


def _state(file: Path, log: Path) -> object:
    """What changes when the log is moved into the file, or begun again; what is added to its end
    changes neither, and may be cut off.
    """
    about = file.stat()
    begun = b""
    if log.exists():
        with log.open("rb") as opened:
            begun = opened.read(32)
    return about.st_ino, about.st_size, about.st_mtime_ns, begun


def merge(paths: Sequence[Path], *, into: Store) -> int:
    """Join stores, all of them or none, and return the number of new results."""
    with ExitStack() as stack:
        return into.absorb([stack.enter_context(snapshot(path)) for path in paths])
