"""Expert rules: how routers and experts of a mixture depend on its sizes.

A mixture of E experts gives each example the weighted mean of K of them. Beside width and depth it
has three sizes of its own: E, K, and the width N of an expert. With m_in and m_out the fans of one
expert's matrix, its rule is written in the same three scales as a ``WidthRule``'s, so that every
optimizer family follows from it:

- the router's output is one number for each expert: its fan-out is no width, and does not count;
- an expert sees the share K/E of all examples, and counts for 1/K of each, so that its gradient is
  1/E of a dense layer's, and so is the router's: under Adam that moves epsilon alone, under SGD the
  learning rate as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from depthmup.rules.power import Exponent, Power, Ratios, exponent
from depthmup.rules.role import Kind, Part, Role
from depthmup.rules.width import WidthLaw

ROUNDING = 2**0.25
"""A ratio that a rule needs held may be off by this factor: sizes are whole numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Invariant:
    """What a rule needs held: a power of a mixture's ratios that must stay 1.

    ``fan_in`` stands for the width of an expert and ``fan_out`` for that of the network: the fans
    of an expert's last matrix. ``why``: what happens where it is not held, and what to do.

    Attributes:
        power: that must stay 1.
        what: it is, in words.
    """

    power: Power
    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class ExpertRule:
    """The laws of routers and experts, and the growth for which they hold.

    Attributes:
        name, title, source: short, in words, and the paper.
        router, expert, down: laws of the router, of an expert's other matrices, and of its last
            one.
        invariants: what must be held for them.

    Example:
        >>> str(MOE.law(Role(kind=Kind.HIDDEN, part=Part.DOWN)).init)
        'm_in^-1 m_out^1/2'
        >>> [invariant.what for invariant in MSSP_FIXED.broken(Ratios(experts=4, active=4))]
        ['the number of experts']
    """

    name: str
    title: str
    source: str
    router: WidthLaw
    expert: WidthLaw
    down: WidthLaw
    invariants: tuple[Invariant, ...]

    def law(self, role: Role) -> WidthLaw | None:
        """The law of a parameter; None where that is the dense layers'."""
        if role.part in (None, Part.SHARED):
            return None
        if role.kind is Kind.VECTOR:
            return _ROUTER_VECTOR if role.part is Part.ROUTER else _EXPERT_VECTOR
        if role.part is Part.ROUTER:
            return self.router
        return self.down if role.part is Part.DOWN else self.expert

    def broken(self, ratios: Ratios) -> Iterator[Invariant]:
        """What the rule needs held and the ratios of an expert's last matrix do not hold."""
        for invariant in self.invariants:
            if not 1 / ROUNDING <= invariant.power.at(ratios) <= ROUNDING:
                yield invariant


_HALF = Fraction(1, 2)
_PER_EXPERT = Power(experts=Fraction(-1))
_EXPERT_GRADIENT = Power(fan_out=Fraction(-1)) * _PER_EXPERT
_INVERSE_FAN_IN = Power(fan_in=Fraction(-1))
_INVERSE_ROOT_FAN_IN = Power(fan_in=-_HALF)

_ROUTER_VECTOR = WidthLaw(gradient=_PER_EXPERT)
_EXPERT_VECTOR = WidthLaw(gradient=_EXPERT_GRADIENT)


def _matrix(init: Power, gradient: Power = _EXPERT_GRADIENT) -> WidthLaw:
    return WidthLaw(init=init, update=_INVERSE_FAN_IN, gradient=gradient)


_SHARE = Invariant(
    power=Power(active=Fraction(1), experts=Fraction(-1)),
    what="the share of experts that are active, K/E",
    why=(
        "the rule is that of a limit in which K and E grow together. With another share an expert "
        "sees other examples and fewer of them, which moves its best learning rate. Let K grow as "
        "E does, or take 'completep+mue', which leaves that to second order"
    ),
)
_WITH_WIDTH = Invariant(
    power=Power(experts=Fraction(1), fan_out=Fraction(-1)),
    what="the number of experts over the width, E/n",
    why=(
        "the rule balances a mean over E experts against sums over n coordinates. For a number of "
        "experts that grows by itself take scheme='completep+moe'"
    ),
)
_EXPERT_WITH_WIDTH = Invariant(
    power=Power(fan_in=Fraction(1), fan_out=Fraction(-1)),
    what="the width of an expert over the width of the network, N/n",
    why=(
        "in this regime experts widen as the network does. For experts of a fixed width take "
        "'mssp-small', for any other width 'completep+moe'"
    ),
)


def moe(router: Exponent = 1) -> ExpertRule:
    """Experts whose number, share, width and depth are axes of their own: CompleteP for mixtures.

    Adam's learning rates are 1/fan-in for routers and experts. The router starts at n^-router. The
    last matrix of an expert of width N starts at alpha^-1 n^-1/2 and learns at alpha^-1 n^-1, with
    alpha = N/n: at n^1/2 / N and 1/N. The number of experts is in no factor but epsilon's, which
    follows the gradient (the source is read for initialization and learning rates).

    Args:
        router: of the router's initialization, n^-router.

    Returns:
        The rule.

    Example:
        >>> moe("1/2").name
        'moe-1/2'

    *Source:* arXiv 2601.20205 Table 1.
    """
    gamma = exponent(router, name="the router's exponent")
    return ExpertRule(
        name="moe" if gamma == 1 else f"moe-{gamma}",
        title="MoE" if gamma == 1 else f"MoE (router {gamma})",
        source="CompleteP for mixtures of experts (arXiv 2601.20205) Table 1",
        router=_matrix(Power(fan_in=-gamma), _PER_EXPERT),
        expert=_matrix(_INVERSE_ROOT_FAN_IN),
        down=_matrix(Power(fan_in=Fraction(-1), fan_out=_HALF)),
        invariants=(_SHARE,),
    )


