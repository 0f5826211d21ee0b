"""GPUs of a machine: which are there, who sees them, and errors that concern a whole process."""

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Files of a GPU's driver on Linux: without them PyTorch need not be loaded to find no GPU."""


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that PyTorch can use here, as CUDA_VISIBLE_DEVICES names them."""
    unloaded = "torch" not in sys.modules and sys.platform == "linux"
    if unloaded and not any(os.path.exists(driver) for driver in DRIVERS):
        return ()
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = os.environ.get(VISIBLE)
    entries = [name.strip() for name in named.split(",")] if named else map(str, range(count))
    return tuple(entries)[:count]


@contextmanager
def seeing(gpu: str | None) -> Iterator[None]:
    """Processes that start inside see one GPU: CUDA asks once, when it is initialized."""
    if gpu is None:
        yield
        return
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = gpu
    try:
        yield
    finally:
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def arithmetic() -> dict[str, Any]:
    """How PyTorch computes in this process, which a script may have chosen; empty by default."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    chosen = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "default_dtype": torch.get_default_dtype(),
    }
    usual = {
        "float32_matmul_precision": "highest",
        "deterministic": False,
        "warn_only": False,
        "default_dtype": torch.float32,
    }
    return {} if chosen == usual else chosen


def compute_as(chosen: Mapping[str, Any]) -> None:
    """Compute in this worker as in the process whose ``arithmetic`` this is, on one thread."""
    import torch

    torch.set_num_threads(1)
    if chosen:
        torch.set_float32_matmul_precision(chosen["float32_matmul_precision"])
        torch.use_deterministic_algorithms(chosen["deterministic"], warn_only=chosen["warn_only"])
        torch.set_default_dtype(chosen["default_dtype"])


def _of_torch(name: str) -> type[BaseException] | tuple[()]:
    """An error of PyTorch's, of which there is none where nothing has loaded it."""
    found: type[BaseException] | tuple[()] = getattr(sys.modules.get("torch"), name, ())
    return found


def is_shortage(error: BaseException) -> bool:
    """Whether memory was lacking, the host's or a GPU's."""
    lacking = isinstance(error, (MemoryError, _of_torch("OutOfMemoryError")))
    return lacking or "CUDA error: out of memory" in str(error)


def is_lost(error: BaseException | None) -> bool:
    """Whether an error, or a cause of it, leaves its process without its GPU for good."""
    while error is not None:
        of_device = isinstance(error, _of_torch("AcceleratorError")) or (
            isinstance(error, RuntimeError) and "CUDA error" in str(error)
        )
        if of_device and not is_shortage(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def give_back() -> None:
    """Return the memory that PyTorch keeps for later to the GPU, where neighbours may need it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
