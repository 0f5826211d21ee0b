"""Where the best block multiplier is at every depth: Figure 13."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from depthmup.statistics import drift as fitted_drift
from depthmup.sweep import Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import (
    at_laptop,
    changed,
    depths_of,
    losses_of,
    networks,
    octaves,
)
from reproduction.claims.learning_rates import SETTLES, STAYS, of
from reproduction.claims.searches import (
    SEARCHED_REVISED,
    Sought,
    searched_experiment,
    searched_study,
)
from reproduction.evidence import Comparison, Picture

if TYPE_CHECKING:
    from depthmup.statistics import Array

LOG2_LR = -3.0
"""The best learning rate of Figure 10's networks at the base depth, to an octave."""

LOG2_MULTIPLIERS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0)


def multiplier_grid(setting: Setting) -> Sweep:
    """Figure 10's networks at one learning rate and several multipliers a, the value tuned."""
    deepest = setting.choose(laptop=128, medium=256, paper=1024)
    base = networks(
        setting, schemes=(setting.depth_mup,), depths=octaves(8, deepest), log2_lrs=(LOG2_LR,)
    )
    return changed(
        base, tune="multiplier", values=tuple(2.0**log2_a for log2_a in LOG2_MULTIPLIERS)
    )


def _fig13(setting: Setting) -> Experiment:
    grid, rule = multiplier_grid(setting), setting.depth_mup
    sought = (Sought(sweep=grid, scheme=rule, accepted=STAYS),)

    def conclude(store: Store) -> Conclusion:
        depths, values = depths_of(grid), losses_of(grid, store)
        deep = fitted_drift(depths[1:], LOG2_MULTIPLIERS, values[1:])
        whole = of(searched_study(sought, store), rule).drift
        return Conclusion(
            comparisons=(
                Comparison(
                    what=f"{rule.title}: drift of the best log2 a",
                    paper="none: the multiplier transfers too",
                    ours=whole,
                    accepted=STAYS,
                ),
                Comparison(
                    what=f"the same from depth {depths[1]} on",
                    paper="none",
                    ours=replace(deep, unit=whole.unit),
                    accepted=SETTLES,
                    decisive=False,
                ),
            ),
            pictures=(_picture(depths, values),),
            notes=at_laptop(
                setting,
                "Nearly all of the drift is between the two shallowest depths, so that it depends "
                "on the range: from depth 8 to 64 alone it was −0.153 [−0.159, −0.147].",
            ),
        )

    return searched_experiment(sought, conclude=conclude)


def _picture(depths: Sequence[int], values: "Array") -> Picture:
    import numpy as np

    from reproduction.claims.panels import Axis, lines

    # A seed that diverged has an infinite loss, and so has the mean: its point is left out.
    with np.errstate(invalid="ignore"):
        log_means = np.log(values).mean(-1)
    return lines(
        [
            {"depth": depth, "log2_a": log2_a, "loss": math.exp(log_means[i, j])}
            for i, depth in enumerate(depths)
            for j, log2_a in enumerate(LOG2_MULTIPLIERS)
            if math.isfinite(log_means[i, j])
        ],
        name="multiplier",
        caption="Training loss against the block multiplier, one line per depth, at "
        f"log2 learning rate {LOG2_LR:g}.",
        x=Axis(field="log2_a", title="log2 block multiplier a"),
        y=Axis(field="loss", title="training loss", log=True),
        by="depth",
        ordered=True,
    )


CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig13",
        title="The best block multiplier transfers too",
        shows="Loss against the block multiplier a at every depth under Depth-muP. As the "
        "learning rate does, the best a stays where it is.",
        source="TP6 Figure 13",
        revised="At scale laptop first measured to depth 64, which decided nothing; now to 128. "
        f"{SEARCHED_REVISED}",
        experiment=_fig13,
    ),
)
