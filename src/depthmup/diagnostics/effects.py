"""What weights, and their updates, make of the inputs that a network gives them.

What an update does to a module's output is computed while the module runs, by running it on the
update alone, so it needs a copy of the initial weights and no activation.
"""

import math
from collections.abc import Mapping, Set
from functools import lru_cache, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from depthmup.diagnostics.observations import Collector, Key, shape_of
from depthmup.diagnostics.sharding import whole
from depthmup.measuring import mean_square
from depthmup.rules import Family, Kind, Observable, Role

# A module is taken to be linear in its parameters if the parts add up to the whole this well.
_LINEAR = 1e-2
# Families whose update is a sum over inputs, or the signs of one; orthogonalized ones are not.
_SUMS = (
    *(Family.RAW, Family.ENTRYWISE, Family.RELATIVE),
    *(Family.MATRIX_ENTRYWISE, Family.SHAMPOO_BLOCKS, Family.ADAMUON),
)
# Cosines of all pairs: 512 rows are 131,000 of them, whose mean is sharp enough for a count.
_ROWS = 512


class Effects:
    """Forward hook: the effect of initial weights, and of their updates, on a module's input.

    ``names`` are the model's names of the module's own parameters.
    """

    def __init__(self, collector: Collector, name: str, names: Mapping[str, str]) -> None:
        self.collector, self.name, self.names = collector, name, names
        self.prescriptions = {key: collector.prescriptions[n] for key, n in names.items()}

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        now = {key: getattr(module, key).detach() for key in self.names}
        weights, pattern = self.collector.weights, self.collector.labels(self.name)
        if weights is None:
            self._start(module, args, pattern, output)
            return
        before = {key: whole(weights[name]).to(now[key]) for key, name in self.names.items()}
        updates = {key: p - before[key] for key, p in now.items()}
        # A third of the work, where it is known that a module is linear in its parameters.
        if type(module) is nn.Linear and args:
            parts = {
                key: F.linear(args[0], dw) if dw.ndim == 2 else dw.expand_as(output)
                for key, dw in updates.items()
            }
            base = output - reduce(torch.add, parts.values())
        else:
            base = self._run(module, args, kwargs, before)
            zeros = {key: torch.zeros_like(v) for key, v in before.items()}
            parts = {
                key: self._run(module, args, kwargs, {**zeros, key: update})
                for key, update in updates.items()
            }
            error = mean_square(output - base - sum(parts.values()))
            if error > _LINEAR**2 * (mean_square(output - base) + 1e-12 * mean_square(base)):
                return  # not linear in its parameters: judged by its weights alone
        first, channels = self._common(), 1 if isinstance(module, _ConvNd) else -1
        if first is not None:
            base = apart(base, first, channels)
            parts = {key: apart(part, first, channels) for key, part in parts.items()}
        size = mean_square(base)
        at_the_end = any(p.role.kind is Kind.READOUT for p in self.prescriptions.values())
        narrow = [p for p in self.prescriptions.values() if p.role.narrows]
        if narrow:  # it starts small, as a readout does
            size = narrow[0].folded ** 2 if self.collector.applied else 1.0
        for key, part in parts.items():
            role = self.prescriptions[key].role
            if isinstance(module, nn.Embedding) and role.kind is Kind.READOUT:
                role = Role(kind=Kind.INPUT)  # the other end of a tied readout
            label = f"{pattern}.{key}" if pattern else key
            effect = self.collector.paths.get(self.names[key], math.sqrt(mean_square(part))) ** 2
            summed = self._summed(module, key, args)
            crowding = 1.0 if summed is None else 1 + independent_inputs(summed) / summed.shape[-1]
            by_chance = 0.0
            if summed is not None and effect > 0:
                by_chance = summed.shape[-1] * mean_square(summed) / effect
                by_chance *= mean_square(now[key] - before[key])
            effect /= crowding
            if role.kind is Kind.READOUT:
                self.collector.readouts.append(shape_of(output))
            observable, of = Observable.UPDATE, size
            if self.names[key] in self.collector.paths and self.collector.applied:
                # A path is no part of the output, which starts small behind what narrows.
                of = self.prescriptions[key].folded ** 2
            if role.kind is Kind.READOUT or (at_the_end and role.kind is Kind.VECTOR):
                # The readout starts small: what counts is its part of the logits.
                observable, of = Observable.READOUT_UPDATE, 1.0
            if of > 0:
                named = Key(observable=observable, module=label)
                self.collector.ratio(named, effect, of, role)
                self.collector.chances.setdefault(named, []).append(by_chance)

    def _start(self, module: nn.Module, args: Any, pattern: str, base: Tensor) -> None:
        """What a fresh matrix makes of its input."""
        kinds = Kind.HIDDEN, Kind.READOUT
        matrices = [p for p in self.prescriptions.values() if p.role.kind in kinds]
        if len(matrices) != 1 or isinstance(module, nn.Embedding):
            return
        matrix = matrices[0]
        if matrix.role.kind is Kind.READOUT:
            self.collector.readouts.append(shape_of(base))
            x = args[0] if args and isinstance(args[0], Tensor) else None
            if x is not None and x.is_floating_point() and len(matrix.shape) == 2:
                # The few outputs on the few inputs of a batch scatter; on random inputs of the
                # same size there are as many as one likes.
                generator = torch.Generator().manual_seed(0)
                random = torch.randn(1024, x.shape[-1], generator=generator).to(x)
                alone = {
                    key: p.detach() if self.names[key] == matrix.name else torch.zeros_like(p)
                    for key, p in ((k, getattr(module, k)) for k in self.names)
                }
                base = self._run(module, (random * math.sqrt(mean_square(x)),), {}, alone)
            key = Key(observable=Observable.READOUT, module=pattern)
            self.collector.ratio(key, mean_square(base), 1.0, matrix.role)
        elif matrix.role.in_branch and not matrix.role.last:
            folded = matrix.folded if self.collector.applied else 1.0
            key = Key(observable=Observable.PREACTIVATION, module=pattern)
            self.collector.ratio(key, mean_square(base), folded**2, matrix.role)

    def _common(self) -> int | None:
        """From which dimension on a mean over places is taken away behind the module, if it is.

        A batch norm ignores what all places have in common, a softmax what the keys of one example
        have. Gradients do so as well: no update is aligned with it. Behind an encoder whose places
        are nearly alike it is almost all of a key.
        """
        labels = {self.collector.labels(name) for name in self.names.values()}
        if labels & self.collector.centered:
            return 0
        return 1 if labels & self.collector.keys else None

    def _summed(self, module: nn.Module, key: str, args: Any) -> Tensor | None:
        """The inputs that a matrix's update is a sum over, one row each; None for anything else.

        The update is a sum over inputs (or its signs). On one of them it is aligned with itself,
        of order n for a fan-in of n, and by chance with the B - 1 others, of order sqrt(n B)
        together: 1 + B/n times the square of what is aligned. Theory has n grow past B; where it
        has not, exponents would show it.
        """
        p = self.prescriptions[key]
        x = args[0] if args and isinstance(args[0], Tensor) else None
        summed = p.role.kind in (Kind.HIDDEN, Kind.READOUT)
        if not summed or p.family not in _SUMS or x is None or not x.is_floating_point():
            return None
        rows = patches(module, x.detach())
        if rows is None:
            return None
        if (first := self._common()) is not None:
            rows = apart(rows, first)
        transposed = len(p.shape) == 2 and rows.shape[-1] == p.shape[0]
        return rows if transposed or rows.shape[-1] == math.prod(p.shape[1:]) else None

    def _run(self, module: nn.Module, args: Any, kwargs: Any, values: Mapping[str, Tensor]) -> Any:
        """The module's own forward, without hooks, with other parameters."""
        owned = {key: getattr(module, key) for key in self.names}
        original = {key: p.data for key, p in owned.items()}
        try:
            for key, p in owned.items():
                p.data = values[key]
            return module.forward(*args, **kwargs)
        finally:
            for key, p in owned.items():
                p.data = original[key]


