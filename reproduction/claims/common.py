"""What the paper's experiments share: networks, sizes and budgets at every scale, and pictures."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from depthmup.records import Cell, Study
from depthmup.rules import Scheme
from depthmup.sweep import Records, Store, Sweep, rate_unit, studies
from reproduction.claims.claim import Experiment, Setting
from reproduction.evidence import Picture
from reproduction.runs import along_depth

if TYPE_CHECKING:
    from depthmup.statistics import Array

PAPER_STEPS = 39_100  # 50 epochs of CIFAR-10's 50,000 images in batches of 64


def networks(setting: Setting, **changes: Any) -> Sweep:
    """The paper's common set-up at a scale, with what an experiment changes.

    One-layer blocks with mean subtraction, U and V frozen, Adam, batch 64; windows of a fifth of
    training at the small scales, of 1000 steps at the paper's. ``log2_lrs`` are in units of muP's
    rate, 1 / width, as on the axes of the paper's figures; ``changes`` are fields of the networks
    and of the design.

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
    values = {**shared, **sizes, **changes, **setting.sizes}
    return along_depth(multipliers=values.pop("multiplier", 1.0), **values)


def depths_of(sweep: Sweep) -> tuple[int, ...]:
    """The depths of a sweep, increasing."""
    return sweep.design.arm("depth")


def base_depth(sweep: Sweep) -> int:
    """The depth at which all schemes agree."""
    return sweep.design.base["depth"]


def rates_of(sweep: Sweep) -> tuple[float, ...]:
    """log2 learning rates in units of muP's, as on the axes of the paper's figures."""
    design = sweep.design
    unit = math.log2(rate_unit(design.variant().optimizer, design.base["width"]))
    # Whole octaves again, whatever rounding a logarithm of the unit leaves.
    return tuple(round(log2_lr - unit, 9) for log2_lr in design.log2_lrs)


def beyond_base(sweep: Sweep) -> tuple[int, ...]:
    """Its depths but those up to the base's."""
    return tuple(depth for depth in depths_of(sweep) if depth > base_depth(sweep))


def cell_of(sweep: Sweep, depth: int, seed: int) -> Cell:
    """The run of a sweep's first scheme at a depth, at its first learning rate."""
    size = {**sweep.design.base, "depth": depth}
    run: Cell = sweep.run(sweep.design.variant(), size, sweep.design.log2_lrs[0], seed)
    return run


def judged(sweep: Sweep, store: Store) -> Study:
    """The study of a sweep that a claim is drawn from."""
    return judged_from(sweep, store.records(sweep.runs))


def judged_from(sweep: Sweep, records: Records, *, steps: Sequence[slice] | None = None) -> Study:
    """The same from records."""
    (study,) = studies(
        sweep, records, title="transfer", config=sweep.config, environment={}, steps=steps
    )
    return study


def losses_of(
    sweep: Sweep,
    store: Store,
    scheme: Scheme | None = None,
    *,
    window: int = -1,
    depths: Sequence[int] | None = None,
) -> "Array":
    """Mean losses over a window, (depths, learning rates, seeds), infinite where diverged by then.

    Window -1 is the last one of training, -2 the one before.
    """
    design = sweep.design
    variant = design.variant(scheme.name if scheme else None)
    sizes = [{**design.base, "depth": depth} for depth in depths or depths_of(sweep)]
    # Windows are counted from the end of training, where they close.
    stop = design.steps + (window + 1) * design.window
    points = sweep.points(variant, sizes)
    records = store.records([run for rates in points for seeds in rates for run in seeds])
    return np.array(
        [
            [
                [records[run].mean_loss(stop - design.window, stop) for run in seeds]
                for seeds in rates
            ]
            for rates in points
        ]
    )


def at_laptop(setting: Setting, *notes: str) -> tuple[str, ...]:
    """Notes with numbers that were measured at the laptop's default setting, and hold there only.

    Example:
        >>> from reproduction import Scale
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


def changed(sweep: Sweep, **design: Any) -> Sweep:
    """The sweep with another design."""
    return replace(sweep, design=replace(sweep.design, **design))


def by_multiplier(sweep: Sweep, log2_multipliers: Sequence[float]) -> tuple[Sweep, ...]:
    """The same sweep at several block multipliers a: a heat map in (log2 eta, log2 a)."""
    return tuple(changed(sweep, multipliers=(2.0**log2_a,)) for log2_a in log2_multipliers)


def study_pictures(study: Study, *names: str) -> tuple[Picture, ...]:
    """Charts of a study, with its windows as frames.

    ``names``: ``rates`` (loss against learning rate, one chart per scheme), ``transfer``, ``loss``
    and ``drift``.
    """
    from depthmup.reports import study_legends, study_specs

    sizes, schemes = study_legends(study)
    frames = tuple(f"steps {w.start}–{w.stop}" for w in study.windows)
    titles = [t.title for t in study.headline.transfers]
    pictures = []
    for name, spec in study_specs(study, names).items():
        kind, _, index = name.partition("-")
        caption = _CAPTIONS[kind]
        if index:
            caption = f"{titles[int(index)]}. {caption}"
        legend = {"rates": sizes, "drift": ()}.get(kind, schemes)
        pictures.append(
            Picture(name=name, caption=caption, spec=spec, frames=frames, legend=legend)
        )
    return tuple(pictures)


_CAPTIONS = {
    "rates": "Training loss against learning rate, one line per depth.",
    "transfer": "The best learning rate against depth, with intervals over seeds.",
    "loss": "The loss at each depth's own best learning rate.",
    "drift": "Drift of the optimum in octaves per doubling of depth.",
}


def sweep_experiment(*sweeps: Sweep, conclude: Any, **config: Any) -> Experiment:
    """An experiment whose results are the cells of sweeps, each trained once."""
    # Sweeps of one figure share cells, and each is trained once.
    cells = tuple(dict.fromkeys(cell for sweep in sweeps for cell in sweep.runs))
    return Experiment(
        cells=cells,
        conclude=conclude,
        config={**config, "sweeps": [sweep.to_dict() for sweep in sweeps]},
    )
