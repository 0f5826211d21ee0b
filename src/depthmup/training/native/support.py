"""Which cells the native engine can train."""

from depthmup.records import Cell
from depthmup.training.native.library import ACTIVATIONS

OPTIMIZERS = ("adam", "adamw", "sgd")


def supports(cell: Cell) -> str | None:
    """None if the native engine can train cells of this shape, else why not.

    Example:
        >>> from depthmup.sweep import Grid
        >>> supports(Grid().cells[0]) is None
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
