"""What a parameter does in the network: all that a scaling rule may ask about it."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Which of a parameter's dimensions grow with width.

    Example:
        >>> Kind("hidden") is Kind.HIDDEN
        True
    """

    INPUT = "input"  # fan-out grows, fan-in does not: input matrices, embeddings
    HIDDEN = "hidden"  # both grow
    READOUT = "readout"  # fan-in grows, fan-out does not
    VECTOR = "vector"  # gains and biases


class Part(StrEnum):
    """Which part of a mixture of experts a parameter is.

    Example:
        >>> Part("expert down") is Part.DOWN
        True
    """

    ROUTER = "router"  # its outputs weight the experts: one for each
    EXPERT = "expert"  # a matrix or bias of an expert, but for the last
    DOWN = "expert down"  # the last of an expert, behind which the router's weight stands
    SHARED = "shared expert"  # of an expert that every example passes through


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A parameter's kind and its place.

    ``in_branch``: it belongs to a residual branch (and so takes the depth factors).
    ``last``: it is in the last matrix or bias of its branch, where a multiplier may be folded.
    ``tied``: a readout that is also the embedding.
    ``shared``: one parameter serves every branch of its stream (layers tied across depth, one table
    of relative positions for all layers), or acts on it in every layer, so its gradient is a sum.
    ``on_stream``: outside of branches, one in each layer acts on the stream itself (the gains of
    post-norm), so that the effects of all layers add up.
    ``part``: the part of a mixture of experts that it is.
    ``narrows``: a matrix inside of the network whose fan-in grows and whose fan-out does not (a
    router, a low-rank factor of a fixed rank, keys and values in a fixed number of heads).

    Attributes:
        kind: input, hidden, readout or vector.
    """

    kind: Kind
    in_branch: bool = False
    last: bool = False
    tied: bool = False
    shared: bool = False
    on_stream: bool = False
    part: Part | None = None
    narrows: bool = False

    def __post_init__(self) -> None:
        if self.last and not self.in_branch:
            raise ValueError(
                "A role that is last of its branch must be in a branch; got last=True."
            )
        if self.shared and not (self.in_branch or self.on_stream):
            raise ValueError(
                "A role that layers share must be in a branch or on the stream; got shared=True."
            )
        if self.on_stream and self.in_branch:
            raise ValueError(
                "A role that acts on the stream itself lies in no branch; got in_branch=True."
            )
        if self.tied and self.kind is not Kind.READOUT:
            raise ValueError(
                f"Only a readout can be tied to the embedding; got kind={self.kind!s}. "
                "Give the shared matrix the role Role(kind=Kind.READOUT, tied=True)."
            )

        if self.narrows and self.kind is not Kind.HIDDEN:
            raise ValueError(
                "Only a matrix inside of the network narrows; got "
                f"kind={self.kind!s}. At the end of it that is a readout."
            )

    def __str__(self) -> str:
        words = ["tied readout" if self.tied else str(self.kind)]
        if self.part is not None:
            hidden = self.kind is Kind.HIDDEN
            words = [str(self.part) if hidden else f"{self.part} {self.kind}"]
        if self.in_branch:
            words.append("last of branch" if self.last else "in branch")
        if self.narrows and self.part is not Part.ROUTER:
            words.append("to a fixed size")
        if self.on_stream:
            words.append("on the stream")
        if self.shared:
            words.append(f"shared by all {'branches' if self.in_branch else 'layers'}")
        return ", ".join(words)


HIDDEN_IN_BRANCH = Role(kind=Kind.HIDDEN, in_branch=True)
"""What most parameters of a deep network are."""
