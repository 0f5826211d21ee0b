"""One member's memory: what the kernel reads and writes, checked before it does."""

import ctypes
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from depthmup.records import Cell, Optimizer
from depthmup.training.built_in.data_and_weights import Weights, batches, dataset
from depthmup.training.native.library import ACTIVATIONS, Library, Struct, supports
from depthmup.training.schedules import factors_of, schedule


def check(cell: Cell) -> None:
    """Refuse what the kernel must not see."""
    network, optimizer, data = cell.network, cell.optimizer, dataset(cell.data)
    if reason := supports(cell):
        raise ValueError(f"Expected a cell that the native engine supports; {reason}.")
    sizes = {
        **{name: getattr(network, name) for name in ("width", "depth", "block_depth", "outputs")},
        **{name: getattr(cell, name) for name in ("steps", "batch_size")},
    }
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"Expected {name} to be a whole number, at least 1; got {size!r}.")
    settings = ("lr", "beta1", "beta2", "epsilon", "momentum", "weight_decay")
    numbers = {name: getattr(optimizer, name) for name in settings}
    schedule(optimizer.schedule, optimizer.warmup)
    for name, value in {**numbers, "multiplier": network.multiplier}.items():
        if not math.isfinite(value):
            raise ValueError(f"Expected {name} to be a finite number; got {value!r}.")
    for name, value in numbers.items():
        if value < 0:
            raise ValueError(f"Expected {name} not to be negative; got {value!r}.")
    for name in ("beta1", "beta2"):
        if numbers[name] >= 1:
            raise ValueError(f"Expected {name} to be in [0, 1); got {numbers[name]!r}.")
    if data.inputs.ndim != 2 or data.inputs.shape[1] != network.inputs:
        raise ValueError(
            f"Expected a network of {data.inputs.shape[1]} inputs, as {cell.data.name!r} has; got "
            f"one of {network.inputs}."
        )
    if int(data.labels.min()) < 0 or int(data.labels.max()) >= network.outputs:
        raise ValueError(
            f"Expected labels below the number of outputs, {network.outputs}; got labels up to "
            f"{int(data.labels.max())}."
        )


def whole(floats: int, register_length: int) -> int:
    """Room for this many floats in whole registers."""
    return -(-floats // register_length) * register_length


def row_stride(width: int, register_length: int) -> int:
    """Floats from one row of W to the next.

    Rows a multiple of 512 bytes apart fall into few sets of the first cache and evict each other;
    one more register per row spreads them.
    """
    stride = whole(width, register_length)
    return stride + register_length if stride % 128 == 0 else stride


def drawn(initial: Weights) -> Tensor:
    """All W at initialization, (L, k, n, n)."""
    network = initial.network
    n, k = network.width, network.block_depth
    hidden = torch.empty(network.depth, k, n, n)
    for layer in range(network.depth):
        for i in range(k):
            hidden[layer, i] = initial.hidden(layer, i)
    return hidden


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """What cells that differ in their optimizers alone start from; the kernel writes to none of it.

    Attributes:
        hidden: all W at initialization, (L, k, n, n).
        table: U x of every example, rows padded.
        readout: V, rows padded.
        order: the examples of every step.
    """

    hidden: Tensor
    table: Tensor
    readout: Tensor
    order: Tensor

    @staticmethod
    def of(cell: Cell, register_length: int) -> "Start":
        check(cell)
        network, data = cell.network, dataset(cell.data)
        n, stride = network.width, row_stride(network.width, register_length)
        initial = Weights(network=network, seed=cell.seed)
        order = batches(cell).contiguous()
        if int(order.min()) < 0 or int(order.max()) >= len(data.labels):
            raise ValueError(
                f"Expected examples 0 to {len(data.labels) - 1}; got {int(order.min())} to "
                f"{int(order.max())}."
            )
        table = torch.zeros(len(data.inputs), stride)  # padding must be finite
        torch.matmul(data.inputs.float(), initial.input().T, out=table[:, :n])
        readout = torch.zeros(network.outputs, stride)
        readout[:, :n] = initial.readout()
        return Start(hidden=drawn(initial), table=table, readout=readout, order=order)


def shared(cell: Cell) -> Cell:
    """What cells must share to begin from one ``Start``: all but the optimizer."""
    return replace(cell, optimizer=Optimizer(name="", lr=0.0))


class Member:
    """A cell's state in the kernel's layout; ``start`` is what others may share with it."""

    def __init__(self, cell: Cell, register_length: int, start: Start | None = None) -> None:
        check(cell)
        network, optimizer, data = cell.network, cell.optimizer, dataset(cell.data)
        n, k, layers = network.width, network.block_depth, network.depth
        stride, batch = row_stride(n, register_length), whole(cell.batch_size, register_length)
        start = start or Start.of(cell, register_length)
        # Padding must be finite: zeros.
        weights = torch.zeros(layers, k, n, stride)
        weights[..., :n] = start.hidden
        normalized = layers if network.layer_norm else 0
        rates = optimizer.lr * torch.tensor(factors_of(cell), dtype=torch.float64)
        # Only AdamW takes its decay past the gradient.
        decoupled = optimizer.weight_decay if optimizer.name == "adamw" else 0.0
        self.arrays = {
            "rates": rates,
            "retained": 1 - rates * decoupled,
            "table": start.table,
            "order": start.order,
            "labels": data.labels.long().contiguous(),
            "readout": start.readout,
            "weights": weights,
            "first": torch.zeros_like(weights),
            "second": torch.zeros_like(weights) if optimizer.name != "sgd" else torch.zeros(0),
            "kept": torch.zeros(layers, k, stride, batch),
            "operands": torch.zeros(layers, k, batch, stride),
            "normalized": torch.zeros(normalized, stride, batch),
            "scales": torch.zeros(normalized, batch),
            **{name: torch.zeros(stride, batch) for name in ("x", "dx", "u", "d", "e")},
            "mean": torch.zeros(batch),
            "logits": torch.zeros(network.outputs, batch),
        }
        self.losses = torch.zeros(cell.steps)
        pointers = {name: array.data_ptr() for name, array in self.arrays.items()}
        self.struct = Struct(**_settings(cell, stride, batch), **pointers)

    def advance(self, library: Library, start: int, stop: int, limit: float) -> int:
        """Take steps [start, stop); return ``stop``, or the step whose loss exceeded ``limit``."""
        if not 0 <= start <= stop <= len(self.losses):
            raise ValueError(
                f"Expected steps within 0 to {len(self.losses)}; got {start} to {stop}."
            )
        losses = ctypes.c_void_p(self.losses.data_ptr())
        return library.advance(ctypes.byref(self.struct), start, stop, limit, losses)


def _settings(cell: Cell, stride: int, batch: int) -> dict[str, Any]:
    """The numbers of the kernel's struct: sizes, options and the optimizer's settings."""
    network, optimizer = cell.network, cell.optimizer
    return {
        "width": network.width,
        "width_stride": stride,
        "batch": cell.batch_size,
        "batch_stride": batch,
        "depth": network.depth,
        "block_depth": network.block_depth,
        "outputs": network.outputs,
        "activation": ACTIVATIONS.index(network.activation),
        "post": network.nonlinearity == "post",
        "mean_subtraction": network.mean_subtraction,
        "layer_norm": network.layer_norm,
        "sgd": optimizer.name == "sgd",
        "multiplier": network.multiplier,
        "beta1": optimizer.beta1,
        "beta2": optimizer.beta2,
        "epsilon": optimizer.epsilon,
        "momentum": optimizer.momentum,
        "coupled": 0.0 if optimizer.name == "adamw" else optimizer.weight_decay,
    }
