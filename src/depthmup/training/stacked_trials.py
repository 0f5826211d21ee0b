"""Training trials of one shape at once: the loop of ``trial.py`` over networks that are stacked.

A small network's step costs what its hundreds of small operations cost to start. Stacked along a
first dimension of members M, networks share them: transformers of width 32 train about three times
as fast with AdamW on one core.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from depthmup.model import Model, batches_at, resolved
from depthmup.records import Record, Status, Trial
from depthmup.training.data_and_weights import stream
from depthmup.training.divergence import EXPLODED
from depthmup.training.trial import check_loss, planned, prepared, seeded

Weights = dict[str, Tensor]
"""By name, each (M, ...)."""


def run_together(
    trials: Sequence[Trial],
    model: Model,
    *,
    on_progress: Callable[[float], None] = lambda fraction: None,
    on_loss: Callable[[Trial, int, float], None] = lambda trial, step, loss: None,
) -> Iterator[Record[Trial]]:
    """Train trials that differ in learning rate and seed alone; the records of ``run_trial``, to
    rounding.

    For models without buffers and without randomness in training, with AdamW or Muon, whose batches
    are tensors. A member that diverged stays in the stack, where it does not affect the others.

    Args:
        trials: that differ in learning rate and seed alone.
        model: whose trials these are.
        on_progress: called with the fraction of steps done.
        on_loss: called with every trial that has not diverged, every step, and its loss.

    Returns:
        A record of each trial, in their order, after the last step.

    Raises:
        ValueError: the trials, the model or the settings cannot be stacked.
    """
    own = resolved(model)
    if len({replace(trial, lr=0.0, seed=0) for trial in trials}) != 1:
        raise ValueError("Expected trials that differ in learning rate and seed alone.")
    network, weights, updates, rate = _stacked(trials, model)

    def cost(own_weights: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
        outputs = functional_call(network, own_weights, (inputs,))
        loss: Tensor = own.loss(outputs, targets)
        return loss

    generators = {trial.seed: stream(trial.seed, "batches") for trial in trials}
    batch, losses = batches_at(own, trials[0].size), [array("f") for _ in trials]
    limits, ended = [math.inf] * len(trials), [Status.FINISHED] * len(trials)
    for step in range(trials[0].steps):
        drawn = {seed: batch(generator) for seed, generator in generators.items()}
        inputs, targets = (
            torch.stack([drawn[trial.seed][side] for trial in trials]) for side in (0, 1)
        )
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels know no members
            of_members = vmap(cost)(weights, inputs, targets)
        for member, value in enumerate(of_members.tolist()):
            if step == 0:
                check_loss(of_members[member])
                limits[member] = EXPLODED * value
            if ended[member] is Status.FINISHED and not value <= limits[member] < math.inf:
                ended[member] = Status.DIVERGED if step else Status.FAILED
            if ended[member] is Status.FINISHED:
                losses[member].append(value)
                on_loss(trials[member], step, value)
        if Status.FINISHED not in ended:
            break
        for weight in weights.values():
            weight.grad = None
        of_members.sum().backward()
        factor = rate((step + 0.5) / trials[0].steps)
        for update in updates:
            update(factor)
        on_progress((step + 1) / trials[0].steps)
    for trial, status, curve in zip(trials, ended, losses, strict=True):
        yield Record(cell=trial, status=status, losses=curve)


def _stacked(
    trials: Sequence[Trial], model: Model
) -> tuple[nn.Module, Weights, list["_AdamW | _Muon"], Callable[[float], float]]:
    """One network, the weights and updates of all members, and the schedule that they share."""
    members, optimizers, rate = [], [], None
    for trial in trials:
        with seeded(trial.seed):
            network, plan = planned(trial, model)
        torch_optimizers, rate, clip = prepared(trial, network.train(), plan)
        if clip is not None or any(True for _ in network.buffers()):
            raise ValueError(
                "Expected no gradient clipping and a model without buffers; train these trials one "
                "by one, with run_trial."
            )
        members.append(network)
        optimizers.append(torch_optimizers)
    assert rate is not None
    weights = {
        name: torch.stack(
            [dict(network.named_parameters())[name].detach() for network in members]
        ).requires_grad_()
        for name, _ in members[0].named_parameters()
    }
    return members[0], weights, _updates(weights, members, optimizers), rate


def _updates(
    weights: Weights,
    members: Sequence[nn.Module],
    optimizers: Sequence[Sequence[torch.optim.Optimizer]],
) -> list["_AdamW | _Muon"]:
    """One update for each weight, the same as by each member's own optimizer."""
    names = {id(p): name for model in members for name, p in model.named_parameters()}
    rates: dict[str, list[float]] = {name: [] for name in weights}
    updates: dict[str, _AdamW | _Muon] = {}
    for torch_optimizers in optimizers:
        for optimizer in torch_optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    name = names[id(parameter)]
                    rates[name].append(group["lr"])
                    kinds = {torch.optim.AdamW: _AdamW, torch.optim.Muon: _Muon}
                    if type(optimizer) not in kinds:
                        raise ValueError(
                            f"Expected AdamW or Muon; got {type(optimizer).__name__}. Train these "
                            "trials one by one, with run_trial."
                        )
                    if group.get("amsgrad") or group.get("maximize"):
                        raise ValueError(
                            "amsgrad and maximize cannot be stacked. Train these trials one by "
                            "one, with run_trial."
                        )
                    kind = kinds[type(optimizer)]
                    updates.setdefault(name, kind(weight=weights[name], group=group))
    for name, update in updates.items():
        update.rates = torch.tensor(rates[name]).view(-1, *[1] * (weights[name].dim() - 1))
    return list(updates.values())


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
        assert gradient is not None
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
        assert gradient is not None
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
