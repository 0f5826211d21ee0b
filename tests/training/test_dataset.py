import pytest
import torch

from depthmup.data import Dataset

TEN = Dataset(inputs=torch.zeros(10, 2), labels=torch.arange(10) % 3, classes=3)


def draw(steps, batch_size, seed=0):
    return TEN.epochs(steps, batch_size, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("batch_size", [2, 4, 25])
def test_every_epoch_shows_every_example_once(batch_size):
    """Also where batches lie across epochs, and where they are larger than the data set."""
    steps = 3 * 100 // batch_size
    epochs = draw(steps, batch_size).flatten().reshape(30, 10)
    assert torch.equal(epochs.sort(1).values, torch.arange(10).expand(30, 10))


def test_every_epoch_is_shuffled_anew():
    epochs = draw(20, 10)
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 20


def test_a_longer_run_begins_with_a_shorter_one_and_seeds_differ():
    assert draw(7, 3).shape == (7, 3)
    assert torch.equal(draw(17, 3)[:7], draw(7, 3))
    assert torch.equal(draw(7, 3), draw(7, 3))
    assert not torch.equal(draw(7, 3), draw(7, 3, seed=1))
