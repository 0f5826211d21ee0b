"""Probes: hooks that look at a network's forward pass and keep numbers, not activations.

Of an activation that must be compared with itself some steps later, a fixed sample of at most
``SAMPLE`` entries is kept: the root mean square of their change has a relative error of
1/sqrt(2 * SAMPLE). What an update does to a module's output is computed while the module runs, by
running it on the update alone, so it needs a copy of the initial weights and no activation.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from depthmup.diagnostics.sharding import look, whole
from depthmup.planning import Plan, Prescription
from depthmup.planning.anatomy import read
from depthmup.planning.folding import into_parameters, onto_modules
from depthmup.planning.graph import Branch
from depthmup.planning.hooks import named_modules
from depthmup.planning.names import parameters, unwrapped
from depthmup.planning.sites import Attention, Traced, attentions, hooks_of
from depthmup.planning.trace import ExampleInputs
from depthmup.rules import Kind, Observable, Role

SAMPLE = 4096
FRACTIONS = (0.5, 1.0)
# A module is taken to be linear in its parameters if the parts add up to the whole this well.
_LINEAR = 1e-2
_AT_THE_END = (Observable.READOUT, Observable.READOUT_UPDATE)


def layer_pattern(name: str) -> str:
    """``name`` with the number of its layer replaced by ``*``; other numbers tell parts apart.

    Example:
        >>> layer_pattern("layers.3.mlp.0.weight"), layer_pattern("stages.0.1.up")
        ('layers.*.mlp.0.weight', 'stages.*.*.up')
    """
    return re.sub(
        r"(?<![^.])\d+(?:\.\d+)*(?![^.])",
        lambda found: re.sub(r"\d+", "*", found.group()),
        name,
        count=1,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One observable of one kind of module; ``module`` is a pattern of names."""

    observable: Observable
    module: str

    def __str__(self) -> str:
        return f"{self.module}: {self.observable}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A tensor of a module's call, times a constant, and the observable that it shows."""

    key: Key
    module: str
    side: str
    index: int
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Points:
    """Where to look in one model.

    ``heads`` are the sizes of attention heads; ``queries_and_keys`` the patterns of parameters that
    make queries and keys, ``keys_biases`` of those that only shift all logits of a query alike.
    """

    points: tuple[Point, ...]
    attention: tuple[str, ...]
    heads: tuple[int, ...]
    branches: int
    hidden_from_view: tuple[str, ...] = ()
    queries_and_keys: frozenset[str] = frozenset()
    keys_biases: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class Observation:
    """Root mean squares, and samples of what has to be compared later."""

    values: dict[Key, float] = field(default_factory=dict)
    samples: dict[tuple[Key, int], Tensor] = field(default_factory=dict)
    roles: dict[Key, Role] = field(default_factory=dict)


def locate(model: nn.Module, inputs: ExampleInputs) -> Points:
    """Find in the dataflow which modules' inputs and outputs are the stream and the branches.

    Branches and points of the stream that no module takes in or gives out cannot be hooked; they
    are named in ``hidden_from_view``.

    Example:
        >>> from depthmup.models import ResidualMLP
        >>> net = ResidualMLP(inputs=4, width=8, depth=4, outputs=2, multiplier=0.5)
        >>> points = locate(net, torch.zeros(2, 4))
        >>> points.branches, sorted({str(p.key.observable) for p in points.points})
        (4, ['branch output', 'stream'])
    """
    traced = read(unwrapped(model), inputs)
    branches = [b for b in traced.residuals.branches if not b.parents]
    hidden: list[str] = []
    points: list[Point] = []
    for branch in branches:
        found = _branch_point(traced, branch)
        if found is None:
            hidden.append(layer_pattern(branch.label))
        else:
            points.append(found)
    main = max(traced.residuals.streams, key=lambda s: s.depth, default=None)
    depth = main.depth if main is not None else 0
    if main is not None:
        additions = [traced.residuals.branches[i].addition for i in main.branches]
        for fraction in FRACTIONS:
            label = f"stream at {fraction:g} of depth"
            place = _stream_point(traced, additions, fraction, label)
            if place is None:
                hidden.append(label)
            else:
                points.append(place)
    seen = list(attentions(traced))
    queries, keys = _makers(traced, seen, "query"), _makers(traced, seen, "key")
    vectors = {n for n, p in parameters(unwrapped(model)).items() if p.ndim == 1}
    return Points(
        points=tuple(points),
        attention=tuple(a.module for a in seen),
        heads=tuple(a.head for a in seen),
        branches=depth,
        hidden_from_view=tuple(dict.fromkeys(hidden)),
        queries_and_keys=frozenset(map(layer_pattern, queries | keys)),
        keys_biases=frozenset(map(layer_pattern, (keys - queries) & vectors)),
    )


