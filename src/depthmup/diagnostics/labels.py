"""Labels: one name for a module at every size, in which numbers of layers become ``*``."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import groupby
from typing import TypeAlias

from torch import nn

from depthmup.planning import Plan
from depthmup.rules import Part, Role
from depthmup.tracing import plain_name, unwrapped

Labels: TypeAlias = Callable[[str], str]
"""A module's name at every size: numbers of layers become ``*``."""


def expert_containers(roles: Mapping[str, Role]) -> frozenset[str]:
    """The modules whose numbered children are the experts of a mixture.

    A container of experts has no router in it, as a container of layers has; what is numbered
    within an expert lies deeper.

    Example:
        >>> from depthmup.rules import Kind, Part
        >>> expert = Role(kind=Kind.HIDDEN, part=Part.EXPERT)
        >>> roles = {f"layers.0.experts.{i}.0.weight": expert for i in range(4)}
        >>> roles["layers.0.router.weight"] = Role(kind=Kind.HIDDEN, part=Part.ROUTER)
        >>> sorted(expert_containers(roles))
        ['layers.0.experts']
    """
    routers = [name for name, role in roles.items() if role.part is Part.ROUTER]
    containers = set()
    for name, role in roles.items():
        if role.part not in (Part.EXPERT, Part.DOWN):
            continue
        segments = name.split(".")
        numbered = [i for i, segment in enumerate(segments) if segment.isdecimal() and i]
        inside = (".".join(segments[:i]) for i in numbered)
        outermost = (c for c in inside if not any(r.startswith(f"{c}.") for r in routers))
        containers.update([*outermost][:1])
    return frozenset(containers)


def labels_of(
    model: nn.Module,
    roles: Mapping[str, Role] | None = None,
    branches: Iterable[str] = (),
    apart: Set[str] = frozenset(),
) -> Labels:
    """The labels of a model's modules.

    Numbered children of one container come in runs of one class. The longest run, and every run of
    its class, are the repeated layers; a run of one child of another class is named by its place
    among the runs, from the nearer end, which no depth changes: in ``Sequential(Linear, Block, ...,
    Block, Linear)`` the ends are ``0`` and ``-1``. Where no run is longer than one (layers between
    activations), all children are taken for layers, unless they are three. Children of the
    containers ``apart`` keep their numbers (``of_several_depths``).
    """
    children: dict[str, list[tuple[str, nn.Module]]] = {}
    for name, module in unwrapped(model).named_modules():
        container, _, number = plain_name(name).rpartition(".")
        if number.isdecimal():
            children.setdefault(container, []).append((number, module))
    single: dict[tuple[str, str], str] = {}
    for container, members in children.items():
        runs = [list(run) for _, run in groupby(members, key=lambda member: type(member[1]))]
        longest = max(runs, key=lambda run: (len(run), sum(1 for _ in run[0][1].modules())))
        if len(longest) == 1 and len(runs) != 3:
            continue
        middle, layers = runs.index(longest), type(longest[0][1])
        for i, run in enumerate(runs):
            if len(run) == 1 and type(run[0][1]) is not layers:
                position = i if i < middle else i - len(runs)
                single[container, run[0][0]] = str(position)
    at = frozenset(branches)
    # Experts of a mixture are alike at any number, as are the layers of each stage.
    alike = expert_containers(roles or {})
    alike |= {c for c, members in children.items() if _are_layers(c, members, at)}
    return cache(partial(_label, single, alike - apart, apart))


def labels_by(model: nn.Module, plan: Plan, apart: Set[str] = frozenset()) -> Labels:
    """The labels of a model's modules, with its roles and residual branches by its plan."""
    roles = {name: p.role for p in plan.prescriptions for name in p.names}
    return labels_of(model, roles, (b for p in plan.prescriptions for b in p.branches), apart)


def of_several_depths(plans: Sequence[Plan]) -> frozenset[str]:
    """The containers whose numbered children are as many at every size, of several depth ratios.

    One name for all of them would average what grows with depth and what does not.
    """
    ratios: dict[str, dict[str, set[tuple[int, float]]]] = {}
    members: dict[str, list[set[str]]] = {}
    for i, plan in enumerate(plans):
        for p in plan.prescriptions:
            segments = p.branches[-1].split(".") if p.branches else ()
            for j, number in enumerate(segments):
                if number.isdecimal() and j:
                    container = ".".join(segments[:j])
                    of = ratios.setdefault(container, {})
                    of.setdefault(number, set()).add((i, p.ratios.depth))
                    members.setdefault(container, [set() for _ in plans])[i].add(number)
    return frozenset(
        container
        for container, of in ratios.items()
        if len({*map(frozenset, of.values())}) > 1
        and len({*map(frozenset, members[container])}) == 1
    )


def _label(
    single: Mapping[tuple[str, str], str], alike: Set[str], apart: Set[str], name: str
) -> str:
    """``name`` with the number of its layer replaced; later numbers tell parts apart.

    >>> _label({}, set(), set(), "layers.3.mlp.0.weight"), _label({}, set(), set(), "stages.0.1.up")
    ('layers.*.mlp.0.weight', 'stages.*.*.up')
    """
    segments = name.split(".")
    containers = [".".join(segments[:i]) for i in range(len(segments))]
    start = next((i for i, s in enumerate(segments) if s.isdecimal()), len(segments))
    for i in range(start, len(segments)):
        if not segments[i].isdecimal():
            break
        if containers[i] not in apart:
            segments[i] = single.get((containers[i], segments[i]), "*")
    for i in range(start, len(segments)):
        if containers[i] in alike:
            segments[i] = "*"
    return ".".join(segments)


def _are_layers(
    container: str, members: Sequence[tuple[str, nn.Module]], branches: frozenset[str]
) -> bool:
    """Whether numbered modules are alike, and each holds a residual branch and more than a matrix.

    By the number of a layer within its stage, networks of different depth would be compared at
    different heights: the second layer of two is near the end, that of eight near the start.
    """
    alike = len({type(module) for _, module in members}) == 1
    return alike and all(
        any(module.children())
        and any(f"{label}.".startswith(f"{container}.{number}.") for label in branches)
        for number, module in members
    )
