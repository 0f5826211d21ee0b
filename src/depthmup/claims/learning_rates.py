"""Where the best learning rate is at every depth: Figures 10 to 12, 20, and 22 to 24."""

from collections.abc import Sequence

from depthmup.claims.claim import Claim, Conclusion, Experiment, Setting
from depthmup.claims.common import grid, judged, study_pictures, sweep_experiment
from depthmup.records import Accepted, Comparison, Place, Study, Transfer
from depthmup.rules import BLOCK_MULTIPLIER, ODE, SP, Scheme
from depthmup.sweep import Store

TOLERANCE = 0.15
"""Octaves per doubling of depth within which an optimum counts as staying."""

STAYS = Accepted(low=-TOLERANCE, high=TOLERANCE)
# The rule that forgets the update's L^-1/2 is left with exactly that.
FALLS_BY_HALF = Accepted(low=-0.65, high=-0.35)


def of(study: Study, scheme: Scheme) -> Transfer:
    """The finding of one scheme in the last window."""
    return next(t for t in study.headline.transfers if t.scheme == scheme.name)


def drift(study: Study, scheme: Scheme, accepted: Accepted, *, paper: str) -> Comparison:
    """The drift of a scheme's optimum against what the paper shows."""
    found = of(study, scheme)
    return Comparison(
        what=f"{found.title}: drift of the best learning rate",
        paper=paper,
        ours=found.drift,
        accepted=accepted,
    )


def gain(study: Study, scheme: Scheme, accepted: Accepted, *, paper: str) -> Comparison:
    """How the best loss changes from the base depth to the deepest, in natural logarithm."""
    from depthmup.claims.estimates import log_ratio

    optima = of(study, scheme).optima
    return Comparison(
        what=f"{of(study, scheme).title}: log best loss, depth {optima[-1].depth} over "
        f"{optima[0].depth}",
        paper=paper,
        ours=log_ratio(optima[-1].loss, optima[0].loss),
        accepted=accepted,
    )


def failures(study: Study, scheme: Scheme) -> list[int]:
    """Depths at which nothing trains."""
    return [o.depth for o in of(study, scheme).optima if o.place is Place.FAILED]


def _fig10(setting: Setting) -> Experiment:
    ours = grid(setting, schemes=(setting.depth_mup, BLOCK_MULTIPLIER, SP))

    def conclude(store: Store) -> Conclusion:
        found = judged(ours, store)
        dead = failures(found, SP)
        return Conclusion(
            comparisons=(
                drift(found, setting.depth_mup, STAYS, paper="settles"),
                gain(found, setting.depth_mup, Accepted(high=0.0), paper="improves with depth"),
                drift(found, BLOCK_MULTIPLIER, FALLS_BY_HALF, paper="shifts; −1/2 by theory"),
                drift(found, SP, Accepted(high=-TOLERANCE), paper="shifts more"),
            ),
            pictures=study_pictures(found, "panels", "optimum", "loss"),
            notes=(f"SP: nothing trains at depth {', '.join(map(str, dead))}.",) if dead else (),
        )

    return sweep_experiment(ours, conclude=conclude)


def _fig11(setting: Setting) -> Experiment:
    ours = grid(setting, schemes=(setting.depth_mup, ODE))

    def conclude(store: Store) -> Conclusion:
        from depthmup.claims.estimates import log_ratio

        found = judged(ours, store)
        deepest = of(found, ODE).optima[-1], of(found, setting.depth_mup).optima[-1]
        return Conclusion(
            comparisons=(
                drift(found, ODE, Accepted(low=0.0), paper="upward"),
                Comparison(
                    what=f"log best loss at depth {deepest[0].depth}, ODE over Depth-muP",
                    paper="worse",
                    ours=log_ratio(deepest[0].loss, deepest[1].loss),
                    accepted=Accepted(low=0.0),
                ),
            ),
            pictures=study_pictures(found, "panels", "optimum", "loss"),
        )

    return sweep_experiment(ours, conclude=conclude)


CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig10",
        title="Depth-muP's learning rate transfers across depth; (1/2, 0) and SP drift",
        shows="Loss against learning rate at every depth for Depth-muP, the block multiplier "
        "alone, and SP. Only under Depth-muP do the minima line up, and deeper is better.",
        source="TP6 Figure 10",
        experiment=_fig10,
    ),
    Claim(
        name="fig11",
        title="The ODE scaling drifts upward and trains worse",
        shows="Under (1, 0) branches shrink as 1/L and layers become copies of each other. The "
        "optimum moves up with depth and the best loss is above Depth-muP's.",
        source="TP6 Figure 11",
        experiment=_fig11,
    ),
)
