"""What one would use without this library.

A function of cells prepares them and returns a function that trains them for a number of steps and
goes on from there when it is called again; only that function's time counts.
"""

from collections.abc import Callable, Sequence
from itertools import cycle, islice

import torch
from torch.nn import functional

from depthmup.records import Cell
from depthmup.training import Weights, batches, build, dataset

Train = Callable[[int], None]


def plain_loop(cells: Sequence[Cell], *, fused: bool) -> Train:
    """One network after another: autograd, and torch's own Adam."""
    data, prepared = dataset(cells[0].data), []
    for cell in cells:
        model, o = build(cell), cell.optimizer
        optimizer = torch.optim.Adam(
            [p for p in model.parameters() if p.requires_grad],
            lr=o.lr,
            betas=(o.beta1, o.beta2),
            eps=o.epsilon,
            fused=fused,
        )
        prepared.append((model, optimizer, cycle(batches(cell))))

    def train(steps: int) -> None:
        for model, optimizer, order in prepared:
            for index in islice(order, steps):
                loss = functional.cross_entropy(model(data.inputs[index]), data.labels[index])
                float(loss.detach())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return train


def jax_loop(cells: Sequence[Cell]) -> Train:
    """All networks at once: ``jit`` of ``vmap`` over members, ``scan`` over layers.

    For the paper's network with abs, mean subtraction and Adam, as the benchmark trains.
    """
    import jax
    import jax.numpy as jnp

    cell, data = cells[0], dataset(cells[0].data)
    network, o = cell.network, cell.optimizer
    inputs, labels = jnp.asarray(data.inputs.numpy()), jnp.asarray(data.labels.numpy())
    initial = [Weights(network=network, seed=c.seed) for c in cells]
    u = jnp.stack([w.input().numpy() for w in initial])
    v = jnp.stack([w.readout().numpy() for w in initial])
    layers = range(network.depth)
    w = jnp.stack([torch.stack([i.hidden(layer, 0) for layer in layers]).numpy() for i in initial])
    rates = jnp.asarray([c.optimizer.lr for c in cells])
    order = jnp.stack([batches(c).numpy() for c in cells], 1)

    def loss_of(w: jax.Array, u: jax.Array, v: jax.Array, index: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            branch = jnp.abs(x @ weight.T)
            branch = branch - branch.mean(-1, keepdims=True)
            return x + network.multiplier * branch, None

        x, _ = jax.lax.scan(layer, inputs[index] @ u.T, w)
        log_p = jax.nn.log_softmax(x @ v.T)
        return -jnp.take_along_axis(log_p, labels[index][:, None], 1).mean()

    def step(w, m, s, t, rate, u, v, index):
        loss, gradient = jax.value_and_grad(loss_of)(w, u, v, index)
        m = o.beta1 * m + (1 - o.beta1) * gradient
        s = o.beta2 * s + (1 - o.beta2) * gradient**2
        root = jnp.sqrt(s / (1 - o.beta2**t)) + o.epsilon
        return w - rate / (1 - o.beta1**t) * m / root, m, s, loss

    many = jax.jit(jax.vmap(step, (0, 0, 0, None, 0, 0, 0, 0)), donate_argnums=(0, 1, 2))
    state = [w, jnp.zeros_like(w), jnp.zeros_like(w)]
    # Compiled before the clock starts.
    state[:3] = many(*state, jnp.float32(1), 0 * rates, u, v, order[0])[:3]
    jax.block_until_ready(state)
    taken = 0

    def train(steps: int) -> None:
        nonlocal taken
        for _ in range(steps):
            taken += 1
            index = order[taken % len(order)]
            *state[:3], loss = many(*state, jnp.float32(taken), rates, u, v, index)
            loss.tolist()

    return train
