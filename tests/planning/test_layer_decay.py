"""Rates that fall from layer to layer are told, with what keeps their profile at every depth."""

import warnings

import pytest
import torch
from planning_zoo import ResidualMLP, vectors

import depthmup
from depthmup.planning.layer_decay import layer_decays


def rescaled(factor, depth=12, base_depth=4):
    """What rescaling an optimizer says whose rates fall by a factor a block."""
    model, base = ResidualMLP(16, depth), ResidualMLP(8, base_depth)
    plan = depthmup.plan(
        model, base, scheme="depth-mup", optimizer="adamw", example_inputs=vectors(), proof="off"
    )
    plan.initialize(model)
    groups = []
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        above = depth - 1 - int(parts[1]) if parts[1].isdigit() else 0
        groups.append({"params": [parameter], "lr": 1e-2 * factor**above})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plan.rescale(model, optimizer)
    return [str(warning.message) for warning in told], optimizer


def test_a_factor_a_block_is_told_once_with_the_one_that_keeps_the_profile():
    (said,), optimizer = rescaled(0.8)
    assert "by a factor of 0.8 from each of 12 layers" in said
    # Three times as deep: the cube root, so that 12 layers fall by as much as 4 of the base's.
    assert f"A factor of {0.8 ** (1 / 3):.4g} here is 0.8 at the base" in said
    assert len(optimizer.param_groups) >= 24


@pytest.mark.parametrize("case", [{"factor": 1.0}, {"factor": 0.8, "base_depth": 12}])
def test_nothing_is_said_of_one_rate_or_of_one_depth(case):
    assert rescaled(**case)[0] == []


def test_rates_that_fall_otherwise_have_no_factor():
    names = [f"blocks.{i}.weight" for i in range(6)]
    assert layer_decays(dict(zip(names, [1, 2, 4, 8, 16, 32], strict=True))) == {
        "blocks.*.weight": (0.5, 6)
    }
    for rates in ([1, 1, 1, 2, 2, 2], [32, 16, 8, 4, 2, 1], [1, 2, 4, 8, 16, 0.5]):
        assert layer_decays(dict(zip(names, rates, strict=True))) == {}
