"""What a sweep varies and what it holds: the one description that studies and certificates need.

Two designs exist: ``Grid``, whose runs are cells of the built-in residual networks, and
``TrialGrid``, whose runs are trials of a custom model. Everything after training is one road.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from depthmup.records import Axis, Record
from depthmup.rules import Scheme
from depthmup.statistics import Array

Size: TypeAlias = tuple[int, int]
"""Width and depth."""

Records: TypeAlias = Mapping[Any, Record[Any]]


STEPS, LAST = 20, 5
"""Steps of a run that only glances at a size, and how many of the last are looked at."""


def named(size: Size) -> dict[str, float]:
    """A size by its axes.

    Example:
        >>> named((64, 8))
        {'width': 64, 'depth': 8}
    """
    return {"width": size[0], "depth": size[1]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to train every size: what a curve of its own is measured for."""

    scheme: Scheme
    optimizer: str
    multiplier: float
    weight_decay: float
    name: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Losses:
    """Mean losses over a window of training, as a law of the optimum is fitted to them.

    ``values`` is (sizes, learning rates, seeds), infinite where a run diverged; a size is a width
    and a depth. ``chance`` is the loss of guessing.
    """

    sizes: tuple[Size, ...]
    log2_lrs: tuple[float, ...]
    values: Array
    chance: float


class Probed(Protocol):
    """What can be probed: a scheme of a sweep that can train any size for any number of steps."""

    def run(self, size: Mapping[str, float], log2_lr: float, seed: int) -> Any:
        """The run of ``STEPS`` steps of a size."""

    def work(self, size: Mapping[str, float]) -> float:
        """The work of a step."""

    @property
    def sweep_work(self) -> float:
        """The work of all runs that were measured."""


class Design(Protocol):
    """Sizes along axes x variants x learning rates x seeds, resolved to runs."""

    @property
    def title(self) -> str:
        """Of the page."""

    @property
    def code(self) -> str:
        """The fingerprint of what is trained; empty where the version of the package is all."""

    @property
    def log2_lrs(self) -> tuple[float, ...]:
        """Increasing; ``rate_unit * 2**k`` is the learning rate at the base."""

    @property
    def steps(self) -> int:
        """Of every run."""

    @property
    def window(self) -> int:
        """A run is judged by its mean loss over so many last steps."""

    @property
    def base_size(self) -> Size:
        """Where all schemes agree."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What grows."""

    @property
    def all_sizes(self) -> tuple[Size, ...]:
        """Those of all axes, and the corners."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is compared."""

    @property
    def runs(self) -> tuple[Any, ...]:
        """The different runs, each once."""

    def sizes(self, axis: Axis) -> tuple[Size, ...]:
        """The sizes along an axis, the others at the base's."""

    def shown_width(self, size: Size) -> int | None:
        """The width, where a reader must be told it."""

    def points(self, variant: Variant, sizes: Iterable[Size]) -> list[list[tuple[Any, ...]]]:
        """The runs of a variant by size, learning rate and seed."""

    def chance(self, records: Records, variant: Variant) -> float:
        """The loss of guessing, which a size must get below."""

    def rate_unit(self, variant: Variant) -> float:
        """The learning rate at the base at log2 learning rate 0."""

    def probed(self, variant: Variant) -> Probed:
        """The variant at any size, for a few steps."""

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""

    def config(self) -> dict[str, Any]:
        """What a page says of how it was run."""


def variant_of(design: Design, name: str | None = None) -> Variant:
    """A variant by its name; the first one without.

    Raises:
        ValueError: there is none of this name.
    """
    for variant in design.variants:
        if name in (None, variant.name):
            return variant
    names = ", ".join(repr(variant.name) for variant in design.variants)
    raise ValueError(f"Expected one of {names}, which were measured; got {name!r}.")


def windows_of(design: Design) -> Sequence[slice]:
    """Windows of the design's length that tile training from its end, in time order.

    Example:
        >>> from depthmup.sweep import Grid
        >>> windows_of(Grid(steps=100, window=40))
        (slice(20, 60, None), slice(60, 100, None))
    """
    stops = range(design.steps, design.window - 1, -design.window)
    return tuple(slice(stop - design.window, stop) for stop in reversed(stops))
