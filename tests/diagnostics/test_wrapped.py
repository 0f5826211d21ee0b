"""Probes on wrapped and sharded models see what they see on the plain one."""

import pytest
import torch
import torch.distributed as dist
from pytest import approx
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from depthmup.diagnostics import locate, observe
from depthmup.models import ResidualMLP
from depthmup.planning import plan


@pytest.fixture
def group(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    yield
    dist.destroy_process_group()


def make():
    torch.manual_seed(0)
    return ResidualMLP(inputs=6, width=16, depth=4, outputs=8)


def sharded(model):
    mesh = init_device_mesh("cpu", (1,))
    for branch in model.branches:
        fully_shard(branch, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@pytest.mark.parametrize("wrap", [DistributedDataParallel, sharded], ids=["DDP", "FSDP2"])
def test_the_first_look_is_that_of_the_plain_model(group, wrap):
    x = torch.randn(4, 6)
    plain = make()
    made = plan(plain, base=make(), example_inputs=x)
    expected = observe(plain, x, locate(plain, x), made).values
    wrapped = wrap(make())
    assert observe(wrapped, x, locate(wrapped, x), made).values == approx(expected, rel=1e-6)


def test_the_second_look_too_under_ddp(group):
    x = torch.randn(4, 6)
    seen = []
    for wrap in (lambda model: model, DistributedDataParallel):
        plain = make()
        made = plan(plain, base=make(), example_inputs=x)
        model = wrap(plain)
        points = locate(model, x)
        first = observe(model, x, points, made)
        weights = {name: p.detach().clone() for name, p in plain.named_parameters()}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).square().mean().backward()
        optimizer.step()
        second = observe(model, x, points, made, initial=first, weights=weights)
        seen.append(second.values)
    assert seen[1] == approx(seen[0], rel=1e-6)
    assert max(seen[0].values()) > 0
