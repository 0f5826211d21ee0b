"""Engines of built-in networks against the plain loop, and themselves in other company."""

import random
from dataclasses import replace
from functools import cache
from math import log

import numpy as np
import pytest
import torch
from cells import cell, fuzz

from depthmup.records import Status
from depthmup.training import train, train_ensemble, train_native
from depthmup.training.native import compiler

RATES = (-7.0, -6.0, -5.0)

# Single precision rounds to 6e-8; twenty well-conditioned steps must stay far below this.
SAME = 1e-5

OPTIONS = [
    {},
    {"activation": "relu"},
    {"activation": "identity"},
    {"activation": "tanh"},
    {"activation": "gelu", "layer_norm": True},
    {"activation": "silu"},
    {"activation": "erf"},
    {"activation": "sin"},
    {"activation": "cos", "mean_subtraction": False},
    {"layer_norm": True},
    {"layer_norm": True, "mean_subtraction": False, "activation": "relu"},
    {"block_depth": 2, "activation": "relu"},
    {"block_depth": 2, "activation": "silu", "layer_norm": True},
    {"block_depth": 3, "activation": "tanh", "mean_subtraction": False},
    {"nonlinearity": "pre"},
    {"nonlinearity": "pre", "activation": "softplus"},
    {"nonlinearity": "pre", "block_depth": 2},
    {"nonlinearity": "pre", "activation": "tanh", "block_depth": 2, "layer_norm": True},
    {"epsilon": 1e-3},
    {"beta1": 0.5, "beta2": 0.9},
    # Smooth: with abs, an h within rounding of zero may turn a gradient's sign.
    {"name": "adamw", "weight_decay": 2.0, "activation": "tanh"},
    {"name": "adam", "weight_decay": 0.05, "activation": "tanh"},
    {"name": "sgd"},
    {"name": "sgd", "momentum": 0.9, "weight_decay": 0.05},
    {"width": 15, "batch_size": 13},
    {"width": 130, "batch_size": 70},
    {"width": 128, "depth": 2},
]


plain = cache(train)  # the loop's own records, for both engines


def by_key(records):
    return {record.cell.key: record for record in records}


def ensemble(cells, **options):
    return by_key(train_ensemble(cells, **options))


def native(cells):
    return by_key(train_native(cells))


needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
each_engine = pytest.mark.parametrize(
    "engine", [ensemble, pytest.param(native, marks=needs_compiler)]
)


def rates(options):
    """Base-2 logarithms of rates at which the loop itself agrees with double precision."""
    wide = options.get("width", 0) > 100
    return [k + (6 if options.get("name") == "sgd" else -3 if wide else 0) for k in RATES]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@each_engine
def test_agrees_with_the_plain_loop(engine, options):
    cells = [cell(k, seed=seed, **options) for k in rates(options) for seed in range(2)]
    records = engine(cells)
    for each in cells:
        assert records[each.key].status is Status.FINISHED
        np.testing.assert_allclose(records[each.key].losses, plain(each).losses, rtol=SAME)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_comparison_could_see_a_wrong_gradient(options):
    """Training moves the losses by far more than the engines may differ."""
    moved = np.asarray(plain(cell(rates(options)[-1], **options)).losses)
    still = np.asarray(plain(cell(-60.0, **options)).losses)
    assert np.abs(moved / still - 1).max() > 100 * SAME


def test_settings_that_matter_change_the_losses():
    """What the comparison above could not see if both engines ignored it."""
    base = train(cell()).losses
    for options in (
        {"activation": "relu"},
        {"layer_norm": True},
        {"mean_subtraction": False},
        {"nonlinearity": "pre"},
        {"epsilon": 1e-3},
        {"name": "adamw", "weight_decay": 2.0},
        {"name": "sgd"},
        {"multiplier": 1.0},
    ):
        assert not np.allclose(train(cell(**options)).losses, base, rtol=1e-3), options


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{}, {"width": 15, "batch_size": 13}, {"width": 64}], ids=str)
@pytest.mark.parametrize("options", [{}, {"activation": "tanh", "layer_norm": True}], ids=str)
@each_engine
def test_the_same_bits_in_any_company(engine, sizes, options):
    cells = [cell(k, seed=s, **sizes, **options) for k in RATES for s in range(3)]
    together = engine(cells)
    for company in (cells[:1], cells[4:6], cells[::-1], cells[1:8], cells):
        for key, record in engine(company).items():
            assert record == together[key]


