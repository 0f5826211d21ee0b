"""A plan of the plain model on a model with adapters, and on a part of a model."""

import sys

import pytest
import torch
from planning_zoo import ResidualMLP, vectors
from torch import nn

import depthmup
from depthmup.planning import PlanMismatch


def planned():
    torch.manual_seed(0)
    model = ResidualMLP(32, 4)
    plan = depthmup.plan(
        model, base=ResidualMLP(16, 2), scheme="completep", example_inputs=vectors()
    )
    plan.initialize(model)
    return model, plan


class Adapted(nn.Module):
    """As PEFT's layers are built, so that its naming can be tested without it."""

    __module__ = "peft.tuners.layer"

    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer
        self.lora_A = nn.Linear(layer.in_features, 2, bias=False)

    def forward(self, x):
        return self.base_layer(x)


def wrapped(model):
    for block in model.blocks:
        block.up = Adapted(block.up)
    return nn.ModuleDict({"base_model": nn.ModuleDict({"model": model})})


def test_a_plan_knows_parameters_by_their_plain_names():
    model, plan = planned()
    adapted = wrapped(model)
    optimizer = torch.optim.AdamW(adapted.parameters(), lr=1e-2)
    with pytest.raises(PlanMismatch, match="does not have"):
        plan.rescale(adapted, optimizer)
    plan.rescale(adapted, optimizer, strict=False)
    plan.verify(adapted, optimizer, strict=False, initialized_by_plan=False)
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    for block, name in zip(model.blocks, range(4), strict=True):
        assert rates[id(block.up.base_layer.weight)] == 1e-2 * plan[f"blocks.{name}.up.weight"].lr
        assert rates[id(block.up.lora_A.weight)] == 1e-2
    assert "peft" not in sys.modules


def gradients(model):
    model(vectors()).square().sum().backward()
    return [p for p in model.parameters() if p.grad is not None]


def test_the_norm_of_a_part_counts_the_rest_as_it_is():
    model, plan = planned()
    gradients(model)
    whole = plan.clip_grad_norm_(model, 1e9)
    adapted = wrapped(model)
    assert plan.clip_grad_norm_(adapted, 1e9, strict=False) == pytest.approx(whole.item())
    adapter = model.blocks[0].up.lora_A.weight
    adapter.grad = torch.ones_like(adapter)
    expected = (whole**2 + adapter.numel()) ** 0.5
    assert plan.clip_grad_norm_(adapted, 1e9, strict=False) == pytest.approx(expected.item())
    plan.clip_grad_norm_(adapted, expected.item() / 2, strict=False)
    assert adapter.grad.flatten()[0].item() == pytest.approx(0.5, rel=1e-5)
    with pytest.raises(PlanMismatch):
        plan.clip_grad_norm_(adapted, 1.0)
