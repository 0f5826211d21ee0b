"""A model's own initialization: how the size of what it starts with depends on its own size.

Where the initializers were seen (``initializers``), the ratio of the model's standard deviation to
the base's is exact. Elsewhere the tensors are compared. What a module's own ``reset_parameters``
would draw is believed where it fits both; otherwise the ratio of root mean squares is recognized
among the laws in use: constant, fan-in, fan-out, depth and their products. The error of a root mean
square over N independent entries of kurtosis k is sqrt((k - 1) / 4N), relative.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from depthmup.planning.measured import FEW, Measured, Sizes, pooled
from depthmup.planning.prescribe import Prescription
from depthmup.rules import Kind, Power
from depthmup.tracing import pattern_of

OwnInit: TypeAlias = str | Power | Mapping[str, str | Power]

# By how much widths, and depths, of a model's parameters grew.
Scales: TypeAlias = tuple[Sequence[float], Sequence[float]]

# How far from a law a measurement may lie (at 5 sigma, 1 tensor in 1.7 million is refused by
# chance), and how much better than the next law it must be: differences of squared scores are twice
# the logarithm of odds, so 6 is 20 to 1. Laws that few models follow start 9 behind: where one
# fits no better than a common law, the common one is believed.
SIGMAS = 5.0
_MARGIN = 6.0
_RARE = 9.0


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


class _Uncertain(UnrecognizedInit):
    """Several laws fit, likeliest first; ``scores`` are those of all laws, small where they fit."""

    def __init__(
        self, message: str, laws: Mapping[str, float], scores: Mapping[str, float]
    ) -> None:
        super().__init__(message)
        self.laws, self.ratios = tuple(laws), tuple(laws.values())
        self.scores = scores

    def allows(self, ratio: float) -> bool:
        return any(math.isclose(ratio, other, rel_tol=1e-9) for other in self.ratios)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """Parameters that are told together: repeated layers, if they are alike."""

    members: tuple[Prescription, ...]
    size: Measured
    base: Measured

    @property
    def first(self) -> Prescription:
        return self.members[0]


def recognize(
    prescriptions: Sequence[Prescription], model: Sizes, base: Sizes
) -> tuple[dict[str, OwnLaw], tuple[str, ...]]:
    """The own law of every parameter, from both models' sizes, and notes on what is assumed.

    Repeated layers are measured together, unless they differ among themselves. Tensors with too few
    entries to tell two laws apart (a bias of two numbers) follow the matrix of their module, then
    the law of the others, if those agree, then others of their kind; vectors and tensors of one
    fixed shape take the likelier law, with a note.
    """
    scales = (
        sorted({p.ratios.fan_in for p in prescriptions} - {1.0}),
        sorted({p.ratios.depth for p in prescriptions} - {1.0}),
    )
    laws: dict[str, OwnLaw] = {}
    doubts: list[tuple[_Part, _Uncertain]] = []
    for part in _parts(prescriptions, model, base):
        try:
            own = _default(part, model, base, scales)
            own = own or _law(part.first, part.size, part.base, scales)
        except _Uncertain as problem:
            doubts.append((part, problem))
        except UnrecognizedInit:
            default = _weak_default(part, model, base, scales)
            if default is None:
                raise
            laws.update({p.name: default for p in part.members})
        else:
            laws.update({p.name: own for p in part.members})
    notes = []
    fans = fan_in_beside(prescriptions)
    together = _pooled_doubts(doubts)
    for index, (part, doubt) in enumerate(doubts):
        habits = (
            _as_its_matrix(part.first, prescriptions, laws),
            _as_the_others(part.first, prescriptions, laws, fans),
            together.get(index),
        )
        law = _weak_default(part, model, base, scales)
        law = law or next((h for h in habits if h is not None and doubt.allows(h.ratio)), None)
        if law is None:
            fixed = part.first.shape == part.first.base_shape
            if part.first.role.kind is not Kind.VECTOR and not fixed:
                raise doubt
            law = OwnLaw(law=doubt.laws[0], ratio=doubt.ratios[0])
            notes.append(
                f"{pattern_of(part.first.name)} has too few numbers to tell how its start depends "
                f"on size; {law.law} = {law.ratio:.4g} is taken, the likeliest. own_init= says "
                "otherwise."
            )
        laws.update({p.name: law for p in part.members})
    ordered = {p.name: laws[p.name] for p in prescriptions if p.name in laws}
    return ordered, tuple(dict.fromkeys(notes))


def _parts(prescriptions: Sequence[Prescription], model: Sizes, base: Sizes) -> list[_Part]:
    groups: dict[tuple[str, str, object], list[Prescription]] = {}
    for p in prescriptions:
        key = (pattern_of(p.name), pattern_of(p.base_name), (p.ratios, p.shape, p.base_shape))
        groups.setdefault(key, []).append(p)
    result = []
    for members in groups.values():
        sizes = [model.measured[p.name] for p in members]
        base_sizes = [base.measured[name] for name in dict.fromkeys(p.base_name for p in members)]
        together = _alike(sizes) and _alike(base_sizes)
        for part in [members] if together else [[p] for p in members]:
            result.append(
                _Part(
                    members=tuple(part),
                    size=pooled([model.measured[p.name] for p in part]),
                    base=pooled([base.measured[n] for n in {p.base_name for p in part}]),
                )
            )
    return result


def _default(part: _Part, model: Sizes, base: Sizes, scales: Scales) -> OwnLaw | None:
    """The law of the modules' own reset, if enough numbers agree with it."""
    few = min(part.size.count, part.base.count) < FEW
    if few or (part.size.exact and part.base.exact):
        return None
    return _weak_default(part, model, base, scales)


