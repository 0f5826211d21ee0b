"""Matrices held as flat vectors, as equivariant layers and hypernetworks do."""

import pytest
import torch
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


class Linear(nn.Module):
    """Standard normal entries over the root of the fan-in."""

    def __init__(self, fan_in, fan_out, *, flat):
        super().__init__()
        self.fans = fan_in, fan_out
        weight = torch.randn(fan_in, fan_out)
        self.weight = nn.Parameter(weight.flatten() if flat else weight)

    def forward(self, x):
        return x @ self.weight.view(self.fans) / self.fans[0] ** 0.5


class Net(nn.Module):
    def __init__(self, width, depth, *, flat):
        super().__init__()
        self.inp, self.out = Linear(8, width, flat=flat), Linear(width, 4, flat=flat)
        self.hidden = nn.ModuleList(Linear(width, width, flat=flat) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for linear in self.hidden:
            x = x + linear(torch.tanh(x))
        return self.out(x)


def planned(optimizer, *, flat):
    torch.manual_seed(0)
    return depthmup.plan(
        Net(64, 6, flat=flat), Net(16, 2, flat=flat),
        scheme="completep", optimizer=optimizer, example_inputs=X,
    )  # fmt: skip


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_flat_matrix_has_the_factors_of_the_matrix(optimizer):
    flat, plain = (planned(optimizer, flat=flat) for flat in (True, False))
    factors = [
        {p.name: (p.role, p.ratios, p.init, p.lr, p.epsilon, p.decay) for p in plan.prescriptions}
        for plan in (flat, plain)
    ]
    assert factors[0] == factors[1]
    assert flat.proof.startswith("Proven")


class Two(nn.Module):
    """A matrix on the stream and what reads it, in one flat vector."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.randn(width * width + 4 * width) / width**0.5)
        self.inp = nn.Linear(8, width)

    def forward(self, x):
        n = self.width
        hidden, out = self.weight.split([n * n, 4 * n])
        return torch.tanh(self.inp(x)) @ hidden.view(n, n) @ out.view(n, 4)


def test_matrices_that_grow_differently_in_one_vector_are_refused():
    with pytest.raises(NotUnderstood, match=r"weight .* several matrices.*own"):
        depthmup.plan(Two(64), Two(16), scheme="mup", optimizer="adamw", example_inputs=X)


class Stacked(nn.Module):
    """Layers of flat matrices in one parameter; the first is given apart, as a row of its own."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.inp, self.out = nn.Linear(8, width), nn.Linear(width, 4)
        self.weight = nn.Parameter(torch.randn(2, width * width) / width**0.5)

    def forward(self, x):
        x = self.inp(x)
        for row in self.weight:
            x = x + torch.tanh(x) @ row.view(self.width, self.width)
        return self.out(x)


@pytest.mark.parametrize("roles", [{}, {"weight": "hidden"}])
def test_a_declared_flat_matrix_grows_as_the_matrix_does(roles):
    plan = depthmup.plan(
        Stacked(64), Stacked(16), roles=roles, scheme="mup", optimizer="adamw", example_inputs=X
    )
    assert (plan["weight"].ratios.fan_in, plan["weight"].ratios.fan_out) == (4, 4)
    assert (plan["weight"].lr, plan["weight"].init) == (0.25, 0.5)
