"""The small training problems on which the limits are tested."""

from functools import cache

import numpy as np

from depthmup import limits
from depthmup.records import Data

XI = (1.0, -0.5, 0.8, 0.6, -1.2)
Y = (0.5, 1.0, -0.75, 0.25, 0.4)


def reference() -> list[limits.Step]:
    """Five steps of SGD on one scalar example each, with squared loss."""
    return [limits.Step([[x]], limits.mse([[y]])) for x, y in zip(XI, Y, strict=True)]


def vectors(*, seed: int = 0) -> list[limits.Step]:
    """Three minibatches of two random inputs in three dimensions, with two outputs."""
    rng = np.random.default_rng(seed)
    return [
        limits.Step(rng.normal(size=(2, 3)) / np.sqrt(3), limits.mse(rng.normal(size=(2, 2))))
        for _ in range(3)
    ]


IMAGES_LR = 0.25
"""At 1 training on single images is unstable: losses rise to 7, and any difference is amplified."""


@cache
def images(data: Data, *, count: int) -> tuple[limits.Step, ...]:
    """One image per step with cross-entropy, as the paper's linear networks are trained."""
    from depthmup.training import dataset

    examples = dataset(data)
    # A fixed draw: every width and depth is trained on the same images.
    picked = np.random.default_rng(0).integers(0, len(examples.labels), count)
    inputs, labels = examples.inputs.numpy()[picked], examples.labels.numpy()[picked]
    scale = np.sqrt(inputs.shape[1])  # entries of mean square one, so that |xi|^2 is one
    return tuple(
        limits.Step(x[None] / scale, limits.cross_entropy([int(y)], classes=examples.classes))
        for x, y in zip(inputs.astype(float), labels, strict=True)
    )
