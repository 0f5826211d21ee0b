"""Sums of two projections: the shortcut of a residual block, and two roads from what is put in."""

import pytest
import torch
from torch import nn

from depthmup.planning import find_branches, find_uses, trace


class WideAndDeep(nn.Module):
    """One matrix, and a network of two beside it, from one tensor to another shape."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.wide = nn.Linear(inputs, outputs)
        self.deep = nn.Sequential(
            nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs)
        )

    def forward(self, x):
        return self.wide(x) + self.deep(x)


def branches(model, inputs):
    graph = trace(model, inputs)
    return find_branches(graph, find_uses(graph)).branches


def test_two_roads_from_the_input_are_no_residual_branch():
    """What is put in is no stream yet: the sum is a first layer of two parts."""
    assert branches(WideAndDeep(6, 8), torch.zeros(2, 6)) == ()


@pytest.mark.parametrize(
    ("first", "inputs"),
    [
        pytest.param(nn.Linear(3, 6), torch.zeros(2, 3), id="behind a matrix"),
        pytest.param(nn.Embedding(5, 6), torch.zeros(2, 4, dtype=torch.long), id="behind a lookup"),
    ],
)
def test_behind_the_first_layer_the_same_sum_is_a_projection_shortcut(first, inputs):
    (branch,) = branches(nn.Sequential(first, WideAndDeep(6, 8)), inputs)
    assert branch.label == "1.deep"


class Dueling(nn.Module):
    """A value beside advantages, less their mean; the value has one more matrix than these."""

    def __init__(self, inputs, actions):
        super().__init__()
        self.advantages = nn.Linear(inputs, actions)
        self.value = nn.Sequential(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, 1))

    def forward(self, x):
        advantages = self.advantages(x)
        return self.value(x) + advantages - advantages.mean(-1, keepdim=True)


def test_one_number_beside_all_coordinates_is_no_branch():
    assert branches(nn.Sequential(nn.Linear(3, 6), Dueling(6, 4)), torch.zeros(2, 3)) == ()
