"""The schemes that have been published, each as its own source states it."""

from fractions import Fraction

from depthmup.rules.family import Family
from depthmup.rules.power import ONE, Exponent, Power, exponent
from depthmup.rules.role import Kind
from depthmup.rules.scheme import Departure, RunLaws, Scheme
from depthmup.rules.width import STANDARD, Readout

_MATRICES_OUTSIDE = frozenset({Kind.INPUT, Kind.READOUT})


def general(alpha: Exponent, gamma: Exponent) -> Scheme:
    """The scheme with branch multiplier r^-alpha and in-branch updates of size r^-gamma.

    Example:
        >>> general("1/2", 0).name
        '1/2,0'
    """
    a, g = exponent(alpha, name="alpha"), exponent(gamma, name="gamma")
    return Scheme(
        name=f"{a},{g}",
        title=f"({a}, {g})",
        alpha=a,
        gamma=g,
        source="TP6 (arXiv 2310.02244) Definition 6.1",
    )


SP = Scheme(
    name="sp",
    title="SP",
    alpha=Fraction(0),
    gamma=Fraction(0),
    source="TP6 Table 1, 'Standard'; width: TP5 (arXiv 2203.03466) Table 3, 'SP'",
    width=STANDARD,
)

MUP = Scheme(
    name="mup",
    title="muP",
    alpha=Fraction(0),
    gamma=Fraction(0),
    source="TP5 (arXiv 2203.03466) Table 8; microsoft/mup 1.0.0",
    readout=Readout.MULTIPLIER,
    # The reference implementation keeps lr * decay for vectors too.
    departures=(
        Departure(
            quantity="decay",
            law=Power(fan_out=Fraction(-1)),
            kinds=frozenset({Kind.VECTOR}),
            families=frozenset({Family.RAW}),
        ),
    ),
)

DEPTH_MUP = Scheme(
    name="depth-mup",
    title="Depth-muP",
    alpha=Fraction(1, 2),
    gamma=Fraction(1, 2),
    source="TP6 (arXiv 2310.02244) Tables 1 and 2",
)

ODE = Scheme(
    name="ode",
    title="ODE",
    alpha=Fraction(1),
    gamma=Fraction(0),
    source="TP6 (arXiv 2310.02244) Section 7; arXiv 2603.00541 for blocks of two matrices or more",
)

BLOCK_MULTIPLIER = Scheme(
    name="block-multiplier",
    title="(1/2, 0)",
    alpha=Fraction(1, 2),
    gamma=Fraction(0),
    source="TP6 (arXiv 2310.02244) Figure 10, 'block multiplier only'",
)


def completep(alpha: Exponent = 1) -> Scheme:
    """CompleteP, alpha in [1/2, 1]: branch r^-alpha, in-branch learning rates r^(alpha - 1).

    Differs from the principle: the logits' multiplier leaves the readout's initialization,
    learning rate and epsilon unscaled; the embedding's epsilon is not scaled; inside branches
    every epsilon is m^-1 r^-alpha; only hidden matrices scale their decay, by m alone.

    *Source:* arXiv 2505.01618 Table 1, AdamW.
    """
    a = exponent(alpha, name="alpha")
    return Scheme(
        name="completep" if a == 1 else f"completep-{a}",
        title="CompleteP" if a == 1 else f"CompleteP ({a})",
        alpha=a,
        gamma=1 - a,
        source="CompleteP (arXiv 2505.01618) Table 1, AdamW",
        readout=Readout.MULTIPLIER,
        departures=(
            Departure(quantity="epsilon", law=ONE, in_branch=False),
            Departure(
                quantity="decay", law=Power(fan_in=Fraction(1)), kinds=frozenset({Kind.HIDDEN})
            ),
            Departure(quantity="decay", law=ONE, kinds=_MATRICES_OUTSIDE | {Kind.VECTOR}),
        ),
    )


_ROOT_BATCH_PER_DURATION = Power(batch=Fraction(1, 2), duration=Fraction(-1, 2))

COMPLETE_DP = Scheme(
    name="complete-dp",
    title="Complete(d)P",
    alpha=Fraction(1),
    gamma=Fraction(0),
    source="Complete(d)P (arXiv 2512.22382)",
    run=RunLaws(
        lr=_ROOT_BATCH_PER_DURATION,
        decay=_ROOT_BATCH_PER_DURATION,
        epsilon=_ROOT_BATCH_PER_DURATION**-1,
        one_minus_beta=_ROOT_BATCH_PER_DURATION**2,
    ),
)

_FIXED: dict[str, Scheme] = {
    s.name: s for s in (SP, MUP, DEPTH_MUP, ODE, BLOCK_MULTIPLIER, completep(), COMPLETE_DP)
}
_ALIASES = {"depthmup": "depth-mup", "1/2,1/2": "depth-mup", "1/2,0": "block-multiplier"}

CATALOGUE: tuple[Scheme, ...] = tuple(_FIXED.values())


def scheme(name: "str | Scheme") -> Scheme:
    """The scheme of this name.

    ``"alpha,gamma"`` names any pair of exponents, ``"completep-alpha"`` CompleteP at another alpha.

    Raises:
        ValueError: not in the catalogue and not a pair of exponents.

    Example:
        >>> scheme("depth-mup").alpha, scheme("3/4,1/4").gamma
        (Fraction(1, 2), Fraction(1, 4))
        >>> scheme(completep("3/4").name) == completep("3/4")
        True
    """
    if isinstance(name, Scheme):
        return name
    key = str(name).strip().lower()
    key = _ALIASES.get(key, key)
    if key in _FIXED:
        return _FIXED[key]
    if key.count(",") == 1:
        alpha, gamma = (part.strip(" ()") for part in key.split(","))
        pair = general(alpha, gamma)
        # "0.5,0.5" is another spelling of "1/2,1/2", which has a name.
        return _FIXED[_ALIASES[pair.name]] if pair.name in _ALIASES else pair
    if key.startswith("completep-"):
        return completep(key.removeprefix("completep-"))
    raise ValueError(
        f"Expected a scheme ({', '.join(_FIXED)}) or a pair of exponents such as 3/4,1/4; "
        f"got {name!r}."
    )
