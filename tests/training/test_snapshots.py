"""Networks as they train: the losses they have are those that their records hold."""

from dataclasses import replace

import pytest
import torch
from cells import cell
from pytest import approx
from torch.nn import functional

from depthmup.training import batches, build, dataset, train, trained
from depthmup.training.native import compiler

ENGINES = [
    pytest.param("native", marks=pytest.mark.skipif(compiler() is None, reason="no C compiler")),
    "reference",
]


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setenv("DEPTHMUP_ENGINE", request.param)


def loss_at(model, cell, step):
    data, chosen = dataset(cell.data), batches(cell)[step]
    with torch.no_grad():
        return float(functional.cross_entropy(model(data.inputs[chosen]), data.labels[chosen]))


@pytest.mark.parametrize("block_depth", [1, 2])
@pytest.mark.usefixtures("engine")
def test_the_network_after_t_steps_has_the_loss_of_step_t(block_depth):
    one = cell(steps=12, block_depth=block_depth, width=15)  # rows are padded in the kernel
    losses = train(one).losses
    at = (0, 1, 5, 11)
    # Rounding over eleven steps; a step more or less would change the loss by a percent.
    result = [loss_at(model, one, t) for t, model in zip(at, trained(one, at), strict=True)]
    assert result == approx([losses[t] for t in at], rel=1e-5)
    assert abs(losses[11] / losses[10] - 1) > 1e-3


@pytest.mark.usefixtures("engine")
def test_zero_steps_are_the_initial_weights_and_gradients_are_clear():
    one = cell(steps=2)
    (first,) = trained(one, (0,))
    for ours, initial in zip(first.parameters(), build(one).parameters(), strict=True):
        assert torch.equal(ours, initial)
    (last,) = trained(one, (2,))
    assert all(p.grad is None for p in last.parameters())


@pytest.mark.usefixtures("engine")
def test_training_that_diverges_ends_early():
    wild = cell(4.0, steps=20)
    reached = len(train(wild).losses)
    assert reached < 20
    assert len(list(trained(wild, (0, reached, 20)))) == 2
    absurd = replace(wild, network=replace(wild.network, readout_std=1e4))
    assert len(list(trained(absurd, (0, 20)))) == 1


@pytest.mark.parametrize("at", [(), (3, 2), (-1,), (2, 2), (21,)])
def test_steps_that_are_no_steps_of_the_run_are_refused(at):
    with pytest.raises(ValueError, match="increasing numbers of steps from 0 to 20"):
        list(trained(cell(steps=20), at))
