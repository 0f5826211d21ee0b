"""From sweeps at small sizes to a certificate for a large one, or a refusal with its reasons.

The posterior of all runs (``depthmup.posterior``) has a law of the minima, which says where the
target's lies (``statistics.forecast``). Nothing is refused for noise, steepness or price: an
interval is as wide as it must be, with its cost beside it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup._version import __version__
from depthmup.posterior.curve import Curves
from depthmup.posterior.law import Size
from depthmup.records import LEARNING_RATE, NUMERICS, Tuned
from depthmup.records.certificate import (
    Certificate,
    Refusal,
    TargetProbe,
)
from depthmup.records.codec import digest
from depthmup.statistics.directions import Directions, volume
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.forecast import CONFIDENCE, conclude
from depthmup.statistics.refusals import (
    refuse_breakdown,
    refuse_design,
    refuse_measurements,
    refuse_probe,
    refuse_windows,
)
from depthmup.statistics.runs import Runs

VERSION = 14
"""Of the statistics: raised when the same losses would give another certificate."""


def calibrate(
    *,
    sizes: Sequence[Size],
    curves: Curves,
    target: Size,
    base: Size | None = None,
    early: Curves | None = None,
    chance: float = math.inf,
    probe: TargetProbe | None = None,
    refusals: Sequence[Refusal] = (),
    tolerance: float = TOLERANCE,
    about: Mapping[str, Any] | None = None,
) -> Certificate:
    """A certificate of the best learning rate at a target size, or a refusal with its reasons.

    Curves are those of the sizes, ``early`` the same for a window in the middle of training. Seeds
    share their data, order and initialization over sizes.

    *Source:* the law of optima is kriging's: Cressie, Statistics for Spatial Data (1993), Section
    3.4; the three questions are those of arXiv 2605.21486; the formulas are this package's
    (docs/studies/calibration.md).
    """
    if not len(sizes) == len(curves.losses) > 0:
        raise ValueError(f"Expected losses of {len(sizes)} sizes; got {len(curves.losses)}.")
    if early is not None and not np.array_equal(early.seeds, curves.seeds):
        raise ValueError(
            "Expected early losses of the same seeds at every size; got "
            f"{early.seeds.sum(-1).tolist()} seeds, and {curves.seeds.sum(-1).tolist()} late."
        )
    base = base or min(sizes, key=volume)
    tuned: Tuned = (about or {}).get("tuned", LEARNING_RATE)
    _check(sizes, target, base)
    order = sorted(range(len(sizes)), key=lambda i: (volume(sizes[i]), list(sizes[i].values())))
    sizes, curves = [sizes[i] for i in order], curves[order]
    runs = Runs(name="", title="", sizes=tuple(sizes), curves=curves, chance=chance, base=base)
    best = runs.best(CONFIDENCE)
    lacks = [*refuse_measurements(best, tuned=tuned)]
    where = Directions(base=base, sizes=[sizes[i] for i in runs.trains])
    lacks += refuse_design(where, sizes, target, known=not lacks, tuned=tuned)
    if not lacks:
        if early is not None:
            before = replace(runs, curves=early[order]).at(runs.trains)
            lacks += refuse_windows(runs.minima, before, where)
        lacks += refuse_breakdown(runs.minima, where, tuned)
    if probe is not None:
        lacks += refuse_probe(probe, target)
    common = {
        "target": dict(target),
        "base": dict(base),
        "optima": best,
        "probe": probe,
        **_provenance(sizes, curves, about or {}),
    }
    if lacks := [*refusals, *lacks]:
        return Certificate(**common, refusals=tuple(lacks))
    return Certificate(**common, **conclude(runs.minima, where, target, tolerance, tuned))


def _provenance(sizes: Sequence[Size], curves: Curves, about: Mapping[str, Any]) -> dict[str, Any]:
    """What a certificate says of the measurements and the code behind it."""
    extra = dict(about)
    return {
        "log2_lrs": tuple(float(k) for k in np.unique(curves.log2_lrs[~np.isnan(curves.log2_lrs)])),
        "seeds": curves.fewest_seeds,
        "data": _digest(sizes, curves),
        "confidence": CONFIDENCE,
        "code": {
            "depthmup": __version__,
            "numerics": NUMERICS,
            "calibration": VERSION,
            "model": extra.pop("model", ""),
        },
        **extra,
    }


def _digest(sizes: Sequence[Size], curves: Curves) -> str:
    """Of the runs as a set: size, rate and losses of each, in nine digits."""
    rows = [
        (sorted((axis, float(n)) for axis, n in size.items()), f"{k:.9g}", f"{loss:.9g}")
        for size, grid, losses in zip(sizes, curves.log2_lrs, curves.losses, strict=True)
        for k, seeds in zip(grid, losses, strict=True)
        for loss in seeds
        if not (np.isnan(k) or np.isnan(loss))
    ]
    return digest(json.dumps(sorted(rows)))


def check_asked(log2_lrs: Sequence[float], target: Size, tuned: Tuned = LEARNING_RATE) -> None:
    """Refuse, before anything is trained, what no measurement could be calibrated for."""
    _check_size("target", target)
    if len(log2_lrs) < 2:
        raise ValueError(
            f"Expected at least two {tuned.plural}, to predict the best one of {dict(target)}; "
            f"got {list(log2_lrs)}."
        )


def _check_size(name: str, size: Size) -> None:
    if not size or any(not 0 < value < math.inf for value in size.values()):
        raise ValueError(f"Expected every {name} to have positive values; got {dict(size)}.")


def _check(sizes: Sequence[Size], target: Size, base: Size) -> None:
    """Refuse what is no measurement, with an error."""
    for name, size in (*(("size", s) for s in sizes), ("base", base), ("target", target)):
        _check_size(name, size)
        if size.keys() != base.keys():
            raise ValueError(
                f"Expected every {name} to have the axes {', '.join(base)}; got {', '.join(size)}."
            )
    distinct = {tuple(sorted(size.items())) for size in sizes}
    if len(distinct) != len(sizes):
        raise ValueError(
            f"Expected each size once; got {[dict(size) for size in sizes]}. Average or drop "
            "repetitions."
        )
