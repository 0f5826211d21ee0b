"""Sites: the places of a forward pass that a scheme multiplies by a factor."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from depthmup.planning.folding import (
    Placement,
    into_parameters,
    onto_modules,
    own_constant,
    own_factor,
)
from depthmup.planning.graph import Residuals
from depthmup.planning.ops import CONVOLUTIONS, MATRIX_PRODUCTS, NORMALIZING, TRANSPARENT
from depthmup.planning.trace import Graph, ModuleCall, Node
from depthmup.planning.uses import How, Usage, Use
from depthmup.rules import Ratios

# Masks, biases, soft caps, limits and shifts: their slope is one where logits are small.
_AROUND_LOGITS = frozenset(
    {"add", "sub", "where", "masked_fill", "slice", "tanh", "clamp", "clamp_min", "clamp_max"}
)
_SOFTMAX = ("_softmax", "_safe_softmax")
_FUSED = "_scaled_dot_product"


class Where(StrEnum):
    """Which law multiplies a site."""

    BRANCH = "branch"  # Scheme.branch
    READOUT = "readout"  # Laws.forward of the readout
    INPUT = "input"  # Laws.forward of the embedding; there to undo a model's own scale
    LOGITS = "attention logits"  # WidthRule.attention_logits


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """One tensor of a module's call: its first input, or one of its outputs."""

    module: str
    side: str  # "input" or "output"
    index: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """One place to multiply. ``own`` is how the model's own constant there already grows.

    ``folds`` are the parameters that carry the multiplier when folded (empty: it cannot be),
    ``hooks`` the tensors to multiply when it is kept explicit (empty: it cannot be).
    """

    where: Where
    label: str
    ratios: Ratios
    own: float = 1.0
    folds: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    parameter: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """A model's forward pass, read three ways."""

    graph: Graph
    usage: Usage
    residuals: Residuals


def hooks_of(placement: Placement) -> tuple[Hook, ...]:
    return tuple(
        sorted(
            (Hook(module=c.name, side="output", index=i) for c, i in placement.calls),
            key=lambda hook: hook.module,
        )
    )


def branch_placements(
    traced: Traced, ratios: Mapping[int, Ratios]
) -> dict[int, tuple[tuple[str, ...], tuple[Hook, ...]]]:
    """For each branch, the parameters and the hooks that can carry its multiplier.

    A parameter can when all its uses are last in branches with the same multiplier.
    """
    graph, usage = traced.graph, traced.usage
    uses = {name: {(name, use.node) for use in found} for name, found in usage.uses.items()}
    candidates = {
        b.index: list(into_parameters(graph, usage, b.output, b.addition, after=b.origin))
        for b in traced.residuals.branches
    }
    chosen: dict[int, Placement] = {}
    for index, placements in candidates.items():
        for placement in placements:
            if all(uses[name] <= placement.uses for name in placement.parameters):
                chosen[index] = placement
                break
    # Layers tied across depth: the same parameters are last in every branch.
    rest = {i: c[0] for i, c in candidates.items() if i not in chosen and c}
    for index, placement in rest.items():
        alike = [p for i, p in rest.items() if ratios[i] == ratios[index]]
        covered = frozenset().union(*(p.uses for p in alike))
        if all(uses[name] <= covered for name in placement.parameters):
            chosen[index] = placement
    explicit = {
        b.index: next(onto_modules(graph, usage, b.output, b.addition, after=b.origin), None)
        for b in traced.residuals.branches
    }
    # A module that runs several times can carry a multiplier if it is the same each time.
    runs: dict[str, int] = {}
    for call in graph.calls:
        runs[call.name] = runs.get(call.name, 0) + 1
    hooked: dict[tuple[str, Ratios], set[int]] = {}
    for index, found in explicit.items():
        for call, _ in found.calls if found is not None else ():
            hooked.setdefault((call.name, ratios[index]), set()).add(call.first)
    result = {}
    for branch in traced.residuals.branches:
        folds = chosen[branch.index].parameters if branch.index in chosen else frozenset()
        found = explicit[branch.index]
        fits = found is not None and all(
            len(hooked[call.name, ratios[branch.index]]) == runs[call.name]
            for call, _ in found.calls
        )
        result[branch.index] = (
            tuple(sorted(folds)),
            hooks_of(found) if found is not None and fits else (),
        )
    return result


def input_hook(traced: Traced, use: Use) -> tuple[Hook, ...]:
    """The module whose first input is, but for its shape, what a matrix is multiplied with."""
    node = use.activation
    seen = set()
    while node is not None:
        seen.add(node)
        this = traced.graph.nodes[node]
        node = this.inputs[0].node if this.op in TRANSPARENT and this.inputs else None
    best: ModuleCall | None = None
    for call in traced.graph.calls:
        holds = call.first <= use.node < call.end
        reads = bool(call.inputs) and call.inputs[0].node in seen
        if holds and reads and (best is None or call.end - call.first < best.end - best.first):
            best = call
    return (Hook(module=best.name, side="input"),) if best is not None else ()


def output_hook(traced: Traced, use: Use) -> tuple[Hook, ...]:
    """The innermost module that returns the result of a use, be it scaled or reshaped."""
    for node in _chain_behind(traced.graph, use.node):
        for call in traced.graph.calls:
            for index, ref in enumerate(call.outputs):
                if ref.node == node and call.first <= use.node < call.end:
                    return (Hook(module=call.name, side="output", index=index),)
    return ()


