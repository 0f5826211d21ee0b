"""``depthmup doctor --gpu``: the GPUs of this machine against its CPU, and their speed."""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from depthmup.records import Cell, Network, Optimizer
from depthmup.sweep.cost import UPDATE, work
from depthmup.training import Backend, train_ensemble, train_group

STEPS = 100
NETWORKS = (1, 12, 96)
SIDE = 4096
"""Of the matrices whose product shows a GPU's speed in single precision."""


def gpu_lines() -> Iterator[str]:
    """A line for every try, with its result or its error; refuses a machine without GPUs."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise ValueError(
            f"Expected a CUDA device that PyTorch {torch.__version__} can use; it finds none. "
            "Check nvidia-smi, and that this PyTorch is a CUDA build."
        )
    return _lines(count)


def _lines(count: int) -> Iterator[str]:
    import torch

    for index, graphs in product(range(count), (False, True)):
        device = f"cuda:{index}"
        name = f"{device} {torch.cuda.get_device_name(index)}{', CUDA graphs' * graphs}"
        yield _tried(name, partial(_compared, _of_built_in, device, graphs))
        yield _tried(f"{name}, your own models", partial(_compared, _of_own, device, graphs))
    peak = _peak()
    yield f"products of single precision on cuda:0: {peak / 1e12:.1f} TFLOP/s"
    for networks, graphs in product(NETWORKS, (False, True)):
        name = f"{networks} networks{', CUDA graphs' * graphs}"
        yield _tried(name, partial(_speed, networks, graphs, peak))
    free = [f"{torch.cuda.mem_get_info(i)[0] / 2**30:.1f}" for i in range(count)]
    yield f"free GiB: {', '.join(free)}"


def _tried(name: str, function: Callable[[], str]) -> str:
    try:
        return f"{name}: {function()}"
    except Exception as error:  # a report of what works must go on
        return f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _cells(count: int, steps: int | None = None) -> list[Cell]:
    network = Network(
        inputs=64,
        outputs=10,
        width=64,
        depth=16,
        multiplier=0.25,
        input_std=1 / 8,
        hidden_std=1 / 8,
        readout_std=1 / 64,
    )
    rates = [2.0**-8 * 1.01**i for i in range(count)]
    return [
        Cell(network=network, optimizer=Optimizer(name="adam", lr=lr), steps=steps or STEPS)
        for lr in rates
    ]


def _losses(cells: list[Cell], device: str, *, graphs: bool) -> list[list[float]]:
    if device == "cpu":
        records = train_ensemble(cells)
    else:
        records = train_group(cells, backend=Backend(device=device, cuda_graphs=graphs))
    return [list(record.losses) for record in records]


def _of_built_in(device: str, graphs: bool) -> list[list[float]]:
    return _losses(_cells(4), device, graphs=graphs)


def _of_own(device: str, graphs: bool) -> list[list[float]]:
    """Of a stack of models from a factory, as a person would write it."""
    import torch
    from torch import nn

    from depthmup.model import Model
    from depthmup.records import Trial
    from depthmup.training.built_in.residual_mlp import ResidualMLP
    from depthmup.training.cuda_graphs import cuda_graph
    from depthmup.training.trial import run_together

    def make(width: int, depth: int) -> nn.Module:
        return ResidualMLP(inputs=8, width=width, depth=depth, outputs=4, layer_norm=True)

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(64, 8, generator=generator)
        return inputs, inputs[:, :4].argmax(-1)

    base = {"width": 32, "depth": 2}
    common = Trial(
        model="doctor",
        code="1",
        size={"width": 64, "depth": 8},
        base=base,
        scheme="depth-mup",
        optimizer="adamw",
        lr=2.0**-8,
        steps=STEPS,
        seed=0,
    )
    trials = [replace(common, lr=common.lr * 1.01**i) for i in range(4)]
    model = Model(make, batch=batch, version="1")
    record = cuda_graph if graphs else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a step that cannot be recorded is the answer
        records = list(run_together(trials, model, device=device, record=record))
    return [list(each.losses) for each in records]


def _compared(losses: Callable[[str, bool], list[list[float]]], device: str, graphs: bool) -> str:
    expected = losses("cpu", False)
    first, second = (losses(device, graphs) for _ in range(2))
    apart = max(
        abs(a / b - 1)
        for one, other in zip(first, expected, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    return f"at most {apart:.1e} from the CPU, same bits twice: {first == second}"


def _speed(networks: int, graphs: bool, peak: float) -> str:
    _losses(_cells(networks, steps=5), "cuda:0", graphs=graphs)  # loads kernels
    cells = _cells(networks)
    start = time.perf_counter()
    _losses(cells, "cuda:0", graphs=graphs)
    seconds = time.perf_counter() - start
    operations = sum((6 * 64 + UPDATE) * work(cell) for cell in cells)
    return (
        f"{networks * STEPS / seconds:,.0f} steps/s, {100 * operations / seconds / peak:.2g}% of "
        "the products' speed"
    )


def _peak() -> float:
    """Operations per second of cuda:0 in large products of single precision."""
    import torch

    one = torch.ones(SIDE, SIDE, device="cuda:0")
    torch.mm(one, one)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        torch.mm(one, one)
    torch.cuda.synchronize()
    return 10 * 2 * SIDE**3 / (time.perf_counter() - start)
