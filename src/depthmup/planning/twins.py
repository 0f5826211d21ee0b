"""Twins: a person's own optimizer on small parameters, of which nothing is the person's."""

import copy
import inspect
import sys
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from operator import itemgetter
from types import CellType, CodeType, FunctionType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from depthmup._uncompiled import uncompiled
from depthmup.planning.settings import LR_FACTOR, LR_ORIGIN, RATES, SETTINGS, base_key
from depthmup.planning.several import holders, parts_of

MakeOptimizer: TypeAlias = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

RATE = 1e-3
"""The learning rate of every twin: a usual one, so that a sweep of rates is one measurement."""

DECAY = 0.1
"""The decay of twins that decay, where the person's is not 0. Others have 1e-6 of it: some classes
have another law where it is exactly 0."""

_REST = 0.1
"""Size of what an aligned gradient has beside its outer product."""

EARLY, CHANGED, STEPS = 3, 12, 20
"""Steps that count as early; after which a rate may change, and late ones begin; and all steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One twin: its gradient, and what is changed in the settings of its group.

    ``gradient`` is the size of the entries; 0: none but zeros. ``rate``, ``later``, ``decay`` and
    ``eps`` multiply the settings, ``later`` the rate from step ``CHANGED`` on; ``betas`` multiplies
    1 - beta. ``aligned``: the gradient is an outer product of signs; else it has singular values
    from 1 to 10. Weights are small enough that rounding leaves the steps of small gradients alone.
    """

    shape: tuple[int, ...]
    gradient: float = 1e-2
    weight: float = 0.125
    aligned: bool = True
    rate: float = 1.0
    later: float = 1.0
    decay: float = 1e-6
    eps: float = 1.0
    betas: float = 1.0

    @property
    def group(self) -> tuple[float, ...]:
        """Lanes for which this is equal share a group."""
        return self.rate, self.later, self.decay, self.eps, self.betas


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """What the steps did to one twin: from its start, early, and late; and where to."""

    start: Tensor
    direction: Tensor
    early: Tensor
    late: Tensor
    whole: Tensor


class Unmeasured(ValueError):
    """An optimizer whose steps cannot be tried; its own error is the cause."""


def run(make: MakeOptimizer, lanes: Mapping[str, Lane], *, device: Any = "cpu") -> dict[str, Moved]:
    """Train one twin per lane with one optimizer, and report what moved."""
    failures: list[Exception] = []
    for way in (_by_step, _by_closure, _by_two_steps):
        try:
            with _apart(device):
                return _run(make, lanes, way, device)
        except Exception as error:  # whatever the person's class raises is the cause
            failures.append(error)
    # A closure, or a second step, is only tried where a plain step fails: the first error says why,
    # but for the one that a closure is missing.
    said = [e for e in failures if not (isinstance(e, TypeError) and "closure" in str(e))]
    raise said[0] if said else failures[0]


@contextmanager
def _apart(device: Any) -> Iterator[None]:
    """Nothing outside is changed: no random number, no words, nothing is compiled."""
    with ExitStack() as stack:
        devices = [device] if torch.device(device).type == "cuda" else []
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(redirect_stdout(StringIO()))
        warnings.simplefilter("ignore")
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.manual_seed(0)
        yield


def _run(
    make: MakeOptimizer, lanes: Mapping[str, Lane], way: "_Way", device: Any
) -> dict[str, Moved]:
    starts, gradients, directions = zip(
        *(_tensors(lane, device) for lane in lanes.values()), strict=True
    )
    twins = [nn.Parameter(start.clone()) for start in starts]
    optimizer = make(list(twins))
    lane_of = {id(twin): lane for twin, lane in zip(twins, lanes.values(), strict=True)}
    _split(optimizer, lane_of)
    if callable(train := getattr(optimizer, "train", None)):  # schedule-free
        with suppress(Exception):  # of wrappers that hand it on to what has none
            train()
    generator = torch.Generator().manual_seed(1)
    after: dict[int, list[Tensor]] = {}
    for step in range(1, STEPS + 1):
        size = float(torch.rand((), generator=generator)) + 0.5
        if step == CHANGED + 1:
            _change_rates(optimizer, lane_of)

        def give(size: float = size) -> Tensor:
            for twin, gradient in zip(twins, gradients, strict=True):
                twin.grad = gradient * size
            return torch.ones(())

        way(optimizer, give)
        if step in (EARLY, CHANGED, STEPS):
            after[step] = [twin.detach().clone() for twin in twins]
    return {
        name: Moved(
            start=starts[i].double(),
            direction=directions[i].double(),
            early=(after[EARLY][i] - starts[i]).double(),
            late=(after[STEPS][i] - after[CHANGED][i]).double(),
            whole=(after[STEPS][i] - starts[i]).double(),
        )
        for i, name in enumerate(lanes)
    }


_Way: TypeAlias = Callable[[Any, Callable[[], Tensor]], None]


def _by_step(optimizer: Any, give: Callable[[], Tensor]) -> None:
    give()
    optimizer.step()


