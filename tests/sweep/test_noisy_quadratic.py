"""Rules of the batch where theory is exact: noisy quadratics, whose steps are a diffusion.

    loss = x^2 / 2 a coordinate,   gradient = x + sigma / sqrt(batch) noise

At held tokens, in the limit of small steps, SGD is the same diffusion for every batch if its rate
grows as the batch; Adam, where noise is larger than the gradient, if its rate grows as the root of
the batch and 1 - beta as the batch. Of another rule the optimum drifts by what the rule lacks.
"""

from functools import lru_cache

import numpy as np
from pytest import approx

import depthmup
from depthmup.records import Verdict

BATCHES, COORDINATES = (1, 2, 4, 8), 400


@lru_cache(maxsize=1)
def noise(seed, steps):
    return np.random.default_rng(seed).standard_normal((steps, COORDINATES), dtype=np.float32)


def sgd(trial, sigma=1.0):
    scale = sigma / np.sqrt(trial.size["batch"])
    x, losses = np.ones(COORDINATES, np.float32), []
    for drawn in noise(trial.seed, trial.steps):
        losses.append(float(x @ x) / (2 * COORDINATES))
        x = x - trial.lr * (x + scale * drawn)
    return losses


def adam(trial, sigma=10.0):
    scale = sigma / np.sqrt(trial.size["batch"])
    beta1, beta2 = trial.settings.get("betas", (0.9, 0.999))
    epsilon = trial.settings.get("eps", 1e-8)
    x, m, v = (np.full(COORDINATES, value, np.float32) for value in (1, 0, 0))
    losses = []
    for step, drawn in enumerate(noise(trial.seed, trial.steps), start=1):
        losses.append(float(x @ x) / (2 * COORDINATES))
        g = x + scale * drawn
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        size = np.sqrt(v / (1 - beta2**step)) + epsilon
        x = x - trial.lr / (1 - beta1**step) * m / size
    return losses


def drifts(train, optimizer, rules, *, steps, log2_lrs):
    design = depthmup.Design(
        base={"batch": BATCHES[0], "tokens": steps}, batch=BATCHES, schemes="mup", seeds=3,
        optimizers=optimizer, run=rules, lrs=[2.0**k for k in log2_lrs],
    )  # fmt: skip
    report = depthmup.transfer(depthmup.Model(train=train, version="1"), design)
    return {v.run.key: report.finding(v.name) for v in design.variants}


def exact_optimum(batch, steps, sigma=1.0):
    """SGD's, by the recursion of the expected square: E <- (1 - lr)^2 E + lr^2 sigma^2 / batch."""
    log2_lrs = np.arange(-12, -3, 0.02)
    lr, square, late = 2.0**log2_lrs, np.ones_like(log2_lrs), 0.0
    for step in range(steps):
        late = late + square * (step >= steps - steps // 5)
        square = (1 - lr) ** 2 * square + lr**2 * sigma**2 / batch
    return log2_lrs[np.argmin(late)]


def test_sgd_transfers_when_its_rate_grows_as_the_batch():
    found = drifts(
        sgd, "sgd", ("linear-batch", "sde", "none"), steps=800, log2_lrs=np.arange(-9.5, -2.5, 0.5)
    )
    # In base units the optimum moves by what the rule lacks of the exact optimum's own way.
    optima = [exact_optimum(batch, 800 // batch) for batch in BATCHES]
    way = float(np.polyfit(np.log2(BATCHES), optima, 1)[0])
    assert way == approx(1, abs=0.05)
    assert found["linear-batch"].verdict is Verdict.TRANSFERS
    assert found["linear-batch"].drift.value == approx(way - 1, abs=0.05)
    assert found["sde"].verdict is found["none"].verdict is Verdict.DRIFTS
    assert found["sde"].drift.value == approx(way - 0.5, abs=0.05)


def test_adam_transfers_when_its_rate_grows_as_the_root_of_the_batch():
    rules = ("sde", "linear-batch", "none", "sqrt-batch")
    found = drifts(adam, "adamw", rules, steps=1600, log2_lrs=np.arange(-9, -3, 0.5))
    assert found["sde"].verdict is Verdict.TRANSFERS
    assert found["sde"].drift.value == approx(0, abs=0.05)
    # Without decay the two rules are one, and their runs are the same.
    assert found["sqrt-batch"].drift == found["sde"].drift
    assert found["linear-batch"].verdict is found["none"].verdict is Verdict.DRIFTS
    assert found["linear-batch"].drift.value == approx(-0.5, abs=0.07)
    assert found["none"].drift.value == approx(0.5, abs=0.07)
