"""A model's own initialization: how the size of what it starts with depends on its own size.

For every parameter one ratio of standard deviations, the model's to the base's, from the first that
tells it: what a person declares; what drew both (``initializers``); what their modules' own reset
draws, where the values of both agree with it; the values. Draws give the ratio exactly. A measured
one is snapped to the nearest of the laws in use: the root mean square of N independent entries of
kurtosis k has the relative error sqrt((k - 1) / 4N).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from depthmup.planning.measured import FEW, Measured, Sizes, pooled
from depthmup.planning.policy import Policy, policy_of
from depthmup.planning.prescribe import Prescription
from depthmup.rules import Kind, Power
from depthmup.tracing import matches, named_by, pattern_of, patterns_of

LAWS = ("fixed", "fan_in")
"""Names of laws that may be declared."""

OwnInit: TypeAlias = str | Power | Mapping[str, str | Power]

# By how much widths, and depths, of a model's parameters grew.
Scales: TypeAlias = tuple[Sequence[float], Sequence[float]]

# How far from a law a measurement may lie, in its standard errors: at 5 sigma, 1 tensor in 1.7
# million is refused by chance.
_SIGMAS = 5.0
# By how many it must lie nearer to this law than to any other: a true law is missed for another,
# however near that one is, in at most 0.6% of draws.
_NEARER = 2.5
# Laws whose ratios differ by less than this need not be told apart: the commonest is taken.
_ALIKE = 0.02
_DEEPER = "r^-1/2"
# Between names of laws that cannot differ at a size.
_OR = " or "


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnLaw:
    """The recognized law: its name, and its exact ratio of the model's size to the base's.

    Attributes:
        law: a power of the sizes.
        ratio: its value from base to model.
    """

    law: str
    ratio: float


class UnrecognizedInit(ValueError):
    """A model's own initialization follows no law in the list; the message says what to do."""


def laws_of(
    prescriptions: Sequence[Prescription],
    own_init: OwnInit | None,
    model: Sizes | None,
    base: Sizes | None,
    *,
    known: Mapping[str, OwnLaw] = MappingProxyType({}),
) -> tuple[dict[str, OwnLaw], tuple[str, ...]]:
    """How each parameter's start depends on size, as far as it is told, and notes on it.

    ``model`` and ``base`` are None where there are no values and not all draws are known. Laws that
    were ``known`` before stay where the values agree with them: one draw of a small table decides
    nothing. What it leaves open follows the law that all matrices follow whose numbers suffice.
    """
    laws = _declared(
        prescriptions,
        own_init,
        model.measured if model is not None else {},
        base.measured if base is not None else {},
    )
    rest = [p for p in prescriptions if p.name not in laws]
    if model is None or base is None:
        return laws, ()
    unsure: dict[tuple[str, float], list[str]] = {}
    scales = (
        sorted({p.ratios.fan_in for p in rest} - {1.0}),
        sorted({p.ratios.depth for p in rest} - {1.0}),
    )
    together = [*_repeated(rest, model, base)]
    policy = _policy([(members, *_values(members, model, base)) for members in together])
    groups = [(m, *_sizes(m, model, base, policy)) for m in together]
    followed = _followed(groups, scales)
    for members, size, base_size in groups:
        before = known.get(members[0].name)
        if before is not None and _agrees(before, size, base_size):
            law, several = before, False
        else:
            law, several = _law(members[0], size, base_size, scales, followed, policy)
        laws.update({p.name: law for p in members})
        if several:
            unsure.setdefault((law.law, law.ratio), []).append(members[0].name)
    notes = (_unsure(names, law, ratio) for (law, ratio), names in unsure.items())
    return {p.name: laws[p.name] for p in prescriptions}, tuple(notes)


def _repeated(
    prescriptions: Sequence[Prescription], model: Sizes, base: Sizes
) -> Iterator[list[Prescription]]:
    """Parameters that are told together: repeated layers, unless they differ among themselves."""
    groups: dict[object, list[Prescription]] = {}
    for p in prescriptions:
        key = (pattern_of(p.name), pattern_of(p.base_name), p.ratios, p.shape, p.base_shape)
        groups.setdefault(key, []).append(p)
    for members in groups.values():
        both = (
            [model.measured[p.name] for p in members],
            [base.measured[name] for name in dict.fromkeys(p.base_name for p in members)],
        )
        if all(map(_one_size, both)):
            yield members
        else:
            yield from ([p] for p in members)


def _one_size(parts: Sequence[Measured]) -> bool:
    whole = pooled(parts)
    if whole.constant is not None or len(parts) == 1:
        return True
    if any(part.constant is not None for part in parts):
        return False
    return all(
        part.rms > 0 and abs(math.log(part.rms / whole.rms)) <= max(_SIGMAS * part.error, 1e-9)
        for part in parts
    )


