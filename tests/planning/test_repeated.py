"""Modules repeated more often inside of one residual branch: no depth, and nothing in silence."""

import pytest
import torch
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood

INPUTS = (torch.randn(4, 8),)


class Sum(nn.Module):
    """x plus the sum of several small networks times a number that follows how many there are."""

    def __init__(self, width, count, power):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(count)
        )
        self.power = power

    def forward(self, x):
        return x + sum(part(x) for part in self.parts) * len(self.parts) ** -self.power


def make(width, depth, count, power=1.0):
    blocks = (Sum(width, count, power) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))


def planned(model, base, **options):
    options = {"scheme": "completep", "optimizer": "adamw", "example_inputs": INPUTS} | options
    return depthmup.plan(model, base, **options)


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("depth", [2, 4])
def test_a_mean_over_more_modules_is_not_undone(power, depth):
    """The branch takes the factor of depth alone, as with the base's number of modules."""
    plan = planned(make(16, depth, 8, power), make(16, 2, 4, power))
    reference = planned(make(16, depth, 4, power), make(16, 2, 4, power))
    assert {m.value for m in plan.multipliers} == {m.value for m in reference.multipliers}
    assert any("repeats its modules more often" in note for note in plan.notes)
    assert not any("repeats its modules" in note for note in reference.notes)


def test_a_number_that_could_mean_both_is_refused():
    with pytest.raises(NotUnderstood, match="cannot be told apart"):
        planned(make(16, 4, 8, 0.3), make(16, 2, 4, 0.3))


def test_a_declaration_does_not_say_how_they_are_put_together():
    branches = ["1", "2"]
    with pytest.raises(NotUnderstood, match="leave out branches="):
        planned(make(16, 2, 8), make(16, 2, 4), branches=branches)
    assert planned(make(16, 2, 4), make(8, 2, 4), branches=branches).multipliers


def test_a_deeper_branch_is_said():
    def deep(count):
        inner = [nn.Linear(16, 16) for _ in range(count)]

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(inner)

            def forward(self, x):
                y = x
                for layer in self.layers:
                    y = torch.relu(layer(y))
                return x + y

        return nn.Sequential(nn.Linear(8, 16), Block(), nn.Linear(16, 4))

    assert any("layers repeats" in note for note in planned(deep(4), deep(2)).notes)
