"""Several tuned values at once: their joint optimum at every size, and whether it transfers."""

from collections.abc import Mapping
from dataclasses import dataclass

from depthmup.records.finding import Estimate, Place, Verdict, verdict_of_all
from depthmup.records.tuned import Tuned


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeOptimum:
    """The joint optimum of one size.

    Attributes:
        size: by axis.
        log2: the best log2 of every value, the others being at their best, too.
        combination: log2 of the best-known combination; unknown where there is none.
        places: whether each best value lies among the runs or beyond them.
        free: values that the runs of this size do not bound.
    """

    size: Mapping[str, float]
    log2: tuple[Estimate, ...]
    combination: Estimate
    places: tuple[Place, ...]
    free: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeAlong:
    """How the joint optimum moves along one axis.

    Attributes:
        axis: along which sizes grow.
        base, largest: sizes between which costs are counted.
        drifts: of every value, in octaves per doubling.
        verdicts: on every value by itself.
        combination: drift of the best-known combination; unknown where there is none.
        carried: excess loss at the largest size with the base's whole recipe, as a fraction.
        alone: the same of each single value, where all others are tuned again.
        verdict, why: on the recipe.
    """

    axis: str
    base: Mapping[str, float]
    largest: Mapping[str, float]
    drifts: tuple[Estimate, ...]
    verdicts: tuple[Verdict, ...]
    combination: Estimate
    carried: Estimate
    alone: tuple[Estimate, ...]
    verdict: Verdict
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Contour:
    """Where the loss of one size is by a share above its best, as log2 of two values."""

    size: Mapping[str, float]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRun:
    """One run: its size, the log2 of the tuned values, and its loss, infinite if it diverged."""

    size: Mapping[str, float]
    log2: tuple[float, ...]
    loss: float
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Several tuned values of one variant.

    Attributes:
        name, title: of the variant.
        tuned: the values, in the order of their columns.
        exponents: of the combination that is known far better than any value alone:
            ``prod value**exponent``; empty where there is none.
        optima: of every size.
        along: of every axis.
        factor_two: of each value, the excess loss of twice or half its best at the largest size,
            where all others are tuned again, as a fraction.
        target: the joint optimum that is predicted at a target, with 90% intervals.
        noise: standard deviation of the log loss of one run.
        tolerance: octaves per doubling within which an optimum counts as staying.
        runs: all of them.
        contours: of two values, by size; ``raised`` is by how much the loss is above its best.
        notes: what a reader must know of the runs.
    """

    name: str
    title: str
    tuned: tuple[Tuned, ...]
    exponents: tuple[float, ...]
    optima: tuple[RecipeOptimum, ...]
    along: tuple[RecipeAlong, ...]
    factor_two: tuple[Estimate, ...]
    target: RecipeOptimum | None
    noise: float
    tolerance: float
    runs: tuple[RecipeRun, ...]
    contours: tuple[Contour, ...] = ()
    raised: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Transfers if the recipe does along every axis, drifts if along any."""
        if not self.along:
            return Verdict.UNDECIDED
        return verdict_of_all(along.verdict for along in self.along)

    @property
    def combination(self) -> str:
        """The combination in words, such as ``learning rate × weight decay``."""
        return combined(self.tuned, self.exponents)


def combined(tuned: tuple[Tuned, ...], exponents: tuple[float, ...]) -> str:
    """A product of powers in words.

    Example:
        >>> from depthmup.records import tuned
        >>> combined((tuned("lr"), tuned("weight_decay")), (1.0, -0.5))
        'learning rate × weight decay^−0.5'
    """
    parts = []
    for one, exponent in zip(tuned, exponents, strict=True):
        if exponent:
            power = "" if exponent == 1 else f"^{exponent:.3g}".replace("-", "−")
            parts.append(f"{one.name}{power}")
    return " × ".join(parts)
