"""How a model's parameters are drawn: read from the initializers that its code calls.

A model that is built inside a ``InitRecorder`` tells of every parameter which distribution it comes
from: ``normal_``, ``uniform_``, ``fill_``, ``arange`` and what is computed from them are seen as
they are called, on the meta device too. So its root mean square is known exactly and not estimated
from the draw. Needs torch alone.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_flatten

from depthmup.planning.distributions import (
    ENTRYWISE,
    IN_ORDER,
    PROBABILITIES,
    REORDERED,
    SERIES,
    SETTLED,
    Distribution,
    common,
    constant,
    entrywise,
    held,
    normal,
    orthogonal,
    series,
    truncated_normal,
    uniform,
)
from depthmup.planning.pieces import Piece, place_of, shares_of
from depthmup.tracing.dispatch import Watching, written
from depthmup.tracing.operations import RANDOM

_Model = TypeVar("_Model", bound=nn.Module)
_MODES = ("torch.utils._device", "torch.overrides")  # between an initializer and what sees it
_NORMS = frozenset({"linalg_vector_norm", "norm", "norm_except_dim"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """What a parameter was drawn from: its root mean square and kurtosis (about zero).

    ``constant`` is the one value of all entries, if they have one; ``kurtosis`` is None where
    the shape of the distribution is not known.

    Attributes:
        rms: of the distribution.
    """

    rms: float
    kurtosis: float | None = None
    constant: float | None = None


class InitRecorder:
    """Sees every initializer that is called inside it, and remembers what it wrote."""

    def __init__(self) -> None:
        self._contents: dict[int, tuple[StorageWeakRef, list[Piece]]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Rejection sampling has no law that its operations show, and does nothing on meta.
        draw = nn.init._no_grad_trunc_normal_

        def truncated(
            tensor: Tensor, mean: float, std: float, a: float, b: float, *args: Any, **kwargs: Any
        ) -> Tensor:
            """Draw as ``nn.init.trunc_normal_`` does, and write down the law of what was drawn."""
            result = draw(tensor, mean, std, a, b, *args, **kwargs)
            with _unwatched():
                self.write(tensor, truncated_normal(mean, std, a, b))
            return result

        self._stack.enter_context(mock.patch.object(nn.init, "_no_grad_trunc_normal_", truncated))
        self._stack.enter_context(_Operations(self))
        self._stack.enter_context(_Skipped(self))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def drawn(self, model: nn.Module) -> dict[str, Drawn]:
        """What the parameters of a model were drawn from, where that is known.

        Buffers that hold one value are among them: constants of the forward pass.
        """
        result = {}
        for name, parameter in model.named_parameters():
            drawn = self._drawn(parameter.detach())
            if drawn is not None:
                result[name] = drawn
        for name, buffer in model.named_buffers():
            drawn = self._drawn(buffer) if buffer.is_floating_point() else None
            if drawn is not None and drawn.constant is not None:
                result[name] = drawn
        return result

    def _drawn(self, tensor: Tensor) -> Drawn | None:
        law = self.law(tensor)
        if law is None or tensor.numel() == 0:
            return None
        if law.values is None and law.settled and not tensor.is_meta:
            law = Distribution(values=tensor.double().reshape(-1), settled=True)
        size = law.size
        if size is None or not math.isfinite(size):
            return None
        return Drawn(rms=size, kurtosis=law.kurtosis, constant=law.one)

    def pieces(self, tensor: Tensor) -> list[Piece] | None:
        """What was written into a tensor's storage, in order; None if nothing was."""
        if _opaque(tensor):
            return None
        entry = self._contents.get(_key(tensor))
        return entry[1] if entry is not None and not entry[0].expired() else None

    def write(self, tensor: Tensor, law: Distribution | None) -> None:
        """Remember that a tensor now holds entries of this law; None: of an unknown one."""
        if _opaque(tensor):
            return
        law = None if law is None else held(law, tensor.dtype)
        if law is not None and law.values is not None and law.draw is None and not law.settled:
            law = replace(law, draw=object())
        piece = place_of(tensor, law)
        pieces = self.pieces(tensor)
        if pieces is None:
            reference = StorageWeakRef(tensor.untyped_storage())
            self._contents[_key(tensor)] = (reference, [piece])
            return
        pieces[:] = [p for p in pieces if not piece.covers(p)]
        pieces.append(piece)

    def law(self, tensor: Tensor) -> Distribution | None:
        """What a tensor holds; the mixture of its pieces, if they were written one by one."""
        pieces = self.pieces(tensor)
        if pieces is None:
            return None
        wanted = place_of(tensor, None)
        if pieces and pieces[-1].covers(wanted):
            return common([pieces[-1].law], in_order=pieces[-1].same_place(wanted))
        shares = shares_of(pieces, wanted)
        if shares is None:
            return None
        laws = [(pieces[i].law if i >= 0 else None, count) for i, count in shares.items() if count]
        if len(laws) == 1:
            return common([laws[0][0]], in_order=False)
        settled = all(law is not None and law.settled for law, _ in laws)
        sizes = [(law.size if law is not None else None, count) for law, count in laws]
        if any(size is None for size, _ in sizes):
            return SETTLED if settled else None
        total = sum(count * (size or 0.0) ** 2 for size, count in sizes)
        return Distribution(rms=math.sqrt(total / wanted.entries), settled=settled)


