"""Many networks of one shape, stacked: the plain loop's steps for all of them at once.

A small network's step costs what its hundreds of small operations cost to start. Stacked along a
first dimension of members M, networks share them: transformers of width 32 train about three times
as fast with AdamW on one core. On a GPU, a step of the whole stack is recorded and replayed.

On a CPU with one thread a member's arithmetic does not depend on the other members, where the
memory of each begins at a whole vector register.
"""

import math
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map

from depthmup.training.backend import Progress, one_by_one
from depthmup.training.cuda_graphs import WARM_UP, Capture, NotReplayable, replayed, warn_of
from depthmup.training.loop import Training, check_loss, check_sign, moved
from depthmup.training.updates import Update, updates_of

Tensors: TypeAlias = dict[str, Tensor]
"""By name, each (M, ...)."""

Ended: TypeAlias = tuple[int, "array[float]", float | None]
"""A member, its losses, and that above its ceiling at which it was stopped, if it was."""


def trained_together(
    trainings: Callable[[], Sequence[Training]],
    *,
    record: Capture | None = None,
    on_progress: Progress = lambda fraction: None,
    on_loss: Callable[[int, int, float], None] = lambda member, step, loss: None,
) -> Iterator[Ended]:
    """Train networks that differ in weights, rates and batches alone; yield each as it ends.

    A member that was stopped stays, without effect on the others. ``record`` makes a step's replay.
    """
    ended, told = set[int](), dict[int, int]()

    def tell(member: int, step: int, loss: float) -> None:
        if step > told.get(member, -1):
            told[member] = step
            on_loss(member, step, loss)

    for recorder in (record, None):
        try:
            for end in _trained(trainings(), recorder, on_progress, tell):
                if end[0] not in ended:
                    ended.add(end[0])
                    yield end
        except NotReplayable as reason:
            # Again from the start: recording may have changed what a model keeps beside tensors.
            warn_of(reason)
        else:
            return


def _trained(
    trainings: Sequence[Training],
    record: Capture | None,
    on_progress: Progress,
    on_loss: Callable[[int, int, float], None],
) -> Iterator[Ended]:
    where = torch.device(trainings[0].device)
    seeds = [training.seed for training in trainings]
    sources = {training.seed: training.batch for training in trainings}
    ceilings, steps = [training.ceiling for training in trainings], len(trainings[0].factors)
    losses, limits = [array("f") for _ in seeds], [math.inf] * len(seeds)
    training = set(range(len(seeds)))
    # Captures belong to the current device, which is the first by default.
    with torch.cuda.device(where) if where.type == "cuda" else nullcontext():
        stack = Stack(trainings)
        del trainings  # and their weights
        play: Callable[[], object] = stack
        readings = Readings(len(seeds), steps=steps, device=where)
        for step in range(steps):
            drawn = {seed: draw() for seed, draw in sources.items()}
            if not stack.take(_side_by_side([drawn[seed] for seed in seeds])):
                play = stack  # what was recorded is of batches of another shape
            if record and step == WARM_UP:
                stack.check_fixed()
                play = replayed(stack, stack.state, record)
            else:
                play()
            for at, values in readings(step, stack.losses):
                for member, value in enumerate(values):
                    check_sign(value)
                    if at == 0:
                        limits[member] = ceilings[member](value)
                    if member in training and not value <= limits[member]:  # also where it is NaN
                        training.remove(member)
                        yield member, losses[member], value
                    if member in training:
                        losses[member].append(value)
                        on_loss(member, at, value)
            if not training:
                return
            on_progress((step + 1) / steps)
    for member in sorted(training):
        yield member, losses[member], None