def compare_weights(
    collector: Collector, tensors: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor]
) -> None:
    """Updates relative to weights: entrywise for all, in spectral norm for matrices.

    Those of vectors and tables that start at zero are relative to what they would have started at,
    which follows size in nothing but a multiplier that they carry.
    """
    for name, p in tensors.items():
        prescription = collector.prescriptions[name]
        role = prescription.role
        start = whole(weights[name])
        delta = whole(p) - start
        size = mean_square(start)
        if size == 0 and role.kind in (Kind.VECTOR, Kind.INPUT):
            size = prescription.folded**2 if collector.applied else 1.0
        if size == 0 or not p.requires_grad:
            continue
        label = collector.labels(name)
        key = Key(observable=Observable.ENTRY_UPDATE, module=label)
        collector.ratio(key, mean_square(delta), size, role)
        if p.ndim == 2 and role.kind is Kind.HIDDEN:
            key = Key(observable=Observable.SPECTRAL_UPDATE, module=label)
            collector.ratio(key, spectral_norm(delta) ** 2, spectral_norm(start) ** 2, role)


def bare_readouts(
    collector: Collector, tensors: Mapping[str, nn.Parameter], covered: Set[str]
) -> None:
    """Readouts that are bare parameters, (h * v).sum(-1): judged by what their numbers must give.

    On n random coordinates of order one a fresh readout gives sqrt(n) times its entries; its update
    is aligned with its input and gives n times its own. Both times the model's own constant.
    """
    for name, p in tensors.items():
        prescription = collector.prescriptions[name]
        if name in covered or prescription.role.kind is not Kind.READOUT:
            continue
        own = prescription.laws.forward.at(prescription.ratios) / prescription.folded
        value = whole(p.detach())
        entries, observable = value.numel(), Observable.READOUT
        if collector.weights is not None:
            value, entries = value - whole(collector.weights[name]), entries**2
            observable = Observable.READOUT_UPDATE
        key = Key(observable=observable, module=collector.labels(name))
        collector.ratio(key, own**2 * entries * mean_square(value), 1.0, prescription.role)


