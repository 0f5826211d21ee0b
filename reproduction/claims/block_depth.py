"""Blocks of two matrices against blocks of one, and their optima: Figures 4 to 6 and 21.

With two trained matrices in a block its change has a term of second order in the update,

    delta(W2 phi(W1 x)) = W2 delta(phi) + delta(W2) phi + delta(W2) delta(phi),

and no choice of exponents keeps it and the first-order terms both of order one: as the depth grows
the block becomes its own linearization in the two updates, so that hyperparameters shift until it
is.

*Source:* TP6 (arXiv 2310.02244) Sections 9.2 and 9.3.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from depthmup.records import Estimate, Study
from depthmup.rules import Scheme
from depthmup.statistics import TOLERANCE
from depthmup.sweep import Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import (
    by_multiplier,
    depths_of,
    losses_of,
    networks,
    octaves,
    rates_of,
    study_pictures,
    sweep_experiment,
)
from reproduction.claims.learning_rates import by_the_tolerance, drift
from reproduction.claims.looks import Look, with_looks
from reproduction.claims.searches import (
    SEARCHED_REVISED,
    Sought,
    searched_experiment,
    searched_networks,
    searched_study,
)
from reproduction.evidence import Accepted, Comparison, Picture

if TYPE_CHECKING:
    from depthmup.statistics import Array

# The second-order term falls beside the first-order ones as the depth grows, so that the learning
# rate that gives the same change of a block rises.
SHIFTS_UP = Accepted(low=TOLERANCE)

LOG2_MULTIPLIERS = (-2.0, -1.0, 0.0, 1.0, 2.0)
LOG2_SMALL = -2.0
"""log2 a of the small multiplier at which learning rates are large, and with them the term of
second order."""

Shape = dict[str, object]
RELU: Shape = {"activation": "relu"}
ABS_NORMED: Shape = {"activation": "abs", "layer_norm": True}


def heat_grids(setting: Setting) -> tuple[Sweep, ...]:
    """Block depth 2 with abs and LayerNorm over (eta, a), one grid for each a."""
    sizes = setting.choose(
        laptop={"depths": (2, 8, 64), "seeds": 4},
        medium={"depths": (2, 8, 32, 128), "seeds": 5},
        paper={"depths": (2, 8, 32, 128, 1024), "seeds": 5},
    )
    rates = tuple(float(k) for k in range(-7, 1))
    base = networks(
        setting,
        schemes=(setting.depth_mup,),
        block_depth=2,
        log2_lrs=rates,
        **{**ABS_NORMED, **sizes},
    )
    return by_multiplier(base, LOG2_MULTIPLIERS)


def shift_sweep(setting: Setting, shape: Shape, *, start: float) -> Sweep:
    """Block depth 2 at a = 1/4; learning rates are found as the sweep goes."""
    depths = setting.choose(laptop=octaves(8, 64), medium=octaves(8, 128), paper=octaves(8, 1024))
    return searched_networks(
        setting,
        start=start,
        schemes=(setting.depth_mup,),
        block_depth=2,
        depths=depths,
        multiplier=2.0**LOG2_SMALL,
        **shape,
    )


def fig6_sweep(setting: Setting) -> Sweep:
    return shift_sweep(setting, ABS_NORMED, start=-4.0)


def long_grids(
    setting: Setting, shape: Shape, *, block_depth: int, seeds: int
) -> tuple[Sweep, ...]:
    """Long training of one number of layers, over (eta, a); block depth 1 has twice the blocks.

    Four times as long as the other figures, with windows of the same length: what is found early
    and late comes from the same runs.
    """
    layers = setting.choose(laptop=16, medium=32, paper=128)
    sizes = setting.choose(laptop={"steps": 1200}, medium={"steps": 1200}, paper={})
    base = networks(
        setting,
        schemes=(setting.depth_mup,),
        block_depth=block_depth,
        depths=tuple(sorted({8, layers // block_depth})),
        log2_lrs=tuple(float(k) for k in range(-7, -1)),
        **{**shape, **sizes, "seeds": seeds},
    )
    return by_multiplier(base, (0.0, 1.0, 2.0))


def _shift(study: Study, scheme: Scheme) -> tuple[Comparison, ...]:
    """The drift as more than what counts as staying; beside, whether it is upward at all."""
    upward = drift(study, scheme, Accepted(low=0.0), paper="upward by theory")
    return (
        drift(study, scheme, SHIFTS_UP, paper="the optimum shifts"),
        replace(upward, what="the same: upward at all", decisive=False),
    )


def _shifts(setting: Setting, sweep: Sweep, *notes: str) -> Experiment:
    """The search for the drift of the optimum of blocks of two matrices."""
    sought = (Sought(sweep=sweep, scheme=setting.depth_mup, accepted=SHIFTS_UP),)

    def conclude(store: Store) -> Conclusion:
        study = searched_study(sought, store)
        comparisons = _shift(study, setting.depth_mup)
        return Conclusion(
            comparisons=comparisons,
            pictures=study_pictures(study, "rates", "transfer", "loss"),
            notes=(*notes, *by_the_tolerance(comparisons[0].ours)),
        )

    return searched_experiment(sought, conclude=conclude)


def _fig6(setting: Setting) -> Experiment:
    return _shifts(setting, fig6_sweep(setting), "Measured with abs and LayerNorm at a = 1/4.")


def _fig21(setting: Setting) -> Experiment:
    return _shifts(
        setting,
        shift_sweep(setting, RELU, start=-2.0),
        "Measured with relu and without LayerNorm at a = 1/4.",
    )


def _against_one(setting: Setting, shape: Shape, *, closes: bool) -> Experiment:
    """Block depth 2 against block depth 1 at the same number of layers, early and late.

    With more seeds where that is open: the interval of a late loss is wide.
    """
    # The laptop's late losses are near zero, and their logarithms scatter.
    looks = setting.choose(laptop=(8, 16, 32), medium=(5, 8), paper=(5,))
    if "seeds" in setting.sizes:
        looks = (setting.sizes["seeds"],)

    def with_seeds(seeds: int, confidence: float) -> Look:
        two, one = (
            long_grids(setting, shape, block_depth=block_depth, seeds=seeds)
            for block_depth in (2, 1)
        )
        layers = 2 * depths_of(two[0])[-1]
        assert depths_of(one[0])[-1] == layers

        def compare(store: Store) -> tuple[Comparison, ...]:
            course = _course(store, (two, one), _early_and_late(two[0]), confidence)
            return tuple(_gap_comparisons(course, layers, closes=closes))

        def conclude(store: Store) -> Conclusion:
            course = _course(store, (two, one), two[0].design.windows, confidence)
            return Conclusion(comparisons=compare(store), pictures=_gap_pictures(course))

        experiment = sweep_experiment(*two, *one, conclude=conclude)
        # A grid holds its base depth, which is trained where it has this number of layers only.
        equal = [c for c in experiment.cells if c.network.depth * c.network.block_depth == layers]
        return Look(experiment=replace(experiment, cells=tuple(equal)), compare=compare)

    return with_looks(with_seeds, looks)


@dataclass(frozen=True, kw_only=True)
class _Course:
    """Losses of both block depths in some windows of training.

    ``values`` (windows, block depth 2 or 1, multipliers, learning rates, seeds); ``stops`` are the
    steps at which windows end; ``confidence`` is that of intervals.
    """

    rates: tuple[float, ...]
    stops: tuple[int, ...]
    values: "Array"
    confidence: float

    def gap(self, losses: "Array") -> float:
        """Log best loss of block depth 2 over block depth 1 in one window."""
        return _best(self.rates, losses[0]) - _best(self.rates, losses[1])

    def difference(self, losses: "Array") -> float:
        """The same as a difference of losses, in nats."""
        import numpy as np

        two, one = (float(np.exp(_best(self.rates, of_depth))) for of_depth in losses)
        return two - one

    def over_seeds(self, statistic: Callable[["Array"], float], losses: "Array") -> Estimate:
        """A statistic of losses (..., seeds) in nats, with its interval."""
        from reproduction.intervals import jackknife

        return jackknife(statistic, losses, "nats", confidence=self.confidence)


def _early_and_late(sweep: Sweep) -> tuple[slice, slice]:
    """The window that ends at a quarter of training, and the last."""
    windows = sweep.design.windows
    return windows[-(len(windows) * 3 // 4) - 1], windows[-1]


def _course(
    store: Store,
    grids: tuple[Sequence[Sweep], Sequence[Sweep]],
    windows: Sequence[slice],
    confidence: float,
) -> _Course:
    """Losses of block depths 2 and 1, each at several multipliers, in some windows."""
    import numpy as np

    values = np.array(
        [
            [[_deepest(sweep, store, window) for sweep in of_depth] for of_depth in grids]
            for window in windows
        ]
    )
    return _Course(
        rates=rates_of(grids[0][0]),
        stops=tuple(window.stop for window in windows),
        values=values,
        confidence=confidence,
    )


def _deepest(sweep: Sweep, store: Store, window: slice) -> "Array":
    """Losses (learning rates, seeds) at a sweep's largest depth."""
    index = (window.stop - sweep.design.steps) // sweep.design.window - 1
    losses = losses_of(sweep, store, window=index, depths=[depths_of(sweep)[-1]])
    return losses[0]  # type: ignore[no-any-return]