def _makers(traced: Traced, seen: list[Attention], operand: str) -> set[str]:
    """The parameters that make the queries, or the keys, and nothing else."""
    found: set[str] = set()
    for attention in seen:
        placement = next(
            into_parameters(
                traced.graph,
                traced.usage,
                getattr(attention, operand),
                attention.reader,
                after=attention.after,
            ),
            None,
        )
        found |= placement.parameters if placement is not None else set()
    return found


def _branch_point(traced: Traced, branch: Branch) -> Point | None:
    graph, usage = traced.graph, traced.usage
    found = next(
        onto_modules(graph, usage, branch.output, branch.addition, after=branch.origin), None
    )
    if found is None or len(found.calls) != 1:
        return None
    hook = hooks_of(found)[0]
    key = Key(observable=Observable.BRANCH, module=layer_pattern(hook.module))
    return Point(key=key, module=hook.module, side="output", index=hook.index, scale=found.scale)


def _stream_point(
    traced: Traced, additions: list[int], fraction: float, label: str
) -> Point | None:
    """The module that takes in, or gives out, the stream there or (if none does) just before."""
    last = max(round(fraction * len(additions)), 1)
    key = Key(observable=Observable.STREAM, module=label)
    for addition in reversed(additions[max(last - 2, 0) : last]):
        for call in traced.graph.calls:
            if not call.name:
                continue
            for index, ref in enumerate(call.inputs):
                if ref.node == addition:
                    return Point(key=key, module=call.name, side="input", index=index)
            for index, ref in enumerate(call.outputs):
                if ref.node == addition:
                    return Point(key=key, module=call.name, side="output", index=index)
    return None


def observe(
    model: nn.Module,
    inputs: Any,
    points: Points,
    plan: Plan,
    *,
    applied: bool = True,
    initial: Observation | None = None,
    weights: Mapping[str, Tensor] | None = None,
    paths: Mapping[str, float] | None = None,
) -> Observation:
    """Look at one forward pass, without gradients and in evaluation mode.

    Without ``initial``: the network as it starts. With ``initial`` and the initial ``weights``
    (by name): what has changed since. ``paths`` are the lengths of the paths of gains and biases,
    sums over steps of the root mean square of each step (``Paths``): the few numbers of a bias
    turn back so often that their net change says little.
    """
    inner = unwrapped(model)
    modules = named_modules(inner)
    seen = _Seen(initial=initial)
    prescriptions = {name: p for p in plan.prescriptions for name in p.names}
    named = {id(p): name for name, p in parameters(inner).items()}
    training = [m for m in inner.modules() if m.training]
    with ExitStack() as stack:
        inner.eval()
        for module in training:
            stack.callback(setattr, module, "training", True)
        for point in points.points:
            seen.attach(stack, modules[point.module], point)
        for name, module in modules.items():
            owned = dict(module.named_parameters(recurse=False))
            if owned and not any(True for _ in module.children()):
                owned_names = {key: named[id(p)] for key, p in owned.items()}
                effects = _Effects(
                    name=name,
                    names=owned_names,
                    prescriptions=prescriptions,
                    applied=applied,
                    weights=weights,
                    paths=paths or {},
                    seen=seen,
                )
                handle = module.register_forward_hook(effects, with_kwargs=True, prepend=True)
                stack.callback(handle.remove)
        if points.attention and initial is None:
            stack.enter_context(_attention_logits(modules, points, seen))
        logits = logits_of(look(inner, inputs))
    seen.logits = _mean_square(logits)
    seen.tensor(Key(observable=Observable.LOGITS, module="output"), logits)
    if initial is not None and weights is not None:
        _compare_weights(seen, inner, weights, prescriptions)
    return seen.finish()