MOE = moe()

MSSP = ExpertRule(
    name="mssp",
    title="MSSP",
    source="MSSP (arXiv 2605.14200), width, expert width and experts growing together",
    router=_matrix(_INVERSE_ROOT_FAN_IN, _PER_EXPERT),
    expert=_matrix(_INVERSE_ROOT_FAN_IN),
    down=_matrix(_INVERSE_ROOT_FAN_IN),
    invariants=(_SHARE, _WITH_WIDTH, _EXPERT_WITH_WIDTH),
)
"""The maximally scale-stable parametrization where n, N, E and K grow alike.

*Source:* arXiv 2605.14200; code vankadara-lab/mssp-moe, ``MupAllScale`` (Adam) and
``MuPMSSPAllScalingConfig`` (SGD).
"""

MSSP_SMALL = ExpertRule(
    name="mssp-small",
    title="MSSP, small experts",
    source="MSSP (arXiv 2605.14200), many experts of a fixed width",
    router=_matrix(_INVERSE_ROOT_FAN_IN, _PER_EXPERT),
    expert=_matrix(_INVERSE_ROOT_FAN_IN),
    down=_matrix(Power(experts=_HALF) * _INVERSE_ROOT_FAN_IN),
    invariants=(
        _SHARE,
        _WITH_WIDTH,
        Invariant(
            power=Power(fan_in=Fraction(1)),
            what="the width of an expert",
            why="in this regime more experts are added instead. Where experts widen as the "
            "network does take 'mssp', for any other width 'completep+moe'",
        ),
    ),
)
"""The same where n, E and K grow alike and every expert stays as narrow as it is.

The mean over K experts falls as K^-1/2 at the start; the last matrices start E^1/2 larger.

*Source:* arXiv 2605.14200; code ``MupBottleneck`` (Adam) and ``MSSPBottleneckConfig`` (SGD).
"""

MSSP_FIXED = ExpertRule(
    name="mssp-fixed",
    title="MSSP, fixed number of experts",
    source="MSSP (arXiv 2605.14200), a fixed number of experts that widen",
    router=_matrix(_INVERSE_FAN_IN, _PER_EXPERT),
    expert=_matrix(_INVERSE_ROOT_FAN_IN),
    down=_matrix(_INVERSE_ROOT_FAN_IN),
    invariants=(
        Invariant(
            power=Power(experts=Fraction(1)),
            what="the number of experts",
            why="in this regime it stays what it is. Where it grows as the width does take 'mssp', "
            "where it grows by itself 'completep+moe'",
        ),
        _SHARE,
        _EXPERT_WITH_WIDTH,
    ),
)
"""The same where n and N grow alike and E and K stay: the router is a readout.

*Source:* arXiv 2605.14200; code ``MupFixedE`` (Adam) and ``MuPFixedEConfig`` (SGD).
"""

MUE = ExpertRule(
    name="mue",
    title="active width",
    source="Complete-muE (arXiv 2605.23893) abstract; router: as of arXiv 2601.20205",
    router=_matrix(Power(fan_in=Fraction(-1)), _PER_EXPERT),
    expert=_matrix(_INVERSE_ROOT_FAN_IN),
    down=_matrix(Power(active=_HALF) * _INVERSE_ROOT_FAN_IN),
    invariants=(),
)
"""A mixture is a dense layer of the width that is active, K experts of width N.

The last matrix of that layer starts at (K N)^-1/2 and learns at (K N)^-1; in a mean over K experts
that is K^1/2 N^-1/2 and N^-1. The number of experts at K held is in no learning rate: what its
fewer examples and its greater noise change cancels to first order, and a shift of second order
stays. So K/E need not be held.

*Source:* arXiv 2605.23893, abstract: active width and a normalized router; derived here for the
means of this package. How the router starts was not read.
"""

EXPERT_RULES: tuple[ExpertRule, ...] = (MOE, MSSP, MSSP_SMALL, MSSP_FIXED, MUE)


def expert_rule(name: "str | ExpertRule") -> ExpertRule:
    """The expert rule of this name; ``"moe-1/2"`` is ``moe`` with a router that starts at n^-1/2.

    Args:
        name: of the rule.

    Returns:
        The rule.

    Raises:
        ValueError: no such rule.

    Example:
        >>> expert_rule("mssp-small").title, expert_rule("moe-1/2").router.init.fan_in
        ('MSSP, small experts', Fraction(-1, 2))
    """
    if isinstance(name, ExpertRule):
        return name
    key = name.strip().lower().replace("_", "-")
    for rule in EXPERT_RULES:
        if rule.name == key:
            return rule
    if key.startswith("moe-"):
        return moe(key.removeprefix("moe-"))
    raise ValueError(
        f"Expected a rule for experts ({', '.join(rule.name for rule in EXPERT_RULES)}); got "
        f"{name!r}. Write it behind a scheme: 'completep+moe'."
    )


def sized_as_router(power: Power) -> Power:
    """A power of a matrix's area, as a router's: its rows are the experts.

    What an optimizer of matrices makes of a gradient follows the whole matrix, of which the fan-out
    alone counts elsewhere.

    Args:
        power: of the area of a matrix.

    Returns:
        The power times the experts, to the exponent of its fan-out.

    Example:
        >>> print(sized_as_router(Power(fan_out=Fraction(1, 2))))
        m_out^1/2 E^1/2

    *Source:* derived here.
    """
    return power * Power(experts=power.fan_out)
