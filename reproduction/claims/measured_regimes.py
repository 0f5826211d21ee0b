"""Where pairs (alpha, gamma) lie, seen on trained networks: beside the computed map of Figure 1.

Networks of one-matrix blocks with abs, U and V frozen, a few steps of AdamW on the digits, at
several depths; every property is the sign of a fitted exponent of depth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from depthmup import rules
from depthmup.records import Data, Estimate
from depthmup.rules import REGIONS, Regime, regime
from depthmup.sweep import Store
from reproduction.claims.claim import Setting
from reproduction.claims.regime_map import TRAINED, Pair
from reproduction.claims.survey import Survey, survey
from reproduction.evidence import Accepted, Comparison
from reproduction.intervals import exact
from reproduction.runs import Measure

if TYPE_CHECKING:
    import torch

    from depthmup.model import Model

Measured = Mapping[Pair, Mapping[str, Any]]
"""By pair: its region, its properties and its exponents, as ``regime_of`` measures them."""

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
initialization is measured with full ones, a = 1, for every alpha.
"""

LR, STEPS = 2e-3, 6
"""Enough for features to move beside the noise of initialization, which kappa is read from."""

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

RESIDUAL_MLPS: Mapping[str, Any] = {"blocks": "branches.*", "plan_options": {"own_init": "fan_in"}}
"""How ``diagnostics.measured_regime`` is to observe ``residual_mlps``."""


def residual_mlps(
    batch: "Callable[[torch.Generator], tuple[torch.Tensor, torch.Tensor]]",
    *,
    inputs: int,
    outputs: int,
    log2_multiplier: float,
) -> "Model":
    """Residual MLPs whose branches alone are trained, as a subject of ``diagnostics``."""
    import torch

    from depthmup.model import Model
    from depthmup.models import ResidualMLP

    def make(width: int, depth: int) -> torch.nn.Module:
        model = ResidualMLP(
            inputs=inputs,
            width=width,
            depth=depth,
            outputs=outputs,
            multiplier=2.0**log2_multiplier,
        )
        # What is outside of branches moves by order one at any depth, and would hide the rest.
        model.input.requires_grad_(False)
        model.readout.requires_grad_(False)
        return model

    return Model(make=make, batch=batch)


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
    """Train networks of one pair at every depth: their region, exponents and properties.

    A property is true, false, or None where these networks could not decide it.
    """
    import torch

    from depthmup.training import dataset
    from reproduction.probes.regimes import DECISIVE, measured_regime

    examples = dataset(Data(**data))

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(examples.inputs), (64,), generator=generator)
        return examples.inputs[chosen], examples.labels[chosen]

    measured = measured_regime(
        residual_mlps(
            batch,
            inputs=examples.inputs.shape[1],
            outputs=examples.classes,
            log2_multiplier=log2_multiplier,
        ),
        alpha,
        gamma,
        width=width,
        depths=depths,
        seeds=seeds,
        steps=steps,
        lr=lr,
        **RESIDUAL_MLPS,
    )
    properties = {p.name: p for p in measured.properties}
    # Pre-activations of order one and an update's share of them that vanishes: L^-gamma.
    share = properties["faithful"].estimate
    linear = True if share.high < -DECISIVE else False if share.low > -DECISIVE else None
    return {
        "region": measured.region,
        "exponents": {name: p.estimate.value for name, p in properties.items()},
        **{name: p.measured for name, p in properties.items()},
        LINEAR: linear,
    }


@dataclass(frozen=True, kw_only=True)
class Networks:
    """What is trained: networks for every pair, and some with full branches for every alpha."""

    pairs: Survey[Pair]
    full: Survey[Fraction]

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (*self.pairs.measures, *self.full.measures)


def networks(setting: Setting, pairs: Sequence[Pair] = TRAINED) -> Networks:
    """The networks that show these pairs, at a scale."""
    sizes = setting.choose(
        laptop={"width": 64, "depths": (8, 16, 32, 64, 128), "seeds": 4},
        medium={"width": 128, "depths": (8, 16, 32, 64, 128, 256), "seeds": 5},
        paper={"width": 256, "depths": (8, 16, 32, 64, 128, 256, 512), "seeds": 5},
    )
    sizes |= {name: value for name, value in setting.sizes.items() if name in sizes}

    def settings(alpha: Fraction, gamma: Fraction, **training: Any) -> dict[str, Any]:
        return {
            "alpha": str(alpha),
            "gamma": str(gamma),
            **sizes,
            "depths": list(sizes["depths"]),
            "lr": LR,
            "data": asdict(setting.data),
            **training,
        }

    # Mostly what it takes to trace networks and to look at every block.
    work = 2e6 * sum(sizes["depths"]) * sizes["seeds"]
    small = {pair: settings(*pair, steps=STEPS, log2_multiplier=LOG2_MULTIPLIER) for pair in pairs}
    # Initialization does not depend on gamma: one on the line alpha + gamma = 1 is as good as any.
    full = {
        alpha: settings(alpha, 1 - alpha, steps=1, log2_multiplier=0.0)
        for alpha in dict.fromkeys(alpha for alpha, _ in pairs)
    }
    return Networks(
        pairs=survey("measured regime", regime_of, small, work=work),
        full=survey("measured regime", regime_of, full, work=work),
    )


