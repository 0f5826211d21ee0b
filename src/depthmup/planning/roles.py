"""Roles: what kind a parameter is, from which of its axes grow and how it is used."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from depthmup.planning.declared import DeclaredRole
from depthmup.rules import Kind, Part, Ratios
from depthmup.tracing import How, Use, inner, plain_name
from depthmup.tracing.operations import BATCH_NORMS, COMPARISONS, LENGTHS


class NotUnderstood(ValueError):
    """A parameter whose role cannot be found out; the message says how to declare it."""


class Undeclared(NotUnderstood):
    """A parameter whose role its use does not tell, so that a person may declare it.

    ``kinds`` are those that its uses allow, where they tell that much.
    """

    def __init__(self, said: str, growth: "Growth", kinds: Sequence[Kind] = ()) -> None:
        super().__init__(said, growth, kinds)
        self.growth, self.kinds = growth, kinds

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """The shape of a parameter in the model and in the base."""

    name: str
    shape: tuple[int, ...]
    base_shape: tuple[int, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How each axis grew; one without entries in the base, and so in the model, did not."""
        return tuple(a / b if b else 1.0 for a, b in zip(self.shape, self.base_shape, strict=True))

    def along(self, axes: Sequence[int]) -> float:
        return math.prod(self.ratios[axis] for axis in axes)

    def falls(self, use: Use, counting: Sequence[int] = ()) -> bool:
        """Whether a matrix has at most as many outputs as inputs, in model and base.

        ``counting`` axes are those of experts.
        """
        into, out = ([a for a in axes if a not in counting] for axes in (use.fan_in, use.fan_out))
        return all(
            math.prod(shape[axis] for axis in out) <= math.prod(shape[axis] for axis in into)
            for shape in (self.shape, self.base_shape)
        )

    @property
    def growing(self) -> tuple[int, ...]:
        return tuple(axis for axis, ratio in enumerate(self.ratios) if ratio != 1)

    @property
    def words(self) -> str:
        return f"{self.name} {list(self.shape)} against {list(self.base_shape)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MixturePart:
    """Which part of a mixture of experts a parameter is.

    ``axes`` are those that count experts; ``experts`` and ``active`` are the ratios of their
    numbers.
    """

    part: Part
    axes: tuple[int, ...] = ()
    experts: float = 1.0
    active: float = 1.0


def narrows(
    growth: Growth,
    kind: Kind,
    fans: Ratios,
    uses: tuple[Use, ...],
    *,
    stacked: bool,
    mixture: MixturePart | None,
) -> bool:
    """Whether a matrix leads from a growing to a fixed, smaller size inside of the network.

    Not one whose output a norm takes alone, which undoes its size wherever it starts.
    """
    if kind is not Kind.HIDDEN or fans.fan_in == 1 or fans.fan_out != 1:
        return False
    if mixture is not None:
        router = mixture.part is Part.ROUTER
        return router or any(growth.falls(use, mixture.axes) for use in uses)
    return any((stacked or use.leads) and not use.normalized and growth.falls(use) for use in uses)


_SUMMED = (Kind.HIDDEN, Kind.READOUT)


