"""Where a multiplier of a tensor can go: into parameters, or onto the outputs of modules.

``f`` is multiplied by A exactly when every term of the sum that makes it is, and a product is when
exactly one factor is. Walking back from ``f`` by these two rules ends at parameters (the multiplier
is folded into them) or at outputs of modules (a hook multiplies them). The walk is exact or it
fails: it never passes a nonlinearity or a norm, and nothing else may read a scaled tensor.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TypeAlias

from depthmup.tracing.graph import Graph, Hook, ModuleCall, Node, Ref
from depthmup.tracing.operations import (
    ADDITIONS,
    AFFINE_NORMS,
    ATTENTION,
    CONVOLUTIONS,
    HOMOGENEOUS,
    LINEAR,
    MATRIX_PRODUCTS,
    SAME,
    SUMS,
    ZEROS,
)
from depthmup.tracing.parameter_uses import Usage

# ``copy`` writes into another tensor, such as a buffer.
_COPIES = SAME - {"copy"} | {"stack", "cat"}
# Alternatives are tried in order of preference, and real models succeed with the first or second:
# the walk need not list them all, of which there may be exponentially many.
_TRIES = 4
_STEPS = 2000
_LEVELS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where a multiplier goes: these parameters, or these outputs of modules.

    ``uses`` are (parameter, operation) pairs; ``calls`` are (call, which output). ``scaled`` are
    the tensors whose values the multiplier changes. ``scale`` is the product of the constants that
    the model itself multiplies by on the way.
    """

    uses: frozenset[tuple[str, int]] = frozenset()
    calls: frozenset[tuple[ModuleCall, int]] = frozenset()
    scaled: frozenset[Ref] = frozenset()
    scale: float = 1.0

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.uses)

    @property
    def hooks(self) -> tuple[Hook, ...]:
        return tuple(
            sorted(
                (Hook(module=c.name, side="output", index=i) for c, i in self.calls),
                key=lambda hook: hook.module,
            )
        )

    def __add__(self, other: "Placement") -> "Placement":
        return replace(
            self,
            uses=self.uses | other.uses,
            calls=self.calls | other.calls,
            scaled=self.scaled | other.scaled,
        )

    def through(self, ref: Ref, scale: float = 1.0) -> "Placement":
        """The same placement, further on: it multiplies one more tensor."""
        return replace(self, scaled=self.scaled | {ref}, scale=self.scale * scale)


@dataclass(frozen=True, kw_only=True, slots=True)
class Carriers:
    """What can carry the multiplier of one tensor: sets of parameters in order of preference, or
    the outputs of modules."""

    parameters: tuple[Placement, ...] = ()
    modules: Placement | None = None


def carriers_of(
    graph: Graph,
    usage: Usage,
    tensor: Ref,
    reader: int,
    *,
    after: int = -1,
    beside: Container[int] = (),
) -> Carriers:
    """What can multiply ``tensor``, as read by ``reader`` alone, made past the node ``after``.

    ``beside`` may read it as well: they are multiplied alike.
    """
    into = islice(_Walk(graph, usage, reader, after).parameters(tensor), _TRIES)
    onto = onto_modules(graph, usage, tensor, reader, after=after, beside=beside)
    return Carriers(
        parameters=tuple(p for p in into if _exclusive(graph, p, tensor, reader, beside)),
        modules=next(onto, None),
    )


def onto_modules(
    graph: Graph,
    usage: Usage,
    tensor: Ref,
    reader: int,
    *,
    after: int = -1,
    beside: Container[int] = (),
) -> Iterator[Placement]:
    """Sets of module outputs that multiply ``tensor``, as read by ``reader`` alone."""
    for placement in islice(_Walk(graph, usage, reader, after).modules(tensor), _TRIES):
        if _exclusive(graph, placement, tensor, reader, beside):
            yield placement


def combined(graph: Graph, node: int) -> Iterator[int]:
    """The node and those before it that numbers alone combine: (k1 + 2 k2) h / 6."""

    def before(this: Node) -> Iterator[int]:
        if this.op in ADDITIONS or this.index in graph.factors:
            yield from (ref.node for ref in this.inputs)

    return (made.index for made in graph.back(node, before))


def _exclusive(
    graph: Graph, placement: Placement, top: Ref, reader: int, beside: Container[int] = ()
) -> bool:
    """Whether nothing but the walk itself reads what is scaled, and no product is scaled twice."""
    if graph.nodes[reader].inputs.count(top) != 1:  # one tensor as query and as key
        return False
    nodes = {ref.node for ref in placement.scaled}
    outputs = {ref.node for ref in graph.outputs}
    for ref in placement.scaled:
        readers = {
            n
            for n in graph.consumers[ref.node]
            # What was put together and taken out again, or summed, is read no more; nor is a copy
            # in another precision that nobody reads.
            if ref in graph.nodes[n].inputs
            and (graph.nodes[n].op not in _COPIES or graph.consumers[n] or n in outputs)
        }
        within = {reader} if ref == top else nodes
        if any(n not in within and n not in beside for n in readers):
            return False
    for index in nodes:
        node = graph.nodes[index]
        scaled = [ref in placement.scaled for ref in node.inputs]
        if node.op in ("mul", "mm", "bmm", "_grouped_mm") and sum(scaled) > 1:
            return False
        # What is multiplied as a whole is multiplied in all of its parts (queries, keys, values).
        read = {r for n in graph.consumers[index] for r in graph.nodes[n].inputs}
        parts = {ref for ref in read if ref.node == index}
        if node.op not in AFFINE_NORMS and not parts <= placement.scaled | {top}:
            return False
    return True


# Placements that multiply one argument of a node.
_Operand: TypeAlias = Callable[[object, int], Iterator[Placement]]


