"""Converted learning rates: optimizers take the same steps."""

import math
from itertools import permutations

import pytest
import torch
from pytest import approx

from depthmup.rules import Family, converted_lr
from depthmup.rules.conventions import SCALES

SHAPES = [(8, 32), (32, 8), (16, 16)]


def moved(lr, shape, adjust):
    """A matrix after three steps of torch's Muon."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(shape))
    optimizer = torch.optim.Muon([weight], lr=lr, weight_decay=0.0, adjust_lr_fn=adjust)
    for _ in range(3):
        weight.grad = torch.randn(shape)
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_two_forms_of_torchs_muon_take_the_same_steps(shape):
    lr = converted_lr(0.02, shape, given="muon", wanted="muon-rms")
    expected = moved(0.02, shape, "original")
    assert torch.allclose(moved(lr, shape, "match_rms_adamw"), expected, atol=1e-6)
    assert not torch.allclose(moved(0.02, shape, "match_rms_adamw"), expected, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_that_keeps_the_norm_is_as_long(shape):
    """|W| U V^T / |U V^T| against sqrt(rows/columns) U V^T."""
    u, _, v = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    step, norm = u @ v, 3.7
    lr = converted_lr(0.01, shape, given="dion", wanted="muonh", norm=norm)
    rows, columns = shape
    ours, theirs = lr * norm * step / step.norm(), 0.01 * math.sqrt(rows / columns) * step
    assert torch.allclose(ours, theirs, rtol=1e-12)


def test_an_adam_step_has_entries_like_those_of_the_form_matched_to_it():
    """U V^T with its 0.2 sqrt(max(rows, columns)) has a root mean square of 0.2."""
    u, _, v = torch.linalg.svd(torch.randn(24, 60), full_matrices=False)
    step = SCALES[Family.SPECTRAL_RMS](24, 60) * u @ v
    assert step.square().mean().sqrt().item() == approx(0.2, rel=1e-5)
    assert converted_lr(3e-4, (24, 60), given="adamw", wanted="muon-rms") == 3e-4


def test_there_and_back():
    for one, other in permutations(["muon", "muon-rms", "dion", "spectral-unit", "muonh"], 2):
        there = converted_lr(0.02, (8, 32), given=one, wanted=other, norm=2.0)
        assert converted_lr(there, (8, 32), given=other, wanted=one, norm=2.0) == approx(0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"given": "sgd"}, "a multiple of U V\\^T, or AdamW; got 'sgd', of the family raw"),
        ({"wanted": "shampoo2"}, "Tune its rate by itself"),
        ({"wanted": "muonh"}, "Give it: norm=weight.norm"),
        ({"lr": 0.0}, "a positive learning rate; got 0.0"),
        ({"shape": (4,)}, "the rows and columns of a matrix; got \\(4,\\)"),
        ({"shape": (4, 0)}, "the rows and columns"),
    ],
)
def test_what_cannot_be_converted_is_refused(options, message):
    settings = {"lr": 0.02, "shape": (8, 4), "given": "muon", "wanted": "dion", **options}
    with pytest.raises(ValueError, match=message):
        converted_lr(settings.pop("lr"), settings.pop("shape"), **settings)
