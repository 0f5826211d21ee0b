"""Predictions: how fast a scheme lets each observable of a network grow with width and depth.

Every prediction is a product of the scheme's own laws, so that it follows a scheme that the user
wrote as well as those of the catalogue. Two facts of sums turn laws into observables: a sum of n
independent terms grows as n^(1/2) (a fresh weight acting on its input), a sum of n aligned terms
as n (an update acting on the input that made it; the updates of L branches on the stream).
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from depthmup.rules.family import Family
from depthmup.rules.power import Power
from depthmup.rules.role import HIDDEN_IN_BRANCH, Kind, Role
from depthmup.rules.scheme import Scheme

_HALF = Fraction(1, 2)
_SUM = Power(fan_in=Fraction(1))  # of aligned terms
_RANDOM_SUM = Power(fan_in=_HALF)


class Observable(StrEnum):
    """What is measured on a network, every one as a root mean square over entries."""

    STREAM = "stream"  # residual stream at initialization
    STREAM_CHANGE = "stream change"  # what training did to it
    BRANCH = "branch output"  # what one branch adds to the stream, at initialization
    BRANCH_CHANGE = "branch change"
    PREACTIVATION = "pre-activation"  # W_0 x of an inner matrix of a branch
    UPDATE = "update effect"  # (W_t - W_0) x, relative to W_0 x; alone where W narrows
    READOUT_UPDATE = "readout update"  # (V_t - V_0) x, absolute: it is a part of the logits
    SPECTRAL_UPDATE = "spectral update"  # |W_t - W_0| / |W_0|, spectral norms
    ENTRY_UPDATE = "entry update"  # RMS(W_t - W_0) / RMS(W_0)
    READOUT = "readout"  # V_0 on inputs of the stream's size but random direction
    LOGITS = "logits"  # the output at initialization: what V_0 makes of the stream itself
    LOGITS_CHANGE = "logits change"
    ATTENTION_LOGITS = "attention logits"  # at initialization
    DECAY = "decay"  # lr * weight decay of a parameter's group


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedExponents:
    """Exponents of width, depth and others; None where theory predicts no power law.

    ``at_most``: that of depth is a bound, which what is measured may lie below. ``why`` gives the
    reason for a None, or the product that made the exponents. ``experts`` is the exponent of the
    number of experts at a held share of active ones, and ``further`` that of any other axis: what
    the network computes as a whole should not grow.

    Attributes:
        width, depth: exponents along each axis.
    """

    width: Fraction | None
    depth: Fraction | None
    why: str
    at_most: bool = False
    experts: Fraction | None = None
    further: Fraction | None = None


def effect(scheme: Scheme, family: Family, role: Role) -> Power:
    """What an update of one parameter does to its own output, as a power of the size ratios.

        lr * gradient^k * weight^j * size * (aligned sum over fan-in) * forward

    with the optimizer's own factors (``Response``). At muP's laws the width cancels and r^-gamma is
    left.

    Args:
        scheme: the parametrization.
        family: of the optimizer.
        role: of the parameter.

    Returns:
        The exponents of the size ratios.

    Example:
        >>> from depthmup.rules import DEPTH_MUP, Kind, Role
        >>> str(effect(DEPTH_MUP, Family.ENTRYWISE, Role(kind=Kind.HIDDEN, in_branch=True)))
        'r^-1/2'

    *Source:* TP6 (arXiv 2310.02244) Definition 6.1 and Section 7; TP5 (2203.03466) Appendix J.
    """
    served = family.serving(role.kind)
    laws = scheme.laws(role, served)
    response = served.response
    run = scheme.run_laws(scheme.run)
    total = laws.lr / run.lr * scheme.gradient(role) ** response.gradient * laws.forward
    total = total * scheme.scales(role).init ** response.weight
    total = total * scheme.update_size(role, response)
    return total * _SUM if role.kind in (Kind.HIDDEN, Kind.READOUT) else total


def predict(
    scheme: Scheme,
    family: Family,
    observable: Observable,
    *,
    role: Role | None = None,
    head_grows: bool = False,
) -> ExpectedExponents:
    """The exponents of one observable.

    Args:
        scheme: the parametrization.
        family: of the optimizer.
        observable: what is predicted.
        role: of the parameter, for what one parameter does.
        head_grows: whether attention heads grow with width; otherwise their number does.

    Returns:
        The exponents, with the product that made them or the reason why there are none.

    Raises:
        ValueError: an observable of one parameter without its role.

    Example:
        >>> from depthmup.rules import DEPTH_MUP
        >>> branch = predict(DEPTH_MUP, Family.ENTRYWISE, Observable.BRANCH)
        >>> branch.width, branch.depth
        (Fraction(0, 1), Fraction(-1, 2))

    *Source:* TP6 (arXiv 2310.02244) Claims 7.1 to 7.4; TP5 (arXiv 2203.03466) Appendix J.
    """
    width, depth, why = _product(scheme, family, observable, role, head_grows)
    depth, at_most, why = _where_depth_is_a_power(scheme, observable, depth, why)
    moved = effect(scheme, family, HIDDEN_IN_BRANCH)
    if observable in _OF_WHAT_CHANGES and _exponent(moved, Kind.HIDDEN):
        width, why = None, f"{why}; updates are not maximal, so what moves is no single power"
    if scheme.left_out and _by_gradients(family, observable, role):
        # The size of a gradient follows from all that lies above.
        width, depth = None, None
        why = f"{why}; rules are left out, so what moves is no single power"
    experts = further = Fraction(0) if observable in _OF_THE_WHOLE else None
    if not scheme.follows_width:
        width, experts, further = None, None, None
        why = f"{why}; {scheme.title} has no theory of width"
    elif experts is None:
        experts = _of_experts(scheme, family, observable, role)
    return ExpectedExponents(
        width=width, depth=depth, why=why, at_most=at_most, experts=experts, further=further
    )


def _product(
    scheme: Scheme, family: Family, observable: Observable, role: Role | None, head_grows: bool
) -> tuple[Fraction | None, Fraction | None, str]:
    """The exponents (width, depth) that the laws multiply to, and how."""
    none = Fraction(0)
    match observable:
        case Observable.STREAM:
            return none, none, "a sum of L independent branches of size L^-alpha"
        case Observable.BRANCH if role is not None and role.kind is Kind.READOUT:
            width = _exponent(_init(scheme, role), Kind.READOUT)
            return width, scheme.branch.depth, "the readout that ends it, and the branch multiplier"
        case Observable.BRANCH:
            return none, scheme.branch.depth, "the branch multiplier"
        case Observable.PREACTIVATION:
            width = _exponent(_init(scheme, role or HIDDEN_IN_BRANCH), Kind.HIDDEN)
            return width, none, "a fresh matrix on a stream of order one"
        case Observable.ATTENTION_LOGITS:
            # The usual 1/sqrt(head) normalizes a random sum; the law comes on top.
            law = scheme.attention_logits
            why = "the attention law on a random sum over the head"
            return law.fan_in if head_grows else none, none, why
        case Observable.READOUT | Observable.LOGITS:
            readout = role or Role(kind=Kind.READOUT)
            if observable is Observable.LOGITS and readout.tied:
                why = "a tied readout meets its own embedding in the stream: no single power"
                return None, none, why
            width = _exponent(_init(scheme, readout), Kind.READOUT)
            return width, none, "init * forward * random sum over the fan-in"
        case Observable.STREAM_CHANGE | Observable.LOGITS_CHANGE:
            why = "L aligned updates of size L^(-alpha - gamma), and those outside branches"
            return none, none, why
        case Observable.BRANCH_CHANGE:
            why = "its own update, L^(-alpha - gamma), and the stream's, L^-alpha"
            return none, None, why
        case _:
            return _of_parameter(scheme, family, observable, role)


def _where_depth_is_a_power(
    scheme: Scheme, observable: Observable, depth: Fraction | None, why: str
) -> tuple[Fraction | None, bool, str]:
    """The exponent of depth or None, whether it is a bound alone, and the reason."""
    alpha = -scheme.branch.depth
    at_most, stable = False, alpha >= _HALF
    on_the_line = stable and alpha + scheme.gamma == 1
    if observable in (Observable.STREAM_CHANGE, Observable.LOGITS_CHANGE) and not on_the_line:
        depth, why = None, f"alpha + gamma is not 1, or alpha below 1/2 ({why}): saturates"
    if observable in _OF_THE_STREAM and alpha > _HALF:
        # A tied readout meets its own embedding in the stream.
        at_most = observable is Observable.STREAM
        depth = Fraction(0) if at_most else None
        why = "the stream is what enters it plus a sum of size L^(1/2 - alpha): it does not grow"
    elif observable is Observable.PREACTIVATION and alpha > _HALF:
        # Without a norm before it a matrix reads the stream as it is.
        at_most, why = True, "a fresh matrix on a stream that does not grow with depth"
    if not stable and depth is not None:
        depth, why = None, "unstable at initialization (alpha < 1/2): no power of depth holds"
    return depth, at_most, why


_OF_WHAT_CHANGES = (Observable.STREAM_CHANGE, Observable.BRANCH_CHANGE, Observable.LOGITS_CHANGE)
_OF_THE_WHOLE = (
    Observable.STREAM,
    Observable.STREAM_CHANGE,
    Observable.BRANCH,
    Observable.BRANCH_CHANGE,
    Observable.LOGITS_CHANGE,
)


def _by_gradients(family: Family, observable: Observable, role: Role | None) -> bool:
    """Whether an observable follows gradients or weights that other rules have a part in."""
    if observable in _OF_WHAT_CHANGES:
        return True
    changes = (Observable.UPDATE, Observable.READOUT_UPDATE, Observable.SPECTRAL_UPDATE)
    if observable not in changes or role is None:
        return False
    response = family.serving(role.kind).response
    return bool(response.gradient or response.weight)


def _of_experts(
    scheme: Scheme, family: Family, observable: Observable, role: Role | None
) -> Fraction | None:
    """The exponent of the number of experts of what one parameter does, K growing as E does."""
    if role is None:
        return None
    start = _init(scheme, role)
    match observable:
        case Observable.PREACTIVATION:
            power = start
        case Observable.READOUT_UPDATE:
            power = effect(scheme, family, role)
        case Observable.UPDATE if role.narrows:
            power = effect(scheme, family, role)
        case Observable.UPDATE | Observable.SPECTRAL_UPDATE | Observable.ENTRY_UPDATE:
            power = effect(scheme, family, role) / start
        case _:
            return None
    return power.experts + power.active


# Unless a norm stands before it, the readout follows the stream's size.
_OF_THE_STREAM = (Observable.STREAM, Observable.READOUT, Observable.LOGITS)


def _of_parameter(
    scheme: Scheme, family: Family, observable: Observable, role: Role | None
) -> tuple[Fraction | None, Fraction | None, str]:
    """The exponents of what one parameter does, (width, depth), and the product they come from."""
    if role is None:
        raise ValueError(f"The {observable} is that of a parameter: pass its role.")
    if observable is Observable.DECAY:
        laws, run = scheme.laws(role, family), scheme.run_laws(scheme.run)
        power = laws.lr * laws.decay / (run.lr * run.decay)
        why = "lr * decay, the fraction of a weight that one step takes away"
        return _exponent(power, role.kind), power.depth, why
    after = effect(scheme, family, role)
    if observable is Observable.READOUT_UPDATE:
        why = "lr * gradient^degree * forward * aligned sum over the fan-in"
        return _exponent(after, Kind.READOUT), after.depth, why
    absolute = role.narrows and observable is Observable.UPDATE
    ratio = after if absolute else after / _init(scheme, role)
    if observable is Observable.ENTRY_UPDATE and role.kind in (Kind.HIDDEN, Kind.READOUT):
        ratio = ratio / _RANDOM_SUM  # W_0 sums at random, the update aligned
    width: Fraction | None = _exponent(ratio, role.kind)
    if observable is Observable.ENTRY_UPDATE and family.serving(role.kind).matrices_only:
        width = None  # of full rank or not: as the batch has it
    if role.kind is Kind.READOUT and observable is not Observable.ENTRY_UPDATE:
        width = None  # judged as an absolute part of the logits
    if role.narrows and observable is Observable.SPECTRAL_UPDATE:
        # Its rows are as many whatever the width: an aligned update has the norm
        # sqrt(rows / fan-in) times what it does to an output, random weights sqrt(fan-in) std.
        width = None if width is None else width - Fraction(1, 2)
    return width, ratio.depth, "lr * gradient^degree * aligned sum / size at initialization"


def _init(scheme: Scheme, role: Role) -> Power:
    """Size of W_0 x on an input of order one."""
    laws = scheme.laws(role, Family.ENTRYWISE)
    size = laws.init * laws.forward
    return size * _RANDOM_SUM if role.kind in (Kind.HIDDEN, Kind.READOUT) else size


def _exponent(power: Power, kind: Kind) -> Fraction:
    """The exponent of width, where all dimensions that grow with it do so alike."""
    match kind:
        case Kind.HIDDEN:
            return power.fan_in + power.fan_out
        case Kind.READOUT:
            return power.fan_in
        case _:
            return power.fan_out
