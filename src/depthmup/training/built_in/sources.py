"""Where data files lie on this machine; cells name data by content, with a digest.

Folders are in the environment, ``DEPTHMUP_MNIST`` and ``DEPTHMUP_CIFAR10``, so that workers inherit
them; on the other machines of a cluster they have to be set there. The digest in the cell makes
sure that all of them train on the same data.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from depthmup.records import Data

if TYPE_CHECKING:
    from depthmup.training.built_in.dataset import Dataset

ELSEWHERE = ("mnist", "cifar10")
# Without label noise networks of the sizes swept here fit 1,797 digits within the run, and a curve
# of vanishing losses has no valley.
DIGITS_NOISE = 0.3


def variable(name: str) -> str:
    """The environment variable with the folder of a data set's files, or ``hf``."""
    return f"DEPTHMUP_{name.upper()}"


def find_data(spec: str, *, label_noise: float | None = None, verify: bool = True) -> Data:
    """The data that a string names, read once to check them; the environment notes their folder."""
    name, _, source = spec.partition(":")
    if name not in ELSEWHERE:
        if spec != "digits":
            others = ", ".join(f"{name}:FOLDER" for name in ELSEWHERE)
            raise ValueError(f"Expected data to be one of digits, {others}; got {spec!r}.")
        return Data(label_noise=DIGITS_NOISE if label_noise is None else label_noise)
    from depthmup.training.built_in.vision import HUB, images

    source = source or _folder_of(name)
    raw = images(name, source, verify=verify)
    location = source if source == HUB else str(Path(source).expanduser().resolve())
    os.environ[variable(name)] = location
    return Data(name=name, label_noise=label_noise or 0.0, digest=raw.digest)


@lru_cache(maxsize=1)
def found_data(name: str, digest: str) -> "Dataset":
    """The data set with this digest, without label noise, from the folder in the environment."""
    from depthmup.training.built_in.vision import images, prepared

    source = _folder_of(name)
    raw = images(name, source, verify=False)
    if raw.digest != digest:
        raise ValueError(
            f"Expected {name} with digest {digest}, as in the cell; the files in {source} have "
            f"{raw.digest}. They were changed, or are another version: set {variable(name)} to the "
            "folder of the original ones."
        )
    return prepared(raw)


def _folder_of(name: str) -> str:
    if source := os.environ.get(variable(name)):
        return source
    raise ValueError(
        f"Expected a folder with the files of {name}; none was named. Write --data {name}:FOLDER, "
        f"or set {variable(name)}=FOLDER where the networks are trained."
    )
