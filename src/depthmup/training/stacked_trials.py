"""Training trials of one shape at once: the loop of ``trial.py`` over networks that are stacked.

A small network's step costs what its hundreds of small operations cost to start. Stacked along a
first dimension of members M, networks share them: transformers of width 32 train about three times
as fast with AdamW on one core.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from depthmup.model import Model, batches_at, resolved
from depthmup.records import Record, Status, Trial
from depthmup.training.built_in.data_and_weights import stream
from depthmup.training.divergence import EXPLODED
from depthmup.training.trial import check_loss, moved, planned, prepared, seeded

Tensors: TypeAlias = dict[str, Tensor]
"""By name, each (M, ...)."""


def run_together(
    trials: Sequence[Trial],
    model: Model,
    *,
    device: str = "cpu",
    on_progress: Callable[[float], None] = lambda fraction: None,
    on_loss: Callable[[Trial, int, float], None] = lambda trial, step, loss: None,
) -> Iterator[Record[Trial]]:
    """Train trials that differ in rate and seed alone; records as ``run_trial``'s, to rounding.

    For models without randomness in training, with AdamW or Muon. A member that diverged stays in
    the stack, where it does not affect the others.
    """
    own = resolved(model)
    if len({replace(trial, lr=0.0, seed=0) for trial in trials}) != 1:
        raise ValueError("Expected trials that differ in learning rate and seed alone.")
    stack = _stacked(trials, model, device)

    def cost(weights: Tensors, buffers: Tensors, batch: Any) -> tuple[Tensor, Tensors]:
        """The loss of one member, and its buffers after the forward pass."""
        inputs, targets = batch
        # The call writes into this mapping what becomes of a buffer, even one that is replaced.
        state = {**weights, **buffers}
        loss: Tensor = own.loss(_called(stack.network, state, inputs), targets)
        return loss, {name: state[name].detach() for name in buffers}

    generators = {trial.seed: stream(trial.seed, "batches") for trial in trials}
    draw, losses = batches_at(own, trials[0].size), [array("f") for _ in trials]
    limits, ended = [math.inf] * len(trials), [Status.FINISHED] * len(trials)
    for step in range(trials[0].steps):
        drawn = {seed: draw(generator) for seed, generator in generators.items()}
        batch = moved(_side_by_side([tuple(drawn[trial.seed]) for trial in trials]), device)
        dimensions = (0, 0, _dimensions(batch))
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels know no members
            of_members, stack.buffers = _mapped(cost, dimensions)(
                stack.weights, stack.buffers, batch
            )
        for member, value in enumerate(of_members.tolist()):
            if step == 0 or value < 0:
                check_loss(of_members[member])
            if step == 0:
                limits[member] = EXPLODED * value
            if ended[member] is Status.FINISHED and not value <= limits[member] < math.inf:
                ended[member] = Status.DIVERGED if step else Status.FAILED
            if ended[member] is Status.FINISHED:
                losses[member].append(value)
                on_loss(trials[member], step, value)
        if Status.FINISHED not in ended:
            break
        stack.step(of_members.sum(), (step + 0.5) / trials[0].steps)
        on_progress((step + 1) / trials[0].steps)
    for trial, status, curve in zip(trials, ended, losses, strict=True):
        yield Record(cell=trial, status=status, losses=curve)


def _mapped(cost: Callable[..., Any], dimensions: tuple[Any, ...]) -> Callable[..., Any]:
    """``cost`` over all members, with an error that says what to do where it cannot be mapped."""
    over_members = vmap(cost, in_dims=dimensions)

    def mapped(*args: Any) -> Any:
        try:
            return over_members(*args)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            raise ValueError(
                "Expected a model that trains without randomness, such as dropout, and without "
                f"values that decide its path; torch.vmap says: {str(error).splitlines()[0]} Train "
                "these trials one by one: engine='reference'."
            ) from error

    return mapped


def _called(network: nn.Module, state: Tensors, inputs: Any) -> Any:
    """The outputs of a network that has this state, for inputs as ``trial.called`` takes them."""
    if isinstance(inputs, Mapping):
        return functional_call(network, state, (), dict(inputs))
    return functional_call(network, state, (inputs,) if isinstance(inputs, Tensor) else inputs)


def _side_by_side(things: Sequence[Any]) -> Any:
    """Tensors of all members stacked, wherever they lie in tuples, lists and mappings."""
    first = things[0]
    if isinstance(first, Tensor):
        return torch.stack(list(things))
    if isinstance(first, Mapping):
        return {key: _side_by_side([thing[key] for thing in things]) for key in first}
    if isinstance(first, tuple | list):
        return tuple(_side_by_side(items) for items in zip(*things, strict=True))
    return first


def _dimensions(batch: Any) -> Any:
    """Along which dimension members lie, in the shape of a batch: 0 of tensors, None of others."""
    if isinstance(batch, Mapping):
        return {key: _dimensions(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_dimensions(value) for value in batch)
    return 0 if isinstance(batch, Tensor) else None


@dataclass(kw_only=True)
class _Stack:
    """The members of a stack: one network that computes, and the state and updates of all.

    ``rate`` is the schedule that all share. ``clip`` is the norm to which each member's gradients
    are clipped, and ``folded`` the multipliers that weights carry, as in ``clip_grad_norm_``.
    """

    network: nn.Module
    weights: Tensors
    buffers: Tensors
    updates: list["_AdamW | _Muon"]
    rate: Callable[[float], float]
    clip: float | None
    folded: Mapping[str, float]

    def step(self, loss: Tensor, fraction: float) -> None:
        """Move all weights by the gradient of the members' summed loss."""
        for weight in self.weights.values():
            weight.grad = None
        loss.backward()
        if self.clip is not None:
            self._clip(self.clip)
        factor = self.rate(fraction)
        for update in self.updates:
            update(factor)

    @torch.no_grad()
    def _clip(self, largest: float) -> None:
        norms = [
            torch.linalg.vector_norm(weight.grad.flatten(1), dim=1) * self.folded.get(name, 1.0)
            for name, weight in self.weights.items()
            if weight.grad is not None
        ]
        total = torch.linalg.vector_norm(torch.stack(norms), dim=0)  # (M,)
        scale = torch.clamp(largest / (total + 1e-6), max=1.0)
        for weight in self.weights.values():
            if weight.grad is not None:
                weight.grad.mul_(scale.view(-1, *[1] * (weight.dim() - 1)))


