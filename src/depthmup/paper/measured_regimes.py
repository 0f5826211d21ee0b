"""Where pairs (alpha, gamma) lie, seen on trained networks: beside the computed map of Figure 1.

Networks of one-matrix blocks with abs, U and V frozen, a few steps of AdamW on the digits, at
several depths; every property is the sign of a fitted exponent of depth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from depthmup import rules
from depthmup.model import Model
from depthmup.paper.claim import Setting, values_of
from depthmup.paper.panels import framed
from depthmup.records import Accepted, Comparison, Data, Estimate, Picture, Task
from depthmup.rules import REGIONS, Regime, regime
from depthmup.statistics import exact
from depthmup.sweep import Measure, Store

Pair = tuple[Fraction, Fraction]
Seen = Mapping[Pair, Mapping[str, Any]]

MAP: tuple[Pair, ...] = tuple(
    (Fraction(a, 4), Fraction(g, 4)) for a, g in product(range(1, 6), range(-1, 4))
)
"""alpha from 1/4 to 5/4 and gamma from -1/4 to 3/4, in quarters."""

DECIDING: tuple[Pair, ...] = tuple(
    (Fraction(alpha), Fraction(gamma))
    for alpha, gamma in (
        ("1/4", "3/4"),
        ("1/2", "1/4"),
        ("1/2", "1/2"),
        ("1/2", "3/4"),
        ("3/4", "1/4"),
        ("1", "0"),
        ("5/4", "-1/4"),
    )
)
"""Pairs of every region; the other pairs of the map are shown beside the verdict."""

LOG2_MULTIPLIER = -1.5
"""The paper's log2 a for small branches, 8^-1/2.

At a = 1 the noise of eight branches multiplies the stream by more than two, and above alpha = 1/2
there is hardly any at depth 128: changes would fall with depth as this noise does. But branches as
small as this hardly explode by depth 128 where alpha is below 1/2, and so stability at
initialization is looked at with full ones, a = 1, for every alpha.
"""

LR, STEPS = 2e-3, 6
"""Enough for features to move beside the noise of initialization, from which kappa is found."""

AT_INIT, LINEAR = "stable at initialization", "layerwise linear"
CLAIMED: Mapping[str, Callable[[Regime], bool | None]] = {
    AT_INIT: lambda r: r.stable_at_init,
    "stable in training": lambda r: r.stable_in_training if r.stable_at_init else None,
    "nontrivial": lambda r: r.nontrivial if r.stable_in_training else None,
    "faithful": lambda r: r.faithful,
    "diverse": lambda r: r.kappa != 0 if r.faithful else None,
    LINEAR: lambda r: r.layerwise_linear if r.faithful else None,
}
"""What Claims 7.1 to 7.6 say of a pair, None where they say nothing."""


def regime_of(
    *,
    alpha: str,
    gamma: str,
    width: int,
    depths: Sequence[int],
    seeds: int,
    steps: int,
    lr: float,
    log2_multiplier: float,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """The region that networks of one pair are found in, and each property: true, false or None
    where it could not be decided."""
    import torch

    from depthmup.diagnostics import DECISIVE, measured_regime
    from depthmup.models import ResidualMLP
    from depthmup.training import dataset

    examples = dataset(Data(**data))

    def make(width: int, depth: int) -> torch.nn.Module:
        inputs = examples.inputs.shape[1]
        model = ResidualMLP(
            inputs=inputs,
            width=width,
            depth=depth,
            outputs=examples.classes,
            multiplier=2.0**log2_multiplier,
        )
        # What is outside of branches moves by order one at any depth, and would hide the rest.
        model.input.requires_grad_(False)
        model.readout.requires_grad_(False)
        return model

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(examples.inputs), (64,), generator=generator)
        return examples.inputs[chosen], examples.labels[chosen]

    found = measured_regime(
        Model(make=make, batch=batch),
        alpha,
        gamma,
        width=width,
        depths=depths,
        seeds=seeds,
        steps=steps,
        lr=lr,
        blocks="branches.*",
        plan_options={"own_init": "fan_in"},
    )
    properties = {p.name: p for p in found.properties}
    # Pre-activations of order one and an update's share of them that vanishes: L^-gamma.
    share = properties["faithful"].estimate
    linear = True if share.high < -DECISIVE else False if share.low > -DECISIVE else None
    return {
        "region": found.region,
        "exponents": {name: p.estimate.value for name, p in properties.items()},
        **{name: p.measured for name, p in properties.items()},
        LINEAR: linear,
    }


@dataclass(frozen=True, kw_only=True)
class Networks:
    """What is trained: a measurement for every pair, and one at full branches for every alpha."""

    pairs: Mapping[Pair, Measure]
    full: Mapping[Fraction, Measure]

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (*self.pairs.values(), *self.full.values())


def networks(setting: Setting, pairs: Sequence[Pair] = MAP) -> Networks:
    """The networks that show these pairs, at a scale."""
    sizes = setting.choose(
        laptop={"width": 64, "depths": (8, 16, 32, 64, 128), "seeds": 4},
        medium={"width": 128, "depths": (8, 16, 32, 64, 128, 256), "seeds": 5},
        paper={"width": 256, "depths": (8, 16, 32, 64, 128, 256, 512), "seeds": 5},
    )
    sizes |= {name: value for name, value in setting.sizes.items() if name in sizes}

    def measure(alpha: Fraction, gamma: Fraction, *, steps: int, log2_multiplier: float) -> Measure:
        settings = {
            "alpha": str(alpha),
            "gamma": str(gamma),
            **sizes,
            "depths": list(sizes["depths"]),
            "steps": steps,
            "lr": LR,
            "log2_multiplier": log2_multiplier,
            "data": asdict(setting.data),
        }
        return Measure(
            task=Task(name="measured regime", settings=settings),
            function=regime_of,
            # Mostly what it takes to trace networks and to look at every block.
            work=2e6 * sum(sizes["depths"]) * sizes["seeds"],
        )

    return Networks(
        pairs={
            pair: measure(*pair, steps=STEPS, log2_multiplier=LOG2_MULTIPLIER) for pair in pairs
        },
        full={
            alpha: measure(alpha, 1 - alpha, steps=1, log2_multiplier=0.0)
            for alpha in dict.fromkeys(alpha for alpha, _ in pairs)
        },
    )


def seen(store: Store, of: Networks) -> Seen:
    """What was measured, by pair; stability at initialization from full branches."""
    full = {alpha: values_of(store, measure.task)[AT_INIT] for alpha, measure in of.full.items()}
    found = {}
    for (alpha, gamma), measure in of.pairs.items():
        values = dict(values_of(store, measure.task))
        if full[alpha] is False:
            values["region"] = REGIONS[0]
        found[alpha, gamma] = {**values, AT_INIT: full[alpha]}
    return found


def misjudged(found: Seen, *names: str, decisive: bool = True) -> tuple[Comparison, ...]:
    """How many of the deciding pairs (or of the others) lie on the other side of a claim.

    From those that do to those that might, as they could not be decided. Nothing where the claim
    says nothing of any pair.
    """
    wrong = undecided = asked = 0
    for pair in _some(found, decisive):
        said = {name: CLAIMED[name](regime(*pair)) for name in names}
        claimed = {name: says for name, says in said.items() if says is not None}
        asked += bool(claimed)
        against = [found[pair][name] not in (None, says) for name, says in claimed.items()]
        wrong += any(against)
        undecided += not any(against) and any(found[pair][name] is None for name in claimed)
    if not asked:
        return ()
    pairs = f"{asked} pairs" if decisive else f"the map's other {asked} pairs"
    what = f"trained networks: of {pairs}, those against the claim ({', '.join(names)})"
    return (_count(what, wrong, undecided, decisive=decisive),)


def farthest(
    found: Seen, name: str, claimed: Callable[[Regime], float | None], *, what: str, paper: str
) -> Comparison:
    """The largest distance of a measured exponent from the claimed one, beside the verdict."""
    gaps = {
        pair: abs(found[pair]["exponents"][name] - expected)
        for pair in found
        if (expected := claimed(regime(*pair))) is not None
    }
    return Comparison(
        what=f"trained networks: {what}, largest distance from the claim over {len(gaps)} pairs",
        paper=paper,
        ours=exact(max(gaps.values())),
        # Half of what neighbouring pairs of the map differ by.
        accepted=Accepted(low=0.0, high=0.125),
        decisive=False,
    )


def _some(found: Seen, decisive: bool) -> list[Pair]:
    return [pair for pair in found if (pair in DECIDING) == decisive]


def decided(values: Mapping[str, Any]) -> bool:
    """Whether networks decided what a pair's region rests on."""
    return rules.decided(values[name] for name in CLAIMED if name != LINEAR)


