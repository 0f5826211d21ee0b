"""The scheme that is taken where none is named follows the depth of blocks, and says so."""

import pytest
import torch
from planning_zoo import (
    InPlaceBlock,
    MLPBlock,
    ParallelBlock,
    PostNormBlock,
    Tower,
    Transformer,
    UnfoldableBlock,
    tokens,
    vectors,
)
from torch import nn

import depthmup


class SideBySide(nn.Module):
    """Two matrices in one branch, neither behind the other."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + (self.one(x) + self.two(x.flip(-1)))


def plan_of(make, x, **options):
    torch.manual_seed(0)
    return depthmup.plan(make(16, 4), base=make(8, 2), example_inputs=x, **options)


@pytest.mark.parametrize(
    ("block", "scheme"),
    [
        (InPlaceBlock, "depth-mup"),
        (UnfoldableBlock, "depth-mup"),
        (SideBySide, "depth-mup"),
        (MLPBlock, "completep"),
        (ParallelBlock, "completep"),
        (PostNormBlock, "completep"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_by_the_matrices_in_series(block, scheme):
    plan = plan_of(lambda width, depth: Tower(block, width, depth), vectors())
    assert plan.scheme == scheme
    assert sum("No scheme was named" in note for note in plan.notes) == 1


def test_transformers_take_alpha_one():
    assert plan_of(Transformer, tokens()).scheme == "completep"


def test_a_name_is_taken_without_a_word():
    plan = plan_of(Transformer, tokens(), scheme="depth-mup")
    assert plan.scheme == "depth-mup"
    assert not any("No scheme" in note for note in plan.notes)
