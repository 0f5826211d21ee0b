"""A model's own initialization: how the size of what it starts with depends on its own size.

The base's and the model's tensors are compared, and the ratio of their root mean squares is
recognized among the laws in use: constant, fan-in, fan-out, depth and their products. The error of
a root mean square over N independent entries of kurtosis k is sqrt((k - 1) / 4N), relative.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from depthmup.planning.prescription import Prescription
from depthmup.rules import Kind, Power
from depthmup.tracing import matches, pattern_of

OwnInit: TypeAlias = str | Power | Mapping[str, "str | Power"]

# How far from a law a measurement may lie (at 5 sigma, 1 tensor in 1.7 million is refused by
# chance), and how much better than the next law it must be: differences of squared scores are twice
# the logarithm of odds, so 6 is 20 to 1. Laws that few models follow start 9 behind: where one
# fits no better than a common law, the common one is believed.
_SIGMAS = 5.0
_MARGIN = 6.0
_RARE = 9.0
_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Root mean square and kurtosis (about zero) of one or several tensors.

    ``constant`` is the one value they all have, if they do.
    """

    rms: float
    kurtosis: float
    count: int
    constant: float | None = None

    @property
    def error(self) -> float:
        """Standard error of log(rms)."""
        return math.sqrt(max(self.kurtosis - 1, 0.0) / (4 * self.count)) if self.count else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnLaw:
    """The recognized law: its name, and its exact ratio of the model's size to the base's."""

    law: str
    ratio: float


class UnrecognizedInit(ValueError):
    """A model's own initialization follows no law in the list; the message says what to do."""


class _Uncertain(UnrecognizedInit):
    """Several laws fit, with these ratios: too few entries to tell them apart."""

    def __init__(self, message: str, ratios: Sequence[float]) -> None:
        super().__init__(message)
        self.ratios = tuple(ratios)


def measure(tensor: Tensor) -> Measured | None:
    """Measure a parameter; None on the meta device, where there is nothing to measure.

    Sharded tensors are measured as a whole, by all their ranks together.
    """
    if tensor.is_meta or tensor.numel() == 0:
        return None
    data = tensor.detach()
    if isinstance(data, DTensor):
        chunks: Iterable[Tensor] = (data,)
    else:
        chunks = data.reshape(-1).split(_CHUNK)
    squares = fourths = 0.0
    low, high = math.inf, -math.inf
    for chunk in chunks:
        x = chunk.double()
        squares += _value((x * x).sum())
        fourths += _value((x * x * x * x).sum())
        low, high = min(low, -_largest(-x)), max(high, _largest(x))
    count = tensor.numel()
    mean_square = squares / count
    return Measured(
        rms=math.sqrt(mean_square),
        kurtosis=fourths / count / mean_square**2 if mean_square > 0 else 1.0,
        count=count,
        constant=low if low == high else None,
    )


def _largest(x: Tensor) -> float:
    """The largest entry; some shards of a tensor may have none."""
    if not isinstance(x, DTensor):
        return float(x.max())
    local = x.to_local()
    found = local.max() if local.numel() else local.new_tensor(-math.inf)
    for dim in range(x.device_mesh.ndim):
        dist.all_reduce(found, dist.ReduceOp.MAX, group=x.device_mesh.get_group(dim))
    return float(found)


def _value(scalar: Tensor) -> float:
    return float(scalar.full_tensor() if isinstance(scalar, DTensor) else scalar)


def recognize(
    prescriptions: Sequence[Prescription],
    model: Mapping[str, Measured],
    base: Mapping[str, Measured],
) -> dict[str, OwnLaw]:
    """The own law of every parameter, from measurements of the model and of the base.

    Repeated layers are measured together, unless they differ among themselves. Tensors with too few
    entries to tell two laws apart (a bias of two numbers) follow the law of the others, if those
    agree.

    Raises:
        UnrecognizedInit: a ratio is not that of any law, or two laws fit it.
    """
    groups: dict[tuple[str, str, object], list[Prescription]] = {}
    for p in prescriptions:
        key = (pattern_of(p.name), pattern_of(p.base_name), (p.ratios, p.shape, p.base_shape))
        groups.setdefault(key, []).append(p)
    widths = sorted({p.ratios.fan_in for p in prescriptions} - {1.0})
    depths = sorted({p.ratios.depth for p in prescriptions} - {1.0})
    fans = fan_in_beside(prescriptions)
    result: dict[str, OwnLaw] = {}
    uncertain: list[tuple[list[Prescription], _Uncertain]] = []
    for members in groups.values():
        ours = [model[p.name] for p in members]
        theirs = [base[name] for name in dict.fromkeys(p.base_name for p in members)]
        together = _alike(ours) and _alike(theirs)
        for part in [members] if together else [[p] for p in members]:
            try:
                law = _law(
                    part[0],
                    _pooled([model[p.name] for p in part]),
                    _pooled([base[name] for name in {p.base_name for p in part}]),
                    widths,
                    depths,
                )
            except _Uncertain as problem:
                uncertain.append((part, problem))
            else:
                result.update({p.name: law for p in part})
    for part, doubt in uncertain:
        habit = _as_the_others(part[0], prescriptions, result, fans)
        if habit is None or not any(
            math.isclose(habit.ratio, ratio, rel_tol=1e-9) for ratio in doubt.ratios
        ):
            raise doubt
        result.update({p.name: habit for p in part})
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


