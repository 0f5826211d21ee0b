"""A simulated machine with CUDA devices, on a PyTorch for the CPU. Its tensors have values.

C++ takes a simulated tensor for one on the CPU, so autograd, vmap and fused optimizers compute with
it. Python, and the checks here, see it on ``cuda:N``. The simulation raises where a device would:
operands on two devices, a generator of another device, a number read during a capture. It counts
kernels, reads by the host that wait for the device, and copies.

It does not simulate rounding, limits of kernels, or code under vmap that asks for ``x.device``
(``lenient`` counts there, and checks nothing).

    with machine(gpus=2) as simulated:
        ...
        simulated.counts["kernels"]
"""

import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
from torch.optim import optimizer as torch_optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CPU = torch.device("cpu")


def words(text):
    return frozenset(text.split())


# Operations that start no kernel.
VIEWS = words(
    "view _unsafe_view t transpose permute expand unsqueeze squeeze select slice detach alias "
    "as_strided split unbind lift_fresh diagonal split_with_sizes unfold empty empty_strided "
    "empty_like new_empty new_empty_strided _local_scalar_dense _reshape_alias"
)
# Operations after which the host waits for the device.
WAITS = words(
    "_local_scalar_dense nonzero masked_select equal _unique2 unique_consecutive unique_dim "
    "is_nonzero"
)
INDEXING = words("index index_put_ index_put _index_put_impl_")
"""Operations that take an index from the CPU."""
FACTORIES = words(
    "arange zeros ones full empty tensor rand randn randint randperm eye linspace scalar_tensor "
    "as_tensor tril_indices triu_indices"
)
MIXED = "Expected all tensors to be on the same device, but found at least two devices, "


@dataclass(eq=False)
class Machine:
    """The simulated GPUs, and the traces that code left on them."""

    gpus: int
    free: int
    lenient: bool
    current: int = 0
    started: bool = False
    """Whether CUDA was initialized, which takes memory and seconds on a real machine."""
    counts: Counter = field(default_factory=Counter)
    operations: Counter = field(default_factory=Counter)
    touched: set = field(default_factory=set)
    """Devices that hold a tensor, or whose generator was asked for."""
    generators: dict = field(default_factory=dict)
    captures: list = field(default_factory=list)

    def device(self, named):
        """A device with its index."""
        found = torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
        if found.type != "cuda":
            return found
        index = self.current if found.index is None else found.index
        if index >= self.gpus:
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        return torch.device("cuda", index)

    def start(self):
        self.started = True

    def waits(self):
        self.counts["waits"] += 1

    def generator(self, index):
        self.touched.add(index)
        return self.draws(self.device(index))

    def draws(self, device):
        """A device's generator, whose state is the host's: to ask for it touches no device."""
        self.start()
        fresh = torch.Generator().manual_seed(67280421310721)
        return self.generators.setdefault(self.device(device).index, fresh)

    def seed(self, seed, indices=None):
        for index in range(self.gpus) if indices is None else indices:
            self.generators.setdefault(index, torch.Generator()).manual_seed(seed)

    def owns(self, generator):
        return any(generator is own for own in self.generators.values())


MACHINE = None
TARGETS = []
"""Devices on which the operations in progress put their results."""
NEUTRAL = {}
"""Constants that composite operations made by themselves: no device of their own."""
CALLS = []
"""Names of the functions in progress."""


@contextmanager
def results_on(device):
    TARGETS.append(device)
    try:
        yield
    finally:
        TARGETS.pop()


def is_cuda(named):
    return isinstance(named, str | torch.device) and str(named).partition(":")[0] == "cuda"


def plain(tensor):
    return tensor.inner if isinstance(tensor, SimulatedTensor) else tensor


def leaves_of(value):
    """What operations take and give is nested in lists, tuples and dicts alone: torch's own trees,
    for whatever is registered, would take a third of all time here."""
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return leaves_of([*value.values()]) if isinstance(value, dict) else [value]


def mapped(function, value):
    if isinstance(value, list | tuple):
        return type(value)([mapped(function, part) for part in value])
    if isinstance(value, dict):
        return {key: mapped(function, part) for key, part in value.items()}
    return function(value)


class SimulatedTensor(torch.Tensor):
    """A tensor whose values, ``inner``, are on the CPU, and whose device is ``at``."""

    @staticmethod
    def __new__(cls, inner, at):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=CPU,
        )
        made.inner, made.at = inner, at
        MACHINE.start()
        MACHINE.touched.add(at.index)
        return made

    def __repr__(self, **options):
        return f"SimulatedTensor({self.inner!r}, {self.at})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if args and isinstance(args[0], SimulatedTensor):
            answer = ANSWERS.get(func)
            if answer is not None:
                return answer(*args)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return execute(func, args, kwargs or {})