def _stacked(trials: Sequence[Trial], model: Model, device: str) -> _Stack:
    if resolved(model).whole:
        raise ValueError(
            "Expected a model without a training loop of its own: a stack has the library's. "
            "Train these trials one by one: engine='reference'."
        )
    members, optimizers = [], []
    for trial in trials:
        with seeded(trial.seed):
            network, plan = planned(trial, model)
        torch_optimizers, rate, clip = prepared(trial, network.to(device).train(), plan)
        members.append(network)
        optimizers.append(torch_optimizers)
    weights = _state_of([dict(network.named_parameters()) for network in members])
    for name, weight in weights.items():
        weight.requires_grad_(members[0].get_parameter(name).requires_grad)
    return _Stack(
        network=members[0],
        weights=weights,
        buffers=_state_of([dict(network.named_buffers()) for network in members]),
        updates=_updates(weights, members, optimizers),
        rate=rate,
        clip=clip,
        folded={p.name: p.folded for p in plan.prescriptions},
    )


def _state_of(members: Sequence[Mapping[str, Tensor]]) -> Tensors:
    return {name: torch.stack([own[name].detach() for own in members]) for name in members[0]}


def _updates(
    weights: Tensors,
    members: Sequence[nn.Module],
    optimizers: Sequence[Sequence[torch.optim.Optimizer]],
) -> list["_AdamW | _Muon"]:
    """One update for each weight, the same as by each member's own optimizer."""
    names = {id(p): name for model in members for name, p in model.named_parameters()}
    rates: dict[str, list[float]] = {}
    updates: dict[str, _AdamW | _Muon] = {}
    for torch_optimizers in optimizers:
        for optimizer in torch_optimizers:
            for group in optimizer.param_groups:
                kind = _kind(optimizer, group)
                for parameter in group["params"]:
                    name = names[id(parameter)]
                    rates.setdefault(name, []).append(group["lr"])
                    updates.setdefault(name, kind(weight=weights[name], group=group))
    for name, update in updates.items():
        own = torch.tensor(rates[name], device=weights[name].device)
        update.rates = own.view(-1, *[1] * (weights[name].dim() - 1))
    return list(updates.values())


