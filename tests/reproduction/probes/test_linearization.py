"""Distance from linearization: known for polynomials, and with its exponent in depth."""

import numpy as np
import pytest
import torch
from pytest import approx
from torch import nn
from torch.nn import functional

from depthmup.data import digits
from depthmup.diagnostics import local_slopes
from depthmup.models import ResidualMLP
from depthmup.planning import plan
from reproduction.probes.linearization import branch_linearizations, linearization_distance
from studies.faults import Attention

DATA = digits(label_noise=0.0)


class Product(nn.Module):
    """a * b * x: bilinear, so the distance is known."""

    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(a)), nn.Parameter(torch.tensor(b))

    def forward(self, x):
        return self.a * self.b * x


def test_a_bilinear_branch_is_off_by_its_second_order():
    """(1+s)(1+t) - 1 = s + t + st: the distance is st / (s + t + st)."""
    branch = Product(1.2, 1.5)
    initial = {"a": torch.tensor(1.0), "b": torch.tensor(1.0)}
    result = linearization_distance(branch, (torch.ones(3),), initial)
    assert result == approx(0.1 / 0.8, rel=1e-5)


def test_one_matrix_without_nonlinearity_is_linear():
    branch = nn.Linear(4, 4)
    initial = {name: torch.zeros_like(p) for name, p in branch.named_parameters()}
    assert linearization_distance(branch, (torch.randn(2, 4),), initial) < 1e-6


def test_attention_agrees_with_finite_differences():
    torch.manual_seed(0)
    branch, x = Attention(16, 4).double(), torch.randn(2, 5, 16, dtype=torch.float64)
    initial = {name: p.detach().clone() for name, p in branch.named_parameters()}
    step = {name: 0.1 * torch.randn_like(p) for name, p in initial.items()}

    def at(t):
        values = {name: initial[name] + t * step[name] for name in initial}
        return torch.func.functional_call(branch, values, (x,)).detach()

    linear = (at(1e-4) - at(-1e-4)) / 2e-4
    change = at(1.0) - at(0.0)
    expected = ((change - linear).norm() / change.norm()).item()
    with torch.no_grad():
        for name, p in branch.named_parameters():
            p.add_(step[name])
    assert linearization_distance(branch, (x,), initial) == approx(expected, rel=1e-5)


def residual_mlp_branch(block_depth, phi):
    return ResidualMLP(
        inputs=2, width=16, depth=1, outputs=2, block_depth=block_depth, activation_name=phi
    ).branches[0]


@pytest.mark.parametrize(
    ("branch", "exponent"),
    [
        (residual_mlp_branch(1, "gelu"), 1.0),
        (residual_mlp_branch(2, "gelu"), 1.0),
        (residual_mlp_branch(1, "relu"), 0.5),  # flips a fraction s of the units, each off by s
        (residual_mlp_branch(2, "relu"), 0.5),
        (Attention(16, 4), 1.0),
    ],
    ids=["1 matrix", "2 matrices", "1 matrix, relu", "2 matrices, relu", "attention"],
)
def test_the_distance_grows_as_the_update_to_the_power_of_theory(branch, exponent):
    """The second order of a smooth branch, s^2, over its first, s; with kinks s^(3/2) over s."""
    branch = branch.double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(512, 5, 16, generator=generator, dtype=torch.float64)
    start = {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64) / p.shape[-1] ** 0.5
        for name, p in branch.named_parameters()
    }
    step = {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64) / p.shape[-1] ** 0.5
        for name, p in branch.named_parameters()
    }
    sizes, result = (0.01, 0.02, 0.04, 0.08), []
    for size in sizes:
        with torch.no_grad():
            for name, p in branch.named_parameters():
                p.copy_(start[name] + size * step[name])
        result.append(linearization_distance(branch, (x,), start))
    # Smooth branches: corrections of relative order s. Kinks: of 40960 units s / pi flip, 130 or
    # more, so distances are known to 5% or so, and slopes over 8-fold s to 0.03.
    assert np.mean(local_slopes(sizes, result)) == approx(exponent, abs=0.1)


def test_an_unchanged_branch_has_no_distance():
    branch = nn.Linear(2, 2)
    initial = {name: p.detach().clone() for name, p in branch.named_parameters()}
    assert np.isnan(linearization_distance(branch, (torch.ones(1, 2),), initial))


def test_other_initial_values_are_refused():
    with pytest.raises(ValueError, match="Expected the initial values"):
        linearization_distance(nn.Linear(2, 2), (torch.ones(1, 2),), {})
    with pytest.raises(ValueError, match="No module matches"):
        branch_linearizations(nn.Linear(2, 2), torch.ones(1, 2), "layers.*", {})


def network(depth, phi, seed):
    torch.manual_seed(seed)
    model = ResidualMLP(
        inputs=64, width=64, depth=depth, outputs=10, block_depth=2, activation_name=phi
    )
    with torch.no_grad():
        for p in model.branches.parameters():
            p.normal_(std=1 / 8)
        model.input.weight.normal_(std=1 / 8)
        model.readout.weight.normal_(std=1 / 64)
    return model


def distance(scheme, depth, phi, seed):
    model = network(depth, phi, seed)
    made = plan(
        model, base=network(8, phi, seed), scheme=scheme, optimizer="adamw",
        example_inputs=torch.zeros(2, 64), own_init="fixed",
    )  # fmt: skip
    made.initialize(model)
    initial = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(made.param_groups(model, lr=1e-3))
    x, y = DATA.inputs[:64], DATA.labels[:64]
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    result = branch_linearizations(model, x, "branches.*", initial)
    assert len(result) == depth
    return np.sqrt(np.mean(np.square(list(result.values()))))


@pytest.mark.long
@pytest.mark.parametrize(
    ("scheme", "phi", "expected"),
    [
        ("depth-mup", "gelu", -0.5),
        ("completep", "gelu", 0.0),
        # relu: the units that an update of size s flips are a fraction s, each off by s: s^1/2
        # relative, and s = L^-1/2.
        ("depth-mup", "relu", -0.25),
        ("completep", "relu", 0.0),
    ],
)
def test_blocks_of_two_matrices_move_away_from_linear_training_as_theory_says(
    scheme, phi, expected
):
    depths = (8, 32, 128)
    measured = [np.mean([distance(scheme, d, phi, seed) for seed in range(2)]) for d in depths]
    slope = np.mean(local_slopes(depths, measured))
    # Slopes of two seeds scatter by 0.04 or so over 16-fold depth; half way to the next exponent.
    assert slope == approx(expected, abs=0.12)
