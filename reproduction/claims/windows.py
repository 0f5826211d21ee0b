"""The learning-rate figures at every window of training: Figures 22 to 26."""

from collections.abc import Callable, Sequence

from depthmup.records import UNKNOWN, Estimate, Study
from depthmup.rules import BLOCK_MULTIPLIER, ODE, SP, Scheme
from depthmup.statistics import TOLERANCE
from depthmup.sweep import Sweep
from reproduction.claims.block_depth import fig6_sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import study_pictures
from reproduction.claims.learning_rates import (
    LAYER_NORM_REVISED,
    STAYS,
    by_the_tolerance,
    fig10_grid,
    fig11_grid,
    fig12_grid,
    of,
)
from reproduction.claims.nonlinearity import branch_grid, pre_sweep
from reproduction.claims.searches import (
    SEARCHED_REVISED,
    in_late_windows,
    searched_experiment,
    searched_study,
)
from reproduction.evidence import Accepted, Comparison

FALLS = Accepted(high=-TOLERANCE)
RISES = Accepted(low=TOLERANCE)

Expected = Sequence[tuple[Scheme, Accepted, str]]


def throughout(study: Study, scheme: Scheme) -> Estimate:
    """The drift over the windows of the second half of training: the one farthest from zero, with
    an interval that holds the intervals of all."""
    half = study.windows[-1].stop / 2
    late = [i for i, window in enumerate(study.windows) if window.start >= half]
    drifts = [of(study, scheme, window=i).drift for i in late]
    if not drifts or not all(estimate.known for estimate in drifts):
        return UNKNOWN
    farthest = max(drifts, key=lambda estimate: abs(estimate.value))
    return Estimate(
        value=farthest.value,
        low=min(estimate.low for estimate in drifts),
        high=max(estimate.high for estimate in drifts),
        unit=farthest.unit,
    )


def _late_windows(sweep: Sweep, expected: Expected) -> Experiment:
    """The windows of the second half of training, each of which is searched.

    But for SP: where nothing trains, there is nothing to be searched.
    """
    sought = in_late_windows(
        sweep, [(scheme, accepted) for scheme, accepted, _ in expected if scheme != SP]
    )
    return searched_experiment(
        sought, conclude=lambda store: _conclusion(searched_study(sought, store), expected)
    )


def _conclusion(study: Study, expected: Expected) -> Conclusion:
    shifts = [throughout(study, scheme) for scheme, accepted, _ in expected if accepted == RISES]
    return Conclusion(
        comparisons=tuple(
            Comparison(
                what=f"{of(study, scheme).title}: drift in every window of the second half",
                paper=paper,
                ours=throughout(study, scheme),
                accepted=accepted,
            )
            for scheme, accepted, paper in expected
        ),
        pictures=study_pictures(study, "rates", "transfer", "drift"),
        notes=tuple(note for shift in shifts for note in by_the_tolerance(shift)),
    )


def _fig22(setting: Setting) -> Experiment:
    return _late_windows(
        fig10_grid(setting),
        (
            (setting.depth_mup, STAYS, "stays"),
            (BLOCK_MULTIPLIER, FALLS, "shifts"),
            (SP, FALLS, "shifts"),
        ),
    )


def _fig23(setting: Setting) -> Experiment:
    return _late_windows(
        fig11_grid(setting),
        # What Figure 11 says of the ODE is that its optimum drifts upward, by whatever amount.
        ((setting.depth_mup, STAYS, "stays"), (ODE, Accepted(low=0.0), "shifts upward")),
    )


def _fig24(setting: Setting) -> Experiment:
    return _late_windows(
        fig12_grid(setting),
        ((setting.depth_mup, STAYS, "stays"), (BLOCK_MULTIPLIER, FALLS, "shifts")),
    )


def _fig25(setting: Setting) -> Experiment:
    # At scale laptop, where all figures are usually run, Figure 2's grid is there to begin with.
    grid = branch_grid(setting, activation="relu", nonlinearity="pre")
    searched = pre_sweep(setting)
    sweep = setting.choose(laptop=grid, medium=searched, paper=searched)
    return _late_windows(sweep, ((setting.depth_mup, STAYS, "stays"),))


def _fig26(setting: Setting) -> Experiment:
    return _late_windows(fig6_sweep(setting), ((setting.depth_mup, RISES, "shifts"),))


def _claim(
    name: str,
    title: str,
    shows: str,
    experiment: Callable[[Setting], Experiment],
    revised: str = "",
) -> Claim:
    return Claim(
        name=name,
        title=title,
        shows=shows,
        source="TP6 Figures 22 to 26",
        experiment=experiment,
        revised=revised,
    )


CLAIMS: Sequence[Claim] = (
    _claim(
        "fig22",
        "Figure 10 at every window of training",
        "The learning-rate curves of Depth-muP, (1/2, 0) and SP as training goes on. Once early "
        "training is over the minima line up under Depth-muP, and under it alone.",
        _fig22,
        SEARCHED_REVISED,
    ),
    _claim(
        "fig23",
        "The ODE scaling at every window of training",
        "Figure 11's curves as training goes on. The optimum of (1, 0) keeps rising with depth.",
        _fig23,
        "The ODE's drift was first asked to be above 0.15; now, as in Figure 11, above 0. "
        f"{SEARCHED_REVISED}",
    ),
    _claim(
        "fig24",
        "Branches behind a LayerNorm at every window of training",
        "Figure 12's curves as training goes on. Depth-muP's optimum stays in every late window, "
        "the block multiplier's alone in none.",
        _fig24,
        LAYER_NORM_REVISED,
    ),
    _claim(
        "fig25",
        "Blocks W relu(x) at every window of training",
        "Figure 2's curves as training goes on. The optimum stays where it is with depth.",
        _fig25,
        SEARCHED_REVISED,
    ),
    _claim(
        "fig26",
        "Block depth 2 at every window of training",
        "Figure 6's curves as training goes on. The optimum of blocks of two matrices shifts with "
        "depth.",
        _fig26,
        SEARCHED_REVISED,
    ),
)
