"""Facts: everything that one forward pass shows about one model, as values.

Reading a model is one phase, comparing two models another: what a number means for scaling only
shows in how it differs between a model and its base, so nothing here knows of a second model.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import nn

from depthmup.tracing.branches import find_branches
from depthmup.tracing.carriers import Carriers, carriers_of, combined
from depthmup.tracing.constants import Constants, find_constants, scaled_behind
from depthmup.tracing.divided import is_divided, sizes_cut
from depthmup.tracing.graph import Graph, Hook, ModuleCall, Node, Ref
from depthmup.tracing.lengths import unit_length
from depthmup.tracing.mixtures import Mixture, find_mixtures
from depthmup.tracing.names import plain_name
from depthmup.tracing.operations import (
    ADDITIONS,
    BATCH_NORMS,
    CONVOLUTIONS,
    CUTS,
    ELEMENTWISE,
    HOMOGENEOUS,
    LENGTHS,
    MAPS,
    MATRIX_PRODUCTS,
    POSITIVE,
    RANDOM,
    RESHAPES,
    SAME,
    SOFTMAX,
    TRANSPARENT,
)
from depthmup.tracing.parameter_uses import How, Usage, Use, find_uses
from depthmup.tracing.parts import summed_apart
from depthmup.tracing.products import Product, find_products
from depthmup.tracing.residuals import ResidualBranch, Residuals
from depthmup.tracing.stages import with_stages
from depthmup.tracing.telescope import telescoped
from depthmup.tracing.trace import ExampleInputs, trace


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One model's dataflow, read once.

    ``uses`` (of ``usage``) are those of every parameter, with its place among matrices and branches
    and the tensor of a module that a hook can multiply instead. ``residuals`` are the branches and
    streams, ``carriers`` where the multiplier of each branch can go, ``products`` those of two
    activations (queries and keys among them). ``constants`` are the model's own numbers and what
    they stand beside. ``tied`` says what can multiply the input of a readout that is also an
    embedding, and so cannot carry a multiplier itself. ``runs`` counts the calls of each module.
    ``around`` names, for each branch, the module that takes in the stream and returns it with that
    branch added ("" if there is none).
    ``mixtures`` are the mixtures of experts. ``readers`` are the innermost modules whose calls read
    a parameter, each time that it is read, of parameters that have one name.
    """

    graph: Graph = field(repr=False)
    usage: Usage = field(repr=False)
    residuals: Residuals
    carriers: tuple[Carriers, ...] = field(repr=False)
    products: tuple[Product, ...]
    tied: Mapping[str, Carriers] = field(repr=False)
    constants: Constants = field(repr=False)
    around: tuple[str, ...] = field(repr=False)
    mixtures: tuple[Mixture, ...] = ()
    readers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def uses(self) -> Mapping[str, tuple[Use, ...]]:
        """Those of every parameter, with its place among matrices and branches."""
        return self.usage.uses

    @cached_property
    def runs(self) -> Mapping[str, int]:
        """How often each module is called."""
        return Counter(call.name for call in self.graph.calls)

    @cached_property
    def users(self) -> Mapping[str, Sequence[tuple[int, bool]]]:
        """The branches that use each parameter, and whether it only feeds one from the side."""
        users = {
            name: list(dict.fromkeys(pair for use in uses for pair in use.branches))
            for name, uses in self.uses.items()
        }
        return {name: pairs for name, pairs in users.items() if pairs}

    @property
    def added(self) -> frozenset[tuple[str, int]]:
        """Modules and which of their outputs residual additions add to a stream."""
        graph = self.graph
        return frozenset(
            (call.name, which)
            for branch in self.residuals.branches
            for node in graph.back(branch.output, TRANSPARENT)
            for call, which in graph.returned.get(Ref(node=node.index, output=0), ())
        )

    def innermost(self, name: str) -> int:
        """The branch that says how deep a parameter lies; of several on one level the first."""
        level = self.residuals.level
        return max((b for b, _ in self.users[name]), key=lambda branch: (level(branch), -branch))

    def times(self, name: str, level: int) -> int:
        """How many branches of one level use a parameter."""
        return len({b for b, _ in self.users.get(name, ()) if self.residuals.level(b) == level})

    def on_parameters(self, names: Iterable[str]) -> tuple[Hook, ...]:
        """Hooks that multiply parameters in the eyes of what reads them; empty if one cannot be."""
        hooks = []
        for name in names:
            if (module := self.readers.get(name)) is None:
                return ()
            own = name.removeprefix(f"{module}.") if module else name
            hooks.append(Hook(module=module, side="parameter", parameter=own))
        return tuple(hooks)

    @property
    def positive_branches(self) -> tuple[str, ...]:
        """Branches that end in a nonlinearity of positive mean, by label."""
        graph = self.graph
        return tuple(
            b.label
            for b in self.residuals.branches
            if graph.nodes[graph.origin(b.output)].op in POSITIVE
        )

    @property
    def noisy(self) -> tuple[str, ...]:
        """The matrices that multiply noise, entry by entry, before they act."""
        derived, constant = self.usage.derived, self.usage.constant
        names = {
            derived[node.index]
            for node in self.graph.nodes
            if node.op == "mul" and node.index in derived
            for ref in node.inputs
            if ref.node in constant
            and any(self.graph.nodes[n].op in RANDOM for n in self.graph.upstream([ref.node]))
        }
        return tuple(
            name for name in self.uses
            if name in names and any(use.how is How.MATRIX for use in self.uses[name])
        )  # fmt: skip

    def summed(self, names: Collection[str]) -> tuple[str, ...]:
        """Those matrices of layers whose outputs are added up, each to what another of them gave.

        The skips of a WaveNet: what each layer reads is no part of that sum.
        """
        graph, weights = self.graph, self.usage.weights
        at = {u.node: n for n in names for u in self.uses[n] if u.how is How.MATRIX and u.traced}

        def passes(node: Node, held: Container[int]) -> bool:
            others = [r.node for r in node.inputs if r.node not in held]
            bias = node.op in ADDITIONS and all(n in weights for n in others)
            return bias or node.op in TRANSPARENT | MAPS or node.index in graph.factors

        found: dict[str, None] = {}
        for start, name in at.items():
            held = {start, *(node.index for node in graph.forward(start, passes))}
            for index in {n for h in held for n in graph.consumers[h]} - held:
                node = graph.nodes[index]
                others = [r.node for r in node.inputs if r.node not in held]
                if node.op not in ADDITIONS or len(others) != 1:
                    continue
                made = graph.upstream(others)
                summed = [at[n] for n in at if n in made]
                if start not in made and summed and not graph.descends(start, others[0]):
                    found |= dict.fromkeys([name, *summed])
        return tuple(name for name in names if name in found)

    def multiplied(self, names: Collection[str]) -> frozenset[str]:
        """Those matrices whose outputs are multiplied with each other's, but for logits.

        Gates without a bend at zero, bilinear forms, outer products: where both are small, their
        product is small twice.
        """
        graph, weights = self.graph, self.usage.weights
        logits = {product.node for product in self.attentions}
        of: dict[int, str] = {}

        def passes(node: Node, held: Container[int]) -> bool:
            others = [r.node for r in node.inputs if r.node not in held]
            bias = node.op in ADDITIONS and all(n in weights for n in others)
            return bias or node.op in _VANISHING or node.index in graph.factors

        for name in names:
            for start in (u.node for u in self.uses[name] if u.how is How.MATRIX and u.traced):
                held = [start, *(node.index for node in graph.forward(start, passes))]
                of |= dict.fromkeys(held, name)
        found = set[str]()
        for node in graph.nodes:
            product = node.op == "mul" or node.op in MATRIX_PRODUCTS
            if product and node.index not in logits and len(node.inputs) == 2:
                both = [of.get(ref.node) for ref in node.inputs]
                found |= {name for name in both if name is not None} if all(both) else set()
        return frozenset(found)

    @property
    def undone(self) -> frozenset[str]:
        """The biases that batch norms alone read, and take away: their gradient is zero."""
        return self._before_batch_norms(_taken_away)

    @property
    def centered(self) -> frozenset[str]:
        """The matrices that batch norms alone read: what inputs have in common is taken away."""
        return self._before_batch_norms(_centered)

    def _before_batch_norms(self, read: Callable[[Graph, Usage, Use], bool]) -> frozenset[str]:
        return frozenset(
            name
            for name, uses in self.uses.items()
            if uses and all(read(self.graph, self.usage, use) for use in uses)
        )

    @property
    def attentions(self) -> tuple[Product, ...]:
        """The products that a softmax normalizes."""
        return tuple(product for product in self.products if product.softmax)


