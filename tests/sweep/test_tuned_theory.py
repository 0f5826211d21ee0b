"""What is tuned, where theory is exact: the best value moves by what the scheme or rule lacks.

Weight decay: SGD on a noisy quadratic forgets its noise by decay, at the price of its signal.
1 - beta2: an average of a random walk seen through noise, whose best gain is Kalman's.
Multiplier and initial scale: residual networks that do not train, whose output is known.
"""

import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from pytest import approx
from scipy.signal import lfilter
from torch import nn

import depthmup
from depthmup.records import Verdict

SIZES = (1, 2, 4, 8)
COORDINATES = 500


def findings(model, design):
    report = depthmup.transfer(model, design)
    return report, {v.name: report.finding(v.name) for v in design.variants}


def way(optima):
    """The slope of log2 optima against log2 size."""
    return float(np.polyfit(np.log2(SIZES), np.log2(optima), 1)[0])


# Weight decay --------------------------------------------------------------------------------


SIGMA = math.sqrt(32)


@lru_cache(maxsize=4)
def noise(seed, steps):
    """In pairs of opposite signs, so that its mean, which no decay forgets, is none."""
    half = np.random.default_rng(seed).standard_normal((steps, COORDINATES // 2))
    return np.concatenate([half, -half], axis=1)


def decayed_sgd(trial):
    """x <- x - lr (x - 1 + sigma noise / sqrt(batch)) - lr decay x, from zero."""
    drawn = noise(trial.seed, trial.steps) * SIGMA / np.sqrt(trial.size["batch"])
    kept = 1 - trial.lr * (1 + trial.weight_decay)
    x = lfilter([0, trial.lr], [1, -kept], 1 - drawn, axis=0)
    return ((x - 1) ** 2).mean(-1) / 2


def best_decay(batch, lr):
    """The minimum of the stationary loss.

    With s = 1 / (1 + decay) the mean is s, and the variance lr^2 sigma^2 / batch over
    1 - (1 - lr / s)^2.
    """
    decay = 2.0 ** np.arange(-12, 2, 0.01)
    s, variance = 1 / (1 + decay), lr**2 * SIGMA**2 / batch
    square = (1 - s) ** 2 + variance / (1 - (1 - lr / s) ** 2)
    return decay[np.argmin(square)]


@pytest.mark.long(of="theory")
def test_weight_decay_follows_the_learning_rate_over_the_batch():
    lr = 2.0**-5
    design = depthmup.Design(
        base={"batch": 1}, batch=SIZES, schemes="mup", optimizers="sgd", seeds=3, steps=500,
        window=300, run=("none", "linear-batch"), tune="weight_decay", lrs=lr,
        values=[2.0 ** (k / 2) for k in range(-14, 2)],
    )  # fmt: skip
    _, found = findings(depthmup.Model(train=decayed_sgd, version="1"), design)
    held, linear = found["mup none"], found["mup linear-batch"]
    # To first order the best decay is lr sigma^2 / (4 batch): at a held rate it falls as 1 / batch,
    # and stays where the rate grows as the batch.
    of_held = way([best_decay(b, lr) for b in SIZES])
    of_linear = way([best_decay(b, lr * b) for b in SIZES])
    assert of_held == approx(-1, abs=0.15)
    assert of_linear == approx(0, abs=0.1)
    assert held.verdict is Verdict.DRIFTS
    assert held.drift.value == approx(of_held, abs=0.1)
    assert linear.verdict is Verdict.TRANSFERS
    assert linear.drift.value == approx(of_linear, abs=0.06)
    assert held.drift.unit == "octaves of weight decay per doubling of batch"


# 1 - beta2 -----------------------------------------------------------------------------------


def averaged(trial, walk=0.02):
    """The error of an average that predicts a random walk seen through noise, after each step.

    A batch of b examples is seen through 1 / b of the noise's variance. Where tokens are held, the
    walk goes on for as many steps of the base between two of them.
    """
    _, beta2 = trial.settings["betas"]
    seen = through_noise(trial.seed, trial.steps, trial.size["batch"], "tokens" in trial.size, walk)
    average = lfilter([1 - beta2], [1, -beta2], seen, axis=0)
    return ((seen[1:] - average[:-1]) ** 2).mean(-1)[[0, *range(trial.steps - 1)]]


@lru_cache(maxsize=4)
def through_noise(seed, steps, batch, tokens, walk):
    drawn = np.random.default_rng(seed).standard_normal((2, steps, COORDINATES // 2))
    signal = np.cumsum(walk * math.sqrt(batch if tokens else 1) * drawn[0], axis=0)
    return signal + drawn[1] / math.sqrt(batch)


def kalman(batch, *, tokens, walk=0.02):
    """The best gain: K^2 / (1 - K) is the walk's variance over the noise's."""
    ratio = walk**2 * batch * (batch if tokens else 1)
    return (math.sqrt(ratio**2 + 4 * ratio) - ratio) / 2


def gain_drifts(base, **asked):
    design = depthmup.Design(
        base=base, batch=SIZES, schemes="mup", optimizers="adamw", seeds=3,
        run=("none", "sqrt-batch"), tune="one_minus_beta2", lrs=2.0**-8,
        values=[2.0**k for k in np.arange(-7.5, -0.5, 0.5)], **asked,
    )  # fmt: skip
    _, found = findings(depthmup.Model(train=averaged, version="1"), design)
    return found["mup none"], found["mup sqrt-batch"]


@pytest.mark.long(of="theory")
def test_the_average_of_squares_follows_the_batch_at_held_tokens():
    none, moved = gain_drifts({"batch": 1, "tokens": 4000}, window=3200)
    exact = way([kalman(b, tokens=True) for b in SIZES])
    assert exact == approx(1, abs=0.06)
    assert none.verdict is Verdict.DRIFTS
    assert none.drift.value == approx(exact, abs=0.06)
    # The rule moves 1 - beta2 as the batch.
    assert moved.verdict is Verdict.TRANSFERS
    assert moved.drift.value == approx(exact - 1, abs=0.06)


@pytest.mark.long(of="theory")
def test_the_average_of_squares_follows_the_root_of_the_batch_at_held_steps():
    none, moved = gain_drifts({"batch": 1, "steps": 1000}, window=800)
    exact = way([kalman(b, tokens=False) for b in SIZES])
    assert exact == approx(0.5, abs=0.04)
    assert none.drift.value == approx(exact, abs=0.06)
    assert moved.verdict is Verdict.DRIFTS
    assert moved.drift.value == approx(exact - 1, abs=0.06)


# Branch multiplier and initial scale ----------------------------------------------------------


class Branch(nn.Module):
    """x + W x with a given W."""

    def __init__(self, entries):
        super().__init__()
        self.matrix = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.matrix.weight.copy_(torch.tensor(entries))

    def forward(self, x):
        return x + self.matrix(x)


class Stack(nn.Module):
    """The mean of the last layer's features, and their mean square, from ones."""

    def __init__(self, depth, entries):
        super().__init__()
        self.read_in = nn.Linear(1, 2, bias=False)
        self.blocks = nn.Sequential(*(Branch(entries) for _ in range(depth)))
        nn.init.ones_(self.read_in.weight)

    def forward(self, x):
        hidden = self.blocks(self.read_in(x))
        return hidden.mean(), hidden.square().mean()


GAIN = 1.5


def aligned(depth):
    """Every branch adds its multiplier times its input: the mean is (1 + a)^depth."""
    return Stack(depth, [[1.0, 0.0], [0.0, 1.0]])


def orthogonal(depth):
    """As of independent random weights, what a branch adds is orthogonal to its input: the mean
    square is (1 + scale^2)^depth.
    """
    return Stack(depth, [[0.0, -1.0], [1.0, 0.0]])


def examples(generator):
    x = torch.ones(8, 1)
    # So that losses of the best value are not zero, and seeds scatter.
    return x, 1.0 + 0.01 * torch.randn(1, generator=generator)


def of_output(outputs, floor):
    return missed(outputs[0]) + floor.square().mean()


def of_square(outputs, floor):
    return missed(outputs[1]) + floor.square().mean()


def missed(gain):
    """Zero at the gain that is wanted, and nearly a parabola in the logarithm of the multiplier."""
    return (gain.log() / math.log(GAIN)).log().square()


DEPTHS = (4, 8, 16)


def untrained(make, loss, tune, octaves):
    model = depthmup.Model(make, batch=examples, loss=loss, version="1")
    design = depthmup.Design(
        base={"depth": DEPTHS[0]}, depth=DEPTHS, schemes=("ode", "depth-mup"), optimizers="sgd",
        seeds=4, steps=1, window=1, tune=tune, lrs=2.0**-60,
        values=[2.0**k for k in octaves],
    )  # fmt: skip
    return findings(model, design)[1]


@pytest.mark.long(of="theory")
def test_the_multiplier_of_aligned_branches_is_one_over_the_depth():
    found = untrained(aligned, of_output, "multiplier", np.arange(-5, -0.9, 0.5))
    exact = {}
    for alpha in (1.0, 0.5):
        best = [(d / DEPTHS[0]) ** alpha * (GAIN ** (1 / d) - 1) for d in DEPTHS]
        exact[alpha] = float(np.polyfit(np.log2(DEPTHS), np.log2(best), 1)[0])
    assert found["ode"].verdict is Verdict.TRANSFERS
    assert found["ode"].drift.value == approx(exact[1.0], abs=0.04)
    # Under L^-1/2 the branches' sum grows as the root of the depth: the best one lacks as much.
    assert found["depth-mup"].verdict is Verdict.DRIFTS
    assert found["depth-mup"].drift.value == approx(exact[0.5], abs=0.04)
    assert exact[1.0] - exact[0.5] == approx(0.5)


@pytest.mark.long(of="theory")
def test_the_initial_scale_of_independent_branches_is_one_over_the_root_of_the_depth():
    found = untrained(orthogonal, of_square, "init_scale", np.arange(-3, 1.1, 0.5))
    exact = {}
    for alpha in (1.0, 0.5):
        best = [(d / DEPTHS[0]) ** alpha * (GAIN ** (1 / d) - 1) ** 0.5 for d in DEPTHS]
        exact[alpha] = float(np.polyfit(np.log2(DEPTHS), np.log2(best), 1)[0])
    assert found["depth-mup"].verdict is Verdict.TRANSFERS
    assert found["depth-mup"].drift.value == approx(exact[0.5], abs=0.04)
    assert found["ode"].verdict is Verdict.DRIFTS
    assert found["ode"].drift.value == approx(exact[1.0], abs=0.04)
