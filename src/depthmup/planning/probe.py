"""Which family an optimizer belongs to: what its update does when something is scaled.

Twins (``twins``) take twenty steps with gradients that are given. One optimizer trains them all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from depthmup.planning.growth import FLAT, NEAR, matching, two_digits
from depthmup.planning.likeness import MakeOptimizer, rebuilt, twin_of
from depthmup.planning.remembered import remembered
from depthmup.planning.twins import DECAY, RATE, STEPS, Lane, Moved, Unmeasured, run
from depthmup.rules import Family

# By which weight or shape is scaled: powers of two, so that scaling rounds nothing.
_WIDER, _BOTH, _LARGER = 4, 3, 8.0
# Gradients of trained networks lie between these sizes; epsilon is scaled along, as plans do.
_SMALLER = 2.0**-7
# Rates may act a few steps late, and averages of weights move the weights a little.
_FOLLOWS, _STILL = 0.25, 0.05
# A part of its group's rate, and of its decay, by which the response to each is measured.
_PART = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What was measured of an optimizer, and the family that agrees with it; None if none does.

    ``gradient`` and ``weight`` are the exponents of the update's size in the size of the gradient
    and of the weight; ``fan_in`` and ``fan_out`` those of its norm when one side of a square matrix
    grows, along aligned gradients with entries of one size; ``flatness`` is the ratio
    of a small to the largest singular value of an update (nine in ten are larger), near 1 if it is
    orthogonalized. All are of late steps: the first ones may be of a warm-up.

    Attributes:
        family: that agrees with all of these, or None.
        why: in words.
        both: the exponent of the norm when both sides grow alike.
        early: the exponent in the gradient of the first three steps.
        rate: the exponent of the update in its group's learning rate: 1 if the rate is honoured.
        later: the same of a rate that changes while training.
        decay: what a step without gradient removes of a weight, over lr * weight_decay: 1 if decay
            is decoupled; nan where there is none.
        decay_in_rate, decay_in_decay: the exponents of what is removed in the rate and in
            weight_decay; ``decay_in_size``, ``decay_in_weight`` and ``decay_in_gradient`` in the
            fan-in, and in the sizes of the weight and of the gradient.
        decay_beside: what decay removes beside a gradient, over what it removes without one.
        still: how far a weight moves without gradient and decay, over how far it usually moves.
        alone: the size of updates where no other parameter is trained, over that beside others.
        betas: whether betas that differ change the updates.
    """

    gradient: float
    weight: float
    fan_in: float
    fan_out: float
    flatness: float
    family: Family | None
    why: str
    both: float = math.nan
    early: float = math.nan
    rate: float = 1.0
    later: float = 1.0
    decay: float = math.nan
    decay_in_rate: float = math.nan
    decay_in_decay: float = math.nan
    decay_in_size: float = math.nan
    decay_in_weight: float = math.nan
    decay_in_gradient: float = math.nan
    decay_beside: float = math.nan
    still: float = 0.0
    alone: float = 1.0
    betas: bool = True

    @property
    def orthogonal(self) -> bool:
        """Whether updates are orthogonalized."""
        return self.flatness > FLAT

    @property
    def ignored(self) -> str:
        """What of a group the optimizer does not follow, or does beside its updates; in words."""
        if not abs(self.rate - 1) <= NEAR:
            return (
                f"its updates follow its group's learning rate as lr^{two_digits(self.rate)}, and "
                "not as lr"
            )
        if not self.later > _FOLLOWS:
            return (
                "its updates follow a learning rate that changes while training as "
                f"lr^{two_digits(self.later)}, and not as lr"
            )
        if not abs(self.alone - 1) <= NEAR:
            return (
                "updates of a parameter that is trained alone have "
                f"{self.alone:.2f} of the size that they have beside others"
            )
        if not self.still <= _STILL:
            return (
                "it moves weights that have no gradient and no decay, "
                f"{self.still:.2g} times as far as others"
            )
        return ""

    def __str__(self) -> str:
        name = "no family" if self.family is None else f"family {self.family}"
        return (
            f"{name}: {self.why} (update ~ gradient^{self.gradient:.2f} weight^{self.weight:.2f}, "
            f"norm ~ fan_in^{self.fan_in:.2f} fan_out^{self.fan_out:.2f}, flatness "
            f"{self.flatness:.2f})"
        )


