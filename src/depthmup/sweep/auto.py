"""Values of what is tuned, and seeds, that are found as the sweep goes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from depthmup.records.printable import printable


@dataclass(frozen=True, kw_only=True, slots=True)
class Auto:
    """Run the most informative runs first, until the verdict: ``Design(lrs=Auto(...))``.

    ``Design(lrs="auto")`` is ``Auto()``. The design's ``seeds`` is then the most that any learning
    rate gets, 8 by default. For another hyperparameter: ``Design(values=Auto(...))``.

    Args:
        start: first value to try at the base; the search goes on by factors of two. By default a
            usual one. Or one for each optimizer, by name: ``{"sgd": 0.1, "adamw": 0.003}``.
        precision: stop when every drift is known to within this many octaves per doubling,
            instead of a verdict.
        runs: most runs of the whole sweep.
        seconds: after them no further runs are begun; runs under way are finished.
        work: most work, in parameters times steps, or in the units of ``Model(cost=...)``.

    Raises:
        ValueError: a value is not positive.

    Example:
        >>> Auto(start=0.003, runs=200).start_of("adamw")
        0.003
    """

    start: float | Mapping[str, float] | None = None
    precision: float | None = None
    runs: int | None = None
    seconds: float | None = None
    work: float | None = None

    def __post_init__(self) -> None:
        given: dict[str, Any] = asdict(self)
        if isinstance(self.start, Mapping):
            del given["start"]
            given |= {f"start for {name}": value for name, value in self.start.items()}
        for name, value in given.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"Expected {name} of Auto to be a number; got {value!r}.")
            if not 0 < value < math.inf:
                raise ValueError(f"Expected {name} of Auto to be positive; got {value!r}.")

    def start_of(self, optimizer: str) -> float:
        """Where the search of one optimizer's variants begins.

        Args:
            optimizer: by its name.

        Returns:
            A value at the base.

        Raises:
            ValueError: no start is known for it.

        Example:
            >>> Auto(start={"sgd": 0.1, "adamw": 0.003}).start_of("sgd")
            0.1
        """
        if self.start is None or (isinstance(self.start, Mapping) and optimizer not in self.start):
            names = ", ".join(self.start) if isinstance(self.start, Mapping) else "none"
            raise ValueError(
                f"Expected the start of a search for every optimizer; there is one for {names}, "
                f"and {optimizer} has none."
            )
        return self.start[optimizer] if isinstance(self.start, Mapping) else self.start


def auto_of(given: Any) -> Auto | None:
    """The search that ``Design(lrs=...)`` names: "auto", an ``Auto``, or one read from JSON."""
    if isinstance(given, Auto):
        return given
    if isinstance(given, str):
        if given != "auto":
            raise ValueError(
                f"Expected lrs to be learning rates or 'auto', and values likewise; got "
                f"{given!r}. For a start of your own: depthmup.Auto(start=0.003)."
            )
        return Auto()
    if not isinstance(given, Mapping):
        return None
    if unknown := [name for name in given if name not in {f.name for f in fields(Auto)}]:
        raise ValueError(
            f"Expected learning rates, 'auto' or a depthmup.Auto; got a mapping with "
            f"{printable(', '.join(map(str, unknown)))}. Different ones for each optimizer are "
            "where searches begin: depthmup.Auto(start={'adamw': 0.003, 'sgd': 0.1})."
        )
    return Auto(**given)
