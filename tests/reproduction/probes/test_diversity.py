"""Feature and gradient diversity: random walks, flows, and networks in between."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from pytest import approx
from torch import nn
from torch.nn import functional

from depthmup.data import digits
from depthmup.models import ResidualMLP
from depthmup.planning import PlanOptions, plan
from depthmup.tracing import read
from reproduction.probes.diversity import (
    diversity,
    diversity_at_infinite_depth,
    feature_distances,
    gradient_diversity,
)
from studies import diversity as study

EPS = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
DATA = digits(label_noise=0.0)


def network(depth, *, width=64, seed=0, nonlinearity="post", phi="relu", multiplier=1.0):
    torch.manual_seed(seed)
    model = ResidualMLP(
        inputs=64, width=width, depth=depth, outputs=10, activation_name=phi,
        nonlinearity=nonlinearity, multiplier=multiplier,
    )  # fmt: skip
    with torch.no_grad():
        for p in model.branches.parameters():
            p.normal_(std=width**-0.5)
        model.input.weight.normal_(std=1 / 8)
        model.readout.weight.normal_(std=1 / width)
    return model


@cache
def facts(depth, phi):
    """What a network is: the same for every seed and scheme."""
    return read(network(depth, phi=phi), torch.zeros(2, 64))


def trained(scheme, depth, *, steps, lr, seed=0, phi="relu"):
    model, base = network(depth, seed=seed, phi=phi), network(8, phi=phi)
    made = plan(
        model, base=base, scheme=scheme, optimizer="adamw", example_inputs=torch.zeros(2, 64),
        own_init="fixed",
        options=PlanOptions(facts=(facts(depth, phi), facts(8, phi))),
    )  # fmt: skip
    made.initialize(model)
    optimizer = torch.optim.AdamW(made.param_groups(model, lr=lr), fused=True)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(DATA.inputs), (64,), generator=generator)
        loss = functional.cross_entropy(model(DATA.inputs[chosen]), DATA.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


class Shift(nn.Module):
    """A branch that adds a given vector: a stream whose places are known exactly."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x):
        return x + self.step


def shifts(steps):
    return nn.Sequential(*(Shift(step) for step in steps))


def test_a_straight_flow_has_kappa_zero_and_exact_distances():
    steps = torch.ones(64, 5) / 64
    d = feature_distances(shifts(steps), torch.zeros(3, 5), "*", eps=EPS, at=(0.0, 0.5))
    assert d == approx(np.array([EPS, EPS]), rel=1e-5)
    result = diversity([d, d], EPS)
    assert result.kappa.value == approx(0.0, abs=1e-6)


def test_a_random_walk_has_kappa_one_half():
    walks = []
    for seed in range(4):
        steps = torch.randn(64, 20000, generator=torch.Generator().manual_seed(seed)) / 8
        walks.append(feature_distances(shifts(steps), torch.zeros(1, 20000), "*", eps=EPS))
    result = diversity(walks, EPS)
    # The RMS of 20000 entries is known to 0.5%; slopes over a factor of 2 to 1%.
    assert result.kappa.value == approx(0.5, abs=0.05)
    assert all(s.value == approx(0.5, abs=0.05) for s in result.slopes)


def test_at_initialization_depth_mup_is_a_random_walk():
    x = DATA.inputs[:64]
    runs = [
        feature_distances(
            network(128, seed=s, phi="abs", multiplier=128**-0.5), x, "branches.*", eps=EPS
        )
        for s in range(3)
    ]
    kappa = diversity(runs, EPS).kappa
    assert kappa.value == approx(0.5, abs=0.1)


