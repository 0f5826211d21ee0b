"""MNIST and CIFAR-10, from the files in which they were published or from Hugging Face."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from depthmup.records.packages import pip
from depthmup.training.built_in.dataset import Dataset
from depthmup.training.built_in.formats import Bytes, cifar_pickle, cifar_rows, idx
from depthmup.training.built_in.official import (
    CIFAR10_BINARY,
    CIFAR10_PYTHON,
    MNIST_FILES,
    Split,
    lacking,
    read,
)

CLASSES = 10
HUB = "hf"
"""In the place of a folder: the files of Hugging Face."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """``pixels`` (examples, features) and ``labels`` (examples,), bytes as they were published."""

    pixels: Bytes
    labels: Bytes

    @property
    def digest(self) -> str:
        """A hash of the content, whatever files it came in."""
        # The shape first: arrays of other shapes may hold the same bytes.
        content_hash = hashlib.sha256(repr(self.pixels.shape).encode())
        content_hash.update(np.ascontiguousarray(self.pixels).data)
        content_hash.update(np.ascontiguousarray(self.labels).data)
        return content_hash.hexdigest()[:32]


def mnist_images(folder: Path, *, split: Split, verify: bool) -> Images:
    """MNIST's images of 28 x 28 pixels, from IDX files, compressed (.gz) or not; see ``images``."""
    files = MNIST_FILES[split]
    # torchvision's folders, and the names that some mirrors unpack to.
    folders = [folder, folder / "raw", folder / "MNIST" / "raw"]
    paths = {}
    for name in files:
        aliases = (name, name.replace("-idx", ".idx"))
        candidates = (p / f"{a}{end}" for p, a, end in product(folders, aliases, ("", ".gz")))
        if path := next(filter(Path.is_file, candidates), None):
            paths[name] = path
    if len(paths) < len(files):
        raise ValueError(
            f"Expected the {split} files of MNIST in {folder}: {' and '.join(files)}, compressed "
            f"(.gz) or not; {lacking(files, paths)}. The official files are at "
            "https://ossci-datasets.s3.amazonaws.com/mnist/, a mirror of yann.lecun.com."
        )
    (pixels_path, pixels_raw), (labels_path, labels_raw) = read(paths, files, verify).items()
    pixels = idx(pixels_raw, dimensions=3, of=pixels_path)
    labels = idx(labels_raw, dimensions=1, of=labels_path)
    if pixels.shape[1:] != (28, 28):
        raise ValueError(
            f"Expected {pixels_path} to hold images of 28 x 28; they are of "
            f"{' x '.join(map(str, pixels.shape[1:]))}."
        )
    return _checked(pixels.reshape(len(pixels), 28 * 28), labels, of=folder)


def cifar10_images(folder: Path, *, split: Split, verify: bool) -> Images:
    """CIFAR-10's images of 3 x 32 x 32, of the binary or the Python version; see ``images``."""
    versions = (
        (CIFAR10_BINARY[split], "cifar-10-batches-bin", cifar_rows),
        (CIFAR10_PYTHON[split], "cifar-10-batches-py", cifar_pickle),
    )
    most: Mapping[str, Path] = {}
    for files, subfolder, reader in versions:
        for directory in (folder, folder / subfolder):
            paths = {name: directory / name for name in files if (directory / name).is_file()}
            if len(paths) == len(files):
                batches = [reader(raw, of=p) for p, raw in read(paths, files, verify).items()]
                pixels, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
                return _checked(pixels, labels, of=folder)
            # For the message: the version of which most files are there is the one that was meant.
            most = max(most, paths, key=len)
    binary, python = (list(files) for files, _, _ in versions)
    wanted = binary if not most or most.keys() <= set(binary) else python
    archives = [path.name for path in folder.glob("cifar-10-*.tar.gz")]
    raise ValueError(
        f"Expected the {split} files of CIFAR-10 in {folder}: {', '.join(binary)} (binary version) "
        f"or {', '.join(python)} (Python version); "
        + (f"unpack {archives[0]} there. " if archives else f"{lacking(wanted, most)}. ")
        + "The official archives are at https://www.cs.toronto.edu/~kriz/cifar.html."
    )


def hub_images(name: str, *, split: Split) -> Images:
    """A data set of the Hugging Face hub, downloaded once by the package ``datasets``."""
    try:
        import datasets
        import PIL  # noqa: F401 - or reading the first image would fail, after all are fetched
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Images of Hugging Face need the packages datasets and pillow, which could not be "
            f"imported ({error}): {pip()} install 'depthmup[hf]', or name a folder with the files."
        ) from error
    repository, column = {
        "mnist": ("ylecun/mnist", "image"),
        "cifar10": ("uoft-cs/cifar10", "img"),
    }[name]
    rows = datasets.load_dataset(repository, split=split)
    pixels = np.stack([np.asarray(image, np.uint8) for image in rows[column]])
    if pixels.ndim == 4:  # published as planes of one colour each
        pixels = pixels.transpose(0, 3, 1, 2)
    labels = np.asarray(rows["label"], np.uint8)
    return _checked(pixels.reshape(len(pixels), -1), labels, of=f"{repository} of Hugging Face")


