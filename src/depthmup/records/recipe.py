"""Several tuned values at once: their joint optimum at every size, and whether it transfers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from depthmup.records.finding import Estimate, Place, Verdict, verdict_of_all
from depthmup.records.judgement import Judgement
from depthmup.records.printable import printable
from depthmup.records.sizes import size_text
from depthmup.records.tuned import Tuned
from depthmup.rules.scheme import Scheme


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
        rules: of every value, the published rules that speak of it; their costs are fractions.
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
    rules: tuple[tuple[Judgement, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contour:
    """Where the loss of one size is by a share above its best, as log2 of two values.

    The others, if there are any, are at their best there. ``pair`` are the two, in the recipe's
    order.
    """

    size: Mapping[str, float]
    points: tuple[tuple[float, float], ...]
    pair: tuple[int, int] = (0, 1)


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
        contours: of every pair of values, by size; ``raised`` is by how much the loss is above its
            best.
        notes: what a reader must know of the runs.
        scheme: that moved the values with size: they are the base's. Without one they are those of
            the runs.
        optimizer: of the runs, where it is known.
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
    scheme: Scheme | None = None
    optimizer: str = ""

    @property
    def verdict(self) -> Verdict:
        """Transfers if the recipe does along every axis, drifts if along any."""
        if not self.along:
            return Verdict.UNDECIDED
        return verdict_of_all(along.verdict for along in self.along)

    @property
    def handed_on(self) -> RecipeOptimum:
        """The optimum that a person uses next: the target's, else the largest size's."""
        return self.target or self._largest

    @property
    def _largest(self) -> RecipeOptimum:
        return max(self.optima, key=lambda one: math.prod(one.size.values()))

    @property
    def beyond(self) -> dict[str, int]:
        """Batch and steps whose best lies above all tried at the largest size: the most there.

        What more of them is worth is for a person to say.
        """
        largest = self._largest
        return {
            one.key: round(2.0 ** max(r.log2[i] for r in self.runs if r.size == largest.size))
            for i, (one, place) in enumerate(zip(self.tuned, largest.places, strict=True))
            if one.is_whole and place is Place.HIGH_EDGE
        }

    def at(self, size: Mapping[str, float] | None = None) -> RecipeOptimum:
        """The joint optimum of a size: by default of the target, or else of the largest one.

        Args:
            size: by axis; of several axes some are enough.

        Returns:
            The optimum, with its intervals.

        Raises:
            ValueError: no such size, or several.
        """
        every: list[RecipeOptimum] = [*self.optima, *([self.target] if self.target else [])]
        asked = self.handed_on.size if size is None else size
        found = [o for o in every if all(o.size.get(a) == n for a, n in asked.items())]
        if len(found) != 1:
            sizes = "; ".join(size_text(one.size) for one in every)
            raise ValueError(f"Expected one of the sizes {sizes}; got {printable(repr(size))}.")
        return found[0]

    def arguments(
        self,
        size: Mapping[str, float] | None = None,
        *,
        leave_out: str | Iterable[str] = (),
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> dict[str, Any]:
        """The best values as arguments of ``plan.param_groups``, or of an optimizer.

        Of runs under a scheme they are the values at its base, which the plan of any size takes:
        ``plan.param_groups(model, **recipe.arguments())``. Values of other runs hold at one size:
        for an optimizer there, or for a plan whose base has that size.

        Args:
            size: whose values are wanted; of runs under a scheme by default the target, or else the
                largest size.
            leave_out: values that no optimizer takes, to give to the model or script by hand.
            betas: of the runs; those that were tuned replace them.

        Returns:
            Values by the names that optimizers have for them.

        Raises:
            ValueError: a value that no optimizer takes and that is not left out; no size where no
                scheme is known, or one that there is not.

        Example:
            >>> import numpy as np, pandas as pd, depthmup
            >>> rng = np.random.default_rng(0)
            >>> x, width = rng.uniform(-3, 3, (80, 2)), np.repeat([64, 128], 40)
            >>> runs = pd.DataFrame({"width": width, "lr": 2.0 ** (x[:, 0] - 8), "weight_decay":
            ...     2.0 ** (x[:, 1] - 3), "loss": np.exp(0.05 * (x**2).sum(1))})
            >>> report = depthmup.fit(runs, axes=["width"], lr=["lr", "weight_decay"], loss="loss",
            ...                       scheme="mup")
            >>> {name: f"{value:.2g}" for name, value in report.recipe().arguments().items()}
            {'lr': '0.0039', 'weight_decay': '0.13'}
        """
        if size is None and self.scheme is None:
            sizes = "; ".join(size_text(one.size) for one in self.optima)
            raise ValueError(
                "Expected the size whose values are wanted, as no scheme is known that moved them: "
                f"one of {sizes}. For a plan give the size of its base; a plan moves values itself."
            )
        left_out = {leave_out} if isinstance(leave_out, str) else {*leave_out}
        values = {
            one.key: 2.0**log2.value
            for one, log2 in zip(self.tuned, self.at(size).log2, strict=True)
        }
        if others := [key for key in values if key not in left_out and not argument_of(key)]:
            said = ", ".join(f"{key} = {values[key]:.4g}" for key in others)
            raise ValueError(
                f"Expected values that an optimizer takes; {said} is none. Give it to your model "
                f"or script, and pass leave_out={others[0] if len(others) == 1 else others!r}."
            )
        found: dict[str, Any] = {}
        averages = dict(enumerate(betas))
        for key, value in values.items():
            if key in left_out or not (told := argument_of(key)):
                continue
            name, one_less = told
            value = 1 - value if one_less else value
            if name.startswith("betas"):
                averages[int(name[-1])] = value
                found["betas"] = (averages[0], averages[1])
            else:
                found[name] = value
        return found

    @property
    def combination(self) -> str:
        """The combination in words, such as ``learning rate × weight decay``."""
        return combined(self.tuned, self.exponents)


_ALSO = {"epsilon": "eps", "adam_eps": "eps"}
_ARGUMENTS = (
    "lr", "weight_decay", "eps", "momentum", "adamw_lr", "vector_weight_decay", "dampening",
    "alpha", "rho", "lr_decay", "momentum_decay",
)  # fmt: skip
_AVERAGES = {"beta1": "betas0", "beta2": "betas1", "momentum": "momentum"}


def argument_of(key: str) -> tuple[str, bool] | tuple[()]:
    """What optimizers call a value, and whether it is one less it; empty where none takes it.

    Example:
        >>> argument_of("epsilon"), argument_of("one_minus_beta2"), argument_of("multiplier")
        (('eps', False), ('betas1', True), ())
    """
    bare = key.removeprefix("one_minus_")
    if bare in _AVERAGES:
        return _AVERAGES[bare], bare != key
    name = _ALSO.get(key, key)
    return (name, False) if name in _ARGUMENTS else ()


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