def _values(
    members: Sequence[Prescription], model: Sizes, base: Sizes
) -> tuple[Measured, Measured]:
    """How large these parameters are in the model and in the base, as measured or as drawn."""
    base_names = dict.fromkeys(p.base_name for p in members)
    return (
        pooled([model.measured[p.name] for p in members]),
        pooled([base.measured[name] for name in base_names]),
    )


def _sizes(
    members: Sequence[Prescription], model: Sizes, base: Sizes, policy: Policy | None
) -> tuple[Measured, Measured]:
    """How large these parameters start in the model and in the base.

    Unless both are known, that is what their modules' own reset draws, where both agree with it and
    no policy has drawn all matrices: few numbers agree with a reset by chance.
    """
    names = [p.name for p in members]
    base_names = list(dict.fromkeys(p.base_name for p in members))
    size, base_size = _values(members, model, base)
    if policy is not None and len(members[0].shape) > 1:
        return size, base_size
    set_to = size.constant is not None and size.count > 1
    reset, base_reset = _reset(model, names), _reset(base, base_names)
    if (size.exact and base_size.exact) or set_to or reset is None or base_reset is None:
        return size, base_size
    return reset, base_reset


def _reset(sizes: Sizes, names: Iterable[str]) -> Measured | None:
    """The one size that modules' own resets draw of these parameters, if all agree with it."""
    found = [sizes.defaults.get(name) for name in names]
    known = [one for one in found if one is not None and one.rms > 0]
    return known[0] if len(known) == len(found) and len({one.rms for one in known}) == 1 else None


def _followed(
    groups: Iterable[tuple[Sequence[Prescription], Measured, Measured]], scales: Scales
) -> frozenset[str]:
    """The names of laws that every matrix follows whose numbers tell one law from all others."""
    every: list[frozenset[str]] = []
    for (p, *_), size, base in groups:
        constant = size.constant is not None or base.constant is not None
        if p.role.kind is Kind.VECTOR or constant or not (size.rms > 0 and base.rms > 0):
            continue
        laws = laws_in_use(p, scales)
        fitting = [law for law, off in _distances(laws, size, base).items() if off <= _SIGMAS]
        if len(laws) > 1 and len(fitting) == 1:
            every.append(frozenset(fitting[0].split(_OR)))
    return frozenset.intersection(*every) if every else frozenset()


def _policy(
    groups: Iterable[tuple[Sequence[Prescription], Measured, Measured]],
) -> Policy | None:
    """The rule by which all matrices of both models were drawn that are not known otherwise."""
    drawn = [
        one
        for (p, *_), size, base in groups
        if size.constant is None and base.constant is None and not (size.exact or base.exact)
        for one in ((p.shape, size), (p.base_shape, base))
    ]
    return policy_of(drawn, sigmas=_SIGMAS)


def _agrees(law: OwnLaw, size: Measured, base: Measured) -> bool:
    """Whether values may be of a law: as sizes measured in both tell, or where both are zero."""
    if size.rms == 0 or base.rms == 0:
        return size.rms == base.rms
    off = abs(math.log(size.rms / base.rms / law.ratio))
    return off <= _SIGMAS * math.hypot(size.error, base.error, 1e-6)


def _distances(laws: Mapping[str, float], size: Measured, base: Measured) -> dict[str, float]:
    """How far the measured ratio lies from that of each law, in its standard errors."""
    away = math.log(size.rms / base.rms)
    error = math.hypot(size.error, base.error, 1e-6)
    return {law: abs(away - math.log(ratio)) / error for law, ratio in laws.items()}


def _law(
    p: Prescription,
    size: Measured,
    base: Measured,
    scales: Scales,
    followed: frozenset[str] = frozenset(),
    policy: Policy | None = None,
) -> tuple[OwnLaw, bool]:
    """The law of one parameter, and whether others fit what was measured as well."""
    if (size.rms == 0) != (base.rms == 0):
        zero, other = ("model", "base") if size.rms == 0 else ("base", "model")
        raise UnrecognizedInit(
            f"{p.name} starts at zero in the {zero} and not in the {other}. Both must be freshly "
            f"initialized by the same code. {_advice(p)}"
        )
    if size.rms == 0:
        return OwnLaw(law="zero", ratio=1.0), False
    if size.exact and base.exact:
        return _exact(p, size, base, scales), False
    # A single number may be set or drawn, unless it is the same in both.
    set_to = max(size.count, base.count) > 1 or size.constant == base.constant
    if size.constant is not None and base.constant is not None and set_to:
        return _exact(p, size, base, scales), False
    return _nearest(p, size, base, laws_in_use(p, scales), followed, policy)


