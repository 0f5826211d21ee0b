"""The columns of a table of runs, for every verb that reads one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from depthmup.cli.sizes import parse_pairs


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """The columns of a table of runs."""

    API: ClassVar = ("from_table:fit",)
    AMONG_OWN: ClassVar = True
    """Everybody names columns: help lists them where the verb does."""

    axes: tuple[str, ...] = ()
    """The columns of the sizes: AXIS=COLUMN, or COLUMN where both have one name. Published rules
    are known for width, depth, parameters, compute, batch, tokens and steps."""

    lr: str = ""
    """The column of the tuned hyperparameter, which need not be a learning rate. `depthmup fit`
    takes several that were tuned together: lr,weight_decay."""

    loss: str = ""
    """The column of the final loss: "nan" or "inf" if a run diverged, empty if it is missing."""

    seed: str = ""

    def named(self, **usual: str) -> dict[str, Any]:
        """The arguments of a function that reads a table; ``usual`` where no column was named."""
        axes = parse_pairs(self.axes, option="--axes", value="COLUMN", alone=True)
        given = {"lr": self.lr, "loss": self.loss, "seed": self.seed}
        named = {what: name or usual.get(what, "") for what, name in given.items()}
        several = [column.strip() for column in self.lr.split(",")]
        return {"axes": axes, **named, **({"lr": several} if len(several) > 1 else {})}


EXAMPLE_COLUMNS = RunColumns(
    axes=("depth=n_layers", "width=d_model"), lr="lr", loss="final_loss", seed="seed"
)
"""The columns of the table that ships with this package."""


def table_named(path: Path | str, columns: RunColumns) -> tuple[Path | str, RunColumns]:
    """A table's path and columns; the word "example" is the table that ships, and has its own."""
    from depthmup.tables.formats import EXAMPLE, example

    if str(path) != EXAMPLE:
        return path, columns
    return example(), EXAMPLE_COLUMNS if columns == RunColumns() else columns
