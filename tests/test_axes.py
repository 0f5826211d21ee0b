"""Custom models along any axis: batch, duration, and names that the library does not know."""

import json
from dataclasses import replace
from math import log2

import numpy as np
import pytest
import torch
from own_models import Branch, make
from pytest import approx
from torch import nn

import depthmup
from depthmup.model import Model, batches_at, network_at, resolved
from depthmup.records import Trial
from depthmup.sweep import Custom, Store

RATES = [2.0**-9, 2.0**-7, 2.0**-5]
ASKED = {"lrs": RATES, "schemes": "depth-mup", "optimizers": "adamw", "seeds": 2}


class Mixture(nn.Module):
    """The mean of several experts, each a matrix."""

    def __init__(self, width, experts):
        super().__init__()
        self.experts = nn.ModuleList(Branch(width, width, bias=False) for _ in range(experts))

    def forward(self, x):
        return x + sum(expert(x) for expert in self.experts) / len(self.experts)


def make_mixture(width, depth, experts):
    return nn.Sequential(
        nn.Linear(16, width), *(Mixture(width, experts) for _ in range(depth)), nn.Linear(width, 8)
    )


def batch(generator, batch=32):
    x = torch.randn(batch, 16, generator=generator)
    return x, x[:, :8].argmax(-1)


MIXTURE = Model(make_mixture, batch=batch, version="1")
OWN = Model(make, batch=batch, version="1")


def test_an_axis_that_is_not_known_is_measured_like_any_other(tmp_path):
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "experts": 2}, experts=(2, 4, 8), steps=10, **ASKED
    )
    report = depthmup.transfer(MIXTURE, design, out=tmp_path, target={"experts": 32})
    assert design.axes == ("experts",)
    assert [o.size["experts"] for o in report.finding(axis="experts").optima] == [2, 4, 8]
    assert "per doubling of experts" in report.finding().drift.unit
    assert {run.size["experts"] for run in report.records} == {2, 4, 8}
    (certificate,) = report.certificates
    assert certificate.target == {"width": 8, "depth": 2, "experts": 32}
    page = (tmp_path / "report.html").read_text()
    assert "experts" in page
    with Store(tmp_path / "results.sqlite") as store:
        again = depthmup.report.load_report(store)
    assert again.finding() == report.finding()
    assert Trial.from_json(next(iter(report.records)).to_json()) in report.records


def test_batch_and_steps_are_axes():
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "batch": 16, "steps": 10},
        batch=(16, 64), steps=(10, 20), **ASKED,
    )  # fmt: skip
    seen = set()

    def watched(generator, size):
        seen.add(size)
        return batch(generator, size)

    report = depthmup.transfer(Model(make, batch=watched, version="1"), design)
    assert design.axes == ("batch", "steps")
    assert seen == {16, 64}
    lengths = {(run.size["batch"], len(record.losses)) for run, record in report.records.items()}
    assert lengths == {(16, 10), (16, 20), (64, 10)}
    # Judged by the last fifth of each run, whatever its length.
    values = report.losses(axis="steps").values
    base, longer = (report.sweep.curve(design.variant(), size, -7.0)[1]
                    for size in design.sizes_along("steps"))  # fmt: skip
    assert values[0, 1, 1] == approx(np.mean(report.records[base].losses[8:10]))
    assert values[1, 1, 1] == approx(np.mean(report.records[longer].losses[16:20]))


def test_a_longer_run_has_its_schedule_stretched():
    settings = {"schedule": "linear"}
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "steps": 4}, steps=(4, 8), settings=settings, **ASKED
    )
    report = depthmup.transfer(OWN, design)
    short, long = (report.sweep.curve(design.variant(), size, -5.0)[0]
                   for size in design.sizes_along("steps"))  # fmt: skip
    # The same batches, the same first rates within a step, other rates from then on.
    ones, others = (list(report.records[run].losses) for run in (short, long))
    assert ones[0] == others[0]
    assert ones[1:] != others[1:4]


def test_at_held_tokens_a_larger_batch_takes_fewer_steps():
    design = depthmup.Design(base={"batch": 16, "tokens": 320}, batch=(16, 32), tokens=(160, 320))
    assert [design.steps_at(size) for size in design.all_sizes] == [20, 10, 10]
    assert design.steps == 20
    again = depthmup.Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert again == design


def test_runs_of_width_and_depth_have_the_keys_that_they_had():
    """The description of version 0.1, written out."""
    design = depthmup.Design(base={"width": 8, "depth": 2}, steps=10, depth=(2, 4), **ASKED)
    model = Custom(name="make", code="1")
    first = depthmup.sweep.Sweep(model=model, design=design)
    described = json.loads(first.runs[0].to_json())
    assert described == {
        "model": "make", "code": "1", "width": 8, "depth": 2, "base_width": 8, "base_depth": 2,
        "scheme": "any", "optimizer": "adamw", "lr": 2.0**-9, "multiplier": 1.0,
        "weight_decay": 0.0, "steps": 10, "seed": 0, "settings": {}, "numerics": 2,
    }  # fmt: skip
    # Steps as an axis: the same runs, so that a sweep in depth is a part of one in both.
    both = depthmup.Design(
        base={"width": 8, "depth": 2, "steps": 10}, depth=(2, 4), steps=(10, 20),
        **ASKED,
    )  # fmt: skip
    runs = depthmup.sweep.Sweep(model=model, design=both).runs
    assert {run.key for run in first.runs} < {run.key for run in runs}


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda width, depth: (width, depth), (8, 2)),
        (lambda depth, width: (width, depth), (8, 2)),
        (lambda n, layers: (n, layers), (8, 2)),
        (lambda width, layers: (width, layers), (8, 2)),
        (lambda *size: size, (8, 2)),
        (lambda **size: size, {"width": 8, "depth": 2, "experts": 4}),
        (lambda width, depth, *, experts: (width, depth, experts), (8, 2, 4)),
        (lambda n, layers, experts: (n, layers, experts), (8, 2, 4)),
        (lambda width, depth, **more: (width, depth, more), (8, 2, {"experts": 4})),
        (lambda depth: depth, 2),
    ],
)
def test_a_factory_is_given_the_axes_that_it_takes(factory, expected):
    own = resolved(Model(factory, batch=lambda generator: None, version="1"))
    assert network_at(own, {"width": 8, "depth": 2, "experts": 4, "batch": 16}) == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda generator: (), ()),
        (lambda generator, size: size, 32),
        (lambda generator, batch_size: batch_size, 32),
        (lambda generator, batch, context: (batch, context), (32, 128)),
        (lambda generator, *, batch=1: batch, 32),
        (lambda generator, width=3: width, 3),  # its data's own
    ],
)
def test_a_batch_is_given_the_axes_that_it_takes(function, expected):
    own = resolved(Model(make, batch=function, version="1"))
    drawn = batches_at(own, {"width": 8, "depth": 2, "batch": 32, "context": 128})
    assert drawn(None) == expected