_VANISHING = (
    TRANSPARENT
    | CUTS
    | {"neg", "sin", "abs", "tanh", "relu", "silu", "gelu", "mish", "elu", "leaky_relu"}
)
"""What gives zero for zero, and about as little for little."""


def read(
    model: nn.Module, inputs: ExampleInputs, numbers: Mapping[str, float] | None = None
) -> Facts:
    """Follow one forward pass of ``model`` on ``inputs`` and say what it shows."""
    graph = trace(model, inputs, numbers)
    usage = find_uses(graph)
    residuals = with_stages(graph, usage, find_branches(graph, usage))
    placed = _placed(graph, usage, residuals)
    products = tuple(find_products(graph, usage, residuals))
    residuals, constants = telescoped(
        graph, residuals, find_constants(graph, usage, residuals, products)
    )
    return Facts(
        graph=graph,
        usage=placed,
        residuals=residuals,
        tied=_tied(graph, placed),
        carriers=tuple(
            carriers_of(
                graph,
                usage,
                graph.nodes[b.addition].reads(b.output),
                b.addition,
                after=b.origin,
                beside=_of_the_step(graph, residuals, b),
            )
            for b in residuals.branches
        ),
        products=products,
        constants=constants,
        around=tuple(_around(graph, branch) for branch in residuals.branches),
        mixtures=find_mixtures(graph, placed),
        readers=_readers(model, graph, placed),
    )


