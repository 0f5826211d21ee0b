"""Small files in the formats in which MNIST and CIFAR-10 were published, written byte by byte."""

import gzip
import struct

import numpy as np

MNIST_STEMS = {"train": "train", "test": "t10k"}


def drawn(examples, features, seed=0):
    """Pixels and labels; label i % 10, so that classes are known."""
    pixels = np.random.default_rng(seed).integers(0, 256, (examples, features), dtype=np.uint8)
    return pixels, (np.arange(examples) % 10).astype(np.uint8)


def idx_bytes(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def write_mnist(folder, *, examples=40, split="train", seed=0, packed=False, dot=False):
    """The two files of a split; the pixels and labels in them."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = drawn(examples, 784, seed)
    stem, mark = MNIST_STEMS[split], "." if dot else "-"
    for name, array in (
        (f"{stem}-images{mark}idx3-ubyte", pixels.reshape(-1, 28, 28)),
        (f"{stem}-labels{mark}idx1-ubyte", labels),
    ):
        raw = idx_bytes(array)
        path = folder / (name + ".gz" if packed else name)
        path.write_bytes(gzip.compress(raw) if packed else raw)
    return pixels, labels


def rows(pixels, labels):
    """CIFAR-10's binary version: a label byte, then 3072 pixels."""
    return np.concatenate([labels[:, None], pixels], 1).astype(np.uint8).tobytes()


def short(text):
    """A byte string as Python 2 pickles it."""
    return b"U" + bytes([len(text)]) + text


def number(value):
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def python2_pickle(pixels, labels, *, fortran=False, dtype=b"u1"):
    """CIFAR-10's Python version, opcode by opcode as Python 2's cPickle wrote it (protocol 2)."""
    examples, features = pixels.shape
    values = pixels.tobytes(order="F" if fortran else "C")
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02"
        + number(0) + b"\x85" + short(b"b") + b"\x87Rq\x03"
        + b"(" + number(1) + number(examples) + number(features) + b"\x86"
        + b"cnumpy\ndtype\nq\x04" + short(dtype) + number(0) + number(1) + b"\x87Rq\x05"
        + b"(" + number(3) + short(b"|") + b"NNN"
        + b"J\xff\xff\xff\xff" * 2 + number(0) + b"tb"
        + (b"\x88" if fortran else b"\x89")
        + b"T" + struct.pack("<i", len(values)) + values
        + b"tb"
    )  # fmt: skip
    listed = b"](" + b"".join(number(int(label)) for label in labels) + b"e"
    names = b"](" + b"".join(short(b"image_%d.png" % i) for i in range(examples)) + b"e"
    entries = (
        short(b"batch_label") + short(b"training batch 1 of 5"),
        short(b"labels") + listed,
        short(b"data") + array,
        short(b"filenames") + names,
    )
    return b"\x80\x02}q\x00(" + b"".join(entries) + b"u."


def cifar_names(split, version):
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    return [f"{name}.bin" if version == "binary" else name for name in names]


def write_cifar10(folder, *, version, examples=10, split="train", seed=0):
    """A split's batches of so many examples each; the pixels and labels in all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    write = {"binary": rows, "python": python2_pickle}[version]
    parts = []
    for i, name in enumerate(cifar_names(split, version)):
        pixels, labels = drawn(examples, 3072, seed + i)
        (folder / name).write_bytes(write(pixels, labels))
        parts.append((pixels, labels))
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
