"""A measurement on networks other than a loss curve: the task, and the numbers it gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from depthmup.records.codec import canonical_json, digest
from depthmup.records.run import NUMERICS


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Everything that determines a measurement: its name, its settings, its version.

    ``settings`` are values that JSON has. ``version`` is that of the code that measures, raised
    when the same settings would give other numbers.

    Attributes:
        name: of the measurement.
        numerics: version of the engines; another one is another task.

    Example:
        >>> Task(name="gradient cosines", settings={"depth": 8}).key == Task(
        ...     name="gradient cosines", settings={"depth": 16}).key
        False
    """

    name: str
    # A mapping has no hash; equality still counts it.
    settings: Mapping[str, Any] = field(hash=False)
    version: int = 1
    numerics: int = NUMERICS

    def to_json(self) -> str:
        """Canonical JSON: the same text for equal tasks on every machine."""
        return canonical_json({f.name: getattr(self, f.name) for f in fields(self)})

    @property
    def key(self) -> str:
        """A stable hash of the full configuration."""
        return digest(self.to_json())


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """The result of a task: numbers and lists of numbers by name, NaN and infinities allowed.

    Attributes:
        task: what was measured.
        values: by name.
    """

    task: Task
    values: Mapping[str, Any]