class _Walk:
    """Back from a tensor to what can carry a number that multiplies it.

    Through sums, to all terms; through products, to one factor; through a norm, to its gain and
    bias. Alternatives come one by one, those of parameters nearest to the tensor first.
    """

    def __init__(self, graph: Graph, usage: Usage, reader: int, after: int) -> None:
        self.graph, self.usage, self.after = graph, usage, after
        self.steps_left, self.level = _STEPS, 0
        self.reader = reader

    def linear(self, node: int) -> bool:
        """Whether a tensor made from one parameter is proportional to it."""
        this = self.graph.nodes[node]
        if this.op == "parameter" or node in self.usage.rescaled:
            return True
        tensors = [r.node for r in this.inputs if r.node not in self.usage.constant]
        scaling = this.op in ("mul", "div") and len(tensors) == 1
        if scaling or this.op in LINEAR or self.graph.kept(this) is not None:
            return self.linear(tensors[0])
        # W - W^T
        terms = [a for a in this.args[:2] if isinstance(a, Ref) and a.node in tensors]
        return this.op in ADDITIONS and len(terms) == 2 and all(map(self.linear, tensors))

    def _operand(self, argument: object, reader: int) -> Iterator[Placement]:
        """Placements that multiply one argument of ``reader``."""
        if not isinstance(argument, Ref):
            return
        if argument.node in self.usage.derived:
            if self.linear(argument.node):
                yield Placement(uses=frozenset({(self.usage.derived[argument.node], reader)}))
            return
        yield from self.parameters(argument)

    def parameters(self, ref: Ref) -> Iterator[Placement]:
        yield from self._step(ref, self._operand)

    def modules(self, ref: Ref) -> Iterator[Placement]:
        def operand(argument: object, reader: int) -> Iterator[Placement]:
            if isinstance(argument, Ref) and argument.node not in self.usage.derived:
                yield from self.modules(argument)

        for call, which in reversed(self.graph.returned.get(ref, ())):
            # A module that also contains the reader cannot carry the multiplier.
            if not call.first <= self.reader < call.end:
                yield Placement(calls=frozenset({(call, which)}), scaled=frozenset({ref}))
                break
        yield from self._step(ref, operand)

    def _step(self, ref: Ref, operand: _Operand) -> Iterator[Placement]:
        node = self.graph.nodes[ref.node]
        if node.op in ZEROS:
            yield Placement(scaled=frozenset({ref}))
            return
        if node.op in ("parameter", "buffer", "constant", "input") or not node.args:
            return
        # A budget for the whole walk: alternatives multiply with every product that is passed.
        self.steps_left -= 1
        if self.steps_left < 0 or self.level > _LEVELS or node.index <= self.after:
            return
        self.level += 1
        yield from self._through(ref, operand)
        self.level -= 1

    def _through(self, ref: Ref, operand: _Operand) -> Iterator[Placement]:
        """Placements that multiply the result of one operation."""
        node = self.graph.nodes[ref.node]
        args = node.args
        alternatives: Iterable[Iterator[Placement]] = ()
        scale = 1.0
        if node.op in ("mul", "div"):
            tensors = [a for a in args[:2] if self.graph.number(a) is None]
            if node.op == "div":
                tensors = [a for a in args[:1] if a in tensors]
            scale = self.graph.factors.get(node.index) or 1.0
            # Parameters first: where a gain carries the number, all before it stays as it is.
            tensors.sort(key=lambda a: a.node not in self.usage.derived)
            alternatives = [operand(a, node.index) for a in tensors]
        elif node.op in MATRIX_PRODUCTS:
            at = MATRIX_PRODUCTS[node.op]
            factors = sorted(args[at : at + 2], key=lambda a: a.node not in self.usage.derived)
            alternatives = [
                self._all_of([*args[:at], factor], operand, node.index) for factor in factors
            ]
        elif node.op in CONVOLUTIONS:
            alternatives = [self._all_of([args[1], args[2]], operand, node.index)]
        elif node.op in AFFINE_NORMS:
            gain, bias = AFFINE_NORMS[node.op]
            if len(args) > bias and isinstance(args[gain], Ref):
                affine = [args[i] for i in dict.fromkeys((gain, bias))]
                alternatives = [self._all_of(affine, operand, node.index)]
        elif node.op in SUMS:
            terms = self.terms(node)
            if all(isinstance(term, Ref) for term in terms):  # else: plus a constant
                alternatives = [self._all_of(terms, operand, node.index)]
        elif node.op.startswith(ATTENTION):
            alternatives = [operand(args[2], node.index)]  # linear in its values alone
        elif (kept := self.graph.kept(node)) is not None:
            alternatives = [operand(kept, node.index)]
        elif node.op in HOMOGENEOUS:
            alternatives = [operand(args[0], node.index)]
        for placements in alternatives:
            for placement in placements:
                yield placement.through(ref, scale)

    def terms(self, node: Node) -> list[object]:
        """What is added up or collected."""
        args = node.args
        if node.op in ("cat", "stack"):
            return list(args[0])
        if node.op == "index_put":  # (into, where, values)
            return [args[0], args[2]]
        if node.op in ("index_add", "index_copy", "scatter_add"):  # (into, dim, where, values)
            return [args[0], args[3]]
        # Python's sum starts from the number 0.
        return [term for term in args[:2] if isinstance(term, Ref) or term != 0]

    def _all_of(
        self, arguments: Sequence[object], operand: _Operand, reader: int
    ) -> Iterator[Placement]:
        present = [a for a in arguments if isinstance(a, Ref)]
        if len(present) == 1:
            yield from operand(present[0], reader)
            return
        # Every term must carry the number: any choice for one goes with any for the others.
        for parts in product(*(list(islice(operand(a, reader), _TRIES)) for a in present)):
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            yield total
