"""Regimes, measured: where (alpha, gamma) lies, from networks of growing depth.

The exponents that decide between the regions of Figure 1 are fitted on trained networks and stand
beside those that ``limits`` computes at infinite width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from depthmup.diagnostics import Key, TrainedNetwork, check
from depthmup.model import Model
from depthmup.records import UNKNOWN, Check, Estimate
from depthmup.rules import Exponent, Observable, Regime, Scheme, decided, general, regime, region
from depthmup.statistics import Array, log_slopes
from reproduction.probes.diversity import diversity_at_infinite_depth, feature_distances
from reproduction.theory.regimes import depth_exponents

# Exponents of the theory are multiples of 1/4 on the usual maps; half a step decides.
DECISIVE = 0.125
# Feature diversity is 1/2 or 0.
DIVERSE = 0.25
EPS, PLACES = (1 / 8, 1 / 4), tuple(k / 8 for k in range(6))


@dataclass(frozen=True, kw_only=True, slots=True)
class Property:
    """One claim about a regime: its measured exponent, the computed one, and what each says.

    ``measured`` and ``computed`` are None where the exponent cannot decide (its interval holds
    both answers), or has no meaning there.

    Attributes:
        name: of the claim, such as faithful.
        exponent: of which quantity, in words.
        estimate: what was measured.
        theory: what was computed.
    """

    name: str
    exponent: str
    estimate: Estimate
    theory: float
    measured: bool | None
    computed: bool | None


@dataclass(frozen=True, kw_only=True)
class MeasuredRegime:
    """A pair of exponents: what was measured, and what ``limits`` computes.

    Attributes:
        alpha, gamma: the exponents.
        properties: one for each claim.
        region: that the measurements lie in.
        expected: what ``limits`` computes.
        check: the check that measured it.
    """

    alpha: Fraction
    gamma: Fraction
    properties: tuple[Property, ...]
    region: str
    expected: Regime
    check: Check

    @property
    def agrees(self) -> bool:
        """Whether no measured property contradicts its computed one."""
        return all(
            p.measured == p.computed
            for p in self.properties
            if p.measured is not None and p.computed is not None
        )

    @property
    def decided(self) -> bool:
        """Whether networks decided what the region rests on; what they did not is taken to hold."""
        return decided(p.measured for p in self.properties if p.name != "feature learning")


def measured_regime(
    model: Model,
    alpha: Exponent,
    gamma: Exponent,
    *,
    width: int = 64,
    depths: Sequence[int] = (8, 16, 32, 64),
    seeds: int = 3,
    steps: int = 6,
    blocks: str | None = None,
    **options: Any,
) -> MeasuredRegime:
    """Measure one pair of exponents on a model, its plan applied.

    - stable at initialization: the stream's exponent of depth is at most 0;
    - stable in training, nontrivial: so is its change's, and it is not below 0;
    - feature learning: the last layer's change relative to its size does not vanish;
    - faithful: the updates' effect on pre-activations relative to these, L^-gamma, does not grow;
    - diverse: kappa, from 1/8 to 1/4 of the depth and extrapolated to infinite depth, is nearer to
      1/2 than to 0, the redundant. Without ``blocks``, or where distances at these depths are noise
      alone, it is not measured, and the region goes by whether the branches' sum at initialization,
      L^(1/2 - alpha), vanishes.

    Below alpha = 1/2 networks explode faster than any power, but at modest depth and with small
    branches an exponent may still look tame: give the branches their full size. A network that
    explodes is unstable: at initialization if it did before the first step.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from depthmup import Model
        >>> class Block(nn.Module):
        ...     def __init__(self, width):
        ...         super().__init__()
        ...         self.linear = nn.Linear(width, width, bias=False)
        ...     def forward(self, x):
        ...         return x + torch.tanh(self.linear(x))
        >>> def make(width, depth):
        ...     blocks = [Block(width) for _ in range(depth)]
        ...     return nn.Sequential(nn.Linear(4, width), *blocks, nn.Linear(width, 2))
        >>> def batch(generator):
        ...     x = torch.randn(16, 4, generator=generator)
        ...     return x, (x[:, 0] > 0).long()
        >>> depth_mup = measured_regime(Model(make, batch=batch), "1/2", "1/2",
        ...     width=16, depths=(2, 4, 8), seeds=2, steps=2)
        >>> depth_mup.alpha, depth_mup.region
        (Fraction(1, 2), 'Depth-muP')

    *Source:* TP6 (arXiv 2310.02244) Claims 7.1 to 7.5.
    """
    scheme: Scheme = general(alpha, gamma)
    ratios: list[tuple[int, int, float]] = []  # depth, seed, relative change of the last layer
    distances: dict[int, list[Array]] = {depth: [] for depth in depths}

    def observe(network: TrainedNetwork) -> None:
        size, change = (
            observation.values.get(Key(observable=observable, module="stream at 1 of depth"), 0.0)
            for observation, observable in (
                (network.first, Observable.STREAM),
                (network.second, Observable.STREAM_CHANGE),
            )
        )
        if size > 0 and change > 0:
            ratios.append((network.size["depth"], network.seed, change / size))
        if blocks is not None:
            distances[network.size["depth"]].append(
                feature_distances(network.model, network.inputs, blocks, eps=EPS, at=PLACES)
            )

    measured = check(
        model,
        scheme=scheme,
        widths=(width,),
        depths=tuple(depths),
        seeds=seeds,
        steps=steps,
        each=observe,
        **options,
    )
    properties = _properties(measured, _relative_change(ratios), alpha, gamma)
    says = {p.name: p.measured is not False for p in properties}
    kappa, theory = None, depth_exponents(alpha, gamma)
    if all(says[p] for p in ("stable at initialization", "stable in training", "nontrivial")):
        kappa = _kappa(distances, scheme.alpha)
    properties = (*properties, _property("diverse", "kappa", kappa, theory.kappa, _diverse))
    return MeasuredRegime(
        alpha=scheme.alpha,
        gamma=scheme.gamma,
        properties=properties,
        region=_region(properties, measured),
        expected=regime(alpha, gamma),
        check=measured,
    )


def _properties(
    check: Check, learned: Estimate | None, alpha: Exponent, gamma: Exponent
) -> tuple[Property, ...]:
    """Every claim but diversity; ``learned``: exponent of the last layer's relative change."""
    theory = depth_exponents(alpha, gamma)
    stream, change = _largest(check, "stream"), _largest(check, "stream change")
    inner = _largest(check, "update effect", inside=True)
    properties: tuple[Property, ...] = (
        _property("stable at initialization", "stream", stream, theory.x_0, _not_growing),
        _property("stable in training", "stream change", change, theory.f_1, _not_growing),
        _property("nontrivial", "stream change", change, theory.f_1, _not_vanishing),
        _property("feature learning", "relative change", learned, theory.x_1, _not_vanishing),
        _property("faithful", "update effect", inner, theory.linearization, _not_growing),
    )
    if regime(alpha, gamma).faithful is None:  # unstable or trivial: the claim has no meaning
        properties = (*properties[:4], replace(properties[4], computed=None))
    if check.nonfinite is not None:
        broken = 0 if check.nonfinite.step == 0 else 1
        properties = tuple(
            replace(p, measured=False) if i == broken else p for i, p in enumerate(properties)
        )
    return properties