def measured_by_pair(store: Store, trained: Networks) -> Measured:
    """What was measured, by pair; stability at initialization from full branches."""
    full = {alpha: values[AT_INIT] for alpha, values in trained.full.values(store).items()}
    by_pair = {}
    for (alpha, gamma), values in trained.pairs.values(store).items():
        # The first region is that of an unstable initialization, whatever training does.
        region = REGIONS[0] if full[alpha] is False else values["region"]
        by_pair[alpha, gamma] = {**values, "region": region, AT_INIT: full[alpha]}
    return by_pair


def misjudged(measured: Measured, *names: str, decisive: bool = True) -> tuple[Comparison, ...]:
    """How many of the deciding pairs (or of the others) lie on the other side of a claim.

    From those that do to those that might, as they could not be decided. Nothing where the claim
    says nothing of any pair.
    """
    wrong = undecided = asked = 0
    for pair in _some(measured, decisive):
        said = {name: CLAIMED[name](regime(*pair)) for name in names}
        claimed = {name: says for name, says in said.items() if says is not None}
        asked += bool(claimed)
        # None is undecided, and counts neither for nor against.
        against = [measured[pair][name] not in (None, says) for name, says in claimed.items()]
        wrong += any(against)
        undecided += not any(against) and any(measured[pair][name] is None for name in claimed)
    if not asked:
        return ()
    pairs = f"{asked} pairs" if decisive else f"the map's other {asked} pairs"
    what = f"trained networks: of {pairs}, those against the claim ({', '.join(names)})"
    return (_count(what, wrong, undecided, decisive=decisive),)


def farthest(
    measured: Measured,
    name: str,
    claimed: Callable[[Regime], float | None],
    *,
    what: str,
    paper: str,
) -> Comparison:
    """The largest distance of a measured exponent from the claimed one, beside the verdict."""
    from reproduction.probes.regimes import DECISIVE

    gaps = {
        pair: abs(measured[pair]["exponents"][name] - expected)
        for pair in measured
        if (expected := claimed(regime(*pair))) is not None
    }
    return Comparison(
        what=f"trained networks: {what}, largest distance from the claim over {len(gaps)} pairs",
        paper=paper,
        ours=exact(max(gaps.values())),
        # Half of what neighbouring pairs of the map differ by.
        accepted=Accepted(low=0.0, high=DECISIVE),
        decisive=False,
    )


def _some(measured: Measured, decisive: bool) -> list[Pair]:
    return [pair for pair in measured if (pair in DECIDING) == decisive]


def decided(values: Mapping[str, Any]) -> bool:
    """Whether networks decided what a pair's region rests on."""
    return rules.decided(values[name] for name in CLAIMED if name != LINEAR)


def elsewhere(measured: Measured, *, decisive: bool = True) -> Comparison:
    """How many pairs are found in another region than the paper's."""
    pairs = _some(measured, decisive)
    what = f"{len(pairs)} pairs" if decisive else f"the map's other {len(pairs)} pairs"
    return _count_decided(
        f"trained networks: of {what}, those in another region than the paper's",
        measured,
        {pair: measured[pair]["region"] != regime(*pair).name for pair in pairs},
        decisive=decisive,
    )


def others_than(measured: Measured, rule: Pair) -> Comparison:
    """Whether the rule's pair, and it alone, is found to have all properties of the best."""
    pairs = [pair for pair in measured if pair in DECIDING or pair == rule]
    return _count_decided(
        f"trained networks: of {len(pairs)} pairs, those with all four properties that are not the "
        f"rule's ({rule[0]}, {rule[1]}), or the rule's without them",
        measured,
        {pair: (measured[pair]["region"] == "Depth-muP") != (pair == rule) for pair in pairs},
    )


def _count_decided(
    what: str, measured: Measured, wrong: Mapping[Pair, bool], *, decisive: bool = True
) -> Comparison:
    """How many pairs are wrong; one that networks left open might be, wherever it is drawn."""
    sure = {pair for pair in wrong if decided(measured[pair])}
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