def _set_data(tensor, values):
    tensor.inner = plain(values)


def _to_list(tensor):
    MACHINE.waits()
    return tensor.detach().inner.tolist()


def _to_numpy(tensor):
    raise TypeError(
        f"can't convert {tensor.at} device type tensor to numpy. Use Tensor.cpu() to copy the "
        "tensor to host memory first."
    )


def _copied(tensor, memo):
    copy = SimulatedTensor(tensor.inner.detach().clone(), tensor.at)
    if isinstance(tensor, torch.nn.Parameter):
        copy = torch.nn.Parameter(copy, tensor.requires_grad)
    else:
        copy.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = copy
    return copy


# What a device's tensors answer to Python.
ANSWERS = {
    torch.Tensor.device.__get__: lambda tensor, *_: tensor.at,
    torch.Tensor.is_cuda.__get__: lambda tensor, *_: True,
    torch.Tensor.is_cpu.__get__: lambda tensor, *_: False,
    torch.Tensor.get_device: lambda tensor: tensor.at.index,
    torch.Tensor.tolist: _to_list,
    torch.Tensor.numpy: _to_numpy,
    torch.Tensor.data_ptr: lambda tensor: tensor.inner.data_ptr(),
    torch.Tensor.data.__get__: lambda tensor, *_: tensor.detach(),
    torch.Tensor.data.__set__: _set_data,
    torch.Tensor.__deepcopy__: _copied,
}


def execute(func, args, kwargs):
    """One operation of C++: checked, counted, captured, computed on the CPU."""
    name = func._schema.name.removeprefix("aten::")
    kind = name.rstrip("_")
    leaves = leaves_of((args, kwargs))
    simulated = [leaf for leaf in leaves if isinstance(leaf, SimulatedTensor)]
    target = TARGETS[-1] if TARGETS else None
    if kind == "copy":
        _count_copy(args[0], args[1])
    elif kind != "_to_copy" or target is None:
        _check_devices(name, leaves, simulated)
    at = target or (simulated[0].at if simulated else None)
    on_cuda = at is not None and at.type == "cuda"
    captured = [c for c in MACHINE.captures if on_cuda and c.device == at.index]
    if kind in WAITS and simulated:
        if captured:
            raise torch.AcceleratorError(
                "CUDA error: operation not permitted when stream is capturing"
            )
        MACHINE.waits()
    if kind not in VIEWS and (simulated or on_cuda):
        MACHINE.counts["kernels"] += 1
        MACHINE.operations[kind] += 1
    own_args, own_kwargs = mapped(plain, (tuple(args), dict(kwargs)))
    for graph in captured:
        graph.remember(func, own_args, own_kwargs)
    with _random_state(func, kwargs.get("generator"), at if on_cuda else None):
        result = func(*own_args, **own_kwargs)
    for graph in captured:
        graph.kernels.append((func, own_args, own_kwargs, result))
    if kind == "_local_scalar_dense" or not on_cuda:
        return result
    known = {id(tensor.inner): tensor for tensor in simulated} if func._schema.is_mutable else {}

    def placed(value):
        if not isinstance(value, torch.Tensor) or isinstance(value, SimulatedTensor):
            return value
        return known[id(value)] if id(value) in known else SimulatedTensor(value, at)

    return mapped(placed, result)


def _check_no_capture():
    """Raise as CUDA does for a copy from or to pageable memory of the host."""
    if MACHINE.captures:
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")


def _count_copy(to, source):
    if isinstance(to, SimulatedTensor) is not isinstance(source, SimulatedTensor):
        _check_no_capture()
    if isinstance(to, SimulatedTensor) and not isinstance(source, SimulatedTensor):
        MACHINE.counts["to device"] += 1
    elif isinstance(source, SimulatedTensor) and not isinstance(to, SimulatedTensor):
        MACHINE.counts["to host"] += 1
        MACHINE.waits()