def logits_of(output: Any) -> Tensor:
    """The tensor that a model returns, or its ``logits``, or the first tensor of a structure."""
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if isinstance(found, Tensor):
        return found
    for leaf in tree_flatten(output)[0]:
        if isinstance(leaf, Tensor):
            return leaf
    raise ValueError(
        f"Expected the model to return a tensor, or something that holds one; got {type(output)}."
    )


class Paths:
    """The lengths of the paths that gains and biases take, by name; one ``step`` per step."""

    def __init__(self, model: nn.Module) -> None:
        self._followed = {
            name: p for name, p in parameters(model).items() if p.ndim == 1 and p.requires_grad
        }
        self._last = {name: p.detach().clone() for name, p in self._followed.items()}
        self.lengths = dict.fromkeys(self._followed, 0.0)

    def step(self) -> None:
        for name, p in self._followed.items():
            self.lengths[name] += math.sqrt(_mean_square(whole(p.detach() - self._last[name])))
            self._last[name].copy_(p.detach())


class _Seen:
    """Collects squares by key; entries only where a change will be asked for."""

    def __init__(self, *, initial: Observation | None) -> None:
        self.initial = initial
        self.squares: dict[Key, list[float]] = {}
        self.samples: dict[tuple[Key, int], Tensor] = {}
        self.roles: dict[Key, Role] = {}
        self.ratios: dict[Key, list[tuple[float, float]]] = {}
        self.readouts: list[float] = []  # mean squares of what readouts give
        self.logits = 0.0

    def attach(self, stack: ExitStack, module: nn.Module, point: Point) -> None:
        def see(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            tree = (args, kwargs) if point.side == "input" else output
            tensors = [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]
            self.tensor(point.key, tensors[point.index] * point.scale)

        stack.callback(module.register_forward_hook(see, with_kwargs=True).remove)

    def tensor(self, key: Key, value: Tensor) -> None:
        entries = _sample(value)
        taken = self.squares.setdefault(key, [])
        if self.initial is None:
            taken.append(_mean_square(value))
            self.samples[key, len(taken) - 1] = entries
        else:
            taken.append(_mean_square(entries - self.initial.samples[key, len(taken)]))

    def ratio(self, key: Key, part: float, of: float, role: Role) -> None:
        self.ratios.setdefault(key, []).append((part, of))
        self.roles[key] = role

    def finish(self) -> Observation:
        changed = {
            Observable.STREAM: Observable.STREAM_CHANGE,
            Observable.BRANCH: Observable.BRANCH_CHANGE,
            Observable.LOGITS: Observable.LOGITS_CHANGE,
        }
        values = {}
        for key, squares in self.squares.items():
            if self.initial is not None:
                key = Key(observable=changed[key.observable], module=key.module)
            values[key] = math.sqrt(sum(squares) / len(squares))
        for key, pairs in self.ratios.items():
            total = sum(of for _, of in pairs)
            values[key] = math.sqrt(sum(p for p, _ in pairs) / total) if total else math.nan
            if key.observable in _AT_THE_END and len(self.readouts) == 1 and self.readouts[0]:
                # A factor on the logits, if the model's own code or a hook has one.
                values[key] *= math.sqrt(self.logits / self.readouts[0])
        return Observation(values=values, samples=self.samples, roles=self.roles)


@dataclass(frozen=True, kw_only=True)
class _Effects:
    """Forward hook: what the initial weights, and their updates, make of a module's input."""

    name: str
    names: Mapping[str, str]
    prescriptions: Mapping[str, Prescription]
    applied: bool
    weights: Mapping[str, Tensor] | None
    paths: Mapping[str, float]
    seen: _Seen

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        now = {key: getattr(module, key).detach() for key in self.names}
        before = now
        if self.weights is not None:
            before = {
                key: whole(self.weights[name]).to(now[key]) for key, name in self.names.items()
            }
        base = self._run(module, args, kwargs, before)
        if not isinstance(base, Tensor):
            return
        size = _mean_square(base)
        pattern = layer_pattern(self.name)
        if self.weights is None:
            self._start(module, args, pattern, base)
            return
        parts = {}
        for key, p in now.items():
            zeros = {k: torch.zeros_like(v) for k, v in before.items()}
            zeros[key] = p - before[key]
            parts[key] = self._run(module, args, kwargs, zeros)
        after = self._run(module, args, kwargs, now)
        error = _mean_square(after - base - sum(parts.values()))
        if error > _LINEAR**2 * (_mean_square(after - base) + 1e-12 * size):
            return  # not linear in its parameters: judged by its weights alone
        for key, part in parts.items():
            role = self.prescriptions[self.names[key]].role
            if isinstance(module, nn.Embedding) and role.kind is Kind.READOUT:
                role = Role(kind=Kind.INPUT)  # the other end of a tied readout
            label = f"{pattern}.{key}" if pattern else key
            effect = self.paths.get(self.names[key], math.sqrt(_mean_square(part))) ** 2
            if role.kind is Kind.READOUT:
                self.seen.readouts.append(_mean_square(after))
                self.seen.ratio(
                    Key(observable=Observable.READOUT_UPDATE, module=label), effect, 1.0, role
                )
            elif size > 0:
                self.seen.ratio(Key(observable=Observable.UPDATE, module=label), effect, size, role)

    def _start(self, module: nn.Module, args: Any, pattern: str, base: Tensor) -> None:
        """What a fresh matrix makes of its input."""
        here = [self.prescriptions[name] for name in self.names.values()]
        matrices = [p for p in here if p.role.kind in (Kind.HIDDEN, Kind.READOUT)]
        if len(matrices) != 1 or isinstance(module, nn.Embedding):
            return
        matrix = matrices[0]
        if matrix.role.kind is Kind.READOUT:
            self.seen.readouts.append(_mean_square(base))
            x = args[0] if args and isinstance(args[0], Tensor) else None
            if x is not None and x.is_floating_point() and len(matrix.shape) == 2:
                # The few outputs on the few inputs of a batch scatter; on random inputs of the
                # same size there are as many as one likes.
                generator = torch.Generator().manual_seed(0)
                random = torch.randn(1024, x.shape[-1], generator=generator).to(x)
                base = module.forward(random * math.sqrt(_mean_square(x)))
            key = Key(observable=Observable.READOUT, module=pattern)
            self.seen.ratio(key, _mean_square(base), 1.0, matrix.role)
        elif matrix.role.in_branch and not matrix.role.last:
            folded = matrix.folded if self.applied else 1.0
            key = Key(observable=Observable.PREACTIVATION, module=pattern)
            self.seen.ratio(key, _mean_square(base), folded**2, matrix.role)

    def _run(self, module: nn.Module, args: Any, kwargs: Any, values: Mapping[str, Tensor]) -> Any:
        """The module's own forward, without hooks, with other parameters."""
        owned = {key: getattr(module, key) for key in self.names}
        kept = {key: p.data for key, p in owned.items()}
        try:
            for key, p in owned.items():
                p.data = values[key]
            return module.forward(*args, **kwargs)
        finally:
            for key, p in owned.items():
                p.data = kept[key]


@contextmanager
def _attention_logits(
    modules: Mapping[str, nn.Module], points: Points, seen: _Seen
) -> Iterator[None]:
    """Show the scaled products of queries and keys, whichever function computes them."""
    running: list[str] = []
    wanted = set(points.attention)
    names = {id(modules[name]): name for name in wanted if name in modules}
    handles = []
    for name in names.values():

        def enter(module: nn.Module, args: Any, name: str = name) -> None:
            running.append(name)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            running.pop()

        handles.append(modules[name].register_forward_pre_hook(enter))
        handles.append(modules[name].register_forward_hook(leave))

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if running:
                logits = _logits(func, args, kwargs)
                if logits is not None:
                    key = Key(
                        observable=Observable.ATTENTION_LOGITS, module=layer_pattern(running[-1])
                    )
                    seen.squares.setdefault(key, []).append(_mean_square(logits))
            return func(*args, **kwargs)

    try:
        with Watch():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _logits(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Tensor | None:
    name = getattr(func, "__name__", "")
    if name == "scaled_dot_product_attention":
        query, key = (*args, kwargs.get("query"), kwargs.get("key"))[:2]
        if kwargs.get("query") is not None:
            query, key = kwargs["query"], kwargs["key"]
        scale = kwargs.get("scale") or query.shape[-1] ** -0.5
        if key.shape[1] != query.shape[1]:  # grouped queries share keys
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        # One example is enough: the entries are many.
        result: Tensor = (query[:1] @ key[:1].transpose(-1, -2)) * scale
        return result
    if name in ("softmax", "_softmax", "softmax_default") and isinstance(args[0], Tensor):
        entries = args[0][:1].flatten().float()
        entries = entries[entries > -1e4]  # what a mask leaves
        return entries if len(entries) else None
    return None


def _compare_weights(
    seen: _Seen,
    model: nn.Module,
    weights: Mapping[str, Tensor],
    prescriptions: Mapping[str, Prescription],
) -> None:
    """Updates relative to weights: entrywise for all, in spectral norm for matrices."""
    for name, p in parameters(model).items():
        role = prescriptions[name].role
        start = whole(weights[name])
        delta = whole(p) - start
        size = _mean_square(start)
        if size == 0 or not p.requires_grad:
            continue
        label = layer_pattern(name)
        key = Key(observable=Observable.ENTRY_UPDATE, module=label)
        seen.ratio(key, _mean_square(delta), size, role)
        if p.ndim == 2 and role.kind is Kind.HIDDEN:
            key = Key(observable=Observable.SPECTRAL_UPDATE, module=label)
            seen.ratio(key, spectral_norm(delta) ** 2, spectral_norm(start) ** 2, role)


def spectral_norm(matrix: Tensor, *, iterations: int = 12) -> float:
    """The largest singular value, from below, by power iteration.

    After k iterations a random start is short of the norm by a factor of at most n^(1/4k) or so:
    5% at k = 12 and n = 10^4, alike at all sizes, so exponents do not see it.

    Example:
        >>> round(spectral_norm(torch.diag(torch.tensor([3.0, 1.0]))), 4)
        3.0
    """
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(matrix.shape[1], generator=generator).to(matrix)
    norm = 0.0
    for _ in range(iterations):
        u = matrix @ v
        v = matrix.T @ u
        size = float(v.norm())
        if not math.isfinite(size) or size == 0:
            return size
        norm = size / max(float(u.norm()), 1e-300)
        v = v / size
    return norm


def first_nonfinite(model: nn.Module, inputs: Any) -> str | None:
    """The name of the first module whose output is not finite; None if all are.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> first_nonfinite(net, torch.full((1, 2), float("inf")))
        '0'
    """
    found: list[str] = []
    handles = []
    for name, module in named_modules(model).items():

        def check(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
            for leaf in tree_flatten(output)[0]:
                if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or found:
                    continue
                if not bool(torch.isfinite(leaf).all()):
                    found.append(name or type(module).__name__)

        handles.append(module.register_forward_hook(check))
    try:
        look(unwrapped(model), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _sample(value: Tensor) -> Tensor:
    flat = value.detach().reshape(-1)
    if len(flat) <= SAMPLE:
        return flat.float().clone()
    # A stride would alias with the layout of the tensor; evenly spaced fractions do so less.
    generator = torch.Generator().manual_seed(len(flat))
    return flat[torch.randint(len(flat), (SAMPLE,), generator=generator).to(flat.device)].float()


def _mean_square(value: Tensor) -> float:
    return float(value.detach().float().square().mean())
