"""Plans of schemes that do without a rule: the factor is 1, and what a model does itself stays."""

import math

import pytest
import torch
from torch import nn

import depthmup
from depthmup.planning import factors_of

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Branches that are scaled by the root of the depth already, by the model's own code."""

    def __init__(self, width, depth, own=True):
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.scale = depth**-0.5 if own else 1.0

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + self.scale * block(x).relu()
        return self.last(x)


def planned(scheme, *, own=True, optimizer="adamw"):
    return depthmup.plan(
        Net(64, 8, own),
        base=Net(16, 2, own),
        scheme=scheme,
        optimizer=optimizer,
        example_inputs=X,
    )


def of(plan, name):
    return next(p for p in plan.prescriptions if p.name == name)


def branch(plan):
    values = {site.value for site in plan.multipliers if "branch" in site.where.value}
    folded = {p.folded for p in plan.prescriptions if p.role.last}
    return values | folded - {1.0}


def test_a_models_own_branch_multiplier_stays_where_the_rule_is_left_out():
    """ODE wants 1/r where the model has r^-1/2: r^-1/2 is lacking, r = 4."""
    assert branch(planned("ode")) == {0.5}
    assert not branch(planned("ode-without-branch.multiplier"))
    assert not branch(planned("ode-only-hidden.lr"))
    assert branch(planned("ode", own=False)) == {0.25}
    assert not branch(planned("ode-without-branch.multiplier", own=False))


@pytest.mark.parametrize(
    ("scheme", "hidden", "readout"),
    [
        ("depth-mup", (1 / 8, 1.0), (1 / 4, 0.5)),
        ("depth-mup-without-hidden.lr", (1 / 2, 1.0), (1 / 4, 0.5)),
        ("depth-mup-without-branch.lr", (1 / 4, 1.0), (1 / 4, 0.5)),
        ("depth-mup-without-readout.start", (1 / 8, 1.0), (1 / 4, 1.0)),
        ("depth-mup-without-readout.lr+readout.start", (1 / 8, 1.0), (1.0, 1.0)),
        ("depth-mup-only-hidden.lr", (1 / 4, 1.0), (1.0, 1.0)),
    ],
)
def test_learning_rates_and_starts(scheme, hidden, readout):
    """(lr, start over the model's own) at width ratio 4 and depth ratio 4, by hand."""
    plan = planned(scheme, own=False)
    network = Net(64, 8, own=False)
    before = {n: p.std().item() for n, p in network.named_parameters()}
    plan.initialize(network)
    for name, (lr, start) in (("blocks.0.weight", hidden), ("last.weight", readout)):
        folded = of(plan, name).folded
        assert of(plan, name).lr / folded == pytest.approx(lr)
        own = dict(network.named_parameters())[name].std().item() / before[name]
        assert own / folded == pytest.approx(start, rel=1e-6)
    assert plan.title.startswith("Depth-muP")


def test_a_plan_says_which_rules_it_has_and_does_without():
    plan = planned("depth-mup-without-hidden.lr", own=False)
    assert "without hidden.lr" in plan.title
    assert "hidden.lr" not in factors_of(plan)
    assert "hidden.lr" in factors_of(planned("depth-mup", own=False))
    again = depthmup.Plan.from_dict(plan.to_dict()) if hasattr(depthmup.Plan, "from_dict") else plan
    assert again.scheme == "depth-mup-without-hidden.lr"


def test_the_proof_claims_nothing_that_is_not_predicted():
    plan = planned("depth-mup-without-hidden.lr", own=False)
    assert "Not proven" in plan.proof
    assert math.isfinite(of(plan, "blocks.0.weight").lr)
