"""Mutated files: each reader gives a value, or its own error, soon.

Mutations are of values, names, lists and characters, as a disk, an editor or an enemy may leave
them; an enemy puts right the checksum of what they wrote.
"""

import json
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from published import drawn, idx_bytes, python2_pickle, rows
from records_mutations import changed, texts
from test_loaders import certificate, plan, sealed

import depthmup
from depthmup import fit
from depthmup.model.time_limit import time_limit
from depthmup.planning import PlanDocumentError, document
from depthmup.planning.plan import Plan
from depthmup.records import Certificate
from depthmup.report import load_report
from depthmup.sweep import InProcess, MissingRuns, Store, StoreError, run
from depthmup.sweep.store_rows import checksum
from depthmup.tables import example
from depthmup.training.built_in.formats import cifar_pickle, cifar_rows, idx
from studies.attack.bits import SWEEP

SLOW = 30.0
"""Seconds of the processor that a reader may take for one file."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A reader of files, the error that is its own, and files to give it."""

    name: str
    read: Callable[[Any], object]
    error: type[Exception]
    """Its own; what a store lacks is said by another, of every store."""
    sources: Iterable[Any]


def attack(count: int, folder: Path, seed: int, only: str = "") -> Counter[str]:
    torch.manual_seed(0)
    outcomes = Counter[str]()
    for reader in _readers(count, folder, seed):
        if only not in reader.name:
            continue
        for source in reader.sources:
            start = time.process_time()
            outcomes[f"{reader.name}: {_outcome(reader, source)}"] += 1
            if time.process_time() - start > SLOW:
                outcomes[f"{reader.name}: SLOW"] += 1
    return outcomes


def _outcome(reader: Reader, source: Any) -> str:
    try:
        with time_limit(60.0, "Reading"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(source)
        return "read"
    except Exception as error:
        text = str(error).replace("\n", " ")
        right = type(error) in {reader.error, MissingRuns}
        if right and len(text) <= 4000 and text.isprintable():
            return "refused"
        told = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(told.filename).name}:{told.lineno}"
        outcome = "UNPRINTABLE" if right else f"ANOTHER ERROR {type(error).__name__} at {where}"
        print(f"{reader.name}: {outcome}: {text[:200]!r}", file=sys.stderr, flush=True)
        return outcome


def _readers(count: int, folder: Path, seed: int) -> Iterator[Reader]:
    yield Reader(
        name="certificates",
        read=Certificate.from_json,
        error=ValueError,
        sources=texts(json.loads(certificate().to_json()), count, seed),
    )
    yield Reader(
        name="plans",
        read=lambda text: str(Plan(**document.loads(text))),
        error=PlanDocumentError,
        sources=texts(json.loads(document.dumps(plan())), count, seed, seal=sealed),
    )
    yield _fits(count, folder, seed)
    yield _sessions(count, folder, seed)
    yield _stores(count, folder, seed)
    yield from _tables(count, folder, seed)
    yield from _data(count, seed)