def _readers(model: nn.Module, graph: Graph, usage: Usage) -> dict[str, str]:
    """The innermost module around each parameter whose calls make all uses of it."""
    names = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    tied = {plain_name(name) for name, p in model.named_parameters() if names[id(p)] > 1}
    spans: dict[str, list[range]] = {}
    for call in graph.calls:
        spans.setdefault(call.name, []).append(range(call.first, call.end))
    readers: dict[str, str] = {}
    for name, uses in usage.uses.items():
        if name in tied:
            continue
        path = name.split(".")[:-1]
        for module in (".".join(path[:length]) for length in range(len(path), -1, -1)):
            calls = spans.get(module, ())
            if all(any(use.node in call for call in calls) for use in uses):
                readers[name] = module
                break
    return readers


def _taken_away(graph: Graph, usage: Usage, use: Use) -> bool:
    """Whether what a bias adds to a channel reaches nothing but batch norms."""
    node, bias = graph.nodes[use.node], Ref(graph.parameters.get(use.parameter, -1))
    adds = node.op in MATRIX_PRODUCTS.keys() | CONVOLUTIONS | {"add"}
    of_norm = node.op in BATCH_NORMS and node.args[2] == bias
    if use.how is not How.ELEMENTWISE or not (adds or of_norm):
        return False
    return _into_batch_norms(graph, usage, use.node)


def _centered(graph: Graph, usage: Usage, use: Use) -> bool:
    return use.how is How.MATRIX and _into_batch_norms(graph, usage, use.node)


