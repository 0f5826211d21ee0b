"""Feature diversity and linearization of networks with two matrices per block."""

import math
from functools import cache

import flat
import numpy as np
import pytest

from depthmup import limits
from depthmup.limits import resolve
from reproduction.theory.diversity import feature_diversity
from reproduction.theory.linearization import linearization

EPS = [1 / 8, 1 / 4, 1 / 2]
RATES = {"lr": 1.5, "lr_second": 0.7, "width_ratio": 2.0}
TANH = (np.tanh, lambda h: 1 - np.tanh(h) ** 2)
RELU = (lambda h: np.maximum(h, 0), lambda h: (h > 0) * 1.0)
SIN = (np.sin, np.cos)


@pytest.mark.parametrize(("activation", "rate"), [("relu", 0.5), ("abs", 1.0)])
def test_diversity_at_initialization_has_a_closed_form(make_steps, activation, rate):
    """|x|^2 grows at the rate E phi^2, which is not centred: e^(p/2) for relu, e^p for abs."""
    steps = make_steps(4, count=2, batch=2)
    s = flat.two_matrix(steps, depth=math.inf, activation=activation, lr=0.7, history=True)
    squares = feature_diversity(s, EPS)[:, :2] ** 2
    growth = np.expm1(rate * np.array(EPS)) * np.exp(rate / 4)
    assert np.allclose(squares, growth[:, None] * (steps[0].inputs ** 2).sum(1), rtol=1e-9)


def test_diversity_of_finite_depths_approaches_that_of_infinite_depth(reference):
    """Without noise, by a product rule: with order -1, before and after an update."""
    options = {"activation": "sin", "history": True} | RATES
    limit = feature_diversity(flat.two_matrix(reference[:2], depth=math.inf, **options), EPS)
    errors = []
    for depth in (16, 32, 64):
        s = flat.two_matrix(reference[:2], depth=depth, neurons=limits.Hermite(order=14), **options)
        errors.append(feature_diversity(s, EPS) - limit)
    orders = np.diff(np.log2(np.abs(errors)), axis=0)
    assert np.abs(2 * orders[1] - orders[0] + 1).max() < 2e-3
    # The one-matrix network of the same total learning rate has another limit.
    extrapolated = np.abs(2 * errors[2] - errors[1]).max()
    one = limits.nonlinear(
        reference[:2], activation="sin", lr=RATES["lr"] + 2 * RATES["lr_second"], history=True
    )
    assert np.abs(feature_diversity(one, EPS) - limit)[:, 1].min() > 10 * extrapolated


def test_diversity_exponents_tell_depth_mup_from_ode_and_completep(reference):
    """After an update: 1/2 at alpha = 1/2 and 1 at 3/4; at alpha = 1 the walk dies out with L."""
    options = {"activation": "sin", "history": True} | RATES
    exponents = []
    for alpha, gamma in (("1/2", "1/2"), ("3/4", "1/4")):
        s = flat.two_matrix(reference[:2], depth=math.inf, alpha=alpha, gamma=gamma, **options)
        near, far = feature_diversity(s, [1e-4, 1e-3])[:, 1]
        exponents.append(math.log10(far / near))
    assert exponents == pytest.approx([0.5, 1.0], abs=1e-3)

    def at_completep(depth):
        s = flat.two_matrix(
            reference[:2],
            depth=depth,
            alpha=1,
            gamma=0,
            neurons=limits.Sobol(points=1024, scrambles=2),
            **options,
        )
        near, far = feature_diversity(s, [1 / 64, 1 / 16])[:, 1]
        return math.log(far / near) / math.log(4)

    assert 0.75 < at_completep(64) < 0.85 < 0.9 < at_completep(256) < 0.95


