"""At the base shape a plan changes nothing, to the last bit."""

import pytest
import torch
from planning_zoo import ResidualMLP, Transformer, batches, tokens, traced, train, vectors

import depthmup
from depthmup.rules import CATALOGUE

SCHEMES = [*CATALOGUE, "3/4,1/4"]
# name -> (the plan's optimizer, what builds it, its settings)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "adamax": (torch.optim.Adamax, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adagrad": (torch.optim.Adagrad, {}),
}


def pair(make):
    """Two equal models, and a third of the same shape as their base."""
    torch.manual_seed(0)
    models = [make(), make()]
    models[1].load_state_dict(models[0].state_dict())
    return *models, make()


def assert_nothing_changes(plan):
    for p in plan.prescriptions:
        assert (p.init, p.lr, p.epsilon, p.decay, p.folded) == (1, 1, 1, 1, 1)
    assert plan.multipliers == ()


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: getattr(s, "name", s))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_changes(scheme, name):
    model, _, base = pair(lambda: ResidualMLP(16, 2))
    plan = depthmup.plan(
        model, base=base, scheme=scheme, optimizer=name, example_inputs=vectors(),
        options=traced(ResidualMLP, (16, 2), (16, 2), vectors()),
    )  # fmt: skip
    assert_nothing_changes(plan)


# Groups of a plan in which nothing changes are those of every other such plan.
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_bit_identical(name):
    planned, plain, base = pair(lambda: ResidualMLP(16, 2))
    kind, settings = OPTIMIZERS[name]
    plan = depthmup.plan(planned, base=base, optimizer=name, example_inputs=vectors())
    plan.initialize(planned)
    data = list(batches(vectors(), (4, 2), 5, dtype=torch.float32))
    ours = kind(plan.param_groups(planned, lr=0.01, **settings))
    theirs = kind(plain.parameters(), lr=0.01, **settings)
    assert train(planned, [ours], data) == train(plain, [theirs], data)
    for a, b in zip(planned.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: getattr(s, "name", s))
def test_muon_is_bit_identical(scheme):
    planned, plain, base = pair(lambda: Transformer(16, 2))
    plan = depthmup.plan(
        planned, base=base, scheme=scheme, optimizer="muon", example_inputs=tokens(),
        options=traced(Transformer, (16, 2), (16, 2), tokens()),
    )  # fmt: skip
    assert_nothing_changes(plan)
    plan.initialize(planned)
    groups = plan.muon_groups(planned, lr=0.02, adamw_lr=0.003, weight_decay=0.1)
    hidden = [p for p in plain.blocks.parameters() if p.dim() == 2]
    rest = [p for p in plain.parameters() if not any(p is h for h in hidden)]
    data = list(batches(tokens(), (2, 8, 32), 5, dtype=torch.float32))
    ours = [torch.optim.Muon(groups.muon), torch.optim.AdamW(groups.adamw)]
    theirs = [
        torch.optim.Muon(hidden, lr=0.02, weight_decay=0.1),
        torch.optim.AdamW(rest, lr=0.003, weight_decay=0.1),
    ]
    assert train(planned, ours, data) == train(plain, theirs, data)
    for a, b in zip(planned.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, b)


def test_away_from_the_base_something_changes():
    """What the tests above compare does depend on the plan."""
    torch.manual_seed(0)
    plan = depthmup.plan(
        ResidualMLP(32, 4), base=ResidualMLP(16, 2), example_inputs=vectors(), own_init="fan_in"
    )
    with pytest.raises(AssertionError):
        assert_nothing_changes(plan)