def _into_batch_norms(graph: Graph, usage: Usage, start: int) -> bool:
    """Whether batch norms alone read a tensor, or what is linear in it and the same everywhere."""

    def mixes_channels(this: Node, held: Container[int]) -> bool:
        if this.op in CONVOLUTIONS:
            padding, transposed = this.args[4], this.args[6]
            return not any(padding) and not transposed and this.inputs[0].node in held
        at = MATRIX_PRODUCTS.get(this.op)
        return at is not None and this.args[at].node in held and this.args[at + 1].node in weights

    def passes(this: Node, held: Container[int]) -> bool:
        alike = this.op in SAME | {"add", "sub", "native_dropout"} or this.index in graph.factors
        return alike or mixes_channels(this, held)

    weights = usage.weights
    shifted = {start, *(this.index for this in graph.forward(start, passes))}
    readers = {reader for index in shifted for reader in graph.consumers[index]} - shifted
    return not shifted & {ref.node for ref in graph.outputs} and all(
        graph.nodes[reader].op in BATCH_NORMS for reader in readers
    )


def _around(graph: Graph, branch: ResidualBranch) -> str:
    """The module that returns x + f(x) of its first input x, which it leaves as it was.

    There A f can be had from outside, as x + A (output - x).
    """
    stream, result = Ref(branch.stream), (Ref(branch.addition),)
    for call, _ in graph.returned.get(result[0], ()):
        adds = call.inputs[:1] == (stream,) and call.outputs == result and branch.scale == 1
        if not adds or not call.name:
            continue
        inside = (n for n in graph.overwriting if call.first <= n < call.end)
        if not any(stream in graph.nodes[n].inputs for n in inside):
            return call.name
    return ""


def _tied(graph: Graph, usage: Usage) -> dict[str, Carriers]:
    """For weights that read the input, or are looked up, and give the output: what carries a
    multiplier of the product."""
    tied = {}
    for name, uses in usage.uses.items():
        looked_up = any(use.how is How.LOOKUP for use in uses)
        products = [
            (graph.nodes[use.node], use.activation)
            for use in uses
            if use.how is How.MATRIX and use.activation is not None and (looked_up or not use.leads)
        ]
        if len(products) == 1 and len(uses) > 1:
            [(node, activation)] = products
            tied[name] = carriers_of(graph, usage, node.reads(activation), node.index)
    return tied


def _of_the_step(graph: Graph, residuals: Residuals, branch: ResidualBranch) -> frozenset[int]:
    """What the other evaluations of a step read of this one: their sums, and what is added."""
    others = [residuals.branches[i] for i in branch.evaluations]
    read = (node for other in others for node in combined(graph, other.output))
    return frozenset(read) | {other.addition for other in others}


_SQUASHING = SOFTMAX | {"exp", "sigmoid"}


def _placed(graph: Graph, usage: Usage, residuals: Residuals) -> Usage:
    """Every use with where it stands, in one pass over the graph each way."""
    products, matrices = usage.nodes(How.MATRIX), usage.nodes(How.MATRIX, How.LOOKUP)
    additions = {b.addition for b in residuals.branches}
    leading = graph.upstream(ref.node for n in products for ref in graph.nodes[n].inputs)
    by_hand = (n for node in graph.nodes for n in _divided_by_length(graph, node))
    norms = (node for node in graph.nodes if node.op in LENGTHS)
    measured = [*by_hand, *(ref.node for node in norms for ref in node.inputs)]

    def alone(node: Node) -> set[int]:
        """What a tensor was made from, if from one other alone and by no matrix, or as their sum.

        Whatever divides shares, exponentials or gates by their size leaves that of their logits.
        """
        if node.op in _SQUASHING:
            return set()
        made_from = {ref.node for ref in node.inputs} - usage.weights
        summed = node.op == "add" and {*map(graph.origin, made_from)} <= products
        one = len(made_from) == 1 and node.index not in products
        return made_from if one or summed else set()

    normalized = {node.index for node in graph.back(measured, alone)}
    following, behind_additions = graph.downstream(matrices), graph.downstream(additions)
    inside: dict[int, list[tuple[int, bool]]] = {}
    for branch in residuals.branches:
        for nodes, feeds in ((branch.path, False), (branch.feeders, True)):
            for index in nodes & usage.at.keys():
                inside.setdefault(index, []).append((branch.index, feeds))
    taking, cuts = _taking(graph), sizes_cut(graph)

    def hooks(use: Use) -> tuple[Hook, ...]:
        if use.joined is not None:
            return ()  # what goes into a composed weight goes into all of its terms
        if use.how is How.MATRIX:
            # Of a matrix that begins with something else as well: what it gives may do.
            return _input_hook(graph, use, taking) or _output_hook(graph, use)
        return _output_hook(graph, use) if use.how is How.LOOKUP else ()

    within, pieces = leading | normalized, dict[tuple[int, bool], tuple[int, ...]]()

    def placed(use: Use) -> Use:
        if use.how is How.MATRIX and summed_apart(graph, use):
            use = replace(use, fan_in=tuple(sorted({*use.batch, *use.fan_in})), batch=())
        return replace(
            use,
            op=graph.nodes[use.node].op,
            leads=use.leads or use.node in leading,
            normalized=use.node in normalized,
            follows=use.activation is None or use.activation in following,
            reads_stream=use.node in behind_additions,
            branches=tuple(inside.get(use.node, ())),
            pieces=_pieces(graph, usage, use, pieces) if use.how is How.MATRIX else (),
            grouped=_is_grouped(graph, usage, use),
            divided=use.node in inside and is_divided(graph, residuals, use, cuts),
            cosine=_cosine(graph, use, within),
            hooks=hooks(use),
        )

    return replace(
        usage, uses={name: tuple(map(placed, uses)) for name, uses in usage.uses.items()}
    )


