"""Problems and an independent simulation, shared by the tests of the limits."""

import numpy as np
import pytest

from depthmup import limits

XI = [1.0, -0.5, 0.8, 0.6, -1.2]
Y = [0.5, 1.0, -0.75, 0.25, 0.4]


# What simulations take of an activation.
TANH = {"phi": np.tanh, "slope": lambda h: 1 - np.tanh(h) ** 2}
RELU = {"phi": lambda h: np.maximum(h, 0), "slope": lambda h: (h > 0) * 1.0}


def random_steps(seed, *, count=3, batch=2, d_in=3, d_out=2, entropy=False):
    rng = np.random.default_rng(seed)
    steps = []
    for t in range(count):
        inputs = rng.normal(size=(batch, d_in)) / np.sqrt(d_in)
        if entropy and t % 2:
            loss = limits.cross_entropy(rng.integers(0, d_out, batch), classes=d_out)
        else:
            loss = limits.mse(rng.normal(size=(batch, d_out)))
        steps.append(limits.Step(inputs, loss))
    return steps


def simulate(
    steps,
    *,
    width,
    depth,
    seed,
    lr,
    multiplier=1.0,
    alpha=0.5,
    gamma=0.5,
    momentum=0.0,
    lr_input=0.0,
    lr_readout=0.0,
    phi=None,
    slope=None,
    held_out=None,
    entry=None,
    orthonormal=False,
):
    """A finite network trained by SGD with explicit weights; no formula of the library is used.

    ``entry`` is applied to every entry of a branch's gradient (``np.sign`` for signSGD).
    Returns outputs per step, and those of ``held_out`` per step and at the end.
    """
    rng = np.random.default_rng(seed)
    d_in, d_out = steps[0].inputs.shape[1], steps[0].loss.shape[1]
    c = multiplier * depth**-alpha
    entry = entry or (lambda gradient: gradient)
    u = rng.normal(size=(width, d_in))
    v = rng.normal(size=(width, d_out))  # n V
    if orthonormal:  # the same limit, and less scatter
        basis = np.linalg.qr(np.concatenate([u, v], axis=1))[0] * np.sqrt(width)
        u, v = basis[:, :d_in].copy(), basis[:, d_in:].copy()
    w = rng.normal(size=(depth, width, width)) / np.sqrt(width)
    speed = [np.zeros_like(u), np.zeros_like(v), np.zeros_like(w)]
    rates = [np.broadcast_to(r, len(steps)) for r in (lr_input, lr_readout, lr)]

    def forward(inputs):
        xs, hs = [inputs @ u.T], []
        for weight in w:
            h = xs[-1] @ weight.T
            out = h if phi is None else phi(h) - phi(h).mean(axis=1, keepdims=True)
            hs.append(h)
            xs.append(xs[-1] + c * out)
        return xs, hs, xs[-1] @ v / width

    outputs, held = [], []
    for t, step in enumerate(steps):
        if held_out is not None:
            held.append(forward(held_out)[2])
        xs, hs, f = forward(step.inputs)
        outputs.append(f)
        chi = step.loss.gradient(f)
        d = chi @ v.T  # n times the gradient with respect to x
        gradients = [None, xs[-1].T @ chi, np.empty_like(w)]
        for layer in range(depth - 1, -1, -1):
            back = d
            if phi is not None:
                back = slope(hs[layer]) * (d - d.mean(axis=1, keepdims=True))
            # In units where the update of W is of order L^-gamma.
            kick = multiplier * depth**-gamma / width
            gradients[2][layer] = kick * entry(back.T @ xs[layer])
            d = d + c * back @ w[layer]
        gradients[0] = d.T @ step.inputs
        for i, parameter in enumerate((u, v, w)):
            speed[i] = momentum * speed[i] + gradients[i]
            parameter -= rates[i][t] * speed[i]
    if held_out is not None:
        held.append(forward(held_out)[2])
    return np.concatenate(outputs), held


