"""Optimizer families: what the size of an update depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType

from depthmup.rules.power import ONE, Power
from depthmup.rules.role import Kind


class Family(StrEnum):
    """What the size of an update depends on.

    Example:
        >>> Family.RAW.degree, Family.ENTRYWISE.degree, Family.RELATIVE.weight_degree
        (1, 0, 1)

    *Source:* TP6 (arXiv 2310.02244) Definition 6.1 and Tensor Programs IVb (arXiv 2308.01814)
    for raw and entrywise updates; Yang, Simon and Bernstein 2023 (arXiv 2310.17813) for
    spectral ones.
    """

    RAW = "raw"  # proportional to the gradient: SGD
    ENTRYWISE = "entrywise"  # every entry has size one: Adam, Lion, RMSprop, sign
    RELATIVE = "relative"  # the RMS of the weight times a direction: LAMB, LARS, Adafactor
    NORM_BALL = "norm-ball"  # each layer's own norm: Scion
    # The following train hidden matrices; everything else goes to an entrywise optimizer.
    SPECTRAL = "spectral"  # sqrt(max(1, rows/columns)) U V^T: Muon
    SPECTRAL_RMS = "spectral-rms"  # 0.2 sqrt(max(out, in)) U V^T: Muon matched to Adam's RMS
    SPECTRAL_RATIO = "spectral-ratio"  # sqrt(out/in) U V^T: Dion
    SPECTRAL_UNIT = "spectral-unit"  # U V^T: SOAP
    SPECTRAL_INVERSE = "spectral-inverse"  # U S^-1 V^T: Shampoo with exponents 1/2 and 1/2
    MATRIX_ENTRYWISE = "matrix-entrywise"  # entries of size one: SOAP in blocks, grafting to Adam
    # Steps as of these two, and epsilons of their own.
    SHAMPOO = "shampoo"  # U V^T: exponents that sum to 1/2
    SHAMPOO_BLOCKS = "shampoo-blocks"  # the same in blocks of a fixed size: entries of size one
    ADAMUON = "adamuon"  # entries of size one, normalized behind U V^T
    SPHERE = "sphere"  # the norm of the weight times U V^T, and back to that norm: MuonH, AdamH

    @property
    def response(self) -> "Response":
        """What an update of this family is proportional to."""
        return RESPONSES[self]

    @property
    def degree(self) -> int:
        """k such that scaling the gradient by s scales the update by s**k."""
        return self.response.gradient

    @property
    def weight_degree(self) -> int:
        """j such that scaling the weight by s scales the update by s**j."""
        return self.response.weight

    @property
    def matrices_only(self) -> bool:
        """Whether it trains hidden matrices, and needs an entrywise optimizer beside it."""
        return self.response.matrices_only

    def serving(self, kind: Kind) -> "Family":
        """The family that trains parameters of this kind.

        Optimizers of matrices train hidden ones; everything else goes to an entrywise one.
        """
        return Family.ENTRYWISE if self.matrices_only and kind is not Kind.HIDDEN else self


@dataclass(frozen=True, kw_only=True)
class Response:
    """How large an update is at a learning rate of one.

    With g and w the sizes of one entry of the gradient and of the weight, an update that acts on
    aligned inputs acts as one whose entries have the size

        g**gradient * w**weight * size(kind),

    where an update of spectral norm s counts as entries of s / sqrt(fan_in * fan_out): that is what
    a matrix of rank one has. Epsilon is added to something that scales as
    ``g**epsilon_degree * epsilon``.

    Attributes:
        gradient, weight: exponents of their sizes.
        sizes: by kind of parameter; 1 where none is named.
        narrowing: what a matrix whose fan-out stays has beside its size: as many singular values.
        epsilon: how the size to which epsilon is added depends on shape.
        epsilon_degree: exponent of the gradient there.
        matrices_only: whether the optimizer trains hidden matrices alone.

    *Source:* the principle of TP6 (arXiv 2310.02244) Definition 6.1, written as exponents;
    spectral norms: Yang, Simon and Bernstein 2023 (arXiv 2310.17813).
    """

    gradient: int = 0
    weight: int = 0
    sizes: Mapping[Kind, Power] = field(default_factory=lambda: MappingProxyType({}))
    narrowing: Power = ONE
    epsilon: Power = ONE
    epsilon_degree: int = 1
    matrices_only: bool = False

    def size(self, kind: Kind) -> Power:
        """The size of an aligned update's entries that is the optimizer's own doing."""
        return self.sizes.get(kind, ONE)


def _hidden(size: Power) -> Mapping[Kind, Power]:
    return MappingProxyType({Kind.HIDDEN: size})


_HALF = Fraction(1, 2)
_INVERSE_FAN_IN = Power(fan_in=Fraction(-1))
_ROOT_AREA = Power(fan_in=_HALF, fan_out=_HALF)

RESPONSES: Mapping[Family, Response] = MappingProxyType(
    {
        Family.RAW: Response(gradient=1),
        Family.ENTRYWISE: Response(),
        Family.RELATIVE: Response(weight=1),
        Family.NORM_BALL: Response(
            sizes=MappingProxyType({Kind.HIDDEN: _INVERSE_FAN_IN, Kind.READOUT: _INVERSE_FAN_IN})
        ),
        # Where the two sides of a matrix grow alike, or fan-out is the larger one; what is lacking
        # elsewhere, planning adds from the shapes.
        Family.SPECTRAL: Response(
            sizes=_hidden(_INVERSE_FAN_IN), epsilon=_ROOT_AREA, matrices_only=True
        ),
        Family.SPECTRAL_RMS: Response(
            sizes=_hidden(Power(fan_in=-_HALF)), epsilon=_ROOT_AREA, matrices_only=True
        ),
        Family.SPECTRAL_RATIO: Response(
            sizes=_hidden(_INVERSE_FAN_IN), epsilon=_ROOT_AREA, matrices_only=True
        ),
        Family.SPECTRAL_UNIT: Response(
            sizes=_hidden(_ROOT_AREA**-1), epsilon=_ROOT_AREA, matrices_only=True
        ),
        # Singular values of the gradient are g * sqrt(fan_in * fan_out), inverted.
        Family.SPECTRAL_INVERSE: Response(
            gradient=-1,
            sizes=_hidden(_ROOT_AREA**-2),
            epsilon=_ROOT_AREA**2,
            epsilon_degree=2,
            matrices_only=True,
        ),
        Family.MATRIX_ENTRYWISE: Response(matrices_only=True),
        # Epsilon is added to G G^T, of a matrix or of a block, and to the squares of U V^T.
        Family.SHAMPOO: Response(
            sizes=_hidden(_ROOT_AREA**-1),
            epsilon=_ROOT_AREA**2,
            epsilon_degree=2,
            matrices_only=True,
        ),
        Family.SHAMPOO_BLOCKS: Response(epsilon_degree=2, matrices_only=True),
        Family.ADAMUON: Response(epsilon=_ROOT_AREA**-1, epsilon_degree=0, matrices_only=True),
        Family.SPHERE: Response(
            weight=1,
            sizes=_hidden(Power(fan_in=-_HALF)),
            narrowing=Power(fan_in=_HALF),
            epsilon=_ROOT_AREA,
            matrices_only=True,
        ),
    }
)
"""What an update of every family is proportional to.

*Source:* raw, entrywise: TP6 (arXiv 2310.02244) Definition 6.1. Shampoo, SOAP, AdaMuon, grafting
and the epsilons: arXiv 2512.05620 Tables 1 and 2, of which ``U S^(1-2e) V^T``, e the sum of both
exponents, is the case without blocks. In blocks of a fixed size every block has a gradient of
fixed area, so an update with e = 1/2 is entrywise. Scion: arXiv 2502.07529. Sphere: arXiv
2603.28743 Theorem 2, for updates whose singular values are alike.
"""