def _nearest(
    p: Prescription,
    size: Measured,
    base: Measured,
    laws: Mapping[str, float],
    followed: frozenset[str],
    policy: Policy | None,
) -> tuple[OwnLaw, bool]:
    """The law nearest to the measured ratio, and whether others are as near.

    Of several a matrix takes that of the policy by which all were drawn, or the one that all others
    follow; else it is the commonest, which comes first.
    """
    fixed = p.shape == p.base_shape
    if fixed and len(laws) == 1:  # nothing grows, so that nothing can depend on it
        return OwnLaw(law=next(iter(laws)), ratio=1.0), False
    if not (math.isfinite(size.rms) and math.isfinite(base.rms)):
        raise UnrecognizedInit(
            f"{p.name} starts with numbers that are not finite, as torch.empty leaves them. Start "
            "it in the model's own code, as nn.init.normal_ does, or load a checkpoint and use "
            "plan.attach(model)."
        )
    away = math.log(size.rms / base.rms)
    error = math.hypot(size.error, base.error, 1e-6)
    off = _distances(laws, size, base)
    least = min(off.values())
    measured = (
        f"{p.name} starts {math.exp(away):.4g} times as large in the model as in the base "
        f"(+- {error:.1%})"
    )
    known = ", ".join(f"{law} = {ratio:.4g}" for law, ratio in laws.items())
    if least > _SIGMAS:
        raise UnrecognizedInit(
            f"{measured}, which matches no known rule: {known}. If "
            "a checkpoint was loaded, the model needs no initialization: plan.attach(model) is "
            f"enough. {_advice(p)}"
        )
    near = [law for law in laws if off[law] <= least + _NEARER]
    several = max(laws[law] for law in near) > (1 + _ALIKE) * min(laws[law] for law in near)
    if policy is not None and len(p.shape) > 1:
        ratio = policy(p.shape, p.base_shape)
        if abs(away - math.log(ratio)) <= _SIGMAS * error:
            name = next((law for law in laws if _equal(laws[law], ratio)), "as all matrices")
            return OwnLaw(law=name, ratio=ratio), False
    if p.role.kind is not Kind.VECTOR:
        # As all others, or as they are but for the depth: the last matrices of branches.
        deeper = {_DEEPER if law == "1" else f"{law} {_DEEPER}" for law in followed}
        fits = [law for law in laws if off[law] <= _SIGMAS]
        alike = [law for of in (followed, deeper) for law in fits if of & {*law.split(_OR)}]
        if alike:
            return OwnLaw(law=alike[0], ratio=laws[alike[0]]), False
    return OwnLaw(law=near[0], ratio=laws[near[0]]), several


def laws_in_use(p: Prescription, scales: Scales) -> dict[str, float]:
    """The laws that a parameter's own start may follow, with their ratios: common ones, then rare.

    Laws that cannot differ at this size share an entry, those of a common one and of a rare one
    the common one's.
    """
    (widths, depths), into, out = scales, p.ratios.fan_in, p.ratios.fan_out
    root = into**-0.5
    of_widths = [("m^-1/2", m**-0.5) for m in widths]
    common, rare = [("1", 1.0)], list[tuple[str, float]]()
    if p.role.kind is Kind.VECTOR:  # a bias may follow the fan-in of the matrix beside it
        common += of_widths
    else:
        common.append(("m_in^-1/2", root))
        # Among them a tied embedding, or a table scaled by the width of the stream.
        rare += [("m_in^-1", 1 / into), ("m_out^-1/2", out**-0.5), *of_widths]
        if len(p.shape) == 2:
            rare.append(("(m_in + m_out)^-1/2", (sum(p.shape) / sum(p.base_shape)) ** -0.5))
    for r in depths:
        common += [("r^-1/2", r**-0.5), ("m_in^-1/2 r^-1/2", root * r**-0.5)]
        rare.append(("r^-1", 1 / r))
    told = _told_apart(common)
    return told | _told_apart([x for x in rare if not any(_equal(x[1], v) for v in told.values())])


def _told_apart(laws: Iterable[tuple[str, float]]) -> dict[str, float]:
    names: dict[float, list[str]] = {}
    for name, ratio in laws:
        same = next((known for known in names if _equal(known, ratio)), ratio)
        if name not in names.setdefault(same, []):
            names[same].append(name)
    return {_OR.join(alike): ratio for ratio, alike in names.items()}


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)


def _exact(p: Prescription, size: Measured, base: Measured, scales: Scales) -> OwnLaw:
    """The law of two distributions that are known; any ratio will do, a name is for the reader."""
    ratio = size.rms / base.rms
    if size.constant is not None and base.constant is not None:
        ratio = size.constant / base.constant
        return OwnLaw(law="constant" if ratio == 1 else f"constant, {ratio:.6g}", ratio=ratio)
    for law, value in laws_in_use(p, scales).items():
        if math.isclose(value, ratio, rel_tol=1e-6):
            return OwnLaw(law=law, ratio=value)
    return OwnLaw(law=f"as drawn, {ratio:.4g}", ratio=ratio)


