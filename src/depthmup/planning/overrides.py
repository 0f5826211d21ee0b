"""A plan as the configuration of trainers: patterns of names, and what each changes.

Formats, as their sources had them in November 2026: torchtitan's ``ParamGroupConfig`` (the first
pattern that ``re.search`` finds in a name decides), NeMo Automodel's ``param_group_overrides`` (the
same), axolotl's ``lr_groups`` (parts of names, for weights that decay), and Megatron's
``config_overrides`` (file-name patterns; a parameter takes all overrides that match).
"""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from depthmup.planning.content import PlanContent
from depthmup.planning.groups import check_decay
from depthmup.planning.hooks import by_hook
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import WITH_EPSILON, alike, betas_at, factor, scaled
from depthmup.planning.tuned_with import rates_apart
from depthmup.rules import EPSILON
from depthmup.tracing import pattern_of

EMBEDDINGS = ("embed_tokens", "lm_head")
"""Parts of names by which axolotl finds embeddings, which have a rate of their own."""

_MULTIPLIERS, _EPSILON, _DECAY, _BETAS = "multipliers", "epsilon", "decay", "betas"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Values at the base, for formats that take no multiples; ``min_lr`` is Megatron's floor."""

    lr: float | None = None
    weight_decay: float = 0.0
    eps: float | None = None
    betas: tuple[float, float] | None = None
    min_lr: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Parameters of the same factors, by patterns (``*``: a number) that no other group has."""

    first: Prescription
    names: tuple[str, ...]
    patterns: tuple[str, ...]
    vector: bool

    @property
    def regex(self) -> str:
        """A regular expression for exactly the names of the group."""
        return f"^(?:{'|'.join(map(_regex, self.patterns))})$"


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A format: how it is written, what it can hold, and whether its values are absolute."""

    write: Callable[[PlanContent, Settings], str]
    holds: frozenset[str] = frozenset()
    absolute: bool = False


def overrides(
    plan: PlanContent, format: str, given: Settings, *, leave_out: str | Iterable[str] = ()
) -> str:
    """The text of a format; what it cannot hold is refused unless it is left out by name."""
    if format not in FORMATS:
        raise ValueError(f"Expected a format of {', '.join(FORMATS)}; got {format!r}.")
    chosen = FORMATS[format]
    left = {leave_out} if isinstance(leave_out, str) else {*leave_out}
    losses = _losses(plan)
    if unknown := left - {_MULTIPLIERS, _EPSILON, _DECAY, _BETAS}:
        raise ValueError(
            f"Expected leave_out to name {_MULTIPLIERS}, {_EPSILON}, {_DECAY} or {_BETAS}; got "
            f"{min(unknown)!r}."
        )
    if lost := {what: of for what, of in losses.items() if what not in left | chosen.holds}:
        named = "; ".join(f"{what}: {where}" for what, (where, _) in lost.items())
        instead = " ".join(dict.fromkeys(way for _, way in lost.values()))
        without = sorted(left | lost.keys())
        raise ValueError(
            f"{format} cannot hold the plan's {named}. {instead} Or take plan.rescale(model, "
            f"optimizer) in code, or accept the difference: leave_out={tuple(without)!r}, "
            f"--leave-out {' '.join(without)}."
        )
    if chosen.absolute and given.lr is None:
        raise ValueError(
            f"Expected the base's learning rate, which {format} holds as a value: "
            f"plan.overrides({format!r}, lr=3e-3, weight_decay=0.1), or --lr 3e-3."
        )
    if format != "json" and rates_apart(plan):
        raise ValueError(
            f"{format} has one learning rate here, and this plan takes two, {plan.tuned_with}'s "
            "for matrices and AdamW's for the rest. Use plan.param_groups in code, or the format "
            "json."
        )
    if any(p.family.matrices_only for p in plan.prescriptions) and format != "json":
        raise ValueError(
            f"{plan.optimizer} trains matrices only, and {format} has one optimizer here. Use "
            "plan.muon_groups in code, or the format json."
        )
    return chosen.write(plan, given)


def _losses(plan: PlanContent) -> dict[str, tuple[str, str]]:
    """What a plan has beside learning rates, where, and the way out."""
    found: dict[str, tuple[str, str]] = {}
    if hooked := [m for m in plan.multipliers if m.hooks]:
        named = [f"{m.label} times {m.value:.6g}" for m in hooked[:3]]
        found[_MULTIPLIERS] = (
            _listed(named, len(hooked)),
            "Multiply in the model's code, or call plan.attach(model) where it is built.",
        )
    for what, concerned in (
        (_EPSILON, [p for p in plan.prescriptions if p.family in WITH_EPSILON and p.epsilon != 1]),
        (_DECAY, [p for p in plan.prescriptions if p.decay != 1]),
    ):
        if concerned:
            patterns = [*dict.fromkeys(pattern_of(p.name) for p in concerned)]
            found[what] = (_listed(patterns[:3], len(patterns)), "Use torchtitan or json.")
    if (plan.one_minus_beta, plan.log_beta2) != (1.0, 1.0):
        found[_BETAS] = ("they move with batch and duration", "Use torchtitan or json.")
    return found