def _check_devices(name, leaves, simulated):
    """Raise as PyTorch does for operands on two devices; numbers of no dimension may mix."""
    kind, foreach = name.rstrip("_"), name.startswith("_foreach")
    places = sorted({str(tensor.at) for tensor in simulated})
    if len(places) > 1 and not foreach:
        raise RuntimeError(f"{MIXED}{' and '.join(places)}! ({name})")
    if not simulated or name in INDEXING or MACHINE.lenient:
        return
    elsewhere = [
        leaf
        for leaf in leaves
        if isinstance(leaf, torch.Tensor)
        and not isinstance(leaf, SimulatedTensor)
        and id(leaf) not in NEUTRAL
    ]
    if not (kind in ("cat", "stack") or kind.startswith("_fused")):
        elsewhere = [tensor for tensor in elsewhere if tensor.dim()]
    if elsewhere:
        raise RuntimeError(f"{MIXED}{places[0]} and cpu! ({name})")


@contextmanager
def _random_state(func, generator, at):
    """Draw from the device's own generator, if the operation draws on a device."""
    if at is None or torch.Tag.nondeterministic_seeded not in func.tags:
        yield
        return
    if generator is not None:
        if not MACHINE.owns(generator):
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        yield
        return
    own, before = MACHINE.generator(at.index), torch.get_rng_state()
    torch.set_rng_state(own.get_state())
    try:
        yield
    finally:
        own.set_state(torch.get_rng_state())
        torch.set_rng_state(before)


class Operations(TorchDispatchMode):
    """Sends operations of simulated tensors, and those that make new ones, to ``execute``."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        tensors = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not TARGETS and self._is_neutral(tensors):
            result = func(*args, **kwargs)
            for leaf in leaves_of(result):
                if isinstance(leaf, torch.Tensor):
                    NEUTRAL[id(leaf)] = leaf
            return result
        on_cuda = bool(TARGETS) and TARGETS[-1].type == "cuda"
        if on_cuda or any(isinstance(tensor, SimulatedTensor) for tensor in tensors):
            return execute(func, args, kwargs)
        return func(*args, **kwargs)

    @staticmethod
    def _is_neutral(tensors):
        if not tensors:
            return bool(CALLS) and CALLS[-1] not in FACTORIES
        return all(id(tensor) in NEUTRAL for tensor in tensors)


def moved(tensor, device, dtype=None, *, copy=False):
    """``Tensor.to``."""
    source = tensor.device
    if device == source and dtype in (None, tensor.dtype) and not copy:
        return tensor
    if device.type != source.type:
        _check_no_capture()
        MACHINE.counts["to host" if device.type == "cpu" else "to device"] += 1
        if device.type == "cpu":
            MACHINE.waits()
    with results_on(device):
        return torch.ops.aten._to_copy.default(tensor, dtype=dtype or tensor.dtype)


class Functions(TorchFunctionMode):
    """Reads the devices that Python names: of moves and of factories."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        CALLS.append(getattr(func, "__name__", ""))
        try:
            return self._call(func, args, dict(kwargs or {}))
        finally:
            CALLS.pop()
            if not CALLS:
                NEUTRAL.clear()

    def _call(self, func, args, kwargs):
        name, first = getattr(func, "__name__", ""), args[0] if args else None
        if isinstance(first, torch.Tensor):
            if name == "pin_memory":
                return first
            if name in ("to", "cuda", "cpu", "type_as"):
                return self._move(name, func, args, kwargs)
        device = kwargs.get("device")
        if is_cuda(device) or (isinstance(device, int) and not isinstance(device, bool)):
            return self._make(func, args, kwargs)
        if device is not None and str(device) == "cpu" and isinstance(first, SimulatedTensor):
            with results_on(CPU):
                return func(*args, **kwargs)
        if name == "new_tensor" and isinstance(first, SimulatedTensor):
            made = torch.tensor(*args[1:], dtype=kwargs.get("dtype", first.dtype))
            return moved(made, first.at)
        return func(*args, **kwargs)

    @staticmethod
    def _move(name, func, args, kwargs):
        tensor = args[0]
        simulated = isinstance(tensor, SimulatedTensor)
        if name == "cpu":
            return moved(tensor, CPU) if simulated else func(*args, **kwargs)
        if name == "cuda":
            asked = args[1] if len(args) > 1 else kwargs.get("device")
            return moved(tensor, MACHINE.device("cuda" if asked is None else asked))
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        for given in args[1:]:
            if isinstance(given, torch.Tensor):
                device, dtype = given.device, given.dtype
            elif isinstance(given, str | torch.device):
                device = given
            elif isinstance(given, torch.dtype):
                dtype = given
        if str(device) == "meta":
            return func(plain(tensor).detach() if simulated else tensor, *args[1:], **kwargs)
        if simulated or is_cuda(device):
            to = tensor.at if device is None else MACHINE.device(device)
            return moved(tensor, to, dtype, copy=kwargs.get("copy", False))
        return func(*args, **kwargs)

    @staticmethod
    def _make(func, args, kwargs):
        device, kwargs["device"] = MACHINE.device(kwargs["device"]), CPU
        MACHINE.start()
        if func in (torch.tensor, torch.as_tensor, torch.scalar_tensor):
            graded = kwargs.pop("requires_grad", False)
            del kwargs["device"]
            return moved(func(*args, **kwargs), device).requires_grad_(graded)
        generator = kwargs.get("generator")
        if generator is not None and not MACHINE.owns(generator):
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        with results_on(device):
            return func(*args, **kwargs)


