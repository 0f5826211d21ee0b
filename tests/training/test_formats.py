"""Readers of published formats: right files read rightly, all others refused."""

import gzip
import os
import pickle
import pickletools
import random

import numpy as np
import pytest
from published import drawn, idx_bytes, python2_pickle, rows, short

from depthmup.training.built_in import formats
from depthmup.training.built_in.formats import cifar_pickle, cifar_rows, contents, idx

PIXELS, LABELS = drawn(12, 3072)


class TestIdx:
    def test_arrays_come_back(self):
        images = PIXELS[:, :6].reshape(12, 2, 3)
        np.testing.assert_array_equal(idx(idx_bytes(images), dimensions=3, of="it"), images)
        np.testing.assert_array_equal(idx(idx_bytes(LABELS), dimensions=1, of="it"), LABELS)

    @pytest.mark.parametrize("length", [0, 3, 4, 7, 8, 19])
    def test_a_file_that_is_cut_off(self, length):
        with pytest.raises(ValueError, match=r"Expected it to (be an IDX file|hold 20 bytes)"):
            idx(idx_bytes(LABELS)[:length], dimensions=1, of="it")

    def test_a_file_that_goes_on(self):
        with pytest.raises(ValueError, match=r"hold 20 bytes, .* got 21"):
            idx(idx_bytes(LABELS) + b"\0", dimensions=1, of="it")

    @pytest.mark.parametrize(
        "magic", [b"\0\0\x0d\x01", b"\0\0\x08\x03", b"\x1f\x8b\x08\x01"], ids=bytes.hex
    )
    def test_other_types_and_dimensions(self, magic):
        with pytest.raises(ValueError, match=f"beginning with 00000801; .* {magic.hex()}"):
            idx(magic + idx_bytes(LABELS)[4:], dimensions=1, of="it")

    def test_sizes_that_overflow_are_compared_exactly(self):
        """2^32 - 1 thrice is 2^96: more than a 64-bit product could say."""
        huge = bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"\0" * 100
        with pytest.raises(ValueError, match=str(16 + (2**32 - 1) ** 3)):
            idx(huge, dimensions=3, of="it")


