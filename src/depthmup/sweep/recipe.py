"""From the runs of a search over several values to their recipe, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from depthmup.posterior.law import Size
from depthmup.records.certificate import Refusal
from depthmup.records.recipe import Recipe
from depthmup.statistics.directions import Directions
from depthmup.statistics.recipe import recipe
from depthmup.statistics.recipe_search import RecipeSearch
from depthmup.statistics.refusals import refuse_design
from depthmup.sweep.strategy import SearchState, recipe_search_of
from depthmup.sweep.study import claims_of


@dataclass(frozen=True, kw_only=True)
class SweptRecipe:
    """The recipe that a search found; without one the reason."""

    recipe: Recipe | None
    why: str = ""
    refusals: tuple[Refusal, ...] = ()


def recipe_of_search(state: SearchState) -> SweptRecipe:
    """The recipe of the only variant of a sweep, by all of its runs."""
    design = state.sweep.design
    (variant,) = design.variants
    search = recipe_search_of(state, variant)
    sizes = [i for i in range(len(search.sizes)) if _told(search, i)]
    if len(sizes) < 2:
        ended = state.ended.get(variant.name, "it waits for runs")
        return SweptRecipe(
            recipe=None,
            why=f"A recipe needs two sizes with an optimum; {len(sizes)} has one. The search "
            f"ended: {ended}",
        )
    told = [search.sizes[i] for i in sizes]
    lacks = _lacks(told, search.base, state.target) if state.target else ()
    lost = [
        search.named(i) for i in range(len(search.sizes)) if search.losses[i] and i not in sizes
    ]
    notes = [f"Left out, as nothing trains there: {'; '.join(lost)}."] if lost else []
    if new := [search.named(i) for i in search.order if not search.losses[i]]:
        notes.append(f"Not trained: {'; '.join(new)}.")
    notes += [f"Nothing is predicted. {lack.reason} {lack.advice}" for lack in lacks]
    # In the order of sizes, whichever was cheaper.
    found = recipe(
        search.known(sizes).found,
        told,
        design.tuned,
        name=variant.name,
        title=variant.title,
        tolerance=state.tolerance,
        target=None if lacks else state.target,
        notes=notes,
        claims=lambda axis, one: claims_of(design, variant, axis, one),
    )
    return SweptRecipe(
        recipe=replace(found, scheme=variant.scheme, optimizer=variant.optimizer),
        refusals=tuple(lacks),
    )


def _told(search: RecipeSearch, i: int) -> bool:
    """Whether a size has runs enough of its own."""
    if not search.losses[i]:
        return False
    return int(np.isfinite(search.levels(i)).sum()) >= search.values + 2


def _lacks(sizes: Sequence[Size], base: Size, target: Size) -> list[Refusal]:
    """Why nothing is predicted for a target."""
    where = Directions(base=base, sizes=sizes)
    return refuse_design(where, sizes, target, known=True)
