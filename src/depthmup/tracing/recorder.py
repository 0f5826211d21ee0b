"""The recorder: writes down every ATen operation, what it read and what it made."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_flatten

from depthmup.tracing.dispatch import Watching, operands, written
from depthmup.tracing.graph import ModuleCall, Node, Ref
from depthmup.tracing.operations import RANDOM, RESHAPES, SAME, SCALAR_MAPS


class ValuesRead(RuntimeError):
    """A forward pass reads the values of its tensors where it may not."""


_READERS = frozenset({"tolist", "numpy", "__array__", "__dlpack__", "data_ptr"})


class NothingRead(TorchFunctionMode):
    """Refuses the functions that read a tensor's memory and are no operations."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _READERS:
            raise ValuesRead(f"{func.__name__} reads the values of a tensor")
        return func(*args, **(kwargs or {}))


class Recorder(Watching):
    """Writes down every operation that reaches the dispatcher.

    ``flex_attention`` is followed through the plain operations that define it, so that a person's
    own function of its scores is seen as well. ``blind``: tensors have values, and what depends on
    one is refused, as fake tensors refuse it.
    """

    supports_higher_order_operators = True

    def __init__(self, *, blind: bool = False) -> None:
        super().__init__()
        self.blind = blind
        self._outside: set[int] = set()  # storages that the model holds beside its buffers
        self.nodes: list[Node] = []
        self.calls: list[ModuleCall] = []
        self.stack: list[tuple[str, int, tuple[Ref, ...]]] = []
        self._refs: dict[int, Ref] = {}
        self._alive: list[Tensor] = []  # an id is only unique among living tensors
        self.absent: set[int] = set()  # constants whose values are not at hand
        self.overwriting: set[int] = set()
        self._varying: set[int] = set()  # made from inputs, parameters or noise
        self._mutated: dict[int, int] = {}  # storage -> node that last wrote to it
        self._sums: dict[tuple[Any, ...], Ref] = {}  # of tensors -> where it was made
        self._stacked: dict[int, Sequence[Tensor]] = {}  # node -> what it put together
        self._defining = False  # whether a custom operator's own function runs

    def leaf(self, tensor: Tensor, op: str, name: str = "", *, value: float | None = None) -> int:
        """Write down a tensor that no operation made."""
        index = self._append(op, (), {}, (), (tuple(tensor.shape),), name=name, value=value)
        self.bind(tensor, Ref(index))
        return index

    def bind(self, tensor: Tensor, ref: Ref) -> None:
        """Remember where a tensor's present value was made, and keep the tensor alive."""
        self._refs[id(tensor)] = ref
        self._alive.append(tensor)

    def ref(self, tensor: Tensor) -> Ref:
        """Where this tensor's present value was made."""
        if id(tensor) not in self._refs:
            self._outside.add(_storage(tensor))
            value = number_of(tensor)
            index = self.leaf(tensor, "constant", value=value)
            if value is None and is_absent(tensor):
                self.absent.add(index)
        ref = self._refs[id(tensor)]
        written = self._mutated.get(_storage(tensor), -1)
        if written > ref.node:  # another view of the same memory was written to since
            index = self._append("alias", (ref,), {}, (ref, Ref(written)), (tuple(tensor.shape),))
            ref = self._refs[id(tensor)] = Ref(index)
            self._mutated[_storage(tensor)] = index
        return ref

    def refs(self, tree: Any) -> tuple[Ref, ...]:
        return tuple(self.ref(leaf) for leaf in tensors_of(tree))

    def _as_refs(self, value: Any) -> Any:
        """Arguments of an operation, with references in the place of tensors."""
        if isinstance(value, Tensor):
            return self.ref(value)
        if type(value) in (tuple, list):
            return type(value)(self._as_refs(item) for item in value)
        if type(value) is dict:
            return {key: self._as_refs(item) for key, item in value.items()}
        return value

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
        made_from = any(ref.node in self._varying for ref in inputs)
        if made_from or op in RANDOM or op in ("input", "parameter"):
            self._varying.add(node.index)
        return node.index

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.blind and _reads_values(func, args):
            raise ValuesRead(f"{func} depends on the values of a tensor")
        if isinstance(func, HigherOrderOperator):
            with self:
                return _plain_operations(func)(*args, **kwargs)
        if (plain := self._written_out(func, args, kwargs)) is not None:
            with self:
                return plain()
        if (definition := _definition(func)) is not None:
            first, self._defining = len(self.nodes), True
            try:
                with self:
                    return definition(*args, **kwargs)
            except Exception:  # a kernel of another device, or one that needs values
                self._forget(first)
            finally:
                self._defining = False
        # Such a function is called below where composite operations come apart.
        if self._defining and func.namespace == "aten":
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        inputs = tuple(self.ref(tensor) for tensor in operands((args, kwargs)))
        as_refs = self._as_refs((args, kwargs))
        if self.blind and self._changes_more_than_copies(func, args, kwargs):
            raise ValuesRead(f"{func} changes what the model holds beside its buffers")
        result = _without_values(func, args, kwargs)
        outputs = list(operands(result))
        if not outputs:
            return result
        name = func.overloadpacket.__name__
        op = name.rstrip("_") or name
        if (parts := self._taken_out(op, as_refs[0], outputs)) is not None:
            for tensor, part in zip(outputs, parts, strict=True):
                self.bind(tensor, part)
            return result
        if name == "add" and not kwargs and not any(type(a) is float for a in args):
            # The sum of a list that grows is made anew for each layer: it is one stream.
            same = self._sums.setdefault(as_refs[0], Ref(len(self.nodes)))
            if same.node < len(self.nodes):
                self.bind(outputs[0], same)
                return result
        value = self._result(func, op, *as_refs) if inputs else _filled(op, args, kwargs)
        if value is None and len(outputs) == 1 and inputs:
            value = self._read(inputs, outputs[0])
        index = self._append(
            op,
            as_refs[0],
            as_refs[1],
            inputs,
            tuple(tuple(t.shape) for t in outputs),
            value=value,
        )
        for output, tensor in enumerate(outputs):
            value = self._read(inputs, tensor) if len(outputs) > 1 else None
            if value is None:
                self.bind(tensor, Ref(index, output))
            else:  # several numbers
                self.leaf(tensor, "constant", value=value)
        if op == "stack":
            self._stacked[index] = args[0]
        if func._schema.is_mutable:
            self.overwriting.add(index)
            for tensor in written(func, args, kwargs):
                self._mutated[_storage(tensor)] = index
        return result

    def _changes_more_than_copies(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> bool:
        """Whether an operation draws from a generator, or writes into a tensor, of the model's."""
        if any(isinstance(value, torch.Generator) for value in kwargs.values()):
            return True
        return any(_storage(t) in self._outside for t in written(func, args, kwargs))

    def _taken_out(
        self, op: str, args: tuple[Any, ...], outputs: Sequence[Tensor]
    ) -> Sequence[Ref] | None:
        """What tensors were put side by side, of a cut that takes them out again as they were."""
        if op == "cat" and len(args[0]) == 1:
            return tuple(args[0])
        if op not in _CUTS or self.nodes[args[0].node].op != "cat" or args[4:] not in ((), (1,)):
            return None
        whole = self.nodes[args[0].node]
        size, axis, cut = (
            len(whole.shape),
            whole.args[1] if len(whole.args) > 1 else 0,
            args[_CUTS[op]] if len(args) > _CUTS[op] else 0,
        )
        if axis % size != cut % size:
            return None
        starts, at = {}, 0
        for part in whole.args[0]:
            starts[at] = part
            at += self._shape(part)[axis]
        at = (args[2] or 0) % at if op == "slice" and len(args) > 2 else 0
        taken = []
        for tensor in outputs:
            part = starts.get(at)
            if part is None or self._shape(part) != tuple(tensor.shape):
                return None
            taken.append(part)
            at += tensor.shape[axis]
        return taken

    def _shape(self, ref: Ref) -> tuple[int, ...]:
        return self.nodes[ref.node].shapes[ref.output]

    def _forget(self, first: int) -> None:
        """Take back what was written down since a node."""
        del self.nodes[first:]
        self._refs = {key: ref for key, ref in self._refs.items() if ref.node < first}
        self._sums = {key: ref for key, ref in self._sums.items() if ref.node < first}
        self._stacked = {n: parts for n, parts in self._stacked.items() if n < first}
        self._mutated = {key: n for key, n in self._mutated.items() if n < first}
        self._varying = {n for n in self._varying if n < first}
        self.absent = {n for n in self.absent if n < first}
        self.overwriting = {n for n in self.overwriting if n < first}
        self.calls = [call for call in self.calls if call.end <= first]

    def _written_out(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[], Tensor] | None:
        """An operation by plainer ones: x + c (y - x) for ``lerp``, x + c a b for ``addcmul``.

        Likewise x + a b for ``addmm``, unless x is a layer's bias; and additions for a sum of a
        stack.

        A stack's sum is written so where its tensors are made from each other by nothing but the
        first, as the outputs of parallel branches beside their stream.
        """
        name = func.overloadpacket.__name__
        if name == "lerp" and len(args) == 3:
            start, end, weight = args
            return lambda: start + weight * (end - start)
        if name.rstrip("_") in ("addcmul", "addcdiv") and "out" not in kwargs:
            start, left, right = args[:3]
            value = kwargs.get("value", 1)
            term = (lambda: left * right) if "mul" in name else (lambda: left / right)
            scaled = term if value == 1 else (lambda: value * term())
            add = torch.Tensor.add_ if name.endswith("_") else torch.add
            return lambda: add(start, scaled())
        if name in _ADDED_PRODUCTS and args[0].ndim > 1:
            start, left, right = args[:3]
            beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
            return lambda: _times(beta, start) + _times(alpha, left @ right)
        if name not in ("sum", "mean") or len(args) < 2 or kwargs:
            return None
        if not isinstance(args[1], (list, tuple)) or len(args[1]) != 1:
            return None
        node = self.nodes[self.ref(args[0]).node]
        parts = self._stacked.get(node.index, ())
        along = node.args[1] if len(node.args) > 1 else 0
        rank = len(node.shape)
        keeps = len(args) > 2 and args[2]
        if not 1 < len(parts) <= _LARGEST_SUM or keeps or args[1][0] % rank != along % rank:
            return None
        if any(self._made_from(b, a) for a in node.inputs[1:] for b in node.inputs if b != a):
            return None
        if name == "mean":
            return lambda: functools.reduce(torch.add, parts) / len(parts)
        return lambda: functools.reduce(torch.add, parts)

    def _made_from(self, ref: Ref, source: Ref) -> bool:
        todo, reached = [ref.node], {ref.node}
        while todo:
            for before in self.nodes[todo.pop()].inputs:
                if before.node == source.node:
                    return True
                if before.node > source.node and before.node not in reached:
                    reached.add(before.node)
                    todo.append(before.node)
        return False

    def _read(self, inputs: Sequence[Ref], tensor: Tensor) -> float | None:
        """The one entry of a tensor made from constants alone, where the model runs on values.

        Such as the length of a solver's step.
        """
        if self.blind or tensor.numel() != 1:
            return None
        if any(ref.node in self._varying for ref in inputs):
            return None
        return number_of(tensor)

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


_ADDED_PRODUCTS = ("addmm", "baddbmm")
"""Something, and a product of two matrices."""


def _times(number: float, tensor: Tensor) -> Tensor:
    return tensor if number == 1 else number * tensor


def _reads_values(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether the result or the shape of an operation depends on values, as torch's tags tell."""
    if not isinstance(func, OpOverload):
        return False
    if func is torch.ops.aten.index.Tensor:  # a mask takes as many entries as it has ones
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return torch.Tag.data_dependent_output in func.tags or (
        torch.Tag.dynamic_output_shape in func.tags
    )


def _without_values(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What an operation gives; a grouped product of stand-ins as in bfloat16, which alone they do.

    Mixtures of experts have such products.
    """
    if func.overloadpacket.__name__ != "_grouped_mm" or not isinstance(args[0], FakeTensor):
        return func(*args, **kwargs)
    operands = (x.to(torch.bfloat16) for x in args[:2])
    return func(*operands, *args[2:], **kwargs).to(args[0].dtype)


def _definition(func: Any) -> Callable[..., Any] | None:
    """The Python function that a custom operator (``torch.library.custom_op``) was made of."""
    if func.namespace in ("aten", "prims"):
        return None
    from torch._library.custom_ops import OPDEFS

    made = OPDEFS.get(func._schema.name)
    return None if made is None else made._init_fn


def _plain_operations(operator: HigherOrderOperator) -> Callable[..., Any]:
    """What defines an operator that takes functions, as functions of tensors alone."""
    # Only where it is met: it takes a while to load.
    from torch._higher_order_ops.flex_attention import flex_attention, math_attention

    if operator is flex_attention:
        return math_attention
    raise NotImplementedError(f"{operator} takes functions, and cannot be followed")


# Operations that cut a tensor along a dimension, and where that stands among their arguments.
_CUTS = {"slice": 1, "split": 2, "split_with_sizes": 2}
# Longer stacks are sequences rather than branches.
_LARGEST_SUM = 16
# Where a tensor of one value has that value among its arguments; "ones" has none.
_FILLS = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0} | dict.fromkeys(
    ("ones", "ones_like", "new_ones"), None
)
# A model's constants are numbers or as large as a layer; larger buffers are tables and masks.
_LARGEST_CONSTANT = 1 << 20


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


def number_of(tensor: Tensor) -> float | None:
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


def is_absent(tensor: Tensor) -> bool:
    """Whether a tensor may be one number, once or in all its entries, and has no value."""
    small = 0 < tensor.numel() <= _LARGEST_CONSTANT
    return tensor.is_meta and small and tensor.is_floating_point()


def _finite(tensor: Tensor) -> float | None:
    value = float(tensor)
    return value if math.isfinite(value) else None


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
        return -id(tensor)