class Stream:
    """A stream of the device that is current where it is made."""

    def __init__(self, *args, **options):
        self.device_index = MACHINE.current

    def wait_stream(self, other): ...

    def synchronize(self):
        MACHINE.waits()


class Current:
    """``torch.cuda.device``."""

    def __init__(self, device):
        self.index = None if device is None else MACHINE.device(device).index

    def __enter__(self):
        self.before = MACHINE.current
        if self.index is not None:
            MACHINE.current = self.index

    def __exit__(self, *raised):
        MACHINE.current = self.before


class Graph:
    """The kernels that a step started on one device, with the memory that they touch.

    Recording leaves no trace: memory that kernels wrote is put back.
    """

    def __init__(self):
        self.kernels, self.before, self.device = [], [], None

    def remember(self, func, args, kwargs):
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[i] if i < len(args) else kwargs.get(argument.name)
            self.before += [
                (tensor, tensor.clone())
                for tensor in leaves_of(given)
                if isinstance(tensor, torch.Tensor)
            ]

    def replay(self):
        MACHINE.counts["replays"] += 1
        for func, args, kwargs, recorded in self.kernels:
            for old, new in zip(leaves_of(recorded), leaves_of(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Capture:
    """``torch.cuda.graph``, whose usual stream is one per process, of the first device it met."""

    usual = None

    def __init__(self, graph, pool=None, stream=None):
        if stream is None:
            Capture.usual = stream = Capture.usual or Stream()
        self.graph, self.on = graph, Current(stream.device_index)
        graph.device = stream.device_index

    def __enter__(self):
        self.on.__enter__()
        MACHINE.captures.append(self.graph)

    def __exit__(self, *raised):
        MACHINE.captures.remove(self.graph)
        for tensor, content in reversed(self.graph.before):
            tensor.copy_(content)
        self.on.__exit__()
        if not self.graph.kernels:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be "
                "captured on wrong device or stream.",
                stacklevel=2,
            )


@contextmanager
def machine(*, gpus=1, free=80 << 30, capability=(9, 0), lenient=False):
    """A machine with GPUs inside the context; CUDA is not initialized there yet."""
    global MACHINE
    before, MACHINE = MACHINE, Machine(gpus=gpus, free=free, lenient=lenient)
    now, Capture.usual = MACHINE, None
    answers = {
        "_lazy_init": now.start,
        "is_available": lambda: now.gpus > 0,
        "is_initialized": lambda: now.started,
        "device_count": lambda: now.gpus,
        "current_device": lambda: now.current,
        "set_device": lambda device: setattr(now, "current", now.device(device).index),
        "get_device_name": lambda *device: "Simulated H100",
        "get_device_capability": lambda *device: capability,
        "mem_get_info": lambda device=None: (now.free, 80 << 30),
        "synchronize": lambda *device: now.waits(),
        "manual_seed_all": now.seed,
        "manual_seed": lambda seed: now.seed(seed, [now.current]),
        "get_rng_state": lambda device="cuda": now.draws(device).get_state(),
        "set_rng_state": lambda state, device="cuda": now.draws(device).set_state(state),
        "_is_in_bad_fork": lambda: False,
        "device": Current,
        "Stream": Stream,
        "current_stream": lambda *device: Stream(),
        "empty_cache": lambda: None,
        "is_current_stream_capturing": lambda: bool(now.captures),
        "is_bf16_supported": lambda *args, **options: True,
        "CUDAGraph": Graph,
        "graph": Capture,
    }
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch_optimizer._foreach_supported_types.append(SimulatedTensor)
    try:
        with ExitStack() as stack:
            for name, answer in answers.items():
                stack.enter_context(patch.object(torch.cuda, name, answer))
            stack.enter_context(Functions())
            stack.enter_context(Operations())
            yield now
    finally:
        torch_optimizer._foreach_supported_types.remove(SimulatedTensor)
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
        MACHINE = before
