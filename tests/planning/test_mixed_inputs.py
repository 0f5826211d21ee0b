"""Matrices that read coordinates of which some grow with the width and others do not."""

import pytest
import torch
from planning_zoo import vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood

IMAGES = torch.zeros(2, 6, 8, 8)


class ReadoutOfBoth(nn.Module):
    """The head sees the features and what was put in."""

    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width + 6, 4)

    def forward(self, x):
        return self.head(torch.cat([F.relu(self.first(x)), x], dim=-1))


class HiddenOfBoth(nn.Module):
    """NeRF's skip, behind a norm and a nonlinearity."""

    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
        self.norm, self.second = nn.LayerNorm(width + 6), nn.Linear(width + 6, width)

    def forward(self, x):
        y = torch.cat([F.relu(self.first(x)), x], dim=-1)
        return self.head(F.relu(self.second(F.silu(self.norm(y)))))


class Convolved(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Conv2d(6, width, 3, padding=1), nn.Linear(width, 4)
        self.second = nn.Conv2d(width + 6, width, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.second(torch.cat([self.first(x), x], dim=1)))
        return self.head(y.mean((2, 3)))


class Apart(nn.Module):
    """``ReadoutOfBoth`` with a matrix for each part: the same function."""

    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
        self.skip = nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return self.head(F.relu(self.first(x))) + self.skip(x)


class OfOneGrowth(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(2 * width, 4)

    def forward(self, x):
        y = self.first(x)
        return self.head(torch.cat([F.relu(y), F.relu(-y)], dim=-1))


class AlongTokens(nn.Module):
    """A class token beside the others: coordinates stay what they are."""

    def __init__(self, width):
        super().__init__()
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)
        self.token = nn.Parameter(torch.randn(1, width))

    def forward(self, x):
        return self.head(torch.cat([self.token, self.first(x)], dim=0)).mean(0)


def planned(make, inputs=None, **options):
    inputs = vectors() if inputs is None else inputs
    return depthmup.plan(
        make(64), base=make(16), example_inputs=inputs, scheme="depth-mup", **options
    )


@pytest.mark.parametrize(
    ("make", "name", "inputs"),
    [
        (ReadoutOfBoth, "head.weight", None),
        (HiddenOfBoth, "second.weight", None),
        (Convolved, "second.weight", IMAGES),
    ],
)
def test_one_rate_cannot_serve_both(make, name, inputs):
    with pytest.raises(NotUnderstood, match=f"{name} reads .* 64 .4-fold., 6 .1-fold."):
        planned(make, inputs)
    assert planned(make, inputs, roles={name: "hidden"})[name].ratios.fan_in != 4


def test_a_matrix_for_each_part_has_its_own_rate():
    """As the message advises."""
    plan = planned(Apart)
    assert plan["head.weight"].lr == approx(0.25)
    assert plan["skip.weight"].lr == approx(1.0)


@pytest.mark.parametrize("make", [OfOneGrowth, AlongTokens])
def test_parts_that_grow_alike_are_planned(make):
    assert planned(make)["head.weight"].lr == approx(0.25)
