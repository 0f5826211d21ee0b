"""The ensemble engine: many cells of one network shape, trained as one stacked network.

Letters: E members still alive, L layers, k matrices per branch, n width, B batch; activations are
feature-major, (E, n, B). What makes it fast, and why each is exact:

- Weights are layer-major, (L, k, E, n, n), so one batched product serves all members of a layer,
  and each layer is updated by one fused optimizer step as soon as its gradient is known. One
  gradient buffer therefore serves the whole stack.
- One fused step needs one learning rate. So member e stores W/lr_e, the forward pass multiplies by
  lr_e, and its loss gradient is divided by lr_e: the gradient with respect to W/lr_e is then that
  with respect to W, and a step of learning rate one moves W by lr_e times the optimizer's
  direction, epsilon included.
- Where the activation lets positive factors through, lr_e joins the branch multiplier.

On the CPU a member's arithmetic does not depend on who else is in the ensemble: the same bits come
out for any composition, and a member that diverges is removed without a trace in the others. Two
things are needed for that. One thread: with more, the split of a sum depends on the batch (and they
would not help: products are small, cores are better used by one process each). And members that
start at a whole vector register: where sizes do not provide that, members are trained one by one.

On an accelerator the choice of algorithm may depend on the number of members: there records agree
with those of other company to rounding. A step touches fixed memory and never asks the device for
a number, so that it can be recorded once and replayed (see ``recording``).
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from depthmup.models import activation
from depthmup.records import Cell, Record, Status
from depthmup.training.divergence import ceiling, status_at_init
from depthmup.training.placement import check_precision
from depthmup.training.precision import multiply, single_precision
from depthmup.training.recording import WARM_UP, Recorder
from depthmup.training.setup import Weights, batches, dataset

Progress = Callable[[float], None]

FLOATS_PER_REGISTER = 16  # of AVX-512, and a multiple of every narrower one


@dataclass(kw_only=True)
class _Stack:
    """The residual stack of all members, with its optimizer state and buffers."""

    cell: Cell
    lrs: Tensor  # (E, 1, 1)
    decays: Tensor  # (E, 1, 1), decoupled: lr * weight decay; coupled: weight decay
    weights: Tensor  # (L, k, E, n, n), each member's divided by its learning rate
    moments: list[Tensor]  # like weights: Adam's two, or momentum's one
    x: Tensor  # (L + 1, E, n, B)
    p: Tensor  # (L, k, E, n, B) products W u, before their lr_e where that is deferred
    gradient: Tensor  # (E, n, n)
    branch: Tensor  # (E, n, B), and two more buffers: fresh memory costs more than arithmetic
    other: Tensor
    mean: Tensor  # (E, 1, B)
    step: Tensor

    def __post_init__(self) -> None:
        network = self.cell.network
        self.phi = activation(network.activation)
        self.post = network.nonlinearity == "post"
        # May lr_e wait until the end of the branch?
        self.deferred = self.phi.homogeneous or (not self.post and network.block_depth == 1)
        factor = self.lrs**network.block_depth if self.deferred else 1.0
        self.gain = (network.multiplier * factor) * torch.ones_like(self.lrs)
        # Views made once: a deep narrow stack spends a tenth of its time on making them.
        self.xs = list(self.x)
        self.ps = [list(layer) for layer in self.p]
        self.layers = [list(layer) for layer in self.weights]
        self.states = (
            [
                [[m[i] for m in ms] for i in range(network.block_depth)]
                for ms in zip(*self.moments, strict=True)
            ]
            if self.moments
            else []
        )
        self.decaying = bool(self.decays.any())
        self.exact = self.cell.precision == "float32"
        self.multiply = partial(multiply, precision=self.cell.precision)
        self.averaging = torch.full(
            (len(self.lrs), 1, network.width), 1 / network.width, device=self.lrs.device
        )

    def _enter(self, x: Tensor) -> Tensor:
        if not self.cell.network.layer_norm:
            return x
        return functional.layer_norm(x.transpose(1, 2), x.shape[1:2]).transpose(1, 2)

    def _product(self, layer: int, i: int) -> Tensor:
        p = self.ps[layer][i]
        return p if self.deferred else self.lrs * p

    def forward(self) -> Tensor:
        """From x[0] to x[L], keeping what the backward pass needs."""
        network, branch = self.cell.network, self.branch
        for layer in range(network.depth):
            u = self._enter(self.xs[layer])
            for i in range(network.block_depth):
                if not self.post:
                    u = self.phi.function(u, out=branch)
                self.multiply(self.layers[layer][i], u, out=self.ps[layer][i])
                u = self._product(layer, i)
                if self.post:
                    u = self.phi.function(u, out=branch)
            if network.mean_subtraction:
                u = torch.sub(u, torch.bmm(self.averaging, u, out=self.mean), out=branch)
            torch.mul(u, self.gain, out=branch)
            torch.add(self.xs[layer], branch, out=self.xs[layer + 1])
        return self.xs[network.depth]

    def backward(self, dx: Tensor) -> None:
        """From dx = d loss/d x[L], in place, updating each layer once its gradient is known."""
        network, phi, du, other = self.cell.network, self.phi, self.branch, self.other
        for layer in reversed(range(network.depth)):
            if network.mean_subtraction:
                torch.sub(dx, torch.bmm(self.averaging, dx, out=self.mean), out=du)
                du.mul_(self.gain)
            else:
                torch.mul(dx, self.gain, out=du)
            entered = self._enter(self.xs[layer])
            for i in reversed(range(network.block_depth)):
                before = self._product(layer, i - 1) if i else entered
                if self.post:
                    du.mul_(phi.derivative(self._product(layer, i), out=other))
                u = before if self.post and not i else phi.function(before, out=other)
                if not self.deferred:
                    du.mul_(self.lrs)
                self.multiply(du, u.transpose(1, 2), out=self.gradient)
                transposed = self.layers[layer][i].transpose(1, 2)
                if self.post and not i and not network.layer_norm and self.exact:
                    dx.baddbmm_(transposed, du)
                elif self.post and not i and not network.layer_norm:
                    dx.add_(self.multiply(transposed, du, out=other))
                else:
                    self.multiply(transposed, du, out=other)
                    du, other = other, du
                    if not self.post:
                        du.mul_(phi.derivative(before, out=other))
                self._update(layer, i)
            if network.layer_norm:
                dx.add_(self._leave(du, self.xs[layer], entered))
            elif not self.post:
                dx.add_(du)

    def _leave(self, du: Tensor, x: Tensor, normalized: Tensor) -> Tensor:
        """The backward pass of a LayerNorm without gains."""
        inverse_std = (x.var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        along = (du * normalized).mean(1, keepdim=True)
        return (du - du.mean(1, keepdim=True) - normalized * along) * inverse_std

    def _update(self, layer: int, i: int) -> None:
        o = self.cell.optimizer
        weight = self.layers[layer][i]
        moments = self.states[layer][i] if self.states else []
        if self.decaying and o.name == "adamw":
            weight.mul_(1 - self.lrs * self.decays)
        elif self.decaying:  # coupled: decay joins the gradient of W = lr * weight
            self.gradient.add_(weight * (self.lrs * self.decays))
        if o.name == "sgd":
            direction = self.gradient
            if moments:
                direction = moments[0].mul_(o.momentum).add_(direction)
            weight.sub_(direction)
            return
        # torch.optim.Adam(fused=True) calls this; it has no public form for one tensor at a time.
        torch._fused_adam_(
            [weight],
            [self.gradient],
            [moments[0]],
            [moments[1]],
            [],
            [self.step],
            lr=1.0,
            beta1=o.beta1,
            beta2=o.beta2,
            weight_decay=0.0,
            eps=o.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def keep(self, alive: Tensor) -> "_Stack":
        """The stack of the members at these indices, in the memory of this one."""
        size, network = len(alive), self.cell.network
        for tensor in (self.weights, *self.moments):
            for layer in range(network.depth):
                for i in range(network.block_depth):
                    for new, old in enumerate(alive.tolist()):
                        if new != old:
                            tensor[layer, i, new].copy_(tensor[layer, i, old])
        return _Stack(
            cell=self.cell,
            lrs=self.lrs[alive],
            decays=self.decays[alive],
            weights=self.weights[:, :, :size],
            moments=[moment[:, :, :size] for moment in self.moments],
            x=self.x[:, :size],
            p=self.p[:, :, :size],
            gradient=self.gradient[:size],
            branch=self.branch[:size],
            other=self.other[:size],
            mean=self.mean[:size],
            step=self.step,
        )


def _stack(cells: Sequence[Cell], device: torch.device) -> _Stack:
    """Allocate the stack and draw its initial weights, each seed's once."""
    cell = cells[0]
    network, members = cell.network, len(cells)
    k, n = network.block_depth, network.width
    weights = torch.empty(network.depth, k, members, n, n, device=device)
    for seed in dict.fromkeys(c.seed for c in cells):
        initial = Weights(network=network, seed=seed)
        of_seed = [e for e, c in enumerate(cells) if c.seed == seed]
        for layer in range(network.depth):
            for i in range(k):
                drawn = initial.hidden(layer, i).to(device)
                for e in of_seed:
                    torch.div(drawn, cells[e].optimizer.lr, out=weights[layer, i, e])
    moments = {"sgd": 1 if cell.optimizer.momentum else 0}.get(cell.optimizer.name, 2)

    def per_member(values: list[float]) -> Tensor:
        return torch.tensor(values, device=device).reshape(members, 1, 1)

    return _Stack(
        cell=cell,
        lrs=per_member([c.optimizer.lr for c in cells]),
        decays=per_member([c.optimizer.weight_decay for c in cells]),
        weights=weights,
        moments=[torch.zeros_like(weights) for _ in range(moments)],
        x=torch.empty(network.depth + 1, members, n, cell.batch_size, device=device),
        p=torch.empty(network.depth, k, members, n, cell.batch_size, device=device),
        gradient=torch.empty(members, n, n, device=device),
        branch=torch.empty(members, n, cell.batch_size, device=device),
        other=torch.empty(members, n, cell.batch_size, device=device),
        mean=torch.empty(members, 1, cell.batch_size, device=device),
        step=torch.zeros((), device=device),
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of this process inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_one_shape(cells: Sequence[Cell]) -> None:
    """Refuse cells that cannot be trained as one group.

    Raises:
        ValueError: they differ in more than learning rate, weight decay and seed.
    """
    if len({cell.shape for cell in cells}) != 1:
        raise ValueError(
            f"The {len(cells)} cells of a group may differ in learning rate, weight decay and "
            "seed only. Group them by Cell.shape first."
        )


@dataclass(kw_only=True)
class _Step:
    """One step of all members: from the examples' ``index`` to ``losses`` and new weights."""

    stack: _Stack
    inputs: Tensor  # (examples, features)
    labels: Tensor
    u: Tensor  # (E, n, features)
    v: Tensor  # (E, classes, n)
    index: Tensor  # (E, B)
    losses: Tensor  # (E,)

    def __call__(self) -> None:
        stack = self.stack
        torch.bmm(self.u, self.inputs[self.index].transpose(1, 2), out=stack.x[0])
        logits = torch.bmm(self.v, stack.forward())  # (E, classes, B)
        log_p = functional.log_softmax(logits, 1)
        target = self.labels[self.index].unsqueeze(1)
        torch.neg(log_p.gather(1, target).mean((1, 2)), out=self.losses)
        gradient = log_p.exp_().scatter_add_(1, target, -torch.ones_like(log_p[:, :1]))
        gradient.div_(self.index.shape[1] * stack.lrs)
        stack.step += 1
        stack.backward(torch.bmm(self.v.transpose(1, 2), gradient))

    def keep(self, alive: Tensor) -> "_Step":
        """The step of the members at these indices."""
        return _Step(
            stack=self.stack.keep(alive),
            inputs=self.inputs,
            labels=self.labels,
            u=self.u[alive],
            v=self.v[alive],
            index=self.index[alive],
            losses=self.losses[alive],
        )


def train_ensemble(
    cells: Sequence[Cell],
    *,
    device: str = "cpu",
    record: Recorder | None = None,
    on_progress: Progress = lambda fraction: None,
) -> Iterator[Record]:
    """Train cells that differ only in learning rate, decay and seed; yield each as it ends.

    Members that fail or diverge are yielded at once and leave the ensemble. ``record`` makes of a
    step what is run in its place, e.g. ``recording.cuda_graph``. ``on_progress`` is told the
    fraction of steps done, every step.

    Raises:
        ValueError: the cells do not share everything else, or the device lacks their precision.
    """
    check_one_shape(cells)
    check_precision(cells[0].precision, device)
    where, size = torch.device(device), len(cells)
    network, batch = cells[0].network, cells[0].batch_size
    if where.type == "cpu" and any(
        count % FLOATS_PER_REGISTER for count in (batch, network.width**2, network.width * batch)
    ):
        stacks = [[cell] for cell in cells]
    else:
        stacks = [list(cells)]
    with one_thread(), single_precision(), torch.no_grad():
        for done, stack in enumerate(stacks):
            share, before = len(stack) / size, done * len(stack) / size
            yield from _train(
                stack,
                where,
                record,
                lambda f, b=before, s=share: on_progress(b + s * f),  # type: ignore[misc]
            )


def _first_step(cells: Sequence[Cell], where: torch.device) -> _Step:
    data = dataset(cells[0].data)
    weights = [Weights(network=cells[0].network, seed=c.seed) for c in cells]
    return _Step(
        stack=_stack(cells, where),
        inputs=data.inputs.to(where),
        labels=data.labels.to(where),
        u=torch.stack([w.input() for w in weights]).to(where),
        v=torch.stack([w.readout() for w in weights]).to(where),
        index=torch.empty(len(cells), cells[0].batch_size, dtype=torch.long, device=where),
        losses=torch.empty(len(cells), device=where),
    )


def _train(
    cells: Sequence[Cell],
    where: torch.device,
    record: Recorder | None,
    on_progress: Progress,
) -> Iterator[Record]:
    first, classes = cells[0], dataset(cells[0].data).classes
    of_seed = {seed: batches(replace(first, seed=seed)) for seed in {c.seed for c in cells}}
    order = torch.stack([of_seed[c.seed] for c in cells], 1).to(where)  # (steps, E, B)
    step = _first_step(cells, where)
    play: Callable[[], object] = step
    members = list(cells)
    curves = [array("f") for _ in members]
    limits: list[float] = []

    for t in range(first.steps):
        if record and play is step and t >= WARM_UP:
            play = record(step)
        step.index.copy_(order[t])
        play()
        values = step.losses.tolist()
        if t == 0:
            limits = [ceiling(value, classes) for value in values]
            failed = [status_at_init(value, classes) for value in values]
            ended = {
                e: Record(cell=members[e], status=status, losses=array("f", values[e : e + 1]))
                for e, status in enumerate(failed)
                if status
            }
        else:
            ended = {
                e: Record(cell=members[e], status=Status.DIVERGED, losses=curves[e])
                for e, value in enumerate(values)
                if not value <= limits[e]  # also true of NaN
            }
        yield from ended.values()
        kept = [e for e in range(len(members)) if e not in ended]
        if not kept:
            return
        for e in kept:
            curves[e].append(values[e])
        if ended:
            alive = torch.tensor(kept, device=where)
            play = step = step.keep(alive)
            order = order[:, alive]
            members = [members[e] for e in kept]
            curves = [curves[e] for e in kept]
            limits = [limits[e] for e in kept]
        on_progress((t + 1) / first.steps)
    for cell, curve in zip(members, curves, strict=True):
        yield Record(cell=cell, status=Status.FINISHED, losses=curve)
