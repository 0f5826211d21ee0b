"""``depthmup merge``: join the stores of the shards of a sweep."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from depthmup.cli.folders import prepare_folder

if TYPE_CHECKING:
    from depthmup.sweep import Shard

SHOWN = 8
"""Shards without a store that a message names."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Join stores of results into OUT/results.sqlite, and write the page if no run is missing.

    If two stores hold different results of the same run, no store changes. Stores of different
    measurements can be joined; the page shows the measurement that was joined last.

        depthmup merge runs/shards --out runs/joined
    """

    stores: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Stores, or folders: all of their results*.sqlite are joined."""

    out: Path | None = None
    """Folder for the joined store and the page; by default the first store's."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    from depthmup.cli.report import report_on
    from depthmup.sweep import MAIN_STORE, MissingRuns, Store, StoreError, merge

    if not options.stores:
        raise ValueError("Expected stores to join, or a folder of them; got none.")
    first = options.stores[0]
    out = options.out or (first if first.is_dir() else first.parent)
    stores = _store_files(options.stores, out)
    prepare_folder(out)
    with Store(out / MAIN_STORE) as store:
        new = merge(stores, into=store)
        print(
            f"{len(store)} results in {store.path}, {new} of them new from {len(stores)} stores.",
            file=sys.stderr,
        )
    try:
        return report_on(out, export=options.export, json=options.json)
    except MissingRuns as error:
        if error.several or not (absent := _absent(stores)):
            raise
        names = ", ".join(f"{shard.index}/{shard.count}" for shard in absent[:SHOWN])
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        raise StoreError(
            f"{error.said} No store of shard {names}{more} was joined. Name its "
            f"{absent[0].store_name}, or train it: the same command with --shard "
            f"{absent[0].index}/{absent[0].count}."
        ) from error


def _absent(stores: list[Path]) -> "list[Shard]":
    """The shards of which no store was joined, beside one of as many."""
    from depthmup.sweep import Shard

    joined = {shard for store in stores if (shard := Shard.of_store(store.name))}
    counts = sorted({shard.count for shard in joined})
    every = [Shard(index=i, count=k) for k in counts for i in range(1, k + 1)]
    return [shard for shard in every if shard not in joined]


def _store_files(stores: tuple[Path, ...], out: Path) -> list[Path]:
    """The named stores without repetitions, and without the one to be written."""
    from depthmup.sweep import MAIN_STORE

    paths = []
    for store in stores:
        if not store.exists():
            raise ValueError(f"Expected stores to join; there is no file or folder {store}.")
        paths += sorted(store.glob("results*.sqlite")) if store.is_dir() else [store]
    target = (out / MAIN_STORE).resolve()
    # By what they resolve to: a store may be named twice, or through a link.
    unique = {path.resolve(): path for path in paths if path.resolve() != target}
    if not unique:
        places = ", ".join(str(store.absolute()) for store in stores)
        raise ValueError(
            "Expected stores to join, such as the results.shard-1-of-4.sqlite that `depthmup "
            f"transfer --shard 1/4` leaves; found none in {places}."
        )
    return list(unique.values())
