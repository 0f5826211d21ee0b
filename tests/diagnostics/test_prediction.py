"""``predict``: the drift of the rule on networks whose kernel is known, plans, and refusals."""

import math
from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

import depthmup
from depthmup.diagnostics import predict
from depthmup.limits import Block, optimal_rate
from depthmup.model import Model
from depthmup.models import ResidualMLP
from depthmup.records import AxisPrediction, Estimate, Prediction, sentence
from depthmup.rules import general
from depthmup.statistics import mean
from depthmup.training import stream

INPUTS = torch.randn(8, 4, generator=stream(0, "inputs"))


class Branch(nn.Linear):
    def forward(self, x):
        y = super().forward(x).relu()
        return y - y.mean(-1, keepdim=True)


class Residual(nn.Module):
    """Branches of one matrix between a frozen U and a frozen V, at muP's initialization at 64."""

    def __init__(self, width, depth, multiplier):
        super().__init__()
        self.input = nn.Linear(4, width, bias=False)
        self.branches = nn.ModuleList(Branch(width, width, bias=False) for _ in range(depth))
        self.readout = nn.Linear(width, 1, bias=False)
        self.multiplier = multiplier
        for p, std in (
            (self.input.weight, 0.5),
            (self.readout.weight, width**-0.5),
            *((b.weight, width**-0.5) for b in self.branches),
        ):
            nn.init.normal_(p, std=std)
        self.input.weight.requires_grad_(False)
        self.readout.weight.requires_grad_(False)

    def forward(self, x):
        x = self.input(x)
        for branch in self.branches:
            x = x + self.multiplier * branch(x)
        return self.readout(x)


def subject(multiplier=0.5, **changes):
    options = {
        "make": lambda width, depth: Residual(width, depth, multiplier),
        "batch": lambda generator: (INPUTS, torch.zeros(len(INPUTS), 1)),
        "loss": lambda f, y: 0.5 * (f - y).square().sum() / len(y),
    }
    return Model(**{**options, **changes})


def zero_readout(width, depth):
    model = Residual(width, depth, 0.5)
    nn.init.zeros_(model.readout.weight)
    return model


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["depth-mup", "ode", "1/2,0", "3/4,1/2"])
def test_wide_networks_drift_as_the_kernel_does(scheme):
    """The plan's multipliers and learning rates enter: fold, hook or neither, by its own code."""
    result = predict(
        subject(), base=(256, 4), depths=(8, 16), scheme=scheme, seeds=6,
        plan_options={"own_init": "fan_in"},
    )  # fmt: skip
    inputs = INPUTS.double().numpy() * 0.5
    exact = optimal_rate(
        inputs, depths=(4, 8, 16), base_depth=4, scheme=scheme, multiplier=0.5,
        block=Block(activation="relu"),
    )  # fmt: skip
    drift = result.drift("depth")
    half = drift.high - drift.value
    assert half < 0.25
    assert abs(drift.value - exact.drift) < 2 * half  # Student's t with 5: 0.4 %
    other = optimal_rate(
        inputs, depths=(4, 8, 16), base_depth=4, scheme="0,0", multiplier=0.5,
        block=Block(activation="relu"),
    )  # fmt: skip
    assert abs(drift.value - other.drift) > 4 * half


def test_every_parameter_has_its_own_rate():
    """Along width the readout's and the input's rates change by other factors than the branches'.

    With all trained, a plan of SP, which scales none, must differ from muP's.
    """

    def make(width, depth):
        model = Residual(width, depth, 0.5)
        return model.requires_grad_(True)

    drifts = [
        predict(
            subject(make=make), base=(32, 2), widths=(64, 128), scheme=scheme, seeds=4,
            plan_options={"own_init": "fan_in"},
        ).drift("width")
        for scheme in ("depth-mup", "sp")
    ]  # fmt: skip
    assert drifts[0].inside(-0.5, 0.5)
    assert drifts[1].high < -0.5  # the readout's kernel grows with width, its rate does not fall


def test_the_readme_call():
    result = depthmup.predict(
        subject(), base=(16, 2), depths=(4,), widths=(32,), seeds=2, batches=2,
        plan_options={"own_init": "fan_in"},
    )  # fmt: skip
    assert [along.axis for along in result.axes] == ["depth", "width"]
    assert [at.size[a.axis] for a in result.axes for at in a.sizes] == [2, 4, 16, 32]
    assert all(along.sizes[0].octaves.value == 0 for along in result.axes)
    assert result.axes[0].sizes[0].curvature == result.axes[1].sizes[0].curvature


@pytest.mark.parametrize(("block_depth", "scheme"), [(1, "Depth-muP"), (2, "CompleteP")])
def test_the_scheme_is_what_the_blocks_ask_for_as_in_a_plan(block_depth, scheme):
    def make(width, depth):
        return ResidualMLP(
            inputs=4, width=width, depth=depth, outputs=1, multiplier=1.0,
            activation_name="relu", block_depth=block_depth,
        )  # fmt: skip

    result = predict(
        subject(make=make), base=(8, 2), depths=(4,), seeds=2, plan_options={"own_init": "fan_in"}
    )
    assert result.scheme == scheme
    assert any("No scheme was named" in note for note in result.notes)


