"""The dataflow of one forward pass: every operation, what it read and what it made.

The model runs once on fake tensors (shapes without memory or arithmetic) while each ATen operation
is written down, so that a model of any size, on any device, takes a second or so. A small one runs
on copies of its own tensors, whose values it may not read: the same operations come a few times
faster, and without the compiler that fake tensors load.
"""

import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import (
    is_traceable_wrapper_subclass,
)
from torch.utils._pytree import tree_map

from depthmup._isolated import isolated
from depthmup.tracing.graph import Graph, ModuleCall, Node, Ref
from depthmup.tracing.names import named_tensors, plain_name, unwrapped, with_tensors
from depthmup.tracing.operations import RESHAPES, SAME, SCALAR_MAPS
from depthmup.tracing.own_error import own_error, own_error_words
from depthmup.tracing.recorder import NothingRead, Recorder, is_absent, number_of, tensors_of

ExampleInputs: TypeAlias = Tensor | Sequence[Any] | Mapping[str, Any]


class TraceError(RuntimeError):
    """The forward pass cannot be followed without data; says why and what to declare instead."""


class ForwardError(TraceError):
    """The model's own forward pass raises an error on these inputs, which is the cause."""


OWN_DEVICE = (
    " It is followed on the CPU: make new tensors on the device of others, such as device=x.device "
    "in place of device='cuda'."
)

# Entries of a model that is run on its values where it cannot be followed without.
_LARGEST_RUN = 1 << 29
# Entries of a model times those of its inputs, which bound the products of a forward pass: half a
# second on one core, and what fake tensors need to load.
_SMALL = 1 << 33
# Entries from which the copy of a parameter is felt: 1 MiB in single precision.
_LARGE = 1 << 18
_COMPILER = "torch._dynamo"


@contextmanager
def _module_calls(recorder: Recorder, names: Mapping[nn.Module, str]) -> Iterator[None]:
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
        # Also where a call fails, and the model's own code goes another way.
        nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _as_written(model: nn.Module, *, training: bool) -> Iterator[None]:
    """The model's own code: no compiled, fused or sharded forward.

    Its mode is given back, and so are its tensors: what a forward pass keeps may have no values,
    and stand-ins stay where a module has two names.
    """
    modes = {module: module.training for module in model.modules()}
    tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
    for module in modes:
        held = module._parameters, module._buffers
        tables += [(table, dict(table)) for table in held]
        for table in (module._forward_pre_hooks, module._forward_hooks):
            tables.append((table, dict(table)))
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
        # What is compiled has loaded the compiler, which takes a second.
        eager = torch.compiler.set_stance("force_eager") if _COMPILER in sys.modules else None
        with eager or nullcontext():
            yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes.items():
            module.training = mode
        for table, saved in tables:
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
    values: bool = False,
    reads: bool = False,
) -> Graph:
    """One forward pass: on fake tensors, or on copies with values, which it reads or may not."""
    recorder = Recorder(blind=values and not reads)
    with ExitStack() as stack:
        stack.enter_context(isolated())
        if values:
            if not reads:
                stack.enter_context(NothingRead())
        else:
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))

        def faked(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if values:
                # Where no value is read, large parameters need none: this memory is never written.
                if not reads and isinstance(value, nn.Parameter) and _is_large(value):
                    return torch.empty_like(value.detach())
                return value.detach().to("cpu", copy=True)
            return torch.empty(tuple(value.shape), dtype=value.dtype, device="cpu")

        tensors: dict[str, Tensor] = {}
        parameters: dict[str, int] = {}
        replaced: dict[int, Tensor] = {}
        for name, tensor in named_tensors(model):
            if id(tensor) not in replaced:
                stand_in = replaced[id(tensor)] = faked(tensor)
                is_parameter = isinstance(tensor, nn.Parameter)
                kind = "parameter" if is_parameter else "buffer"
                value = None if is_parameter else number_of(tensor)
                if value is None and not is_parameter:
                    value = numbers.get(plain_name(name))
                index = recorder.leaf(stand_in, kind, plain_name(name), value=value)
                if value is None and not is_parameter and is_absent(tensor):
                    recorder.absent.add(index)
                recorder.bind(tensor, Ref(index))
                if is_parameter:
                    parameters[plain_name(name)] = index
            tensors[name] = replaced[id(tensor)]
        args, kwargs = tree_map(faked, _call(inputs))
        for tensor in tensors_of((args, kwargs)):
            recorder.leaf(tensor, "input")
        names = {module: plain_name(name) for name, module in model.named_modules()}
        stack.enter_context(_as_written(model, training=training))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_module_calls(recorder, names))
        stack.enter_context(recorder)
        stack.enter_context(with_tensors(model, tensors))
        output = model(*args, **kwargs)
        outputs = recorder.refs(output)
    absent = [recorder.nodes[n] for n in sorted(_multiplied_by(recorder.nodes, recorder.absent))]
    return Graph(
        nodes=tuple(recorder.nodes),
        parameters=parameters,
        calls=tuple(recorder.calls),
        outputs=outputs,
        unknown=tuple(node.name for node in absent if math.prod(node.shape) == 1),
        unsure=tuple(node.name for node in absent if math.prod(node.shape) > 1),
        overwriting=frozenset(recorder.overwriting),
        by_values=reads,
    )


