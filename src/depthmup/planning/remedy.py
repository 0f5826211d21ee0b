"""Remedies: what to declare of a parameter whose role its use does not tell, tried before said."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from depthmup.planning.content import PlanContent
from depthmup.planning.declared import RoleHints
from depthmup.planning.roles import Undeclared
from depthmup.rules import Kind
from depthmup.tracing import pattern_of

_P = TypeVar("_P", bound=PlanContent)

MOST = 8
"""Kinds of parameters that one remedy declares."""

_MEANS = {
    Kind.INPUT: "reads the inputs, or is looked up",
    Kind.HIDDEN: "multiplies activations as a matrix",
    Kind.READOUT: "gives the outputs",
    Kind.VECTOR: "is added or multiplied entry by entry",
}


def with_remedy(planned: Callable[[RoleHints], _P], roles: RoleHints | None) -> _P:
    """A plan; what it refuses for want of a role, with roles under which it is planned and proven.

    A role that the plan does not survive is not proposed.
    """
    try:
        return planned(roles or {})
    except Undeclared as error:
        found = list(_survivors(planned, roles or {}, error))
        declare = "Declare it as well" if roles else "Declare it"
        said = f"{error} {_said(found, error, declare)}"
        raise Undeclared(said, error.growth, error.kinds) from None


_Declared = dict[str, Kind]


def _survivors(
    planned: Callable[[RoleHints], _P], roles: RoleHints, error: Undeclared
) -> Iterator[tuple[_Declared, _P]]:
    """Roles that a plan survives, and that plan: of one parameter, and of all that follow it."""
    for kind in _kinds(error):
        declared: _Declared = {pattern_of(error.growth.name): kind}
        while len(declared) <= MOST:
            try:
                plan = planned({**roles, **declared})
            except Undeclared as another:
                pattern, kinds = pattern_of(another.growth.name), _kinds(another)
                if pattern in declared or len(kinds) > 1:
                    break
                declared[pattern] = kinds[0]
            except ValueError:
                break
            else:
                yield declared, plan
                break


def _kinds(error: Undeclared) -> Sequence[Kind]:
    """What a parameter of such uses, or of such a shape, can be."""
    growth = error.growth
    if error.kinds:
        return error.kinds
    if len(growth.shape) < 2:
        return (Kind.VECTOR,)
    return (Kind.HIDDEN,) if len(growth.growing) > 1 else (Kind.INPUT, Kind.READOUT, Kind.VECTOR)


def _said(found: Sequence[tuple[_Declared, PlanContent]], error: Undeclared, declare: str) -> str:
    growth = error.growth
    if not found:
        return (
            f"Declared {' or '.join(map(repr, map(str, _kinds(error))))}, as it may be, "
            "the model is refused as well, or contradicts the plan."
        )
    each = [
        f"roles={ {name: str(kind) for name, kind in declared.items()} } if {growth.name} "
        f"{_MEANS[declared[pattern_of(growth.name)]]}"
        for declared, _ in found
    ]
    proven = all(plan.proof.startswith("Proven") for _, plan in found)
    tried = "the models start and train as that says" if proven else "planned, and not proven"
    return f"{declare}: {'; or '.join(each)} (tried: {tried})."