class _Skipped(TorchFunctionMode):
    """What is done with numbers on meta without any operation that could be seen.

    Initializers of ``nn.init`` return at once on meta, after asking whether they are there: their
    question is what shows them. ``torch.tensor`` drops the numbers that it is given.
    """

    def __init__(self, recorder: InitRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        told = func in (torch.tensor, torch.as_tensor) and args and result.is_meta
        if told and not isinstance(args[0], Tensor):
            with _unwatched():
                self._recorder.write(result, _told(args[0]))
        if result is True and getattr(getattr(func, "__self__", None), "__name__", "") == "is_meta":
            caller = sys._getframe(1)
            while caller.f_globals.get("__name__") in _MODES and caller.f_back is not None:
                caller = caller.f_back
            if caller.f_globals.get("__name__") == "torch.nn.init":
                with _unwatched():
                    self._skip(caller.f_code.co_name, caller.f_locals)
        return result

    def _skip(self, name: str, values: Mapping[str, Any]) -> None:
        tensor = values["tensor"]
        if name == "orthogonal_":
            law = orthogonal(len(tensor), tensor[:1].numel(), values["gain"])
            self._recorder.write(tensor, law)
        elif name != "_no_grad_trunc_normal_":
            self._recorder.write(tensor, None)


class _Operations(Watching):
    def __init__(self, recorder: InitRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")
        outputs = written(func, args, kwargs)
        law = self._result(name, args, kwargs)
        changed = self._changed(name, args, kwargs)
        result = func(*args, **kwargs)
        if changed is not None:
            pieces = self._recorder.pieces(args[0])
            assert pieces is not None
            pieces[:] = changed
        elif outputs:
            # A view in place (``t_``) writes nothing.
            for tensor in outputs:
                if name.removesuffix("_") not in REORDERED:
                    self._recorder.write(tensor, law)
        else:
            self._new(name, result, law, args)
        return result

    def _result(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Distribution | None:
        """The law of what an operation gives or writes."""
        if name == "normal" and any(isinstance(a, Tensor) for a in args):
            return None  # a mean or a deviation for each entry
        name = name.removesuffix("_")
        known = self._recorder.law
        rest = [a for a in args if not isinstance(a, Tensor | list | tuple)]
        if name in ("zeros", "zero", "zeros_like", "new_zeros"):
            return constant(0.0)
        if name in ("ones", "ones_like", "new_ones"):
            return constant(1.0)
        if name in ("full", "full_like", "new_full", "fill", "scalar_tensor"):
            value = args[0] if name == "scalar_tensor" else args[-1]
            return known(value) if isinstance(value, Tensor) else constant(value)
        if name == "copy":
            return known(args[1]) if isinstance(args[1], Tensor) else None
        random = _random(name, rest, kwargs)
        if random is not None:
            return random
        if name == "eye":
            rows = int(args[0])
            columns = int(args[1]) if len(args) > 1 and isinstance(args[1], int) else rows
            return Distribution(rms=math.sqrt(min(rows, columns) / (rows * columns)), settled=True)
        if name in SERIES:
            return series(name, args, kwargs)
        inputs = [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, Tensor)]
        if name in ENTRYWISE:
            given = [known(a) if isinstance(a, Tensor) else a for a in args]
            return entrywise(name, args, kwargs, given)
        laws = [known(a) for a in inputs]
        if name in IN_ORDER or name in REORDERED:
            return common(laws, in_order=name in IN_ORDER)
        settled = bool(inputs) and all(law is not None and law.settled for law in laws)
        return SETTLED if settled and name not in RANDOM | {"native_dropout"} else None

    def _changed(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Piece] | None:
        """What an operation in place makes of a tensor whose parts were written one by one."""
        plain = name.removesuffix("_")
        if plain == name or plain not in ENTRYWISE or not isinstance(args[0], Tensor):
            return None
        pieces, written = self._recorder.pieces(args[0]), place_of(args[0], None)
        if pieces is None or len(pieces) < 2 or not all(written.covers(p) for p in pieces):
            return None
        others = [self._recorder.law(a) if isinstance(a, Tensor) else a for a in args[1:]]
        laws = (entrywise(plain, args, kwargs, [p.law, *others]) for p in pieces)
        return [replace(p, law=law) for p, law in zip(pieces, laws, strict=True)]

    def _new(self, name: str, result: Any, law: Distribution | None, args: Sequence[Any]) -> None:
        outputs = [r for r in tree_flatten(result)[0] if isinstance(r, Tensor)]
        if name == "linalg_qr" and len(outputs) == 2:
            self._recorder.write(outputs[0], Distribution(rms=outputs[0].shape[-2] ** -0.5))
            return
        for tensor in outputs:
            if self._recorder.pieces(tensor) is not None:
                continue  # a view of what is known
            new = law
            if name in _NORMS and isinstance(args[0], Tensor):
                new = self._norm(args, tensor)
            elif name == "lift_fresh" and tensor.dim() == 0 and not tensor.is_meta:
                new = constant(float(tensor))
            if new is not None:
                self._recorder.write(tensor, new)

    def _norm(self, args: Sequence[Any], result: Tensor) -> Distribution | None:
        """Euclidean norms over some axes: their root mean square follows from the entries'."""
        law = self._recorder.law(args[0])
        order = next((a for a in args[1:] if isinstance(a, int | float)), 2)
        if law is None or law.size is None or order != 2 or not result.numel():
            return None
        return Distribution(rms=law.size * math.sqrt(args[0].numel() / result.numel()))


def _random(name: str, numbers: Sequence[Any], kwargs: Mapping[str, Any]) -> Distribution | None:
    """The law of a random number generator; ``numbers`` are its arguments that are no tensors."""
    if not all(isinstance(n, int | float) for n in numbers):
        return None
    match name:
        case "normal" | "normal_functional":
            return normal(*numbers[:2], **{k: kwargs[k] for k in ("mean", "std") if k in kwargs})
        case "randn" | "randn_like":
            return normal()
        case "uniform":
            return uniform(*numbers[:2])
        case "rand" | "rand_like":
            return uniform()
        case "exponential":
            rate = numbers[0] if numbers else 1.0
            return Distribution(values=-torch.log1p(-PROBABILITIES) / rate)
        case "bernoulli" if numbers:
            return Distribution(values=(numbers[0] > PROBABILITIES).double())
        case _:
            return None


def recorded(make: Callable[[], _Model]) -> tuple[_Model, dict[str, Drawn]]:
    """Build a model, and read what its parameters are drawn from.

    Args:
        make: builds the model, as often as you like.

    Returns:
        The model, and what is known of its parameters by name.

    Example:
        >>> model, drawn = recorded(lambda: nn.Embedding(10, 4))
        >>> round(drawn["weight"].rms, 12)
        1.0
    """
    with InitRecorder() as recorder:
        model = make()
    return model, recorder.drawn(model)


@contextmanager
def _unwatched() -> Iterator[None]:
    """Compute with tensors of our own, on the CPU and unseen."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def _told(numbers: Any) -> Distribution | None:
    """The law of a tensor that is made of numbers, if they are all the same."""
    leaves = set(tree_flatten(numbers)[0])
    one = leaves.pop() if len(leaves) == 1 else None
    return constant(float(one)) if isinstance(one, int | float) else None


def _opaque(tensor: Tensor) -> bool:
    """Whether nothing is said of a tensor: a shard, several tensors in one, a sparse one."""
    return is_traceable_wrapper_subclass(tensor) or tensor.layout is not torch.strided


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
