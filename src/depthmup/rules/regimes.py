"""Where a pair (alpha, gamma) lies: Claims 7.1 to 7.6 of Tensor Programs VI."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from depthmup.rules.power import Exponent, exponent

_HALF = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Regime:
    """What becomes of a residual network of one-matrix blocks as its depth grows.

    ``kappa`` is the feature diversity exponent: x at two places eps * L layers apart differs by
    order eps^(1 - kappa). It, ``faithful`` and ``layerwise_linear`` are None where training is
    unstable or trivial, and the question has no meaning.

    Attributes:
        alpha, gamma: the exponents.
        name: of the region.
        stable_at_init, stable_in_training: whether activations stay finite as depth grows.
        nontrivial: whether training changes the output at infinite depth.
        why: in a sentence.

    *Source:* TP6 (arXiv 2310.02244) Claims 7.1 to 7.6 and Definition 7.4.
    """

    alpha: Fraction
    gamma: Fraction
    name: str
    stable_at_init: bool
    stable_in_training: bool
    nontrivial: bool
    faithful: bool | None
    kappa: Fraction | None
    layerwise_linear: bool | None
    why: str


REGIONS = (
    "unstable at initialization",
    "unstable in training",
    "trivial",
    "unfaithful",
    "redundant",
    "Depth-muP",
)
"""The regions of Figure 1, worst first."""

_WHY = {
    "unstable at initialization": (
        "The L branches are independent at initialization and their sum has size "
        "L^(1/2 - alpha) = L^{init}, which explodes with depth; alpha must be at least 1/2."
    ),
    "unstable in training": (
        "The L updates are aligned, and together move the output by L^(1 - alpha - gamma) = "
        "L^{training}, which explodes with depth; alpha + gamma must be at least 1."
    ),
    "trivial": (
        "All updates together move the output by L^(1 - alpha - gamma) = L^{training}, which "
        "vanishes with depth: the network does not learn; alpha + gamma must be 1."
    ),
    "unfaithful": (
        "Pre-activations grow as L^(-gamma) = L^{preactivations} after the first update, so a "
        "nonlinearity never sees inputs of order one; alpha must be at most 1."
    ),
    "redundant": (
        "Training is stable and features are learned, but the noise of initialization vanishes "
        "from the stream: neighbouring layers learn the same (kappa = 0), so depth is spent on "
        "solving an ODE more finely."
    ),
    "Depth-muP": (
        "Stable, nontrivial and faithful, with the largest feature diversity (kappa = 1/2): the "
        "only pair of exponents for blocks of one matrix that has all four."
    ),
}


def region(
    *,
    stable_at_init: bool,
    stable_in_training: bool,
    nontrivial: bool,
    faithful: bool,
    diverse: bool,
) -> str:
    """The region of Figure 1 with these properties, whether they are claimed or computed.

    Args:
        stable_at_init: the last layer does not grow with depth at initialization.
        stable_in_training: nor does the output after a step.
        nontrivial: the output does not vanish after a step.
        faithful: preactivations do not grow with depth.
        diverse: the feature diversity exponent is 1/2.

    Returns:
        The first region whose property fails; the last one where none does.

    Example:
        >>> everything = {"nontrivial": True, "faithful": True, "diverse": True}
        >>> region(stable_at_init=True, stable_in_training=False, **everything)
        'unstable in training'

    *Source:* TP6 (arXiv 2310.02244) Figure 1 and Claims 7.1 to 7.5.
    """
    good = (stable_at_init, stable_in_training, nontrivial, faithful, diverse)
    return next(
        (name for name, holds in zip(REGIONS, good, strict=False) if not holds), REGIONS[-1]
    )


def decided(properties: Iterable[bool | None]) -> bool:
    """Whether properties, in the order of the regions and None where open, decide the region.

    The first that fails names it; one that is open before that leaves it open.

    Args:
        properties: stability, faithfulness and the others, in the order of the regions.

    Returns:
        False where an open property could still change it.

    Example:
        >>> decided([True, False, None]), decided([True, None, False])
        (True, False)

    *Source:* TP6 (arXiv 2310.02244) Figure 1.
    """
    return next((holds is False for holds in properties if holds is not True), True)


def regime(alpha: Exponent, gamma: Exponent) -> Regime:
    """The regime of branch multiplier L^-alpha and in-branch updates of size L^-gamma.

    Args:
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update inside a branch.

    Returns:
        The regime, with its properties.

    Example:
        >>> regime("1/2", "1/2").name
        'Depth-muP'
        >>> regime(1, 0).kappa
        Fraction(0, 1)

    *Source:* TP6 (arXiv 2310.02244) Section 7, Claims 7.1 to 7.6 and Figure 1.
    """
    a, g = exponent(alpha, name="alpha"), exponent(gamma, name="gamma")
    # The first update of L branches moves the output by L^(1 - alpha - gamma).
    total = a + g
    stable_at_init = a >= _HALF
    stable = stable_at_init and total >= 1
    nontrivial = total <= 1
    on_the_line = stable and nontrivial
    faithful = a <= 1 if on_the_line else None
    kappa = (_HALF if a == _HALF else Fraction(0)) if on_the_line else None
    name = region(
        stable_at_init=stable_at_init,
        stable_in_training=stable,
        nontrivial=nontrivial,
        faithful=a <= 1,
        diverse=a == _HALF,
    )
    why = _WHY[name].format(init=_HALF - a, training=1 - total, preactivations=-g)
    return Regime(
        alpha=a,
        gamma=g,
        name=name,
        stable_at_init=stable_at_init,
        stable_in_training=stable,
        nontrivial=nontrivial,
        faithful=faithful,
        kappa=kappa,
        layerwise_linear=(a < 1) if on_the_line else None,
        why=why,
    )
