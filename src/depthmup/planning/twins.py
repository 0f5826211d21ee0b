"""Twins: a person's own optimizer on small parameters, of which nothing is the person's."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from depthmup._isolated import isolated
from depthmup.planning.likeness import MakeOptimizer
from depthmup.planning.settings import RATES

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
            with _apart():
                return _run(make, lanes, way, device)
        except Exception as error:  # whatever the person's class raises is the cause
            failures.append(error)
    # A closure, or a second step, is only tried where a plain step fails: the first error says why,
    # but for the one that a closure is missing.
    said = [e for e in failures if not (isinstance(e, TypeError) and "closure" in str(e))]
    raise said[0] if said else failures[0]


@contextmanager
def _apart() -> Iterator[None]:
    """Nothing outside is changed: no random number, no words, nothing is compiled."""
    with ExitStack() as stack:
        stack.enter_context(isolated())
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