def family_of(optimizer: MakeOptimizer | torch.optim.Optimizer) -> Probe:
    """Measure what the update of an optimizer is proportional to, and name its family.

    Trains single matrices for twenty steps, with gradients that are given: at other scales of the
    gradient and of the weight, at other shapes, with aligned and with random gradients, at other
    rates and decays.

    Args:
        optimizer: a function from a list of parameters to an optimizer, such as
            ``lambda parameters: Lion(parameters, lr=1e-3)``, or an optimizer, whose class and
            settings are used.

    Returns:
        The measured exponents, and the family or None.

    Raises:
        ValueError: the optimizer raises an error, which is the cause; it moves nothing, or its
            steps are not finite.

    Example:
        >>> family_of(lambda parameters: torch.optim.NAdam(parameters, lr=1e-3)).family
        <Family.ENTRYWISE: 'entrywise'>

    *Source:* the principle of TP6 (arXiv 2310.02244) Definition 6.1: whatever an update follows,
    its learning rate must undo.
    """
    if hasattr(optimizer, "param_groups"):
        return probe(optimizer, optimizer.param_groups[0], dimensions=2)
    name = optimizer.__name__ if isinstance(optimizer, type) else "The optimizer"
    return _measured(optimizer, 2, name=name)


def probe(optimizer: Any, group: Mapping[str, Any], *, dimensions: int) -> Probe:
    """What an optimizer does to tensors of one group that have so many dimensions.

    Of one that cannot be tried ``Unmeasured`` is raised, with its own error as the cause.
    """
    name, device = type(optimizer).__name__, _device(group)

    def measure() -> Probe:
        try:
            return _measured(twin_of(optimizer, group), dimensions, name=name, device=device)
        except Unmeasured:
            # Some classes know the parameters that they were built with.
            return _measured(rebuilt(optimizer, group), dimensions, name=name, device=device)

    found: Probe = remembered(optimizer, group, dimensions, measure)
    return found


def _device(group: Mapping[str, Any]) -> Any:
    tensors = [p for p in group["params"] if isinstance(p, Tensor) and not p.is_meta]
    return tensors[0].device if tensors else "cpu"


_USUAL = Lane(shape=()).weight


def _lanes(dimensions: int) -> dict[str, Lane]:
    small, rest = 32, (3,) * (dimensions - 2)
    square = (small, small, *rest) if dimensions > 1 else (small,)
    wide = (small, _WIDER * small, *rest) if dimensions > 1 else (_WIDER * small,)
    tall = (_WIDER * small, small, *rest) if dimensions > 1 else wide
    large = (_BOTH * small, _BOTH * small, *rest) if dimensions > 1 else (8192,)
    lanes = {
        "usual": Lane(shape=square),
        "gradient": Lane(shape=square, gradient=1e-2 * _SMALLER, eps=_SMALLER),
        "weight": Lane(shape=square, weight=_USUAL * _LARGER),
        "wide": Lane(shape=wide),
        # More than 4096 entries, from which on some classes keep their state in 8 bits, and more
        # than one block of 64.
        "large": Lane(shape=large),
        "rate": Lane(shape=square, rate=_PART),
        "later": Lane(shape=square, later=_PART),
        "betas": Lane(shape=square, betas=_PART),
        "still": Lane(shape=square, gradient=0.0, decay=0.0, weight=1.0),
        "decays": Lane(shape=square, gradient=0.0, decay=1.0),
        # With epsilon as plans scale it beside a rate: in some classes decay is divided by it.
        "decays, rate": Lane(shape=square, gradient=0.0, decay=1.0, rate=_PART, eps=_PART),
        "decays, decay": Lane(shape=square, gradient=0.0, decay=_PART),
        "decays, size": Lane(shape=wide, gradient=0.0, decay=1.0),
        "decays, weight": Lane(shape=square, gradient=0.0, decay=1.0, weight=_USUAL / _LARGER),
        "decays beside": Lane(shape=square, decay=1.0),
    }
    if dimensions > 1:
        lanes["tall"] = Lane(shape=tall)
    if dimensions == 2:
        lanes["random"] = Lane(shape=square, aligned=False)
        lanes["large random"] = Lane(shape=large, aligned=False)
    return lanes


def _measured(make: MakeOptimizer, dimensions: int, *, name: str, device: Any = "cpu") -> Probe:
    lanes = _lanes(dimensions)
    try:
        moved = _moved(make, lanes, device)
        alone = run(make, {"usual": lanes["usual"]}, device=device)["usual"]
        shares = _shares_alone(make, lanes, device) if "decays" in moved else {}
    except Exception as error:
        raise Unmeasured(
            f"{name} could not be tried on small parameters of {dimensions} dimensions: "
            f"{type(error).__name__}{': ' * bool(str(error))}{str(error)[:300]}"
        ) from error
    steps = {lane: _along(m.late, m.direction) for lane, m in moved.items()}
    if not math.isfinite(steps["usual"]) or steps["usual"] == 0:
        raise Unmeasured(
            f"{name} moved a tensor of {list(lanes['usual'].shape)} by nothing or by something "
            f"that is not finite in {STEPS} steps. Expected an optimizer that steps by p.grad, "
            "with a learning rate for which training is stable and without warm-up."
        )
    base = steps["usual"]
    exponents = {
        "gradient": _slope(base, steps["gradient"], _SMALLER),
        "weight": _slope(base, steps["weight"], _LARGER),
        "fan_in": _slope(base, steps["wide"], _WIDER),
        "fan_out": _slope(base, steps["tall"], _WIDER) if "tall" in steps else 0.0,
        "both": _slope(base, steps["large"], _BOTH),
    }
    flat = [_flatness(moved[lane].late) for lane in ("random", "large random") if lane in moved]
    family, why = matching(dimensions, exponents, flat)
    first = {lane: _along(m.early, m.direction) for lane, m in moved.items()}
    early = _slope(first["usual"], first["gradient"], _SMALLER)
    if family is not None and abs(early - exponents["gradient"]) > NEAR:
        why += f"; but the first steps follow gradient^{early:.2f}"
    found = Probe(
        **exponents,
        flatness=min(flat, default=0.0),
        family=family,
        why=why,
        early=early,
        rate=max(_rates(moved), key=lambda rate: abs(rate - 1)),
        later=_slope(base, steps["later"], _PART),
        alone=_along(alone.late, alone.direction) / base,
        betas=not torch.equal(moved["betas"].whole, moved["usual"].whole),
        **_decays(moved),
        **shares,
    )
    return replace(found, family=None, why=found.ignored) if found.ignored else found


