"""Trained networks with two matrices per block against the limits, and with terms left out."""

import flat
import numpy as np
import pytest
from wide_networks import RELU, TANH, deviations

from depthmup import limits
from depthmup.limits.methods import blocks as sampled

FUNCTIONS = {"tanh": TANH, "relu": RELU, "identity": {}}
COMPLETEP = {"alpha": 1, "gamma": 0}
WIDE = {"lr": 0.5, "lr_second": 0.8, "width_ratio": 2.0}

# A sampled activation's neurons: enough for an error well below that of networks.
NEURONS = {"neurons": limits.Sobol(points=4096, scrambles=4)}

CASES = {
    "tanh": ("tanh", {"lr": 1.0}),
    "relu": ("relu", WIDE),
    "tanh, completep": ("tanh", {"lr": 1.0} | COMPLETEP),
    "relu, completep": ("relu", WIDE | COMPLETEP),
    "norm": ("tanh", {"lr": 0.7, "rms_norm": True}),
    "norm, identity": ("identity", {"lr": 0.5, "rms_norm": True}),
    "trained U and V": ("tanh", {"lr": 0.7, "lr_input": 0.3, "lr_readout": 0.4}),
    "momentum and decay": ("tanh", {"lr": 0.5, "momentum": 0.5, "decay": 0.3}),
    "schedule": ("tanh", {"lr": [0.9, 0.3, 0.6, 0.2, 0.1], "lr_second": [0.1, 0.9, 0.2, 0.5, 0.1]}),
    "off the line": ("tanh", {"lr": 0.5, "alpha": 0.4, "gamma": 0.7}),
    "linear": ("identity", WIDE),
    "linear, everything": (
        "identity",
        {"lr": 0.3, "momentum": 0.4, "lr_input": 0.2, "lr_readout": 0.3, "decay": 0.2},
    ),
}


def limit(steps, activation, *, depth, **options):
    neurons = {} if activation == "identity" else NEURONS
    s = flat.two_matrix(steps, activation=activation, depth=depth, **options, **neurons)
    assert s.status.kind != "exploded"
    held_out = [] if s.held_out is None else s.held_out[-1].ravel()
    outputs = np.concatenate(s.outputs).ravel()
    return np.concatenate([outputs, held_out]), s.error_estimate


def networks(simulated, steps, activation, *, width, count, **options):
    functions = FUNCTIONS[activation]
    return np.array(
        [simulated(steps, width=width, seed=seed, **functions, **options) for seed in range(count)]
    )


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("case", CASES)
def test_wide_networks_agree(reference, simulated_two_matrix, case):
    """Within the scatter of means over networks; a doubled learning rate of either is rejected."""
    activation, options = CASES[case]
    options = {"depth": 4} | options
    width = 192
    runs = networks(simulated_two_matrix, reference, activation, width=width, count=32, **options)
    # Five outputs in each of twelve cases: one of them exceeds 4 by chance in 500 such suites.
    assert deviations(runs, limit(reference, activation, **options), width).max() < 4
    for name in ("lr", "lr_second"):
        wrong = options | {name: np.multiply(2.0, options.get(name, options["lr"]))}
        if name == "lr":
            wrong = {"lr_second": options["lr"]} | wrong
        assert deviations(runs, limit(reference, activation, **wrong), width).max() > 4, name


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("exponents", [{}, COMPLETEP], ids=["depth-mup", "completep"])
def test_vector_outputs_and_minibatches_agree(
    make_steps, simulated_two_matrix, activation, exponents
):
    steps, width = make_steps(1, count=3, batch=2, d_in=3, d_out=2, entropy=True), 192
    options = {
        "depth": 4,
        "lr": [0.5, 0.9, 0.7],
        "width_ratio": 1.5,
        "momentum": 0.3,
        "decay": 0.2,
        "rms_norm": True,
        "lr_input": 0.2,
        "lr_readout": 0.3,
        "held_out": np.ones((1, 3)),
    } | exponents
    runs = networks(simulated_two_matrix, steps, activation, width=width, count=32, **options)
    assert runs.shape == (32, 3 * 2 * 2 + 2)
    assert deviations(runs, limit(steps, activation, **options), width).max() < 4
    for name in ("momentum", "decay", "lr_input", "lr_readout"):
        without = options | {name: 0.0}
        assert deviations(runs, limit(steps, activation, **without), width).max() > 3, name
    without = options | {"rms_norm": False}
    assert deviations(runs, limit(steps, activation, **without), width).max() > 3


