"""What the paper's experiments share: networks, sizes and budgets at every scale, and pictures."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from depthmup.claims.claim import Experiment, Setting
from depthmup.records import Picture, Study
from depthmup.rules import Scheme
from depthmup.sweep import Grid, Store, stored_losses, studies, variant_of

if TYPE_CHECKING:
    from depthmup.statistics import Array

PAPER_STEPS = 39_100  # 50 epochs of CIFAR-10's 50,000 images in batches of 64


def grid(setting: Setting, **changes: Any) -> Grid:
    """The paper's common set-up at a scale, with what an experiment changes.

    One-layer blocks with mean subtraction, U and V frozen, Adam, batch 64; windows of a fifth of
    training at the small scales, of 1000 steps at the paper's.

    *Source:* TP6 (arXiv 2310.02244) Sections 6.3 and 10.2.
    """
    sizes = setting.choose(
        laptop={"width": 64, "depths": octaves(8, 128), "steps": 300, "window": 60},
        medium={"width": 128, "depths": octaves(8, 256), "steps": 300, "window": 60},
        paper={
            "width": 256,
            "depths": octaves(8, 1024),
            "steps": PAPER_STEPS,
            "window": 1000,
            "order": "epochs",
        },
    )
    rates = tuple(float(k) for k in range(-7, 1))
    shared = {"log2_lrs": rates, "seeds": 5, "base_depth": 8, "data": setting.data}
    return Grid(**{**shared, **sizes, **changes, **setting.sizes})


def judged(grid: Grid, store: Store) -> Study:
    """The study of a grid that a claim is drawn from."""
    records = store.records(grid.cells)
    (study,) = studies(grid, records, title="transfer", config=grid.to_dict(), environment={})
    return study


def losses_of(
    grid: Grid,
    store: Store,
    scheme: Scheme | None = None,
    *,
    window: int = -1,
    depths: Sequence[int] | None = None,
) -> "Array":
    """Mean losses over a window, (depths, learning rates, seeds), infinite where diverged.

    ``scheme``: the grid's first unless given; ``window`` counts as in ``Grid.window``: -1 is the
    last, -2 the one before; ``depths``: the grid's unless given.
    """
    variant = variant_of(grid, scheme.name if scheme else None)
    points = grid.points(variant, [(grid.width, depth) for depth in depths or grid.depths])
    stop = grid.steps + (window + 1) * grid.window
    return stored_losses(points, store, slice(stop - grid.window, stop))


def at_laptop(setting: Setting, *notes: str) -> tuple[str, ...]:
    """Notes with numbers that were measured at the laptop's default setting, and hold there only.

    Example:
        >>> from depthmup.claims import Scale
        >>> at_laptop(Setting(), "It was 2."), at_laptop(Setting(scale=Scale.PAPER), "It was 2.")
        (('It was 2.',), ())
    """
    return notes if setting == Setting() else ()


def octaves(first: int, last: int) -> tuple[int, ...]:
    """Depths from the first to the last, each twice the one before.

    Example:
        >>> octaves(8, 64)
        (8, 16, 32, 64)
    """
    return tuple(first * 2**k for k in range((last // first).bit_length()))


def by_multiplier(grid: Grid, log2_multipliers: Sequence[float]) -> tuple[Grid, ...]:
    """The same grid at several block multipliers a: a heat map in (log2 eta, log2 a)."""
    return tuple(replace(grid, multiplier=2.0**log2_a) for log2_a in log2_multipliers)


def study_pictures(found: Study, *names: str) -> tuple[Picture, ...]:
    """Charts of a study, with its windows as frames.

    ``names``: ``panels`` (loss against learning rate, one chart per scheme), ``optimum``, ``loss``
    and ``drift``.
    """
    from depthmup.reports import study_legends, study_specs

    sizes, schemes = study_legends(found)
    frames = tuple(f"steps {w.start}–{w.stop}" for w in found.windows)
    titles = [t.title for t in found.headline.transfers]
    pictures = []
    for name, spec in study_specs(found).items():
        kind, _, index = name.partition("-")
        if (kind + "s" if index else kind) not in names:
            continue
        caption = _CAPTIONS[kind]
        if index:
            caption = f"{titles[int(index)]}. {caption}"
        legend = {"panel": sizes, "drift": ()}.get(kind, schemes)
        pictures.append(
            Picture(name=name, caption=caption, spec=spec, frames=frames, legend=legend)
        )
    return tuple(pictures)


_CAPTIONS = {
    "panel": "Training loss against log2 learning rate, one line per depth.",
    "optimum": "The best log2 learning rate against depth, with intervals over seeds.",
    "loss": "The loss at each depth's own best learning rate.",
    "drift": "Drift of the optimum in octaves per doubling of depth.",
}


def sweep_experiment(*grids: Grid, conclude: Any, **config: Any) -> Experiment:
    """An experiment whose results are the cells of grids, each trained once."""
    cells = tuple(dict.fromkeys(cell for each in grids for cell in each.cells))
    return Experiment(
        cells=cells,
        conclude=conclude,
        config={**config, "grids": [each.to_dict() for each in grids]},
    )
