"""The official files of MNIST and CIFAR-10: names and checksums, and the rejection of others."""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from depthmup.records.grammar import either
from depthmup.training.built_in.formats import contents

Split = Literal["train", "test"]

# SHA-256 of the unpacked files.
MNIST_FILES: dict[Split, dict[str, str]] = {
    "train": {
        "train-images-idx3-ubyte": (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
        ),
        "train-labels-idx1-ubyte": (
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
        ),
    },
    "test": {
        "t10k-images-idx3-ubyte": (
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
        ),
        "t10k-labels-idx1-ubyte": (
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
        ),
    },
}
# MD5, as published beside this version.
CIFAR10_BINARY: dict[Split, dict[str, str]] = {
    "train": {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    },
    "test": {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
}
# SHA-256.
CIFAR10_PYTHON: dict[Split, dict[str, str]] = {
    "train": {
        "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
        "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
        "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
        "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
        "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    },
    "test": {"test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"},
}


def lacking(wanted: Collection[str], present: Collection[str]) -> str:
    """Which files are missing, in words."""
    names = [name for name in wanted if name not in present]
    if len(names) == len(wanted):
        return "none of them is there"
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"


def read(
    paths: Mapping[str, Path], checksums: Mapping[str, str], verify: bool
) -> dict[Path, bytes]:
    """The unpacked contents of files by path, in the order of their official names."""
    files = {}
    for name, expected in checksums.items():
        path = paths[name]
        raw = contents(path)
        # A digest in hexadecimal tells its algorithm by its length. It guards against damage: MD5
        # will do, also where it is forbidden for security.
        algorithm = {32: "md5", 64: "sha256"}[len(expected)]
        got = hashlib.new(algorithm, raw, usedforsecurity=False).hexdigest()
        if verify and got != expected:
            raise ValueError(
                f"Expected {path} to be the official file, with {algorithm} checksum {expected}; "
                f"got {got}. It is damaged or another file: fetch it again. To use other data in "
                "this format, allow unverified files: "
                f"{either('verify=False', '--unverified-data')}."
            )
        files[path] = raw
    return files