@each_engine
def test_a_member_that_diverges_changes_no_other_by_one_bit(engine):
    calm = [cell(k, seed=s) for k in RATES for s in range(2)]
    wild = [cell(20.0, seed=s) for s in range(2)]
    alone, mixed = engine(calm), engine([*wild[:1], *calm[:3], *wild[1:], *calm[3:]])
    for each in calm:
        assert mixed[each.key] == alone[each.key]
    for each in wild:
        record = mixed[each.key]
        assert record.status is Status.DIVERGED
        assert 0 < len(record.losses) < each.steps
        assert np.isfinite(record.losses).all()
        assert record.losses[:1] == alone[calm[each.seed].key].losses[:1]


@pytest.mark.parametrize("log2_lr", [20.0, 100.0, 120.0])
@each_engine
def test_divergence_is_seen_at_the_same_step_by_the_loop(engine, log2_lr):
    """At rates that are far too large, up to one at which nothing is a number at once."""
    wild = cell(log2_lr)
    loop, record = plain(wild), engine([wild])[wild.key]
    assert loop.status is record.status is Status.DIVERGED
    assert len(loop.losses) == len(record.losses)
    assert record.last_finite_loss <= 1e3 * max(record.losses[0], log(10))


@pytest.mark.parametrize("multiplier", [1e6, 1e30])
@each_engine
def test_an_absurd_initial_loss_is_a_failure_and_is_not_trained(engine, multiplier):
    absurd, beside = (cell(multiplier=multiplier, depth=2, seed=seed) for seed in range(2))
    loop, record = plain(absurd), engine([absurd, beside])[absurd.key]
    np.testing.assert_allclose(record.losses, loop.losses, rtol=SAME)
    for each in (loop, record):
        assert each.status is Status.FAILED
        assert each.mean_loss(0, 20) == float("inf")
        assert multiplier > 1e6 or (len(each.losses) == 1 and each.losses[0] > 100 * log(10))


def test_records_come_as_soon_as_they_end():
    cells = [cell(20.0), cell(-5.0)]
    fractions = []
    records = train_ensemble(cells, on_progress=fractions.append)
    assert next(records).status is Status.DIVERGED
    assert len(fractions) < cells[0].steps
    assert next(records).status is Status.FINISHED
    assert fractions[-1] == 1.0


def test_cells_that_do_not_belong_together():
    with pytest.raises(ValueError, match=r"may differ in learning rate.*only"):
        list(train_ensemble([cell(), cell(depth=5)]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long(slice=False))])
@pytest.mark.parametrize("multiple", [1, 16], ids=["one by one", "stacked"])
def test_fuzzed_shapes_and_members_agree_with_double_precision(multiple, seed):
    rng = random.Random(seed)
    for first in fuzz(20 if seed == 0 else 100, seed, multiple=multiple):
        cells = [
            replace(first, seed=first.seed + i, optimizer=replace(first.optimizer, lr=lr))
            for i, lr in enumerate(first.optimizer.lr / 2**k for k in range(rng.randint(1, 5)))
        ]
        records = ensemble(cells)
        for each in cells:
            exact = train(each, dtype=torch.float64)
            result = records[each.key]
            assert result.status is exact.status, each
            np.testing.assert_allclose(result.losses, exact.losses, rtol=SAME, err_msg=str(each))


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"activation": "relu", "block_depth": 2}], ids=str)
@each_engine
def test_windows_agree_over_a_long_run(engine, options):
    """Beyond some tens of steps rounding is amplified: judge windows, not steps."""
    cells = [cell(k, depth=8, width=32, steps=300, **options) for k in (-8.0, -7.0)]
    records = engine(cells)
    for each in cells:
        a, b = records[each.key].mean_loss(240, 300), plain(each).mean_loss(240, 300)
        assert a == pytest.approx(b, rel=0.01)


@pytest.mark.long
def test_double_precision_tells_rounding_from_error():
    """An engine is no further from exact arithmetic than the plain loop is."""
    each = cell(-6.0, depth=16, width=32)
    exact = np.asarray(train(each, dtype=torch.float64).losses)
    loop = np.abs(np.asarray(plain(each).losses) - exact).max()
    for engine in (ensemble, *([native] if compiler() else [])):
        result = np.abs(np.asarray(engine([each])[each.key].losses) - exact).max()
        assert result < 3 * loop + 1e-6
