"""One of several processes that train a planned model; writes its losses. See test_distributed."""

import json
import os
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from planning_zoo import Transformer, batches, tokens
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import depthmup

BASE, TARGET, STEPS = (16, 2), (32, 8), 5
# Tied with hooks, and untied with folded multipliers; planned before or after it is wrapped.
FORMS = HOOKS, FOLDED = (True, False), (False, True)
WRAPPED = [
    ("ddp", "before", HOOKS),
    ("ddp", "after", FOLDED),
    ("fsdp", "before", FOLDED),
    ("fsdp", "after", HOOKS),
]


def label(how, order, form):
    return f"{how} planned {order}, tied and folding {form}"


def make(size, tied):
    return Transformer(*size, tied=tied)


def plan_of(model, tied, folding):
    torch.manual_seed(7)
    return depthmup.plan(
        model, base=make(BASE, tied), scheme="completep", example_inputs=tokens(), folding=folding,
    )  # fmt: skip


def losses(how, order, tied=True, folding=False):
    """Train on two halves of a batch; the halves' mean gradient is that of the whole batch."""
    torch.manual_seed(0)
    rank = dist.get_rank() if dist.is_initialized() else 0
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    model = plain = make(TARGET, tied)
    plan = plan_of(model, tied, folding) if order == "before" else None
    if how == "ddp":
        model = DistributedDataParallel(model)
    elif how == "fsdp":
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if plan is None:
        plan = plan_of(model, tied, folding)
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-2, weight_decay=0.1, eps=1e-4))
    outcome = []
    for x, y in batches(tokens(4), (4, 8, 32), STEPS, dtype=torch.float32):
        share = slice(rank * 4 // ranks, (rank + 1) * 4 // ranks)
        loss = (model(x[share]) - y[share]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as reduced:
            norm = plan.clip_grad_norm_(model, 0.5)
        assert reduced.call_count == (how == "fsdp")  # one sum, however many parameters there are
        optimizer.step()
        mean = loss.detach().clone()
        if ranks > 1:
            dist.all_reduce(mean)
        outcome.append((mean.item() / ranks, norm.item()))
    assert plain is not None
    return outcome


def work(rank, ranks, folder):
    """One process of several; the first writes the losses."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    result = {label(how, order, form): losses(how, order, *form) for how, order, form in WRAPPED}
    if rank == 0:
        Path(folder, "losses.json").write_text(json.dumps(result), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # gloo's threads need not be waited for
