"""Products of reduced precision: in effect, no worse than promised, and never mixed with others."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from cells import cell
from sweeps import residual
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional

from depthmup.records import Cell, Status
from depthmup.sweep import InProcess, Store, Sweep, run
from depthmup.training import batches, build, dataset, train, train_ensemble, train_native
from depthmup.training.cells import optimizer_of
from depthmup.training.precision import RoundedLinear, multiply, single_precision

HALF_ULP = 2.0**-9  # of bf16: eight bits, the first of them implied

OPTIONS = [
    {},
    {"activation": "tanh"},
    {"block_depth": 2, "activation": "tanh", "layer_norm": True},
    {"nonlinearity": "pre", "activation": "tanh"},
    {"name": "sgd", "activation": "tanh"},
]


def rate(options):
    return 0.0 if options.get("name") == "sgd" else -6.0


def losses(each):
    (record,) = train_ensemble([each])
    assert record.status is Status.FINISHED
    return np.asarray(record.losses)


def autocast(each):
    """The plain loop under torch's own mixed precision."""
    data, order = dataset(each.data), batches(each)
    model, outcome = build(each), []
    optimizer = optimizer_of(each, [p for p in model.parameters() if p.requires_grad])
    for step in range(each.steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = model.input(data.inputs[order[step]])
            for branch in model.branches:
                x = x.float() + model.multiplier * branch(x).float()
        loss = functional.cross_entropy(model.readout(x.float()), data.labels[order[step]])
        outcome.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return np.asarray(outcome)


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bf16_is_as_close_to_single_precision_as_autocast_is(options):
    each = cell(rate(options), width=64, depth=8, steps=60, **options)
    exact, outcome = losses(each), losses(replace(each, precision="bf16"))
    error, usual = np.abs(outcome - exact), np.abs(autocast(each) - exact)
    assert error.max() > 100 * 1e-7  # far above single precision: it is in effect
    # Both errors are random walks of one size: their root mean squares over 60 steps, strongly
    # correlated in time, agree within a factor of a few.
    assert sqrt((error**2).mean()) < 4 * sqrt((usual**2).mean())


@pytest.mark.parametrize("shape", [(3, 16, 64, 16), (1, 5, 7, 3)])
def test_a_bf16_product_has_three_roundings(shape):
    members, p, q, r = shape
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(members, *s, generator=generator, dtype=torch.float64) for s in ((p, q), (q, r))
    )
    outcome = multiply(a.float(), b.float(), "bf16")
    # Each operand is off by at most half a unit, relatively, and so is the result.
    bound = 2.02 * HALF_ULP * (a.abs() @ b.abs()) + HALF_ULP * (a @ b).abs() + 1e-6
    error = (outcome - a @ b).abs()
    assert (error <= bound).all()
    assert error.max() > 0.05 * bound.max()


def test_members_share_no_bits_in_bf16_either():
    cells = [replace(cell(k, seed=s, width=32), precision="bf16") for k in (-7, -5) for s in (0, 1)]
    together = {record.cell.key: record for record in train_ensemble(cells)}
    for company in (cells[:1], cells[1:3], cells[::-1]):
        for record in train_ensemble(company):
            assert record == together[record.cell.key]


def test_float32_is_single_precision_whatever_the_process_allows():
    each, square = cell(width=64), torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    strict, product = losses(each), square @ square
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        assert (losses(each) == strict).all()
        with single_precision():
            assert matmul.fp32_precision == "ieee"
            assert torch.equal(square @ square, product)
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = before


def test_tf32_is_allowed_for_its_own_products_alone(monkeypatch):
    """On the way up and back, of all members at once."""
    seen, cuda = [], torch.backends.cuda.matmul
    original, before = torch.Tensor.__matmul__, cuda.fp32_precision

    def matmul(a, b):
        seen.append(cuda.fp32_precision)
        return original(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", matmul)
    weights = torch.ones(3, 2, 2, requires_grad=True)
    with single_precision():
        assert not cuda.allow_bf16_reduced_precision_reduction
        for precision in ("float32", "tf32"):
            rounded = RoundedLinear(nn.Parameter(torch.ones(2, 2)), precision)
            vmap(lambda w, x, m=rounded: functional_call(m, {"weight": w}, x))(
                weights, torch.ones(3, 5, 2)
            ).sum().backward()
            assert cuda.fp32_precision == "ieee"
    assert seen == ["ieee"] * 3 + ["tf32"] * 3
    assert cuda.fp32_precision == before
    assert cuda.allow_bf16_reduced_precision_reduction


def test_precision_is_part_of_a_record_and_older_keys_stay(tmp_path):
    plain = cell()
    rounded = replace(plain, precision="bf16")
    assert plain.key != rounded.key
    assert "precision" not in plain.to_json()
    for each in (plain, rounded):
        assert Cell.from_json(each.to_json()) == each
    grid = residual(depths=(2,), base_depth=2, log2_lrs=(-3.0,), seeds=1, steps=3, window=1)
    low = replace(grid, model=replace(grid.model, precision="bf16"))
    with Store(tmp_path / "results.sqlite") as store:
        assert run(grid.runs, store=store, executor=InProcess()) == 1
        assert run(low.runs, store=store, executor=InProcess()) == 1
        assert store.get(grid.runs[0]).losses != store.get(low.runs[0]).losses
    assert Sweep.from_dict(low.to_dict()) == low


def test_the_plain_loop_rounds_as_the_stack_does():
    each = replace(cell(activation="tanh"), precision="bf16")
    np.testing.assert_allclose(train(each).losses, losses(each), rtol=1e-5)
    assert np.abs(np.asarray(train(cell(activation="tanh")).losses) - losses(each)).max() > 1e-4


def test_a_stack_is_of_one_precision():
    with pytest.raises(ValueError, match="of a group may differ"):
        list(train_ensemble([cell(), replace(cell(seed=1), precision="bf16")]))


def test_no_engine_replaces_a_precision_by_another():
    with pytest.raises(ValueError, match="on 'cpu'; got 'tf32'"):
        next(train_ensemble([replace(cell(), precision="tf32")]))
    with pytest.raises(ValueError, match="the precision 'tf32' is not in the kernel"):
        next(train_native([replace(cell(), precision="tf32")]))
    with pytest.raises(ValueError, match="on 'cpu'; got 'tf32'"):
        train(replace(cell(), precision="tf32"))
