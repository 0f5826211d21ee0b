"""Training trials of one shape at once: the loop of ``trial.py`` over networks that are stacked.

A small network's step costs what its hundreds of small operations cost to start. Stacked along a
first dimension of members M, networks share them: transformers of width 32 train about three times
as fast with AdamW on one core. On a GPU, a step of the whole stack is recorded and replayed.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map

from depthmup.model import Model, batches_at, resolved
from depthmup.records import Record, Status, Trial
from depthmup.training.built_in.data_and_weights import stream
from depthmup.training.cuda_graphs import WARM_UP, NotReplayable, Recorder, replayed, warn_of
from depthmup.training.divergence import EXPLODED
from depthmup.training.placement import Progress
from depthmup.training.readings import Readings
from depthmup.training.trial import check_loss, moved, negative, planned, prepared, seeded

Tensors: TypeAlias = dict[str, Tensor]
"""By name, each (M, ...)."""

_Update: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]
"""Moves a weight, given its gradient, the factor of its rates and the number of steps taken."""


def run_together(
    trials: Sequence[Trial],
    model: Model,
    *,
    device: str = "cpu",
    record: Recorder | None = None,
    on_progress: Progress = lambda fraction: None,
    on_loss: Callable[[Trial, int, float], None] = lambda trial, step, loss: None,
) -> Iterator[Record[Trial]]:
    """Train trials that differ in rate and seed alone; records as ``run_trial``'s, to rounding.

    A member that diverged stays, without effect on the others. ``record`` makes a step's replay.
    """
    if len({replace(trial, lr=0.0, seed=0) for trial in trials}) != 1:
        raise ValueError("Expected trials that differ in learning rate and seed alone.")
    told = dict.fromkeys(trials, -1)

    def tell(trial: Trial, step: int, loss: float) -> None:
        if step > told[trial]:
            told[trial] = step
            on_loss(trial, step, loss)

    try:
        records = _trained(trials, model, torch.device(device), record, on_progress, tell)
    except NotReplayable as reason:
        # From the start, as recording may have changed what the model keeps outside of tensors.
        warn_of(reason)
        records = _trained(trials, model, torch.device(device), None, on_progress, tell)
    yield from records


def _trained(
    trials: Sequence[Trial],
    model: Model,
    where: torch.device,
    record: Recorder | None,
    on_progress: Progress,
    on_loss: Callable[[Trial, int, float], None],
) -> list[Record[Trial]]:
    steps = trials[0].steps
    losses = [array("f") for _ in trials]
    limits, ended = [math.inf] * len(trials), [Status.FINISHED] * len(trials)
    # Captures belong to the current device, which is the first by default.
    with torch.cuda.device(where) if where.type == "cuda" else nullcontext():
        stack = _stacked(trials, model, where)
        play: Callable[[], object] = stack
        generators = {trial.seed: stream(trial.seed, "batches") for trial in trials}
        draw = batches_at(resolved(model), trials[0].size)
        readings = Readings(len(trials), steps=steps, device=where)
        for step in range(steps):
            drawn = {seed: draw(generator) for seed, generator in generators.items()}
            batch = _side_by_side([tuple(drawn[trial.seed]) for trial in trials])
            if not stack.take(batch):
                play = stack  # what was recorded is of batches of another shape
            if record and step == WARM_UP:
                stack.check_fixed()
                play = replayed(stack, stack.state, record)
            else:
                play()
            for at, values in readings(step, stack.losses):
                for member, value in enumerate(values):
                    if value < 0:
                        raise negative(value)
                    if at == 0:
                        limits[member] = EXPLODED * value
                    if ended[member] is Status.FINISHED and not value <= limits[member] < math.inf:
                        ended[member] = Status.DIVERGED if at else Status.FAILED
                    if ended[member] is Status.FINISHED:
                        losses[member].append(value)
                        on_loss(trials[member], at, value)
            if Status.FINISHED not in ended:
                break
            on_progress((step + 1) / steps)
    return [
        Record(cell=trial, status=status, losses=curve)
        for trial, status, curve in zip(trials, ended, losses, strict=True)
    ]


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


def _plain(network: nn.Module) -> dict[str, Any]:
    """The numbers and texts that modules keep beside their tensors, such as counters, by name."""
    return {
        f"{name}.{key}".lstrip("."): value
        for name, module in network.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, int | float | str | None)
    }


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


def _interchangeable(one: Any, other: Any) -> bool:
    """Whether a recorded step may find the other in place of one, a tensor's values copied."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype
    plain = isinstance(one, bool | int | float | str)
    return one is other or (plain and type(one) is type(other) and bool(one == other))