def patches(module: nn.Module, x: Tensor) -> Tensor | None:
    """What a plane convolution sums over at each place, [example, place, coordinate].

    Of several groups of channels, the first; x itself if the module is no convolution, None if it
    is another one.
    """
    if not isinstance(module, _ConvNd):
        return x
    if not isinstance(module, nn.Conv2d) or x.ndim != 4 or isinstance(module.padding, str):
        return None
    rows = F.unfold(
        x[:, : module.in_channels // module.groups],
        module.kernel_size,
        module.dilation,
        module.padding,
        module.stride,
    )
    return rows.transpose(1, 2)


def apart(x: Tensor, first: int, channels: int = -1) -> Tensor:
    """A tensor without its mean over all dimensions from ``first`` on but that of its channels."""
    dims = [dim for dim in range(first, x.ndim) if dim != channels % x.ndim]
    return x - x.mean(dims, keepdim=True) if dims else x


def independent_inputs(x: Tensor) -> float:
    """How many independent inputs have the overlaps that these have.

    Of T vectors in n dimensions, the mean squared cosine of two is 1/n if they are independent, and
    more by 1/B if they are B vectors over and over:

        1/B = 1/T + max(mean squared cosine - 1/n, 0).
    """
    rows = x.detach().reshape(-1, x.shape[-1]).float()
    count = len(rows)
    if count > _ROWS:
        generator = torch.Generator().manual_seed(count)
        rows = rows[torch.randperm(count, generator=generator)[:_ROWS].to(rows.device)]
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
    if len(rows) < 2:
        return float(count)
    squared = (rows @ rows.T).square()
    pairs = len(rows) * (len(rows) - 1)
    overlap = float(squared.sum() - squared.diagonal().sum()) / pairs
    return 1 / (1 / count + max(overlap - 1 / x.shape[-1], 0.0))


def spectral_norm(matrix: Tensor, *, iterations: int = 12) -> float:
    """The largest singular value, from below, by power iteration.

    After k iterations a random start is short of the norm by a factor of at most n^(1/4k) or so:
    5% at k = 12 and n = 10^4, alike at all sizes, so exponents do not see it.

    Args:
        matrix: of any shape.
        iterations: of the power method.

    Returns:
        The singular value.

    Example:
        >>> round(spectral_norm(torch.diag(torch.tensor([3.0, 1.0]))), 4)
        3.0

    *Source:* Kuczynski and Wozniakowski (1992), SIAM Journal on Matrix Analysis and
    Applications 13:1094-1122, for the error after k iterations from a random start.
    """
    # One matrix at a time stays in the cache: as one batch they take up to fifteen times as long.
    u = v = _random(matrix.shape[1]).to(matrix)
    # Of a matrix of zeros all lengths are zero. A tensor is added in a third of a number's time.
    smallest = torch.tensor(torch.finfo(matrix.dtype).tiny, device=matrix.device)
    back = matrix.mH
    for _ in range(iterations):
        u = torch.mv(matrix, v / torch.linalg.vector_norm(v).add_(smallest))
        v = torch.mv(back, u)
    length, size = torch.linalg.vector_norm(u), torch.linalg.vector_norm(v)
    return float(size / length.add_(smallest))


@lru_cache(maxsize=64)
def _random(columns: int) -> Tensor:
    return torch.randn(columns, generator=torch.Generator().manual_seed(0))
