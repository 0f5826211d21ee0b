"""Stacked trials against the plain loop that trains one at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx
from torch import nn

from depthmup import Design, Execution, transfer
from depthmup.model import Model
from depthmup.models import Transformer, TransformerConfig
from depthmup.records import Status, Trial
from depthmup.sweep import InProcess, Store, run, together
from depthmup.training.trial import run_together, run_trial

TRIAL = Trial(
    model="small", code="1", size={"width": 16, "depth": 2}, base={"width": 8, "depth": 1},
    scheme="completep",
    optimizer="adamw", lr=2.0**-6, weight_decay=0.1, steps=6, seed=0,
    settings={"schedule": "linear", "warmup": 0.2, "own_init": "fan_in"},
)  # fmt: skip


def small(width, depth):
    config = TransformerConfig(vocabulary=16, width=width, depth=depth, head_size=4, tied=True)
    return Transformer(config)


def batch(generator):
    tokens = torch.randint(16, (4, 9), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


FUNCTIONS = Model(make=small, batch=batch)


def of(**changes):
    return [replace(TRIAL, lr=2.0**k, seed=seed, **changes) for k in (-8, -4) for seed in (0, 1, 2)]


# Muon rounds to bfloat16, whose last bit (2^-8) of one update is 1e-4 of a loss here.
@pytest.mark.long
@pytest.mark.parametrize(
    ("optimizer", "settings", "tolerance"),
    [
        ("adamw", {}, 1e-5),
        ("adam", {"betas": [0.8, 0.95]}, 1e-5),
        ("sgd", {}, 1e-5),
        ("sgd", {"momentum": 0.9}, 1e-5),
        ("sgd", {"momentum": 0.9, "nesterov": True}, 1e-5),
        ("muon", {}, 2e-3),
        ("muon-rms", {}, 2e-3),
    ],
)
def test_a_stack_gives_the_records_of_single_trials(optimizer, settings, tolerance):
    decay = {"adam": 0.0}.get(optimizer, 0.1)
    trials = [
        replace(t, weight_decay=decay, lr=t.lr * (8 if optimizer == "sgd" else 1))
        for t in of(optimizer=optimizer, settings={**TRIAL.settings, **settings})
    ]
    stacked = list(run_together(trials, FUNCTIONS))
    single = [run_trial(trial, FUNCTIONS) for trial in trials]
    assert [record.cell for record in stacked] == trials
    curves = np.array([record.losses for record in stacked])
    assert curves == approx(np.array([record.losses for record in single]), rel=tolerance)
    # The comparison means something: members differ by much more.
    assert min(np.ptp(curves[:, -1]), abs(curves[0, -1] - curves[3, -1])) > 10 * tolerance


class Scale(nn.Module):
    """Whose loss runs away when its one weight grows, which learning rates far apart decide."""

    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

    def forward(self, x):
        return x[:, :1] + self.layers(x.repeat(1, self.layers[0].in_features))[:, :1]


def noise(generator):
    return torch.randn(8, 1, generator=generator), torch.zeros(8, 1)


def square(outputs, targets):
    return (outputs - targets).square().mean()


def test_a_member_that_diverges_ends_where_it_would_alone_and_disturbs_no_other():
    own = Model(make=Scale, batch=noise, loss=square)
    settings = {"own_init": "fan_in"}
    trials = [
        replace(TRIAL, lr=lr, weight_decay=0.0, steps=12, settings=settings)
        for lr in (1e-3, 10.0, 1e-2)
    ]
    ended = {record.cell: record for record in run_together(trials, own)}
    stacked, single = [ended[t] for t in trials], [run_trial(t, own) for t in trials]
    assert [r.status for r in stacked] == [Status.FINISHED, Status.DIVERGED, Status.FINISHED]
    assert [r.status for r in single] == [r.status for r in stacked]
    for one, other in zip(stacked, single, strict=True):
        assert len(one.losses) == len(other.losses)
        assert list(one.losses) == approx(list(other.losses), rel=1e-4)


class Averaging(nn.Module):
    """Batch norm, whose buffers move in place, a buffer that is replaced, and a frozen weight."""

    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 3)
        self.head.bias.requires_grad_(False)
        self.register_buffer("mean", torch.rand(1))

    def forward(self, x, scale, *, doubled):
        self.mean = 0.5 * self.mean + x.mean().detach()
        x = self.first(x * (2 if doubled else 1)) * scale
        for layer in self.layers:
            x = x + layer(x)
        return {"logits": self.head(x) - self.mean}


def keywords(generator):
    x = torch.randn(8, 4, generator=generator)
    inputs = {"x": x, "scale": torch.ones(8, 1), "doubled": True}
    return inputs, torch.randint(3, (8,), generator=generator)


def of_logits(outputs, targets):
    return nn.functional.cross_entropy(outputs["logits"], targets)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_buffers_containers_and_clipping_are_as_in_single_runs(clip):
    own = Model(make=Averaging, batch=keywords, loss=of_logits)
    settings = {"own_init": "fan_in", **({} if clip is None else {"clip": clip})}
    trials = of(settings=settings)
    stacked, single = list(run_together(trials, own)), [run_trial(t, own) for t in trials]
    curves, expected = (np.array([r.losses for r in records]) for records in (stacked, single))
    # Six steps of single precision, and Adam's division of small gradients by themselves.
    assert curves == approx(expected, rel=1e-4)
    other = [*run_together(of(settings=settings | {"clip": 1e9}), own)]
    differs = np.abs(np.array([r.losses for r in other]) - curves).max()
    assert differs == 0 if clip is None else differs > 1e-3


class Dropping(Averaging):
    def forward(self, x, scale, *, doubled):
        return super().forward(nn.functional.dropout(x, 0.5), scale, doubled=doubled)


def own_loop(trial):
    return [1.0] * trial.steps


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(ValueError, match="differ in learning rate and seed alone"):
        list(run_together([TRIAL, replace(TRIAL, size={"width": 16, "depth": 4})], FUNCTIONS))
    with pytest.raises(ValueError, match="Expected SGD, Adam, AdamW or Muon; got RMSprop"):
        list(run_together([replace(TRIAL, optimizer="rmsprop", weight_decay=0.0)], FUNCTIONS))
    with pytest.raises(ValueError, match="a training loop of its own"):
        list(run_together([TRIAL], Model(train=own_loop)))
    dropping = Model(make=Dropping, batch=keywords, loss=of_logits)
    with pytest.raises(ValueError, match="trains without randomness, such as dropout"):
        list(run_together([replace(TRIAL, settings={"own_init": "fan_in"})], dropping))


@pytest.mark.parametrize("make", [Dropping, None])
def test_what_cannot_be_stacked_is_refused_before_anything_is_written(make, tmp_path):
    own = Model(train=own_loop) if make is None else Model(make, batch=keywords, loss=of_logits)
    design = Design(
        base={"width": 8, "depth": 1}, depth=(1, 2), lrs=[2.0**-6, 2.0**-5], seeds=1, steps=20,
        settings={} if make is None else {"own_init": "fan_in"},
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"dropout|loop of its own"):
        transfer(own, design, out=tmp_path / "out", on=Execution(workers=1, engine="stacked"))
    assert not (tmp_path / "out").exists()


def test_jobs_hold_trials_that_can_be_stacked_and_resume(tmp_path):
    trials = [*of(steps=2), *of(steps=2, size={"width": 16, "depth": 1})]
    jobs = together(trials, FUNCTIONS, members=4)
    assert [len(job.runs) for job in jobs] == [4, 2, 4, 2]
    assert [key for job in jobs for key in job.keys] == [trial.key for trial in trials]
    assert jobs[0].only(jobs[0].keys[1:3]).runs == jobs[0].runs[1:3]
    with Store(tmp_path / "results.sqlite") as store:
        store.add(run_trial(trials[0], FUNCTIONS))
        done = run(
            trials,
            store=store,
            executor=InProcess(),
            jobs=lambda missing: together(missing, FUNCTIONS),
        )
        assert done == len(trials) - 1
        assert not store.missing(trials)


def test_what_a_stack_does_not_know_is_refused():
    with pytest.raises(ValueError, match="amsgrad, maximize and dampening cannot be stacked"):
        list(run_together(of(settings={**TRIAL.settings, "amsgrad": True}), FUNCTIONS))
