"""``Plan.watch`` names raw clipping where it moves the best rate, and nothing else."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning.clipped import of_entries, of_norm
from depthmup.rules import DEPTH_MUP


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(self.norm(x).relu())


def network(width, depth):
    blocks = (Block(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))


def optimizers_for(plan, model, kind):
    if kind == "adamw":
        return [torch.optim.AdamW(plan.param_groups(model, lr=1e-2), lr=1e-2)]
    groups = plan.param_groups(model, lr=1e-2)
    halves = (groups[:1], groups[1:]) if kind == "two of sgd" else (groups,)
    return [torch.optim.SGD(half, lr=1e-2, momentum=0.9) for half in halves]


def clipped(how, plan, model):
    if how == "norm":
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    elif how == "entries":
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)
    elif how == "the plan's norm":
        plan.clip_grad_norm_(model, 0.1)
    elif how == "the plan's entries":
        plan.clip_grad_value_(model, 1e-3)


def told(
    kind="sgd", how="", *, size=(64, 8), one_batch=False, steps=12, rate=1.0, scheme="depth-mup"
):
    """What a watch warns of in a loop."""
    torch.manual_seed(0)
    model, base = network(*size), network(32, 4)
    first = torch.randn(16, 8)
    plan = depthmup.plan(
        model,
        base,
        scheme=scheme,
        optimizer=kind.split()[-1],
        example_inputs=first,
        proof="off",
    )
    plan.initialize(model)
    optimizers = optimizers_for(plan, model, kind)
    plan.watch(model, optimizers)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda _: rate) for o in optimizers]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            x = first if one_batch else torch.randn(16, 8)
            F.mse_loss(model(x), 5 * x[:, :4].sin()).backward()
            clipped(how, plan, model)
            for each in (*optimizers, *schedules):
                each.step()
            model.zero_grad()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("kind", ["sgd", "two of sgd"])
@pytest.mark.parametrize(
    ("how", "sentence"), [("norm", of_norm(0.1)), ("entries", of_entries(1e-3))]
)
def test_raw_clipping_under_sgd_is_told_once(kind, how, sentence):
    assert told(kind, how) == [sentence]


OWN = replace(DEPTH_MUP, name="my own")
"""As a person writes one."""


def test_a_scheme_of_ones_own_is_watched_too():
    assert told("sgd", "norm", scheme=OWN) == [of_norm(0.1)]


def test_entries_are_not_clipped_by_sizes_that_nothing_tells():
    with pytest.raises(ValueError, match=r"named scheme.*got 'my own'.*clip_grad_norm_"):
        told("sgd", "the plan's entries", scheme=OWN)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("sgd", ""),
        ("two of sgd", ""),
        ("sgd", "the plan's norm"),
        ("sgd", "the plan's entries"),
        ("adamw", "norm"),
        ("adamw", "entries"),
    ],
)
def test_what_is_harmless_is_not_told(kind, how):
    assert told(kind, how) == []


@pytest.mark.parametrize("how", ["norm", "entries"])
def test_at_the_base_every_threshold_is_the_plans(how):
    assert told("sgd", how, size=(32, 4)) == []


def test_one_batch_at_rates_near_zero_is_not_taken_for_clipping():
    assert told("sgd", one_batch=True, rate=1e-9) == []


def test_clipping_that_begins_late_is_told():
    # Before steps 3, 10 and 100, where one batch has moved on.
    assert told("sgd", "norm", one_batch=True, steps=101) == [of_norm(0.1)]
