"""Optimizers by a plan are torch's to the bit, and load no compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import depthmup
from depthmup._uncompiled import uncompiled
from depthmup.training.optimizers import _CLASSES, optimizers

CHECK = """
import sys
import torch
from torch import nn
import depthmup

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.up(self.norm(x).relu())

def make(width, depth):
    blocks = (Block(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(3, width), *blocks, nn.Linear(width, 2))

def batch(generator):
    return torch.randn(8, 3, generator=generator), torch.arange(8) % 2

mine = depthmup.Model(make, batch=batch)
for optimizer in ("adamw", "sgd", "muon"):
    depthmup.check(mine, scheme="completep", widths=(4, 8, 16), depths=2, seeds=2, steps=2,
                   optimizer=optimizer)
print({"torch._dynamo", "sympy", "torch.distributed.tensor"} & sys.modules.keys())
"""


def test_a_check_of_small_networks_loads_no_compiler():
    """Nor what shards tensors, nor computer algebra: a second of every command."""
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", (done.stdout, done.stderr)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 2))


def stepped(model, optimizer, steps=3):
    for step in range(steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


@pytest.mark.parametrize(
    "made_by", dict.fromkeys([*_CLASSES.values(), torch.optim.Muon]), ids=lambda c: c.__name__
)
def test_each_steps_as_torchs_own(made_by):
    weights = []
    for kind in (made_by, uncompiled(made_by)):
        model = network()
        own = [p for p in model.parameters() if p.ndim == 2 or made_by is not torch.optim.Muon]
        weights.append(stepped(model, kind(own, lr=1e-2, weight_decay=0.1)))
    start = list(network().parameters())
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    assert not torch.equal(start[0], weights[0][0])


def test_they_are_torchs_optimizers():
    """With its hooks, groups that are added later, and schedules."""
    model, base = network(), network()
    plan = depthmup.plan(model, base=base, example_inputs=torch.ones(1, 4), own_init="fixed")
    [optimizer] = optimizers(plan, model, lr=0.1)
    assert isinstance(optimizer, torch.optim.AdamW)
    optimizer.add_param_group({"params": [("more", nn.Parameter(torch.ones(2)))], "lr": 0.5})
    called, schedule = [], torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_pre_hook(lambda *_: called.append(1))
    stepped(model, optimizer, steps=2)
    schedule.step()
    assert len(called) == 2
    assert optimizer.param_groups[-1]["lr"] == 0.25