@dataclass(kw_only=True)
class _Stack:
    """The members of a stack, and a training step of all of them, which touches fixed memory.

    ``factors`` are those of the learning rate, at every step. ``clip`` is the norm to which each
    member's gradients are clipped, and ``folded`` the multipliers that weights carry, as in
    ``clip_grad_norm_``.
    """

    network: nn.Module
    loss: Callable[[Any, Any], Tensor]
    weights: Tensors
    buffers: Tensors
    updates: dict[str, tuple[list[Tensor], _Update]]  # with the tensors that each changes
    factors: Tensor  # (steps,)
    clip: float | None
    folded: Mapping[str, float]
    done: Tensor  # (1,), the number of steps taken
    losses: Tensor  # (M,), of the last step
    batch: Any = None
    moving: tuple[str, ...] | None = None
    """Weights that the loss depends on; the others stay as they are."""
    unfixed: str = ""
    """A part of the model that a recorded step would not change as the step does."""

    @property
    def state(self) -> list[Tensor]:
        """What a step changes."""
        of_updates = [tensor for state, _ in self.updates.values() for tensor in state]
        of_members = [*self.weights.values(), *self.buffers.values()]
        return [*of_members, *of_updates, self.done, self.losses]

    def take(self, batch: Any) -> bool:
        """The batch of the next step; whether it went into the memory of the last one."""
        (here, shape), (new, other) = tree_flatten(self.batch), tree_flatten(batch)
        if shape != other or not all(map(_interchangeable, here, new)):
            self.batch = moved(batch, str(self.losses.device))
            return False
        for old, values in zip(here, new, strict=True):
            if isinstance(old, Tensor):
                old.copy_(values)
        return True

    def __call__(self) -> None:
        """Move all weights by the gradient of the members' summed loss."""
        for weight in self.weights.values():
            weight.grad = None
        # The dimension of members: what is no tensor is the same for all.
        where = tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, self.batch)
        before = _plain(self.network) if self.moving is None else {}
        over_members = _mapped(self._cost, (0, 0, where))
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels know no members
            losses, buffers = over_members(self.weights, self.buffers, self.batch)
        if self.moving is None:
            check_loss(losses[0])
            after = _plain(self.network)
            self.unfixed = next((k for k in after if before.get(k) != after[k]), self.unfixed)
        losses.sum().backward()
        self.losses.copy_(losses.detach())
        for name, value in buffers.items():
            self._keep(name, value)
        moving = {name: w.grad for name, w in self.weights.items() if w.grad is not None}
        if self.moving not in (None, tuple(moving)):
            raise ValueError(
                "Expected a loss that depends on the same weights at every step. Train these "
                "trials one by one: engine='reference'."
            )
        self.moving = tuple(moving)
        if self.clip is not None:
            self._clip(self.clip)
        factor = self.factors.index_select(0, self.done)
        for name, gradient in moving.items():
            if name in self.updates:
                _, update = self.updates[name]
                update(gradient, factor, self.done)
        self.done.add_(1)

    def check_fixed(self) -> None:
        """Refuse to record a step that changes more than the contents of tensors."""
        if self.unfixed:
            raise NotReplayable(f"every step replaces {self.unfixed} of the model")

    def _cost(self, weights: Tensors, buffers: Tensors, batch: Any) -> tuple[Tensor, Tensors]:
        """The loss of one member, and its buffers after the forward pass."""
        inputs, targets = batch
        # The call writes into this mapping what becomes of a buffer, even one that is replaced.
        state = {**weights, **buffers}
        loss = self.loss(_called(self.network, state, inputs), targets)
        return loss, {name: state[name].detach() for name in buffers}

    def _keep(self, name: str, value: Tensor) -> None:
        own = self.buffers[name]
        if not _interchangeable(own, value):
            self.buffers[name], self.unfixed = value, name
        elif own.data_ptr() != value.data_ptr():
            own.copy_(value)

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


def _stacked(trials: Sequence[Trial], model: Model, device: torch.device) -> _Stack:
    if resolved(model).whole:
        raise ValueError(
            "Expected a model without a training loop of its own: a stack has the library's. "
            "Train these trials one by one: engine='reference'."
        )
    members, optimizers = [], []
    for trial in trials:
        with seeded(trial.seed):
            network, plan = planned(trial, model)
        torch_optimizers, factors, clip = prepared(trial, network.to(device).train(), plan)
        members.append(network)
        optimizers.append(torch_optimizers)
    weights = _state_of([dict(network.named_parameters()) for network in members])
    for name, weight in weights.items():
        weight.requires_grad_(members[0].get_parameter(name).requires_grad)
    steps = trials[0].steps
    return _Stack(
        network=members[0],
        loss=resolved(model).loss,
        weights=weights,
        buffers=_state_of([dict(network.named_buffers()) for network in members]),
        updates=_updates(weights, members, optimizers, steps),
        factors=torch.tensor(factors, device=device),
        clip=clip,
        folded={p.name: p.folded for p in plan.prescriptions},
        done=torch.zeros(1, dtype=torch.long, device=device),
        losses=torch.zeros(len(trials), device=device),
    )


