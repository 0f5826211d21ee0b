"""Updates of stacked weights: what torch's optimizers do, for members with rates of their own."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

Group: TypeAlias = Mapping[str, Any]
"""The settings of a group of torch's optimizer."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """An update of weights that share all settings, and the tensors that it changes.

    ``move(gradients, factor, done)`` takes the factor of the rates, (), and the number of steps
    that were taken before, (1,).
    """

    names: tuple[str, ...]
    state: list[Tensor]
    move: Callable[[list[Tensor], Tensor, Tensor], None]


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
    makers: dict[str, _Maker] = {}
    for optimizer in chain.from_iterable(optimizers):
        for group in optimizer.param_groups:
            for name in (names[id(parameter)] for parameter in group["params"]):
                if name in weights:
                    makers[name] = _maker(optimizer, group)
                    groups.setdefault(name, []).append(group)
    alike: dict[Any, list[str]] = {}
    for name, (first, *_) in groups.items():
        settings = {k: v for k, v in first.items() if k not in ("params", "lr", "weight_decay")}
        alike.setdefault((makers[name], repr(settings)) if at_once else name, []).append(name)
    return [
        _update(together, [weights[name] for name in together], groups, makers[together[0]], steps)
        for together in alike.values()
    ]


def _update(
    names: Sequence[str],
    weights: list[Tensor],
    groups: Mapping[str, Sequence[Group]],
    make: "_Maker",
    steps: int,
) -> Update:
    # One tensor for weights of the same rates: their product with the factor is computed once.
    @cache
    def tensor(values: tuple[float, ...], dimensions: int) -> Tensor:
        made = torch.tensor(values, device=weights[0].device)
        return made.view(-1, *[1] * (dimensions - 1))

    def of_members(setting: str) -> list[Tensor]:
        return [
            tensor(tuple(group[setting] for group in groups[name]), weight.dim())
            for name, weight in zip(names, weights, strict=True)
        ]

    decays = of_members("weight_decay")
    own = _Weights(
        weights=[weight.detach() for weight in weights],
        rates=of_members("lr"),
        decays=decays if any(decay.any() for decay in decays) else [],
        steps=steps,
    )
    state, move = make(own, groups[names[0]][0])
    return Update(names=tuple(names), state=state, move=torch.no_grad()(move))


@dataclass(frozen=True, kw_only=True)
class _Weights:
    """Weights, (M, ...), with their rates and decays, (M, 1, ...); no decays where all are zero."""

    weights: list[Tensor]
    rates: list[Tensor]
    decays: list[Tensor]
    steps: int

    def zeros(self) -> list[Tensor]:
        return [torch.zeros_like(weight) for weight in self.weights]

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


_Move: TypeAlias = Callable[[list[Tensor], Tensor, Tensor], None]
_Maker: TypeAlias = Callable[[_Weights, Group], tuple[list[Tensor], _Move]]


def _maker(optimizer: torch.optim.Optimizer, group: Group) -> _Maker:
    makers: dict[type, _Maker] = {
        torch.optim.SGD: _sgd,
        torch.optim.Adam: _adam,
        torch.optim.AdamW: _adam,
        torch.optim.Muon: _muon,
    }
    if type(optimizer) not in makers:
        raise ValueError(
            f"Expected SGD, Adam, AdamW or Muon; got {type(optimizer).__name__}. Train these "
            "trials one by one: engine='reference'."
        )
    if group.get("amsgrad") or group.get("maximize") or group.get("dampening"):
        raise ValueError(
            "amsgrad, maximize and dampening cannot be stacked. Train these trials one by one: "
            "engine='reference'."
        )
    return makers[type(optimizer)]


def _sgd(own: _Weights, group: Group) -> tuple[list[Tensor], _Move]:
    """w <- w - lr b with b <- momentum b + g."""
    buffers = own.zeros() if group["momentum"] else []

    def move(gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        own.decay_into(gradients)
        directions = gradients
        if buffers:
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, gradients)
            directions = buffers
        if group["nesterov"]:
            directions = list(torch._foreach_add(gradients, buffers, alpha=group["momentum"]))
        own.subtract(directions, factor, [1.0] * len(gradients))

    return buffers, move


def _adam(own: _Weights, group: Group) -> tuple[list[Tensor], _Move]:
    """m and v averages of g and g^2; w <- w - lr m' / (sqrt(v') + eps), and the decay."""
    first, second = own.zeros(), own.zeros()
    beta1, beta2 = group["betas"]
    # 1 - beta^t of both averages, at every step, (steps, 1).
    corrections = [
        torch.tensor([1 - beta**t for t in range(1, own.steps + 1)], device=own.weights[0].device)
        for beta in (beta1, beta2)
    ]

    def move(gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        if group["decoupled_weight_decay"]:
            own.decay(factor)
        else:
            own.decay_into(gradients)
        of_first, of_second = (table.index_select(0, done).view(()) for table in corrections)
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        # In torch's order: epsilon is added to the root of the corrected average.
        sizes = torch._foreach_div(second, of_second)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        torch._foreach_mul_(sizes, of_first)
        directions = list(torch._foreach_div(first, sizes))
        own.subtract(directions, factor, [1.0] * len(directions))

    return [*first, *second], move


def _muon(own: _Weights, group: Group) -> tuple[list[Tensor], _Move]:
    """w <- w - lr sqrt(max(1, out/in)) U V^T of the gradient with Nesterov's momentum."""
    momenta = own.zeros()
    shapes = [weight.shape[-2:] for weight in own.weights]
    rms = group["adjust_lr_fn"] == "match_rms_adamw"
    scales = [
        0.2 * math.sqrt(max(rows, columns)) if rms else math.sqrt(max(1.0, rows / columns))
        for rows, columns in shapes
    ]

    def move(gradients: list[Tensor], factor: Tensor, done: Tensor) -> None:
        own.decay(factor)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = momenta
        if group["nesterov"]:
            ahead = list(torch._foreach_lerp(gradients, momenta, group["momentum"]))
        own.subtract([orthogonalized(one, group) for one in ahead], factor, scales)

    return momenta, move


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
