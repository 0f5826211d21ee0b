"""Transformers, whose branches hold several matrices: Figures 14, 15 and 16."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from depthmup.records import UNKNOWN, Estimate, Study
from depthmup.rules import BLOCK_MULTIPLIER, Scheme
from depthmup.sweep import Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import (
    base_depth,
    changed,
    depths_of,
    judged,
    losses_of,
    study_pictures,
)
from reproduction.claims.decoders import decoder_sweep, entropies, stacks
from reproduction.claims.learning_rates import of
from reproduction.evidence import Accepted, Comparison, Picture

if TYPE_CHECKING:
    from depthmup.statistics import Array

# The paper's exponents are 0 and -1/2: what is nearer to one of them than to the other agrees.
CONSTANT = Accepted(low=-0.25, high=0.25)
FALLS_BY_HALF = Accepted(low=-0.75, high=-0.25)
# Near its minimum a loss is a parabola: a quarter of the curvature is half as many octaves, so that
# 16 times the multiplier costs no more than 4 times the learning rate does.
INSENSITIVE = Accepted(high=0.25)

EARLY, MIDDLE, END = -4, -3, -1
"""Of five windows: the one after warmup's, the middle of training, and its end."""

# The first run ended at 2^1, which was still viable at the largest depth: 2^3 was added after it.
HIGH_RATES = (-3.0, -1.0, 1.0, 3.0)


def needs_layers(sweep: Sweep, store: Store) -> bool:
    """Whether the base ends below the entropy given the byte before.

    Above it a network without layers would do as well: what is measured there is how soon a table
    of pairs is learned, and training has not come to what the paper calls its end.
    """
    from reproduction.claims.best import best_log_loss

    at_base = losses_of(sweep, store, window=END, depths=[base_depth(sweep)])[0]
    return best_log_loss(sweep.design.log2_lrs, at_base) < math.log(entropies()[1])


def at_end(comparison: Comparison, trained: bool) -> tuple[Comparison, ...]:
    """A statement on the end of training; where training has not come to it, a number beside."""
    if trained:
        return (comparison,)
    return (
        replace(comparison, ours=UNKNOWN),
        replace(comparison, what=f"{comparison.what}, as far as trained here", decisive=False),
    )


_SHORT = (
    "The shallowest network ends above the entropy of a byte given the one before it: training has "
    "not come to where layers are needed, and says nothing of its end."
)


def relative_range(rates: Sequence[Sequence[float]], losses: "Sequence[Array]") -> Estimate:
    """The range of the best log loss over multipliers, as a multiple of the range of the middle
    one's log loss over learning rates from a quarter of its best one to four times it.

    Both are ranges over a factor of 16 where multipliers are. Losses are (learning rates, seeds).
    """
    import numpy as np

    from depthmup.records import Place
    from depthmup.statistics import Curves, minima, optima
    from reproduction.intervals import jackknife

    ends = np.cumsum([len(values) for values in losses])[:-1]
    middle = len(losses) // 2

    def statistic(together: "Array") -> float:
        fits = [
            minima(optima(Curves.of(sweep, [values])), [{"depth": 1.0}])
            for sweep, values in zip(rates, np.split(together, ends), strict=True)
        ]
        if fits[middle].fitted.places()[0] is not Place.INTERIOR:
            return math.nan
        best = [float(fit.log_loss[0]) for fit in fits]
        # Two octaves to each side of the best rate: the factor of 16 that multipliers span.
        over_eta = fits[middle].excess(0, [-2.0, 2.0]).max()
        return float((max(best) - min(best)) / over_eta)

    # One array: leaving out a seed leaves it out of every curve.
    return jackknife(statistic, np.concatenate(losses))


def _fig14(setting: Setting) -> Experiment:
    plain = decoder_sweep(setting)
    log2_as = setting.choose(laptop=(-2, 0, 2), medium=range(-2, 3), paper=range(-2, 3))
    inner = [2.0**k for k in plain.design.log2_lrs[1:-1]]
    sweeps = {
        # Only the middle curve is read two octaves beyond its best rate: the others need fewer
        # points.
        log2_a: changed(plain, multipliers=(2.0**log2_a,), lrs=inner) if log2_a else plain
        for log2_a in log2_as
    }
    depth = depths_of(plain)[1]
    size = {**plain.design.base, "depth": depth}

    def conclude(store: Store) -> Conclusion:
        curves = {
            log2_a: (
                sweep.design.log2_lrs,
                losses_of(sweep, store, window=END, depths=[depth])[0],
            )
            for log2_a, sweep in sweeps.items()
        }
        rates, losses = zip(*curves.values(), strict=True)
        return Conclusion(
            comparisons=(
                Comparison(
                    what="range of the log loss over a factor of 16 in a, as a multiple of that "
                    "over the same factor in the learning rate",
                    paper="insensitive to a",
                    ours=relative_range(rates, losses),
                    accepted=INSENSITIVE,
                ),
            ),
            notes=(_by_multiplier(curves),),
            pictures=(_multiplier_picture(curves, branches=2 * depth),),
        )

    trials = (
        trial
        for sweep in sweeps.values()
        for k in sweep.design.log2_lrs
        for trial in sweep.curve(sweep.design.variant(), size, k)
    )
    return Experiment(
        trials=stacks(setting, *trials),
        conclude=conclude,
        config={"depth": depth, "sweeps": [sweep.to_dict() for sweep in sweeps.values()]},
    )


