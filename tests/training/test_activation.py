import pytest
import torch

from depthmup.models import ACTIVATIONS, activation
from depthmup.sweep import built_in

POINTS = torch.tensor([-3.0, -1.1, -0.4, 0.3, 0.9, 2.5], dtype=torch.float64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivative_is_that_of_autograd(name):
    phi, h = activation(name), POINTS.clone().requires_grad_()
    (expected,) = torch.autograd.grad(phi.function(h).sum(), h, allow_unused=True)
    torch.testing.assert_close(phi.derivative(POINTS), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_out_form_gives_the_same_bits(name):
    phi, buffer = activation(name), torch.full_like(POINTS, torch.nan)
    for f in (phi.function, phi.derivative):
        assert f(POINTS, out=buffer) is buffer
        assert torch.equal(buffer, f(POINTS))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_homogeneous_means_that_positive_factors_pass_through(name):
    phi, scale = activation(name), 3.7
    passes = torch.allclose(phi.function(scale * POINTS), scale * phi.function(POINTS))
    assert passes == phi.homogeneous


def test_unknown_activation():
    with pytest.raises(ValueError, match=r"Expected an activation .*abs.*got 'swich'"):
        activation("swich")


def test_the_names_that_grids_accept_are_those_that_exist():
    assert set(built_in.ACTIVATIONS) == set(ACTIVATIONS)
