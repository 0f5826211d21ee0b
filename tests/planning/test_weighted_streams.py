"""Streams that are weighed with an earlier point of themselves: no branch, and no end of them."""

import pytest
import torch
from torch import nn

import depthmup


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return x + self.linear(torch.relu(x))


class Weighted(nn.Module):
    """a_l x + b_l x0 before every block, as nanochat has it; or without the a_l."""

    def __init__(self, width, depth, gains):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.a = nn.Parameter(torch.ones(depth)) if gains else None
        self.b = nn.Parameter(torch.zeros(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x0 = x = self.embed(x)
        for layer, block in enumerate(self.blocks):
            own = x if self.a is None else self.a[layer] * x
            x = block(own + self.b[layer] * x0)
        return self.head(x)


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.parametrize(("depth", "base"), [(4, 2), (2, 1), (6, 3)])
def test_only_the_blocks_are_branches(gains, depth, base):
    plan = depthmup.plan(
        Weighted(32, depth, gains),
        Weighted(16, base, gains),
        scheme="depth-mup",
        optimizer="adamw",
        example_inputs=torch.randn(4, 8),
    )
    values = {m.label: m.value for m in plan.multipliers}
    assert values == {
        f"blocks.{i}.linear": pytest.approx((depth / base) ** -0.5) for i in range(depth)
    }
    assert any("act on the stream itself once per layer" in note for note in plan.notes)
