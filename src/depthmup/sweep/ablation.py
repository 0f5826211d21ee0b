"""Ablation: the design whose variants are one scheme and that scheme less each of its rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from depthmup.records.grammar import either
from depthmup.rules import SP, Scheme, family, scheme
from depthmup.rules.factors import checked
from depthmup.rules.scheme import factors_along
from depthmup.sweep.design import ADD, Design, Size, Variant

Acting: TypeAlias = Mapping[str, tuple[str, ...]]
"""The axes along which each rule of a scheme acts."""

OF_DECAY = ".decay"


def with_ablations(
    design: Design, acting: Callable[[Scheme, Sequence[str]], Acting]
) -> tuple[Design, Acting]:
    """A design with a variant for each rule that acts along its axes, and where each acts.

    Refused where several schemes are asked for, where a rule is none of the scheme's, and where one
    that was named acts along no axis.
    """
    asked = design.ablate
    if asked is None or design.changed:
        return design, {}
    if len(design.schemes or ()) != 1 or len(design.variants) != 1:
        raise ValueError(
            "Expected one scheme, optimizer, multiplier, decay and run rule to take rules away "
            f"from; got {len(design.variants) or 'no'} variants. Name the scheme: "
            + either("Design(..., schemes='depth-mup', ablate=True).", "--scheme depth-mup.")
        )
    (whole,) = design.schemes or ()
    names = [name for name in asked if name != ADD]
    own = checked(names, whole.factors, whole.title) if names else whole.factors
    varied = [axis for axis in design.base if len({s[axis] for s in design.all_sizes}) > 1]
    decays = any(design.weight_decays) or design.tune.key == "weight_decay"
    every = acting(whole, whole.factors)
    acts = {r: axes for r, axes in every.items() if axes and (decays or not r.endswith(OF_DECAY))}
    along = " and ".join(varied)
    if not acts:
        raise ValueError(
            f"Expected a scheme with a rule that acts along {along}; {whole.title} has none. Vary "
            "another axis, or take another scheme."
        )
    if idle := [rule for rule in own if names and rule not in acts]:
        decay = "" if decays else ", without weight decay"
        raise ValueError(
            f"Expected rules of {whole.title} that act along {along}{decay}: {', '.join(acts)}; "
            f"got {', '.join(idle)}, which {'changes' if len(idle) == 1 else 'change'} nothing."
        )
    found = {rule: axes for rule, axes in acts.items() if rule in own}
    first = SP if ADD in asked else whole
    changed = [whole.only(rule) if ADD in asked else whole.without(rule) for rule in found]
    rules = (ADD, *found) if ADD in asked else tuple(found)
    return replace(design, schemes=(first, *changed), ablate=rules), found


def by_laws(design: Design, whole: Scheme, rules: Sequence[str]) -> Acting:
    """Where rules act, by the laws alone: what a person's own code does with a scheme is unseen."""
    (optimizer, *_) = design.optimizers or ("adamw",)
    varied = [axis for axis in design.axes if len(design.arm(axis)) > 1]
    of = family(optimizer)
    return {rule: factors_along(whole, rule, of, varied) for rule in rules}


def scheme_at(name: str, acting: Acting, size: Size, base: Size) -> str:
    """The scheme by which a network of a size trains: rules that do not act there are not missed.

    Example:
        >>> acts = {"branch.lr": ("depth",)}
        >>> wide, base = {"width": 128, "depth": 8}, {"width": 64, "depth": 8}
        >>> scheme_at("depth-mup-without-branch.lr", acts, wide, base)
        'depth-mup'
    """
    given = scheme(name)
    if not given.left_out or not acting:
        return name
    grown = {axis for axis, n in size.items() if n != base.get(axis, n)}
    changed = given.factors if given.added else tuple(sorted(given.left_out))
    if any(grown & {*acting.get(rule, tuple(grown))} for rule in changed):
        return name
    return SP.name if given.added else given.whole


def of_interest(design: Design, variant: Variant, agrees: Callable[[Size], bool]) -> list[Size]:
    """The sizes at which a search looks for the optimum of a variant: all, but for one that lacks a
    rule the largest along each axis where it is another one than the whole.
    """
    if variant.name not in design.changed:
        return list(design.all_sizes)
    largest = [design.sizes_along(axis)[-1] for axis in design.axes]
    return [size for size in largest if size != design.base and not agrees(size)]