def _cosine(graph: Graph, use: Use, inside: Container[int]) -> tuple[int, ...]:
    """The axes along which a parameter is divided by its length, if its cosines are the output.

    Of those with activations, inside nothing else: no matrix follows, and no norm.
    """
    unit = unit_length(graph, graph.nodes[use.node]) if use.how is How.UNKNOWN else None
    if unit is None or unit.of.node != graph.parameters[use.parameter]:
        return ()
    moved = [
        use.node,
        *(n.index for n in graph.forward(use.node, lambda n, _: n.op in TRANSPARENT)),
    ]
    readers = {n for index in moved for n in graph.consumers[index]} - {*moved}
    for product in map(graph.nodes.__getitem__, readers):
        others = [graph.origin(ref.node) for ref in product.inputs if ref.node not in moved]
        alone = product.op in MATRIX_PRODUCTS and len(others) == 1 and product.index not in inside
        if not alone or unit_length(graph, graph.nodes[others[0]]) is None:
            return ()
    return unit.dims


def _is_grouped(graph: Graph, usage: Usage, use: Use) -> bool:
    """Whether a matrix is repeated over groups of coordinates that a view has set apart."""
    if use.how is not How.MATRIX or not use.batch or use.activation is None:
        return False
    shape = use.shape(graph)
    groups = math.prod(shape[axis] for axis in use.batch)
    size = math.prod(shape[axis] for axis in use.fan_in)
    node = use.activation
    while True:
        this = graph.nodes[node]
        sources = [ref for ref in this.inputs if ref.node not in usage.weights]
        if any(_gives(graph, other, groups, size) for other in usage.at.get(node, ())):
            return True
        if this.op not in TRANSPARENT or len(sources) != 1:
            return False
        before = graph.shape(sources[0])
        if this.op == "expand" and math.prod(before) != math.prod(this.shape):
            return False  # every matrix reads the same
        if this.op in RESHAPES and before[-1:] == (groups * size,) and groups in this.shape:
            return True
        node = sources[0].node


def _gives(graph: Graph, use: Use, groups: int, size: int) -> bool:
    """Whether a matrix for each of ``size`` groups gives one coordinate to each of ``groups``."""
    shape = use.shape(graph)
    of = (math.prod(shape[axis] for axis in axes) for axes in (use.fan_out, use.batch))
    return use.how is How.MATRIX and (*of,) == (groups, size)


# Entry by entry: each coordinate stays where it is.
_IN_PLACE = SAME | RESHAPES | MAPS | ELEMENTWISE | LENGTHS | {"native_dropout"}


