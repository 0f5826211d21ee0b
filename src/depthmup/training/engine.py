"""Which engine trains a cell: decided here, by the machine and the cell's shape alone.

Engines agree to rounding, not to the bit. As the choice never depends on time, load or company, a
cell's record is the same whether or not its sweep was interrupted.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from depthmup.records import Cell, Record
from depthmup.training.ensemble import Progress, check_one_shape, train_ensemble
from depthmup.training.native import BuildError, library, supports, train_native

VARIABLE = "DEPTHMUP_ENGINE"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine, and why it is the one: ``native`` (the compiled kernel) or ``torch``."""

    name: Literal["native", "torch"]
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def engine_for(cell: Cell | None = None, *, device: str = "cpu") -> Engine:
    """The engine that trains a cell on a device; without a cell, that of this machine.

    Builds the kernel if it has not been built here yet. ``DEPTHMUP_ENGINE=native`` or ``torch``
    in the environment forces one.

    Raises:
        ValueError: DEPTHMUP_ENGINE names no engine, or forces one that cannot train the cell.
    """
    forced = os.environ.get(VARIABLE) or None
    if forced not in (None, "native", "torch"):
        raise ValueError(f"Expected {VARIABLE} to be 'native', 'torch' or unset; got {forced!r}.")
    if forced == "torch":
        return Engine(name="torch", why=f"{VARIABLE}=torch")
    reason = _unavailable(cell, device)
    if not reason:
        kernel = library()
        why = f"compiled for this processor, {32 * kernel.register_length}-bit registers"
        return Engine(name="native", why=why)
    if forced:
        raise ValueError(
            f"{VARIABLE}=native, but the native engine cannot be used: {reason}. Unset {VARIABLE} "
            "to use the torch engine instead."
        )
    return Engine(name="torch", why=reason)


def _unavailable(cell: Cell | None, device: str) -> str | None:
    if torch.device(device).type != "cpu":
        return f"the native engine runs on the CPU, not on {device}"
    if cell is not None and (reason := supports(cell)):
        return reason
    try:
        library()
    except BuildError as error:
        return str(error).rstrip(".")
    return None


def train_group(
    cells: Sequence[Cell],
    *,
    device: str = "cpu",
    on_progress: Progress = lambda fraction: None,
) -> Iterator[Record]:
    """Train cells of one shape with the engine for them; yield each record as its run ends.

    Raises:
        ValueError: the cells differ in more than learning rate, decay and seed, or cannot be
            trained.
    """
    check_one_shape(cells)
    if engine_for(cells[0], device=device).name == "native":
        yield from train_native(cells, on_progress=on_progress)
    else:
        yield from train_ensemble(cells, device=device, on_progress=on_progress)
