"""A training run: its full description (a cell), and what it leaves behind (a record)."""

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

from depthmup.records.codec import canonical_json, digest

NUMERICS = 2
"""Version of everything that can change a loss curve: engines, initialization, data order.

It is part of every cell's key, so that records of different numerics are never mixed. Engines of
one version agree to rounding, so which of them trained a cell is not part of the key; sessions note
it in their environment.
"""


class Status(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"  # stopped at a loss that was not finite, or far above the initial one
    FAILED = "failed"  # never started: the initial loss was already absurd


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A residual MLP with every size-dependent number written out: it knows no exponent.

    x^0 = U xi;  x^l = x^(l-1) + multiplier * branch(x^(l-1));  logits = V^T x^L, with entries of
    U, W, V drawn from N(0, std^2).

    Attributes:
        inputs, outputs: sizes of an example and of the logits.
        width, depth: hidden dimension; number of residual branches.
        multiplier: of every branch, as it is at this depth.
        input_std, hidden_std, readout_std: standard deviations of the entries of U, W and V.
        block_depth: matrices in series in a branch.
        activation: phi, by its name.
        nonlinearity: "post", phi(W x), or "pre", W phi(x).
        mean_subtraction: whether the mean over features is taken from every branch.
        layer_norm: whether the input of every branch is normalized.
    """

    inputs: int
    outputs: int
    width: int
    depth: int
    multiplier: float
    input_std: float
    hidden_std: float
    readout_std: float
    block_depth: int = 1
    activation: str = "abs"
    nonlinearity: str = "post"
    mean_subtraction: bool = True
    layer_norm: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimizer with its effective settings for the weights inside branches.

    ``schedule`` is the shape of the learning rate after ``warmup``, the fraction of training over
    which it first rises linearly.

    Attributes:
        name: sgd, adam or adamw.
        lr: effective, at this size.
        beta1, beta2, epsilon: Adam's.
        momentum: SGD's.
        weight_decay: effective, at this size.
    """

    name: str
    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """A data set; the label noise has a seed of its own, the same for every run.

    ``digest`` is a hash of the content, for data that do not come with the package: a run is
    described by what its data are, not by where they lie.

    Attributes:
        name: of the data set.
        label_noise: fraction of labels that are replaced by random ones.
        label_seed: of that choice.
    """

    name: str = "digits"
    label_noise: float = 0.3
    label_seed: int = 0
    digest: str = ""


Order = Literal["replacement", "epochs"]
"""How examples are drawn: independently, or all of them once per epoch, reshuffled each time."""

ORDERS: tuple[Order, ...] = get_args(Order)

Precision = Literal["float32", "tf32", "bf16"]
"""Of the operands of the products with trained matrices; all else is in single precision."""

PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# Fields that later versions added are left out of the key at these values, so that cells of earlier
# versions keep their keys.
_ADDED_TO_CELL: dict[str, Any] = {"order": "replacement", "precision": "float32"}
_ADDED_TO_DATA: dict[str, Any] = {"digest": ""}
_ADDED_TO_OPTIMIZER: dict[str, Any] = {"schedule": "constant", "warmup": 0.0}


def _plain(value: Any, added: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """A flat dataclass as a dictionary, as ``asdict`` gives it, in a tenth of the time: resuming a
    sweep of 100,000 runs computes as many keys. Fields ``added`` later are left out at their
    defaults only: with any other value a run is another one, and gets another key.
    """
    names = value.__slots__
    raw = dict(zip(names, _getter(names)(value), strict=True))
    for name, default in added.items():
        if raw[name] == default:
            del raw[name]
    return raw


_getter = cache(lambda names: attrgetter(*names))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Everything that determines a run's loss curve, and nothing else.

    Two cells that would train identically are equal, whatever scheme asked for them.

    Attributes:
        network, optimizer, data: what is trained, how, and on what.
        steps, batch_size, seed: of the run.
        numerics: version of the engines; another one is another run.
        order: in which examples come.
        precision: of matrix products.
    """

    network: Network
    optimizer: Optimizer
    data: Data = field(default_factory=Data)
    steps: int = 300
    batch_size: int = 64
    seed: int = 0
    numerics: int = NUMERICS
    order: Order = "replacement"
    precision: Precision = "float32"

    def to_json(self) -> str:
        """Canonical JSON: the same text for equal cells on every machine."""
        raw = _plain(self, _ADDED_TO_CELL)
        raw["network"] = _plain(self.network)
        raw["optimizer"] = _plain(self.optimizer, _ADDED_TO_OPTIMIZER)
        raw["data"] = _plain(self.data, _ADDED_TO_DATA)
        return canonical_json(raw)

    @staticmethod
    def from_json(text: str) -> "Cell":
        raw: dict[str, Any] = json.loads(text)
        return Cell(
            network=Network(**raw.pop("network")),
            optimizer=Optimizer(**raw.pop("optimizer")),
            data=Data(**raw.pop("data")),
            **raw,
        )

    @property
    def shape(self) -> "Cell":
        """What cells must share to be trained as one stack: all but rate, decay and seed."""
        # A stack's members differ in what enters as data: rate and decay per member, and the seed
        # by the weights and batches that are drawn from it.
        return replace(self, seed=0, optimizer=replace(self.optimizer, lr=0.0, weight_decay=0.0))

    @property
    def row(self) -> dict[str, Any]:
        """What a table of runs says of this one; schemes that agree share it."""
        return {
            "width": self.network.width,
            "depth": self.network.depth,
            "batch": self.batch_size,
            "optimizer": self.optimizer.name,
            "lr": self.optimizer.lr,
            "multiplier": self.network.multiplier,
            "weight_decay": self.optimizer.weight_decay,
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """A stable hash of the full configuration."""
        return digest(self.to_json())


class Run(Protocol):
    """The full description of a training run: a cell, or a trial of a custom model."""

    @property
    def key(self) -> str: ...

    def to_json(self) -> str: ...


Described = TypeVar("Described", bound=Run, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record(Generic[Described]):
    """The result of one run.

    ``losses`` holds the training loss of every step, in single precision; for a run that diverged
    at step t, the t finite losses before it.

    Attributes:
        cell: the run's description.
        status: finished, diverged, or failed before the first step.
        place: the GPU that trained it, with all that may round its sums in its own way; empty for
            a CPU. Two records of one run may differ in it.
    """

    cell: Described
    status: Status
    losses: "array[float]"  # of 'f'
    place: str = field(default="", compare=False)

    @property
    def last_finite_loss(self) -> float:
        return self.losses[-1] if self.losses else math.inf

    @property
    def shows_start(self) -> bool:
        """Whether the first loss is that before training: not of a run whose losses are all one."""
        if not self.losses:
            return False
        return self.status is not Status.FINISHED or min(self.losses) < max(self.losses)

    def mean_loss(self, start: int, stop: int) -> float:
        """The mean loss over steps [start, stop), infinite if the run did not reach ``stop``."""
        # Infinite and not NaN: a run that diverged is worse than any that did not, and is compared
        # so.
        if stop > len(self.losses):
            return math.inf
        # Rounded once, whatever the number of steps.
        return math.fsum(self.losses[start:stop]) / (stop - start)
