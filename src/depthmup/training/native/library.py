"""The compiled kernel as Python sees it: one struct, one function."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from depthmup.records import Cell
from depthmup.training.native.build import BuildError, build

# In the order of the kernel's enum.
ACTIVATIONS = (
    *("identity", "abs", "relu", "tanh", "gelu"),
    *("silu", "softplus", "erf", "sin", "cos"),
)
OPTIMIZERS = ("adam", "adamw", "sgd")

SIZES = ("width", "width_stride", "batch", "batch_stride", "depth", "block_depth", "outputs")
OPTIONS = ("activation", "post", "mean_subtraction", "layer_norm", "sgd")
SETTINGS = ("multiplier", "beta1", "beta2", "epsilon", "momentum", "coupled")
ARRAYS = (
    *("rates", "retained"),
    *("table", "order", "labels", "readout", "weights", "first", "second"),
    *("kept", "operands", "normalized", "scales"),
    *("x", "dx", "u", "d", "e", "mean", "logits"),
)


class Struct(ctypes.Structure):
    """``struct member`` of kernel.c, field by field."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int64) for name in (*SIZES, *OPTIONS)),
        *((name, ctypes.c_double) for name in SETTINGS),
        *((name, ctypes.c_void_p) for name in ARRAYS),
    ]


@dataclass(frozen=True, kw_only=True)
class Library:
    """A loaded kernel. ``advance`` trains a member through some steps without the GIL."""

    register_length: int
    advance: Callable[..., int]


def load(path: Path) -> Library:
    """Load a built kernel."""
    try:
        binary = ctypes.CDLL(str(path))
        size, length = binary.depthmup_member_size, binary.depthmup_register_length
        advance = binary.depthmup_advance
    except (OSError, AttributeError) as error:
        raise BuildError(f"The kernel {path} cannot be loaded: {error}. Delete it.") from error
    size.restype = length.restype = advance.restype = ctypes.c_int64
    size.argtypes = length.argtypes = []
    advance.argtypes = [
        ctypes.POINTER(Struct),
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_double,
        ctypes.c_void_p,
    ]
    if size() != ctypes.sizeof(Struct):
        raise BuildError(f"The kernel {path} is of another version of this package. Delete it.")
    return Library(register_length=length(), advance=advance)


@lru_cache(maxsize=1)
def _attempt() -> Library | BuildError:
    """Failure is remembered too: a compiler that fails would do so once per group of cells."""
    try:
        path = build()
        try:
            return load(path)
        except BuildError:
            path.unlink(missing_ok=True)  # a compiler wrote it that may be mended
            raise
    except BuildError as error:
        return error


def library() -> Library:
    """The kernel of this machine, built and loaded on first use."""
    kernel = _attempt()
    if isinstance(kernel, BuildError):
        raise kernel
    return kernel


def supports(cell: Cell) -> str | None:
    """None if the native engine can train cells of this shape, else why not."""
    network, optimizer = cell.network, cell.optimizer
    if network.activation not in ACTIVATIONS:
        return f"the activation {network.activation!r} is not in the kernel"
    if network.nonlinearity not in ("post", "pre"):
        return f"the nonlinearity {network.nonlinearity!r} is not in the kernel"
    if optimizer.name not in OPTIMIZERS:
        return f"the optimizer {optimizer.name!r} is not in the kernel"
    if cell.precision != "float32":
        return f"the precision {cell.precision!r} is not in the kernel"
    return None