def _by_closure(optimizer: Any, give: Callable[[], Tensor]) -> None:
    give()
    optimizer.step(give)


def _by_two_steps(optimizer: Any, give: Callable[[], Tensor]) -> None:
    for step in (optimizer.first_step, optimizer.second_step):
        give()
        step()


def _tensors(lane: Lane, device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Where a twin starts, its gradient, and the outer product of signs that this is most of."""
    generator = torch.Generator().manual_seed(sum(n * 1000**i for i, n in enumerate(lane.shape)))
    start = torch.randn(lane.shape, generator=generator)
    start = start / start.square().mean().sqrt() * lane.weight
    rows, columns = lane.shape[0], lane.shape[1] if len(lane.shape) > 1 else 1
    left, right = (torch.randn(n, 1, generator=generator).sign() for n in (rows, columns))
    direction = left @ right.T
    if columns == 1:
        gradient = direction
    elif lane.aligned:
        # And a little of everything else: what orthogonalizes must not have rounding to act on.
        gradient = direction + _REST * torch.randn(rows, columns, generator=generator)
    else:
        left = torch.linalg.qr(torch.randn(rows, columns, generator=generator))[0]
        right = torch.linalg.qr(torch.randn(columns, columns, generator=generator))[0]
        gradient = rows**0.5 * (left * torch.linspace(0.2, 2.0, columns)) @ right

    def shaped(matrix: Tensor) -> Tensor:
        full = matrix.reshape(*matrix.shape, *[1] * (len(lane.shape) - 2))
        full = full.flatten() if len(lane.shape) < 2 else full.expand(lane.shape)
        return full.contiguous().to(device)

    return start.to(device), shaped(gradient * lane.gradient), shaped(direction)


def _split(optimizer: Any, lane_of: Mapping[int, Lane]) -> None:
    """The optimizer's groups by what their lanes change, as ``rescale`` would split them."""
    groups = []
    for group in optimizer.param_groups:
        parts: dict[object, list[Any]] = {}
        for twin in group["params"]:
            parts.setdefault(lane_of[id(twin)].group, []).append(twin)
        for twins in parts.values():
            lane = lane_of[id(twins[0])]
            groups.append({**group, "params": twins, **_changed(group, lane)})
    optimizer.param_groups[:] = groups


def _changed(group: Mapping[str, Any], lane: Lane) -> dict[str, Any]:
    rate = group.get("lr")
    unit = RATE / float(rate) if rate else 0.0
    changed: dict[str, Any] = {
        key: group[key] * unit * lane.rate if unit else RATE * lane.rate
        for key in RATES
        if group.get(key) is not None and (unit or key == "lr")
    }
    if group.get("weight_decay"):
        changed["weight_decay"] = DECAY * lane.decay
    eps = group.get("eps")
    if isinstance(eps, tuple | list):
        changed["eps"] = (*(e if e is None else e * lane.eps for e in eps[:1]), *eps[1:])
    elif eps is not None:
        changed["eps"] = eps * lane.eps
    betas = group.get("betas")
    if isinstance(betas, tuple | list):
        changed["betas"] = type(betas)(1 - (1 - beta) * lane.betas for beta in betas)
    return changed


def _change_rates(optimizer: Any, lane_of: Mapping[int, Lane]) -> None:
    for group in optimizer.param_groups:
        if group["params"] and "lr" in group:
            group["lr"] = group["lr"] * lane_of[id(group["params"][0])].later


def twin_of(optimizer: Any, group: Mapping[str, Any]) -> MakeOptimizer:
    """A function from small parameters to an optimizer like this one, as it is set up now.

    Everything that the optimizer holds is copied; its parameters, state and hooks are left out.
    """
    return lambda parameters: _copy(optimizer, {**_at_base(group), "params": parameters})


def rebuilt(optimizer: Any, group: Mapping[str, Any]) -> MakeOptimizer:
    """The same by the constructor of its class, from what the optimizer shows of its settings."""
    cls: Any = type(optimizer)
    first, *known = inspect.signature(cls).parameters
    shown = {**vars(optimizer), **getattr(optimizer, "defaults", {}), **_at_base(group)}
    settings = {
        key: value
        for key, value in shown.items()
        if key in known and not any(map(_of_the_person, parts_of(value)))
    }
    wrapped = shown.get(first)  # a wrapper is given its optimizer where others are parameters
    make = rebuilt(wrapped, group) if hasattr(wrapped, "param_groups") else list
    return lambda parameters: cls(make(parameters), **settings)


def _at_base(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's settings before a plan scaled them, without what a plan or a schedule adds."""
    left_out = {LR_FACTOR, LR_ORIGIN, "params", "param_names", *map(base_key, SETTINGS)}
    bases = {key: group[base_key(key)] for key in SETTINGS if base_key(key) in group}
    kept = {key: value for key, value in group.items() if key not in left_out}
    return {**kept, **{key: _like(kept.get(key), base) for key, base in bases.items()}}


def _like(value: Any, base: Any) -> Any:
    """A base's value in the form that the optimizer has it: a rate may have to be a tensor."""
    return torch.full_like(value, base) if isinstance(value, Tensor) else base


def _copy(optimizer: Any, group: dict[str, Any]) -> Any:
    group = {key: v.clone() if isinstance(v, Tensor) else v for key, v in group.items()}
    held = holders(optimizer)
    memo: dict[int, Any] = {id(h): object.__new__(_class_of(h)) for h in held}
    for holder in held:
        for real in vars(holder).get("param_groups", ()):
            memo[id(real)] = group
            memo |= {id(p): group["params"][0] for p in real["params"]}
    for holder in held:
        own = vars(holder)
        if "param_groups" in own:
            memo.setdefault(id(own["param_groups"]), [group])
        if "state" in own:
            memo.setdefault(id(own["state"]), defaultdict(dict))
    for holder in held:
        twin = memo[id(holder)]
        for name, value in vars(holder).items():
            if _wrapped(holder, name):
                continue
            if any(_of_the_model(part, memo) for part in parts_of(value)):
                continue
            if name.startswith("_optimizer_") and name.endswith("_hooks"):
                vars(twin)[name] = OrderedDict()
                continue
            try:
                vars(twin)[name] = copy.deepcopy(value, memo)
            except Exception:  # a process group, a lock: as it is
                vars(twin)[name] = value
    return memo[id(optimizer)]


def _wrapped(holder: object, name: str) -> bool:
    """Whether an attribute is a method that something has wrapped, as schedules do."""
    return callable(vars(holder)[name]) and hasattr(type(holder), name)


def _of_the_person(value: object) -> bool:
    """Whether something trains or is trained, so that a twin which got it would touch it."""
    trains = isinstance(value, nn.Module) or hasattr(value, "param_groups")
    return trains or (isinstance(value, Tensor) and value.numel() > 1)


def _of_the_model(value: object, memo: Mapping[int, Any]) -> bool:
    """Whether something is a model, or as large as one: neither copied nor shared with a twin."""
    if isinstance(value, Tensor):
        return value.numel() > _LARGE and id(value) not in memo
    return isinstance(value, nn.Module)


_LARGE = 2**20
"""Numbers of a tensor that an optimizer may hold beside its state, and that are copied."""


def _class_of(holder: object) -> Any:
    cls: Any = type(holder)
    return uncompiled(cls) if cls.__module__.split(".")[:2] == ["torch", "optim"] else cls


_MEASURED: WeakKeyDictionary[type, dict[object, Any]] = WeakKeyDictionary()


def remembered(
    optimizer: Any, group: Mapping[str, Any], of: object, measure: Callable[[], Any]
) -> Any:
    """A measurement of a class, made once in a process for its code and these settings."""
    known = _MEASURED.setdefault(type(optimizer), {})
    key = (of, _signature(optimizer, group))
    if key not in known:
        known[key] = measure()
    return known[key]


def _signature(optimizer: Any, group: Mapping[str, Any]) -> object:
    held = holders(optimizer)
    codes = tuple(code for h in held for code in _codes(type(h)))
    read = {text for code in codes for text in _texts(code)}
    defaults = {key: None for one in held for key in getattr(one, "defaults", ())}
    settings = {
        key: bool(value) if key == "weight_decay" else _stated(value)
        for key, value in _at_base(group).items()
        if key not in RATES and (key in read or key in defaults or isinstance(value, bool))
    }
    attributes = [
        (name, _stated(value))
        for holder in held
        for name, value in vars(holder).items()
        if name not in _OF_TORCH and not _wrapped(holder, name)
    ]
    by_name = itemgetter(0)
    return codes, tuple(sorted(settings.items(), key=by_name)), *sorted(attributes, key=by_name)


_OF_TORCH = frozenset({"_step_count", "_opt_called"} | vars(torch.optim.SGD([Tensor()])).keys())
"""What every optimizer of torch holds, some of it only with a scheduler: no setting is among it."""


def _stated(value: object, depth: int = 0) -> object:
    """What decides what a setting does; functions by their code and what they close over."""
    if depth > _DEPTH:
        return type(value)
    if isinstance(value, partial):
        value = (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        cells = tuple(cell.cell_contents for cell in value.__closure__ or () if cell != CellType())
        value = (value.__code__, cells, value.__defaults__, value.__kwdefaults__)
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, list | tuple):
        return tuple(_stated(part, depth + 1) for part in value)
    simple = isinstance(value, bool | int | float | str | CodeType | type | None)
    return (type(value), value) if simple else type(value)


_DEPTH = 4
"""Functions that hold functions, lists of lists: how deep settings are compared."""


def _codes(cls: type) -> Sequence[CodeType]:
    return tuple(
        f.__code__
        for base in cls.__mro__
        for value in vars(base).values()
        if isinstance(f := inspect.unwrap(value) if callable(value) else value, FunctionType)
    )


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)
        elif isinstance(constant, tuple):
            yield from (part for part in constant if isinstance(part, str))
