"""Feature diversity of trained networks: Figures 17, 18 and 19.

d(eps) = |x^((lambda + eps) L) - x^(lambda L)| grows as eps^(1 - kappa), with kappa = 1/2 for
Depth-muP, whose layers each add something of their own, and 0 for ODE, whose layers follow a flow.

Every task is one network: its d(eps) after several numbers of steps. The three figures share them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from depthmup.records import UNKNOWN, Cell, Estimate
from depthmup.rules import ODE, Scheme
from depthmup.statistics import mean
from depthmup.sweep import BuiltIn, Store, Sweep
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.common import beyond_base, cell_of, networks, octaves
from reproduction.claims.panels import Axis, Row, lines
from reproduction.claims.survey import Survey, survey
from reproduction.evidence import Accepted, Comparison, Picture
from reproduction.intervals import log_slope, slope_weights

if TYPE_CHECKING:
    from depthmup.statistics import Array

LOG2_LR = -3.0
"""The best learning rate of the networks of Figure 10, which a run of the same length is given."""

STARTS = (0.25, 0.5)
"""The places lambda that distances are measured from (their root mean square is taken)."""

EXAMPLES = 64

# kappa is 1/2 or 0, for Depth-muP or beyond it: the nearer.
HALF = Accepted(low=0.25, high=0.75)
NONE = Accepted(low=-0.25, high=0.25)
# The limit of infinite depth comes first in kappa's definition, so d(eps) must have one. An error
# of a tenth in alpha leaves L^-0.1 of it: half of that tells the two apart.
STAYS = Accepted(low=-0.05, high=0.05)
GROWS = Accepted(low=0.0)


def distances_of(*, cell: str, steps: Sequence[int], eps: Sequence[float]) -> dict[str, Any]:
    """d(eps) of one network after each number of steps, by that number; none once it diverged."""
    from depthmup.training import dataset, trained
    from reproduction.probes.diversity import feature_distances

    described = Cell.from_json(cell)
    inputs = dataset(described.data).inputs[:EXAMPLES]
    distances = {}
    for step, network in zip(steps, trained(described, steps), strict=False):
        # (starts, eps)
        d = feature_distances(network, inputs, "branches.*", eps=eps, at=STARTS)
        distances[str(step)] = [float(v) for v in (d**2).mean(axis=0) ** 0.5]
    return distances


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Networks of one rule and nonlinearity, at every depth but the base's."""

    sweep: Sweep
    steps: tuple[int, ...]

    @property
    def scheme(self) -> Scheme:
        return self.sweep.design.variant().scheme

    @property
    def activation(self) -> str:
        model = self.sweep.model
        assert isinstance(model, BuiltIn)
        return model.activation

    @property
    def depths(self) -> tuple[int, ...]:
        return beyond_base(self.sweep)

    @property
    def eps(self) -> tuple[float, ...]:
        """From one layer of the shallowest network to an eighth of the depth, in octaves."""
        return tuple(n / self.depths[0] for n in octaves(1, self.depths[0] // 8))

    @cached_property
    def features(self) -> Survey[tuple[int, int]]:
        """Distances of every network's features, by (depth, seed)."""
        from depthmup.sweep import work

        seeds = range(self.sweep.design.seeds)
        cells = {(d, s): cell_of(self.sweep, d, s) for d in self.depths for s in seeds}
        shared = {"steps": list(self.steps), "eps": list(self.eps)}
        return survey(
            "feature distances",
            distances_of,
            {key: {"cell": cell.to_json(), **shared} for key, cell in cells.items()},
            work=lambda key: work(cells[key]),
        )

    def distances(self, store: Store, depth: int, step: int = -1) -> "Array":
        """d, (eps, seeds), after the number of steps of this index; NaN where it diverged."""
        import numpy as np

        lost = [np.nan] * len(self.eps)
        values = [
            values.get(str(self.steps[step]), lost)
            for (d, _), values in self.features.values(store).items()
            if d == depth
        ]
        return np.array(values, float).T

    def slopes(self, store: Store, depth: int, step: int = -1) -> "Array":
        """Slope of log d in log eps over all eps, one for each seed."""
        import numpy as np

        slopes: Array = slope_weights(np.log(self.eps)) @ np.log(self.distances(store, depth, step))
        return slopes


def kind(setting: Setting, *, activation: str, scheme: Scheme | None = None) -> Kind:
    """The networks of Figure 10 at larger depths: a = 1 and the tuned learning rate."""
    sweep = networks(
        setting,
        schemes=(scheme or setting.depth_mup,),
        depths=(8, *setting.choose(laptop=octaves(64, 512), medium=octaves(64, 1024),
                                   paper=octaves(256, 8192))),
        log2_lrs=(LOG2_LR,),
        seeds=setting.choose(laptop=8, medium=8, paper=5),
        activation=activation,
    )  # fmt: skip
    # The paper's steps at its own length; elsewhere tenths of a run.
    steps = setting.choose(laptop=(1, 5, 10), medium=(1, 5, 10), paper=(100, 500, 1000))
    if setting.choose(laptop=True, medium=True, paper=False):
        steps = tuple(sweep.design.steps * tenths // 10 for tenths in steps)
    return Kind(sweep=sweep, steps=steps)


def kappa(slopes: "Array") -> Estimate:
    """1 - slope, with Student's interval over seeds."""
    return mean([float(1 - s) for s in slopes])


def _difference(above: "Array", below: "Array") -> Estimate:
    """Mean difference of two quantities that share their seeds."""
    # Paired by seed: what networks of one seed share cancels.
    return mean([float(d) for d in above - below])


def _fig17(setting: Setting) -> Experiment:
    rule, ode = kind(setting, activation="relu"), kind(setting, activation="relu", scheme=ODE)

    def conclude(store: Store) -> Conclusion:
        deepest, shallowest = rule.depths[-1], rule.depths[0]
        near = rule.eps[0]
        return Conclusion(
            comparisons=(
                Comparison(
                    what=f"{rule.scheme.title}: κ at depth {deepest}, step {rule.steps[-1]}",
                    paper="1/2",
                    ours=kappa(rule.slopes(store, deepest)),
                    accepted=HALF,
                ),
                Comparison(
                    what=f"{rule.scheme.title}: exponent in depth of d(ε) at ε = 1/{1 / near:g}",
                    paper="0: a limit of infinite depth",
                    ours=log_slope(
                        rule.depths, [rule.distances(store, depth)[0] for depth in rule.depths]
                    ),
                    accepted=STAYS,
                ),
                Comparison(
                    what=f"ODE: slope at depth {deepest} minus slope at depth {shallowest}",
                    paper="moves from 1/2 to 1",
                    ours=_difference(ode.slopes(store, deepest), ode.slopes(store, shallowest)),
                    accepted=GROWS,
                ),
                Comparison(
                    what=f"κ at depth {deepest}, {rule.scheme.title} minus ODE",
                    paper="larger",
                    ours=_difference(ode.slopes(store, deepest), rule.slopes(store, deepest)),
                    accepted=GROWS,
                ),
                Comparison(
                    what="ODE: κ extrapolated to infinite depth",
                    paper="0",
                    ours=_endless(ode, store),
                    accepted=NONE,
                    decisive=False,
                ),
            ),
            pictures=(
                _distances(rule, store, name="depth-mup"),
                _distances(ode, store, name="ode"),
                _kappas(
                    ((rule.scheme.title, rule), ("ODE", ode)),
                    store,
                    caption="κ = 1 − slope against depth, with intervals over seeds.",
                ),
            ),
        )

    return _experiment((rule, ode), conclude)


def _endless(ode: Kind, store: Store) -> Estimate:
    from reproduction.probes.diversity import diversity_at_infinite_depth

    runs = [[d[None] for d in ode.distances(store, depth).T] for depth in ode.depths]
    try:
        diversity = diversity_at_infinite_depth(ode.depths, runs, ode.eps, alpha=ode.scheme.alpha)
    except ValueError:  # fewer than three depths, or only noise at these
        return UNKNOWN
    return diversity.kappa


def _fig18(setting: Setting) -> Experiment:
    rule = kind(setting, activation="relu")

    def conclude(store: Store) -> Conclusion:
        deepest, shallowest = rule.depths[-1], rule.depths[0]
        first, last = rule.steps[0], rule.steps[-1]
        final = rule.slopes(store, deepest)
        return Conclusion(
            comparisons=(
                Comparison(
                    what=f"slope at depth {deepest}, step {last} minus step {first}",
                    paper="grows with t",
                    ours=_difference(final, rule.slopes(store, deepest, 0)),
                    accepted=GROWS,
                ),
                Comparison(
                    what=f"slope at step {last}, depth {deepest} minus depth {shallowest}",
                    paper="grows with L",
                    ours=_difference(final, rule.slopes(store, shallowest)),
                    accepted=GROWS,
                ),
            ),
            pictures=(
                _distances(rule, store, name="relative", over_root=True),
                _by_step(
                    [(f"depth {depth}", rule, depth) for depth in (shallowest, deepest)],
                    store,
                    caption="κ = 1 − slope in the course of training, at two depths.",
                ),
            ),
        )

    return _experiment((rule,), conclude)


def _fig19(setting: Setting) -> Experiment:
    relu, absolute = (kind(setting, activation=phi) for phi in ("relu", "abs"))

    def conclude(store: Store) -> Conclusion:
        deepest = relu.depths[-1]
        return Conclusion(
            comparisons=tuple(
                Comparison(
                    what=f"κ at depth {deepest}, step {step}, abs minus relu",
                    paper="abs is more diverse",
                    ours=_difference(
                        relu.slopes(store, deepest, i), absolute.slopes(store, deepest, i)
                    ),
                    accepted=GROWS,
                    # The figure is drawn for networks that have trained for longest.
                    decisive=step == relu.steps[-1],
                )
                for i, step in enumerate(relu.steps)
            ),
            pictures=(
                _distances(absolute, store, name="relative", over_root=True),
                _kappas(
                    (("abs", absolute), ("relu", relu)),
                    store,
                    caption="κ = 1 − slope against depth for both nonlinearities.",
                ),
                _by_step(
                    [("abs", absolute, deepest), ("relu", relu, deepest)],
                    store,
                    caption=f"κ = 1 − slope in the course of training, at depth {deepest}.",
                ),
            ),
        )

    return _experiment((relu, absolute), conclude)


def _experiment(kinds: Sequence[Kind], conclude: Any) -> Experiment:
    return Experiment(
        measures=tuple(measure for kind in kinds for measure in kind.features.measures),
        conclude=conclude,
        config={
            "sweeps": [kind.sweep.to_dict() for kind in kinds],
            "steps": kinds[0].steps,
            "eps": kinds[0].eps,
            "starts": STARTS,
        },
    )


def _distances(of: Kind, store: Store, *, name: str, over_root: bool = False) -> Picture:
    """The paper's curves: d(eps), 1 at the smallest eps; over sqrt(eps) with a frame per step."""
    import numpy as np

    steps = range(len(of.steps)) if over_root else [len(of.steps) - 1]
    rows: list[Row] = []
    for window, step in enumerate(steps):
        for depth in of.depths:
            d = of.distances(store, depth, step)
            # over_root is 0 or 1: half of it is the power of eps that is divided by.
            relative = d / d[0] / (np.array(of.eps)[:, None] / of.eps[0]) ** (over_root / 2)
            for eps, values in zip(of.eps, relative, strict=True):
                value = float(np.exp(np.log(values).mean()))
                rows.append({"eps": eps, "distance": value, "depth": depth, "window": window})
    span = (of.eps[0], of.eps[-1])
    powers = [("ε", 1.0)] if over_root else [("√ε", 0.5), ("ε", 1.0)]
    what = "d(ε) / √ε" if over_root else "d(ε)"
    return lines(
        rows,
        name=name,
        caption=f"{of.scheme.title}, {of.activation}: {what}, scaled to 1 at the smallest ε.",
        x=Axis(field="eps", title="ε", log=True),
        y=Axis(field="distance", title=what, log=True),
        by="depth",
        ordered=True,
        references=[
            (label, [(e, (e / span[0]) ** (power - over_root / 2)) for e in span])
            for label, power in powers
        ],
        frames=[f"step {of.steps[step]}" for step in steps] if over_root else (),
    )


def _kappas(kinds: Sequence[tuple[str, Kind]], store: Store, *, caption: str) -> Picture:
    rows: list[Row] = [
        {"of": title, "depth": depth, **_bar(kappa(kind.slopes(store, depth)), "kappa")}
        for title, kind in kinds
        for depth in kind.depths
    ]
    return lines(
        rows,
        name="kappa",
        caption=caption,
        x=Axis(field="depth", title="depth", log=True),
        y=Axis(field="kappa", title="κ"),
        by="of",
        by_title="networks",
    )


def _by_step(kinds: Sequence[tuple[str, Kind, int]], store: Store, *, caption: str) -> Picture:
    rows: list[Row] = [
        {"of": title, "step": step, **_bar(kappa(kind.slopes(store, depth, i)), "kappa")}
        for title, kind, depth in kinds
        for i, step in enumerate(kind.steps)
    ]
    return lines(
        rows,
        name="training",
        caption=caption,
        x=Axis(field="step", title="step", log=True),
        y=Axis(field="kappa", title="κ"),
        by="of",
        by_title="networks",
    )


def _bar(estimate: Estimate, name: str) -> Row:
    return {name: estimate.value, "low": estimate.low, "high": estimate.high}


CLAIMS: Sequence[Claim] = (
    Claim(
        name="fig17",
        title="Features of Depth-muP stay diverse with depth, those of ODE become a flow",
        shows="How far features at two places εL layers apart differ. Under Depth-muP the distance "
        "grows as √ε at every depth; under ODE it moves to ε, so that neighbouring layers are "
        "copies of each other.",
        source="TP6 Figure 17",
        experiment=_fig17,
        remedy="Deeper networks and more seeds: --scale medium, or --scale paper for depth 8192.",
    ),
    Claim(
        name="fig18",
        title="Depth-muP's features become a little smoother with depth and training",
        shows="The distances of Figure 17 over √ε, at three times in training. The curves rise: "
        "their slope grows with training time and with depth.",
        source="TP6 Figure 18",
        experiment=_fig18,
        remedy="Deeper networks and more seeds: --scale medium, or --scale paper for depth 8192.",
    ),
    Claim(
        name="fig19",
        title="abs keeps features more diverse than relu",
        shows="The curves of Figure 18 for abs in place of relu. Their slopes are smaller, as abs "
        "decorrelates the gradients of neighbouring blocks.",
        source="TP6 Figure 19",
        experiment=_fig19,
        remedy="Deeper networks and more seeds: --scale medium, or --scale paper for depth 8192.",
    ),
)
