from math import sqrt

import pytest
import torch

from depthmup.data import digits
from depthmup.training.built_in import dataset as module

CLEAN = digits(label_noise=0.0)


def test_features_are_centred_before_examples_are_scaled():
    from sklearn.datasets import load_digits

    images = torch.from_numpy(load_digits().data)
    centred = images - images.mean(0)
    expected = centred / centred.square().mean(1, keepdim=True).sqrt()
    torch.testing.assert_close(CLEAN.inputs, expected.float())
    torch.testing.assert_close(CLEAN.inputs.square().mean(1), torch.ones(1797))


def test_the_file_is_read_as_scikit_learn_reads_it():
    """To the bit, layout included, as sums over examples follow it."""
    from sklearn.datasets import load_digits

    for found, expected in zip(module._shipped(), load_digits(return_X_y=True), strict=True):
        assert (found == expected).all()
        assert found.strides == expected.strides
        assert found.dtype == expected.dtype


def test_a_known_fraction_of_labels_is_drawn_anew():
    """A redrawn label keeps its value with probability 1/10; 4 sigma of a binomial."""
    changed = (digits(label_noise=0.3).labels != CLEAN.labels).double().mean().item()
    p = 0.3 * 0.9
    assert abs(changed - p) < 4 * sqrt(p * (1 - p) / 1797)
    assert torch.equal(digits(label_noise=0.0).labels, CLEAN.labels)


def test_the_noise_is_the_same_every_time_and_another_with_another_seed():
    assert torch.equal(digits().labels, digits().labels)
    other = digits(generator=torch.Generator().manual_seed(1))
    assert not torch.equal(digits().labels, other.labels)


def test_batches_are_drawn_with_replacement_and_seeded():
    def draw(seed):
        return CLEAN.batches(50, 64, torch.Generator().manual_seed(seed))

    assert draw(0).shape == (50, 64)
    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    assert draw(0).min() >= 0
    assert draw(0).max() < 1797
    assert len(draw(0).flatten().unique()) < 50 * 64


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_label_noise_is_a_fraction(wrong):
    with pytest.raises(ValueError, match=r"fraction in \[0, 1\]; got"):
        digits(label_noise=wrong)
