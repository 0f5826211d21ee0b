"""The dataflow of one forward pass as a value: operations, what they read, which module ran."""

import heapq
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from depthmup.tracing.operations import DECISIONS, SHAPED, TRANSPARENT


@dataclass(frozen=True, slots=True)
class Ref:
    """One output of one node."""

    node: int
    output: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One operation of the forward pass, or one tensor that no operation made.

    ``op`` is the ATen name without overload (``add_`` is written ``add``), or ``parameter``,
    ``buffer``, ``input``, ``constant``. ``args`` are the operation's arguments with tensors
    replaced by references; ``module`` is the innermost module that was running; ``value`` is the
    number that a buffer or constant holds in all its entries, where it is known.
    """

    index: int
    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Ref, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    module: str = ""
    name: str = ""
    value: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shapes[0] if self.shapes else ()

    def reads(self, node: int) -> Ref:
        """Which output of another node this one reads, first of all."""
        return next(ref for ref in self.inputs if ref.node == node)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleCall:
    """What one call of a module returned, and from which node to which it ran."""

    name: str
    first: int
    end: int
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """One tensor of a module's call: its first input, one of its outputs, or a parameter.

    Or what it adds to its input: ``side`` is "addition" where a module returns x + f(x).
    ``part``: only these coordinates of dimension ``dim``, from each start to each stop; all of them
    if empty. ``parameter`` is a parameter's name below the module, whose calls read it.

    Attributes:
        module: by its name; empty for the model itself.
        index: of the output, where there are several.
    """

    module: str
    side: str  # "input", "output", "parameter" or "addition"
    index: int = 0
    part: tuple[tuple[int, int], ...] = ()
    dim: int = -1
    parameter: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A forward pass in the order in which it ran, so that every node follows its inputs.

    ``unknown`` are buffers (and other tensors, under no name) of one number by which
    the forward pass multiplies, and whose value is not at hand, as on the meta device; ``unsure``
    those of several entries, which may or may not be one number. ``overwriting`` are the nodes
    that write into the tensor they are given. ``by_values``: the forward pass depends on the values
    of its inputs, and is that of these.

    Attributes:
        nodes: operations, in order.
        parameters: the node of each parameter, by name.
        calls: of modules: which nodes each spans.
        outputs: of the forward pass.
    """

    nodes: tuple[Node, ...]
    parameters: Mapping[str, int]
    calls: tuple[ModuleCall, ...]
    outputs: tuple[Ref, ...]
    unknown: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    overwriting: frozenset[int] = field(default=frozenset(), repr=False)
    by_values: bool = False

    def shape(self, ref: Ref) -> tuple[int, ...]:
        return self.nodes[ref.node].shapes[ref.output]

    def number(self, argument: Any) -> float | None:
        """The number that an argument of an operation is, if it is one that is known."""
        if isinstance(argument, Ref):
            return self.nodes[argument.node].value
        return float(argument) if isinstance(argument, (int, float)) else None

    @cached_property
    def consumers(self) -> Sequence[Sequence[int]]:
        """Of each node the nodes that read it, in order."""
        consumers: list[dict[int, None]] = [{} for _ in self.nodes]
        for node in self.nodes:
            for ref in node.inputs:
                consumers[ref.node][node.index] = None
        return [tuple(readers) for readers in consumers]

    @cached_property
    def factors(self) -> Mapping[int, float]:
        """The numbers by which nodes multiply (or divide by) their one other operand."""
        factors = {}
        for node in self.nodes:
            if node.op in ("mul", "div"):
                numbers = [self.number(argument) for argument in node.args[:2]]
                known = [n for n in numbers if n is not None]
                if len(known) == 1 and known[0] and not (node.op == "div" and numbers[1] is None):
                    factors[node.index] = known[0] if node.op == "mul" else 1 / known[0]
        return factors

    def kept(self, node: Node) -> Ref | None:
        """The tensor of which an operation sets entries to zero, and leaves the others alone."""
        if node.op == "masked_fill" and self.number(node.args[2]) == 0:
            return node.args[0] if isinstance(node.args[0], Ref) else None
        if node.op == "where" and len(node.args) == 3:
            kept, zero = node.args[1:]
            if self.number(kept) == 0:
                kept, zero = zero, kept
            return kept if self.number(zero) == 0 and isinstance(kept, Ref) else None
        return None

    def back(
        self,
        start: int | Iterable[int],
        through: Container[str] | Callable[[Node], Iterable[int]],
    ) -> Iterator[Node]:
        """What nodes were made from: they themselves, then one node after another, each once.

        ``through`` are operations, of which the walk passes on to the first operand; or it says of
        a node to which others the walk passes on.
        """
        todo = [start] if isinstance(start, int) else list(start)
        reached = set(todo)
        while todo:
            node = self.nodes[todo.pop()]
            yield node
            if callable(through):
                before = through(node)
            else:
                before = [ref.node for ref in node.inputs[:1]] if node.op in through else ()
            for index in before:
                if index not in reached:
                    reached.add(index)
                    todo.append(index)

    def forward(
        self,
        start: int | Iterable[int],
        through: Callable[[Node, Container[int]], bool],
        *,
        alone: bool = False,
    ) -> Iterator[Node]:
        """What is made from nodes, in the order in which it ran, each once, without them.

        ``through`` says of a node whether the walk takes it, given the nodes that it holds so far:
        when a node is reached, all that it was made from has been. ``alone``: the walk ends where
        a tensor has several readers.
        """
        held = {start} if isinstance(start, int) else set(start)
        todo: list[int] = []
        reached = set[int]()

        def read(index: int) -> None:
            readers = self.consumers[index]
            for reader in readers if len(readers) == 1 or not alone else ():
                if reader not in reached:
                    reached.add(reader)
                    heapq.heappush(todo, reader)

        for index in held:
            read(index)
        while todo:
            node = self.nodes[heapq.heappop(todo)]
            if through(node, held):
                held.add(node.index)
                yield node
                read(node.index)

    def upstream(self, nodes: Iterable[int]) -> set[int]:
        """Nodes, and all that they were made from."""
        return {
            node.index for node in self.back(nodes, lambda this: (ref.node for ref in this.inputs))
        }

    def downstream(self, nodes: Collection[int]) -> set[int]:
        """Nodes, and all that was made from them."""
        return {*nodes, *(node.index for node in self.forward(nodes, lambda this, held: True))}

    def origin(self, node: int) -> int:
        """The operation that made a tensor, whatever its shape became since."""
        *_, made = self.back(node, TRANSPARENT)
        return made.index

    @cached_property
    def returned(self) -> Mapping[Ref, Sequence[tuple[ModuleCall, int]]]:
        """The calls that return a tensor, and as which output; outermost last, as calls end."""
        returned: dict[Ref, list[tuple[ModuleCall, int]]] = {}
        for call in self.calls:
            for which, ref in enumerate(call.outputs):
                returned.setdefault(ref, []).append((call, which))
        return returned

    @cached_property
    def live(self) -> set[int]:
        """The nodes from whose values the output is computed."""
        live = {ref.node for ref in self.outputs}
        for node in reversed(self.nodes):
            if node.index in live:
                live.update(ref.node for ref in _values(node))
        return live

    def ancestors(
        self, node: int, *, after: int = -1, apart: Container[int] = frozenset()
    ) -> set[int]:
        """``node`` and everything it was computed from, past node ``after``.

        Nodes ``apart`` are left out, with all that only they were computed from.
        """
        # Nodes are numbered in the order they ran: what is past ``after`` can only come from there.
        reached, todo = {node}, [node]
        while todo:
            for ref in _values(self.nodes[todo.pop()]):
                if ref.node > after and ref.node not in reached and ref.node not in apart:
                    reached.add(ref.node)
                    todo.append(ref.node)
        return reached

    def descends(self, node: int, ancestor: int) -> bool:
        """Whether ``node`` was computed from ``ancestor`` (or is it)."""
        return ancestor <= node and ancestor in self.ancestors(node, after=ancestor - 1)

    def between(self, ancestor: int, node: int) -> set[int]:
        """The nodes on paths from ``ancestor`` (excluded) to ``node`` (included)."""
        behind = self.ancestors(node, after=ancestor)
        on_path: set[int] = set()
        for index in sorted(behind):
            inputs = _values(self.nodes[index])
            if any(ref.node == ancestor or ref.node in on_path for ref in inputs):
                on_path.add(index)
        return on_path


def _values(node: Node) -> tuple[Ref, ...]:
    """What an operation computes with; to decide, or to take a shape, is not to compute."""
    return () if node.op in DECISIONS | SHAPED else node.inputs
