"""What the paper's experiments share: networks, sizes and budgets at every scale, and pictures."""

from typing import Any

from depthmup.claims.claim import Experiment, Setting
from depthmup.records import Picture, Study
from depthmup.sweep import Grid, Store, study

PAPER_STEPS = 39_100  # 50 epochs of CIFAR-10's 50,000 images in batches of 64


def grid(setting: Setting, **changes: Any) -> Grid:
    """The paper's common set-up at a scale, with what an experiment changes.

    One-layer blocks with mean subtraction, U and V frozen, Adam, batch 64; windows of a fifth of
    training at the small scales, of 1000 steps at the paper's.

    *Source:* TP6 (arXiv 2310.02244) Sections 6.3 and 10.2.
    """
    sizes = setting.choose(
        laptop={"width": 64, "depths": (8, 16, 32, 64, 128), "steps": 300, "window": 60},
        medium={"width": 128, "depths": (8, 16, 32, 64, 128, 256), "steps": 300, "window": 60},
        paper={
            "width": 256,
            "depths": (8, 16, 32, 64, 128, 256, 512, 1024),
            "steps": PAPER_STEPS,
            "window": 1000,
        },
    )
    rates = tuple(float(k) for k in range(-7, 1))
    shared = {"log2_lrs": rates, "seeds": 5, "base_depth": 8, "data": setting.data}
    return Grid(**{**shared, **sizes, **changes})


def judged(grid: Grid, store: Store, *, title: str = "") -> Study:
    """The study of a grid that a claim is drawn from."""
    return study(grid, store, title=title or "transfer", config=grid.to_dict(), environment={})


def study_pictures(found: Study, *names: str) -> tuple[Picture, ...]:
    """Charts of a study, with its windows as frames.

    ``names``: ``panels`` (loss against learning rate, one chart per scheme), ``optimum``, ``loss``
    and ``drift``.
    """
    from depthmup.reports import study_specs

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
        pictures.append(Picture(name=name, caption=caption, spec=spec, frames=frames))
    return tuple(pictures)


_CAPTIONS = {
    "panel": "Training loss against log2 learning rate, one line per depth (dark is deep).",
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
