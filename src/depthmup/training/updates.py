"""Updates of stacked weights: what torch's optimizers do, for members with rates of their own."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from depthmup._uncompiled import uncompiled
from depthmup.training.backend import one_by_one

Group: TypeAlias = Mapping[str, Any]
"""The settings of a group of torch's optimizer."""


class Update(ABC):
    """An update of weights, (M, ...), that share all settings but their members' rates and decays.

    Rates and decays are (M, 1, ...); there are no decays where all are zero. ``state`` is what the
    update changes beside the weights.
    """

    def __init__(
        self,
        names: Sequence[str],
        weights: Sequence[Tensor],
        groups: Sequence[Sequence[Group]],
        steps: int,
    ) -> None:
        # One tensor for weights of the same rates: their product with the factor is computed once.
        @cache
        def tensor(values: tuple[float, ...], dimensions: int) -> Tensor:
            made = torch.tensor(values, device=weights[0].device)
            return made.view(-1, *[1] * (dimensions - 1))

        def of_members(setting: str) -> list[Tensor]:
            return [
                tensor(tuple(group[setting] for group in of_weight), weight.dim())
                for of_weight, weight in zip(groups, weights, strict=True)
            ]

        self.names, self.group = tuple(names), groups[0][0]
        self.weights = [weight.detach() for weight in weights]
        self.rates, decays = of_members("lr"), of_members("weight_decay")
        self.decays = decays if any(decay.any() for decay in decays) else []
        self.state: list[Tensor] = []
        self.start(steps)

    @abstractmethod
    def start(self, steps: int) -> None:
        """Begin the averages that so many steps need."""

    @abstractmethod
    def move(self, gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        """Take a step: ``factor`` of the rates, (), and the steps that were taken before, (1,)."""

    def zeros(self) -> list[Tensor]:
        """Averages of gradients that begin at zero."""
        made = [torch.zeros_like(weight) for weight in self.weights]
        self.state += made
        return made

    def decay(self, factor: Tensor) -> None:
        """Decoupled from the gradient: w <- w - lr decay w."""
        now = self._rates(factor)
        for weight, rate, decay in zip(self.weights, now, self.decays, strict=False):
            weight.mul_(1 - rate * decay)

    def decay_into(self, gradients: list[Tensor]) -> None:
        """Coupled to it: g <- g + decay w."""
        for weight, gradient, decay in zip(self.weights, gradients, self.decays, strict=False):
            gradient.add_(decay * weight)

    def subtract(self, directions: list[Tensor], factor: Tensor, scales: Sequence[float]) -> None:
        """w <- w - lr scale direction."""
        now = self._rates(factor)
        for weight, rate, direction, scale in zip(
            self.weights, now, directions, scales, strict=True
        ):
            weight.addcmul_(direction, rate, value=-scale)

    def _rates(self, factor: Tensor) -> list[Tensor]:
        distinct = {id(rate): rate for rate in self.rates}
        now = {key: rate * factor for key, rate in distinct.items()}
        return [now[id(rate)] for rate in self.rates]


class _SGD(Update):
    """w <- w - lr b with b <- momentum b + g."""

    def start(self, steps: int) -> None:
        self.buffers = self.zeros() if self.group["momentum"] else []

    @torch.no_grad()
    def move(self, gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        self.decay_into(gradients)
        buffers, momentum, directions = self.buffers, self.group["momentum"], gradients
        if buffers:
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, gradients)
            directions = buffers
        if self.group["nesterov"]:
            directions = list(torch._foreach_add(gradients, buffers, alpha=momentum))
        self.subtract(directions, factor, [1.0] * len(gradients))


class _Adam(Update):
    """m and v averages of g and g^2; w <- w - lr m' / (sqrt(v') + eps), and the decay."""

    def start(self, steps: int) -> None:
        self.first, self.second = self.zeros(), self.zeros()
        # 1 - beta^t of both averages, at every step, (steps, 1).
        self.corrections = [
            torch.tensor([1 - beta**t for t in range(1, steps + 1)], device=self.weights[0].device)
            for beta in self.group["betas"]
        ]

    @torch.no_grad()
    def move(self, gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        if self.group["decoupled_weight_decay"]:
            self.decay(factor)
        else:
            self.decay_into(gradients)
        beta1, beta2 = self.group["betas"]
        of_first, of_second = (table.index_select(0, done).view(()) for table in self.corrections)
        torch._foreach_lerp_(self.first, gradients, 1 - beta1)
        torch._foreach_mul_(self.second, beta2)
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - beta2)
        # In torch's order: epsilon is added to the root of the corrected average.
        sizes = torch._foreach_div(self.second, of_second)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, self.group["eps"])
        torch._foreach_mul_(sizes, of_first)
        directions = list(torch._foreach_div(self.first, sizes))
        self.subtract(directions, factor, [1.0] * len(directions))