def _gap_comparisons(course: _Course, layers: int, *, closes: bool) -> Iterator[Comparison]:
    """Whether block depth 2 is worse early and late, and whether longer training closes the gap."""
    stops, worse = course.stops, Accepted(low=0.0)
    early, late = (course.over_seeds(course.gap, of_window) for of_window in course.values)
    what = f"log best loss of {layers} layers, block depth 2 over 1"
    yield Comparison(
        what=f"{what}, at step {stops[0]}",
        paper="worse",
        ours=early,
        accepted=worse,
    )
    yield Comparison(
        what=f"{what}, at step {stops[-1]}",
        paper="closes" if closes else "still worse",
        ours=late,
        accepted=worse,
        decisive=not closes,
    )
    yield Comparison(
        what="change of it by training four times as long",
        paper="falls" if closes else "does not close",
        ours=course.over_seeds(
            lambda ends: course.gap(ends[1]) - course.gap(ends[0]), course.values
        ),
        accepted=Accepted(high=0.0) if closes else worse,
        decisive=closes,
    )
    for w in (0, -1):
        yield Comparison(
            what=f"loss of block depth 2 minus that of block depth 1, at step {stops[w]}",
            paper="closes" if closes else "still worse",
            ours=course.over_seeds(course.difference, course.values[w]),
            accepted=worse,
            decisive=False,
        )