def _is_large(parameter: nn.Parameter) -> bool:
    return parameter.is_floating_point() and parameter.numel() >= _LARGE


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
        ForwardError: it raises an error on these inputs, followed or not.

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
    for training in (False, True):  # parts that only training uses
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            graph = _without_reading(model, inputs, numbers or {}, training=training)
        except Exception as problem:  # whatever the user's code raises is the reason we report
            problems.append(problem)
            continue
        finally:
            log.setLevel(level)
        if best is None or _unused(graph) < _unused(best):
            best = graph
        if not _unused(best):
            break
    if best is None and _sizes_of_values(model, inputs)[0] <= _LARGEST_RUN:
        try:
            best = _attempt(model, inputs, numbers or {}, training=False, values=True, reads=True)
        except Exception as problem:  # as above
            problems.insert(0, problem)
    if best is None and (configs := _with_cache(model)):
        best = _without_cache(model, inputs, numbers, configs)
    if best is None and (error := _own_error(model, inputs)) is not None:
        words = own_error_words(model, error, *_call(inputs))
        raise ForwardError(words + _of_device(str(error))) from error
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
            + _of_device(reason)
        ) from first
    return best


def _with_cache(model: nn.Module) -> list[Any]:
    """The configurations of transformers by which modules keep keys and values for generation."""
    configs = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    return [config for config in configs.values() if getattr(config, "use_cache", None) is True]


def _without_cache(
    model: nn.Module, inputs: ExampleInputs, numbers: Mapping[str, float] | None, configs: list[Any]
) -> Graph | None:
    """The graph without the cache, which training does not need; none if that fails too."""
    for config in configs:
        config.use_cache = False
    try:
        graph = trace(model, inputs, numbers)
    except (ForwardError, TraceError):
        return None
    finally:
        for config in configs:
            config.use_cache = True
    warnings.warn(
        f"The forward pass of {type(model).__name__} was followed with config.use_cache = False, "
        "because its cache of keys and values could not be followed. Training needs none.",
        stacklevel=2,
    )
    return graph


def _own_error(model: nn.Module, inputs: ExampleInputs) -> Exception | None:
    """The error of a plain call, where the tensors have values and are few enough to try."""
    if _sizes_of_values(model, inputs)[0] > _LARGEST_RUN:
        return None
    with _as_written(model, training=False):
        return own_error(model, *_call(inputs))


def _of_device(reason: str) -> str:
    return OWN_DEVICE if "cuda" in reason.lower() or "device" in reason else ""


def _without_reading(
    model: nn.Module,
    inputs: ExampleInputs,
    numbers: Mapping[str, float],
    *,
    training: bool,
) -> Graph:
    """A forward pass that depends on no value: on copies where these are small, else on fakes."""
    if math.prod(_sizes_of_values(model, inputs, "cpu")) <= _SMALL:
        compiler = _COMPILER in sys.modules
        with suppress(Exception):  # a value is read, or a kernel is missing: fakes have the say
            graph = _attempt(model, inputs, numbers, training=training, values=True)
            # Code that was compiled on the way hides its operations.
            if compiler == (_COMPILER in sys.modules):
                return graph
    return _attempt(model, inputs, numbers, training=training)


def _sizes_of_values(
    model: nn.Module, inputs: ExampleInputs, device: str | None = None
) -> tuple[float, float]:
    """Entries of a model and of its inputs; infinite if one has no values, or none on a device."""
    tensors = [tensor for _, tensor in named_tensors(model)]
    given = tensors_of(_call(inputs))
    absent = any(
        tensor.is_meta
        or isinstance(tensor, FakeTensor)
        or is_traceable_wrapper_subclass(tensor)
        or device not in (None, tensor.device.type)
        for tensor in (*tensors, *given)
    )
    if absent:
        return math.inf, math.inf
    return sum(tensor.numel() for tensor in tensors), sum(tensor.numel() for tensor in given)


def _unused(graph: Graph) -> int:
    return sum(not graph.consumers[index] for index in graph.parameters.values())