def _multiplier_picture(
    curves: "Mapping[int, tuple[Sequence[float], Array]]", *, branches: int
) -> Picture:
    """Loss against learning rate, by log2 a; curves are rates and losses (rates, seeds)."""
    from depthmup.statistics import mean
    from reproduction.claims.panels import Axis, lines

    return lines(
        [
            {"log2_a": log2_a, "log2_lr": k, "loss": mean(list(of_rate)).value}
            for log2_a, (rates, losses) in curves.items()
            for k, of_rate in zip(rates, losses, strict=True)
        ],
        name="multiplier",
        caption=f"Training loss against log2 learning rate at L = {branches} branches, one line "
        "per log2 block multiplier a.",
        x=Axis(field="log2_lr", title="log2 learning rate"),
        y=Axis(field="loss", title="training loss, nats per byte"),
        by="log2_a",
        by_title="log2 a",
        ordered=True,
    )


def _by_multiplier(curves: "Mapping[int, tuple[Sequence[float], Array]]") -> str:
    """On which side of a = 1 the range comes from."""
    from reproduction.claims.best import log_ratio_of_best

    ratios = {a: log_ratio_of_best(curve, curves[0]) for a, curve in curves.items() if a}
    said = [
        f"{e.value:+.3f} [{e.low:+.3f}, {e.high:+.3f}] at a = {2.0**a:g}" for a, e in ratios.items()
    ]
    return f"Log best loss over that at a = 1: {'; '.join(said)}.".replace("-", "−")


def gain(sweep: Sweep, store: Store, *, window: int) -> Estimate:
    """log(best loss at the largest depth / best loss at the base), each at its own best rate."""
    from reproduction.claims.best import log_ratio_of_best

    ends = [depths_of(sweep)[-1], base_depth(sweep)]
    deep, base = losses_of(sweep, store, window=window, depths=ends)
    return log_ratio_of_best((sweep.design.log2_lrs, deep), (sweep.design.log2_lrs, base))


def _fig15(setting: Setting) -> Experiment:
    grid = decoder_sweep(setting)
    deepest, base = (2 * depth for depth in (depths_of(grid)[-1], base_depth(grid)))

    def conclude(store: Store) -> Conclusion:
        trained = needs_layers(grid, store)
        ratio = f"log best loss, L = {deepest} over {base}"
        return Conclusion(
            comparisons=(
                Comparison(
                    what=f"{ratio}, in the second fifth of training",
                    paper="deeper is worse early",
                    ours=gain(grid, store, window=EARLY),
                    accepted=Accepted(low=0.0),
                ),
                *at_end(
                    Comparison(
                        what=f"{ratio}, in the last fifth",
                        paper="deeper is better late",
                        ours=gain(grid, store, window=END),
                        accepted=Accepted(high=0.0),
                    ),
                    trained,
                ),
            ),
            pictures=(
                _by_window(grid, store),
                *study_pictures(judged(grid, store), "rates"),
            ),
            notes=() if trained else (_SHORT,),
        )

    return Experiment(
        trials=stacks(setting, *grid.runs), conclude=conclude, config={"sweeps": [grid.to_dict()]}
    )


def _by_window(sweep: Sweep, store: Store) -> Picture:
    """The best loss by depth, one line for each fifth of training."""
    from reproduction.claims.best import best_log_loss
    from reproduction.claims.panels import Axis, lines

    rows, design = [], sweep.design
    for window in range(-5, 0):
        start = design.steps + window * design.window
        steps = f"steps {start}–{start + design.window}"
        for depth, values in zip(
            depths_of(sweep), losses_of(sweep, store, window=window), strict=True
        ):
            loss = math.exp(best_log_loss(design.log2_lrs, values))
            rows.append({"steps": steps, "branches": 2 * depth, "loss": loss})
    return lines(
        rows,
        name="windows",
        caption="The loss at each depth's own best learning rate, by fifths of training.",
        x=Axis(field="branches", title="branches L", log=True),
        y=Axis(field="loss", title="training loss, nats per byte", log=True),
        by="steps",
        by_title="",
    )


def exponent(study: Study, rule: Scheme, *, window: int) -> Estimate:
    """The exponent in L of the branches' best learning rate: the drift, less the rule's gamma."""
    drift, gamma = of(study, rule, window=window).drift, float(rule.gamma)
    # Drifts are in the rule's units: at a fixed rate, branches learn with L^-gamma of it.
    return Estimate(value=drift.value - gamma, low=drift.low - gamma, high=drift.high - gamma)


