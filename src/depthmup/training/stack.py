"""Many networks of one shape, stacked: a training step of all of them.

Letters: E members, L layers, k matrices per branch, n width, B batch; activations are
feature-major, (E, n, B). What makes it fast, and why each is exact:

- Weights are layer-major, (L, k, E, n, n), so one batched product serves all members of a layer.
  On the CPU each layer is updated as soon as its gradient is known, in one buffer that stays in
  the cache. On a GPU, where one layer's update fills a few of its processors, all are updated at
  once.
- One fused step needs one learning rate. So member e stores W/lr_e, the forward pass multiplies by
  lr_e, and its loss gradient is divided by lr_e: the gradient with respect to W/lr_e is then that
  with respect to W, and a step of learning rate one moves W by lr_e times the optimizer's
  direction, epsilon included.
- Where the activation lets positive factors through, lr_e joins the branch multiplier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from depthmup.records import Cell
from depthmup.training.built_in.activation import activation
from depthmup.training.built_in.data_and_weights import Weights, dataset
from depthmup.training.precision import multiply


@dataclass(kw_only=True)
class Stack:
    """All members with their optimizer state, data and buffers; a call is a training step."""

    cell: Cell
    lrs: Tensor  # (E, 1, 1)
    decays: Tensor  # (E, 1, 1), decoupled: lr * weight decay; coupled: weight decay
    rate: Tensor  # (), the schedule's factor of the learning rate in this step
    weights: Tensor  # (L, k, E, n, n), each member's divided by its learning rate
    moments: list[Tensor]  # like weights: Adam's two, or momentum's one
    x: Tensor  # (L + 1, E, n, B)
    p: Tensor  # (L, k, E, n, B) products W u, before their lr_e where that is deferred
    gradient: Tensor  # of one layer, (E, n, n), or of all, like weights
    branch: Tensor  # (E, n, B), and two more buffers: fresh memory costs more than arithmetic
    other: Tensor
    mean: Tensor  # (E, 1, B)
    step: Tensor
    inputs: Tensor  # (examples, features)
    labels: Tensor
    u: Tensor  # (E, n, features), not trained
    v: Tensor  # (E, classes, n), not trained
    index: Tensor  # (E, B), the examples of this step
    losses: Tensor  # (E,), of the last step

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
        self.at_once = self.gradient.dim() == self.weights.dim()
        self.gradients = [list(layer) for layer in self.gradient] if self.at_once else []
        self.every = (
            [weight for layer in self.layers for weight in layer],
            [gradient for layer in self.gradients for gradient in layer],
            [[m for layer in moment for m in layer] for moment in self.moments],
        )
        self.decaying = bool(self.decays.any())
        o = self.cell.optimizer
        self.scheduled = o.schedule != "constant" or o.warmup > 0
        self.exact = self.cell.precision == "float32"
        self.multiply = partial(multiply, precision=self.cell.precision)
        self.averaging = torch.full(
            (len(self.lrs), 1, network.width), 1 / network.width, device=self.lrs.device
        )

    @property
    def state(self) -> list[Tensor]:
        """What a step changes."""
        return [self.weights, *self.moments, self.step, self.losses]

    def __call__(self) -> None:
        torch.bmm(self.u, self.inputs[self.index].transpose(1, 2), out=self.x[0])
        logits = torch.bmm(self.v, self.forward())  # (E, classes, B)
        log_p = functional.log_softmax(logits, 1)
        target = self.labels[self.index].unsqueeze(1)
        torch.neg(log_p.gather(1, target).mean((1, 2)), out=self.losses)
        gradient = log_p.exp_().scatter_add_(1, target, -torch.ones_like(log_p[:, :1]))
        # Softmax minus one-hot over B, and over lr_e as the weights are W / lr_e.
        gradient.div_(self.index.shape[1] * self.lrs)
        self.step += 1
        self.backward(torch.bmm(self.v.transpose(1, 2), gradient))

    def _enter(self, x: Tensor) -> Tensor:
        if not self.cell.network.layer_norm:
            return x
        return functional.layer_norm(x.transpose(1, 2), x.shape[1:2]).transpose(1, 2)

    def _product(self, layer: int, i: int) -> Tensor:
        p = self.ps[layer][i]
        result: Tensor = p if self.deferred else self.lrs * p
        return result

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
        result: Tensor = self.xs[network.depth]
        return result

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
                gradient = self.gradients[layer][i] if self.at_once else self.gradient
                self.multiply(du, u.transpose(1, 2), out=gradient)
                transposed = self.layers[layer][i].transpose(1, 2)
                direct = self.post and not i and not network.layer_norm  # W's input is the stream
                if direct and self.exact:
                    dx.baddbmm_(transposed, du)
                elif direct:
                    dx.add_(self.multiply(transposed, du, out=other))
                else:
                    self.multiply(transposed, du, out=other)
                    du, other = other, du
                    if not self.post:
                        du.mul_(phi.derivative(before, out=other))
                if not self.at_once:
                    moments = [[m] for m in self.states[layer][i]] if self.states else []
                    self._update([self.layers[layer][i]], [gradient], moments)
            if network.layer_norm:
                dx.add_(self._leave(du, self.xs[layer], entered))
            elif not self.post:
                dx.add_(du)
        if self.at_once:
            self._update(*self.every)

    def _leave(self, du: Tensor, x: Tensor, normalized: Tensor) -> Tensor:
        """The backward pass of a LayerNorm without gains."""
        # The epsilon of functional.layer_norm, by which the way up was computed.
        inverse_std = (x.var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        along = (du * normalized).mean(1, keepdim=True)
        return (du - du.mean(1, keepdim=True) - normalized * along) * inverse_std

    def _update(
        self, weights: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]]
    ) -> None:
        """Update these layers; ``moments`` has a list for each kind of moment."""
        o = self.cell.optimizer
        if self.decaying and o.name == "adamw":
            kept = 1 - (self.lrs * self.rate if self.scheduled else self.lrs) * self.decays
            for weight in weights:
                weight.mul_(kept)
        elif self.decaying:  # coupled: decay joins the gradient of W = lr * weight
            for weight, gradient in zip(weights, gradients, strict=True):
                gradient.add_(weight * (self.lrs * self.decays))
        if o.name == "sgd":
            for i, (weight, direction) in enumerate(zip(weights, gradients, strict=True)):
                if moments:
                    direction = moments[0][i].mul_(o.momentum).add_(direction)
                weight.sub_(self.rate * direction if self.scheduled else direction)
            return
        # torch.optim.Adam(fused=True) calls this; it has no public form for one tensor at a time.
        torch._fused_adam_(
            weights,
            gradients,
            moments[0],
            moments[1],
            [],
            [self.step] * len(weights),
            lr=self.rate if self.scheduled else 1.0,
            beta1=o.beta1,
            beta2=o.beta2,
            weight_decay=0.0,
            eps=o.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def keep(self, alive: Tensor) -> "Stack":
        """The stack of the members at these indices, in the memory of this one."""
        size, network = len(alive), self.cell.network
        for tensor in (self.weights, *self.moments):
            for layer in range(network.depth):
                for i in range(network.block_depth):
                    # Indices increase, so new <= old: nothing is overwritten before it has been
                    # copied.
                    for new, old in enumerate(alive.tolist()):
                        if new != old:
                            tensor[layer, i, new].copy_(tensor[layer, i, old])
        return Stack(
            cell=self.cell,
            lrs=self.lrs[alive],
            decays=self.decays[alive],
            rate=self.rate,
            weights=self.weights[:, :, :size],
            moments=[moment[:, :, :size] for moment in self.moments],
            x=self.x[:, :size],
            p=self.p[:, :, :size],
            gradient=self.gradient[..., :size, :, :],
            branch=self.branch[:size],
            other=self.other[:size],
            mean=self.mean[:size],
            step=self.step,
            inputs=self.inputs,
            labels=self.labels,
            u=self.u[alive],
            v=self.v[alive],
            index=self.index[alive],
            losses=self.losses[alive],
        )


def stack_of(cells: Sequence[Cell], device: torch.device) -> Stack:
    """Allocate the stack and draw its initial weights, each seed's once."""
    cell, data = cells[0], dataset(cells[0].data)
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
    own = [Weights(network=network, seed=c.seed) for c in cells]
    moments = {"sgd": 1 if cell.optimizer.momentum else 0}.get(cell.optimizer.name, 2)

    def per_member(values: list[float]) -> Tensor:
        return torch.tensor(values, device=device).reshape(members, 1, 1)

    return Stack(
        cell=cell,
        lrs=per_member([c.optimizer.lr for c in cells]),
        decays=per_member([c.optimizer.weight_decay for c in cells]),
        rate=torch.ones((), device=device),
        weights=weights,
        moments=[torch.zeros_like(weights) for _ in range(moments)],
        x=torch.empty(network.depth + 1, members, n, cell.batch_size, device=device),
        p=torch.empty(network.depth, k, members, n, cell.batch_size, device=device),
        gradient=torch.empty_like(weights if device.type == "cuda" else weights[0, 0]),
        branch=torch.empty(members, n, cell.batch_size, device=device),
        other=torch.empty(members, n, cell.batch_size, device=device),
        mean=torch.empty(members, 1, cell.batch_size, device=device),
        step=torch.zeros((), device=device),
        inputs=data.inputs.to(device),
        labels=data.labels.to(device),
        u=torch.stack([w.input() for w in own]).to(device),
        v=torch.stack([w.readout() for w in own]).to(device),
        index=torch.empty(members, cell.batch_size, dtype=torch.long, device=device),
        losses=torch.empty(members, device=device),
    )