class Stack:
    """The members of a stack, and a training step of all of them, which touches fixed memory."""

    def __init__(self, members: Sequence[Training]) -> None:
        first, networks = members[0], [training.network for training in members]
        device = torch.device(first.device)
        self.network, self.cost, self.clip = networks[0], first.cost, first.clip
        self.weights = _state_of([dict(network.named_parameters()) for network in networks])
        for name, weight in self.weights.items():
            weight.requires_grad_(self.network.get_parameter(name).requires_grad)
        self.buffers = _state_of([dict(network.named_buffers()) for network in networks])
        # Multipliers that weights carry, as in ``clip_grad_norm_``.
        self.folded = {p.name: p.folded for p in first.plan.prescriptions} if first.plan else {}
        self.factors = torch.tensor(first.factors, device=device)  # of the rates, at every step
        self.done = torch.zeros(1, dtype=torch.long, device=device)  # the number of steps taken
        self.losses = torch.zeros(len(members), device=device)  # of the last step
        self.batch: Any = None
        self.updates: list[Update] = []
        self.moving: tuple[str, ...] = ()
        """Weights that the loss depends on; the others stay as they are."""
        self.unfixed = ""
        """A part of the model that a recorded step would not change as the step does."""
        self._members: Sequence[Training] = members  # until the first step

    @property
    def state(self) -> list[Tensor]:
        """What a step changes."""
        of_updates = [tensor for update in self.updates for tensor in update.state]
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
        before = _plain(self.network) if self._members else {}
        over_members = _mapped(self._cost, (0, 0, where))
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels know no members
            losses, buffers = over_members(self.weights, self.buffers, self.batch)
        if self._members:
            check_loss(losses[0])
            after = _plain(self.network)
            self.unfixed = next((k for k in after if before.get(k) != after[k]), self.unfixed)
        losses.sum().backward()
        self.losses.copy_(losses.detach())
        for name, value in buffers.items():
            self._keep(name, value)
        moving = {name: w.grad for name, w in self.weights.items() if w.grad is not None}
        if self._members:
            self._start(tuple(moving))
        if self.moving != tuple(moving):
            raise ValueError(
                "Expected a loss that depends on the same weights at every step. Train these "
                f"trials one by one: {one_by_one()}."
            )
        if self.clip is not None:
            self._clip(self.clip)
        factor = self.factors.index_select(0, self.done).view(())
        for update in self.updates:
            update.move([moving[name] for name in update.names], factor, self.done)
        self.done.add_(1)

    def check_fixed(self) -> None:
        """Refuse to record a step that changes more than the contents of tensors."""
        if self.unfixed:
            raise NotReplayable(f"every step replaces {self.unfixed} of the model")

    def _start(self, moving: tuple[str, ...]) -> None:
        """Updates of the weights that move, which only a step shows."""
        self.moving = moving
        self.updates = updates_of(
            {name: self.weights[name] for name in moving},
            [training.network for training in self._members],
            [training.optimizers for training in self._members],
            len(self.factors),
            at_once=self.losses.device.type == "cuda",
        )
        self._members = ()

    def _cost(self, weights: Tensors, buffers: Tensors, batch: Any) -> tuple[Tensor, Tensors]:
        """The loss of one member, and its buffers after the forward pass."""
        # The call writes into this mapping what becomes of a buffer, even one that is replaced.
        state = {**weights, **buffers}

        def network(*arguments: Any, **named: Any) -> Any:
            return functional_call(self.network, state, arguments, named)

        loss = self.cost(network, batch)
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
                f"these trials one by one: {one_by_one()}."
            ) from error

    return mapped


def _state_of(members: Sequence[Mapping[str, Tensor]]) -> Tensors:
    return {name: torch.stack([own[name].detach() for own in members]) for name in members[0]}


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


EVERY = 32
"""Steps of a GPU between two readings, so that an end is noticed late; of the CPU it is one."""

SECONDS = 1.0
"""After which slow steps are read sooner, so that their progress is seen."""


class Readings:
    """Takes the losses of every step, (members,), and gives those of several steps at once.

    The first step is read at once: it shows which members failed before training.
    """

    def __init__(self, members: int, *, steps: int, device: torch.device) -> None:
        every = EVERY if device.type == "cuda" else 1
        self._rows = torch.empty(every, members, device=device)
        self._steps, self._first, self._read = steps, 0, -math.inf

    def __call__(self, step: int, losses: Tensor) -> list[tuple[int, list[float]]]:
        """The steps since the last reading with all members' losses; none before it is due."""
        count = step - self._first + 1
        self._rows[count - 1].copy_(losses)
        if 0 < step < self._steps - 1 and count < len(self._rows) and not self._overdue():
            return []
        values: list[list[float]] = self._rows[:count].tolist()
        first, self._first, self._read = self._first, step + 1, time.monotonic()
        return list(enumerate(values, first))

    def _overdue(self) -> bool:
        return time.monotonic() - self._read > SECONDS