def of(**base):
    return depthmup.Design(base=base, depth=(2, 4), steps=4, **ASKED)


@pytest.mark.parametrize(
    ("model", "design", "message"),
    [
        (OWN, of(width=8, depth=2, experts=2), r"parameter experts\. Write make\(width, depth, "),
        (MIXTURE, of(width=8, depth=2), "argument of make_mixture; the base has no 'experts'"),
        (
            Model(make, batch=lambda generator: batch(generator), version="1"),
            of(width=8, depth=2, batch=32),
            r"parameter batch\. Write <lambda>\(generator, batch\)",
        ),
        (
            Model(make, batch=lambda generator, size: batch(generator), version="1"),
            replace(of(width=8, depth=2, batch=32), arms={"batch": (32, 64)}),
            "batch function ignores the batch",
        ),
        (
            Model(make, batch=lambda generator, size: batch(generator, min(size, 48)),
                  version="1"),
            replace(of(width=8, depth=2, batch=32), arms={"batch": (32, 64, 128)}),
            "Expected batches of 128 to be 4 times as large",
        ),
        (
            Model(lambda width, depth, heads: make(width, depth), batch=batch, version="1"),
            replace(of(width=8, depth=2, heads=2), arms={"heads": (2, 4)}),
            "factory ignores its heads",
        ),
    ],
)  # fmt: skip
def test_axes_that_a_model_does_not_take_are_refused_before_training(model, design, message):
    with pytest.raises(ValueError, match=message):
        depthmup.transfer(model, design, out="/nonexistent/never/written")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"base": {"batch": 32, "tokens": 320}, "batch": (32, 64, 96)}, "multiple of the batch"),
        ({"base": {"batch": 32, "tokens": 100}}, "multiple of the batch"),
        ({"base": {"batch": 32, "tokens": 320, "steps": 10}}, "two of batch, steps and tokens"),
        ({"base": {"depth": 2, "tokens": 320}}, "name the batch beside the tokens"),
        ({"base": {"depth": 2, "steps": 10}, "steps": 20}, "those of the base, 10"),
        ({"base": {"depth": 2}, "steps": (10, 20)}, "where the axis steps starts"),
        ({"base": {"depth": 2, "steps": 10}, "steps": (20, 40)}, "steps to contain the base's"),
    ],
)
def test_designs_whose_question_cannot_be_asked(asked, message):
    with pytest.raises(ValueError, match=message):
        depthmup.Design(**asked)


def test_a_function_that_trains_is_given_the_whole_size():
    def train(trial):
        octaves = log2(trial.lr) + 7 + 0.5 * log2(trial.ratio("batch"))
        return [1 + 0.1 * octaves**2 + 0.01 * trial.seed] * trial.steps

    design = depthmup.Design(
        base={"batch": 32, "tokens": 640}, batch=(32, 64, 128), seeds=2, schemes="sp",
        lrs=[2.0 ** (k / 2) for k in range(-22, -7)],
    )  # fmt: skip
    report = depthmup.transfer(Model(train=train, version="1"), design)
    assert report.drift.value == approx(-0.5, abs=0.02)
    assert {run.steps for run in report.records} == {20, 10, 5}


def test_a_head_count_changes_no_shape_and_is_an_axis_all_the_same():
    class Heads(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)

        def forward(self, x):
            return x + self.attention(x, x, x, need_weights=False)[0]

    def attending(width, depth, heads):
        return nn.Sequential(
            nn.Linear(16, width), *(Heads(width, heads) for _ in range(depth)), nn.Linear(width, 8)
        )

    def sequences(generator):
        x = torch.randn(4, 3, 16, generator=generator)
        return x, x[..., :8]

    model = Model(attending, batch=sequences, loss=nn.functional.mse_loss, version="1")
    design = depthmup.Design(base={"width": 8, "depth": 1, "heads": 1}, heads=(1, 4), steps=5,
                             **ASKED)  # fmt: skip
    report = depthmup.transfer(model, design)
    assert {run.size["heads"] for run in report.records} == {1, 4}


@pytest.mark.parametrize("name", ["loss", "seeds", "lrs", "window"])
def test_names_that_stand_for_something_else_are_no_axes(name):
    with pytest.raises(ValueError, match=f"another name for the axis '{name}'"):
        depthmup.Design(base={"depth": 2, name: 4}, depth=(2, 4))