def kind_and_ratios(
    growth: Growth,
    uses: tuple[Use, ...],
    declared: DeclaredRole | None,
    *,
    stacked: bool = False,
    mixture: MixturePart | None = None,
) -> tuple[Kind, Ratios, bool]:
    """The kind of a parameter, its fan ratios, and whether it is a readout tied to an embedding.

    A matrix is *input* if only its fan-out grows, *hidden* if both do, *readout* if only its fan-in
    does and neither another matrix nor a norm follows it; never if it is ``stacked``, in one of
    several branches that end alike. A matrix from a growing to a fixed size inside the network
    (a router, a low-rank factor) is hidden with a fan-out ratio of 1, and starts as a readout does
    (``narrows``). If neither dimension grows, its place decides: first, last, or between.
    Matrices of routers and experts are hidden, whichever of their dimensions grow; the number of
    experts is no dimension of theirs.
    """
    standardized = next((use.op for use in uses if use.standardized), "")
    # Rows that a mean is taken of may be learned tokens; a batch norm over rows is of a weight.
    matrix = len(growth.growing) > 1 or (len(growth.shape) > 1 and standardized in BATCH_NORMS)
    if standardized and (matrix if declared is None else declared.kind in _SUMMED):
        # A declared role would take the start from the parameter, where a constant decides it.
        raise NotUnderstood(
            f"Parameter {growth.name} is standardized ({standardized}) before it is used: its "
            "entries have one size, however large it starts, and what scales them is no "
            "parameter's start. No rule covers a standardized weight, nor does a declared role: "
            "use plain layers (nn.Conv2d in place of timm's ScaledStdConv2d), with norms between "
            "them where training needs these."
        )
    cosine = next((use.cosine for use in uses if use.cosine), ())
    others = [axis for axis in range(len(growth.shape)) if axis not in cosine]
    if cosine and growth.along(others) == 1:
        lookups = [use for use in uses if use.how is How.LOOKUP]
        rest = [use for use in uses if use not in lookups]
        if declared is None and all(use.cosine or use.op in LENGTHS for use in rest):
            # Rows and their directions alike keep the rate over the start.
            kind = Kind.INPUT if lookups else Kind.VECTOR
            return kind, Ratios(fan_out=growth.along(cosine)), False
        if declared is not None and declared.kind is Kind.HIDDEN:
            raise NotUnderstood(_stopped_cosines(growth))
    if declared is not None:
        return declared.kind, _declared_ratios(growth, declared, matrix_use(uses)), False
    if not uses:
        raise Undeclared(
            f"Parameter {growth.name} has no influence on the output for these example_inputs. "
            "Pass inputs that use it, or freeze or remove it.",
            growth,
        )
    if mixture is not None and not any(use.bent or use.how is How.UNKNOWN for use in uses):
        alike = {_in_mixture(growth, use, mixture) for use in uses}
        if len(alike) == 1:
            kind, ratios = alike.pop()
            return kind, ratios, False
    answers = {_one_use(growth, use, stacked=stacked) for use in uses}
    kinds = {kind for kind, _, _ in answers}
    hows = {use.how for use in uses}
    if How.MATRIX in hows <= {How.LOOKUP, How.MATRIX} and kinds == {Kind.INPUT, Kind.READOUT}:
        kind, into, _ = next(f for f in answers if f[0] is Kind.READOUT)
        return kind, Ratios(fan_in=into), True
    if len(answers) == 1:
        kind, into, out = answers.pop()
        return kind, Ratios(fan_in=into, fan_out=out), False
    fixed = {fan for _, *fans in answers for fan in fans} == {1}
    if hows == {How.LOOKUP, How.MATRIX} and fixed:
        return Kind.INPUT, Ratios(), False  # a tied table of a fixed size
    if kinds == {Kind.INPUT, Kind.HIDDEN} and fixed:
        return Kind.HIDDEN, Ratios(), False  # deeper alone: shared by the first layer and others
    if len(kinds) == 1:
        # The same weight in two places, once transposed: one law only if both fans grow alike.
        raise Undeclared(
            f"Parameter {growth.name} ({growth.words}) is used in several ways whose fan-in and "
            f"fan-out ratios differ: {sorted((into, out) for _, into, out in answers)}.",
            growth,
        )
    raise Undeclared(
        f"Parameter {growth.name} is used in ways that give it different roles: "
        f"{', '.join(sorted(map(str, kinds)))}.",
        growth,
        sorted(kinds),
    )


def _in_mixture(growth: Growth, use: Use, mixture: MixturePart) -> tuple[Kind, Ratios]:
    """The kind and ratios of a part of a mixture, whose axes of experts are no fan."""
    counting = {*mixture.axes}
    if mixture.part is Part.ROUTER:
        counting = {*use.fan_out}
    vector = use.how is not How.MATRIX  # one of several, looked up or sliced
    into = 1.0 if vector else growth.along([a for a in use.fan_in if a not in counting])
    return (
        Kind.VECTOR if vector else Kind.HIDDEN,
        Ratios(
            fan_in=into,
            fan_out=growth.along([a for a in use.fan_out if a not in counting]),
            experts=mixture.experts,
            active=mixture.active,
        ),
    )


