"""What is run beside a person's own sweeps: measurements of one task, and sweeps along depth."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from depthmup.records import Measurement, Task
from depthmup.sweep import BuiltIn, Design, Job, Sweep, rate_unit


@dataclass(frozen=True, kw_only=True)
class Measure(Job):
    """One task: ``function``, at the top of a module, turns its settings into named numbers."""

    task: Task
    function: Callable[..., Mapping[str, Any]]
    work: float = 1e9

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.task.key,)

    def only(self, keys: Collection[str]) -> "Measure":
        return self

    def __call__(self, tell: Any) -> Iterator[Measurement]:
        yield Measurement(task=self.task, values=self.function(**self.task.settings))

    def __str__(self) -> str:
        return f"measuring {self.task.name} with {dict(self.task.settings)}"


def along_depth(
    *,
    base_depth: int,
    depths: Sequence[int],
    log2_lrs: Sequence[float],
    width: int = 64,
    optimizer: str = "adam",
    **settings: Any,
) -> Sweep:
    """A sweep of residual MLPs along depth, at learning rates in units of muP's."""
    model = {f.name: settings.pop(f.name) for f in fields(BuiltIn) if f.name in settings}
    unit = rate_unit(optimizer, width)
    return Sweep(
        model=BuiltIn(**model),
        design=Design(
            base={"width": width, "depth": base_depth},
            depth=depths,
            lrs=[unit * 2.0**k for k in log2_lrs],
            optimizers=optimizer,
            **settings,
        ),
    )
