"""Problems and an independent simulation, shared by the tests of the limits."""

import numpy as np
import pytest

from depthmup import limits

XI = [1.0, -0.5, 0.8, 0.6, -1.2]
Y = [0.5, 1.0, -0.75, 0.25, 0.4]


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
):
    """A finite network trained by SGD with explicit weights; no formula of the library is used.

    Returns outputs per step, and those of ``held_out`` per step and at the end.
    """
    rng = np.random.default_rng(seed)
    d_in, d_out = steps[0].inputs.shape[1], steps[0].loss.shape[1]
    c = multiplier * depth**-alpha
    u = rng.normal(size=(width, d_in))
    v = rng.normal(size=(width, d_out))  # n V
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
            gradients[2][layer] = kick * back.T @ xs[layer]
            d = d + c * back @ w[layer]
        gradients[0] = d.T @ step.inputs
        for i, parameter in enumerate((u, v, w)):
            speed[i] = momentum * speed[i] + gradients[i]
            parameter -= rates[i][t] * speed[i]
    if held_out is not None:
        held.append(forward(held_out)[2])
    return np.concatenate(outputs), held


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