def _one_use(growth: Growth, use: Use, *, stacked: bool) -> tuple[Kind, float, float]:
    into, out = growth.along(use.fan_in), growth.along(use.fan_out)
    repeated = growth.along(use.batch)
    if use.grouped:  # a matrix for each head: the blocks of one matrix, of fixed fan-in
        out, repeated = out * repeated, 1.0
    if use.bent and use.how is not How.ELEMENTWISE and (into, out) != (1, 1):
        raise Undeclared(
            f"Parameter {growth.name} ({growth.words}) acts as a matrix after a nonlinearity (exp, "
            "softplus, softmax, a square), so its own size is not that of the matrix and no rule "
            "covers it.",
            growth,
        )
    if growth.along(use.transformed) != 1:
        raise Undeclared(
            f"{growth.name} ({growth.words}) goes through a Fourier transform along a dimension "
            "that grows (a circulant weight, a convolution over coordinates), which sums over that "
            "dimension. No rule covers it.",
            growth,
        )
    if use.how is How.UNKNOWN and use.op in COMPARISONS:
        raise NotUnderstood(
            f"Parameter {growth.name} is compared with activations ({use.op}), as the knots of a "
            "spline are. In a KAN of pykan coefficients are multiplied by a scale for each spline, "
            "and no role covers that product, so declaring these knots is not enough: use "
            "efficient-kan with enable_standalone_scale_spline=False. Declare a threshold of "
            f"another kind: roles={{{growth.name!r}: 'vector'}}."
        )
    if use.how is How.UNKNOWN:
        raise Undeclared(
            f"Parameter {growth.name} is used by {use.op}, in a way that does not tell fan-in from "
            f"fan-out.{_COMPUTED if len(growth.shape) > 1 else ''}",
            growth,
        )
    if repeated != 1 and use.how is How.ELEMENTWISE:
        raise Undeclared(
            f"Parameter {growth.name} ({growth.words}) is multiplied with another parameter, so "
            "that it is a factor of a computed weight (as in LoRA), which no rule covers.",
            growth,
        )
    if repeated != 1:
        raise Undeclared(
            f"The number of matrices in {growth.name} grows ({growth.words}), and they are no "
            "experts that a router was seen to weight; no scaling rule is known for the number of "
            "heads of a batched matrix, or of others.",
            growth,
        )
    if use.how is How.LOOKUP:
        if into != 1:
            raise NotUnderstood(
                f"The number of rows of {growth.name} differs ({growth.words}): a vocabulary or a "
                "number of positions is not a width. Use the same in model and base, or declare "
                f"that its rows do not matter: roles={{{growth.name!r}: DeclaredRole(kind="
                f"Kind.INPUT, fan_out={use.fan_out})}}."
            )
        return Kind.INPUT, 1.0, out
    if use.how is How.ELEMENTWISE:
        if len(set(growth.growing) & set(use.fan_out)) > 1:
            raise Undeclared(
                f"Parameter {growth.name} is added or multiplied entry by entry and grows in "
                f"several dimensions ({growth.words}); a gain or bias grows in one. A factor of "
                "another weight (a mask, the scale of each spline of a KAN) shares that weight's "
                "size, and no role covers it: leave it out (efficient-kan: "
                "enable_standalone_scale_spline=False), or make it a buffer of zeros and ones.",
                growth,
            )
        return Kind.VECTOR, 1.0, out
    last = not stacked and not use.leads
    if use.directed and into != 1 and out == 1 and last and not use.normalized:
        raise NotUnderstood(
            f"{growth.name} is the direction of a weight norm that gives the output: its gain "
            "would have to start and learn at m_in^-1/2, for which there is no law. Leave weight "
            "norm to the inside of the network."
        )
    if into != 1 and out != 1:
        return Kind.HIDDEN, into, out
    if out != 1:
        return Kind.INPUT, into, out
    if into != 1:
        # A norm behind it undoes its size, so that it cannot begin near zero as a readout does.
        return (Kind.READOUT if last and not use.normalized else Kind.HIDDEN), into, out
    if not use.traced:
        return Kind.HIDDEN, 1.0, 1.0
    if last:
        return Kind.READOUT, 1.0, 1.0
    return (Kind.HIDDEN if use.follows else Kind.INPUT), 1.0, 1.0


_COMPUTED = (
    " If a weight is computed from it (weight norm, spectral norm, a standardized or orthogonal "
    "weight, DoRA), that weight's size is not its own, and no rule covers it by itself: plan the "
    "plain layer (torch.nn.utils.parametrize.remove_parametrizations), or declare a direction as "
    "'hidden' and its gain, one number for each output, as 'vector', inside of the network only. "
    "Write a product of two matrices as one after the other: F.linear(F.linear(x, A), B) in place "
    "of F.linear(x, B @ A)."
)


