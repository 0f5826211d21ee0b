import hashlib
import sys

import pytest
import torch

from reproduction.text import Text, standard_library


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def whole(found):
    """All bytes of a text, in order."""
    return bytes(torch.cat([found.train, found.validation]).tolist())


@pytest.fixture
def counting():
    """100 bytes of which each tells where it stands: 90 to train on, 10 to validate on."""
    data = torch.arange(100, dtype=torch.uint8)
    return Text(train=data[:90], validation=data[90:], source="counting", digest="")


class TestBatches:
    def test_every_window_and_no_other_is_drawn(self, counting):
        """In 1000 draws each of 86 starts is missed with probability (85/86)^1000 = 8e-6."""
        inputs, targets = counting.batch(seeded(), 1000, 4)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs, inputs[:, :1] + torch.arange(4))
        assert torch.equal(targets, inputs + 1)
        assert inputs[:, 0].unique().tolist() == list(range(86))
        assert targets.max() == 89

    def test_no_window_crosses_into_the_validation_part(self, counting):
        """1000 draws of 6 windows: one is missed with probability 1e-78."""
        inputs, targets = counting.batch(seeded(), 1000, 4, "validation")
        assert inputs[:, 0].unique().tolist() == list(range(90, 96))
        assert targets.max() == 99

    def test_the_generator_alone_decides(self, counting):
        first, again = (counting.batch(seeded(), 8, 4)[0] for _ in range(2))
        assert torch.equal(first, again)
        generator = seeded()
        counting.batch(generator, 8, 4)
        assert not torch.equal(counting.batch(generator, 8, 4)[0], first)
        assert not torch.equal(counting.batch(seeded(1), 8, 4)[0], first)

    def test_one_window_is_enough_and_one_byte_less_is_not(self, counting):
        assert counting.batch(seeded(), 1, 9, "validation")[0][0].tolist() == list(range(90, 99))
        with pytest.raises(
            ValueError, match=r"at least 11 bytes.*the validation part of .* has 10"
        ):
            counting.batch(seeded(), 1, 10, "validation")

    def test_bad_arguments(self, counting):
        with pytest.raises(ValueError, match="'train' or 'validation'; got 'test'"):
            counting.batch(seeded(), 1, 4, "test")
        for sizes in ((0, 4), (1, 0)):
            with pytest.raises(ValueError, match="at least one window of one byte"):
                counting.batch(seeded(), *sizes)


class TestStandardLibrary:
    def test_it_is_the_source_of_modules(self):
        """All of it holds modules of every kind, and neither site-packages nor tests."""
        import asyncio.events
        import inspect
        import unittest.mock

        import numpy.random

        found = whole(standard_library(limit=10**9))
        for module in (asyncio.events, inspect, unittest.mock, hashlib):
            assert inspect.getsource(module).encode() in found
        assert inspect.getsource(numpy.random).encode() not in found

    def test_it_is_the_same_text_every_time(self):
        one, other = standard_library(), standard_library()
        assert one.digest == other.digest == hashlib.sha256(whole(one)).hexdigest()
        assert len(whole(one)) == 4_000_000
        assert len(one.validation) == 400_000
        assert whole(standard_library(limit=1000)) == whole(one)[:1000]
        assert standard_library(limit=1000).digest != one.digest
        assert sys.version.split()[0] in one.source

    def test_the_validation_part_resembles_the_training_part(self):
        """Predicted from the two bytes before, it costs 4% more; in alphabetical order, 12%."""
        found = standard_library()

        def triples(part):
            byte = part.long()
            return (byte[:-2] * 256 + byte[1:-1]) * 256 + byte[2:]

        counts = torch.bincount(triples(found.train), minlength=256**3)
        before = counts.view(256**2, 256).sum(1)

        def cost(part):  # nats per byte, each byte counted 0.01 times more than seen
            codes = triples(part)
            return -((counts[codes] + 0.01) / (before[codes // 256] + 2.56)).log().mean()

        assert cost(found.validation) / cost(found.train) - 1 < 0.07

    def test_a_python_without_sources(self, monkeypatch, tmp_path):
        monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
        with pytest.raises(ValueError, match=r"there are none .*another installation"):
            standard_library()

    def test_bad_arguments(self):
        for validation in (0, 1, -0.1, float("nan")):
            with pytest.raises(ValueError, match="fraction between 0 and 1"):
                standard_library(validation=validation)
        with pytest.raises(ValueError, match="limit of at least one byte; got 0"):
            standard_library(limit=0)
        with pytest.raises(ValueError, match=r"two parts; .* has 1 bytes"):
            standard_library(limit=1)