def test_any_axis_of_the_factory():
    """A sum over ``ways`` copies of the output: the sharpness grows by their number squared."""

    class Summed(Residual):
        def __init__(self, width, depth, ways):
            super().__init__(width, depth, 0.5)
            self.ways = ways

        def forward(self, x):
            y = super().forward(x)
            return torch.stack([y for _ in range(self.ways)]).sum(0)

    base = {"width": 256, "depth": 2, "ways": 1}
    options = {"ways": (2, 4), "seeds": 4, "scheme": "sp", "plan_options": {"own_init": "fan_in"}}
    result = predict(subject(make=Summed), base=base, **options)
    [along] = result.axes
    assert [at.size for at in along.sizes] == [{**base, "ways": n} for n in (1, 2, 4)]
    assert along.drift.low < -2 < along.drift.high  # seeds alone scatter
    assert along.drift.outside(-1.5, 0)
    with pytest.raises(ValueError, match="Expected the base to have a ways"):
        predict(subject(), base=(16, 2), **options)
    with pytest.raises(ValueError, match=r"got width\. Give widths"):
        predict(subject(), base=(16, 2), width=(2, 4))
    ignoring = subject(make=lambda width, depth, ways: Residual(width, depth, 0.5))
    with pytest.raises(ValueError, match="The factory ignores its ways"):
        predict(ignoring, base=base, **options)


def test_dropout_is_drawn_from_the_seed():
    """Two calls agree to the bit, and leave torch's generator as it was."""

    def make(width, depth):
        return nn.Sequential(nn.Dropout(0.5), Residual(width, depth, 0.5))

    options = {
        "base": (16, 2), "depths": (4,), "seeds": 2, "plan_options": {"own_init": "fan_in"},
    }  # fmt: skip
    state = torch.get_rng_state()
    first = predict(subject(make=make), **options)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    second = predict(subject(make=make), **options)
    assert first.axes == second.axes
    assert first.axes != predict(subject(), **options).axes


def test_an_eigenvalue_that_is_not_known_is_told_of(monkeypatch):
    module = import_module("depthmup.diagnostics.sharpness")  # a function has its name
    monkeypatch.setattr(module, "MOST_PRODUCTS", 1)
    options = {"base": (16, 2), "depths": (4,), "seeds": 2, "plan_options": {"own_init": "fan_in"}}
    assert any("known to" in note for note in predict(subject(), **options).notes)
    monkeypatch.undo()
    assert not any("known to" in note for note in predict(subject(), **options).notes)


def test_progress_counts_networks():
    told = []
    predict(
        subject(), base=(16, 2), depths=(4, 8), seeds=2, plan_options={"own_init": "fan_in"},
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(i, 6) for i in range(1, 7)]


def test_intervals_cover():
    """Student's interval of normal values holds their mean 95 times in 100."""
    rng = np.random.default_rng(0)
    intervals = [mean(rng.normal(size=4)) for _ in range(4000)]
    covered = np.mean([interval.low <= 0 <= interval.high for interval in intervals])
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


def of_drift(low, value, high):
    drift = Estimate(value=value, low=low, high=high)
    return Prediction(
        title="net", scheme="Depth-muP", optimizer="sgd", base=(16, 2), seeds=3, confidence=0.95,
        tolerance=0.15, axes=(AxisPrediction(axis="depth", sizes=(), drift=drift),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("drift", "moves", "word"),
    [
        ((-0.1, 0.0, 0.1), False, "stays"),
        ((0.2, 0.3, 0.4), True, "moves up"),
        ((-0.4, -0.3, -0.2), True, "moves down"),
        ((0.0, 0.3, 0.6), None, "may stay or move"),
        ((math.nan, math.nan, math.nan), None, "explodes"),
    ],
)
def test_what_is_said(drift, moves, word):
    result = of_drift(*drift)
    assert result.moves("depth") is moves
    assert word in sentence(result, "depth")
    with pytest.raises(KeyError, match="width"):
        result.drift("width")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adamw"}, "depthmup transfer"),
        ({"optimizer": "muon"}, "depthmup transfer"),
        ({"depths": ()}, "other than the base's"),
        ({"depths": (2,)}, "other than the base's"),
        ({"depths": (4, 0)}, "positive integers"),
        ({"seeds": 1}, "at least 2 seeds"),
        ({"batches": 0}, "1 batch"),
        ({"scheme": "deepmup"}, "Expected a scheme"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        predict(subject(), **{"base": (16, 2), "depths": (4,), **options})


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"make": lambda w, d: Residual(w, 2, 0.5)}, {"depths": (4,)}, "ignores its depth"),
        ({"make": lambda w, d: Residual(16, d, 0.5)}, {"widths": (32,)}, "ignores its width"),
        ({"batch": lambda g: (INPUTS * math.inf, torch.zeros(8, 1))}, {"depths": (4,)}, "finite"),
        ({"loss": lambda f, y: f.mean()}, {"depths": (4,)}, "At width 16 and depth 2.*curved"),
        ({"make": lambda w, d: zero_readout(w, d)}, {"depths": (4,)}, "readout initialized at 0"),
        ({"loss": lambda f, y: f.mean() * math.nan}, {"depths": (4,)}, "finite loss"),
    ],
)
def test_models_that_nothing_is_predicted_for(changes, options, message):
    with pytest.raises(ValueError, match=message):
        predict(subject(**changes), base=(16, 2), plan_options={"own_init": "fan_in"}, **options)


def test_schemes_as_objects():
    scheme = general(Fraction(1, 2), Fraction(1, 2))
    result = predict(
        subject(), base=(16, 2), depths=(4,), scheme=scheme, optimizer="raw", seeds=2,
        plan_options={"own_init": "fan_in"},
    )  # fmt: skip
    assert result.scheme == "(1/2, 1/2)"
