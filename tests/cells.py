"""Cells for tests: small residual MLPs on the digits."""

from depthmup.records import Cell, Network, Optimizer


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