def _listed(first: Sequence[str], count: int) -> str:
    more = f" and {count - len(first)} more" if count > len(first) else ""
    return ", ".join(first) + more


def groups(
    plan: PlanContent, key: Callable[[Prescription], Hashable], *, vectors: bool = False
) -> list[Group]:
    """The groups of a plan; with ``vectors`` gains and biases are apart from matrices."""
    members: dict[Hashable, list[Prescription]] = {}
    for p in plan.prescriptions:
        members.setdefault((key(p), vectors and _is_vector(p)), []).append(p)
    shared: dict[str, set[Hashable]] = {}
    for at, alike_ones in members.items():
        for name in _names(alike_ones):
            shared.setdefault(pattern_of(name), set()).add(at)
    found = []
    for alike_ones in members.values():
        names = _names(alike_ones)
        # Layers of one stack may differ: then each is named.
        parts = [pattern_of(n) if len(shared[pattern_of(n)]) == 1 else n for n in names]
        found.append(
            Group(
                first=alike_ones[0],
                names=names,
                patterns=tuple(dict.fromkeys(parts)),
                vector=vectors and _is_vector(alike_ones[0]),
            )
        )
    return found


def _names(prescriptions: Iterable[Prescription]) -> tuple[str, ...]:
    """All names, those of shared parameters included: which of them counts, a trainer decides."""
    return tuple(dict.fromkeys(name for p in prescriptions for name in (p.name, *p.names)))


def _is_vector(p: Prescription) -> bool:
    """Those that Megatron and axolotl take for vectors, which they do not decay."""
    return len(p.shape) < 2 or p.name.endswith(".bias")


def _regex(pattern: str) -> str:
    return r"\.".join(r"\d+" if part == "*" else re.escape(part) for part in pattern.split("."))


def _json(plan: PlanContent, settings: Settings) -> str:
    """Everything, in multiples of the base's values, one group a line."""
    lines = []
    for group in groups(plan, lambda p: (alike(p), p.init)):
        p = group.first
        factors = {"lr": p.lr, "weight_decay": p.decay, "eps": factor(p, "eps")}
        lines.append(
            json.dumps(
                {"pattern": group.regex, "family": p.family.value, **factors, "init": p.init}
            )
        )
    forward = [
        json.dumps(
            {
                "module": hook.module,
                "side": hook.side,
                "value": value,
                **({"parameter": hook.parameter} if hook.parameter else {}),
                **({"part": [*map(list, hook.part)], "dim": hook.dim} if hook.part else {}),
                **({"index": hook.index} if hook.index else {}),
            }
        )
        for hook, value in by_hook(plan.multipliers).items()
    ]
    head = {
        "scheme": plan.scheme,
        "optimizer": plan.optimizer,
        "one_minus_beta": plan.one_minus_beta,
        "log_beta2": plan.log_beta2,
        **({"tuned_with": plan.tuned_with} if plan.tuned_with else {}),
    }
    listed = {"overrides": lines, "multipliers": forward}
    parts = [f'  "{name}": {json.dumps(value)}' for name, value in head.items()]
    for name, rows in listed.items():
        inside = ",\n".join(f"    {row}" for row in rows)
        parts.append(f'  "{name}": [\n{inside}\n  ]' if rows else f'  "{name}": []')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _torchtitan(plan: PlanContent, settings: Settings) -> str:
    """Python: a list of ``ParamGroupConfig``."""
    if plan.optimizer not in ("adam", "adamw"):
        raise ValueError(
            f"Expected a plan for adam or adamw, which torchtitan builds; got {plan.optimizer}."
        )
    check_decay(plan.optimizer, plan.family, settings.weight_decay, None)
    if settings.betas is None and _BETAS in _losses(plan):
        raise ValueError("Expected the base's betas, which the plan moves: betas=(0.9, 0.95).")
    usual: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    usual["eps"] = EPSILON[plan.optimizer] if settings.eps is None else settings.eps
    more: dict[str, Any] = {}
    if settings.betas is not None:
        more["betas"] = betas_at(plan, settings.betas)
    if plan.optimizer == "adam" and settings.weight_decay:
        more["decoupled_weight_decay"] = True
    name = {"adam": "Adam", "adamw": "AdamW"}[plan.optimizer]
    lines = [
        f"    ParamGroupConfig(pattern={group.regex!r}, optimizer_name={name!r}, "
        f"optimizer_kwargs={ {**scaled(usual, group.first), **more}!r}),"
        for group in groups(plan, alike)
    ]
    return "\n".join([_note(plan), "param_groups = [", *lines, "]", ""])


def _automodel(plan: PlanContent, settings: Settings) -> str:
    """YAML: ``param_group_overrides`` of the optimizer."""
    lines = [
        f"    - {{pattern: {_quoted(group.regex)}, lr_mult: {_number(group.first.lr)}, "
        f"wd_mult: {_number(group.first.decay)}}}"
        for group in groups(plan, lambda p: (p.lr, p.decay))
    ]
    return "\n".join([_note(plan), "optimizer:", "  param_group_overrides:", *lines, ""])


