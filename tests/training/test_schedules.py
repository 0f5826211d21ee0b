"""One schedule, four engines: each against torch's own optimizer with rates set by hand."""

import math
from array import array
from dataclasses import replace

import numpy as np
import pytest
import torch
from cells import cell, fuzz
from torch.nn import functional

from depthmup.records import Cell
from depthmup.training import Backend, batches, build, dataset, train, train_group, trained
from depthmup.training.schedules import factors_of, rate_factors, schedule

SCHEDULES = [("linear", 0.0), ("cosine", 0.25), ("constant", 0.5)]


def scheduled(plain, name, warmup):
    return replace(plain, optimizer=replace(plain.optimizer, schedule=name, warmup=warmup))


def by_torch(wanted, dtype):
    """The same run by torch's own LambdaLR, whose factor has no part of ours."""
    name, warmup, steps = wanted.optimizer.schedule, wanted.optimizer.warmup, wanted.steps

    def factor(step):
        at = (step + 0.5) / steps
        if at < warmup:
            return at / warmup
        left = (1 - at) / (1 - warmup)
        return {
            "constant": 1.0,
            "linear": left,
            "cosine": (1 + math.cos(math.pi * (1 - left))) / 2,
        }[name]

    data, order = dataset(wanted.data), batches(wanted)
    model = build(wanted).to(dtype)
    o = wanted.optimizer
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = (
        torch.optim.SGD(parameters, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay)
        if o.name == "sgd"
        else {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o.name](
            parameters,
            lr=o.lr,
            betas=(o.beta1, o.beta2),
            eps=o.epsilon,
            weight_decay=o.weight_decay,
        )
    )
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    losses = []
    for step in range(steps):
        loss = functional.cross_entropy(
            model(data.inputs[order[step]].to(dtype)), data.labels[order[step]]
        )
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
    return np.array(losses)


@pytest.mark.long
@pytest.mark.parametrize(("name", "warmup"), SCHEDULES)
@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "adam", "epsilon": 1e-3},
        {"name": "adamw", "epsilon": 1e-3, "weight_decay": 3.0},
        {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01, "log2_lr": -1.0},
    ],
    ids=lambda o: o["name"],
)
def test_every_engine_follows_the_schedule(name, warmup, optimizer):
    plain = cell(**{"log2_lr": -6.0, **optimizer}, steps=12, activation="tanh")
    wanted = scheduled(plain, name, warmup)
    expected = by_torch(wanted, torch.float64)
    np.testing.assert_allclose(train(wanted, dtype=torch.float64).losses, expected, rtol=1e-6)
    unscheduled = np.array(train(plain, dtype=torch.float64).losses)
    assert np.abs(unscheduled - expected).max() > 1e-3
    for engine in ("native", "stacked", "reference"):
        (record,) = train_group([wanted], backend=Backend(engine=engine))
        # Single precision: 12 steps, each a rounding or so of a loss of order one.
        np.testing.assert_allclose(record.losses, expected, rtol=2e-5, err_msg=engine)


@pytest.mark.parametrize("plain", list(fuzz(6, seed=11)), ids=lambda c: c.network.activation)
def test_engines_agree_on_random_cells(plain):
    wanted = scheduled(plain, "linear", 0.25)
    expected = np.array(train(wanted, dtype=torch.float64).losses)
    for engine in ("native", "stacked"):
        (record,) = train_group([wanted], backend=Backend(engine=engine))
        np.testing.assert_allclose(record.losses, expected, rtol=1e-4, err_msg=engine)


def test_a_scheduled_stack_trains_as_its_members_alone():
    cells = [scheduled(cell(k, width=16, steps=6), "cosine", 0.5) for k in (-6.0, -5.0, -4.0)]
    together = list(train_group(cells, backend=Backend(engine="stacked")))
    alone = [next(train_group([c], backend=Backend(engine="stacked"))) for c in cells]
    assert {r.cell.key: r.losses for r in together} == {r.cell.key: r.losses for r in alone}


def test_snapshots_follow_the_schedule():
    wanted = scheduled(cell(-5.0, steps=6), "linear", 0.0)
    *_, network = trained(wanted, (0, 6))
    *_, other = trained(cell(-5.0, steps=6), (0, 6))
    weights = [b.matrices[0].weight.clone() for b in network.branches]
    assert not any(
        torch.equal(w, b.matrices[0].weight) for w, b in zip(weights, other.branches, strict=True)
    )


def test_a_constant_rate_leaves_keys_and_bits_as_they_were():
    plain = cell(-5.0, steps=6)
    assert "schedule" not in plain.to_json()
    assert "warmup" not in plain.to_json()
    wanted = scheduled(plain, "linear", 0.25)
    assert wanted.key != plain.key
    assert Cell.from_json(wanted.to_json()) == wanted
    assert factors_of(plain) == [1.0] * 6
    assert isinstance(train(plain).losses, array)


def test_a_schedule_is_stretched_over_the_run():
    """The mean factor is that of the integral, whatever the number of steps."""
    for steps in (10, 100, 1000):
        assert np.mean(rate_factors("linear", 0.0, steps)) == pytest.approx(0.5, abs=1e-12)
        assert np.mean(rate_factors("cosine", 0.0, steps)) == pytest.approx(0.5, abs=1e-12)
    assert np.mean(rate_factors("constant", 0.2, 100)) == pytest.approx(0.9, abs=1e-12)


@pytest.mark.parametrize("warmup", [-0.1, 1.0, math.nan, "half"])
def test_a_warmup_is_a_fraction(warmup):
    with pytest.raises(ValueError, match="warmup to be a fraction"):
        schedule("linear", warmup)
