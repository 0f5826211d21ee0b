"""The dataflow of one forward pass: every operation, what it read and what it made.

The model runs once on fake tensors (shapes without memory or arithmetic) while each ATen operation
is written down, so that a model of any size, on any device, takes a second or so.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    is_traceable_wrapper_subclass,
)
from torch.utils._pytree import tree_flatten, tree_map

from depthmup.tracing.graph import Graph, ModuleCall, Node, Ref
from depthmup.tracing.names import named_tensors, plain_name, unwrapped
from depthmup.tracing.operations import RESHAPES, SAME, SCALAR_MAPS

ExampleInputs: TypeAlias = Tensor | Sequence[Any] | Mapping[str, Any]


class TraceError(RuntimeError):
    """The forward pass cannot be followed without data; says why and what to declare instead."""


class _Recorder(TorchDispatchMode):
    """Writes down every operation that reaches the dispatcher.

    ``flex_attention`` is followed through the plain operations that define it, so that a person's
    own function of its scores is seen as well.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.calls: list[ModuleCall] = []
        self.stack: list[tuple[str, int, tuple[Ref, ...]]] = []
        self._refs: dict[int, Ref] = {}
        self._alive: list[Tensor] = []  # an id is only unique among living tensors
        self.absent: set[int] = set()  # constants whose values are not at hand
        self.overwriting: set[int] = set()
        self._mutated: dict[int, int] = {}  # storage -> node that last wrote to it

    def leaf(self, tensor: Tensor, op: str, name: str = "", *, value: float | None = None) -> int:
        """Write down a tensor that no operation made."""
        index = self._append(op, (), {}, (), (tuple(tensor.shape),), name=name, value=value)
        self.bind(tensor, Ref(index))
        return index

    def bind(self, tensor: Tensor, ref: Ref) -> None:
        self._refs[id(tensor)] = ref
        self._alive.append(tensor)

    def ref(self, tensor: Tensor) -> Ref:
        """Where this tensor's present value was made."""
        if id(tensor) not in self._refs:
            value = _number(tensor)
            index = self.leaf(tensor, "constant", value=value)
            if value is None and _is_absent(tensor):
                self.absent.add(index)
        ref = self._refs[id(tensor)]
        written = self._mutated.get(_storage(tensor), -1)
        if written > ref.node:  # another view of the same memory was written to since
            index = self._append("alias", (ref,), {}, (ref, Ref(written)), (tuple(tensor.shape),))
            ref = self._refs[id(tensor)] = Ref(index)
            self._mutated[_storage(tensor)] = index
        return ref

    def refs(self, tree: Any) -> tuple[Ref, ...]:
        return tuple(self.ref(leaf) for leaf in _tensors(tree))

    def _append(
        self,
        op: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        inputs: tuple[Ref, ...],
        shapes: tuple[tuple[int, ...], ...],
        name: str = "",
        value: float | None = None,
    ) -> int:
        module = self.stack[-1][0] if self.stack else ""
        node = Node(
            index=len(self.nodes),
            op=op,
            args=args,
            kwargs=kwargs,
            inputs=inputs,
            shapes=shapes,
            module=module,
            name=name,
            value=value,
        )
        self.nodes.append(node)
        return node.index

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            with self:
                return _plain_operations(func)(*args, **kwargs)
        inputs = self.refs((args, kwargs))
        as_refs = tree_map(lambda x: self.ref(x) if isinstance(x, Tensor) else x, (args, kwargs))
        result = func(*args, **kwargs)
        outputs = _tensors(result)
        if not outputs:
            return result
        schema = func._schema
        name = func.overloadpacket.__name__
        op = name.rstrip("_") or name
        index = self._append(
            op,
            as_refs[0],
            as_refs[1],
            inputs,
            tuple(tuple(t.shape) for t in outputs),
            value=self._result(func, op, *as_refs) if inputs else _filled(op, args, kwargs),
        )
        for output, tensor in enumerate(outputs):
            self.bind(tensor, Ref(index, output))
        if schema.is_mutable:
            self.overwriting.add(index)
            for argument, value in zip(schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in _tensors(value):
                        self._mutated[_storage(tensor)] = index
        return result

    def _result(
        self, func: Any, op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> float | None:
        """What an operation makes of numbers that are known; of tensors of one value, such another.

        ``new_full`` and its like take the shape alone of what they are given.
        """
        if op in _FILLS:
            return _filled(op, args, kwargs)
        if op not in SCALAR_MAPS | SAME | RESHAPES or not args:
            return None
        unknown = [a for a in args if isinstance(a, Ref) and self.nodes[a.node].value is None]
        if unknown or any(isinstance(a, Ref) for a in kwargs.values()):
            return None
        with _disable_current_modes():
            given = [
                torch.tensor(self.nodes[a.node].value, dtype=torch.float64, device="cpu")
                if isinstance(a, Ref)
                else a
                for a in args
            ]
            if op in SCALAR_MAPS:
                return _finite(func(*given, **kwargs))
            return _finite(given[1 if op == "copy" else 0])


def _plain_operations(operator: HigherOrderOperator) -> Callable[..., Any]:
    """What defines an operator that takes functions, as functions of tensors alone."""
    # Only where it is met: it takes a while to load.
    from torch._higher_order_ops.flex_attention import flex_attention, math_attention

    if operator is flex_attention:
        return math_attention
    raise NotImplementedError(f"{operator} takes functions, and cannot be followed")


# Where a tensor of one value has that value among its arguments; "ones" has none.
_FILLS = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0} | dict.fromkeys(
    ("ones", "ones_like", "new_ones"), None
)
# A model's constants are numbers or as large as a layer; larger buffers are tables and masks.
_LARGEST_CONSTANT = 1 << 20
# Entries of a model that is run on its values where it cannot be followed without.
_LARGEST_RUN = 1 << 29


def _filled(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """The one value of a new tensor that has one."""
    if op in SAME and args and isinstance(args[0], (int, float)):  # a number, made a tensor
        return float(args[0])
    if op not in _FILLS:
        return None
    where = _FILLS[op]
    value = 1.0 if where is None else kwargs.get("fill_value", (*args, None, None)[where])
    usable = isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if usable else None


def _number(tensor: Tensor) -> float | None:
    """The one number that a tensor holds, once or in all its entries, if it is at hand."""
    elsewhere = isinstance(tensor, FakeTensor) or tensor.device.type == "meta"
    if elsewhere or is_traceable_wrapper_subclass(tensor) or tensor.dtype.is_complex:
        return None
    if tensor.numel() != 1 and (
        not tensor.is_floating_point() or not 0 < tensor.numel() <= _LARGEST_CONSTANT
    ):
        return None
    with _disable_current_modes():
        first = tensor.detach().flatten()[0]
        return _finite(first) if bool((tensor.detach() == first).all()) else None


def _is_absent(tensor: Tensor) -> bool:
    """Whether a tensor may be one number, once or in all its entries, and has no value."""
    small = 0 < tensor.numel() <= _LARGEST_CONSTANT
    return tensor.is_meta and small and tensor.is_floating_point()


def _finite(tensor: Tensor) -> float | None:
    value = float(tensor)
    return value if math.isfinite(value) else None


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return -id(tensor)


@contextmanager
def _module_calls(recorder: _Recorder, names: Mapping[nn.Module, str]) -> Iterator[None]:
    """Let the recorder know which module is running."""

    def enter(module: nn.Module, args: Any) -> None:
        if module in names:
            recorder.stack.append((names[module], len(recorder.nodes), recorder.refs(args)))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if module in names:
            name, first, inputs = recorder.stack.pop()
            recorder.calls.append(
                ModuleCall(
                    name=name,
                    first=first,
                    end=len(recorder.nodes),
                    inputs=inputs,
                    outputs=recorder.refs(output),
                )
            )

    handles = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _as_written(model: nn.Module, *, training: bool) -> Iterator[None]:
    """The model's own code: no compiled, fused or sharded forward, and its mode given back."""
    modes = {module: module.training for module in model.modules()}
    hooks: list[tuple[dict[int, Any], dict[int, Any]]] = []
    for module in modes:
        for table in (module._forward_pre_hooks, module._forward_hooks):
            hooks.append((table, dict(table)))
            for key, hook in list(table.items()):
                if _module_of(hook).startswith("torch.distributed"):
                    del table[key]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    # Without oneDNN, recurrent layers are made of operations that can be read.
    onednn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        for module in modes:
            module.training = training
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes.items():
            module.training = mode
        for table, saved in hooks:
            table.clear()
            table.update(saved)


def _module_of(hook: Callable[..., Any]) -> str:
    function = getattr(hook, "func", hook)
    function = getattr(function, "__func__", function)
    return str(getattr(function, "__module__", "") or type(hook).__module__)


def _call(inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(inputs), {}


def _attempt(
    model: nn.Module,
    inputs: ExampleInputs,
    numbers: Mapping[str, float],
    *,
    training: bool,
    dtype: torch.dtype | None,
    values: bool = False,
) -> Graph:
    recorder = _Recorder()
    with ExitStack() as stack:
        if values:
            stack.enter_context(torch.random.fork_rng(devices=[]))
        else:
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))

        def faked(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if values:
                return value.detach().to("cpu", copy=True)
            kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
            return torch.empty(tuple(value.shape), dtype=kind, device="cpu")

        tensors: dict[str, Tensor] = {}
        parameters: dict[str, int] = {}
        replaced: dict[int, Tensor] = {}
        for name, tensor in named_tensors(model):
            if id(tensor) not in replaced:
                stand_in = replaced[id(tensor)] = faked(tensor)
                is_parameter = isinstance(tensor, nn.Parameter)
                kind = "parameter" if is_parameter else "buffer"
                value = None if is_parameter else _number(tensor)
                if value is None and not is_parameter:
                    value = numbers.get(plain_name(name))
                index = recorder.leaf(stand_in, kind, plain_name(name), value=value)
                if value is None and not is_parameter and _is_absent(tensor):
                    recorder.absent.add(index)
                recorder.bind(tensor, Ref(index))
                if is_parameter:
                    parameters[plain_name(name)] = index
            tensors[name] = replaced[id(tensor)]
        args, kwargs = tree_map(faked, _call(inputs))
        for tensor in _tensors((args, kwargs)):
            recorder.leaf(tensor, "input")
        names = {module: plain_name(name) for name, module in model.named_modules()}
        stack.enter_context(_as_written(model, training=training))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_module_calls(recorder, names))
        stack.enter_context(recorder)
        output = torch.func.functional_call(model, tensors, args, kwargs, tie_weights=False)
        outputs = recorder.refs(output)
    absent = _multiplied_by(recorder.nodes, recorder.absent)
    consumers: list[list[int]] = [[] for _ in recorder.nodes]
    for node in recorder.nodes:
        for ref in node.inputs:
            if not consumers[ref.node] or consumers[ref.node][-1] != node.index:
                consumers[ref.node].append(node.index)
    return Graph(
        nodes=tuple(recorder.nodes),
        parameters=parameters,
        calls=tuple(recorder.calls),
        outputs=outputs,
        consumers=tuple(tuple(c) for c in consumers),
        factors=_factors(recorder.nodes),
        unknown=_names_of(recorder.nodes, absent, lambda size: size == 1),
        unsure=_names_of(recorder.nodes, absent, lambda size: size > 1),
        overwriting=frozenset(recorder.overwriting),
        by_values=values,
    )


def _multiplied_by(nodes: Sequence[Node], absent: set[int]) -> set[int]:
    """The constants without values by which weights or activations are multiplied."""
    origins = {index: {index} for index in absent}
    varying: set[int] = set()  # made from what is put in, or from parameters
    multiplied: set[int] = set()
    for node in nodes if absent else ():
        sources = {ref.node for ref in node.inputs}
        if node.op in ("input", "parameter") or sources & varying:
            varying.add(node.index)
        here = set().union(*(origins.get(n, ()) for n in sources))
        if here and node.index not in varying and node.op in SCALAR_MAPS | SAME | RESHAPES:
            origins[node.index] = here
        elif here and node.op in ("mul", "div"):
            multiplied |= here
    return multiplied


def _names_of(
    nodes: Sequence[Node], leaves: set[int], of_size: Callable[[int], bool]
) -> tuple[str, ...]:
    return tuple(nodes[n].name for n in sorted(leaves) if of_size(math.prod(nodes[n].shape)))


def _factors(nodes: Sequence[Node]) -> dict[int, float]:
    """The numbers by which nodes multiply (or divide by) their one other operand."""

    def number(argument: Any) -> float | None:
        if isinstance(argument, Ref):
            return nodes[argument.node].value
        return float(argument) if isinstance(argument, (int, float)) else None

    factors = {}
    for node in nodes:
        if node.op in ("mul", "div"):
            numbers = [number(argument) for argument in node.args[:2]]
            known = [n for n in numbers if n is not None]
            if len(known) == 1 and known[0] and not (node.op == "div" and numbers[1] is None):
                factors[node.index] = known[0] if node.op == "mul" else 1 / known[0]
    return factors


def trace(
    model: nn.Module, inputs: ExampleInputs, numbers: Mapping[str, float] | None = None
) -> Graph:
    """Follow one forward pass of ``model`` on ``inputs``, without memory or arithmetic.

    ``inputs`` are a tensor, a sequence of positional arguments, or a mapping of keyword arguments;
    only their shapes and types matter. The model may live on any device, ``meta`` included, and
    may be compiled, sharded or wrapped. It is traced in evaluation mode, where nothing is random;
    and in training mode where that leaves a parameter unused. A forward pass that depends on the
    values of its inputs is followed on copies of the tensors themselves, where they have values.

    Args:
        model: whose forward pass it is.
        inputs: the arguments of one call.
        numbers: what buffers of one value hold, by their names, where they have no values.

    Returns:
        The dataflow as a graph.

    Raises:
        TraceError: the forward pass depends on the values of its inputs, which are not at hand.

    Example:
        >>> graph = trace(torch.nn.Linear(3, 5), torch.zeros(2, 3))
        >>> [node.op for node in graph.nodes]
        ['parameter', 'parameter', 'input', 't', 'addmm']
    """
    model = unwrapped(model)
    problems: list[Exception] = []
    best: Graph | None = None
    # A failed attempt is reported by its exception; the fake kernels would log it as well.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    # In training mode: parts that only training uses. In bfloat16: some kernels, such as the
    # grouped matrix product of mixtures of experts, have no other fake implementation.
    for training, dtype in ((False, None), (True, None), (False, torch.bfloat16)):
        if best is not None and dtype is not None:
            break
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            graph = _attempt(model, inputs, numbers or {}, training=training, dtype=dtype)
        except Exception as problem:  # whatever the user's code raises is the reason we report
            problems.append(problem)
            continue
        finally:
            log.setLevel(level)
        if best is None or _unused(graph) < _unused(best):
            best = graph
        if not _unused(best):
            break
    if best is None and _have_values(model, inputs):
        try:
            best = _attempt(model, inputs, numbers or {}, training=False, dtype=None, values=True)
        except Exception as problem:  # as above
            problems.insert(0, problem)
    if best is None:
        first = problems[0]
        reason = (str(first).strip().splitlines() or [""])[0]
        raise TraceError(
            f"The forward pass of {type(model).__name__} could not be followed on tensors without "
            f"values: {type(first).__name__}: {reason}. "
            "If it branches on the values of its inputs, build both models on the CPU, or say "
            "where its residual branches are: branches={'layers.*.attention': ('layers.*.norm1',), "
            "...} (module whose output is added to the stream: other modules that belong to the "
            "branch). "
            "If the arguments are wrong, pass those of one real call as example_inputs."
        ) from first
    return best


def _have_values(model: nn.Module, inputs: ExampleInputs) -> bool:
    """Whether a forward pass can be run, in no more than a few seconds."""
    tensors = [tensor for _, tensor in named_tensors(model)]
    given = _tensors(_call(inputs))
    plain = not any(
        tensor.is_meta or isinstance(tensor, FakeTensor) or is_traceable_wrapper_subclass(tensor)
        for tensor in (*tensors, *given)
    )
    return plain and sum(tensor.numel() for tensor in tensors) <= _LARGEST_RUN


def _unused(graph: Graph) -> int:
    return sum(not graph.consumers[index] for index in graph.parameters.values())