def _weak_default(part: _Part, model: Sizes, base: Sizes, scales: Scales) -> OwnLaw | None:
    if not all(p.name in model.defaults and p.base_name in base.defaults for p in part.members):
        return None
    rms = {model.defaults[p.name].rms for p in part.members}
    base_rms = {base.defaults[p.base_name].rms for p in part.members}
    constant = part.size.constant is not None and part.size.count > 1
    if constant or len(rms) != 1 or len(base_rms) != 1 or 0 in base_rms:
        return None
    return _named_law(part.first, rms.pop() / base_rms.pop(), scales)


def _as_its_matrix(
    p: Prescription, prescriptions: Sequence[Prescription], laws: Mapping[str, OwnLaw]
) -> OwnLaw | None:
    """A vector beside one matrix in its module starts as that one does."""
    module = p.name.rpartition(".")[0]
    beside = [
        q
        for q in prescriptions
        if q.name.rpartition(".")[0] == module and q.role.kind is not Kind.VECTOR
    ]
    if p.role.kind is not Kind.VECTOR or len(beside) != 1 or beside[0].name not in laws:
        return None
    return OwnLaw(law="as its matrix", ratio=laws[beside[0].name].ratio)


def _pooled_doubts(doubts: Sequence[tuple[_Part, _Uncertain]]) -> dict[int, OwnLaw]:
    """Tensors of one kind that none can tell alone, told together: squared scores add up."""
    kinds: dict[object, list[int]] = {}
    for index, (part, doubt) in enumerate(doubts):
        key = (part.first.role.kind, part.first.ratios, tuple(sorted(doubt.scores)))
        kinds.setdefault(key, []).append(index)
    result = {}
    for members in kinds.values():
        total = {
            law: sum(doubts[i][1].scores[law] for i in members)
            for law in doubts[members[0]][1].scores
        }
        ranked = sorted(total, key=lambda law: total[law])
        if len(members) > 1 and len(ranked) > 1 and total[ranked[1]] - total[ranked[0]] > _MARGIN:
            for i in members:
                doubt = doubts[i][1]
                ratio = (
                    doubt.ratios[doubt.laws.index(ranked[0])] if ranked[0] in doubt.laws else 0.0
                )
                if ratio:
                    result[i] = OwnLaw(law=f"{ranked[0]}, with its kind", ratio=ratio)
    return result


def fan_in_beside(prescriptions: Sequence[Prescription]) -> dict[str, float]:
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