READERS = {"mnist": mnist_images, "cifar10": cifar10_images}


def images(name: str, source: str | Path, *, split: Split = "train", verify: bool = True) -> Images:
    """A data set's images as they were published.

    Args:
        name: mnist or cifar10.
        source: the folder with the files, or ``"hf"`` for the Hugging Face hub.
        split: which part.
        verify: reject files whose checksum is not the official one.

    Raises:
        ValueError: files are missing (says which), damaged, or not the official ones.
    """
    if name not in READERS:
        raise ValueError(f"Expected a data set of {', '.join(READERS)}; got {name!r}.")
    if str(source) == HUB:
        return hub_images(name, split=split)
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"Expected a folder with the files of {name}, or {HUB!r}; {folder} is not one."
        )
    return READERS[name](folder, split=split, verify=verify)


def prepared(raw: Images, *, mean: Tensor | None = None) -> Dataset:
    """Images prepared like the digits: features centred, then examples scaled to mean square one.

    ``mean`` (features,) is that of the training set; by default that of ``raw``.

    Raises:
        ValueError: an example equals the mean image, so that it cannot be scaled.
    """
    mean = feature_mean(raw) if mean is None else mean
    inputs = torch.empty(raw.pixels.shape)
    for start in range(0, len(inputs), 1024):  # double precision a part at a time
        part = torch.tensor(raw.pixels[start : start + 1024], dtype=torch.float64) - mean
        rms = part.square().mean(1, keepdim=True).sqrt()
        if not bool(rms.all()):
            which = start + int((rms == 0).nonzero()[0, 0])
            raise ValueError(
                f"Expected examples that differ from their mean; example {which} of {len(inputs)} "
                "does not, and cannot be scaled to mean square one. Leave it out."
            )
        inputs[start : start + 1024] = part / rms
    labels = torch.tensor(raw.labels, dtype=torch.int64)
    return Dataset(inputs=inputs, labels=labels, classes=CLASSES)


def feature_mean(raw: Images) -> Tensor:
    """The mean over examples, (features,), in double precision."""
    return torch.from_numpy(raw.pixels.mean(0, dtype=np.float64))


def mnist(source: str | Path, *, split: Split = "train", verify: bool = True) -> Dataset:
    """MNIST, prepared like the digits: 60000 (test: 10000) examples of 784 features.

    The test set has the training set's mean subtracted.

    Args:
        source: a folder with the official IDX files, compressed or not, or ``"hf"``.
        split: which part.
        verify: reject files whose checksum is not the official one.

    Raises:
        ValueError: files are missing, damaged, or not the official ones.

    *Source:* LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/.
    """
    return _split("mnist", source, split, verify)


def cifar10(source: str | Path, *, split: Split = "train", verify: bool = True) -> Dataset:
    """CIFAR-10, prepared like the digits: 50000 (test: 10000) examples of 3072 features.

    The test set has the training set's mean subtracted.

    Args:
        source: a folder with the official batches, binary or Python version, or ``"hf"``.
        split: which part.
        verify: reject files whose checksum is not the official one.

    Raises:
        ValueError: files are missing, damaged, or not the official ones.

    *Source:* Krizhevsky, "Learning multiple layers of features from tiny images" (2009),
    https://www.cs.toronto.edu/~kriz/cifar.html.
    """
    return _split("cifar10", source, split, verify)


def _split(name: str, source: str | Path, split: Split, verify: bool) -> Dataset:
    train = images(name, source, verify=verify)
    if split == "train":
        return prepared(train)
    # The training set's mean, as a network that was trained on it expects.
    return prepared(images(name, source, split=split, verify=verify), mean=feature_mean(train))


def _checked(pixels: Bytes, labels: Bytes, *, of: object) -> Images:
    if not len(pixels) or len(pixels) != len(labels):
        raise ValueError(
            f"Expected as many images as labels in {of}, at least one; got {len(pixels)} images "
            f"and {len(labels)} labels. The files do not belong together: fetch them again."
        )
    if labels.max() >= CLASSES:
        raise ValueError(
            f"Expected labels 0 to {CLASSES - 1} in {of}; got {labels.max()}. Fetch it again."
        )
    return Images(pixels=pixels, labels=labels)