def _kind(
    optimizer: torch.optim.Optimizer, group: Mapping[str, Any]
) -> "type[_AdamW] | type[_Muon]":
    kinds = {torch.optim.AdamW: _AdamW, torch.optim.Muon: _Muon}
    if type(optimizer) not in kinds:
        raise ValueError(
            f"Expected AdamW or Muon; got {type(optimizer).__name__}. Train these trials one by "
            "one: engine='reference'."
        )
    if group.get("amsgrad") or group.get("maximize"):
        raise ValueError(
            "amsgrad and maximize cannot be stacked. Train these trials one by one: "
            "engine='reference'."
        )
    return kinds[type(optimizer)]


@dataclass(kw_only=True, slots=True)
class _AdamW:
    """m and v averages of g and g^2; w <- w - lr (m' / (sqrt(v') + eps) + decay w)."""

    weight: Tensor
    group: Mapping[str, Any]
    rates: Tensor = field(init=False)
    state: tuple[Tensor, Tensor] | None = None
    steps: int = 0

    @torch.no_grad()
    def __call__(self, factor: float) -> None:
        gradient, group = self.weight.grad, self.group
        if gradient is None:  # a weight that the loss does not depend on stays as it is
            return
        if self.state is None:
            self.state = (torch.zeros_like(gradient), torch.zeros_like(gradient))
        (first, second), (beta1, beta2) = self.state, group["betas"]
        self.steps += 1
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # In torch's order: epsilon is added to the root of the corrected average.
        size = (second / (1 - beta2**self.steps)).sqrt_().add_(group["eps"])
        step = first.div(size).div_(1 - beta1**self.steps)
        if group["weight_decay"]:
            step.add_(self.weight, alpha=group["weight_decay"])
        self.weight.addcmul_(step, self.rates, value=-factor)


@dataclass(kw_only=True, slots=True)
class _Muon:
    """w <- w - lr sqrt(max(1, out/in)) U V^T of the gradient with Nesterov's momentum."""

    weight: Tensor
    group: Mapping[str, Any]
    rates: Tensor = field(init=False)
    momentum: Tensor | None = None

    @torch.no_grad()
    def __call__(self, factor: float) -> None:
        gradient, group = self.weight.grad, self.group
        if gradient is None:  # a weight that the loss does not depend on stays as it is
            return
        if self.momentum is None:
            self.momentum = torch.zeros_like(gradient)
        self.momentum.lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(self.momentum, group["momentum"]) if group["nesterov"] else None
        step = orthogonalized(self.momentum if ahead is None else ahead, group)
        rows, columns = gradient.shape[-2:]
        scale = (
            0.2 * math.sqrt(max(rows, columns))
            if group["adjust_lr_fn"] == "match_rms_adamw"
            else math.sqrt(max(1.0, rows / columns))
        )
        if group["weight_decay"]:
            self.weight.mul_(1 - factor * group["weight_decay"] * self.rates)
        self.weight.addcmul_(step, self.rates, value=-factor * scale)


def orthogonalized(matrices: Tensor, group: Mapping[str, Any]) -> Tensor:
    """About U V^T of matrices U S V^T, (M, out, in): ``torch.optim.Muon``'s quintic iteration.

    ``group`` has its settings; in bfloat16, as there.
    """
    a, b, c = group["ns_coefficients"]
    # Of a tall matrix the transpose: its Gram matrix is the smaller one.
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