@pytest.mark.long(slice=False)
def test_with_depth_training_destroys_the_diversity_of_ode_and_not_that_of_depth_mup():
    """The local slope from L/32 to L/16 layers after 100 Adam steps, at L = 32 and L = 128.

    Under ODE the noise of initialization is L^-1/2 beside a flow of order one, so the slope moves
    from 1/2 towards 1; under Depth-muP both are of order one and it stays.
    """
    x, near, depths = DATA.inputs[:64], (1 / 32, 1 / 16), (32, 128)
    slope = {}
    for scheme in ("depth-mup", "ode"):
        for depth in depths:
            runs = [
                feature_distances(
                    trained(scheme, depth, steps=100, lr=3e-4, seed=seed, phi="abs"),
                    x, "branches.*", eps=near,
                )
                for seed in range(2)
            ]  # fmt: skip
            slope[scheme, depth] = diversity(runs, near).slopes[0].value
    moved = {s: slope[s, 128] - slope[s, 32] for s in ("depth-mup", "ode")}
    # Slopes between neighbouring distances of two runs of width 64 are known to 0.05 or so.
    assert moved["ode"] > 0.1
    assert abs(moved["depth-mup"]) < 0.1
    assert slope["ode", 128] > slope["depth-mup", 128] + 0.1


def made_up(rng, depths, runs=3, alpha=1.0, scatter=0.0, flow=0.3):
    """Squared distances of a flow and of noise that is weaker in deeper networks."""
    eps = np.array(EPS)
    return [
        [
            np.sqrt(
                (flow * eps**2 + eps * d ** (1 - 2 * alpha))
                * np.exp(scatter * rng.standard_normal((1, len(eps))))
            )
            for _ in range(runs)
        ]
        for d in depths
    ]


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["depth-mup", "ode"])
def test_distances_in_wide_linear_networks_are_those_of_the_limit(scheme):
    """After three steps of SGD; the limit without training is another one."""
    depth, runs, lr = 32, 12, 2.0
    result = [study.wide_linear(scheme, depth, width=512, seed=s, lr=lr) for s in range(runs)]
    squares = np.square(result).mean(axis=0)
    error = np.square(result).std(axis=0, ddof=1) / runs**0.5
    exact, idle = (np.square(study.exact_linear(scheme, depth, lr=x)) for x in (lr, 1e-9))
    # 4 standard errors, and corrections of order 1/width: 1.5 at width 64, so 0.06 here.
    assert (np.abs(squares - exact) < 4 * error + 0.08 * exact).all()
    assert (np.abs(squares - idle) > 4 * error)[0, -1]


@pytest.mark.long(slice=False)
def test_kappa_of_trained_networks_stays_at_one_half_or_moves_to_zero():
    """Three depths of the table in docs/studies/probes.md, with abs and Adam."""
    depths = (64, 128, 256)
    kappa, endless = {}, {}
    for scheme, alpha in (("depth-mup", "1/2"), ("ode", 1)):
        runs = [study.distances(scheme, depth, seeds=3)[0] for depth in depths]
        kappa[scheme] = [diversity(r, study.EPS).kappa.value for r in runs]
        endless[scheme] = diversity_at_infinite_depth(depths, runs, study.EPS, alpha=alpha).kappa
    # Measured over seeds: standard deviations of 0.03 and 0.05, so 4 sigma of three are 0.1.
    assert kappa["depth-mup"] == approx([0.47] * 3, abs=0.1)
    assert kappa["ode"][0] > kappa["ode"][1] > kappa["ode"][2]
    assert kappa["ode"][-1] < 0.2
    assert endless["depth-mup"].value == approx(0.47, abs=0.1)
    assert endless["ode"].value == approx(0.0, abs=0.1)


def test_the_limit_at_great_depth_is_that_of_infinite_depth():
    for scheme in study.SCHEMES:
        near, limit = (study.exact_linear(scheme, d, lr=2.0) for d in (2**14, math.inf))
        assert near == approx(limit, rel=0.02)