def _chain_behind(graph: Graph, node: int) -> list[int]:
    """The node, and those behind it as far as constants and shapes alone change."""
    chain = [node]
    while len(graph.consumers[node]) == 1:
        node = graph.consumers[node][0]
        this = graph.nodes[node]
        if own_factor(graph, this) is None and this.op not in TRANSPARENT:
            break
        chain.append(node)
    return chain


def own_scale(traced: Traced, use: Use) -> float:
    """The product of the constants by which the model multiplies around a use.

    Behind a lookup or a readout and before a readout, as far as nothing but shapes changes and
    nothing else reads the tensor: ``embed(x) * sqrt(width)``, ``head(x / width)``.
    """
    graph, scale = traced.graph, 1.0
    for node in _chain_behind(graph, use.node)[1:]:
        scale *= own_factor(graph, graph.nodes[node]) or 1.0
    if use.activation is not None:
        node = use.activation
        while True:
            factor = own_factor(graph, graph.nodes[node])
            if factor is None and graph.nodes[node].op not in TRANSPARENT:
                break
            scale *= factor or 1.0
            node = _scaled(graph, graph.nodes[node])
    return scale


def _scaled(graph: Graph, node: Node) -> int:
    """The operand that is not a number."""
    return next((ref for ref in node.inputs if graph.number(ref) is None), node.inputs[0]).node


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One attention: the module it runs in, its head size, its operands and who reads them.

    ``constant`` is the model's own factor between the product and the softmax.
    """

    module: str
    head: int
    constant: float
    query: int
    key: int
    reader: int
    after: int


def attentions(traced: Traced) -> Iterator[Attention]:
    """Every softmax over products of queries and keys."""
    graph = traced.graph
    inside = {n: b.origin for b in traced.residuals.branches for n in b.path}
    for node in graph.nodes:
        if node.op.startswith(_FUSED):
            query, key = node.args[0].node, node.args[1].node
            head = graph.nodes[query].shape[-1]
            given = node.kwargs.get("scale")
            constant = float(given) if given is not None else head**-0.5
            reader = node.index
        elif node.op in _SOFTMAX:
            found = _product_before(traced, node)
            if found is None:
                continue
            reader, constant = found
            query, key = (ref.node for ref in graph.nodes[reader].inputs[-2:])
            head = graph.nodes[query].shape[-1]
        else:
            continue
        yield Attention(
            module=node.module,
            head=head,
            constant=constant,
            query=query,
            key=key,
            reader=reader,
            after=inside.get(reader, -1),
        )


def logit_scale(traced: Traced, attention: Attention) -> float:
    """The product of all constants in the logits, those on queries and keys included."""
    return attention.constant * math.prod(
        own_constant(traced.graph, traced.usage, operand, attention.reader, after=attention.after)
        for operand in (attention.query, attention.key)
    )


def _product_before(traced: Traced, softmax: Node) -> tuple[int, float] | None:
    """The product of two activations that a softmax normalizes, and the constants between."""
    graph, usage = traced.graph, traced.usage
    ignored = usage.constant | usage.derived.keys()
    scale, node = 1.0, softmax.args[0].node
    while True:
        this = graph.nodes[node]
        if this.op in ("bmm", "baddbmm"):
            factors: list[Any] = list(this.args[-2:] if this.op == "bmm" else this.args[1:3])
            return (node, scale) if not any(f.node in ignored for f in factors) else None
        factor = own_factor(graph, this)
        if factor is not None:
            scale *= factor
        elif this.op not in TRANSPARENT | _AROUND_LOGITS:
            return None
        before = [
            r.node
            for r in this.inputs
            if r.node not in ignored and graph.nodes[r.node].shape == this.shape
        ] or [r.node for r in this.inputs[:1]]
        if not before:
            return None
        node = before[0]


def unread_attentions(traced: Traced) -> Iterator[tuple[str, int]]:
    """Softmaxes behind products of activations whose way there is not understood.

    Gives the module and the size that the product sums over.
    """
    graph = traced.graph
    ignored = traced.usage.constant | traced.usage.derived.keys()
    ends = MATRIX_PRODUCTS.keys() | CONVOLUTIONS | NORMALIZING | {"embedding", *_SOFTMAX}
    for softmax in graph.nodes:
        if softmax.op not in _SOFTMAX or _product_before(traced, softmax) is not None:
            continue
        todo, seen = [softmax.args[0].node], set(ignored)
        while todo:
            node = graph.nodes[todo.pop()]
            if node.index in seen:
                continue
            seen.add(node.index)
            factors = [ref.node for ref in node.inputs[-2:]]
            if node.op in ("bmm", "baddbmm") and not ignored.intersection(factors):
                yield softmax.module, graph.nodes[factors[0]].shape[-1]
                break
            if node.op not in ends and not node.op.startswith(_FUSED):
                todo += [ref.node for ref in node.inputs]


def matrix_use(uses: tuple[Use, ...]) -> Use | None:
    return next((use for use in uses if use.how is How.MATRIX), None)


def lookup_use(uses: tuple[Use, ...]) -> Use | None:
    return next((use for use in uses if use.how is How.LOOKUP), None)
