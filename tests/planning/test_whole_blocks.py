"""Branches that no module gives: a hook on the block multiplies what it adds."""

import pytest
import torch
from planning_zoo import vectors
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood, Where


class Tanh(nn.Module):
    """x + tanh(W x): the branch ends in a function that nothing linear carries a factor through."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class InPlace(Tanh):
    def forward(self, x):
        x += torch.tanh(self.linear(x))
        return x


class Twice(Tanh):
    """Two branches in one block: what it adds is the sum of both."""

    def forward(self, x):
        x = x + torch.tanh(self.linear(x))
        return x + torch.tanh(self.linear(x))


class Network(nn.Module):
    def __init__(self, width, depth, block):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
        self.blocks = nn.ModuleList(block(width) for _ in range(depth))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def planned(block, model=None):
    return depthmup.plan(
        model or Network(64, 8, block),
        base=Network(16, 2, block),
        example_inputs=vectors(),
        scheme="depth-mup",
    )


def test_what_a_block_adds_is_multiplied(tmp_path):
    model = Network(64, 8, Tanh).double()
    plan = planned(Tanh, model)
    multipliers = [m for m in plan.multipliers if m.where is Where.BRANCH]
    assert [m.value for m in multipliers] == [approx(0.5)] * 8
    assert {m.hooks[0].side for m in multipliers} == {"addition"}
    plan.initialize(model)
    x = torch.randn(5, 6, dtype=torch.double)
    expected = model.first(x)
    for block in model.blocks:
        expected = expected + torch.tanh(block.linear(expected)) / 2
    expected = model.head(expected)
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)
    model(x).sum().backward()
    gradient = model.blocks[0].linear.weight.grad.clone()
    model.zero_grad()
    expected.sum().backward()
    torch.testing.assert_close(gradient, model.blocks[0].linear.weight.grad)
    plan.save(tmp_path / "plan.json")
    assert depthmup.Plan.load(tmp_path / "plan.json").multipliers == plan.multipliers
    with pytest.raises(ValueError, match="needs the hook"):
        plan.export(model)
    plan.detach(model)
    assert not torch.allclose(model(x), expected)


@pytest.mark.parametrize("block", [InPlace, Twice])
def test_a_block_that_hides_what_it_adds_is_refused(block):
    with pytest.raises(NotUnderstood, match="no parameter can carry it"):
        planned(block)


def test_a_block_that_is_called_otherwise_is_seen():
    model = Network(64, 8, Tanh)
    planned(Tanh, model).attach(model)
    with pytest.raises(RuntimeError, match="first argument"):
        model.blocks[0](x=torch.zeros(2, 64))