def test_a_damaged_gzip_file(tmp_path):
    path = tmp_path / "x.gz"
    packed = gzip.compress(idx_bytes(PIXELS))
    path.write_bytes(packed)
    assert contents(path) == idx_bytes(PIXELS)
    for damaged in (packed[:-1], packed[: len(packed) // 2], b"<html>", packed[:-8] + b"\0" * 8):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            contents(path)


def test_a_gzip_file_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MOST_BYTES", 1000)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(1000)))
    assert contents(path) == bytes(1000)
    path.write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(ValueError, match="unpack to at most 1000 bytes"):
        contents(path)


class TestCifarRows:
    def test_rows_come_back(self):
        pixels, labels = cifar_rows(rows(PIXELS, LABELS), of="it")
        np.testing.assert_array_equal(pixels, PIXELS)
        np.testing.assert_array_equal(labels, LABELS)

    @pytest.mark.parametrize("length", [0, 1, 3072, 3074, 12 * 3073 - 1])
    def test_partial_rows(self, length):
        with pytest.raises(ValueError, match=f"rows of 3073 bytes; got {length} bytes"):
            cifar_rows(rows(PIXELS, LABELS)[:length], of="it")


def valid_or_refused(raw):
    """Whether a pickle is read as a batch, or refused as none."""
    try:
        pixels, labels = cifar_pickle(raw, of="it")
    except ValueError as error:
        return "Expected it to be a batch" in str(error)
    return pixels.shape == (len(labels), 3072)


class TestCifarPickle:
    """The reader runs no pickle; numpy's own is the reference for good files."""

    @pytest.mark.parametrize("fortran", [False, True])
    def test_python_2_files(self, fortran):
        raw = python2_pickle(PIXELS, LABELS, fortran=fortran)
        by_numpy = pickle.loads(raw, encoding="bytes")
        np.testing.assert_array_equal(by_numpy[b"data"], PIXELS)
        pixels, labels = cifar_pickle(raw, of="it")
        np.testing.assert_array_equal(pixels, PIXELS)
        np.testing.assert_array_equal(labels, LABELS)

    @pytest.mark.parametrize("protocol", [2, 3, 4])
    @pytest.mark.parametrize("kind", [str, str.encode])
    def test_files_that_python_3_wrote(self, protocol, kind):
        raw = pickle.dumps({kind("data"): PIXELS, kind("labels"): LABELS.tolist()}, protocol)
        pixels, labels = cifar_pickle(raw, of="it")
        np.testing.assert_array_equal(pixels, PIXELS)
        np.testing.assert_array_equal(labels, LABELS)

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("os", "system"),
            ("posix", "system"),
            ("builtins", "eval"),
            ("builtins", "getattr"),
            ("__builtin__", "getattr"),
            ("numpy", "load"),
            ("numpy", "core.multiarray._reconstruct"),
            ("numpy.core.multiarray", "scalar"),
            ("_codecs", "decode"),
            ("depthmup.training.built_in.formats", "contents"),
        ],
    )
    @pytest.mark.parametrize("opcode", ["global", "stack_global", "inst"])
    def test_anything_else_is_refused_by_name(self, module, name, opcode):
        call = {
            "global": f"c{module}\n{name}\n".encode() + short(b"x") + b"\x85R.",
            "stack_global": short(module.encode()) + short(name.encode()) + b"\x93.",
            "inst": b"(" + short(b"x") + f"i{module}\n{name}\n".encode() + b".",
        }[opcode]
        with pytest.raises(ValueError, match="do not trust it"):
            cifar_pickle(b"\x80\x04" + call, of="it")

    def test_a_malicious_file_does_nothing(self, tmp_path):
        """The same file does harm where it is unpickled as pickles usually are."""
        mark = tmp_path / "harm"

        class Harm:
            def __reduce__(self):
                return os.system, (f"touch {mark}",)

        raw = pickle.dumps({"data": PIXELS, "labels": LABELS.tolist(), "more": Harm()}, 2)
        with pytest.raises(ValueError, match=r"asks for posix.system, .* do not trust it"):
            cifar_pickle(raw, of="it")
        assert not mark.exists()
        pickle.loads(raw)
        assert mark.exists()

    @pytest.mark.parametrize(
        ("batch", "why"),
        [
            ([1, 2], "its 'data' is missing"),
            ({}, "its 'data' is missing"),
            ({"data": PIXELS}, "no list of 12 'labels'"),
            ({"data": PIXELS, "labels": [1, 2]}, "no list of 12 'labels'"),
            ({"data": PIXELS, "labels": [0.5] * 12}, "it contains BINFLOAT"),
            ({"data": PIXELS, "labels": ["3"] * 12}, "no list of 12 'labels'"),
            ({"data": PIXELS, "labels": [256] * 12}, "a label is not a whole number below 256"),
            ({"data": PIXELS.tolist(), "labels": [0] * 12}, "its 'data' is missing or another"),
            ({"data": PIXELS.astype(float), "labels": [0] * 12}, "another kind of array"),
            ({"data": PIXELS.astype("i1"), "labels": [0] * 12}, "another kind of array"),
            ({"data": PIXELS[:, :3071], "labels": [0] * 12}, "another kind of array"),
            ({"data": PIXELS.reshape(12, 3, 1024), "labels": [0] * 12}, "another kind of array"),
            ({"data": PIXELS[:0], "labels": []}, "__builtin__.bytes"),  # how Python 3 writes b""
            ({"data": np.array([None]), "labels": [0]}, "another kind of array"),
        ],
    )
    def test_other_contents(self, batch, why):
        with pytest.raises(ValueError, match=why):
            cifar_pickle(pickle.dumps(batch, 2), of="it")

    def test_an_array_whose_values_are_fewer_than_its_shape_says(self):
        raw = python2_pickle(PIXELS, LABELS)
        size = PIXELS.size.to_bytes(4, "little")
        values = PIXELS.tobytes()
        fewer = raw.replace(b"T" + size + values, b"T" + (4).to_bytes(4, "little") + values[:4])
        with pytest.raises(ValueError, match="another kind of array"):
            cifar_pickle(fewer, of="it")

    def test_numbers_that_ask_for_memory_without_end(self):
        """Python's own reader takes 10 GB for this one."""
        good = python2_pickle(PIXELS, LABELS)
        greedy = good.replace(b"q\x00", b"r\xff\xff\xff\x4f", 1)
        np.testing.assert_array_equal(cifar_pickle(greedy, of="it")[0], PIXELS)

    def test_tuples_in_tuples(self):
        """As a dictionary's key, so many would end the process that unpickles them."""
        with pytest.raises(ValueError, match="its 'data' is missing"):
            cifar_pickle(b"\x80\x02})" + b"\x85" * 200_000 + b"Ns.", of="it")

    def test_damaged_files(self):
        """Cut off anywhere or with bytes changed: read as something valid, or refused as such."""
        good = python2_pickle(PIXELS[:2], LABELS[:2])
        chance = random.Random(0)
        where = [position for _, _, position in pickletools.genops(good)]
        for end in where:
            with pytest.raises(ValueError, match="Expected it to be a batch"):
                cifar_pickle(good[:end], of="it")
        for _ in range(2000):
            damaged = bytearray(good)
            damaged[chance.choice(where)] = chance.randrange(256)
            assert valid_or_refused(bytes(damaged))
