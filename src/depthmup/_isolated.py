"""A person's code apart: what it changes for the whole process reaches nothing else."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")


@contextmanager
def isolated(*, generators: bool = True) -> Iterator[None]:
    """Put back at the end what the code inside has changed: ``STATE``, one by one.

    Without ``generators``, random numbers go on from where the code inside has left them.
    """
    before, states = _state(), _generators() if generators else None
    try:
        yield
    finally:
        _put(before)
        if states is not None:
            _put_generators(states)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch; nothing inside reaches outside."""
    with isolated():
        seed_all(seed)
        yield


def isolated_results(results: Iterator[T]) -> Iterator[T]:
    """Results of code that goes on between them: what it has changed holds while it runs alone."""
    inside, states = _state(), _generators()
    while True:
        with isolated():
            _put(inside)
            _put_generators(states)
            try:
                result = next(results)
            except StopIteration:
                return
            inside, states = _state(), _generators()
        yield result


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - models may use it
    if torch.cuda.is_available() or torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        # manual_seed keeps the stack of its caller as text, three times for each seed, for devices
        # to come: a tenth of the time of short runs, and memory that grows with them.
        torch.default_generator.manual_seed(seed)


def _generators() -> dict[int | str, Any]:
    """The states of all global generators; of CUDA's where it is initialized.

    To ask for one before would initialize it, on every device.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        **{device: torch.cuda.get_rng_state(device) for device in devices},
    }


def _put_generators(states: dict[int | str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    for device, state in states.items():
        if isinstance(device, int):
            torch.cuda.set_rng_state(state, device)


def _determinism() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _put_determinism(before: tuple[bool, bool]) -> None:
    enabled, warn_only = before
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def _put_device(device: torch.device) -> None:
    # Of the CPU there is none: the one that is named slows every call down.
    torch.set_default_device(None if device.type == "cpu" else device)


_DENORMAL = 5e-324
"""A name, as a product of two constants is computed when they are compiled."""


def _flushes_denormals() -> bool:
    """Torch has a function that sets this for a thread, and none that asks for it."""
    return _DENORMAL * 1.0 == 0.0


def _folder() -> str | None:
    with suppress(OSError):  # it may be removed
        return os.getcwd()
    return None


def _put_folder(folder: str | None) -> None:
    if folder is not None:
        with suppress(OSError):
            os.chdir(folder)


def _environment() -> dict[Any, Any]:
    # As the system has it: to decode every variable takes longer than a short run's step.
    return dict(vars(os.environ)["_data"])


def _put_environment(before: dict[Any, Any]) -> None:
    now = _environment()
    for name in now.keys() - before.keys():
        del os.environ[os.fsdecode(name)]
    for name, value in before.items() - now.items():
        os.environ[os.fsdecode(name)] = os.fsdecode(value)


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return (lambda: getattr(owner, name)), (lambda value: setattr(owner, name, value))


STATE: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, _put_device),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "anomalies": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "determinism": (_determinism, _put_determinism),
    "products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cuDNN's determinism": _attribute(torch.backends.cudnn, "deterministic"),
    "cuDNN's benchmark": _attribute(torch.backends.cudnn, "benchmark"),
    "cuDNN's TF32": _attribute(torch.backends.cudnn, "allow_tf32"),
    "autocast": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda enabled: torch.set_autocast_enabled("cpu", enabled),
    ),
    "autocast's dtype": (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda dtype: torch.set_autocast_dtype("cpu", dtype),
    ),
    "denormals": (_flushes_denormals, torch.set_flush_denormal),
    "NumPy's errors": (np.geterr, lambda before: np.seterr(**before)),
    "folder": (_folder, _put_folder),
    "environment": (_environment, _put_environment),
}
"""What code can change for all of its process, each with its getter and its setter."""


def _state() -> dict[str, Any]:
    return {name: read() for name, (read, _) in STATE.items()}


def _put(before: dict[str, Any]) -> None:
    for name, (read, write) in STATE.items():
        if read() != before[name]:  # a setter may do more than set, such as load CUDA
            write(before[name])
