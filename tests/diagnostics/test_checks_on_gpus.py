"""Checks and predictions of models on a CUDA device, which ``simulated_cuda`` simulates."""

import own_models
import pytest
import torch
from pytest import approx
from simulated_cuda import machine

import depthmup
from depthmup import Model

SIZES = {"widths": (16, 32, 64), "depths": (2, 4, 8), "seeds": 2, "steps": 2}


def on_cuda(width, depth):
    return own_models.make(width, depth).cuda()


def batch_on_cuda(generator):
    x, y = own_models.batch(generator)
    return x.cuda(), y.cuda()


def slopes(found):
    return {(e.observable, e.module, e.axis): e.estimate.value for e in found.exponents}


def checked(make, batch):
    return depthmup.check(Model(make, batch=batch, version="1"), scheme="completep", **SIZES)


@pytest.mark.long
@pytest.mark.parametrize("batch", [own_models.batch, batch_on_cuda], ids=["host", "gpu"])
def test_a_check_has_the_slopes_of_the_cpu_wherever_batches_are(batch):
    expected = checked(own_models.make, own_models.batch)
    with machine() as simulated:
        torch.zeros(1, device="cuda")  # before it is used, a GPU has no random state to keep
        torch.cuda.manual_seed_all(123)
        before = simulated.generators[0].get_state()
        found = checked(on_cuda, batch)
        assert torch.equal(simulated.generators[0].get_state(), before)
    assert found.verdict == expected.verdict
    assert slopes(found) == approx(slopes(expected), abs=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("batch", [own_models.batch, batch_on_cuda], ids=["host", "gpu"])
def test_a_prediction_has_the_numbers_of_the_cpu(batch):
    def predicted(make, batch):
        model = Model(make, batch=batch, version="1")
        options = {"base": (16, 2), "depths": (4, 8), "seeds": 2, "batches": 1}
        return depthmup.predict(model, optimizer="sgd", scheme="completep", **options)

    expected = predicted(own_models.make, own_models.batch)
    with machine():
        found = predicted(on_cuda, batch)
    (one,), (other,) = found.axes, expected.axes
    assert [at.size for at in one.sizes] == [{"width": 16, "depth": d} for d in (2, 4, 8)]
    values = [[at.octaves.value for at in axis.sizes] for axis in (one, other)]
    assert values[0] == approx(values[1], abs=1e-4)