def _gap_pictures(course: _Course) -> tuple[Picture, ...]:
    import numpy as np

    from reproduction.claims.panels import Axis, lines

    stops = course.stops
    gaps_in_time = [course.over_seeds(course.gap, of_window) for of_window in course.values]
    curves = [
        {
            "network": f"block depth {2 - k}",
            "steps": stop,
            "loss": float(np.exp(_best(course.rates, of_depth))),
        }
        for stop, of_window in zip(stops, course.values, strict=True)
        for k, of_depth in enumerate(of_window)
    ]
    gaps = [
        {"steps": stop, "gap": g.value, "low": g.low, "high": g.high}
        for stop, g in zip(stops, gaps_in_time, strict=True)
    ]
    return (
        lines(
            curves,
            name="loss",
            caption="Training loss at the best learning rate and multiplier of each window.",
            x=Axis(field="steps", title="steps"),
            y=Axis(field="loss", title="best training loss", log=True),
            by="network",
        ),
        lines(
            gaps,
            name="gap",
            caption="The same as the logarithm of the ratio of block depth 2 to 1.",
            x=Axis(field="steps", title="steps"),
            y=Axis(field="gap", title="log of ratio of best losses"),
            references=(("equal", ((stops[0], 0.0), (stops[-1], 0.0))),),
        ),
    )


def _best(log2_lrs: Sequence[float], losses: "Array") -> float:
    """The least log loss over (a, eta), from losses (a, eta, seeds)."""
    import numpy as np

    from reproduction.claims.best import best_log_loss

    return float(
        # NaN at a multiplier at which nothing trains.
        np.nanmin([best_log_loss(log2_lrs, of_multiplier) for of_multiplier in np.asarray(losses)])
    )


_LOOKS_REVISED = (
    "First measured with four seeds (five at scale medium); now with 8, 16 and 32 (5 and 8) where "
    "fewer leave it open, and with wider intervals at each."
)
_MEMORIZED = (
    "Data that is not memorized in 43 epochs, as the digits are, where the logarithm of a loss "
    "near zero is mostly noise: CIFAR-10, --scale paper."
)

CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig4",
        title="Block depth 2 is worse than block depth 1 (relu); training longer closes the gap",
        shows="The same number of layers as blocks of two and as blocks of one, each at its best "
        "learning rate and multiplier. Blocks of two train worse, less so the longer they train.",
        source="TP6 Figure 4",
        experiment=lambda setting: _against_one(setting, RELU, closes=True),
        remedy=_MEMORIZED,
        revised=_LOOKS_REVISED,
    ),
    Claim(
        name="fig5",
        title="Block depth 2 is worse than block depth 1 (abs, LayerNorm), however long",
        shows="The comparison of Figure 4 with abs behind a LayerNorm. Blocks of two train worse "
        "early and late.",
        source="TP6 Figure 5",
        experiment=lambda setting: _against_one(setting, ABS_NORMED, closes=False),
        remedy=_MEMORIZED,
        revised=_LOOKS_REVISED,
    ),
    Claim(
        name="fig6",
        title="With block depth 2 the optimum shifts with depth (abs, LayerNorm)",
        shows="Loss against learning rate for blocks of two matrices under Depth-muP. The best "
        "learning rate moves as the term of second order in the update dies out.",
        source="TP6 Figures 6 and 21",
        experiment=_fig6,
        remedy="More depths, which sharpen the drift: --scale medium or --scale paper.",
        revised=SEARCHED_REVISED,
    ),
    Claim(
        name="fig21",
        title="With block depth 2 the optimum shifts with depth (relu)",
        shows="The same as Figure 6 with relu and without LayerNorm. The best learning rate does "
        "not stay where it is.",
        source="TP6 Figures 6 and 21",
        experiment=_fig21,
        remedy="More depths, which sharpen the drift: --scale medium or --scale paper.",
        revised=SEARCHED_REVISED,
    ),
)
