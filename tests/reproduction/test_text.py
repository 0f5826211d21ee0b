import hashlib
import sys

import pytest
import torch

from reproduction import text
from reproduction.text import Text, standard_library


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def counting():
    """90 bytes of which each tells where it stands."""
    return Text(train=torch.arange(90, dtype=torch.uint8), source="counting", digest="")


class TestBatches:
    def test_every_window_and_no_other_is_drawn(self, counting):
        """In 1000 draws each of 86 starts is missed with probability (85/86)^1000 = 8e-6."""
        inputs, targets = counting.batch(seeded(), 1000, 4)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs, inputs[:, :1] + torch.arange(4))
        assert torch.equal(targets, inputs + 1)
        assert inputs[:, 0].unique().tolist() == list(range(86))
        assert targets.max() == 89

    def test_the_generator_alone_decides(self, counting):
        first, again = (counting.batch(seeded(), 8, 4)[0] for _ in range(2))
        assert torch.equal(first, again)
        generator = seeded()
        counting.batch(generator, 8, 4)
        assert not torch.equal(counting.batch(generator, 8, 4)[0], first)
        assert not torch.equal(counting.batch(seeded(1), 8, 4)[0], first)

    def test_one_window_is_enough_and_one_byte_less_is_not(self, counting):
        assert counting.batch(seeded(), 1, 89)[0][0].tolist() == list(range(89))
        with pytest.raises(ValueError, match=r"at least 91 bytes.*counting has 90"):
            counting.batch(seeded(), 1, 90)

    def test_bad_arguments(self, counting):
        for sizes in ((0, 4), (1, 0)):
            with pytest.raises(ValueError, match="at least one window of one byte"):
                counting.batch(seeded(), *sizes)


class TestStandardLibrary:
    def test_it_is_the_source_of_modules(self, monkeypatch):
        """All of it holds modules of every kind, and neither site-packages nor tests."""
        import asyncio.events
        import inspect
        import unittest.mock

        import numpy.random

        joined, read = text._joined, []
        monkeypatch.setattr(text, "LIMIT", 10**9)
        monkeypatch.setattr(text, "_joined", lambda parts: read.append(joined(parts)) or read[0])
        standard_library()
        [found] = read
        for module in (asyncio.events, inspect, unittest.mock, hashlib):
            assert inspect.getsource(module).encode() in found
        assert inspect.getsource(numpy.random).encode() not in found

    def test_it_is_the_same_text_every_time(self, monkeypatch):
        one, other = standard_library(), standard_library()
        assert one.digest == other.digest
        assert len(one.train) == 3_600_000
        assert sys.version.split()[0] in one.source
        monkeypatch.setattr(text, "LIMIT", 1000)
        short = standard_library()
        assert torch.equal(short.train, one.train[:900])
        assert short.digest == hashlib.sha256(bytes(one.train[:1000].tolist())).hexdigest()

    def test_a_python_without_sources(self, monkeypatch, tmp_path):
        monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
        with pytest.raises(ValueError, match=r"there are none .*another installation"):
            standard_library()
