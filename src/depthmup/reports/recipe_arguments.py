"""The recipe to copy: best values as arguments of an optimizer, and what moves them with size."""

from itertools import product

from depthmup.records import Tuned
from depthmup.records.finding import amount, rate
from depthmup.records.recipe import Recipe, argument_of
from depthmup.records.sizes import size_text
from depthmup.rules import ONE, Kind, Role, Scheme, family

BY_HAND = "no optimizer takes it: give it to your model or script"


def argument_cells(recipe: Recipe) -> list[dict[str, str]]:
    """Each value as an argument, with its interval and what follows size."""
    best = recipe.handed_on
    kept = "90%" if best is recipe.target else "95%"
    rows = []
    for one, log2, free in zip(recipe.tuned, best.log2, best.free, strict=True):
        told = argument_of(one.key)
        low, value, high = (2.0**end for end in (log2.low, log2.value, log2.high))
        if told and told[1]:
            low, value, high = 1 - high, 1 - value, 1 - low
        less, *ends = (
            f"{end:.5g}" if told and told[1] else amount(end, whole=one.is_whole)
            for end in (value, low, high)
        )
        argument = f"{_word(told[0])}={less}" if told else f"{one.key} = {less}"
        moves = followed(recipe, one) if told else BY_HAND
        if one.key in recipe.beyond:
            argument = f"{one.key} > {recipe.beyond[one.key]}"
        elif recipe.beyond:
            moves = f"depends on the {' and the '.join(recipe.beyond)} that you fix"
        rows.append(
            {
                "value": one.name,
                "argument": argument,
                kept: f"{ends[0]} to {ends[1]}" + (", free" if free else ""),
                "with size": moves,
            }
        )
    return rows


def _word(name: str) -> str:
    return {"betas0": "beta1", "betas1": "beta2"}.get(name, name)


def copied(recipe: Recipe) -> str:
    """The arguments as a line of Python."""
    by_hand = [one.key for one in recipe.tuned if not argument_of(one.key)]
    given = recipe.arguments(recipe.handed_on.size, leave_out=by_hand)
    return ", ".join(
        f"{name}=({', '.join(f'{part:.5g}' for part in value)})"
        if isinstance(value, tuple)
        else f"{name}={f'{value:.5g}' if name == 'momentum' else rate(value)}"
        for name, value in given.items()
    )


def followed(recipe: Recipe, one: Tuned) -> str:
    """What moves a value with size: the scheme's laws, or nothing that is known."""
    if recipe.scheme is None:
        return f"as the runs of {size_text(recipe.handed_on.size)} had it"
    moves = is_scaled(recipe.scheme, one, recipe.optimizer)
    return f"{recipe.scheme.title} {'scales it' if moves else 'leaves it alone'}"


def is_scaled(scheme: Scheme, one: Tuned, optimizer: str) -> bool:
    """Whether a scheme moves a value with size for any parameter, or for the whole run."""
    if one.law == "branch":
        return scheme.branch != ONE
    if one.law == "one_minus_beta":
        return scheme.run.one_minus_beta != ONE
    if one.law not in ("lr", "decay", "epsilon", "init"):
        return False
    roles = product(Kind, (False, True))
    laws = (
        scheme.laws(Role(kind=kind, in_branch=inside), family(optimizer or "adamw"))
        for kind, inside in roles
    )
    return any(getattr(each, one.law) != ONE for each in laws)


def source_sentence(recipe: Recipe) -> str:
    """Where the laws of the table stand, and for which size the values are."""
    at = size_text(recipe.handed_on.size)
    if recipe.scheme is None:
        return (
            f"These are values at {at}: for an optimizer there. For a plan take those of its base, "
            "as plans move values themselves."
        )
    return (
        f"These are values at the base, for a plan of any size: plan.param_groups(model, "
        f"**report.recipe().arguments()). {recipe.scheme.title}: {recipe.scheme.source}."
    )