def _pieces(
    graph: Graph, usage: Usage, use: Use, known: dict[tuple[int, bool], tuple[int, ...]]
) -> tuple[int, ...]:
    """The sizes of the tensors whose coordinates, side by side, a matrix sums over.

    ``known`` are the answers at nodes of which a matrix or a convolution asked before: a stream is
    followed to its beginning once, and not from every layer.
    """
    convolves = graph.nodes[use.node].op in CONVOLUTIONS

    def axis(node: Node) -> int:
        return 1 if convolves else len(node.shape) - 1

    def before(node: Node) -> Iterator[int]:
        sources = [ref for ref in node.inputs if ref.node not in usage.weights]
        if node.op not in _IN_PLACE or not sources:
            return
        shape = graph.shape(sources[0])
        if len(shape) > axis(node) and shape[1 if convolves else -1] == node.shape[axis(node)]:
            yield sources[0].node

    passed: list[tuple[int, bool]] = []
    found: tuple[int, ...] = ()
    for node in graph.back(() if use.activation is None else use.activation, before):
        place = node.index, convolves
        if place in known:
            found = known[place]
            break
        passed.append(place)
        if node.op == "cat":
            dim = (node.args[1] if len(node.args) > 1 else 0) % len(node.shape)
            if dim == axis(node):
                found = tuple(graph.shape(ref)[dim] for ref in node.inputs)
            break
    known.update(dict.fromkeys(passed, found))
    return found


def _divided_by_length(graph: Graph, node: Node) -> tuple[int, ...]:
    """The tensor that an operation divides by a length of its own, written out, if it does.

    x / x.abs().sum(), x / (x * x).sum().sqrt(). Exponentials over their sum are no such thing: the
    size of what they are taken of matters.
    """
    tensors = [argument.node for argument in node.args[:2] if isinstance(argument, Ref)]
    if node.op != "div" or len(tensors) != 2:
        return ()
    whole = _with_its_mean(graph, graph.origin(tensors[0]))
    if graph.nodes[whole].op in MAPS - HOMOGENEOUS:
        return ()
    way = graph.between(whole, tensors[1])
    reduced = any(graph.nodes[n].op in ("sum", "mean", "amax") for n in way)
    bent = any(graph.nodes[n].op == "exp" for n in way)
    return (whole,) if reduced and not bent else ()


def _with_its_mean(graph: Graph, node: int) -> int:
    """What a tensor was before its own mean was taken from it, as norms by hand do."""
    this = graph.nodes[node]
    if this.op == "sub" and len(this.inputs) == 2:
        mean = graph.nodes[graph.origin(this.inputs[1].node)]
        if mean.op == "mean" and mean.inputs == this.inputs[:1]:
            return this.inputs[0].node
    return node


def _taking(graph: Graph) -> Mapping[int, list[ModuleCall]]:
    """Module calls by the node that is their first input."""
    taking: dict[int, list[ModuleCall]] = {}
    for call in graph.calls:
        if call.inputs:
            taking.setdefault(call.inputs[0].node, []).append(call)
    return taking


def _input_hook(graph: Graph, use: Use, taking: Mapping[int, list[ModuleCall]]) -> tuple[Hook, ...]:
    """The module whose first input is, but for its shape, what a matrix is multiplied with."""
    read = () if use.activation is None else (use.activation,)
    holding = [
        call
        for node in graph.back(read, TRANSPARENT)
        for call in taking.get(node.index, ())
        if call.first <= use.node < call.end
    ]
    innermost = min(holding, key=lambda call: call.end - call.first, default=None)
    return () if innermost is None else (Hook(module=innermost.name, side="input"),)


def _output_hook(graph: Graph, use: Use) -> tuple[Hook, ...]:
    """The innermost module that returns the result of a use, be it scaled or reshaped."""
    for node in scaled_behind(graph, use.node):
        for call, index in graph.returned.get(Ref(node), ()):
            if call.first <= use.node < call.end:
                return (Hook(module=call.name, side="output", index=index),)
    return ()