def _moved(make: MakeOptimizer, lanes: Mapping[str, Lane], device: Any) -> dict[str, Moved]:
    """What all twins do; of classes that raise an error where a gradient is zero, the others."""
    try:
        return run(make, lanes, device=device)
    except Exception:
        with_gradient = {name: lane for name, lane in lanes.items() if lane.gradient}
        return run(make, with_gradient, device=device)


def _shares_alone(make: MakeOptimizer, lanes: Mapping[str, Lane], device: Any) -> dict[str, float]:
    """How what decay removes follows the gradient of a parameter that is trained alone.

    Some classes divide by what the gradients of all parameters are.
    """
    shares = []
    for size in (1.0, _SMALLER):
        usual, beside = (
            run(
                make,
                {"": replace(lanes[name], gradient=1e-2 * size, eps=size)},
                device=device,
            )[""]
            for name in ("usual", "decays beside")
        )
        shares.append(_per_step(usual.whole - beside.whole, usual.start))
    return {"decay_in_gradient": _slope(shares[0], shares[1], _SMALLER)}


def _rates(moved: Mapping[str, Moved]) -> list[float]:
    """The exponent in the rate of late steps, and of the way from the start: some add to it."""
    usual, rate = moved["usual"], moved["rate"]
    return [
        _slope(_along(before, usual.direction), _along(after, rate.direction), _PART)
        for before, after in ((usual.late, rate.late), (usual.whole, rate.whole))
    ]


def _decays(moved: Mapping[str, Moved]) -> dict[str, float]:
    """What decay removes of weights, per step; nothing is known where zero gradients fail."""
    if "decays" not in moved:
        return {"decay": math.nan}
    usual, beside = moved["usual"], moved["decays beside"]
    removed = {
        lane: _per_step(-m.whole, m.start) for lane, m in moved.items() if lane.startswith("decays")
    }
    share = _per_step(usual.whole - beside.whole, usual.start)
    whole = removed["decays"]
    still = float(moved["still"].whole.norm() / usual.whole.norm())
    if whole == 0:
        return {"still": still, "decay": 0.0, "decay_beside": share / (RATE * DECAY)}
    return {
        # Normalizing a gradient of zeros is no number in some classes: that is no movement.
        "still": still if math.isfinite(still) else 0.0,
        "decay": whole / (RATE * DECAY),
        "decay_in_rate": _slope(whole, removed["decays, rate"], _PART),
        "decay_in_decay": _slope(whole, removed["decays, decay"], _PART),
        "decay_in_size": _slope(whole, removed["decays, size"], _WIDER),
        "decay_in_weight": _slope(whole, removed["decays, weight"], 1 / _LARGER),
        "decay_beside": share / whole,
    }


def _per_step(removed: Tensor, start: Tensor) -> float:
    """The part of what is left that each step removes of a weight."""
    part = float((removed * start).sum() / start.square().sum())
    return -math.log1p(-part) / STEPS if part < 1 else part / STEPS


def _along(update: Tensor, direction: Tensor) -> float:
    """How far an update goes along a direction; of a vector, how far one entry goes."""
    if not bool(update.isfinite().all()):
        return math.nan
    size = float((update * direction).sum().abs() / direction.norm())
    return size / len(update) ** 0.5 if update.ndim == 1 else size


def _flatness(update: Tensor) -> float:
    if not bool(update.isfinite().all()):
        return math.nan
    values = torch.linalg.svdvals(update)
    # Not the very smallest one, which an iteration of few steps may leave where it was.
    return float(values[int(0.9 * (len(values) - 1))] / values[0])


def _slope(before: float, after: float, ratio: float) -> float:
    if not (before > 0 and after > 0 and math.isfinite(after)):
        return math.nan
    return math.log(after / before) / math.log(ratio)
