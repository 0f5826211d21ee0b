"""Weights & Biases: folders of offline and synced runs, ``wandb/*run-TIME-ID/run-ID.wandb``.

The package has no reader of these logs, only their messages. A log is a header of 7 bytes and
blocks of 32 KiB; a record is cut where a block ends: each part has a checksum (4 bytes), a length
(2) and a kind (1: whole, 2: first, 3: middle, 4: last).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import DEAD, FINISHED, RAISED, LoggedRun

HEADER, BLOCK, HEAD = 7, 2**15, 7


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of a folder; of one id, whose later folders go on with it, as one."""
    by_id: dict[str, list[Path]] = {}
    for path in sorted(Path(address).rglob("run-*.wandb")):
        by_id.setdefault(path.stem, []).append(path)
    for name, paths in by_id.items():
        settings: dict[str, Any] = {}
        metrics: dict[str, list[tuple[float, Any]]] = {}
        status = DEAD
        for path in paths:
            status = DEAD
            for record in _records(path):
                if record.HasField("run"):
                    settings |= _values(record.run.config.update)
                elif record.HasField("config"):
                    settings |= _values(record.config.update)
                elif record.HasField("history"):
                    row = _values(record.history.item)
                    step = row.pop("_step", record.history.step.num)
                    for metric, value in row.items():
                        if isinstance(value, int | float) and not metric.startswith("_"):
                            metrics.setdefault(metric, []).append((step, value))
                elif record.HasField("exit"):
                    status = RAISED if record.exit.exit_code else FINISHED
        settings.pop("_wandb", None)
        yield LoggedRun(name=name, settings=settings, metrics=metrics, status=status)


def _values(items: Any) -> dict[str, Any]:
    """Names, which stand in ``nested_key``, with what their JSON says."""
    return {
        ".".join(item.nested_key) or item.key: json.loads(item.value_json or "null")
        for item in items
    }


def _records(path: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[import-not-found]

    raw, at, parts = path.read_bytes(), HEADER, b""
    while at + HEAD <= len(raw):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        length, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        part = raw[at + HEAD : at + HEAD + length]
        if len(part) < length or not kind:
            return  # the tail of a run that was killed
        parts = part if kind in (1, 2) else parts + part
        at += HEAD + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(parts)
            yield record
