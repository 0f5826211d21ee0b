"""studies.practice: stacks train as PyTorch's own modules and optimizers do, for every recipe."""

from functools import cache

import pytest
import torch
from torch.nn import functional as F

from studies.practice.entries import ENTRIES
from studies.practice.network import Network
from studies.practice.recipe import Recipe
from studies.practice.table import Found, counts, repeats, table
from studies.practice.tasks import TASKS
from studies.practice.training import BATCH, plan_of, scale_at, trained

SIZE, STEPS = {"width": 80, "depth": 6}, 8
RATES = {"adam": (2.0**-7, 2.0**-5), "sgd": (2.0**-5, 2.0**-3), "muon": (2.0**-6, 2.0**-5)}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("studies.practice.training.STEPS", STEPS)


def alone(recipe, optimizer, rate, seed):
    """One copy, by the plan's own groups and torch's optimizers."""
    torch.manual_seed(seed)
    network = Network(**SIZE, recipe=recipe)
    plan = plan_of(recipe, SIZE, optimizer)
    plan.initialize(network)
    if optimizer == "sgd":
        groups = plan.param_groups(network, lr=rate, weight_decay=recipe.decay)
        optimizers = [torch.optim.SGD(groups, lr=rate, momentum=0.9)]
    elif optimizer == "adam":
        groups = plan.param_groups(network, lr=rate, weight_decay=recipe.decay, eps=recipe.eps)
        optimizers = [torch.optim.AdamW(groups, lr=rate, betas=recipe.betas)]
    else:
        groups = plan.muon_groups(network, lr=rate, adamw_lr=rate / 4, eps=recipe.eps)
        rest = torch.optim.AdamW(groups.adamw, lr=rate / 4, betas=recipe.betas)
        optimizers = [torch.optim.Muon(groups.muon, lr=rate), rest]
    planned = [[group["lr"] for group in one.param_groups] for one in optimizers]
    generator, losses = torch.Generator().manual_seed(seed), []
    for step in range(STEPS):
        inputs, targets = TASKS[recipe.task].batch(generator, BATCH)
        loss = F.cross_entropy(network(inputs), targets)
        network.zero_grad()
        loss.backward()
        if recipe.planned_clip:
            plan.clip_grad_norm_(network, recipe.planned_clip)
        if recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.clip_norm)
        factor = scale_at(recipe, step / STEPS, STEPS)
        for one, rates in zip(optimizers, planned, strict=True):
            for group, lr in zip(one.param_groups, rates, strict=True):
                group["lr"] = lr * factor
            one.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("optimizer", "recipe"),
    [
        ("adam", Recipe()),
        ("adam", Recipe(decay=1.0, norm="rms", activation="gelu")),
        ("sgd", Recipe(planned_clip=0.1)),
        ("sgd", Recipe(clip_norm=0.1, post=True)),
        ("muon", Recipe()),
        ("adam", Recipe(task="text")),
    ],
)
def test_a_copy_of_a_stack_trains_as_it_would_alone(optimizer, recipe):
    rates = RATES[optimizer]
    stack = trained(recipe, SIZE, optimizer, rates, range(2, 4))
    for i, rate in enumerate(rates):
        for j, seed in enumerate((2, 3)):
            own = torch.tensor(alone(recipe, optimizer, rate, seed))
            # Muon's products are in bfloat16 in torch: a part in 250, a few times over.
            close = 2e-2 if optimizer == "muon" else 2e-4
            torch.testing.assert_close(stack[i, j], own, rtol=close, atol=close)


@cache
def of_the_whole_plan(optimizer):
    return trained(ENTRIES[0].recipe, SIZE, optimizer, RATES[optimizer][:1], range(1))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_trains_otherwise_than_the_whole_plan(entry):
    for optimizer in ("adam", "sgd"):
        if entry.only and optimizer not in entry.only:
            continue
        losses = trained(entry.recipe, SIZE, optimizer, RATES[optimizer][:1], range(1))
        assert losses.isfinite().all()
        whole = of_the_whole_plan(optimizer)
        if entry is not ENTRIES[0] and losses.shape == whole.shape:
            assert entry.recipe.changes
            idle = {("epsilon 1e-3, the plan's", "sgd"), ("clipping by norm 1", "adam")}
            if (entry.name, optimizer) not in idle:
                assert not torch.equal(losses, whole)


def test_names_and_recipes_are_told_apart_and_cures_have_a_break():
    names = [entry.name for entry in ENTRIES]
    recipes = [entry.recipe for entry in ENTRIES]
    assert len(set(names)) == len(names) == len(set(recipes)) >= 41
    assert all(entry.why for entry in ENTRIES)
    assert {entry.cures for entry in ENTRIES if entry.cures} <= {*names}


def test_verdicts_follow_changes_and_their_errors():
    from depthmup.records import Estimate

    def found(value, half, whole=0.0):
        drift = Estimate(value=value, low=value - half, high=value + half)
        base = Estimate(value=whole, low=whole - half, high=whole + half)
        return Found(entry=ENTRIES[1], optimizer="adam", axis="depth", drift=drift, whole=base)

    cases = {
        "breaks": (0.4, 0.1, 0.0),
        "moves": (0.14, 0.05, 0.0),
        "better": (0.0, 0.05, -0.3),
        "harmless": (0.05, 0.05, 0.0),
        "open": (0.1, 0.2, 0.0),
    }
    assert {kind: found(*case).verdict for kind, case in cases.items()} == {k: k for k in cases}
    assert "**+0.40**" in table([found(*cases["breaks"])], ["adam"])
    assert "1 breaks" in counts([found(*cases["breaks"])])


def test_repeats_agree_within_the_errors_of_both():
    from depthmup.records import Estimate

    def found(value, axis):
        drift = Estimate(value=value, low=value - 0.1, high=value + 0.1)
        return Found(entry=ENTRIES[1], optimizer="adam", axis=axis, drift=drift, whole=drift)

    first = [found(0.0, "width"), found(0.0, "depth")]
    again = [found(0.14, "width"), found(0.15, "depth")]  # root 2 times 0.1 is 0.141
    assert repeats(first, again) == (
        "Of 2 drifts that were measured again with other seeds 1 agree."
    )


def test_adamw_decays_where_an_entry_says_nothing_of_decay():
    of = {entry.name: entry.under("adamw", "text") for entry in ENTRIES}
    assert all(recipe.task == "text" for recipe in of.values())
    assert of["the whole plan"].decay == of["decay 1, one for all"].decay == 1.0
    assert of["decay in the gradient, 1e-3"].decay == 0.0
    assert ENTRIES[0].under("adam", "digits") == ENTRIES[0].recipe