class WithoutProjection(sampled.Blocks):
    """A norm that divides the gradient and does not take out its part along x."""

    def block_down(self, i):
        super().block_down(i)
        size = self.sizes(self.cov[i, self.every, self.every])[self.new]
        _, own = self.own
        along = (self.e[i, self.new] * self.new_h[i]) @ self.weights / size**2
        self.n[i, own, own] += self.c * self.problem.branch.width_ratio * along
        self.back_through(i)


class WithoutResponses(sampled.Blocks):
    """G01 = G10 = 0: as if x did not feel that W1's own backward images enter it, and so on."""

    def feedback(self, matrix):
        return np.zeros_like(matrix)


class WithoutKinks(sampled.Blocks):
    """Responses by differentiating the neuron's recursion with phi'' = 0, one sample per step."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        shape = (self.depth, len(self.u), len(self.u), self.u.shape[1])
        self.h_u, self.h_v, self.e_u, self.e_v = (np.zeros(shape) for _ in range(4))

    def response_of_phi(self, i, field):
        n, slope = self.old.stop, self.activation.slope(self.new_h[i][0])
        self.h_v[i, n, :n] = np.einsum("s,sup->up", field[0], self.e_v[i, :n, :n])
        self.h_u[i, n, :n] = np.einsum("s,sup->up", field[0], self.e_u[i, :n, :n])
        self.h_u[i, n, n] = 1.0
        return ((slope * self.h_v[i, n, :n]) @ self.weights)[None]

    def response_of_e(self, i, field, v):
        n, every = self.old.stop, self.every
        slopes = self.slopes[i]
        slopes[n] = self.activation.slope(self.new_h[i][0])
        for to_h, to_e in ((self.h_u, self.e_u), (self.h_v, self.e_v)):
            to_e[i, n, every] = np.einsum(
                "s,sp,sup->up", field[0], slopes[every], to_h[i, every, every]
            )
        self.e_v[i, n, n] += 1.0
        for to_e in (self.e_u, self.e_v):
            to_e[i, n, every] *= slopes[n]
        return (self.e_u[i, n, every] @ self.weights)[None]

    @property
    def slopes(self):
        if not hasattr(self, "_slopes"):
            self._slopes = np.zeros((self.depth, *self.u.shape))
        return self._slopes


@pytest.fixture
def left_out(monkeypatch):
    """Solve with other blocks than the library's."""

    def solve(blocks, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(sampled, "Blocks", blocks)
            return limit(*arguments, **options)

    return solve


def test_stein_is_differentiation(reference, left_out):
    """Where phi'' is zero both are right; where it is a delta function they must differ."""
    options = {"depth": 6} | WIDE
    by_stein, margin = limit(reference, "relu", **options)
    by_hand, _ = left_out(WithoutKinks, reference, "relu", **options)
    assert np.abs(by_stein - by_hand).max() > 5 * margin
    # With the second matrix frozen and one update nothing has felt a kink yet.
    frozen = {"depth": 3, "lr": 0.5, "lr_second": 0.0}
    by_stein, margin = limit(reference[:2], "relu", **frozen)
    by_hand, _ = left_out(WithoutKinks, reference[:2], "relu", **frozen)
    assert np.abs(by_stein - by_hand).max() < margin + 1e-12


@pytest.mark.long(of="networks")
@pytest.mark.parametrize(
    ("activation", "options", "blocks"),
    [
        ("tanh", {"lr": 1.0}, WithoutResponses),
        ("relu", WIDE, WithoutKinks),
        ("relu", WIDE, WithoutResponses),
    ],
)
def test_terms_that_matter_cannot_be_left_out(
    reference, simulated_two_matrix, left_out, activation, options, blocks
):
    """Depth-muP at depth 8: the complete equations agree, without the terms they are rejected."""
    width, options = 320, {"depth": 8} | options
    runs = networks(simulated_two_matrix, reference, activation, width=width, count=48, **options)
    assert deviations(runs, limit(reference, activation, **options), width).max() < 4
    wrong = left_out(blocks, reference, activation, **options)
    assert deviations(runs, wrong, width).max() > 5


@pytest.mark.long(slice=False)
def test_error_falls_as_one_over_root_width(reference, simulated_two_matrix):
    expected, _ = limit(reference, "tanh", depth=4, lr=1.0)
    widths, counts = [64, 128, 256, 512], [96, 64, 48, 24]
    errors = []
    for width, count in zip(widths, counts, strict=True):
        runs = networks(
            simulated_two_matrix, reference, "tanh", width=width, count=count, depth=4, lr=1.0
        )
        errors.append(np.sqrt(np.mean((runs - expected) ** 2)))
    # The log of an RMS over k runs has standard deviation 1/sqrt(2k), at most 0.15 here; the
    # slope's is at most 0.15 / (sqrt(5) log 2) = 0.1.
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.25)


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("exponents", [{}, COMPLETEP], ids=["depth-mup", "completep"])
def test_layer_norm_has_the_limit_of_rms_norm(
    reference, simulated_two_matrix, left_out, activation, exponents
):
    """Means over entries vanish at infinite width: no entry's law prefers a sign."""
    # Where U and V are trained the gradient's part along x matters most.
    width = 192
    options = {"depth": 4, "lr": 0.7, "lr_input": 0.5, "lr_readout": 1.0} | exponents
    normed = options | {"rms_norm": True}
    expected = limit(reference, activation, **normed)
    shared = {"width": width, "count": 32} | options
    layer, rms = (
        networks(simulated_two_matrix, reference, activation, **shared, **{norm: True})
        for norm in ("layer_norm", "rms_norm")
    )
    assert deviations(layer, expected, width).max() < 4
    assert deviations(rms, expected, width).max() < 4
    assert deviations(layer, limit(reference, activation, **options), width).max() > 10
    wrong = left_out(WithoutProjection, reference, activation, **normed)
    assert deviations(layer, wrong, width).max() > 5