def _unsure(names: Sequence[str], law: str, ratio: float) -> str:
    patterns = patterns_of(names, most=3)
    has, its = ("has", "its") if patterns == pattern_of(names[0]) else ("have", "their")
    return (
        f"{patterns} {has} too few numbers to tell how {its} start depends on size; "
        f"{law} = {ratio:.4g} is taken, the commonest that fits. own_init= says otherwise."
    )


def _advice(p: Prescription) -> str:
    return (
        "Otherwise say how it depends on size: own_init={"
        f"{pattern_of(p.name)!r}: 'fixed'}} (or 'fan_in', or a depthmup.rules.Power); on the "
        "command line --own-init fixed or fan_in, for all of the model."
    )


def _declared(
    prescriptions: Sequence[Prescription],
    own_init: OwnInit | None,
    model: Mapping[str, Measured],
    base: Mapping[str, Measured],
) -> dict[str, OwnLaw]:
    """The laws that the caller declared, by name of parameter, checked against the values."""
    if own_init is None:
        return {}
    # The pattern '*' alone is for all the rest.
    patterns = [*own_init] if isinstance(own_init, Mapping) else []
    for pattern in (key for key in patterns if key != "*"):
        problem = (
            f"No parameter matches {pattern!r} of own_init. Patterns are names of parameters "
            "with * for one segment, and '*' alone for all the rest"
        )
        named_by(pattern, (p.name for p in prescriptions), problem)
    fans = _fan_in_beside(prescriptions)
    result = {}
    for p in prescriptions:
        measured, base_measured = model.get(p.name), base.get(p.base_name)
        constant = measured is not None and measured.constant is not None
        law = _declared_law(p, own_init, fans[p.name], constant=constant)
        if law is None:
            continue
        if measured is not None and base_measured is not None:
            # Numbers that are known say it better, unless they are zero, which is so under any law.
            known = measured.exact and base_measured.exact
            if constant and known and measured.constant and base_measured.constant:
                law = _exact(p, measured, base_measured, ((), ()))
            _check_declared(p, law, measured, base_measured)
        result[p.name] = law
    return result


def _declared_law(
    p: Prescription, own_init: OwnInit, fan_in: float, *, constant: bool
) -> OwnLaw | None:
    """The law declared for a parameter, if any; ``fan_in`` is the ratio of its matrix."""
    law: str | Power | None
    if isinstance(own_init, Mapping):
        law = next((law for key, law in own_init.items() if _means(key, p.name)), None)
    else:
        law = own_init
    if law is None:
        return None
    if isinstance(law, Power):
        return OwnLaw(law=str(law), ratio=law.at(p.ratios))
    if law not in LAWS:
        raise ValueError(
            f"Expected own_init to be 'fixed' (the same at every size), 'fan_in' (1/sqrt(fan-in), "
            f"as torch's layers) or a depthmup.rules.Power; got {law!r}."
        )
    if law == "fixed" or constant:
        return OwnLaw(law="1", ratio=1.0)
    return OwnLaw(law="m_in^-1/2", ratio=fan_in**-0.5)


def _fan_in_beside(prescriptions: Sequence[Prescription]) -> dict[str, float]:
    """The fan-in ratio of every matrix, and for vectors that of the matrix in the same module."""
    matrices = {
        p.name.rpartition(".")[0]: p.ratios.fan_in
        for p in prescriptions
        if p.role.kind is not Kind.VECTOR
    }
    return {
        p.name: matrices.get(p.name.rpartition(".")[0], 1.0)
        if p.role.kind is Kind.VECTOR
        else p.ratios.fan_in
        for p in prescriptions
    }


def _check_declared(p: Prescription, law: OwnLaw, measured: Measured, base: Measured) -> None:
    few = min(measured.count, base.count) < FEW and not (measured.exact and base.exact)
    if few or measured.rms == 0 or base.rms == 0:
        return  # numbers that tell nothing; rescaled or not, zero it is
    error = math.hypot(measured.error, base.error, 1e-3)
    ratio = measured.rms / base.rms
    if abs(math.log(ratio / law.ratio)) > _SIGMAS * error:
        raise UnrecognizedInit(
            f"own_init says that {p.name} starts {law.ratio:.4g} times as large as in the base "
            f"({law.law}), but it starts {ratio:.4g} times as large (+- {error:.1%}). Declare what "
            "its code does, or leave it out of own_init to have it measured. If a checkpoint was "
            "loaded, the model needs no initialization: plan.attach(model) is enough."
        )


def _means(pattern: str, name: str) -> bool:
    return pattern == "*" or matches(pattern, name) is not None
