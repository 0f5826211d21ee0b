"""Which cells the native engine can train."""

from depthmup.records import Cell
from depthmup.training.native.library import ACTIVATIONS

OPTIMIZERS = ("adam", "adamw", "sgd")


def supports(cell: Cell) -> str | None:
    """None if the native engine can train cells of this shape, else why not.

    Example:
        >>> from depthmup.records import Network, Optimizer
        >>> network = Network(inputs=64, outputs=10, width=16, depth=2, multiplier=1.0,
        ...                   input_std=0.125, hidden_std=0.25, readout_std=0.06)
        >>> supports(Cell(network=network, optimizer=Optimizer(name="adam", lr=0.01))) is None
        True
    """
    network, optimizer = cell.network, cell.optimizer
    if network.activation not in ACTIVATIONS:
        return f"the activation {network.activation!r} is not in the kernel"
    if network.nonlinearity not in ("post", "pre"):
        return f"the nonlinearity {network.nonlinearity!r} is not in the kernel"
    if optimizer.name not in OPTIMIZERS:
        return f"the optimizer {optimizer.name!r} is not in the kernel"
    if cell.precision != "float32":
        return f"the precision {cell.precision!r} is not in the kernel"
    return None