def _as_the_others(
    p: Prescription,
    prescriptions: Sequence[Prescription],
    known: Mapping[str, OwnLaw],
    fans: Mapping[str, float],
) -> OwnLaw | None:
    """Fixed or fan-in, if all other tensors (vectors for a vector) that can tell agree on one.

    Where no fan-in changes, those that do not follow the depth tell that a vector does not either.
    A matrix is left open: the last ones of branches often follow the depth, and alone.
    """
    is_vector = p.role.kind is Kind.VECTOR
    for alike in (True, False):
        habits = set()
        for q in prescriptions:
            law = known.get(q.name)
            if law is None or law.law.startswith(("zero", "constant")):
                continue
            if alike and (q.role.kind is Kind.VECTOR) != is_vector:
                continue
            fan_in = math.isclose(law.ratio, fans[q.name] ** -0.5, rel_tol=1e-9)
            both = fan_in and law.ratio == 1
            habits.add(
                "both" if both else "fan_in" if fan_in else "fixed" if law.ratio == 1 else law.law
            )
        if habits == {"both"} and is_vector and fans[p.name] == 1:
            return OwnLaw(law="1, as the others", ratio=1.0)
        habits.discard("both")
        if habits == {"fan_in"}:
            return OwnLaw(law="fan-in, as the others", ratio=fans[p.name] ** -0.5)
        if habits == {"fixed"}:
            return OwnLaw(law="1, as the others", ratio=1.0)
        if habits:
            return None
    return None


def _alike(parts: Sequence[Measured]) -> bool:
    whole = pooled(parts)
    if whole.constant is not None or len(parts) == 1:
        return True
    if any(part.constant is not None for part in parts):
        return False
    return all(
        part.rms > 0 and abs(math.log(part.rms / whole.rms)) <= max(SIGMAS * part.error, 1e-9)
        for part in parts
    )


def candidates(p: Prescription, scales: Scales) -> dict[str, tuple[float, float]]:
    """The laws a parameter's own initialization may follow: name -> (ratio at this size, rarity).

    Rarity is a prior, in units of squared standard scores: what most models do has 0.
    """
    (widths, depths), into, out = scales, p.ratios.fan_in, p.ratios.fan_out
    root = into**-0.5
    laws: list[tuple[str, float, float]] = [("1", 1.0, 0.0)]
    if p.role.kind is Kind.VECTOR:  # a bias may follow the fan-in of the matrix beside it
        laws += [("m^-1/2", m**-0.5, 0.0) for m in widths]
    else:
        laws += [("m_in^-1/2", root, 0.0)]
        laws += [("m_in^-1", 1 / into, _RARE), ("m_out^-1/2", out**-0.5, _RARE)]
        # A tied embedding, or a table scaled by the width of the stream.
        laws += [("m^-1/2", m**-0.5, _RARE) for m in widths]
        if len(p.shape) == 2:
            laws += [("(m_in + m_out)^-1/2", (sum(p.shape) / sum(p.base_shape)) ** -0.5, _RARE)]
    for r in depths:
        laws += [("r^-1/2", r**-0.5, 0.0), ("r^-1", 1 / r, _RARE)]
        laws += [("m_in^-1/2 r^-1/2", root * r**-0.5, 0.0)]
    result: dict[str, tuple[float, float]] = {}
    for name, value, rarity in laws:
        same = [k for k, (v, _) in result.items() if math.isclose(v, value, rel_tol=1e-9)]
        if same and name not in same[0].split(" or "):
            # At this size the two cannot differ, and need not be told apart.
            other, (ratio, rarest) = same[0], result.pop(same[0])
            both = f"{other} or {name}" if rarest == rarity else other if rarest < rarity else name
            result[both] = (ratio, min(rarest, rarity))
        elif not same:
            result[name] = (value, rarity)
    return result


