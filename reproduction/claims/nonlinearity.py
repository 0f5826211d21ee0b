"""What a branch's nonlinearity does for depth: Figures 2 and 3."""

from collections.abc import Sequence
from typing import Any

from depthmup.sweep import Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import (
    depths_of,
    judged,
    losses_of,
    networks,
    octaves,
    rates_of,
    study_pictures,
    sweep_experiment,
)
from reproduction.claims.learning_rates import STAYS, drift, gain
from reproduction.claims.searches import (
    SEARCHED_REVISED,
    Sought,
    searched_experiment,
    searched_networks,
    searched_study,
)
from reproduction.evidence import Accepted, Comparison, Picture

LOG2_MULTIPLIER = -1.5
"""The paper's log2 a for abs against relu; all networks of this file share it."""

# A tenth of the loss: less than that reads as none on the paper's logarithmic axis.
NO_GAIN = Accepted(low=-0.1, high=0.1)


def branch_grid(setting: Setting, *, activation: str, nonlinearity: str = "post") -> Sweep:
    """Depth-muP on one-layer blocks at log2 a = -1.5.

    The small multiplier puts the best learning rates about two octaves above those at a = 1.
    """
    return networks(
        setting,
        log2_lrs=tuple(float(k) for k in range(-4, 3)),
        activation=activation,
        nonlinearity=nonlinearity,
        **_shared(setting),
    )


def pre_sweep(setting: Setting) -> Sweep:
    """Figure 2's networks W relu(x), whose learning rates are found as the sweep goes."""
    return searched_networks(
        setting, start=-1.0, activation="relu", nonlinearity="pre", **_shared(setting)
    )


def _shared(setting: Setting) -> dict[str, Any]:
    deepest = setting.choose(laptop=64, medium=256, paper=1024)
    return {
        "schemes": (setting.depth_mup,),
        "depths": octaves(8, deepest),
        "multiplier": 2.0**LOG2_MULTIPLIER,
    }


def _worse(above: Sweep, below: Sweep, store: Store, *, what: str, paper: str) -> Comparison:
    """log of the ratio of two networks' best losses at the deepest depth, paired by seed."""
    from reproduction.claims.best import log_ratio_of_best

    # (learning rates, seeds) each, at the deepest depth.
    a, b = (losses_of(sweep, store)[-1] for sweep in (above, below))
    return Comparison(
        what=f"log best loss at depth {depths_of(above)[-1]}, {what}",
        paper=paper,
        ours=log_ratio_of_best((rates_of(above), a), (rates_of(below), b)),
        accepted=Accepted(low=0.0),
    )


def by_depth(
    curves: Sequence[tuple[str, Sweep]], store: Store, *, name: str, caption: str
) -> Picture:
    """The best loss of several networks against depth, with intervals over seeds."""
    from reproduction.claims.learning_rates import of
    from reproduction.claims.panels import Axis, lines

    rows = [
        {
            "network": title,
            "depth": best.depth,
            "loss": best.loss.value,
            "low": best.loss.low,
            "high": best.loss.high,
        }
        for title, sweep in curves
        for best in of(judged(sweep, store), sweep.design.variant().scheme).optima
    ]
    return lines(
        rows,
        name=name,
        caption=caption,
        x=Axis(field="depth", title="depth", log=True),
        y=Axis(field="loss", title="best training loss", log=True),
        by="network",
    )


def _fig2(setting: Setting) -> Experiment:
    post = branch_grid(setting, activation="relu")
    pre = branch_grid(setting, activation="relu", nonlinearity="pre")

    rule = setting.depth_mup
    sought = (Sought(sweep=pre, scheme=rule, accepted=STAYS),)

    def conclude(store: Store) -> Conclusion:
        study = searched_study(sought, store)
        return Conclusion(
            comparisons=(
                drift(study, rule, STAYS, paper="none: the learning rate transfers"),
                gain(pre, store, rule, NO_GAIN, paper="none beyond 8 blocks"),
                _worse(pre, post, store, what="W relu(x) over relu(W x)", paper="far worse"),
            ),
            pictures=(
                *study_pictures(study, "rates"),
                by_depth(
                    (("W relu(x)", pre), ("relu(W x)", post)),
                    store,
                    name="loss",
                    caption="The loss at each depth's own best learning rate, for the matrix "
                    "behind the nonlinearity and before it.",
                ),
            ),
        )

    return searched_experiment(sought, post, conclude=conclude)


def _fig3(setting: Setting) -> Experiment:
    relu, absolute = (branch_grid(setting, activation=phi) for phi in ("relu", "abs"))

    def conclude(store: Store) -> Conclusion:
        return Conclusion(
            comparisons=(
                _worse(relu, absolute, store, what="relu over abs", paper="relu is worse"),
            ),
            pictures=(
                by_depth(
                    (("relu", relu), ("abs", absolute)),
                    store,
                    name="loss",
                    caption="The loss at each depth's own best learning rate.",
                ),
                *study_pictures(judged(absolute, store), "rates"),
            ),
        )

    return sweep_experiment(relu, absolute, conclude=conclude)


CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig2",
        title="With the matrix behind the nonlinearity depth gains nothing",
        shows="Blocks W relu(x) in place of relu(W x): neighbouring blocks get nearly the same "
        "gradient, and feature diversity is lost. The learning rate still transfers, but deeper is "
        "no better, and the loss is far above that of relu(W x).",
        source="TP6 Figure 2",
        experiment=_fig2,
        revised=SEARCHED_REVISED,
    ),
    Claim(
        name="fig3",
        title="abs trains better than relu",
        shows="Of all positively homogeneous nonlinearities the absolute value decorrelates "
        "neighbouring gradients fully, so that features are the most diverse. At the same "
        "multiplier its best loss is below relu's.",
        source="TP6 Figure 3 (log2 a = -1.5)",
        experiment=_fig3,
    ),
)
