"""The reference engine: one cell trained with plain PyTorch, readable from top to bottom."""

from array import array

import torch
from torch.nn import functional

from depthmup.records import Cell, Record, Status
from depthmup.training.built_in.data_and_weights import batches, build, dataset
from depthmup.training.divergence import ceiling, stopped
from depthmup.training.schedules import factors_of


def optimizer_of(cell: Cell, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The torch optimizer that a cell describes."""
    o = cell.optimizer
    if o.name == "sgd":
        return torch.optim.SGD(
            parameters, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay
        )
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o.name]
    result: torch.optim.Optimizer = make(
        parameters,
        lr=o.lr,
        betas=(o.beta1, o.beta2),
        eps=o.epsilon,
        weight_decay=o.weight_decay,
    )
    return result


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every parameter this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def train(cell: Cell, *, dtype: torch.dtype = torch.float32) -> Record[Cell]:
    """Train one cell step by step with autograd; float64 shows the rounding of other engines."""
    if cell.precision != "float32":
        raise ValueError(
            f"Expected precision to be float32 in the plain loop; got {cell.precision!r}. "
            "depthmup.training.train_ensemble trains in it."
        )
    data, order = dataset(cell.data), batches(cell)
    inputs, labels = data.inputs.to(dtype), data.labels
    model = build(cell).to(dtype)
    optimizer = optimizer_of(cell, [p for p in model.parameters() if p.requires_grad])
    losses, factors = array("f"), factors_of(cell)
    for step in range(cell.steps):
        loss = functional.cross_entropy(model(inputs[order[step]]), labels[order[step]])
        value = float(loss.detach())
        if step == 0:
            limit = ceiling(value, data.classes)
        if not value <= limit:  # also true of NaN
            return stopped(cell, losses, value)
        losses.append(value)
        optimizer.zero_grad()
        loss.backward()
        set_rate(optimizer, cell.optimizer.lr * factors[step])
        optimizer.step()
    return Record(cell=cell, status=Status.FINISHED, losses=losses)
