"""Observations: what is kept of one forward pass, numbers rather than activations.

Of an activation that must be compared with itself some steps later, a fixed sample of at most
``SAMPLE`` entries is kept: the root mean square of their change has a relative error of
1/sqrt(2 * SAMPLE).
"""

import math
from collections.abc import Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from depthmup.diagnostics.labels import Labels
from depthmup.diagnostics.sharding import whole
from depthmup.measuring import mean_square, reals, sample
from depthmup.planning import Prescription
from depthmup.rules import Kind, Observable, Role
from depthmup.tracing import parameters
from depthmup.tracing.recorder import tensors_of

# Moments that differ by less are those of one distribution, but for a soft cap on the logits.
_ALIKE = 0.01
_AT_THE_END = (Observable.READOUT, Observable.READOUT_UPDATE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One observable of one kind of module; ``module`` is a pattern of names.

    Attributes:
        observable: what is measured of it.
    """

    observable: Observable
    module: str

    def __str__(self) -> str:
        return f"{self.module}: {self.observable}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuringPoint:
    """A tensor of a module's call, times a constant, and the observable that it shows.

    ``side`` is input, output, or difference: the output ``index`` less the input ``subtracted``.
    ``call`` tells which call of the module in a forward pass; ``branch`` is the label of the branch
    that the point shows, if it is one.
    """

    key: Key
    module: str
    side: str
    index: int
    scale: float = 1.0
    subtracted: int = 0
    call: int = 0
    branch: str = ""


@dataclass(frozen=True, kw_only=True)
class Points:
    """Where to look in one model.

    ``heads`` are the sizes of attention heads; ``queries_and_keys`` the patterns of parameters that
    make queries and keys, ``keys_biases`` of those that only shift all logits of a query alike,
    ``undone`` of biases that batch norms take away, ``keys`` of those that a softmax reads as they
    are, ``centered`` of matrices that batch norms alone read: what all places have in common drops
    out behind both. ``apart`` are containers whose children keep their numbers in patterns.

    Attributes:
        points: modules and parameters to observe.
        attention: names of the modules in which attention happens.
        branches: their number.
        hidden_from_view: labels of the points that no module shows.
    """

    points: tuple[MeasuringPoint, ...]
    attention: tuple[str, ...]
    heads: tuple[int, ...]
    branches: int
    hidden_from_view: tuple[str, ...] = ()
    queries_and_keys: frozenset[str] = frozenset()
    keys_biases: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    centered: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class Observation:
    """Root mean squares, and samples of what has to be compared later.

    Attributes:
        values: root mean squares.
        samples: tensors to be compared with later ones, by key and batch.
        roles: of the parameters that keys stand for.
        chances: of an update's effect, the part that it has on any input of the same size.
        finite: whether all activations are.
    """

    values: dict[Key, float] = field(default_factory=dict)
    samples: dict[tuple[Key, int], Tensor] = field(default_factory=dict)
    roles: dict[Key, Role] = field(default_factory=dict)
    chances: dict[Key, float] = field(default_factory=dict)
    finite: bool = True


class Paths:
    """The lengths of the paths that gains and biases take, by name; one ``step`` per step.

    ``unmoved`` are those whose gradients have been rounding alone, beside the others of their
    modules: what they add is taken away behind, by whatever the model or its loss computes there.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = {name: p for name, p in parameters(model).items() if p.requires_grad}
        self._followed = {name: p for name, p in trained.items() if p.ndim == 1}
        self._last = {name: p.detach().clone() for name, p in self._followed.items()}
        self.lengths = dict.fromkeys(self._followed, 0.0)
        modules: dict[str, list[tuple[str, Tensor]]] = {}
        for name, p in trained.items():
            modules.setdefault(name.rpartition(".")[0], []).append((name, p))
        beside = {
            name: [p for other, p in modules[name.rpartition(".")[0]] if other != name]
            for name in self._followed
        }
        self._beside = {name: others for name, others in beside.items() if others}
        self.unmoved = {*self._beside}

    def step(self) -> None:
        # In one order in every process, as what is sharded is made whole.
        for name in [name for name in self._beside if name in self.unmoved]:
            own, *others = (
                mean_square(whole(p.grad)) if p.grad is not None else 0.0
                for p in (self._followed[name], *self._beside[name])
            )
            # Half of the digits are lost, which no sum loses that is not zero.
            if own > torch.finfo(self._followed[name].dtype).eps * max(others):
                self.unmoved.remove(name)
        now = [p.detach() for p in self._followed.values()]
        if not now:
            return
        moves = torch._foreach_sub(now, list(self._last.values()))
        lengths = torch._foreach_norm([reals(whole(move)).float() for move in moves])
        for name, p, length in zip(self._followed, now, torch.stack(lengths).tolist(), strict=True):
            self.lengths[name] += length / math.sqrt(p.numel())
            self._last[name].copy_(p)


class Collector:
    """Squares by key, of one forward pass; entries only where a change will be asked for.

    ``weights``, ``paths`` and the observation ``initial`` are those of ``observe``, ``keys`` and
    ``centered`` those of its points.
    """

    def __init__(
        self,
        labels: Labels,
        prescriptions: Mapping[str, Prescription],
        *,
        applied: bool,
        initial: Observation | None,
        weights: Mapping[str, Tensor] | None,
        paths: Mapping[str, float],
        keys: Set[str],
        centered: Set[str],
    ) -> None:
        self.keys, self.centered = keys, centered
        self.labels, self.prescriptions, self.applied = labels, prescriptions, applied
        self.initial, self.weights, self.paths = initial, weights, paths
        self.squares: dict[Key, list[float]] = {}
        self.samples: dict[tuple[Key, int], Tensor] = {}
        self.roles: dict[Key, Role] = {}
        self.ratios: dict[Key, list[tuple[float, float]]] = {}
        self.chances: dict[Key, list[float]] = {}
        self.readouts: list[tuple[float, ...]] = []  # shapes of what readouts give
        self.logits: tuple[float, ...] = ()

    def attach(self, stack: ExitStack, module: nn.Module, point: MeasuringPoint) -> None:
        """Collect a point at its call of its module, until the stack is left."""
        calls = count()
        for p in self.prescriptions.values() if point.branch else ():
            if p.role.kind is Kind.READOUT and p.role.last and p.branches[-1] == point.branch:
                self.roles[point.key] = p.role  # it adds to the inputs what a readout gives

        def collect(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            # A dropout that several places of a layer share ends a branch at one call alone.
            if next(calls) != point.call:
                return
            inputs, outputs = tensors_of((args, kwargs)), tensors_of(output)
            value = inputs[point.index] if point.side == "input" else outputs[point.index]
            if point.side == "difference":
                value = value - inputs[point.subtracted]
            self.tensor(point.key, value * point.scale)

        stack.callback(module.register_forward_hook(collect, with_kwargs=True).remove)

    def tensor(self, key: Key, value: Tensor) -> None:
        """Collect a tensor's mean square, or that of its change since the first observation.

        A key may come at several calls, which stay in order.
        """
        entries = sample(value)
        taken = self.squares.setdefault(key, [])
        if self.initial is None:
            taken.append(mean_square(value))
            self.samples[key, len(taken) - 1] = entries
        else:
            taken.append(mean_square(entries - self.initial.samples[key, len(taken)]))

    def ratio(self, key: Key, part: float, of: float, role: Role) -> None:
        """Collect an effect beside the size that it is divided by; both are mean squares.

        The size is 1 where the effect itself is asked for.
        """
        self.ratios.setdefault(key, []).append((part, of))
        self.roles[key] = role

    def _factor(self, readout: tuple[float, ...]) -> float:
        """The factor on the logits, if the model's own code or a hook has one.

        Where logits are something else than a multiple of what the readout gives, in any order,
        there is none: forecasts get the mean of the inputs added to them, for one.
        """
        (size, *moments), (whole, *others) = readout, self.logits
        pairs = zip(moments, others, strict=True)
        multiple = size > 0 and all(math.isclose(a, b, abs_tol=_ALIKE) for a, b in pairs)
        return whole / size if multiple else 1.0

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
            if key.observable in _AT_THE_END and len(self.readouts) == 1:
                values[key] *= self._factor(*self.readouts)
        finite = all(math.isfinite(sum(squares)) for squares in self.squares.values())
        chances = {key: sum(parts) / len(parts) for key, parts in self.chances.items()}
        return Observation(
            values=values, samples=self.samples, roles=self.roles, chances=chances, finite=finite
        )


def shape_of(value: Tensor) -> tuple[float, ...]:
    """The root mean square of a tensor's entries, and other moments in its units."""
    entries = reals(value).double()
    size = entries.square().mean().sqrt()
    return (float(size), *(float((entries / size).pow(k).mean()) for k in (1, 3, 4)))
