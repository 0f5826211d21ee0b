"""A trial: the full description of a training run of a custom model."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from depthmup.records.codec import canonical_json, digest
from depthmup.records.run import NUMERICS

BASE_SHAPE = "any"
"""The scheme of a planned run at the base size, where all schemes agree: one run serves all."""

_WORK = {"width": 2, "steps": 0, "tokens": 0}
"""Powers of axes in the work of a step; of all others 1."""


_DIGITS = 6
"""Of a value that a person wrote."""


def written(value: float) -> float:
    """A tuned value as a person wrote it: they are kept as log2 to nine decimals.

    Example:
        >>> kept = 2.0 ** round(math.log2(0.004), 9)
        >>> kept == 0.004, written(kept), written(2.0**-6.5) == 2.0**-6.5
        (False, 0.004, True)
    """
    if not 0 < value < math.inf:
        return value
    short, power = float(f"{value:.{_DIGITS}g}"), round(math.log2(value), 9)
    alike = value == 2.0**power and short > 0 and round(math.log2(short), 9) == power
    return short if alike else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Everything that determines a run of a custom model.

    ``model`` names the function that makes or trains it, and ``code`` is the fingerprint of its
    source: a run of other code has another key. ``size`` and ``base`` have a value for
    every axis that the model or its batches use. ``lr``, ``multiplier`` (of every
    branch, the paper's a) and ``weight_decay`` are those of the base's network; ``scheme`` scales
    them to this size. What a run rule makes of batch and duration is in them already, and in
    ``settings``: runs that would train identically are equal, whichever rule asked for them.
    ``settings`` are further ones of the optimizer and the plan, in values that JSON has.

    Attributes:
        optimizer: by its name.
        steps: of the run.
        seed: of initialization and batches.
        numerics: version of the engines; another one is another run.

    Example:
        >>> run = Trial(model="make", code="1f0c", size={"width": 64, "depth": 8},
        ...             base={"width": 64, "depth": 4}, scheme="depth-mup", optimizer="adamw",
        ...             lr=0.01, steps=100, seed=0)
        >>> run.ratio("depth"), run.at_base
        (2.0, False)
    """

    model: str
    code: str
    size: Mapping[str, int]
    base: Mapping[str, int]
    scheme: str
    optimizer: str
    lr: float
    multiplier: float = 1.0
    weight_decay: float = 0.0
    steps: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    numerics: int = NUMERICS

    def __hash__(self) -> int:
        # Equal mappings may differ in their order, so that only what they hold may count.
        size = frozenset(self.size.items())
        return hash((self.code, size, self.scheme, self.optimizer, self.lr, self.steps, self.seed))

    @property
    def width(self) -> int:
        return self.size["width"]

    @property
    def depth(self) -> int:
        return self.size["depth"]

    @property
    def base_width(self) -> int:
        return self.base["width"]

    @property
    def base_depth(self) -> int:
        return self.base["depth"]

    @property
    def width_ratio(self) -> float:
        return self.ratio("width")

    @property
    def depth_ratio(self) -> float:
        return self.ratio("depth")

    def ratio(self, axis: str) -> float:
        """A size as a multiple of the base's.

        Args:
            axis: one of the base's.

        Returns:
            1 at the base.
        """
        return self.size[axis] / self.base[axis]

    @property
    def at_base(self) -> bool:
        """Whether the network is the base's."""
        return all(self.size[axis] == value for axis, value in self.base.items())

    @property
    def step_work(self) -> float:
        """About proportional to the operations of a step: parameters times examples.

        Axes that are not known here are taken to cost in proportion, which decides only the order
        of jobs, the forecast of time and how far a probe may go.
        """
        # Parameters grow as width squared, steps and tokens do not change what one step costs.
        return float(math.prod(n ** _WORK.get(axis, 1) for axis, n in self.size.items()))

    def to_json(self) -> str:
        """Canonical JSON: the same text for equal trials on every machine.

        A learning rate as it was written has the text of the one that is kept.

        Returns:
            The text whose hash is the key.
        """
        described = {name: getattr(self, name) for name in self.__slots__}
        if 0 < self.lr < math.inf:
            kept = 2.0 ** round(math.log2(self.lr), 9)
            described["lr"] = kept if written(kept) == self.lr else self.lr
        return canonical_json(described)

    @staticmethod
    def from_json(text: str) -> "Trial":
        """The trial that ``to_json`` wrote.

        Args:
            text: of ``to_json``.

        Returns:
            The trial.
        """
        return Trial(**json.loads(text))

    @property
    def row(self) -> dict[str, Any]:
        """What a table of runs says of this one."""
        names = ("scheme", "optimizer", "lr", "multiplier", "weight_decay", "seed")
        values = {**self.size, **{name: getattr(self, name) for name in names}}
        return {**values, "lr": written(self.lr)}

    @property
    def key(self) -> str:
        """A stable hash of the full description."""
        return digest(self.to_json())