def _pooled(parts: Sequence[Measured]) -> Measured:
    count = sum(part.count for part in parts)
    square = sum(part.count * part.rms**2 for part in parts) / count
    fourth = sum(part.count * part.kurtosis * part.rms**4 for part in parts) / count
    constants = {part.constant for part in parts}
    return Measured(
        rms=math.sqrt(square),
        kurtosis=fourth / square**2 if square > 0 else 1.0,
        count=count,
        constant=constants.pop() if len(constants) == 1 else None,
    )


def _alike(parts: Sequence[Measured]) -> bool:
    whole = _pooled(parts)
    if whole.constant is not None or len(parts) == 1:
        return True
    if any(part.constant is not None for part in parts):
        return False
    return all(
        abs(math.log(part.rms / whole.rms)) <= _SIGMAS * max(part.error, 1e-12) for part in parts
    )


def candidates(
    p: Prescription, widths: Sequence[float], depths: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """The laws a parameter's own initialization may follow: name -> (ratio at this size, rarity).

    Rarity is a prior, in units of squared standard scores: what most models do has 0.
    """
    into, out = p.ratios.fan_in, p.ratios.fan_out
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
    found: dict[str, tuple[float, float]] = {}
    for name, value, rarity in laws:
        same = [k for k, (v, _) in found.items() if math.isclose(v, value, rel_tol=1e-9)]
        if same and name not in same[0].split(" or "):
            # At this size the two cannot differ, and need not be told apart.
            other, (ratio, rarest) = same[0], found.pop(same[0])
            both = f"{other} or {name}" if rarest == rarity else other if rarest < rarity else name
            found[both] = (ratio, min(rarest, rarity))
        elif not same:
            found[name] = (value, rarity)
    return found


def _law(
    p: Prescription,
    ours: Measured,
    theirs: Measured,
    widths: Sequence[float],
    depths: Sequence[float],
) -> OwnLaw:
    if (ours.rms == 0) != (theirs.rms == 0):
        zero, other = ("model", "base") if ours.rms == 0 else ("base", "model")
        raise UnrecognizedInit(
            f"{p.name} starts at zero in the {zero} and not in the {other}. Both must be freshly "
            f"initialized by the same code. {_advice(p)}"
        )
    if ours.rms == 0:
        return OwnLaw(law="zero", ratio=1.0)
    if ours.constant is not None and theirs.constant is not None:
        ratio = ours.constant / theirs.constant
        if ratio != 1 and max(ours.count, theirs.count) == 1:
            laws = candidates(p, widths, depths)
            raise _Uncertain(
                f"{p.name} is one number, which tells nothing of how it depends on size. "
                f"{_advice(p)}",
                [value for value, _ in laws.values()],
            )
        return OwnLaw(law="constant" if ratio == 1 else f"constant, {ratio:.6g}", ratio=ratio)
    laws = candidates(p, widths, depths)
    if p.shape == p.base_shape and len(laws) == 1:
        return OwnLaw(law="1", ratio=1.0)
    log_ratio = math.log(ours.rms / theirs.rms)
    error = math.hypot(ours.error, theirs.error, 1e-6)
    scores = {law: ((log_ratio - math.log(ratio)) / error) ** 2 for law, (ratio, _) in laws.items()}
    ranked = sorted(laws, key=lambda law: scores[law] + laws[law][1])
    best = ranked[0]
    measured = (
        f"{p.name} starts {math.exp(log_ratio):.4g} times as large in the model as in the base "
        f"(+- {error:.1%})"
    )
    known = ", ".join(f"{law} = {value:.4g}" for law, (value, _) in laws.items())
    if scores[best] > _SIGMAS**2:
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
            [laws[law][0] for law in tied],
        )
    return OwnLaw(law=best, ratio=laws[best][0])


def _advice(p: Prescription) -> str:
    return (
        "Otherwise say how it depends on size: own_init={"
        f"{pattern_of(p.name)!r}: 'fixed'}} (or 'fan_in', or a depthmup.rules.Power); on the "
        "command line --own-init fixed or fan_in, for all of the model."
    )


def declared_law(
    p: Prescription, own_init: OwnInit, fan_in: float, constant: bool
) -> OwnLaw | None:
    """The law that the caller declared for a parameter; None if nothing was said of it.

    ``fan_in`` is the ratio of the matrix it belongs to; constants do not depend on size.
    """
    law: str | Power | None
    if isinstance(own_init, Mapping):
        law = next(
            (
                law
                for pattern, law in own_init.items()
                if pattern == "*" or matches(pattern, p.name)
            ),
            None,
        )
    else:
        law = own_init
    if law is None:
        return None
    if isinstance(law, Power):
        return OwnLaw(law=str(law), ratio=law.at(p.ratios))
    if law not in ("fixed", "fan_in"):
        raise ValueError(
            f"Expected own_init to be 'fixed' (the same at every size), 'fan_in' (1/sqrt(fan-in), "
            f"as torch's layers) or a depthmup.rules.Power; got {law!r}."
        )
    if law == "fixed" or constant:
        return OwnLaw(law="1", ratio=1.0)
    return OwnLaw(law="m_in^-1/2", ratio=fan_in**-0.5)