def trained(
    steps, phi, slope, *, width, depth, seed, lr, alpha=0.5, gamma=0.5, ratio=2.0, curvature=None
):
    """One sample per step, by loops; x at every depth, h, and W1_0 x at the last step; outputs.

    With ``curvature``, phi'', branches are W2 [phi(W1_0 x) + phi'(W1_0 x) (W1 - W1_0) x]: what W1
    learns enters linearly.
    """
    rng = np.random.default_rng(seed)
    hidden, d_in = round(ratio * width), steps[0].inputs.shape[1]
    basis = np.linalg.qr(rng.normal(size=(width, d_in + 1)))[0] * math.sqrt(width)
    u, v = basis[:, :d_in], basis[:, d_in]
    first = rng.normal(size=(depth, hidden, width)) / math.sqrt(width)
    w2 = rng.normal(size=(depth, width, hidden)) / math.sqrt(hidden)
    w1, c, kick, outputs = first.copy(), depth**-alpha, depth**-gamma / width, []
    for step in steps:
        x, preactivations, initial, values = [u @ step.inputs[0]], [], [], []
        for layer in range(depth):
            preactivations.append(w1[layer] @ x[-1])
            initial.append(first[layer] @ x[-1])
            h0 = initial[-1]
            values.append(
                phi(preactivations[-1])
                if curvature is None
                else phi(h0) + slope(h0) * (preactivations[-1] - h0)
            )
            x.append(x[-1] + c * w2[layer] @ values[-1])
        outputs.append(x[-1] @ v / width)
        if step is steps[-1]:
            break
        d = step.loss.gradient(np.array([[outputs[-1]]]))[0, 0] * v
        for layer in range(depth - 1, -1, -1):
            h, h0, g = preactivations[layer], initial[layer], w2[layer].T @ d
            e = slope(h if curvature is None else h0) * g
            back = w1[layer].T @ e
            if curvature is not None:
                back += first[layer].T @ (curvature(h0) * (h - h0) * g)
            w2[layer] -= lr * kick * np.outer(d, values[layer])
            w1[layer] -= lr * kick * np.outer(e, x[layer])
            d = d + c * back
    return np.array(x), np.array(preactivations), np.array(initial), np.array(outputs)


