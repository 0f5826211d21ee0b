"""Results as a store holds them: a row of plain values, and the checksum that guards it.

The checksum covers the whole row including its key, so that a bit that flips on a disk, or a value
that was edited, is noticed when the row is read.
"""

import hashlib
import json
import math
import sys
from array import array
from typing import Any

from depthmup.records import Measurement, Record, Status, Task
from depthmup.records.codec import digest

CHECKSUM_BYTES = 16
"""Of SHA-256: two rows that differ share a checksum once in 2^128."""

Value = str | bytes | float


def checksum(*values: Value) -> bytes:
    """The checksum of a row, in the order of its columns.

    Every value is preceded by its type and length, so that different rows are different texts.
    """
    parts: list[bytes] = []
    for value in values:
        # A damaged text may hold surrogates, and must have a checksum that differs all the same.
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        parts += (b"%s:%d:" % (type(value).__name__.encode(), len(raw)), raw)
    return hashlib.sha256(b"".join(parts)).digest()[:CHECKSUM_BYTES]


def check_possible(status: Status, losses: "array[float]") -> None:
    """Refuse losses that no run with this status can have left.

    Those of finished and diverged runs are finite; none is negative, as curves are compared by the
    logarithm. A failed run may have left the loss by which it failed, infinite or NaN.
    """
    if not losses:
        if status is Status.FINISHED:
            raise ValueError("it finished without a loss")
        return
    # One pass each, as every row that is read comes by here. A NaN is left to the sum: comparisons
    # with it are false.
    lowest, total = min(losses), sum(losses)
    if lowest < 0:
        raise ValueError(f"one of its losses is negative, {lowest:.4g}")
    # A sum of single-precision losses cannot overflow in double precision, so only a loss that
    # is not finite itself makes it so.
    if status is not Status.FAILED and not math.isfinite(total):
        raise ValueError("one of its losses is not finite")


def record_row(record: Record[Any]) -> tuple[str, str, str, bytes, str]:
    """A record as key, run, status, losses (single precision, little endian) and place."""
    text = record.cell.to_json()
    try:
        check_possible(record.status, record.losses)
    except ValueError as problem:
        raise ValueError(
            f"Expected a record that a run can have left; {problem}. The run is {text}."
        ) from None
    losses = little_endian(record.losses).tobytes()
    return digest(text), text, record.status.value, losses, record.place


def measurement_row(measurement: Measurement) -> tuple[str, str, str]:
    """A measurement as key, task and values."""
    text = measurement.task.to_json()
    return digest(text), text, json.dumps(dict(measurement.values))


def read_losses(status: Any, raw: Any) -> "tuple[Status, array[float]]":
    """Status and losses from their columns; raises the damage if no run can have left them."""
    losses = array("f")
    try:
        ended = Status(status)
        # Raises where the length is no whole number of entries, as of a row that was cut.
        losses.frombytes(raw)
    except (TypeError, ValueError) as error:
        raise ValueError(f"its losses cannot be read ({error})") from error
    losses = little_endian(losses)
    check_possible(ended, losses)
    return ended, losses


def read_values(task: Task, raw: Any) -> Measurement:
    """A measurement from its column; raises the damage if it holds no named values."""
    try:
        values = json.loads(raw)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its values cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise ValueError("its values have no names")
    return Measurement(task=task, values=values)


def little_endian(values: "array[float]") -> "array[float]":
    """Values whose bytes are the same on every machine, swapped where they are big-endian."""
    if sys.byteorder == "little":
        return values
    swapped = array("f", values)
    swapped.byteswap()
    return swapped
