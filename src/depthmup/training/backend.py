"""Where and by which engine runs are trained: a choice that is not part of a run's description."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from depthmup.records.grammar import either
from depthmup.records.run import Cell, Precision

EngineName = Literal["native", "stacked", "reference"]
Progress = Callable[[float], None]
"""Is told the fraction of training that is done."""

ENGINES: tuple[EngineName, ...] = get_args(EngineName)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """A device, the requested engine, whether a CUDA device replays recorded steps, and threads.

    No part of a record's key: engines agree to rounding. Precision belongs to the cell.
    """

    device: str = "cpu"
    engine: Literal["auto"] | EngineName = "auto"
    cuda_graphs: bool = True
    threads: int = 1
    """Of a custom model's process; the engines of cells have one."""

    @property
    def on_cuda(self) -> bool:
        return self.device.startswith("cuda")


def check_backend(backend: Backend) -> None:
    """Refuse a backend in which no cell can be trained."""
    device, engine = backend.device, backend.engine
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (":" in device and not number.isdecimal()):
        raise ValueError(f"Expected device to be cpu, cuda or cuda:N; got {device!r}.")
    if engine not in ("auto", *ENGINES):
        raise ValueError(
            f"Expected engine to be auto, {', '.join(ENGINES[:-1])} or {ENGINES[-1]}; got "
            f"{engine!r}."
        )
    if backend.on_cuda and engine not in ("auto", "stacked"):
        raise ValueError(
            f"Expected engine to be auto or stacked on {device!r}; got {engine!r}, which runs on "
            "the CPU."
        )


def check_device(device: str) -> None:
    """Refuse a device that PyTorch does not know or cannot use here."""
    if device == "cpu":  # nor need PyTorch be loaded
        return
    import torch

    try:
        torch.empty(0, device=torch.device(device))
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"Expected device to be one that PyTorch {torch.__version__} can use here, such as cpu "
            f"or cuda; got {device!r}: {first}"
        ) from None


DRIVER = Path("/proc/driver/nvidia/version")


def device_facts(device: str) -> dict[str, object]:
    """A CUDA device for the notes of a session: what may round its results in its own way."""
    import torch

    driver = re.search(r"\d+\.[\d.]+", DRIVER.read_text()) if DRIVER.exists() else None
    return {
        "device": device,
        "gpu": torch.cuda.get_device_name(torch.device(device)),
        "cuda": torch.version.cuda,
        "driver": driver[0] if driver else None,
        "float32 products": torch.get_float32_matmul_precision(),
    }


def place_of(device: str) -> str:
    """The place of a record: a CUDA device and what may round its results in its own way."""
    if not device.startswith("cuda"):
        return ""
    facts = device_facts(device)
    named = [f"{name} {facts[name]}" for name in ("driver", "cuda", "float32 products")]
    return ", ".join([str(facts["gpu"]), *named])


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside, PyTorch computes on this many threads of this process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_one_shape(cells: Sequence[Cell]) -> None:
    """Refuse cells that cannot be trained as one group."""
    if len({cell.shape for cell in cells}) != 1:
        raise ValueError(
            f"The {len(cells)} cells of a group may differ in learning rate, weight decay and "
            "seed only. Group them by Cell.shape first."
        )


def check_precision(precision: Precision, device: str) -> None:
    """Refuse a precision that a device lacks and would silently replace by another."""
    if precision == "tf32" and not device.startswith("cuda"):
        raise ValueError(
            f"Expected precision to be float32 or bf16 on {device!r}; got 'tf32', a format of CUDA "
            "devices. Add --device cuda."
        )


def one_by_one() -> str:
    """The option by which trials do not train as a stack."""
    return either("engine='reference'", "--engine reference")
