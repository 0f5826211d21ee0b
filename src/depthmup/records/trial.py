"""A trial: the full description of a training run of a custom model."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from depthmup.records.key import canonical, digest
from depthmup.records.run import NUMERICS

BASE_SHAPE = "any"
"""The scheme of a planned run at the base size, where all schemes agree: one run serves all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Everything that determines a run of a custom model.

    ``model`` names the function that makes or trains it, and ``code`` is the fingerprint of its
    source, so that a run of other code has another key. ``lr``, ``multiplier`` (of every branch,
    the paper's a) and ``weight_decay`` are those of the base; ``scheme`` scales them to this size.
    ``settings`` are further ones of the optimizer and the plan, in values that JSON has.

    Example:
        >>> run = Trial(model="make", code="1f0c", width=64, depth=8, base_width=64, base_depth=4,
        ...             scheme="depth-mup", optimizer="adamw", lr=0.01, steps=100, seed=0)
        >>> run.depth_ratio, run.at_base
        (2.0, False)
    """

    model: str
    code: str
    width: int
    depth: int
    base_width: int
    base_depth: int
    scheme: str
    optimizer: str
    lr: float
    multiplier: float = 1.0
    weight_decay: float = 0.0
    steps: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    numerics: int = NUMERICS

    @property
    def width_ratio(self) -> float:
        return self.width / self.base_width

    @property
    def depth_ratio(self) -> float:
        return self.depth / self.base_depth

    @property
    def at_base(self) -> bool:
        return (self.width, self.depth) == (self.base_width, self.base_depth)

    def to_json(self) -> str:
        """Canonical JSON: the same text for equal trials on every machine."""
        return canonical(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Trial":
        return Trial(**json.loads(text))

    @property
    def row(self) -> dict[str, Any]:
        """What a table of runs says of this one."""
        names = ("width", "depth", "scheme", "optimizer", "lr", "multiplier", "weight_decay")
        return {**{name: getattr(self, name) for name in names}, "seed": self.seed}

    @property
    def key(self) -> str:
        """A stable hash of the full description."""
        return digest(self.to_json())
