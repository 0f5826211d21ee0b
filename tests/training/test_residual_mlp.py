import pytest
import torch

from depthmup.models import ResidualMLP


def network(**options):
    torch.manual_seed(0)
    sizes = {"inputs": 5, "width": 12, "depth": 3, "outputs": 4}
    return ResidualMLP(**{**sizes, **options}).double()


def centred(u):
    return u - u.mean(-1, keepdim=True)


X = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_papers_network():
    """x^l = x^(l-1) + multiplier MS(phi(W x)), f = V^T x^L, written out."""
    model = network(multiplier=0.3)
    x = X @ model.input.weight.T
    for branch in model.branches:
        x = x + 0.3 * centred((x @ branch.matrices[0].weight.T).abs())
    torch.testing.assert_close(model(X), x @ model.readout.weight.T)


def test_pre_nonlinearity_block_of_two():
    model = network(block_depth=2, nonlinearity="pre", activation_name="tanh", depth=1)
    x = X @ model.input.weight.T
    first, second = (m.weight for m in model.branches[0].matrices)
    x = x + centred((x.tanh() @ first.T).tanh() @ second.T)
    torch.testing.assert_close(model(X), x @ model.readout.weight.T)


def test_layer_norm_and_no_mean_subtraction():
    model = network(layer_norm=True, mean_subtraction=False, activation_name="relu", depth=1)
    x = X @ model.input.weight.T
    normalized = centred(x) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    x = x + (normalized @ model.branches[0].matrices[0].weight.T).relu()
    torch.testing.assert_close(model(X), x @ model.readout.weight.T)


@pytest.mark.parametrize("size", ["inputs", "width", "depth", "outputs", "block_depth"])
def test_sizes_must_be_positive(size):
    with pytest.raises(ValueError, match=f"at least 1; got .*{size}=0"):
        network(**{size: 0})


def test_unknown_place_of_the_nonlinearity():
    with pytest.raises(ValueError, match="Expected nonlinearity 'post'"):
        network(nonlinearity="middle")