def _region(properties: Sequence[Property], check: Check) -> str:
    says = {p.name: p.measured for p in properties}
    diverse = says["diverse"]
    return region(
        stable_at_init=says["stable at initialization"] is not False,
        stable_in_training=says["stable in training"] is not False,
        nontrivial=says["nontrivial"] is not False,
        faithful=says["faithful"] is not False,
        diverse=_noise_remains(_largest(check, "branch output")) if diverse is None else diverse,
    )


def measured_map(
    model: Model,
    pairs: Sequence[tuple[Exponent, Exponent]],
    *,
    full: Model | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> tuple[MeasuredRegime, ...]:
    """The measured Figure 1: one regime for every pair of exponents.

    Changes fall cleanly with depth where branches are small, as they are measured beside the noise
    of initialization; that this noise explodes is seen at modest depth only where branches have
    their full size.

    *Source:* TP6 (arXiv 2310.02244) Figure 1.
    """
    result: list[MeasuredRegime] = []
    at_init: dict[Fraction, Property] = {}
    for alpha, gamma in pairs:
        measured = measured_regime(model, alpha, gamma, **options)
        if full is not None:
            if measured.alpha not in at_init:
                started = {**options, "steps": 1, "blocks": None}
                line = measured_regime(full, measured.alpha, 1 - measured.alpha, **started)
                at_init[measured.alpha] = line.properties[0]
            properties = (at_init[measured.alpha], *measured.properties[1:])
            measured = replace(
                measured, properties=properties, region=_region(properties, measured.check)
            )
        result.append(measured)
        progress(len(result), len(pairs))
    return tuple(result)


def _largest(check: Check, observable: str, *, inside: bool = False) -> Estimate | None:
    """The fastest growing of the kinds of modules that show an observable."""
    estimates = [
        e.estimate
        for e in check.exponents
        if e.observable == observable and e.axis == "depth" and (not inside or "*" in e.module)
    ]
    return max(estimates, key=lambda e: e.value, default=None)


def _not_growing(e: Estimate) -> bool | None:
    return True if e.high < 2 * DECISIVE and e.value < DECISIVE else _if(e.low > DECISIVE, False)


def _not_vanishing(e: Estimate) -> bool | None:
    return True if e.low > -2 * DECISIVE and e.value > -DECISIVE else _if(e.high < -DECISIVE, False)


def _diverse(e: Estimate) -> bool | None:
    return True if e.low > DIVERSE else _if(e.high < DIVERSE, False)


def _noise_remains(branch: Estimate | None) -> bool:
    """Whether L independent branches of this size add up to something at infinite depth."""
    return branch is not None and branch.value > -(0.5 + DECISIVE)


def _relative_change(ratios: Sequence[tuple[int, int, float]]) -> Estimate | None:
    if len({depth for depth, _, _ in ratios}) < 3:
        return None
    depths, seeds, values = zip(*ratios, strict=True)
    (slope,) = log_slopes([(float(depth),) for depth in depths], values, seeds)
    return slope.estimate()


def _kappa(distances: Mapping[int, Sequence[Array]], alpha: Exponent) -> Estimate | None:
    depths = [depth for depth, runs in distances.items() if runs]
    if len(depths) < 3:
        return None
    try:
        curve = diversity_at_infinite_depth(
            depths, [distances[depth] for depth in depths], EPS, alpha=alpha
        )
    except ValueError:  # only noise
        return None
    return curve.kappa


def _if(holds: bool, answer: bool) -> bool | None:
    return answer if holds else None


def _property(
    name: str,
    exponent: str,
    estimate: Estimate | None,
    theory: float,
    test: Callable[[Estimate], bool | None],
) -> Property:
    exact = Estimate(value=theory, low=theory, high=theory)
    return Property(
        name=name,
        exponent=exponent,
        estimate=estimate or UNKNOWN,
        theory=theory,
        measured=test(estimate) if estimate is not None else None,
        computed=test(exact) if theory == theory else None,
    )