def simulate_two_matrix(
    steps,
    *,
    width,
    depth,
    seed,
    lr,
    lr_second=None,
    width_ratio=1.0,
    multiplier=1.0,
    alpha=0.5,
    gamma=0.5,
    momentum=0.0,
    decay=0.0,
    lr_input=0.0,
    lr_readout=0.0,
    phi=None,
    slope=None,
    rms_norm=False,
    layer_norm=False,
    input_mean=0.0,
    held_out=None,
    entry=None,
):
    """A finite network with two matrices per block and explicit weights; no formula of the library.

    U and V are orthonormalized (up to sqrt(n)), which has the same limit and less scatter;
    ``input_mean`` is then added to every entry of U. ``layer_norm`` subtracts the mean over entries
    before a block and divides by the standard deviation. Returns outputs per step, and those of
    ``held_out`` at the end.
    """
    rng = np.random.default_rng(seed)
    d_in, d_out = steps[0].inputs.shape[1], steps[0].loss.shape[1]
    hidden, c = round(width_ratio * width), multiplier * depth**-alpha
    phi, entry = phi or (lambda h: h), entry or (lambda gradient: gradient)
    slope = slope or np.ones_like
    basis = np.linalg.qr(rng.normal(size=(width, d_in + d_out)))[0] * np.sqrt(width)
    u, v = basis[:, :d_in] + input_mean, basis[:, d_in:].copy()
    first = rng.normal(size=(depth, hidden, width)) / np.sqrt(width)
    second = rng.normal(size=(depth, width, hidden)) / np.sqrt(hidden)
    parameters = u, v, first, second
    speed = [np.zeros_like(p) for p in parameters]
    lr_second = lr if lr_second is None else lr_second
    rates = [np.broadcast_to(r, len(steps)) for r in (lr_input, lr_readout, lr, lr_second)]
    kick = multiplier * depth**-gamma / width

    def forward(inputs):
        x, stream = inputs @ u.T, []
        for w1, w2 in zip(first, second, strict=True):
            z = x - layer_norm * x.mean(axis=1, keepdims=True)
            normed = rms_norm or layer_norm
            size = np.sqrt(np.mean(z**2, axis=1, keepdims=True)) if normed else 1.0
            h = (z / size) @ w1.T
            stream.append((z / size, size, h))
            x = x + c * phi(h) @ w2.T
        return x, stream, x @ v / width

    outputs = []
    for t, step in enumerate(steps):
        x, stream, f = forward(step.inputs)
        outputs.append(f)
        chi = step.loss.gradient(f)
        d = chi @ v.T
        gradients = [None, x.T @ chi, np.empty_like(first), np.empty_like(second)]
        for layer in range(depth - 1, -1, -1):
            z, size, h = stream[layer]
            e = slope(h) * (d @ second[layer])
            gradients[3][layer] = kick * entry(d.T @ phi(h))
            gradients[2][layer] = kick * entry(e.T @ z)
            back = e @ first[layer]
            if rms_norm or layer_norm:
                back = back - layer_norm * back.mean(axis=1, keepdims=True)
                back = (back - z * np.mean(z * back, axis=1, keepdims=True)) / size
            d = d + c * back
        gradients[0] = d.T @ step.inputs
        for i, parameter in enumerate(parameters):
            speed[i] = momentum * speed[i] + gradients[i]
            if i >= 2:
                parameter *= 1 - rates[i][t] * decay
            parameter -= rates[i][t] * speed[i]
    held = [] if held_out is None else forward(held_out)[2].ravel()
    return np.concatenate([np.concatenate(outputs).ravel(), held])


def deviations(runs, expected, width):
    """How far means over networks are from the limit, in errors of both and a bias of order 1/n.

    ``expected`` is the limit and its error. With orthonormal U and V the bias was measured as
    (0.1 to 0.5) / n.
    """
    predicted, margin = expected
    error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    total = np.sqrt(error**2 + (margin / 2) ** 2 + (1 / width) ** 2)
    return np.abs(runs.mean(axis=0) - predicted) / total


def gradient_gap(solve, steps, *, row=0, h=1e-4):
    """chi_r . df_r/dxi_r - (Q(0) Xi)_r for a row of the last step, by central differences.

    Exact whatever the network: what is propagated backwards must be the derivative of the forward
    map, evaluated here on held-out inputs, which share every weight and nothing else. ``solve``
    trains on the steps.
    """
    xi = steps[-1].inputs
    count, d_in = xi.shape
    near = np.concatenate([xi[row] + k * h * np.eye(d_in) for k in (-2, -1, 1, 2)])
    s, f = solve(history=True), solve(held_out=near).held_out[len(steps) - 1]
    low2, low, high, high2 = f.reshape(4, d_in, -1)
    slope = (8 * (high - low) - (high2 - low2)) / (12 * h)
    chi = steps[-1].loss.gradient(s.outputs[-1])[row]
    back = s.history.q[0] @ s.history.inputs
    return float(np.abs(slope @ chi - back[len(back) - count + row]).max())


@pytest.fixture
def reference():
    """Five steps, one scalar vector each: the problem whose digits are known."""
    return [limits.Step([[x]], limits.mse([[y]])) for x, y in zip(XI, Y, strict=True)]


@pytest.fixture
def make_steps():
    return random_steps


@pytest.fixture
def simulated():
    return simulate


@pytest.fixture
def simulated_two_matrix():
    return simulate_two_matrix