def test_the_kernel_and_plain_training_leave_the_same_weights(monkeypatch):
    cell = study.cell("ode", 8, seed=0)
    fast, loss = study.trained(cell)

    def none():
        raise study.BuildError("none")

    monkeypatch.setattr(study, "library", none)
    plain, same = study.trained(cell)
    assert loss == approx(same, rel=1e-3)
    for a, b in zip(fast.parameters(), plain.parameters(), strict=True):
        # 100 steps of Adam at rate 3.5e-4: rounding moves single weights by a step or so.
        assert (a - b).abs().max() < 2e-3
        assert (a - b).square().mean() < 1e-4 * b.square().mean()


@pytest.mark.parametrize("alpha", [0.75, 1.0])
def test_at_infinite_depth_noise_is_gone_and_the_flow_remains(alpha):
    depths = (64, 256, 1024)
    rng = np.random.default_rng(0)
    runs = made_up(rng, depths, alpha=alpha)
    assert diversity(runs[-1], EPS).kappa.value > 0.005  # not yet gone
    exact = diversity_at_infinite_depth(depths, runs, EPS, alpha=alpha)
    assert exact.kappa.value == approx(0.0, abs=1e-9)
    assert exact.distances == approx(tuple(0.3**0.5 * e for e in EPS))


def test_intervals_at_infinite_depth_cover_the_truth():
    rng, depths = np.random.default_rng(1), (64, 128, 256, 512)
    hits = 0
    for _ in range(300):
        runs = made_up(rng, depths, scatter=0.02)
        result = diversity_at_infinite_depth(depths, runs, EPS).kappa
        hits += result.low <= 0 <= result.high
    assert hits >= 0.91 * 300  # 95%, less 3 standard errors


def backward(model):
    x, y = DATA.inputs[:64], DATA.labels[:64]
    functional.cross_entropy(model(x), y).backward()
    return gradient_diversity(model, "branches.*.matrices.0.weight")


def test_neighbours_gradients_are_alike_when_linear_and_less_so_after_relu_and_abs():
    """Section 8.1, at initialization of 32 blocks."""
    cosine = {
        phi: backward(network(32, phi=phi, multiplier=32**-0.5)).raw
        for phi in ("identity", "relu", "abs")
    }
    assert cosine["identity"] > 0.8
    assert cosine["identity"] > cosine["relu"] > cosine["abs"]
    assert abs(cosine["abs"]) < 0.2


def test_unrelated_gradients_stay_within_the_null():
    model = nn.Sequential(*(nn.Linear(50, 50, bias=False) for _ in range(40)))
    generator = torch.Generator().manual_seed(0)
    for layer in model:
        layer.weight.grad = torch.randn(50, 50, generator=generator)
    result = gradient_diversity(model, "*.weight")
    assert result.null == approx(1 / 50)
    assert abs(result.raw) < 5 * result.null / result.pairs**0.5
    # Centring makes blocks repel each other by 1/(blocks - 1).
    assert result.centred == approx(-1 / 39, abs=5 * result.null / result.pairs**0.5)


class TestBadInput:
    def test_a_pattern_that_matches_nothing(self):
        with pytest.raises(ValueError, match="matches 0 modules"):
            feature_distances(network(8), DATA.inputs[:2], "layers.*")

    def test_places_between_layers(self):
        with pytest.raises(ValueError, match="whole numbers of layers"):
            feature_distances(network(8), DATA.inputs[:2], "branches.*", eps=(0.1,))

    def test_gradients_that_were_not_computed(self):
        with pytest.raises(ValueError, match="Call backward first"):
            gradient_diversity(network(8), "branches.*.matrices.0.weight")

    def test_too_few_depths_or_nothing_but_noise(self):
        rng, depths = np.random.default_rng(0), (64, 128, 256)
        with pytest.raises(ValueError, match="at least three depths"):
            diversity_at_infinite_depth((64, 128), made_up(rng, (64, 128)), EPS)
        with pytest.raises(ValueError, match="show only noise"):
            diversity_at_infinite_depth(depths, made_up(rng, depths, flow=-1e-3), EPS)

    def test_one_run(self):
        with pytest.raises(ValueError, match="at least two runs"):
            diversity([np.ones((1, 4))], EPS)
