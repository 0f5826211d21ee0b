"""What diagnostics see, on one process or as one of several. See test_wrapped."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from depthmup.diagnostics import Paths, check, first_nonfinite, locate, observe
from depthmup.model import Model
from depthmup.models import ResidualMLP
from depthmup.planning import plan
from depthmup.tracing import parameters
from studies import faults

MODELS = ("transformer", "mlp")


def make(name):
    torch.manual_seed(0)
    if name == "transformer":  # gains, biases, attention, an embedding
        return faults.growing_heads(16, 3)
    return ResidualMLP(inputs=6, width=16, depth=8, outputs=8, multiplier=0.5, block_depth=2)


def examples(name):
    generator = torch.Generator().manual_seed(1)
    return (faults.tokens if name == "transformer" else faults.vectors)(generator)


def sharded(model, every):
    """Each block is sharded on its own, then the rest; or each of ``every`` matrix as well."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if every:
        for module in list(model.modules()):
            if isinstance(module, torch.nn.Linear):
                fully_shard(module, mesh=mesh)
    for block in model.layers if hasattr(model, "layers") else model.branches:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


WRAPPERS = {
    "plain": lambda model: model,
    "ddp": DistributedDataParallel,
    "blocks": lambda model: sharded(model, False),
    "matrices": lambda model: sharded(model, True),
}


def seen(name, how):
    """What is seen at initialization, and after three steps on this process's examples."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if how != "plain" else (0, 1)
    inputs, targets = examples(name)
    model = make(name)
    made = plan(model, base=make(name), example_inputs=inputs, own_init="fixed")
    model = WRAPPERS[how](model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-4)
    points = locate(model, inputs)
    first = observe(model, inputs, points, made)
    weights = {n: p.detach().clone() for n, p in parameters(model).items()}
    paths = Paths(model)
    mine = slice(rank * len(inputs) // ranks, (rank + 1) * len(inputs) // ranks)
    for _ in range(3):
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs[mine]).flatten(0, -2), targets[mine].flatten())
        loss.backward()
        optimizer.step()
        paths.step()
    second = observe(
        model, inputs, points, made, initial=first, weights=weights, paths=paths.lengths
    )
    result = {str(k): v for o in (first, second) for k, v in o.values.items()}
    assert first_nonfinite(model, inputs) is None
    return {key: float(value) for key, value in result.items()}


def checked(how):
    """The exponents of a check whose every network is wrapped."""

    def made(width, depth):
        torch.manual_seed(width + depth)
        return WRAPPERS[how](
            ResidualMLP(inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5)
        )

    result = check(
        Model(make=made, batch=faults.vectors),
        widths=(16, 32, 64),
        depths=(2, 4, 8),
        seeds=2,
        steps=2,
        plan_options={"own_init": "fan_in"},
    )
    return {(e.module, e.observable, e.axis): e.estimate.value for e in result.exponents}


def work(rank, ranks, folder, how):
    """One process of several; the first writes what it saw."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    result = checked("blocks") if how == "check" else {n: seen(n, how) for n in MODELS}
    if rank == 0:
        torch.save(result, f"{folder}/found.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads need not be waited for
