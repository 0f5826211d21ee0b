"""Training cells in PyTorch: built-in networks, one by one or stacked."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthmup._uncompiled import uncompiled
from depthmup.records import Cell, Record
from depthmup.training.backend import Progress, check_one_shape, check_precision, threads
from depthmup.training.built_in.data_and_weights import batches, build, dataset
from depthmup.training.cuda_graphs import Capture
from depthmup.training.divergence import ceiling, record_of
from depthmup.training.loop import Training, trained_alone
from depthmup.training.precision import RoundedLinear, single_precision
from depthmup.training.schedules import factors_of
from depthmup.training.stack import trained_together

FLOATS_PER_REGISTER = 16  # of AVX-512, and a multiple of every narrower one


def optimizer_of(cell: Cell, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The torch optimizer that a cell describes."""
    o = cell.optimizer
    classes = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    own = (
        {"momentum": o.momentum}
        if o.name == "sgd"
        else {"betas": (o.beta1, o.beta2), "eps": o.epsilon}
    )
    made: torch.optim.Optimizer = uncompiled(classes[o.name])(
        parameters, lr=o.lr, weight_decay=o.weight_decay, **own
    )
    return made


def training_of(cell: Cell, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Training:
    """A cell's network and what its steps need; a batch is the indices of its examples."""
    data, network = dataset(cell.data), build(cell).to(device, dtype)
    inputs, labels = data.inputs.to(device, dtype), data.labels.to(device)
    if cell.precision != "float32":
        for branch in network.branches:
            branch.matrices = nn.ModuleList(
                RoundedLinear(matrix.weight, cell.precision)
                for matrix in branch.matrices  # type: ignore[union-attr]
            )

    def cost(network: Callable[..., Any], chosen: Tensor) -> Tensor:
        return functional.cross_entropy(network(inputs[chosen]), labels[chosen])

    return Training(
        network=network,
        cost=cost,
        batch=partial(next, iter(batches(cell).to(device))),
        device=device,
        seed=cell.seed,
        optimizers=[optimizer_of(cell, [p for p in network.parameters() if p.requires_grad])],
        factors=factors_of(cell),
        ceiling=partial(ceiling, classes=data.classes),
    )


def train(cell: Cell, *, dtype: torch.dtype = torch.float32) -> Record[Cell]:
    """Train one cell step by step with autograd; float64 shows the rounding of other engines."""
    check_precision(cell.precision, "cpu")
    return record_of(cell, *trained_alone(training_of(cell, dtype=dtype)))


def train_ensemble(
    cells: Sequence[Cell],
    *,
    device: str = "cpu",
    record: Capture | None = None,
    on_progress: Progress = lambda fraction: None,
) -> Iterator[Record[Cell]]:
    """Train cells that differ only in learning rate, decay and seed; yield each as it ends.

    On a CPU a record has the same bits in any company. On a GPU the choice of algorithm may depend
    on the number of members, so records of different ensembles agree to rounding.
    """
    check_one_shape(cells)
    check_precision(cells[0].precision, device)
    width, batch, size = cells[0].network.width, cells[0].batch_size, len(cells)
    aligned = not any(n % FLOATS_PER_REGISTER for n in (batch, width**2, width * batch))
    # Trained alone, a member's arithmetic cannot depend on others, whatever its alignment.
    stacks = [cells] if aligned or device != "cpu" else [[cell] for cell in cells]
    with threads(1), single_precision():
        for done, stack in enumerate(stacks):
            share, before = len(stack) / size, done * len(stack) / size
            for member, losses, above in trained_together(
                partial(_trainings, stack, device),
                record=record,
                on_progress=lambda f, b=before, s=share: on_progress(b + s * f),  # type: ignore[misc]
            ):
                yield record_of(stack[member], losses, above)


def _trainings(cells: Sequence[Cell], device: str) -> list[Training]:
    return [training_of(cell, device=device) for cell in cells]