def _state_of(members: Sequence[Mapping[str, Tensor]]) -> Tensors:
    return {name: torch.stack([own[name].detach() for own in members]) for name in members[0]}


def _updates(
    weights: Tensors,
    members: Sequence[nn.Module],
    optimizers: Sequence[Sequence[torch.optim.Optimizer]],
    steps: int,
) -> dict[str, tuple[list[Tensor], _Update]]:
    """One update for each weight, the same as by each member's own optimizer, and its state."""
    names = {id(p): name for model in members for name, p in model.named_parameters()}
    groups: dict[str, list[dict[str, Any]]] = {}
    makers: dict[str, Callable[..., tuple[list[Tensor], _Update]]] = {}
    for optimizer in chain.from_iterable(optimizers):
        for group in optimizer.param_groups:
            for name in (names[id(parameter)] for parameter in group["params"]):
                makers[name] = _maker(optimizer, group)
                groups.setdefault(name, []).append(group)
    updates = {}
    for name, make in makers.items():
        weight = weights[name]
        rates = torch.tensor([group["lr"] for group in groups[name]], device=weight.device)
        by_member = rates.view(-1, *[1] * (weight.dim() - 1))
        updates[name] = make(weight, groups[name][0], by_member, steps)
    return updates


def _maker(
    optimizer: torch.optim.Optimizer, group: Mapping[str, Any]
) -> Callable[..., tuple[list[Tensor], _Update]]:
    makers: dict[type, Callable[..., tuple[list[Tensor], _Update]]]
    makers = {torch.optim.AdamW: _adamw, torch.optim.Muon: _muon}
    if type(optimizer) not in makers:
        raise ValueError(
            f"Expected AdamW or Muon; got {type(optimizer).__name__}. Train these trials one by "
            "one: engine='reference'."
        )
    if group.get("amsgrad") or group.get("maximize"):
        raise ValueError(
            "amsgrad and maximize cannot be stacked. Train these trials one by one: "
            "engine='reference'."
        )
    return makers[type(optimizer)]


def _adamw(
    weight: Tensor, group: Mapping[str, Any], rates: Tensor, steps: int
) -> tuple[list[Tensor], _Update]:
    """m and v averages of g and g^2; w <- w - lr (m' / (sqrt(v') + eps) + decay w)."""
    first, second = (torch.zeros_like(weight.detach()) for _ in range(2))
    beta1, beta2 = group["betas"]
    # 1 - beta^t of both averages, at every step, (steps, 1).
    corrections = [
        torch.tensor([1 - beta**t for t in range(1, steps + 1)], device=weight.device)
        for beta in group["betas"]
    ]

    @torch.no_grad()
    def update(gradient: Tensor, factor: Tensor, done: Tensor) -> None:
        of_first, of_second = (table.index_select(0, done) for table in corrections)
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # In torch's order: epsilon is added to the root of the corrected average.
        size = (second / of_second).sqrt_().add_(group["eps"])
        step = first.div(size).div_(of_first)
        if group["weight_decay"]:
            step.add_(weight, alpha=group["weight_decay"])
        weight.addcmul_(step, rates * factor, value=-1)

    return [first, second], update


def _muon(
    weight: Tensor, group: Mapping[str, Any], rates: Tensor, steps: int
) -> tuple[list[Tensor], _Update]:
    """w <- w - lr sqrt(max(1, out/in)) U V^T of the gradient with Nesterov's momentum."""
    momentum = torch.zeros_like(weight.detach())
    rows, columns = weight.shape[-2:]
    rms = group["adjust_lr_fn"] == "match_rms_adamw"
    scale = 0.2 * math.sqrt(max(rows, columns)) if rms else math.sqrt(max(1.0, rows / columns))

    @torch.no_grad()
    def update(gradient: Tensor, factor: Tensor, done: Tensor) -> None:
        momentum.lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        step, now = orthogonalized(ahead, group), rates * factor
        if group["weight_decay"]:
            weight.mul_(1 - group["weight_decay"] * now)
        weight.addcmul_(step, now, value=-scale)

    return [momentum], update


def orthogonalized(matrices: Tensor, group: Mapping[str, Any]) -> Tensor:
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
