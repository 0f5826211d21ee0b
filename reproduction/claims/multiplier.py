"""Where the best block multiplier is at every depth: Figure 13."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from depthmup.records import Estimate
from depthmup.sweep import Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import (
    at_laptop,
    by_multiplier,
    depths_of,
    losses_of,
    networks,
    octaves,
    sweep_experiment,
)
from reproduction.claims.learning_rates import SETTLES, STAYS
from reproduction.evidence import Comparison, Picture

if TYPE_CHECKING:
    from depthmup.statistics import Array

LOG2_LR = -3.0
"""The best learning rate of Figure 10's networks at the base depth, to an octave."""

LOG2_MULTIPLIERS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0)


def multiplier_grids(setting: Setting) -> tuple[Sweep, ...]:
    """Figure 10's networks at one learning rate and several multipliers a."""
    deepest = setting.choose(laptop=128, medium=256, paper=1024)
    base = networks(
        setting, schemes=(setting.depth_mup,), depths=octaves(8, deepest), log2_lrs=(LOG2_LR,)
    )
    return by_multiplier(base, LOG2_MULTIPLIERS)


def _fig13(setting: Setting) -> Experiment:
    grids = multiplier_grids(setting)
    depths, title = depths_of(grids[0]), setting.depth_mup.title

    def conclude(store: Store) -> Conclusion:
        import numpy as np

        # (depths, multipliers, seeds): multipliers take the place that learning rates have.
        values = np.stack([losses_of(grid, store)[:, 0] for grid in grids], axis=1)
        return Conclusion(
            comparisons=(
                Comparison(
                    what=f"{title}: drift of the best log2 a",
                    paper="none: the multiplier transfers too",
                    ours=_drift(depths, values),
                    accepted=STAYS,
                ),
                Comparison(
                    what=f"the same from depth {depths[1]} on",
                    paper="none",
                    ours=_drift(depths[1:], values[1:]),
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

    return sweep_experiment(*grids, conclude=conclude)


def _drift(depths: Sequence[int], values: "Array") -> Estimate:
    from depthmup.statistics import drift

    fitted = drift(list(depths), LOG2_MULTIPLIERS, values)
    return replace(fitted, unit="octaves of a per doubling of depth")


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
        revised="At scale laptop first measured to depth 64, which decided nothing; now to 128.",
        experiment=_fig13,
    ),
)