def _law(
    p: Prescription,
    size: Measured,
    base: Measured,
    scales: Scales,
) -> OwnLaw:
    """The law of one part: known, equal, or the nearest of those in use."""
    if (size.rms == 0) != (base.rms == 0):
        zero, other = ("model", "base") if size.rms == 0 else ("base", "model")
        raise UnrecognizedInit(
            f"{p.name} starts at zero in the {zero} and not in the {other}. Both must be freshly "
            f"initialized by the same code. {_advice(p)}"
        )
    if size.rms == 0:
        return OwnLaw(law="zero", ratio=1.0)
    known = size.exact and base.exact
    constant = size.constant is not None and base.constant is not None
    one_number = constant and max(size.count, base.count) == 1
    if one_number and not known and size.constant != base.constant:
        laws = candidates(p, scales)
        raise _Uncertain(
            f"{p.name} is one number, which tells nothing of how it depends on size. {_advice(p)}",
            {law: value for law, (value, _) in laws.items()},
            {law: rarity for law, (_, rarity) in laws.items()},
        )
    if known or constant:
        return exact_law(p, size, base, scales)
    laws = candidates(p, scales)
    if p.shape == p.base_shape and len(laws) == 1:
        return OwnLaw(law="1", ratio=1.0)
    return _nearest(p, size, base, laws)


def _nearest(
    p: Prescription,
    size: Measured,
    base: Measured,
    laws: Mapping[str, tuple[float, float]],
) -> OwnLaw:
    """The law whose ratio is nearest to the measured one, rare laws put back by their rarity."""
    log_ratio = math.log(size.rms / base.rms)
    error = math.hypot(size.error, base.error, 1e-6)
    scores = {law: ((log_ratio - math.log(ratio)) / error) ** 2 for law, (ratio, _) in laws.items()}
    ranked = sorted(laws, key=lambda law: scores[law] + laws[law][1])
    best = ranked[0]
    measured = (
        f"{p.name} starts {math.exp(log_ratio):.4g} times as large in the model as in the base "
        f"(+- {error:.1%})"
    )
    known = ", ".join(f"{law} = {value:.4g}" for law, (value, _) in laws.items())
    few = min(size.count, base.count) < FEW
    if few and scores[best] > SIGMAS**2:
        raise _Uncertain(
            f"{measured}, which fits none of the ways in which models depend on size: {known}. "
            f"{_advice(p)}",
            {law: laws[law][0] for law in ranked},
            {law: scores[law] + laws[law][1] for law in laws},
        )
    if scores[best] > SIGMAS**2:
        raise UnrecognizedInit(
            f"{measured}, which is none of the ways in which models depend on size: {known}. If "
            "a checkpoint was loaded, the model needs no initialization: plan.attach(model) is "
            f"enough. {_advice(p)}"
        )
    best_odds = scores[best] + laws[best][1]
    tied = [law for law in ranked if scores[law] + laws[law][1] - best_odds < _MARGIN]
    if len(tied) > 1:
        raise _Uncertain(
            f"{measured}, too uncertain to tell apart the ways in which models depend on size: "
            f"{known}. {_advice(p)}",
            {law: laws[law][0] for law in tied},
            {law: scores[law] + laws[law][1] for law in laws},
        )
    return OwnLaw(law=best, ratio=laws[best][0])


def exact_law(
    p: Prescription,
    size: Measured,
    base: Measured,
    scales: Scales,
) -> OwnLaw:
    """The law of two distributions that are known; any ratio will do, a name is for the reader."""
    ratio = size.rms / base.rms
    if size.constant is not None and base.constant is not None:
        ratio = size.constant / base.constant
        return OwnLaw(law="constant" if ratio == 1 else f"constant, {ratio:.6g}", ratio=ratio)
    return _named_law(p, ratio, scales)


def _named_law(p: Prescription, ratio: float, scales: Scales) -> OwnLaw:
    laws = candidates(p, scales)
    fitting = [k for k, (value, _) in laws.items() if math.isclose(value, ratio, rel_tol=1e-6)]
    if fitting:
        return OwnLaw(law=fitting[0], ratio=laws[fitting[0]][0])
    return OwnLaw(law=f"as drawn, {ratio:.4g}", ratio=ratio)


def _advice(p: Prescription) -> str:
    return (
        "Otherwise say how it depends on size: own_init={"
        f"{pattern_of(p.name)!r}: 'fixed'}} (or 'fan_in', or a depthmup.rules.Power); on the "
        "command line --own-init fixed or fan_in, for all of the model."
    )