@pytest.mark.long(of="networks")
def test_diversity_of_wide_networks(make_steps):
    """Of sin networks after two updates, between depths 1/4 and 1/2."""
    steps, lr, width, samples = make_steps(8, count=3, batch=1, d_out=1), 1.5, 192, {}
    for depth in (8, 64):
        runs = (trained(steps, *SIN, width=width, depth=depth, seed=s, lr=lr) for s in range(12))
        samples[depth] = [np.mean((x[depth // 2] - x[depth // 4]) ** 2) for x, *_ in runs]
    options = {"activation": "sin", "depth": math.inf, "width_ratio": 2.0, "history": True}
    limit, untrained = (
        feature_diversity(flat.two_matrix(steps, lr=rate, **options), [0.25])[0, 2] ** 2
        for rate in (lr, 0.0)
    )
    mean = np.mean(samples[64])
    error = np.std(samples[64], ddof=1) / math.sqrt(12)
    # The limit is approached as 1/L: at depth 64 an eighth of the deviation at depth 8 is left.
    left = abs(np.mean(samples[8]) - limit) / 8
    assert abs(mean - limit) < 3 * error + left
    assert abs(mean - untrained) > 3 * (3 * error + left)


@cache
def two_updates(activation):
    """A sample that is seen three times: only the last one's x, of three, differs."""
    steps = [limits.Step([[1.0]], limits.mse([[y]])) for y in (0.5, -0.4, 0.0)]
    options = {"activation": activation, "lr": 1.0, "width_ratio": 2.0, "history": True}
    return flat.two_matrix(steps, depth=math.inf, **options)


def test_linearization_is_an_expectation_over_one_neuron(reference):
    """One update moves h by -a L^-1/2 lr C phi'(u_0) v: the trapezoid rule in u_0 and v."""
    s = flat.two_matrix(
        reference[:2], depth=math.inf, activation="tanh", lr=1.5, width_ratio=2.0, history=True
    )
    cov, cov_d, depth = s.history.x[0], s.history.d[0, 0, 0], 16  # at p = 0, where C has rank 1
    grid = np.linspace(-9, 9, 1201)
    weight = np.exp(-(grid**2) / 2) / np.exp(-(grid**2) / 2).sum()
    u_0, v = math.sqrt(cov[0, 0]) * grid[:, None], math.sqrt(cov_d / 2) * grid
    u = cov[1, 0] / cov[0, 0] * u_0
    shift = -1.5 / math.sqrt(depth) * cov[1, 0] * TANH[1](u_0) * v
    change = np.tanh(u + shift) - np.tanh(u)
    missing, whole = (
        weight @ values**2 @ weight for values in (change - TANH[1](u) * shift, change)
    )
    expected = math.sqrt(missing / whole)
    neurons = limits.Sobol(points=2**16, scrambles=4)
    distance = linearization(s, depth, at=0.0, width_ratio=2.0, neurons=neurons)
    assert math.isnan(distance[0])
    assert distance[1] == pytest.approx(expected, rel=2e-3)
    narrower = linearization(s, depth, at=0.0, width_ratio=1.0, neurons=neurons)
    assert narrower[1] > 1.2 * expected


@pytest.mark.parametrize(
    ("activation", "exponent"), [("tanh", -0.5), ("sin", -0.5), ("identity", None)]
)
def test_a_smooth_activation_becomes_linear_as_depth_to_the_minus_half(activation, exponent):
    s = two_updates(activation)
    distances = [linearization(s, depth, width_ratio=2.0)[2] for depth in (2**16, 2**20)]
    if exponent is None:
        assert max(distances) < 1e-9
    else:
        assert math.log2(distances[1] / distances[0]) / 4 == pytest.approx(exponent, abs=0.01)


def test_a_kink_becomes_linear_more_slowly(make_steps):
    """A part L^-1/2 of relu's neurons cross the kink: L^-1/4."""
    steps = make_steps(3, count=3, batch=1, d_out=1)
    s = flat.two_matrix(steps, depth=math.inf, activation="relu", lr=0.5, history=True)
    neurons = limits.Sobol(points=2**17, scrambles=4)
    distances = [linearization(s, depth, neurons=neurons)[2] for depth in (2**8, 2**14)]
    assert math.log2(distances[1] / distances[0]) / 6 == pytest.approx(-0.25, abs=0.02)


def distance(h, h0, phi, slope):
    change = phi(h) - phi(h0)
    return np.linalg.norm(change - slope(h0) * (h - h0)) / np.linalg.norm(change)


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_linearization_of_wide_networks(make_steps, activation):
    steps = make_steps(8, count=3, batch=1, d_out=1)
    functions = {"tanh": TANH, "relu": RELU}[activation]
    lr, depth, width, count = 1.0, 64, 256, 8
    runs = [
        trained(steps, *functions, width=width, depth=depth, seed=seed, lr=lr)
        for seed in range(count)
    ]
    of_runs = [distance(h[32], h0[32], *functions) for _, h, h0, _ in runs]
    options = {"depth": math.inf, "activation": activation, "lr": lr, "width_ratio": 2.0}
    s = flat.two_matrix(steps, history=True, **options)
    predicted = linearization(s, depth, width_ratio=2.0)[2]
    error = np.std(of_runs, ddof=1) / math.sqrt(count)
    # What is left out is of relative order L^-1/2.
    margin = 4 * error + predicted / math.sqrt(depth)
    assert abs(np.mean(of_runs) - predicted) < margin
    wrong = linearization(s, depth // 8, width_ratio=2.0)[2]
    assert abs(np.mean(of_runs) - wrong) > margin


@pytest.mark.long(slice=False)
def test_the_first_matrix_may_be_linearized_at_depth_mup_alone(make_steps):
    """Outputs of networks whose W1 learns linearly, less those of the same networks' own."""
    steps, depths = make_steps(8, count=3, batch=1, d_out=1), (4, 16, 64)
    curvature = lambda h: -2 * np.tanh(h) * (1 - np.tanh(h) ** 2)  # noqa: E731

    def gaps(**exponents):
        of_depths = []
        for depth in depths:
            options = {"width": 192, "depth": depth, "lr": 1.5} | exponents
            pairs = [
                [
                    trained(steps, *TANH, seed=seed, curvature=of, **options)[3]
                    for of in (None, curvature)
                ]
                for seed in range(6)
            ]
            of_depths.append(np.sqrt(np.mean([(one - two)[2] ** 2 for one, two in pairs])))
        return of_depths

    depth_mup, completep = gaps(), gaps(alpha=1.0, gamma=0.0)
    assert depth_mup[2] < depth_mup[1] < depth_mup[0]
    assert np.polyfit(np.log(depths), np.log(depth_mup), 1)[0] < -0.35
    assert np.polyfit(np.log(depths), np.log(completep), 1)[0] > -0.15
    assert completep[2] > 4 * depth_mup[2]


def test_bad_input(reference):
    s = two_updates("tanh")
    assert resolve(s.activation).name == "tanh"
    with pytest.raises(ValueError, match="depth of at least 1"):
        linearization(s, 0)
    with pytest.raises(ValueError, match="depth of at least 1"):
        linearization(s, 8, at=1.5)
    plain = flat.two_matrix(reference[:2], depth=math.inf, activation="tanh", lr=1.0)
    with pytest.raises(ValueError, match="history=True"):
        linearization(plain, 8)
    finite = limits.linear(reference, depth=8, lr=1.0, history=True)
    with pytest.raises(ValueError, match="infinite depth"):
        linearization(finite, 8)
    relu = flat.two_matrix(
        reference[:2], depth=math.inf, activation="relu", lr=0.3, tol=1e-4, history=True
    )
    with pytest.raises(ValueError, match="graded panels"):
        linearization(relu, 8)
