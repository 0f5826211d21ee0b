import hashlib
import sys

import pytest
import torch

from depthmup.data import hub_text, local_text, standard_library, text

SENTENCE = "Ein gutes Beispiel ist größer als tausend Worte.\n"


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def whole(found):
    """All bytes of a text, in order."""
    return bytes(torch.cat([found.train, found.validation]).tolist())


@pytest.fixture
def counting(tmp_path):
    """100 bytes of which each tells where it stands: 90 to train on, 10 to validate on."""
    file = tmp_path / "counting.txt"
    file.write_bytes(bytes(range(100)))
    return local_text(file)


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
        one, other = text("stdlib"), standard_library()
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
        with pytest.raises(ValueError, match=r"there are none .*Give a text file"):
            standard_library()


class TestLocalText:
    def test_a_file_is_read_byte_by_byte(self, tmp_path):
        file = tmp_path / "one.txt"
        file.write_text(SENTENCE * 20, encoding="utf-8")
        found = text(str(file), validation=0.25)
        assert whole(found).decode() == SENTENCE * 20
        assert len(found.validation) == round(0.25 * len(whole(found)))
        assert found.source == str(file)
        assert whole(local_text(file, limit=18)) == SENTENCE.encode()[:18]  # in the middle of ß

    def test_a_folder_in_the_order_of_paths(self, tmp_path):
        for name, content in {"b/x.txt": "2", "a.txt": "1", "c.md": "3", ".git/y.txt": "4"}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content * 10)
        assert whole(local_text(tmp_path)) == b"1" * 10 + b"2" * 10 + b"3" * 10
        assert whole(local_text(tmp_path, pattern="*.txt")) == b"1" * 10 + b"2" * 10
        with pytest.raises(ValueError, match=r"no file that matches '\*.rst'"):
            local_text(tmp_path, pattern="*.rst")

    def test_what_is_no_text(self, tmp_path):
        """It is refused where it is read; files behind the limit are not."""
        (tmp_path / "a.txt").write_text(SENTENCE)
        (tmp_path / "b.bin").write_bytes(b"ab\xffcd")
        assert whole(local_text(tmp_path, limit=20)) == SENTENCE.encode()[:20]
        with pytest.raises(ValueError, match=r"b.bin' has byte 0xff at 2\. .*pattern="):
            text(str(tmp_path))
        assert whole(local_text(tmp_path, pattern="*.txt")).decode() == SENTENCE

    @pytest.mark.parametrize("content", ["", "a"])
    def test_too_little_to_divide(self, tmp_path, content):
        (tmp_path / "short.txt").write_text(content)
        with pytest.raises(ValueError, match=f"two parts; .* has {len(content)} bytes"):
            text(str(tmp_path / "short.txt"))

    def test_bad_arguments(self, tmp_path):
        with pytest.raises(ValueError, match=r"no file or folder 'nowhere.txt'.*'hf:NAME'"):
            text("nowhere.txt")
        for validation in (0, 1, -0.1, float("nan")):
            with pytest.raises(ValueError, match="fraction between 0 and 1"):
                text(validation=validation)
        with pytest.raises(ValueError, match="limit of at least one byte; got 0"):
            standard_library(limit=0)


class TestHub:
    ROWS = [f"Story {k}: {SENTENCE}" for k in range(50)]

    @pytest.fixture
    def datasets(self):
        return pytest.importorskip("datasets", reason="pip install 'depthmup[hf]'")

    def test_a_folder_that_datasets_wrote(self, datasets, tmp_path):
        rows = datasets.Dataset.from_dict({"text": self.ROWS, "id": list(range(50))})
        rows.save_to_disk(tmp_path / "one")
        found = hub_text(str(tmp_path / "one"))
        assert whole(found).decode() == "".join(row + "\n\n" for row in self.ROWS)
        assert text(f"hf:{tmp_path / 'one'}").digest == found.digest
        assert whole(hub_text(str(tmp_path / "one"), limit=30)) == whole(found)[:30]

        both = datasets.DatasetDict({"train": rows.select([0]), "test": rows.select([1, 2])})
        both.save_to_disk(tmp_path / "both")
        found = hub_text(str(tmp_path / "both"), split="test")
        assert whole(found).decode() == "".join(row + "\n\n" for row in self.ROWS[1:3])
        with pytest.raises(ValueError, match="there is no split 'validation'; it has train, test"):
            hub_text(str(tmp_path / "both"), split="validation")

    def test_a_data_set_as_the_hub_keeps_it(self, datasets, tmp_path):
        """Parquet files in a folder, read as a stream."""
        rows = datasets.Dataset.from_dict({"story": self.ROWS, "id": list(range(50))})
        rows.to_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
        found = hub_text(str(tmp_path), column="story", limit=1000)
        assert whole(found) == "".join(row + "\n\n" for row in self.ROWS).encode()[:1000]
        with pytest.raises(ValueError, match=r"column of text named 'text'; it has story\. Pass"):
            hub_text(str(tmp_path))
        with pytest.raises(ValueError, match="named 'id'; it has story"):
            hub_text(str(tmp_path), column="id")

    def test_a_data_set_that_is_not_there(self, datasets, monkeypatch):
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        with pytest.raises(ValueError, match="'nobody/nothing' could not be loaded"):
            text("hf:nobody/nothing")

    def test_without_the_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'depthmup\[hf\]'"):
            text("hf:some/name")