def _declared_ratios(growth: Growth, declared: DeclaredRole, product: Use | None) -> Ratios:
    if declared.fan_in or declared.fan_out:
        rank = len(growth.shape)
        if not {*declared.fan_in, *declared.fan_out} <= {*range(-rank, rank)}:
            raise NotUnderstood(
                f"Expected fan_in and fan_out of {growth.name} to be axes of {list(growth.shape)}, "
                f"from 0 to {rank - 1}; got {declared.fan_in} and {declared.fan_out}."
            )
        return Ratios(fan_in=growth.along(declared.fan_in), fan_out=growth.along(declared.fan_out))
    grown = growth.along(growth.growing)
    if declared.kind is Kind.READOUT:
        return Ratios(fan_in=grown)
    if declared.kind is Kind.HIDDEN:
        if len(growth.shape) < 2:
            raise NotUnderstood(
                f"Parameter {growth.name} was declared hidden but has shape {list(growth.shape)}; "
                "a hidden parameter has a fan-in and a fan-out. Declare it a vector."
            )
        if product is not None:
            return Ratios(
                fan_in=growth.along(product.fan_in), fan_out=growth.along(product.fan_out)
            )
        if growth.along(range(2, len(growth.shape))) != 1:
            raise NotUnderstood(
                f"{growth.name} was declared hidden and grows in other dimensions than its first "
                f"two ({growth.words}), which does not tell fan-in from fan-out. Name its axes: "
                f"roles={{{growth.name!r}: DeclaredRole(kind='hidden', fan_in=(axes), "
                "fan_out=(axes))}."
            )
        return Ratios(fan_in=growth.ratios[1], fan_out=growth.ratios[0])
    return Ratios(fan_out=grown)


def _stopped_cosines(growth: Growth) -> str:
    # An entry of size s that moves by r moves (p . x) / |p| |x| by r / s; hidden: n^-1 / n^-1/2.
    return (
        f"{growth.name} is declared hidden, but it is divided by its own length, and multiplied "
        "with what is divided by its length too. Such a cosine moves with the learning rate over "
        "the start, and a hidden matrix's rate falls faster with width than its start: wide models "
        "would not learn it. Leave it out of roles, and it takes the factors of a vector."
    )


_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FORWARD = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def matrix_use(uses: tuple[Use, ...]) -> Use | None:
    """How a parameter acts as a matrix; of several ways as the one that no matrix follows."""
    matrices = [use for use in uses if use.how is How.MATRIX]
    return next((use for use in matrices if not use.leads), next(iter(matrices), None))


def lookup_use(uses: tuple[Use, ...]) -> Use | None:
    return next((use for use in uses if use.how is How.LOOKUP), None)


def structural_uses(model: nn.Module) -> dict[str, tuple[Use, ...]]:
    """Uses as module types imply them, for models whose forward pass cannot be followed."""
    result: dict[str, tuple[Use, ...]] = {}
    first_names: dict[int, str] = {}
    for name, module in model.named_modules():
        for key, parameter in inner(module)._parameters.items():
            if parameter is None:
                continue
            full = first_names.setdefault(
                id(parameter), plain_name(f"{name}.{key}" if name else key)
            )
            use = _structural_use(full, module, key, parameter.dim())
            if use not in result.get(full, ()):
                result[full] = (*result.get(full, ()), use)
    return result


def _structural_use(name: str, module: nn.Module, key: str, rank: int) -> Use:
    if rank <= 1:
        return Use(parameter=name, node=-1, how=How.ELEMENTWISE, fan_out=tuple(range(rank)))
    if key == "weight" and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Use(parameter=name, node=-1, how=How.LOOKUP, fan_in=(0,), fan_out=(1,))
    if key == "weight" and isinstance(module, _FORWARD + _TRANSPOSED):
        into, out = (0, 1) if isinstance(module, _TRANSPOSED) else (1, 0)
        return Use(
            parameter=name,
            node=-1,
            how=How.MATRIX,
            fan_in=(into, *range(2, rank)),
            fan_out=(out,),
        )
    return Use(parameter=name, node=-1, how=How.UNKNOWN)
