"""Tables as text, for terminals, logs and pipes."""

import io
from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Rows as lines with columns of one width; columns that are not ``left`` end flush right.

    Example:
        >>> aligned([("depth", "loss"), ("8", "0.48")], left=())
        ['depth  loss', '    8  0.48']
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(len(rows[0]) if rows else 0):
        table.add_column(justify="left" if column in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # no markup: a name may hold brackets
    file = io.StringIO()
    # In Jupyter a console would show the table and write nothing.
    console = Console(file=file, width=100_000, color_system=None, force_jupyter=False)
    console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]
