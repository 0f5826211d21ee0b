"""Which engine trains a cell: decided by the machine, the cell's shape and the person's request.

Engines agree to rounding, not to the bit. The choice never depends on time, load or the other cells
of a sweep, so a cell's record is the same whether or not its sweep was interrupted.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from depthmup.model import Model, resolved
from depthmup.records import Cell, Record, Trial
from depthmup.training.backend import (
    ENGINES,
    Backend,
    EngineName,
    Progress,
    check_backend,
    check_one_shape,
    check_precision,
)
from depthmup.training.native import BuildError, library, supports

if TYPE_CHECKING:
    from depthmup.training.command import RunFolders

VARIABLE = "DEPTHMUP_ENGINE"
HERE = Backend()
AMPERE = (8, 0)  # the first compute capability that multiplies tf32 and bf16


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine, and why it was chosen: the compiled kernel, stacked PyTorch or the plain loop."""

    name: EngineName
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def engine_for(cell: Cell | None = None, backend: Backend = HERE) -> Engine:
    """The engine that trains a cell under a backend; without a cell, this machine's default.

    Builds the kernel if it was not built here yet. Imports PyTorch only for a CUDA device.
    """
    check_backend(backend)
    requested, origin = backend.engine, f"--engine {backend.engine}"
    if requested == "auto" and not backend.on_cuda:
        requested = _engine_of_environment() or "auto"
        origin = f"{VARIABLE}={requested}"
    precision = cell.precision if cell else "float32"
    check_precision(precision, backend.device)
    if backend.on_cuda:
        return Engine(name="stacked", why=_cuda(backend, precision))
    if requested == "stacked":
        return Engine(name="stacked", why=origin)
    if requested == "reference":
        return Engine(name="reference", why=origin)
    reason = _no_native(cell)
    if reason and requested == "native":
        raise ValueError(
            f"{origin}, but the native engine cannot be used: {reason}. Leave the choice open to "
            "use the stacked engine instead."
        )
    if reason:
        return Engine(name="stacked", why=reason)
    bits = 32 * library().register_length
    return Engine(name="native", why=f"compiled for this processor, {bits}-bit registers")


def _engine_of_environment() -> EngineName | None:
    value = os.environ.get(VARIABLE) or None
    if value is None:
        return None
    for name in ENGINES:
        if value == name:
            return name
    raise ValueError(f"Expected {VARIABLE} to be {', '.join(ENGINES)} or unset; got {value!r}.")


def _no_native(cell: Cell | None) -> str | None:
    if cell is not None and (reason := supports(cell)):
        return reason
    try:
        library()
    except BuildError as error:
        return str(error).rstrip(".")
    return None


def _cuda(backend: Backend, precision: str) -> str:
    """A CUDA device in words; refuses one that is missing or lacks the precision."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(backend.device.partition(":")[2] or 0)
    if index >= count:
        raise ValueError(
            f"Expected a CUDA device that PyTorch {torch.__version__} can use; got "
            f"{backend.device!r}, and it finds {count}. Check nvidia-smi and that this is a CUDA "
            "build, or leave out --device."
        )
    if precision != "float32" and torch.cuda.get_device_capability(index) < AMPERE:
        raise ValueError(
            f"Expected precision to be float32 on {torch.cuda.get_device_name(index)}, which is "
            f"older than compute capability {AMPERE[0]}.{AMPERE[1]}; got {precision!r}."
        )
    graphs = ", CUDA graphs" if backend.cuda_graphs else ""
    return f"{torch.cuda.get_device_name(index)}, {precision}{graphs}"


def train_group(
    cells: Sequence[Cell],
    *,
    backend: Backend = HERE,
    on_progress: Progress = lambda fraction: None,
) -> Iterator[Record[Cell]]:
    """Train cells of one shape with the engine for them; yield each record as its run ends."""
    check_one_shape(cells)
    name = engine_for(cells[0], backend).name
    if name == "native":
        from depthmup.training.native.train import train_native

        yield from train_native(cells, on_progress=on_progress)
        return
    from depthmup.training.cells import train, train_ensemble
    from depthmup.training.cuda_graphs import cuda_graph

    if name == "stacked":
        yield from train_ensemble(
            cells,
            device=backend.device,
            record=cuda_graph if backend.on_cuda and backend.cuda_graphs else None,
            on_progress=on_progress,
        )
    else:
        for done, cell in enumerate(cells, 1):
            yield train(cell)
            on_progress(done / len(cells))


def train_trials(
    trials: Sequence[Trial],
    model: Model,
    *,
    backend: Backend = HERE,
    folders: "RunFolders | None" = None,
    on_progress: Progress = lambda fraction: None,
    on_loss: Callable[[Trial, int, float], None] = lambda trial, step, loss: None,
) -> Iterator[Record[Trial]]:
    """Train trials of a custom model, by its command, as one stack, or one after another."""
    if (command := resolved(model).command) is not None:
        from depthmup.training.command import run_command

        for trial in trials:
            yield run_command(trial, command, folders, threads=backend.threads)
        return
    from depthmup.training.trial import run_together, run_trial

    if backend.engine == "stacked":
        from depthmup.training.cuda_graphs import cuda_graph

        yield from run_together(
            trials,
            model,
            device=backend.device,
            record=cuda_graph if backend.on_cuda and backend.cuda_graphs else None,
            on_progress=on_progress,
            on_loss=on_loss,
        )
        return
    for trial in trials:
        yield run_trial(
            trial,
            model,
            device=backend.device,
            threads=backend.threads,
            on_progress=on_progress,
            on_loss=partial(on_loss, trial),
        )
