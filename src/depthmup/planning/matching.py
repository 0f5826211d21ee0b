"""Which parameter of the base a parameter of the model corresponds to.

Modules are matched by structure: same children, same parameters. Where numbered siblings (layers,
blocks, experts) differ in number, each is matched to one of the same structure, in order.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import chain, groupby
from typing import TypeAlias

import torch
from torch import nn

from depthmup.planning.sharded import shards
from depthmup.tracing import inner, plain_name

# Parameters or modules by their names inside of one module.
_Items: TypeAlias = Mapping[str, object]


class UnrelatedModels(ValueError):
    """The base is not a smaller or larger sibling of the model."""


def tied_names(
    model: nn.Module, base: nn.Module, match: "Match"
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """All names of each distinct parameter, and the base parameter it corresponds to."""

    def groups(of: nn.Module) -> dict[int, list[str]]:
        result: dict[int, list[str]] = {}
        for name, p in of.named_parameters(remove_duplicate=False):
            result.setdefault(id(p), []).append(plain_name(name))
        return result

    first = {name: same[0] for same in groups(base).values() for name in same}
    names: dict[str, tuple[str, ...]] = {}
    base_of: dict[str, str] = {}
    for same in groups(model).values():
        counterparts = {first[match.parameters[name]] for name in same}
        if len(counterparts) > 1:
            raise UnrelatedModels(
                f"{' and '.join(same)} are one tied parameter in the model but "
                f"{' and '.join(sorted(counterparts))} are separate in the base. Tie both or "
                "neither."
            )
        names[same[0]] = tuple(same)
        base_of[same[0]] = counterparts.pop()
    by_base: dict[str, list[str]] = {}
    for name, aliases in names.items():
        # Siblings matched to one base layer share their counterpart; aliases do not.
        for alias in aliases:
            by_base.setdefault(match.parameters[alias], []).append(name)
    for base_name, members in by_base.items():
        twins = {n for n, f in first.items() if f == first[base_name]}
        if len(twins) > 1:
            owners = {name for twin in twins for name in by_base.get(twin, [])}
            if len(owners) > 1 and len(set(members)) == 1:
                raise UnrelatedModels(
                    f"{' and '.join(sorted(twins))} are one tied parameter in the base but "
                    f"{' and '.join(sorted(owners))} are separate in the model. Tie both or "
                    "neither."
                )
    return names, base_of


class Match:
    """Names in a model -> names in its base, for every parameter and every module.

    ``deeper``: containers whose number of repeated children differs.
    """

    def __init__(self, model: nn.Module, base: nn.Module) -> None:
        self.parameters: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        self.deeper: dict[str, None] = {}
        self._walk(inner(model), inner(base), "", "")

    def _walk(self, model: nn.Module, base: nn.Module, at: str, base_at: str) -> None:
        """Match the parameters and the children of two modules, and theirs in turn."""
        self.modules[at] = base_at
        own = {k: p for k, p in model._parameters.items() if p is not None}
        base_own = {k: p for k, p in base._parameters.items() if p is not None}
        for key, base_key in self._pairs(own, base_own, at, "parameter").items():
            if own[key].dim() != base_own[base_key].dim():
                raise UnrelatedModels(
                    f"Parameter {_join(at, key)} has shape {tuple(own[key].shape)} in the model "
                    f"and {tuple(base_own[base_key].shape)} in the base. They must have the same "
                    "number of dimensions: build both with the same code, in two sizes."
                )
            self.parameters[_join(at, key)] = _join(base_at, base_key)
        children = {k: inner(m) for k, m in model._modules.items() if m is not None}
        base_children = {k: inner(m) for k, m in base._modules.items() if m is not None}
        for key, base_key in self._pairs(children, base_children, at, "module").items():
            self._walk(
                children[key], base_children[base_key], _join(at, key), _join(base_at, base_key)
            )

    def _pairs(self, items: _Items, base_items: _Items, at: str, what: str) -> dict[str, str]:
        """Match keys: equal keys, except numbered siblings whose numbers differ."""
        result: dict[str, str] = {}
        groups, base_groups = _grouped_alike(items, base_items)
        for prefix in dict.fromkeys(chain(groups, base_groups)):
            own, base_own = groups.get(prefix, {}), base_groups.get(prefix, {})
            if own.keys() == base_own.keys():
                result.update({key: key for key in own})
                continue
            if not own or not base_own:
                key = next(iter(own or base_own))
                where = "model" if own else "base"
                raise UnrelatedModels(
                    f"The {what} {_join(at, key)} exists only in the {where}. The base must be the "
                    "same architecture in another size: build both with the same code."
                )
            self.deeper[at] = None
            try:
                result.update(self._siblings(own, base_own, at, what))
            except UnrelatedModels:
                repeated = _same_runs(own, base_own) or _common_ends(own, base_own)
                if repeated is None:
                    raise
                result.update(repeated)
        return result

    def _siblings(self, items: _Items, base_items: _Items, at: str, what: str) -> dict[str, str]:
        """Match repeated siblings of different number: same structure, in order."""
        runs, base_runs = _runs(items), _runs(base_items)
        if [kind for kind, _ in runs] == [kind for kind, _ in base_runs]:
            # The same sequence of kinds, repeated more or less often.
            pairs = list(zip(runs, base_runs, strict=True))
        else:
            members, by_kind = _by_kind(items), _by_kind(base_items)
            pairs = [((k, same), (k, by_kind.get(k, []))) for k, same in members.items()]
        result = {}
        for (_, same), (_, available) in pairs:
            if not available:
                raise UnrelatedModels(
                    f"The {what} {_join(at, same[0])} has no counterpart among "
                    f"{', '.join(_join(at, k) for k in base_items)} of the base: none has the same "
                    "parts. " + _what_would_do(same[0], items, base_items)
                )
            # Of the same parts, the ones with the same proportions come first: a block that doubles
            # the channels has the parts, but not the shapes, of one that keeps them.
            for proportion in dict.fromkeys(_proportions(items[k]) for k in same):
                alike = [k for k in same if _proportions(items[k]) == proportion]
                pool = [k for k in available if _proportions(base_items[k]) == proportion]
                if not pool:
                    grown = [k for k in available if _grows_evenly(items[alike[0]], base_items[k])]
                    pool = grown or available
                    if len({_proportions(base_items[k]) for k in pool}) > 1:
                        distinct = len({_shapes(items[k]) for k in same}) == len(same)
                        if distinct and len(same) > len(base_items):
                            raise UnrelatedModels(_each_of_its_own(at, same, len(base_items)))
                        raise UnrelatedModels(
                            f"The {what} {_join(at, alike[0])} could correspond to several of the "
                            f"base ({', '.join(_join(at, k) for k in pool)}), whose proportions "
                            "differ from its own. Use a base with the same proportions."
                        )
                for i, key in enumerate(alike):
                    result[key] = pool[i * len(pool) // len(alike)]
        return result


def _what_would_do(key: str, items: _Items, base_items: _Items) -> str:
    """Which base has a counterpart of an item that has none."""
    part, base_part = items[key], base_items.get(key)
    children = part._modules if isinstance(part, nn.Module) else {}
    for name in children:
        if base_part is not None and getattr(base_part, name, part) is None:
            return (
                f"It has {name}, which is None in {key} of the base: a shortcut, say, that two "
                "widths need where they differ. Build the base in a width in which they do."
            )
    return _with_each_kind([structure(part) for part in items.values()])


def _with_each_kind(kinds: Sequence[Hashable]) -> str:
    """How many layers a base needs, from the pattern in which a model's kinds of layers alternate.

    Example:
        >>> _with_each_kind("aabaabaab")
        'The model repeats a pattern of 3 layers: use a base of 3 or 6.'
        >>> _with_each_kind("caabaabaabaab")
        'The model repeats a pattern of 3 layers behind the first: use a base of 4, 7 or 10.'
        >>> _with_each_kind("abbbbbbb")
        'Use a base with one of each kind, as the first 2 layers of the model.'
    """
    for start in range(len(kinds) // 2):
        rest = kinds[start:]
        for period in range(2, len(rest) // 2 + 1):
            if len({*rest}) > 1 and all(a == b for a, b in zip(rest, rest[period:], strict=False)):
                sizes = ", ".join(map(str, [*range(start + period, len(kinds), period)][:3]))
                numbers = " or ".join(sizes.rsplit(", ", 1))
                behind = f" behind the first {start}".removesuffix(" 1") if start else ""
                return (
                    f"The model repeats a pattern of {period} layers{behind}: use a base of "
                    f"{numbers}."
                )
    first = max(kinds.index(kind) for kind in set(kinds)) + 1
    return f"Use a base with one of each kind, as the first {first} layers of the model."


def _same_runs(items: _Items, base_items: _Items) -> dict[str, str] | None:
    """Match flat sequences that are the same runs of equal layers, each run longer or shorter.

    Stages of MobileNet and its like: a layer that changes the channels, then some that keep them.
    None if they are other sequences, or grow in different ways.
    """

    def equal_layers(items: _Items) -> list[list[str]]:
        alike = groupby(items, key=lambda name: (structure(items[name]), _shapes(items[name])))
        return [list(run) for _, run in alike]

    runs, base_runs = equal_layers(items), equal_layers(base_items)
    if len(runs) != len(base_runs):
        return None
    firsts = [(run[0], base[0]) for run, base in zip(runs, base_runs, strict=True)]
    alike = all(structure(items[a]) == structure(base_items[b]) for a, b in firsts)
    if not alike or not _one_growth(
        [(_shapes(items[a]), _shapes(base_items[b])) for a, b in firsts]
    ):
        return None
    return {
        key: base[i * len(base) // len(run)]
        for run, base in zip(runs, base_runs, strict=True)
        for i, key in enumerate(run)
    }


def _common_ends(items: _Items, base_items: _Items) -> dict[str, str] | None:
    """Match a flat sequence whose ends are alike and whose middle repeats more or less often.

    The longer sequence must be the shorter one with a stretch put in that repeats, shape by shape,
    what stands before it. None if there is no such stretch.
    """
    if len(items) < len(base_items):
        flipped = _common_ends(base_items, items)
        # Of several layers of the base that correspond to one of the model, the first is compared.
        return {b: a for a, b in reversed(flipped.items())} if flipped is not None else None
    keys, base_keys = list(items), list(base_items)
    kinds, base_kinds = ([*map(structure, of.values())] for of in (items, base_items))
    shapes, base_shapes = ([*map(_shapes, of.values())] for of in (items, base_items))
    extra = len(keys) - len(base_keys)
    # The shortest period first: a run of equal layers repeats with every longer one as well.
    for period in range(1, extra + 1):
        if extra % period:
            continue
        for at in range(len(base_keys), period - 1, -1):
            inserted = range(at, at + extra)
            source = [*range(at), *(at - period + (i - at) % period for i in inserted)]
            source += range(at, len(base_keys))
            repeats = all(shapes[i] == shapes[i - period] for i in inserted)
            alike = all(kinds[i] == base_kinds[j] for i, j in enumerate(source))
            pairs = [(shapes[i], base_shapes[j]) for i, j in enumerate(source)]
            if repeats and alike and _one_growth(pairs):
                return {keys[i]: base_keys[j] for i, j in enumerate(source)}
    return None


def _each_of_its_own(at: str, same: list[str], of_base: int) -> str:
    return (
        f"The layers {_join(at, same[0])} to {_join(at, same[-1])} have all different shapes "
        "(stages that widen, or layers that each read what all before them gave): more of "
        "them change what the others read, for which no depth rule is known. Use a base of "
        f"{len(same)} such "
        f"layers (it has {of_base}) and scale the width alone."
    )


def _shapes(part: object) -> tuple[tuple[int, ...], ...]:
    if isinstance(part, torch.Tensor):
        return (tuple(part.shape),)
    return tuple(tuple(p.shape) for p in part.parameters()) if isinstance(part, nn.Module) else ()


def _grows_evenly(part: object, base_part: object) -> bool:
    """Whether each size is the base's, or as many times as large as all others that grow.

    Of blocks that attend within windows and to everything, tables of positions keep their sizes.
    """
    sizes, base_sizes = ([n for shape in _shapes(p) for n in shape] for p in (part, base_part))
    grown = {Fraction(a, b) for a, b in zip(sizes, base_sizes, strict=False) if a and b} - {1}
    return len(sizes) == len(base_sizes) and len(grown) <= 1


def _one_growth(pairs: Sequence[tuple[Hashable, Hashable]]) -> bool:
    """Whether layers of the same shapes in the base have the same shapes in the model."""
    growth: dict[Hashable, Hashable] = {}
    return all(growth.setdefault(base, model) == model for model, base in pairs)


def _runs(items: _Items) -> list[tuple[Hashable, list[str]]]:
    """Consecutive keys of the same structure."""
    return [(kind, list(run)) for kind, run in groupby(items, key=lambda k: structure(items[k]))]


def _by_kind(items: _Items) -> dict[Hashable, list[str]]:
    """Keys by their structure."""
    kinds: dict[Hashable, list[str]] = {}
    for key, part in items.items():
        kinds.setdefault(structure(part), []).append(key)
    return kinds


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _grouped_alike(
    items: _Items, base_items: _Items
) -> tuple[dict[str, dict[str, object]], dict[str, dict[str, object]]]:
    """Items of a model and of its base by what stands around the number of a layer in their keys.

    The number is the last of a key; where keys go on behind it (``l0_up``), the first.
    """
    for number in (_AT_THE_END, _INSIDE):
        groups, base_groups = _grouped(items, number), _grouped(base_items, number)
        if groups.keys() == base_groups.keys():
            return groups, base_groups
    return _grouped(items), _grouped(base_items)


_AT_THE_END, _INSIDE = re.compile(r"(.*?)\d+()"), re.compile(r"(.*?)\d+(.*)")


def _grouped(items: _Items, number: re.Pattern[str] = _AT_THE_END) -> dict[str, dict[str, object]]:
    """Items by what stands around a number in their keys; those without one stand alone."""
    groups: dict[str, dict[str, object]] = {}
    for key, part in items.items():
        numbered = number.fullmatch(key)
        groups.setdefault(f"{numbered[1]}#{numbered[2]}" if numbered else key, {})[key] = part
    return groups


def structure(part: object) -> Hashable:
    """What a module is made of, whatever its sizes and however often its layers repeat."""
    if isinstance(part, torch.Tensor):
        return part.dim()
    assert isinstance(part, nn.Module)
    part = inner(part)
    own = frozenset((k, p.dim()) for k, p in part._parameters.items() if p is not None)
    children = {k: m for k, m in part._modules.items() if m is not None}
    nested = frozenset(
        (prefix, frozenset(map(structure, alike.values())))
        for prefix, alike in _grouped(children).items()
    )
    return _class(part).__qualname__, own, nested


def _class(module: nn.Module) -> type:
    """The class as written: sharding replaces it by a subclass."""
    return next(c for c in type(module).__mro__ if not shards(c))


def _proportions(part: object) -> Hashable:
    """The sizes of a module's parameters relative to the largest, coarsely."""
    tensors = (
        [part]
        if isinstance(part, torch.Tensor)
        else list(part.parameters())
        if isinstance(part, nn.Module)
        else []
    )
    sizes = [size for tensor in tensors for size in tensor.shape]
    largest = max(sizes, default=1)
    return tuple(round(size / largest, 2) for size in sizes)
