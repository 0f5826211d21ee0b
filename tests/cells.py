"""Cells for tests: small residual MLPs on the digits."""

import random
from array import array

from depthmup.models import ACTIVATIONS
from depthmup.records import Cell, Network, Optimizer, Record, Status


def cell(log2_lr=-4.0, *, seed=0, depth=4, width=16, steps=20, batch_size=32, **options):
    network = {
        name: options.pop(name)
        for name in ("block_depth", "activation", "nonlinearity", "mean_subtraction", "layer_norm")
        if name in options
    }
    multiplier = options.pop("multiplier", depth**-0.5)
    optimizer = {"name": "adam", **options}
    return Cell(
        network=Network(
            inputs=64,
            outputs=10,
            width=width,
            depth=depth,
            multiplier=multiplier,
            input_std=1 / 8,
            hidden_std=width**-0.5,
            readout_std=1 / width,
            **network,
        ),
        optimizer=Optimizer(lr=2.0**log2_lr, **optimizer),
        steps=steps,
        batch_size=batch_size,
        seed=seed,
    )


def record(seed=0, losses=(2.0, 1.5, 1.25), status=Status.FINISHED):
    return Record(cell=cell(seed=seed), status=status, losses=array("f", losses))


def fuzz(count, seed, *, multiple=1):
    """Random small cells; epsilon and rates keep Adam from amplifying rounding.

    Widths and batches are multiples of ``multiple``.
    """
    rng = random.Random(seed)
    for _ in range(count):
        sgd = rng.random() < 0.3
        optimizer = (
            {"name": "sgd", "momentum": rng.choice([0.0, 0.9]), "weight_decay": 0.01}
            if sgd
            else {"name": rng.choice(["adam", "adamw"]), "epsilon": 1e-3}
        )
        yield cell(
            rng.choice([-2.0, -1.0]) if sgd else rng.choice([-8.0, -7.0]),
            seed=rng.randrange(1000),
            width=-(-rng.randint(1, 70) // multiple) * multiple,
            batch_size=-(-rng.randint(1, 70) // multiple) * multiple,
            depth=rng.randint(1, 5),
            block_depth=rng.randint(1, 3),
            activation=rng.choice(list(ACTIVATIONS)),
            nonlinearity=rng.choice(["post", "pre"]),
            mean_subtraction=rng.random() < 0.5,
            layer_norm=rng.random() < 0.3,
            steps=4,
            **optimizer,
        )