def _fits(count: int, folder: Path, seed: int) -> Reader:
    asked = {"axes": {"depth": "n_layers"}, "lr": "lr", "loss": "final_loss", "seed": "seed"}
    said = fit(example(), **asked, by="scheme").to_dict()
    whole = {name: said[name] for name in ("schema", "studies", "certificates")}

    def read(text: str) -> object:
        """As a person would: the folder, its table and its page's sentences."""
        (folder / "summary.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        return str(depthmup.load(folder))

    return Reader(name="fits", read=read, error=StoreError, sources=texts(whole, count, seed))


def _trained(path: Path) -> dict[str, Any]:
    """A store of a finished sweep, and its session."""
    about = {"sweep": SWEEP.to_dict(), "tolerance": 0.15, "command": [], "environment": {}}
    with Store(path) as store:
        run(SWEEP.runs, store=store, executor=InProcess(), about=about)
        [(text,)] = store._db.execute("SELECT about FROM sessions").fetchall()
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return json.loads(text)


def _sessions(count: int, folder: Path, seed: int) -> Reader:
    """Sessions as another program may have written them, their checksums right."""
    path = folder / "sessions.sqlite"
    whole = _trained(path)

    def read(text: str) -> object:
        text = text.encode("utf-8", "replace").decode()
        with Store(path) as store:
            row = (text, 1.0, checksum(text, 1.0))
            store._db.execute("UPDATE sessions SET about = ?, seconds = ?, checksum = ?", row)
            store.sessions()
            return str(load_report(store))

    return Reader(name="sessions", read=read, error=StoreError, sources=texts(whole, count, seed))


def _stores(count: int, folder: Path, seed: int) -> Reader:
    """Stores with parts overwritten, doubled, cut off or exchanged."""
    path, copy = folder / "whole.sqlite", folder / "copy.sqlite"
    _trained(path)
    raw, rng = path.read_bytes(), random.Random(seed)

    def sources() -> Iterator[bytes]:
        for number in range(count):
            at, other = rng.randrange(len(raw)), rng.randrange(len(raw))
            length = rng.choice([1, 16, 512, 4096])
            part = rng.randbytes(length) if number % 2 else raw[other : other + length]
            changed = raw[:at] + part + raw[at + len(part) :]
            yield changed[:at] if number % 7 == 0 else changed

    def read(raw: bytes) -> object:
        for old in folder.glob("copy.sqlite*"):
            old.unlink()
        copy.write_bytes(raw)
        with Store(copy) as store:
            store.sessions()
            store.missing(SWEEP.runs)
            return str(load_report(store))

    return Reader(name="stores", read=read, error=StoreError, sources=sources())


def _tables(count: int, folder: Path, seed: int) -> Iterator[Reader]:
    rng = random.Random(seed)
    lines = [
        {"depth": depth, "lr": 2.0**k, "loss": 2 + 0.1 * (k + 4) ** 2 + 0.01 * depth, "seed": 0}
        for depth in (4, 8, 16)
        for k in range(-8, 0)
    ]

    def read(suffix: str) -> Callable[[str | bytes], object]:
        def fitted(content: str | bytes) -> object:
            path = folder / f"table{suffix}"
            raw = (
                content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
            )
            path.write_bytes(raw)
            return str(fit(path, axes={"depth": "depth"}, lr="lr", loss="loss", seed="seed"))

        return fitted

    def mutated(text: Callable[[list[Any]], str]) -> Iterator[str]:
        whole = text(lines)
        for number in range(count):
            if number % 4:
                yield text(changed(lines, rng))
            else:
                at = rng.randrange(len(whole))
                yield whole[:at] + rng.choice(["", "\x00", '"', ",,", "\n"]) + whole[at + 1 :]

    def json_lines(rows: list[Any]) -> str:
        return "\n".join(map(json.dumps, rows))

    def csv(rows: list[Any]) -> str:
        cells = [row.values() if isinstance(row, dict) else [row] for row in rows]
        return "\n".join(["depth,lr,loss,seed", *(",".join(map(str, row)) for row in cells)])

    for suffix, text in ((".jsonl", json_lines), (".csv", csv)):
        yield Reader(
            name=f"tables ({suffix})", read=read(suffix), error=ValueError, sources=mutated(text)
        )
    parquet = folder / "table.parquet"
    pd.DataFrame(lines).to_parquet(parquet, compression="gzip")
    yield Reader(
        name="tables (.parquet)",
        read=read(".parquet"),
        error=ValueError,
        sources=_bytes(parquet.read_bytes(), count, seed),
    )


def _data(count: int, seed: int) -> Iterator[Reader]:
    pixels, labels = drawn(4, 3072)
    kinds: dict[str, tuple[Callable[[bytes], object], bytes]] = {
        "CIFAR-10's pickles": (
            lambda raw: cifar_pickle(raw, of="it"),
            python2_pickle(pixels, labels),
        ),
        "CIFAR-10's rows": (lambda raw: cifar_rows(raw, of="it"), rows(pixels, labels)),
        "MNIST's arrays": (lambda raw: idx(raw, dimensions=1, of="it"), idx_bytes(labels)),
    }
    for name, (read, raw) in kinds.items():
        yield Reader(name=name, read=read, error=ValueError, sources=_bytes(raw, count, seed))


def _bytes(raw: bytes, count: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for number in range(count):
        damaged = bytearray(raw)
        # Half of them in the first or last 300 bytes, where the structure is.
        near = min(300, len(raw))
        for _ in range(rng.choice([1, 1, 4])):
            at = rng.randrange(-near, near) if number % 2 else rng.randrange(len(raw))
            damaged[at] = rng.randrange(256)
        yield bytes(damaged[: rng.randrange(len(raw))] if number % 5 == 0 else damaged)