def _axolotl(plan: PlanContent, settings: Settings) -> str:
    """YAML: ``lr_groups``, and ``embedding_lr``."""
    assert settings.lr is not None
    found = groups(plan, lambda p: p.lr, vectors=True)
    embedded = {g.first.lr for g in found for n in g.names if any(part in n for part in EMBEDDINGS)}
    if len(embedded) > 1:
        raise ValueError(
            f"axolotl has one rate for {' and '.join(EMBEDDINGS)}; the plan has "
            f"{' and '.join(f'{settings.lr * f:.6g}' for f in sorted(embedded))}. Use "
            "plan.rescale(model, optimizer) in code."
        )
    lines = [_note(plan), f"learning_rate: {_number(settings.lr)}"]
    if embedded:
        lines.append(f"embedding_lr: {_number(settings.lr * embedded.pop())}")
    lines.append("lr_groups:")
    every = _names(plan.prescriptions)
    for number, group in enumerate(found):
        rest = [n for n in group.names if not any(part in n for part in EMBEDDINGS)]
        if group.vector:
            if rest and group.first.lr != 1.0:
                raise ValueError(
                    f"axolotl gives gains and biases the base's rate; the plan has "
                    f"{settings.lr * group.first.lr:.6g} for {pattern_of(rest[0])}. Use "
                    "plan.rescale(model, optimizer) in code."
                )
            continue
        if rest:
            parts = _parts(rest, every)
            rate = _number(settings.lr * group.first.lr)
            modules = ", ".join(map(_quoted, parts))
            lines.append(f"  - {{name: group{number}, modules: [{modules}], lr: {rate}}}")
    return "\n".join([*lines, ""])


def _parts(names: Sequence[str], every: Iterable[str]) -> list[str]:
    """Parts of names that together are in all of these, and in no other."""
    others = {*every} - {*names}
    parts: dict[str, None] = {}
    for name in names:
        segments = name.split(".")
        last = max((i for i, part in enumerate(segments) if part.isdecimal()), default=-1)
        short = ".".join(["", *segments[last + 1 :]]) if last >= 0 else name
        part = next((p for p in (short, name) if not any(p in other for other in others)), "")
        if not part:
            raise ValueError(
                f"axolotl finds parameters by parts of their names, and {name} is part of another "
                "name. Use plan.rescale(model, optimizer) in code."
            )
        parts[part] = None
    return list(parts)


def _megatron(plan: PlanContent, settings: Settings) -> str:
    """Python: a dictionary of ``ParamKey`` and overrides, beside Megatron's own."""
    every = _names(plan.prescriptions)
    lines = []
    for group in groups(plan, lambda p: (p.lr, p.decay), vectors=True):
        p = group.first
        rates = {"lr": settings.lr, "min_lr": settings.min_lr}
        at = scaled(rates, p)
        values = {"max_lr": at["lr"], "min_lr": at["min_lr"]}
        # Megatron's own override has the decay of vectors, 0, and two that differ are refused.
        values |= {} if group.vector else {"wd_mult": p.decay}
        lines.append(f"    ParamKey(name={_globs(group, every)!r}): {values!r},")
    return "\n".join([_note(plan), "config_overrides = {", *lines, "}", ""])


def _globs(group: Group, every: Iterable[str]) -> tuple[str, ...]:
    """Patterns of file names for exactly the names of a group; they know no numbers."""
    others, globs = {*every} - {*group.names}, dict[str, None]()
    for pattern in group.patterns:
        glob = pattern.replace("[", "[[]").replace("?", "[?]")
        if any(fnmatchcase(other, glob) for other in others):
            globs |= dict.fromkeys(n for n in group.names if pattern_of(n) == pattern)
        else:
            globs[glob] = None
    return tuple(globs)


def _note(plan: PlanContent) -> str:
    return (
        f"# {plan.title} for {plan.optimizer}, by depthmup. Initial scales are the model's: "
        "plan.initialize(model), or the format json."
    )


def _quoted(text: str) -> str:
    """A string of YAML that holds backslashes as they are."""
    return "'" + text.replace("'", "''") + "'"


def _number(value: float) -> str:
    """A number that YAML 1.1 reads back exactly; without a point it takes 1e-05 for a text."""
    mantissa, e, exponent = repr(float(value)).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}" if e else mantissa


FORMATS: Mapping[str, Format] = {
    "json": Format(write=_json, holds=frozenset({_MULTIPLIERS, _EPSILON, _DECAY, _BETAS})),
    "torchtitan": Format(
        write=_torchtitan, holds=frozenset({_EPSILON, _DECAY, _BETAS}), absolute=True
    ),
    "automodel": Format(write=_automodel, holds=frozenset({_DECAY})),
    "axolotl": Format(write=_axolotl, absolute=True),
    "megatron": Format(write=_megatron, holds=frozenset({_DECAY}), absolute=True),
}