class _Muon(Update):
    """w <- w - lr sqrt(max(1, out/in)) U V^T of the gradient with Nesterov's momentum."""

    def start(self, steps: int) -> None:
        self.momenta = self.zeros()
        shapes = [weight.shape[-2:] for weight in self.weights]
        rms = self.group["adjust_lr_fn"] == "match_rms_adamw"
        self.scales = [
            0.2 * math.sqrt(max(rows, columns)) if rms else math.sqrt(max(1.0, rows / columns))
            for rows, columns in shapes
        ]

    @torch.no_grad()
    def move(self, gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        self.decay(factor)
        momentum = self.group["momentum"]
        torch._foreach_lerp_(self.momenta, gradients, 1 - momentum)
        ahead = self.momenta
        if self.group["nesterov"]:
            ahead = list(torch._foreach_lerp(gradients, self.momenta, momentum))
        self.subtract([orthogonalized(one, self.group) for one in ahead], factor, self.scales)


def updates_of(
    weights: Mapping[str, Tensor],
    members: Sequence[nn.Module],
    optimizers: Sequence[Sequence[torch.optim.Optimizer]],
    steps: int,
    *,
    at_once: bool,
) -> list[Update]:
    """Updates of these weights, (M, ...), each as by its members' own optimizers.

    ``at_once``: all weights of the same settings in a few launches. On a CPU one weight after the
    other stays in the cache.
    """
    names = {id(p): name for model in members for name, p in model.named_parameters()}
    groups: dict[str, list[Group]] = {}
    kinds: dict[str, type[Update]] = {}
    for optimizer in chain.from_iterable(optimizers):
        for group in optimizer.param_groups:
            for name in (names[id(parameter)] for parameter in group["params"]):
                if name in weights:
                    kinds[name] = _kind(optimizer, group)
                    groups.setdefault(name, []).append(group)
    alike: dict[Any, list[str]] = {}
    for name, (first, *_) in groups.items():
        settings = {k: v for k, v in first.items() if k not in ("params", "lr", "weight_decay")}
        alike.setdefault((kinds[name], repr(settings)) if at_once else name, []).append(name)
    return [
        kinds[same[0]](same, [weights[n] for n in same], [groups[n] for n in same], steps)
        for same in alike.values()
    ]


def _kind(optimizer: torch.optim.Optimizer, group: Group) -> type[Update]:
    kinds: dict[type, type[Update]] = {
        torch.optim.SGD: _SGD,
        torch.optim.Adam: _Adam,
        torch.optim.AdamW: _Adam,
        torch.optim.Muon: _Muon,
    }
    kinds |= {uncompiled(made_by): kind for made_by, kind in kinds.items()}
    if type(optimizer) not in kinds:
        raise ValueError(
            f"Expected SGD, Adam, AdamW or Muon; got {type(optimizer).__name__}. Train these "
            f"trials one by one: {one_by_one()}."
        )
    if group.get("amsgrad") or group.get("maximize") or group.get("dampening"):
        raise ValueError(
            "amsgrad, maximize and dampening cannot be stacked. Train these trials one by one: "
            f"{one_by_one()}."
        )
    return kinds[type(optimizer)]


def orthogonalized(matrices: Tensor, group: Group) -> Tensor:
    """About U V^T of U S V^T, (M, out, in): ``torch.optim.Muon``'s iteration, in bfloat16."""
    a, b, c = group["ns_coefficients"]
    # Of a tall matrix the transpose: its Gram matrix is the smaller one.
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
