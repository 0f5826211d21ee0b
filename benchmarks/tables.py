"""Tables of runs: what `fit` costs beside pandas' reading of the same file, by the number of rows.

A table has 30 sizes along two axes, five seeds and a random rate for each run; or, of groups, 144
sizes; or, of two values tuned together, five sizes. Every figure is processor time of a process of
its own. A refusal is for an unnamed column.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROWS = (1_000, 10_000, 100_000, 1_000_000)
GROUPED = 250_000
RECIPE = 300

_MEASURED = """
import resource, sys, time
import numpy, pandas
what, path = sys.argv[1:]
asked = dict(axes=["width", "depth"], lr="lr", loss="loss", seed="seed")
if what == "recipe":
    asked = dict(axes=["width"], lr=["lr", "decay"], loss="loss", seed="seed")
if what != "read":
    import depthmup
    first = path if what == "recipe" else path.replace(path.rsplit("/", 1)[1], "1000.csv")
    depthmup.fit(first, **asked)
    if what == "groups":
        asked["by"] = "optimizer"
start = time.process_time()
if what == "read":
    pandas.read_csv(path)
else:
    try:
        depthmup.fit(path, **asked)
    except ValueError as error:
        assert what == "refusal" and "Runs of one size" in str(error), error
    else:
        assert what != "refusal"
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(time.process_time() - start, peak)
"""


def table(*, rounds: int, quick: bool) -> list[str]:
    """A table of rows against seconds of reading, fitting and refusing."""
    counts = ROWS[:3] if quick else ROWS
    lines = [
        "| rows | MB | read_csv | fit | refusal | memory of fit |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in counts:
            plain, mixed = folder / f"{rows}.csv", folder / f"mixed{rows}.csv"
            write(plain, rows)
            write(mixed, rows, column="act")
            (read, _), (fit, memory) = (
                least(measured(what, plain) for _ in range(rounds)) for what in ("read", "fit")
            )
            refusal, _ = least(measured("refusal", mixed) for _ in range(rounds))
            lines.append(
                f"| {rows:,} | {plain.stat().st_size / 1e6:.1f} | {read:.2f} s | {fit:.2f} s | "
                f"{refusal:.2f} s | {memory:.2f} GB |"
            )
        rows = GROUPED // (10 if quick else 1)
        grouped = folder / "grouped.csv"
        write(grouped, rows, sizes=(12, 12), column="optimizer")
        (read, _), (fit, memory) = (
            least(measured(what, grouped) for _ in range(rounds)) for what in ("read", "groups")
        )
        both = folder / "both.csv"
        write_recipe(both)
        recipe, more = least(measured("recipe", both) for _ in range(rounds))
    lines.append(
        f"| {rows:,}, 3 groups of 144 sizes | | {read:.2f} s | {fit:.2f} s | | {memory:.2f} GB |"
    )
    lines.append(f"| {RECIPE}, 2 tuned values | | | {recipe:.2f} s | | {more:.2f} GB |")
    return lines


def least(found: Iterator[tuple[float, float]]) -> tuple[float, float]:
    """The least processor time of several processes, with its memory."""
    return min(found)


def measured(what: str, path: Path) -> tuple[float, float]:
    """Seconds of processor time and GB of memory."""
    command: Sequence[str] = [sys.executable, "-W", "ignore", "-c", _MEASURED, what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def write(path: Path, rows: int, *, sizes: tuple[int, int] = (6, 5), column: str = "") -> None:
    """A table whose best rate moves along both axes, and in each of three values of a column."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    draw: Callable[[int], np.ndarray] = lambda n: rng.integers(0, n, rows)  # noqa: E731
    width, depth, kind = draw(sizes[0]), draw(sizes[1]), draw(3)
    log2 = rng.uniform(-12, -2, rows)
    best = -7 - 0.3 * width + 0.2 * depth + (kind if column else 0)
    noise = 0.01 * rng.standard_normal(rows)
    loss = np.exp(0.7 - 0.05 * width + 0.02 * (log2 - best) ** 2 + noise)
    cells = {"width": 64 * 2**width, "depth": 2 * 2**depth, "lr": 2.0**log2, "seed": draw(5)}
    frame = pd.DataFrame({**cells, "loss": loss})
    if column:
        frame[column] = np.array(["relu", "tanh", "gelu"])[kind]
    frame.to_csv(path, index=False)


def write_recipe(path: Path) -> None:
    """A random search over two values at five sizes, three seeds of which differ by 1%."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    size, seed = np.arange(RECIPE) % 5, rng.integers(0, 3, RECIPE)
    x = rng.uniform(-3, 3, (RECIPE, 2))
    away = x - np.outer(size, [0.2, 0.0])
    rise = 0.05 * away[:, 0] ** 2 + 0.03 * away[:, 1] ** 2 + 0.04 * away.prod(1)
    level = 1 - 0.1 * size + 0.01 * seed + 0.01 * rng.standard_normal(RECIPE)
    cells = {"width": 64 * 2**size, "seed": seed, "lr": 2.0 ** (x[:, 0] - 8)}
    cells |= {"decay": 2.0 ** (x[:, 1] - 3), "loss": np.exp(level + rise)}
    pd.DataFrame(cells).to_csv(path, index=False)
