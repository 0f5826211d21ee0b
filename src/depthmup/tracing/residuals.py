"""Residuals: a model's residual branches, and the streams that their additions make up."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ResidualBranch:
    """One residual addition: ``addition = stream + output``, output made from ``origin``.

    ``origin`` is the point of the stream that the branch reads (the stream's operand itself, or
    an earlier point of it in parallel blocks). ``path`` are the nodes from there to ``output``;
    ``feeders`` those that only feed the path from the side (projections of an encoder's output,
    tables of relative positions). ``parents`` are the branches this one lies inside, by index.
    ``scale`` is the number by which the stream is multiplied between ``origin`` and the addition:
    ``scale * x + f(x)`` is ``scale`` times what a branch with the multiplier ``1 / scale`` gives.
    ``forgets``: it takes away from the stream what it replaces, as in x + t (f(x) - x).
    ``evaluations`` are the branches that evaluate the same function for the same step, at other
    points (Runge-Kutta): they are multiplied alike, and lie in none of each other.
    """

    index: int
    addition: int
    stream: int
    output: int
    origin: int
    label: str = ""
    path: frozenset[int] = field(default=frozenset(), repr=False)
    feeders: frozenset[int] = field(default=frozenset(), repr=False)
    parents: tuple[int, ...] = ()
    evaluations: tuple[int, ...] = ()
    scale: float = 1.0
    forgets: bool = False

    @property
    def nth(self) -> int:
        """Which evaluation of its step this is, from 0."""
        return sum(other < self.index for other in self.evaluations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """Consecutive residual additions, and how many of them lie on the longest path.

    ``normalized``: a norm stands on the stream between its additions (post-norm). ``factor`` is the
    number other than 1 by which the stream itself is multiplied from one addition to the next.
    ``stages`` are the parts that a matrix on the stream (or a norm, a whole network beside it)
    sets apart, where there are several.
    """

    branches: tuple[int, ...]
    depth: int
    normalized: bool
    factor: float = 1.0
    stages: tuple["Stream", ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Residuals:
    """All residual branches of a model, and the streams they make up.

    ``skips`` are the sums of two points of one stream that no learned gain weighs.

    Attributes:
        branches: of the forward pass, in order.
        streams: chains of additions, each with its branches.
    """

    branches: tuple[ResidualBranch, ...]
    streams: tuple[Stream, ...]
    skips: tuple[int, ...] = ()

    def stream_of(self, branch: int) -> int:
        return next(i for i, s in enumerate(self.streams) if branch in s.branches)

    def first(self, stream: int) -> ResidualBranch:
        """The first branch that is added to a stream."""
        return self.branches[self.streams[stream].branches[0]]

    def level(self, branch: int) -> int:
        """How many branches this one lies inside."""
        return len(self.branches[branch].parents)

    def chain(self, branch: int) -> tuple[ResidualBranch, ...]:
        """The branches that this one lies inside, outermost first, and itself."""
        outer = sorted(self.branches[branch].parents, key=self.level)
        return tuple(self.branches[index] for index in (*outer, branch))