def elsewhere(found: Seen, *, decisive: bool = True) -> Comparison:
    """How many pairs are found in another region than the paper's."""
    pairs = _some(found, decisive)
    what = f"{len(pairs)} pairs" if decisive else f"the map's other {len(pairs)} pairs"
    return _count_decided(
        f"trained networks: of {what}, those in another region than the paper's",
        found,
        {pair: found[pair]["region"] != regime(*pair).name for pair in pairs},
        decisive=decisive,
    )


def others_than(found: Seen, rule: Pair) -> Comparison:
    """Whether the rule's pair, and it alone, is found to have all properties of the best."""
    pairs = [pair for pair in found if pair in DECIDING or pair == rule]
    return _count_decided(
        f"trained networks: of {len(pairs)} pairs, those with all four properties that are not the "
        f"rule's ({rule[0]}, {rule[1]}), or the rule's without them",
        found,
        {pair: (found[pair]["region"] == "Depth-muP") != (pair == rule) for pair in pairs},
    )


def _count_decided(
    what: str, found: Seen, wrong: Mapping[Pair, bool], *, decisive: bool = True
) -> Comparison:
    """How many pairs are wrong; one that networks left open might be, wherever it is drawn."""
    sure = {pair for pair in wrong if decided(found[pair])}
    return _count(
        what, sum(wrong[pair] for pair in sure), len(wrong) - len(sure), decisive=decisive
    )


def _count(what: str, wrong: int, undecided: int, *, decisive: bool = True) -> Comparison:
    return Comparison(
        what=what,
        paper="0",
        ours=Estimate(value=wrong, low=wrong, high=wrong + undecided),
        accepted=Accepted(low=0, high=0),
        decisive=decisive,
    )


def map_of(
    found: Seen,
    *,
    name: str,
    caption: str,
    decided: Callable[[Mapping[str, Any]], bool] = lambda values: True,
) -> Picture:
    """The map of the regions that pairs were found in, whether computed or seen."""
    from depthmup.reports import MapPoint, regime_map

    points = [
        MapPoint(
            alpha=alpha,
            gamma=gamma,
            found=str(values["region"]),
            expected=regime(alpha, gamma).name,
            decided=decided(values),
        )
        for (alpha, gamma), values in found.items()
    ]
    caption = f"{caption}; a cross marks a pair that the paper puts elsewhere"
    if not all(point.decided for point in points):
        caption += ", a hollow square one whose region networks left open"
    return framed(regime_map(points, title=""), name=name, caption=f"{caption}.")
