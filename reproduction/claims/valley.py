"""The valley of low loss over learning rate and block multiplier: Figure 7.

A block of two matrices changes by a (W2 delta(phi) + delta(W2) phi + delta(W2) delta(phi)), and
Adam's updates are of size eta whatever a is. Where the term of second order rules, the loss depends
on a eta^2, and its valley has slope -2 in (log2 eta, log2 a); where those of first order do, on
a eta: slope -1.

*Source:* TP6 (arXiv 2310.02244) Section 9.3.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from depthmup.records import Estimate
from depthmup.sweep import Store, Sweep
from reproduction.claims.block_depth import LOG2_MULTIPLIERS, SHIFTS_UP, heat_grids
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import base_depth, depths_of, losses_of, rates_of, sweep_experiment
from reproduction.evidence import Accepted, Comparison, Picture

if TYPE_CHECKING:
    from depthmup.statistics import Array


def ridge(log2_lrs: Sequence[float], losses: "Array") -> list[float | None]:
    """For every multiplier the best log2 learning rate, from losses (multipliers, rates, seeds);
    None where it is at the edge of the grid or nothing trains."""
    import numpy as np

    from depthmup.records import Place
    from depthmup.statistics import Curves, optima

    fitted = optima(Curves.of(log2_lrs, np.asarray(losses)))
    return [
        float(at) if where is Place.INTERIOR else None
        for at, where in zip(fitted.centre, fitted.places(), strict=True)
    ]


def slope_of_valley(
    log2_lrs: Sequence[float], log2_multipliers: Sequence[float], losses: "Array"
) -> Estimate:
    """Slope of the valley of low loss in (log2 eta, log2 a), from losses (a, eta, seeds).

    The line through the best learning rate at every a: d log2 a / d log2 eta. A valley need not be
    straight, so that the interval counts two sources of error: seeds and the choice of multipliers,
    each by its jackknife, added in quadrature, with Student's t of the smaller number.
    """
    import numpy as np

    from depthmup.records import UNKNOWN
    from depthmup.statistics import around, jackknife_error, student

    values, y = np.asarray(losses, float), np.asarray(log2_multipliers, float)

    def slope(some: "Array", log2_as: "Array") -> float:
        best = ridge(log2_lrs, some)
        inside = [i for i, at in enumerate(best) if at is not None]
        if len(inside) < 3:
            return math.nan
        x, a = np.array([best[i] for i in inside], float), log2_as[inside]
        # Learning rates are what is found at given multipliers, so they are regressed on them.
        inverse = np.polyfit(a, x, 1)[0]
        return float(1 / inverse) if inverse else math.nan

    value = slope(values, y)
    if not math.isfinite(value):
        return UNKNOWN
    seeds, count = values.shape[-1], len(y)
    # Leaving out a seed asks how sure the valley is, leaving out a multiplier how straight.
    without_seed = [slope(np.delete(values, s, axis=-1), y) for s in range(seeds)]
    without_a = [slope(np.delete(values, i, axis=0), np.delete(y, i)) for i in range(count)]
    errors = [float(jackknife_error(np.array(group))[0]) for group in (without_seed, without_a)]
    if not all(map(math.isfinite, errors)):
        return around(value, math.inf)
    return around(value, float(student(min(seeds, count) - 1)) * math.hypot(*errors))


def _fig7(setting: Setting) -> Experiment:
    grids = heat_grids(setting)

    def conclude(store: Store) -> Conclusion:
        import numpy as np

        rates, depths = rates_of(grids[0]), depths_of(grids[0])
        # (depths, multipliers, learning rates, seeds)
        values = np.stack([losses_of(sweep, store) for sweep in grids], axis=1)
        slopes = [slope_of_valley(rates, LOG2_MULTIPLIERS, of_depth) for of_depth in values]
        expected = {depths[0]: -2.0, depths[-1]: -1.0}
        comparisons = []
        for depth, slope in zip(depths, slopes, strict=True):
            target = expected.get(depth)
            # Half a unit tells the two exponents apart; between the ends any mixture will do.
            accepted = Accepted(low=-2.5, high=-0.5)
            if target is not None:
                accepted = Accepted(low=target - 0.5, high=target + 0.5, contains=target)
            comparisons.append(
                Comparison(
                    what=f"slope of the valley of low loss at depth {depth}",
                    paper="between" if target is None else f"{target:g}".replace("-", "−"),
                    ours=slope,
                    accepted=accepted,
                    decisive=target is not None,
                )
            )
        return Conclusion(
            comparisons=(*comparisons, *_drifts(grids, store)),
            pictures=tuple(
                _heat_map(depth, rates, of_depth)
                for depth, of_depth in zip(depths, values, strict=True)
            ),
        )

    return sweep_experiment(*grids, conclude=conclude)


def _drifts(grids: Sequence[Sweep], store: Store) -> Iterator[Comparison]:
    """How the best learning rate moves with depth at every multiplier, as in Figure 6."""
    from depthmup.reports import number
    from depthmup.statistics import drift

    for sweep, log2_a in zip(grids, LOG2_MULTIPLIERS, strict=True):
        deep = [depth for depth in depths_of(sweep) if depth >= base_depth(sweep)]
        moved = drift(deep, rates_of(sweep), losses_of(sweep, store, depths=deep))
        yield Comparison(
            what=f"drift of the best learning rate at log2 a = {number(log2_a, 0)}, depths "
            f"{deep[0]} to {deep[-1]}",
            paper="shifts",
            ours=replace(moved, unit="octaves of learning rate per doubling of depth"),
            accepted=SHIFTS_UP,
            decisive=False,
        )


def _heat_map(depth: int, rates: Sequence[float], values: "Array") -> Picture:
    import numpy as np

    from reproduction.claims.panels import Axis, heat_map

    logs = np.log(np.asarray(values)).mean(-1)
    best = ridge(rates, values)
    return heat_map(
        [
            {
                "log2_lr": rate,
                "log2_a": log2_a,
                "loss": float(logs[i, j]) if math.isfinite(logs[i, j]) else None,
                # The dot is where the lowest loss was measured, the line joins fitted optima.
                "best": bool(j == int(np.argmin(logs[i]))),
            }
            for i, log2_a in enumerate(LOG2_MULTIPLIERS)
            for j, rate in enumerate(rates)
        ],
        name=f"depth-{depth}",
        caption=f"Depth {depth}: log training loss (dark is low); the line joins the best learning "
        "rates at every multiplier.",
        x=Axis(field="log2_lr", title="log2 learning rate"),
        y=Axis(field="log2_a", title="log2 block multiplier a"),
        value=Axis(field="loss", title="log loss"),
        marked="best",
        lines_over={
            "best learning rate": [
                (at, log2_a)
                for at, log2_a in zip(best, LOG2_MULTIPLIERS, strict=True)
                if at is not None
            ]
        },
    )


CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig7",
        title="Block depth 2: the valley of low loss turns from slope −2 to −1",
        shows="Loss over learning rate and block multiplier, for shallow and deep networks with "
        "blocks of two matrices. A shallow one sees a eta^2, a deep one a eta: the two updates of "
        "a block count together in the one and apart in the other.",
        source="TP6 Figure 7",
        experiment=_fig7,
        revised="Drifts at every multiplier, which decide nothing, stood beside Figure 6 before.",
        remedy="A valley is straight over a short range of a only: where a^2 8 exceeds 1, what "
        "stands behind the LayerNorm no longer depends on a. Depth 1024, where the paper finds −1: "
        "--scale paper.",
    ),
)
