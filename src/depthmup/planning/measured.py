"""How large a model's parameters are: measured on their values, or known from what drew them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from depthmup.planning.initializers import Drawn
from depthmup.planning.resets import by_default
from depthmup.planning.sharded import is_sharded
from depthmup.tracing import parameters, plain_name, unwrapped

# Entries at a time, in double precision 2 MiB: they stay in a processor's cache from one operation
# to the next, which is ten times as fast as 128 MiB.
_CHUNK = 1 << 18
# How far from what drew it a tensor may lie and still be thought to come from there: 5 sigma.
_SIGMAS = 5.0
# Storage in 8 bits of precision rounds by less; quantiles stand for distributions as well.
_ROUNDING = 2e-3
# With this many numbers or more, a tensor shows what it was drawn from.
FEW = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Root mean square and kurtosis (about zero) of one or several tensors.

    ``constant`` is the one value they all have, if they do; ``exact`` says that this is the
    distribution they were drawn from, and no estimate.
    """

    rms: float
    kurtosis: float
    count: int
    constant: float | None = None
    exact: bool = False

    @property
    def error(self) -> float:
        """Standard error of log(rms); infinite of one number, which may be of any distribution."""
        if self.exact or self.count < 2:
            return 0.0 if self.exact else math.inf
        # A few numbers do not show their kurtosis: two have none. It is taken as a normal one's.
        few = self.count < FEW and self.constant is None
        kurtosis = max(self.kurtosis, 3.0) if few else self.kurtosis
        return math.sqrt(max(kurtosis - 1, 0.0) / (4 * self.count))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How large the parameters of one model are, by name.

    ``defaults``: what the modules' own ``reset_parameters`` draw, where the values agree with it.
    """

    measured: Mapping[str, Measured]
    defaults: Mapping[str, Measured] = field(default_factory=dict)


def measure(tensor: Tensor) -> Measured | None:
    """The size of a parameter, a sharded one as a whole; None on meta, where there is none."""
    if tensor.numel() == 0:  # nothing that could start anywhere: as a number that is zero
        return Measured(rms=0.0, kurtosis=1.0, count=1, constant=0.0, exact=True)
    if tensor.is_meta:
        return None
    data = tensor.detach()
    if data.is_complex():  # two numbers each
        data = torch.view_as_real(data)
    if is_sharded(data):
        chunks: Iterable[Tensor] = (data,)
    else:
        chunks = data.reshape(-1).split(_CHUNK)
    squares = fourths = 0.0
    low, high = math.inf, -math.inf
    for chunk in chunks:
        x = chunk.double()
        square = x * x
        squares += _value(square.sum())
        fourths += _value(square.square_().sum())
        lowest, highest = _range(x)
        low, high = min(low, lowest), max(high, highest)
    count = data.numel()
    mean_square = squares / count
    return Measured(
        rms=math.sqrt(mean_square),
        kurtosis=fourths / count / mean_square**2 if mean_square > 0 else 1.0,
        count=count,
        constant=low if low == high else None,
    )


def _range(x: Tensor) -> tuple[float, float]:
    """The smallest and the largest entry; some shards of a tensor may have none."""
    if not is_sharded(x):
        low, high = torch.aminmax(x)
        return float(low), float(high)
    local = x.to_local()
    largest = local.new_full((2,), -math.inf)
    if local.numel():
        low, high = torch.aminmax(local)
        largest = torch.stack((-low, high))
    for dim in range(x.device_mesh.ndim):
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=x.device_mesh.get_group(dim))
    least, most = largest.tolist()
    return -least, most


def _value(scalar: Tensor) -> float:
    return float(scalar.full_tensor() if is_sharded(scalar) else scalar)


def pooled(parts: Sequence[Measured]) -> Measured:
    """Several tensors as one; of one size to the last bit, they were set and not drawn."""
    count = sum(part.count for part in parts)
    square = sum(part.count * part.rms**2 for part in parts) / count
    fourth = sum(part.count * part.kurtosis * part.rms**4 for part in parts) / count
    constants = {part.constant for part in parts}
    return Measured(
        rms=math.sqrt(square),
        kurtosis=fourth / square**2 if square > 0 else 1.0,
        count=count,
        constant=constants.pop() if len(constants) == 1 else None,
        exact=all(part.exact for part in parts)
        or (len(parts) > 1 and len({part.rms for part in parts}) == 1),
    )


def drawn_from(drawn: Drawn | Measured, measured: Measured) -> bool:
    """Whether measured values may come from this distribution.

    A few numbers may be as small as they like, as they often are.
    """
    if drawn.rms == 0 or measured.rms == 0:
        return drawn.rms == measured.rms
    away = math.log(measured.rms / drawn.rms)
    if drawn.constant is not None:
        return abs(away) <= _ROUNDING
    if measured.count < FEW and away < 0:
        return True
    if drawn.kurtosis is None:  # lengths of vectors, say
        error = measured.error
    else:
        error = math.sqrt(max(drawn.kurtosis - 1, 0.0) / (4 * measured.count))
    return abs(away) <= _SIGMAS * error + _ROUNDING


def exactly(drawn: Drawn, count: int) -> Measured:
    """A distribution in the place of a measurement; unknown kurtosis is taken as a normal one's."""
    return Measured(
        rms=drawn.rms,
        kurtosis=drawn.kurtosis or (3.0 if drawn.constant is None else 1.0),
        count=count,
        constant=drawn.constant,
        exact=True,
    )


def known_sizes(model: nn.Module, drawn: Mapping[str, Drawn]) -> dict[str, Measured]:
    """The sizes of those of a model's parameters whose distribution was recorded."""
    plain = {plain_name(name): d for name, d in drawn.items()}
    return {
        name: exactly(plain[name], p.numel())
        for name, p in parameters(model).items()
        if name in plain and p.numel() > 0
    }


def set_numbers(model: nn.Module, names: Iterable[str]) -> dict[str, Drawn]:
    """Parameters of one value, taken for what they are set to and not for a draw."""
    tensors = parameters(model)
    values = {name: measure(tensors[name]) for name in names}
    return {
        name: Drawn(rms=value.rms, constant=value.constant)
        for name, value in values.items()
        if value is not None and value.constant is not None
    }


def sizes_of(model: nn.Module, known: Mapping[str, Measured]) -> Sizes | None:
    """How large a model's parameters are; None if it has no values and not all are known.

    ``known`` are the sizes of what drew them, believed where the values agree.
    """
    estimates = {name: measure(p) for name, p in parameters(model).items()}
    measured = {name: m for name, m in estimates.items() if m is not None}
    if len(measured) < len(estimates):
        measured |= known
        return Sizes(measured=measured) if estimates.keys() <= measured.keys() else None
    measured |= {
        name: known[name]
        for name in measured.keys() & known.keys()
        if drawn_from(known[name], measured[name])
    }
    if all(m.exact for m in measured.values()):
        return Sizes(measured=measured)
    defaults = {plain_name(name): drawn for name, drawn in by_default(unwrapped(model)).items()}
    fitting = {
        name: exactly(drawn, measured[name].count)
        for name, drawn in defaults.items()
        if name in measured and drawn_from(drawn, measured[name])
    }
    return Sizes(measured=measured, defaults=fitting)
