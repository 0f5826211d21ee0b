"""A plan of a factory: sizes told apart, and bad factories refused before anything else."""

import pytest
import torch
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood, UnrelatedModels, factory
from depthmup.planning.options import PlanOptions

X = torch.zeros(4, 8)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def make(width, depth):
    blocks = (Block(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))


SIZES = {"base": {"width": 32, "depth": 2}, "target": {"width": 256, "depth": 8}}


def planned(function=make, **options):
    given = {"scheme": "completep", "example_inputs": X, **SIZES} | options
    return depthmup.plan(function, **given)


def test_it_is_the_plan_from_one_model_to_the_other():
    plan = planned()
    torch.manual_seed(0)
    model, base = make(256, 8), make(32, 2)
    between = depthmup.plan(model, base, scheme="completep", example_inputs=X, proof="off")
    assert plan.prescriptions == between.prescriptions
    assert plan.proof.count("Proven to within") == 2  # along width, and along depth
    assert "width x 4" in plan.proof
    assert "depth x 4" in plan.proof
    plan.initialize(model)


def test_the_target_needs_no_memory(monkeypatch):
    monkeypatch.setattr(factory, "LARGEST", 0)
    plan = planned(target={"width": 4096, "depth": 64})
    assert plan["1.up.weight"].shape == (12288, 4096)
    assert plan.own_laws["1.up.weight"].ratio == pytest.approx(128**-0.5)


def test_axes_that_are_left_out_stay():
    assert {s.ratio for s in planned(target={"width": 64}).depths} == {1}


def ignoring(width, depth):
    return make(32, depth)


def flat(width, depth):
    return make(width, 2)


def another(width, depth):
    return make(width, depth) if width == 32 else nn.Linear(8, 4)


def random(width, depth):
    return make(width, depth + int(torch.randint(0, 9, ())))


def from_disk(width, depth):
    with open(f"/no/such/folder/{width}") as file:
        return file


def no_module(width, depth):
    return {"width": width}


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (ignoring, ValueError, r"ignores width: ignoring\(width=256, depth=2\)"),
        (flat, ValueError, r"ignores depth: flat\(width=32, depth=8\)"),
        (another, UnrelatedModels, r"another\(width=256, depth=8\) is not another\(width=32"),
        (random, ValueError, r"random\(width=32, depth=2\) gives another model each time"),
        (from_disk, ValueError, r"from_disk\(width=32, depth=2\) raises FileNotFoundError"),
        (no_module, TypeError, r"no_module\(width=32, depth=2\) to give a torch.nn.Module"),
    ],
)
def test_bad_factories_are_named_with_the_size(function, error, words):
    with pytest.raises(error, match=words):
        planned(function)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": None}, r"base= and target= as sizes"),
        ({"base": {"width": 32, "layers": 2}, "target": {"width": 64}}, "to take layers"),
        ({"target": {"width": 64, "heads": 2}}, "heads as well"),
        ({"target": {"width": 64.5}}, "width=64.5"),
        ({"base": {"width": 0, "depth": 2}}, "width=0"),
        ({"drawn": ({}, {})}, "no drawn="),
        ({"options": PlanOptions(facts=())}, "no facts"),
    ],
)
def test_bad_sizes_are_refused(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        planned(**options)


def test_what_grows_with_both_axes_is_told_apart():
    """The inner size of blocks follows the depth, not the width: as of no one axis alone."""

    class Odd(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 8 * depth), nn.Linear(8 * depth, width)

        def forward(self, x):
            return x + self.down(torch.relu(self.up(self.norm(x))))

    def odd(width, depth):
        blocks = (Odd(width, depth) for _ in range(depth))
        return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))

    try:
        plan = planned(odd, proof="off")
    except NotUnderstood:
        return
    assert plan["1.up.weight"].ratios.fan_out == 4