def limit(log2_lrs: Sequence[float], log_losses: "Array", ceiling: float) -> float:
    """The largest log2 learning rate that is viable: where the curve crosses a ceiling for good.

    Linear between points, half-way to one that diverged; NaN where the sweep holds no crossing.
    """
    viable = [i for i, value in enumerate(log_losses) if value < ceiling]
    if not viable or viable[-1] == len(log2_lrs) - 1:
        return math.nan
    # The last viable rate: below it rates that are too small may lie above the ceiling as well.
    i = viable[-1]
    x, y = log2_lrs[i : i + 2], log_losses[i : i + 2]
    share = float((ceiling - y[0]) / (y[1] - y[0])) if math.isfinite(y[1]) else 0.5
    return x[0] + share * (x[1] - x[0])


def viable_drifts(depths: Sequence[int], log2_lrs: Sequence[float], losses: "Array") -> Estimate:
    """|drift| of the largest viable rate under the second rule, less that under the first.

    Losses are (2, depths, learning rates, seeds). A rate is viable that ends below the entropy of
    single bytes: the network has learned something of what came before.
    """
    import numpy as np

    from reproduction.intervals import jackknife, slope_weights

    # Losses are nats per byte, and so is the entropy; both are compared as logarithms.
    ceiling, pull = math.log(entropies()[0]), slope_weights(np.log2(depths))

    def statistic(both: "Array") -> float:
        with np.errstate(divide="ignore"):
            curves = np.log(both).mean(-1)
        limits = np.array(
            [[limit(log2_lrs, curve, ceiling) for curve in of_rule] for of_rule in curves]
        )
        drifts = limits @ pull  # NaN where one is
        return float(abs(drifts[1]) - abs(drifts[0]))

    return jackknife(statistic, losses, "octaves per doubling of depth")


def _fig16(setting: Setting) -> Experiment:
    rule = setting.depth_mup
    grid = decoder_sweep(setting)
    high = tuple(
        decoder_sweep(setting, schemes=(scheme,), log2_lrs=HIGH_RATES)
        for scheme in (rule, BLOCK_MULTIPLIER)
    )

    def conclude(store: Store) -> Conclusion:
        import numpy as np

        study, trained = judged(grid, store), needs_layers(grid, store)
        largest = np.array([losses_of(sweep, store, window=END) for sweep in high])
        return Conclusion(
            comparisons=(
                Comparison(
                    what="exponent in L of the best learning rate, middle of training",
                    paper="about 0",
                    ours=exponent(study, rule, window=MIDDLE),
                    accepted=CONSTANT,
                ),
                *at_end(
                    Comparison(
                        what="the same, end of training",
                        paper="about −1/2",
                        ours=exponent(study, rule, window=END),
                        accepted=FALLS_BY_HALF,
                    ),
                    trained,
                ),
                Comparison(
                    what="drift of the largest viable learning rate, constant rates less "
                    f"{rule.title}'s, both without sign",
                    paper="L^−1/2 transfers it better",
                    ours=viable_drifts(depths_of(grid), HIGH_RATES, largest),
                    accepted=Accepted(low=0.0),
                ),
            ),
            pictures=study_pictures(study, "rates", "transfer", "drift"),
            notes=() if trained else (_SHORT,),
        )

    return Experiment(
        trials=stacks(setting, *(trial for sweep in (grid, *high) for trial in sweep.runs)),
        conclude=conclude,
        config={"sweeps": [sweep.to_dict() for sweep in (grid, *high)]},
    )


_REMEDY = (
    "Train longer, until the loss is well below the entropy given the byte before: --scale medium "
    "(2000 steps of 1024 bytes, width 64, L = 4 to 32) or --scale paper."
)

_LONGER = (
    "At scale laptop first measured with three seeds, then eight, and 300 steps; now with four "
    "seeds and 1,200 steps."
)

CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig14",
        title="Transformers are insensitive to the block multiplier",
        shows="Loss against learning rate at several block multipliers a. Where branches are "
        "normalized, a changes little once the learning rate is tuned.",
        source="TP6 Figure 14",
        revised=f"{_LONGER} At 300 the range over a was 0.77 [0.57, 0.97] of that over the rate, "
        "and falling: 1.65, 1.13, 0.93, 0.77 in the last four fifths. The claim was not reproduced "
        "there.",
        experiment=_fig14,
        remedy=_REMEDY,
    ),
    Claim(
        name="fig15",
        title="Deeper transformers are worse early in training and better at its end",
        shows="The best loss by depth in windows of training. Early on shallow networks are ahead, "
        "at the end deep ones.",
        source="TP6 Figure 15",
        revised=f"{_LONGER} At 300 the loss of the second fifth was alike, −0.003 [−0.010, 0.003].",
        experiment=_fig15,
        remedy=_REMEDY,
    ),
    Claim(
        name="fig16",
        title="A transformer's best learning rate falls as L^-1/2 at the end of training alone",
        shows="The exponent in L of the best learning rate: about 0 in the middle of training, "
        "about -1/2 at its end. L^-1/2 transfers the largest viable learning rate better.",
        source="TP6 Figure 16",
        revised=f"{_LONGER} A learning rate of 2^3 was added, as 2^1 was still viable at the "
        "largest depth.",
        experiment=_fig16,
        remedy=_REMEDY,
    ),
)