def test_layer_norm_differs_where_entries_have_a_mean(reference, simulated_two_matrix):
    """U of mean 3: RMSNorm sees it, LayerNorm takes it out and has the limit of mean 0."""
    width, options = 192, {"depth": 4, "lr": 1.5, "input_mean": 3.0}
    layer, rms = (
        networks(
            simulated_two_matrix,
            reference,
            "tanh",
            width=width,
            count=32,
            **options,
            **{norm: True},
        )
        for norm in ("layer_norm", "rms_norm")
    )
    expected = limit(reference, "tanh", depth=4, lr=1.5, rms_norm=True)
    assert deviations(layer, expected, width).max() < 4
    assert deviations(rms, expected, width).max() > 10


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_normed_networks_approach_the_mean_ode(reference, simulated_two_matrix, norm):
    """CompleteP: networks of depth 8 and 16 extrapolated in 1/depth."""
    width, lr = 160, 0.7
    shallow, deep = (
        networks(
            simulated_two_matrix, reference, "tanh", width=width, count=24, depth=depth, lr=lr,
            **COMPLETEP, **{norm: True},
        )
        for depth in (8, 16)
    )  # fmt: skip
    options = {"activation": "tanh", "lr": lr, "neurons": limits.Sobol(points=2**13)}

    def expected(**extra):
        s = flat.mean_ode(reference, **options, **extra)
        return np.concatenate(s.outputs).ravel(), s.error_estimate

    extrapolated = 2 * deep - shallow
    # What is left is of order 1/L^2, an eighth of what was extrapolated away.
    left = np.abs((deep - shallow).mean(axis=0)).max() / 8
    predicted, margin = expected(rms_norm=True)
    assert deviations(extrapolated, (predicted, margin + 2 * left), width).max() < 4
    assert deviations(extrapolated, expected(), width).max() > 10
