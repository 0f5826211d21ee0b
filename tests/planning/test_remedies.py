"""What a refusal proposes works when it is followed to the letter."""

import ast
import re

import pytest
import torch
from planning_zoo import vectors
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood
from depthmup.planning.roles import Undeclared


class Stack(nn.Module):
    """Blocks x + f(x W) whose W is computed from a parameter in a way that no role follows from."""

    def __init__(self, width, depth, weight, shape):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 4)
        self.weight = weight
        self.blocks = nn.ParameterList(
            nn.Parameter(torch.randn(shape(width)) / width**0.5) for _ in range(depth)
        )

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + torch.tanh(F.linear(x, self.weight(block)))
        return self.out(x)


def square(n):
    return n, n


class Tokens(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(4, width))
        self.first, self.head = nn.Linear(6, width), nn.Linear(width, 4)

    def forward(self, x):
        return self.head(torch.relu(self.first(x) + self.tokens.mean(0)))


class Unused(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 4))
        self.further = nn.ParameterList(nn.Parameter(torch.randn(width, width)) for _ in range(2))

    def forward(self, x):
        return self.net(x)


MODELS = {
    "a product with its own transpose": lambda n: Stack(n, 2, lambda w: w @ w.T, square),
    "after a softplus": lambda n: Stack(n, 2, lambda w: F.softplus(w) - 0.7, square),
    "a mean of tokens": Tokens,
    "no influence": Unused,
}


@pytest.mark.parametrize("name", MODELS)
def test_what_a_refusal_proposes_is_planned_and_proven(name):
    torch.manual_seed(0)
    model, base = MODELS[name](64), MODELS[name](16)
    options = {"scheme": "completep", "optimizer": "adamw", "example_inputs": vectors()}
    with pytest.raises(Undeclared) as refused:
        depthmup.plan(model, base, **options)
    proposed = re.findall(r"roles=(\{.*?\})", str(refused.value))
    for roles in map(ast.literal_eval, proposed):
        plan = depthmup.plan(model, base, roles=roles, **options)
        assert plan.proof.startswith("Proven")
        kinds = {p.name: str(p.role.kind) for p in plan.prescriptions}
        for pattern, kind in roles.items():
            of = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
            assert {kinds[name] for name in kinds if of.fullmatch(name)} == {kind}
    assert proposed or "refused as well, or contradicts" in str(refused.value)


def test_what_the_models_contradict_is_not_proposed():
    """Entries of order one that are summed over a growing axis: no role starts them right."""

    class Ones(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.scale = nn.Linear(6, width), nn.Parameter(torch.ones(width, width))

        def forward(self, x):
            return (self.inp(x).square() @ (1 + self.scale.exp())).sum(-1, keepdim=True)

    with pytest.raises(NotUnderstood) as refused:
        depthmup.plan(
            Ones(256), Ones(16), scheme="mup", optimizer="adamw", example_inputs=vectors(),
            own_init="fixed",
        )  # fmt: skip
    assert "refused as well, or contradicts" in str(refused.value)
    assert "roles=" not in str(refused.value)


def test_learned_tokens_that_are_averaged_learn_as_vectors():
    plan = depthmup.plan(
        Tokens(64), Tokens(16), roles={"tokens": "vector"},
        scheme="mup", example_inputs=vectors(), own_init="fan_in",
    )  # fmt: skip
    assert (plan["tokens"].lr, plan["tokens"].init) == (1, 1)


def test_a_factory_is_told_the_same():
    with pytest.raises(Undeclared, match=r"roles=\{'tokens': 'input'\}.*'vector'"):
        depthmup.plan(
            lambda width: Tokens(width), {"width": 16}, target={"width": 64},
            scheme="mup", optimizer="adamw", example_inputs=vectors(),
        )  # fmt: skip
