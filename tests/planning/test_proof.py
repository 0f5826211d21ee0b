"""The proof of a plan: what contradicts is refused, what is right is not, the rest is unproven."""

import dataclasses
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import Contradicted, PlanOptions, proof
from depthmup.planning.proof import prove
from depthmup.rules import scheme as scheme_named
from tests.zoo.cases import PLANNED

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), *two(width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def two(width):
    return nn.Linear(width, 2 * width), nn.Linear(2 * width, width)


def make(width, depth=2):
    blocks = (Block(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 4))


def planned(model=None, base=None, **options):
    torch.manual_seed(0)
    given = {"scheme": "completep", "optimizer": "adamw", "example_inputs": X} | options
    return depthmup.plan(model or make(128), base or make(16), **given)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_a_right_plan_is_proven(optimizer):
    plan = planned(optimizer=optimizer)
    assert plan.proof.startswith("Proven to within most of a power, at width x 8")
    assert plan.proof in " ".join(str(plan).split())
    assert depthmup.Plan(**vars(plan)).proof == plan.proof


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (
            {"1.up.weight": "input"},
            "what 1.up gives",
        ),  # a rate that does not shrink with the fan-in
        ({"*.down.weight": "input"}, "what [12]"),
        ({"4.weight": "input"}, "what 4 gives"),
    ],
)
def test_a_role_that_is_wrong_is_found_without_asking_for_roles(wrong, where, seed):
    torch.manual_seed(seed)
    with pytest.raises(Contradicted, match=r"width\^\+[0-9.]+ at width x 8.*6 of 6") as refused:
        depthmup.plan(
            make(128), make(16), scheme="completep", example_inputs=X,
            roles=wrong,
        )  # fmt: skip
    assert re.search(where, str(refused.value))
    assert "proof='off'" in str(refused.value)


def off_along_depth(plan, lr=0.0, multiplier=0.0):
    """The plan with rates, or with multipliers of branches, that are wrong by powers of r."""

    def wrong(p):
        if not p.role.in_branch:
            return p
        k = p.ratios.depth**multiplier if p.role.last else 1.0
        return dataclasses.replace(p, init=p.init * k, lr=p.lr * k * p.ratios.depth**lr)

    return dataclasses.replace(plan, prescriptions=tuple(map(wrong, plan.prescriptions)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("off", [{"lr": 1}, {"lr": -1}, {"multiplier": 1}, {"multiplier": -1}])
def test_a_wrong_power_of_depth_is_found(off, seed):
    """What embeddings and readouts learn hides it, unless the repeated layers train alone."""
    torch.manual_seed(seed)
    model, base = make(16, 8), make(16, 2)
    right = planned(model, base, proof="off")
    given = scheme_named("completep"), model, base
    options = {"example_inputs": X, "base_inputs": None}
    assert "where the repeated layers alone train" in prove(right, *given, **options)
    power = r"\+" if sum(off.values()) > 0 else "-"
    with pytest.raises(Contradicted, match=rf"depth\^{power}"):
        prove(off_along_depth(right, **off), *given, **options)


def test_what_the_message_offers_works():
    wrong = {"1.up.weight": "input"}
    assert planned(roles=wrong, proof="off").proof == ""


def test_a_factor_at_the_wrong_place_is_found(monkeypatch):
    """The factor of a product that is multiplied twice, as by a hook that both operands pass."""

    class Pairs(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.one = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width))

        def forward(self, a, b):
            return self.one(a) @ self.one(b).t()

    from depthmup.planning import product_sites

    pair = {"model": Pairs(256), "base": Pairs(16), "example_inputs": (X, X.flip(0))}
    assert planned(**pair).proof.startswith("Proven")
    right = product_sites.Multiplier
    monkeypatch.setattr(product_sites, "Multiplier", lambda **given: right(**{**given, "times": 1}))
    with pytest.raises(Contradicted, match=r"width\^-[01]\.\d+ .* where width\^0 is expected"):
        planned(**pair)


def test_what_cannot_be_seen_is_not_called_proven():
    with torch.device("meta"):
        model, base = make(128), make(16)
    assert "no values" in planned(model, base, own_init="fan_in").proof
    assert "nothing grows" in planned(make(16), make(16)).proof
    assert "predicts no power" in planned(scheme="sp").proof
    assert "predicts no power" in planned(make(16, 6), make(16, 2), scheme="mup").proof
    assert planned(options=PlanOptions(multiplier=2.0)).proof == ""


def test_too_large_models_are_not_run(monkeypatch):
    monkeypatch.setattr(proof, "LARGEST_WORK", 1000)
    monkeypatch.setattr(proof, "look", None)  # whoever runs a model raises an error
    assert "too large" in planned().proof


def test_a_model_that_fails_when_it_runs_is_planned_and_not_proven(monkeypatch):
    def broken(*_):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(proof, "look", broken)
    assert "could not be run (RuntimeError: no such kernel)" in planned().proof


def test_a_fault_of_the_proof_is_not_called_the_models(monkeypatch):
    monkeypatch.setattr(proof, "_carrying", None)
    assert "the proof itself failed (TypeError: " in planned().proof


def test_a_declared_start_that_the_model_does_not_have_is_the_persons_to_mend():
    said = planned(own_init={"1.up.weight": "fixed"}).proof
    assert said.startswith("Not proven: own_init says that 1.up.weight starts 1 times as large")
    assert "report it" not in said


def test_a_loss_of_the_persons_own_is_what_is_trained():
    """Three steps of both models; what is no number, or trains nothing, is said."""
    seen = []

    def loss(outputs):
        seen.append(outputs.shape)
        return F.cross_entropy(outputs, torch.zeros(len(X), dtype=torch.long))

    assert planned(loss=loss).proof.startswith("Proven to within")
    assert seen == [(16, 4)] * 6
    said = planned(loss=lambda outputs: outputs).proof
    assert "could not be run (RuntimeError: grad can be implicitly created only" in said
    assert planned(loss=lambda outputs: 1.0).proof.startswith("Proven in part")


def test_the_two_models_and_chance_stay_as_they_were():
    torch.manual_seed(0)
    model, base = make(128), make(16)
    before = [v.clone() for m in (model, base) for v in m.state_dict().values()]
    state = torch.get_rng_state()
    depthmup.plan(model, base, scheme="completep", example_inputs=X)
    after = [v for m in (model, base) for v in m.state_dict().values()]
    assert all(map(torch.equal, before, after))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for m in (model, base) for p in m.parameters())


def test_unknown_values_are_refused():
    with pytest.raises(ValueError, match="'auto' or 'off'; got 'on'"):
        planned(proof="on")


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("case", [c for c in PLANNED if not c.package], ids=lambda c: c.name)
def test_no_false_alarm(case, optimizer):
    """At most 1 in 200 right plans; all of these are right, at three seeds."""
    plan = case.plan("completep", optimizer, proof="auto")
    for seed in range(3):
        torch.manual_seed(seed)
        model, base = case.make(*case.target), case.make(*case.base)
        said = prove(
            plan, scheme_named("completep"), model, base,
            example_inputs=case.inputs, base_inputs=None,
        )  # fmt: skip
        assert "itself failed" not in said
