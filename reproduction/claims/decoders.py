"""Small decoders that read Python: the networks of the figures on transformers, and their sweeps.

RMSNorm before each branch, trained on the bytes of Python's own standard library. A network of
``depth`` layers has L = 2 depth branches.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from depthmup.records import Trial
from depthmup.sweep import Custom, Design, Sweep, Train, together
from reproduction.claims.claim import Setting
from reproduction.claims.common import octaves

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from depthmup.model import Model
    from depthmup.models import Transformer
    from depthmup.statistics import Array
    from reproduction.text import Text

SETTINGS = {"schedule": "linear", "warmup": 0.1}
RATES = tuple(float(k) for k in range(-8, -2))
COST = 240.0
"""Work of a layer's step per squared width, at width 32: 1 ms on one core."""


def network(width: int, depth: int, **options: Any) -> "Transformer":
    """A decoder of ``depth`` layers, that is 2 depth branches, with heads of 16."""
    from depthmup.models import Transformer, TransformerConfig

    config = TransformerConfig(vocabulary=256, width=width, depth=depth, head_size=16, **options)
    return Transformer(config)


def normed(width: int, depth: int) -> "Transformer":
    """RMSNorm before each branch and before the readout."""
    return network(width, depth, norm="rms")


def unnormed(width: int, depth: int) -> "Transformer":
    """No normalization anywhere."""
    return network(width, depth, norm="none")


def small_batch(generator: "Generator") -> tuple["Tensor", "Tensor"]:
    """8 windows of 32 bytes."""
    return python_text().batch(generator, 8, 32)


def large_batch(generator: "Generator") -> tuple["Tensor", "Tensor"]:
    """16 windows of 64 bytes."""
    return python_text().batch(generator, 16, 64)


@lru_cache(maxsize=1)
def python_text() -> "Text":
    """The bytes that are read, loaded once."""
    from reproduction.text import standard_library

    return standard_library()


def decoder(make: Any, batch: Any) -> "Model":
    """A decoder on the text; stored runs are told apart by the functions' version and the text."""
    from depthmup.model import Model

    version = f"1, {batch.__name__} of {python_text().digest[:16]}"
    return Model(make, batch=batch, version=version)


def decoder_of(setting: Setting) -> "Model":
    """What the figures share, at a scale."""
    batch = setting.choose(laptop=small_batch, medium=large_batch, paper=large_batch)
    return decoder(normed, batch)


def decoder_sweep(setting: Setting, **changes: Any) -> Sweep:
    """What the figures share: the paper's rule along depth, with AdamW."""
    sizes = setting.choose(
        laptop={"base": (32, 2), "depths": octaves(2, 8), "steps": 1200, "seeds": 4},
        medium={"base": (64, 2), "depths": octaves(2, 16), "steps": 2000, "seeds": 5},
        paper={"base": (512, 4), "depths": octaves(4, 64), "steps": 20_000, "seeds": 5},
    )
    fixed = {"log2_lrs": RATES, "schemes": (setting.depth_mup,), "settings": SETTINGS}
    values = {**fixed, **sizes, **changes, **setting.sizes}
    width, depth = values.pop("base")
    return custom_sweep(
        decoder_of(setting),
        base={"width": width, "depth": depth},
        depth=values.pop("depths"),
        lrs=[2.0**k for k in values.pop("log2_lrs")],
        optimizers="adamw",
        **values,
    )


def custom_sweep(model: "Model", **design: Any) -> Sweep:
    """A sweep of a custom model that a plan is applied to."""
    return Sweep(model=Custom(name=model.name, code=model.code), design=Design(**design))


def stacks(setting: Setting, *trials: Trial) -> tuple[Train, ...]:
    """The jobs that train them, each once."""
    from depthmup.model import by_reference

    sent = by_reference(decoder_of(setting))
    return tuple(together(dict.fromkeys(trials), sent, cost=COST))


@lru_cache(maxsize=1)
def entropies() -> tuple[float, float]:
    """Nats per byte of the text, from byte frequencies, and given the byte before.

    The first needs no network, the second an embedding and a readout, but no layer between them.
    """
    import numpy as np

    def entropy(counts: "Array") -> float:
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log(shares)).sum())

    data = python_text().train.numpy().astype(np.int64)
    single = entropy(np.bincount(data).astype(float))
    pairs = entropy(np.bincount(256 * data[:-1] + data[1:]).astype(float))
    # The chain rule: the entropy of pairs is that of single bytes and that given the byte before.
    return single, pairs - single
