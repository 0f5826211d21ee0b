"""Mixtures of experts beside those of the base: how their sizes grew, and whether a rule holds.

A mixture has three sizes beside width and depth: how many experts there are (E), how many of them
are active (K), and how wide each is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from depthmup.planning.comparison import Comparison
from depthmup.planning.own_constants import equal
from depthmup.planning.pair import Pair
from depthmup.planning.repeated import repeated_words
from depthmup.planning.roles import Growth, MixturePart, NotUnderstood, matrix_use
from depthmup.planning.sites import Multiplier, Where
from depthmup.rules import Part, Ratios, Scheme
from depthmup.tracing import Mixture, pattern_of


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureGrowth:
    """The sizes of the mixtures of one pattern of names, in the model and in the base.

    ``fan_in`` is the ratio of the widths of an expert, ``fan_out`` that of the widths of what it
    gives. ``averaged``: the weights of the active experts sum to one, or to less. ``shared``: there
    is an expert that everything passes through. ``renormalized``: the weights of the active experts
    sum to one, whatever the router says.
    """

    router: str
    experts: int
    base_experts: int
    active: int
    base_active: int
    fan_in: float
    fan_out: float
    averaged: bool
    shared: bool
    renormalized: bool = False

    @property
    def ratios(self) -> Ratios:
        """Those of an expert's last matrix, with those of the numbers of experts."""
        return Ratios(
            fan_in=self.fan_in,
            fan_out=self.fan_out,
            experts=self.experts / self.base_experts,
            active=self.active / self.base_active,
        )

    def __str__(self) -> str:
        return (
            f"E = {self.experts} experts, K = {self.active} of them active "
            f"({self.base_experts} and {self.base_active} in the base); expert width x "
            f"{self.fan_in:.4g}, network width x {self.fan_out:.4g}"
        )


def mixtures_of(
    pair: Pair, comparison: Comparison | None
) -> tuple[tuple[MixtureGrowth, ...], dict[str, MixturePart]]:
    """How the mixtures of a model grew, and which part of one each parameter is."""
    if comparison is None or not comparison.facts.mixtures:
        return (), {}
    of_base = {mixture.router: mixture for mixture in comparison.base.mixtures}
    result: dict[MixtureGrowth, None] = {}
    parts: dict[str, MixturePart] = {}
    for mixture in comparison.facts.mixtures:
        one = _growth(mixture, of_base.get(pair.base_of[mixture.router]), pair.growth, comparison)
        result[one] = None
        parts.update(_parts(mixture, one.ratios))
    return tuple(result), parts


def _growth(
    mixture: Mixture,
    base: Mixture | None,
    growth: Mapping[str, Growth],
    comparison: Comparison,
) -> MixtureGrowth:
    uses = comparison.facts.uses
    last = next(name for name in sorted(mixture.last & mixture.matrices))
    use = matrix_use(uses[last])
    router = matrix_use(uses[mixture.router])
    assert use is not None
    assert router is not None
    # A single expert has no router that could choose.
    rows = round(mixture.total / growth[mixture.router].along(router.fan_out))
    axes = {*mixture.axes.get(last, ())}
    return MixtureGrowth(
        router=pattern_of(mixture.router),
        experts=mixture.total,
        base_experts=rows,
        active=mixture.active,
        base_active=base.active if base is not None else min(mixture.active, rows),
        fan_in=growth[last].along([axis for axis in use.fan_in if axis not in axes]),
        fan_out=growth[last].along([axis for axis in use.fan_out if axis not in axes]),
        averaged=mixture.averaged,
        shared=bool(mixture.shared),
        renormalized=mixture.renormalized,
    )


def _parts(mixture: Mixture, ratios: Ratios) -> Iterator[tuple[str, MixturePart]]:
    """What each parameter of a mixture is; those of a shared expert grow as dense layers do."""

    def part(of: Part, name: str) -> tuple[str, MixturePart]:
        axes = mixture.axes.get(name, ())
        return name, MixturePart(part=of, axes=axes, experts=ratios.experts, active=ratios.active)

    for name in mixture.shared:
        yield name, MixturePart(part=Part.SHARED)
    for name in {mixture.router, *mixture.beside}:
        yield part(Part.ROUTER, name)
    for name in mixture.matrices | mixture.vectors:
        yield part(Part.DOWN if name in mixture.last else Part.EXPERT, name)


def mixture_sites(
    pair: Pair, comparison: Comparison, parts: Mapping[str, MixturePart]
) -> Iterator[Multiplier]:
    """Sums over active experts that nothing averages take 1/K, in the experts' last layers."""
    uses, (numbers, base_numbers) = comparison.facts.uses, comparison.own
    for mixture in comparison.facts.mixtures:
        active = 1.0 if mixture.averaged else parts[mixture.router].active
        of_base = base_numbers.experts.get(pair.base_of[mixture.router], 1.0)
        own = numbers.experts[mixture.router] / of_base
        if equal(active, 1.0) and equal(own, 1.0):
            continue
        alone = all(len(uses[name]) == 1 for name in mixture.last)
        yield Multiplier(
            where=Where.EXPERTS,
            label=mixture.router,
            ratios=Ratios(active=active),
            own=own,
            folds=tuple(sorted(mixture.last)) if alone else (),
        )


def not_covered(
    mixtures: Sequence[MixtureGrowth], scheme: Scheme, repeated: Sequence[str] = ()
) -> Iterator[str]:
    """Notes on mixtures that grew in a way for which a scheme has no factor."""
    if scheme.experts is not None and not mixtures:
        dense = scheme.name.split("+")[0]
        if repeated:
            raise NotUnderstood(
                f"{scheme.title} has a rule for experts, and {repeated_words(repeated)}, but no "
                "router was seen that weights them: one matrix, whose softmax or sigmoid "
                "multiplies what every expert reads or what it gives, once. Write the layer so, or "
                f"name scheme={dense!r}, under which their number takes no factor."
            )
        yield (
            f"{scheme.title} has a rule for experts, and no router was seen that weights any: "
            f"nothing takes its factors, and the plan is that of {dense!r}."
        )
    for mixture in mixtures:
        ratios = mixture.ratios
        if mixture.active == 1 and mixture.renormalized:
            yield (
                f"One expert is active at {mixture.router}, and its weight is divided by the sum "
                "over the active ones, itself: it is always 1, and the router has no gradient."
            )
        if scheme.experts is not None:
            for invariant in scheme.experts.broken(ratios):
                raise NotUnderstood(
                    f"{scheme.title} needs {invariant.what}, held, and at {mixture.router} it "
                    f"changes {invariant.power.at(ratios):.4g}-fold: {mixture}. The reason: "
                    f"{invariant.why}."
                )
            continue
        if not equal(ratios.experts, 1.0) and scheme.follows_width:
            raise NotUnderstood(
                f"{scheme.title} has no rule for the number of experts, which grows "
                f"{ratios.experts:.4g}-fold at {mixture.router}: {mixture}. Name one that has: "
                f"scheme='{scheme.name}+moe' (any number at a held share K/E), or +mssp, "
                "+mssp-small (experts in proportion to the width)."
            )
        if not (equal(ratios.active, 1.0) and equal(ratios.experts, 1.0)):
            yield (
                f"The mixture of {mixture.router} grows in a way for which {scheme.title} has no "
                f"rule and takes no factor: {mixture}."
            )
