"""Where weights are multiplied: readouts, embeddings, and a model's own constants around them."""

from collections.abc import Iterator, Sequence

from depthmup.planning.comparison import Comparison
from depthmup.planning.own_constants import equal
from depthmup.planning.parameters import ParameterPlace
from depthmup.planning.roles import NotUnderstood, matrix_use
from depthmup.planning.sites import Multiplier, Where
from depthmup.rules import Kind
from depthmup.tracing import Carriers, Facts, How


def weight_sites(comparison: Comparison, places: Sequence[ParameterPlace]) -> Iterator[Multiplier]:
    """Readouts and embeddings: where Laws.forward applies; and the model's own constants."""
    facts, base, own = comparison.facts, comparison.base, comparison.own
    for parameter in places:
        uses, base_uses = facts.uses[parameter.name], base.uses[parameter.base_name]
        growth = {
            use: own[0].of(use) / own[1].of(base_uses[min(i, len(base_uses) - 1)])
            for i, use in enumerate(uses)
            if base_uses
        }
        product = matrix_use(uses) if parameter.role.kind is Kind.READOUT else None
        lookups = [
            use
            for use in uses
            if use.how is How.LOOKUP or (parameter.role.tied and use is not product)
        ]
        single = (parameter.name,) if len(uses) == 1 else ()
        if product is not None:
            folds = single or _before_readout(facts, parameter.name)
            yield Multiplier(
                where=Where.READOUT,
                label=parameter.name,
                ratios=parameter.ratios,
                own=growth.get(product, 1.0),
                folds=folds,
                hooks=product.hooks or facts.on_parameters(folds),
            )
        rest = [use for use in uses if use is not product and use not in lookups]
        for where, alike in ((Where.INPUT, lookups), (Where.CONSTANT, rest)):
            factors = [growth.get(use, 1.0) for use in alike]
            if all(equal(factor, 1.0) for factor in factors):
                continue
            alone = len(alike) == len(uses)
            if not all(equal(f, factors[0]) for f in factors) or not (alone or alike is lookups):
                raise NotUnderstood(
                    f"{parameter.name} is used several times, with constants that follow the size "
                    f"of the model differently ({', '.join(f'{f:.4g}' for f in growth.values())} "
                    "times the base's). Use the same constant everywhere, or none that follows "
                    "size."
                )
            hooks = tuple(dict.fromkeys(hook for use in alike for hook in use.hooks))
            hookable = where is Where.INPUT and all(use.hooks for use in alike)
            yield Multiplier(
                where=where,
                label=parameter.name,
                ratios=parameter.ratios,
                own=factors[0],
                folds=(parameter.name,) if alone else (),
                hooks=hooks if hookable else (),
            )


def _before_readout(facts: Facts, name: str) -> tuple[str, ...]:
    """The gain and bias of a last norm that feeds a tied readout alone, and carry its factor."""
    carriers = facts.tied.get(name, Carriers())
    for placement in carriers.parameters:
        if all(len(facts.uses[n]) == 1 for n in placement.parameters):
            return tuple(sorted(placement.parameters))
    return ()
