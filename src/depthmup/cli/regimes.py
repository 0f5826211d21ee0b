"""``depthmup regimes``: the regime of a pair of exponents, or a map of all of them."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from depthmup.cli.output import print_json
from depthmup.rules import exponent, regime

if TYPE_CHECKING:
    from torch import Generator, Tensor

Pair = tuple[Fraction, Fraction]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show the regime of (alpha, gamma): stable, nontrivial, faithful, diverse (Claims 7.1 to 7.6).

    With --map, draw the paper's Figure 1 from exponents computed at infinite width: nothing is
    trained, and none of the claims is assumed. With --measured as well, draw beside it the same map
    from networks of growing depth that are trained for a few steps, in about 2 minutes on one core.
    Exits with 1 if a pair lies in another region than the claims say. Pairs that the networks
    cannot decide are drawn hollow.

        depthmup regimes --alpha 3/4 --gamma 1/4
        depthmup regimes --map map.html
    """

    alpha: str = "1/2"
    """Branch multiplier proportional to depth^-alpha."""

    gamma: str = "1/2"
    """Updates inside branches proportional to depth^-gamma."""

    map: Annotated[Path | None, tyro.conf.arg(aliases=("--out",))] = None
    """File for the map of a grid of pairs (.html, .svg, .pdf or .png)."""

    measured: bool = False
    """With --map: train networks too, and draw the measured map beside the computed one."""

    pairs: tuple[str, ...] = ()
    """With --measured: the pairs to train, as alpha,gamma; by default 25, multiples of 1/4."""

    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    """With --measured: depths of the networks, three or more multiples of 8."""

    seeds: int = 4
    """With --measured: number of networks of every pair and depth."""

    json: bool = False
    """Print the result as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    if options.map is not None:
        return draw_map(options.map, options)
    if options.measured:
        raise ValueError("Expected --map FILE with --measured, which draws a second map beside it.")
    region = regime(options.alpha, options.gamma)
    values = {
        name: value if isinstance(value, bool | None) else str(value)
        for name, value in asdict(region).items()
    }
    if options.json:
        print_json(values)
        return 0
    print(f"alpha = {region.alpha}, gamma = {region.gamma}: {region.name}\n")
    for name, value in values.items():
        if name not in ("alpha", "gamma", "name", "why"):
            shown = {"True": "yes", "False": "no", "None": "-"}.get(str(value), value)
            print(f"  {name.replace('_', ' '):<20}{shown}")
    print(f"\n{region.why}")
    return 0


def draw_map(path: Path, options: Options) -> int:
    """Compute Figure 1, and measure it; the exit status is 1 if a point disagrees."""
    from depthmup.cli.folders import prepare_file
    from depthmup.paper.regime_map import TRAINED
    from depthmup.records.codec import encode
    from depthmup.reports import MapPoint, regime_maps, regimes_page, save_chart, write_text
    from depthmup.reports.files import CHART_FORMATS

    if path.suffix.lower() not in CHART_FORMATS:
        raise ValueError(f"Expected --map to end in {', '.join(CHART_FORMATS)}; got {str(path)!r}.")
    prepare_file(path, option="--map")
    pairs = list(dict.fromkeys(_pair(text) for text in options.pairs)) or list(TRAINED)
    if options.measured and (
        len(options.depths) < 3 or any(d < 8 or d % 8 for d in options.depths)
    ):
        raise ValueError(
            f"Expected --depths to be three or more multiples of 8; got {options.depths}."
        )
    maps: dict[str, Sequence[MapPoint]] = {}
    points, rows = _computed()
    maps["Regimes of depth, computed at infinite width"] = points
    says: dict[str, Any] = {"points": rows, "disagreements": len(_wrong(points))}
    if options.measured:
        points, rows = _measured(pairs, options)
        maps["Measured on trained networks"] = points
        says["measured"] = {
            "points": rows,
            "disagreements": len(_wrong(points)),
            "undecided": sum(not point.decided for point in points),
        }
    if path.suffix.lower() == ".html":
        wrong = sum(len(_wrong(drawn)) for drawn in maps.values())
        total = sum(map(len, maps.values()))
        says_so = f"{total - wrong} of {total} pairs lie where Claims 7.1 to 7.6 say."
        command = ["depthmup", *sys.argv[1:]]
        write_text(path, regimes_page(maps, headline=says_so, command=command))
    else:
        save_chart(regime_maps(maps), path)
    if options.json:
        print_json(encode(says))
    else:
        for title, drawn in maps.items():
            _print(title, drawn)
        print(f"The map: {path.resolve()}")
    return 1 if any(_wrong(drawn) for drawn in maps.values()) else 0


def _pair(text: str) -> Pair:
    parts = text.split(",")
    if len(parts) != 2:
        raise ValueError(f"Expected --pairs of alpha,gamma such as 1/2,1/2; got {text!r}.")
    return exponent(parts[0], name="alpha"), exponent(parts[1], name="gamma")


def _wrong(points: Iterable[Any]) -> list[Any]:
    return [point for point in points if point.decided and point.region != point.expected]


def _print(title: str, points: Sequence[Any]) -> None:
    wrong = _wrong(points)
    undecided = [point for point in points if not point.decided]
    print(
        f"{title}: {len(points)} pairs; {len(wrong)} disagree with Claims 7.1 to 7.6"
        f"{f', {len(undecided)} undecided' if undecided else ''}."
    )
    for point in wrong:
        print(f"  ({point.alpha}, {point.gamma}): {point.region}, not {point.expected}")
    for point in undecided:
        print(f"  ({point.alpha}, {point.gamma}): undecided, perhaps {point.region}")


def _computed() -> tuple[list[Any], list[dict[str, Any]]]:
    """The points of the paper's map, and its exponents, from networks of infinite width."""
    from rich.console import Console
    from rich.progress import track

    from depthmup.paper import regime_map
    from depthmup.paper.regimes import computed_exponents

    pairs = [(alpha, gamma) for alpha in regime_map.ALPHAS for gamma in regime_map.GAMMAS]
    regions, rows = {}, []
    for alpha, gamma in track(pairs, "computing", console=Console(stderr=True), transient=True):
        computed = computed_exponents(alpha, gamma)
        regions[alpha, gamma] = computed.region
        exponents = {
            name: value
            for name in ("x_0", "x_1", "f_1", "h_1", "linearization", "kappa")
            if (value := getattr(computed, name)) == value
        }
        rows.append(
            {"alpha": str(alpha), "gamma": str(gamma), "region": computed.region, **exponents}
        )
    return regime_map.map_points(regions), rows


def _measured(pairs: Sequence[Pair], options: Options) -> tuple[list[Any], list[dict[str, Any]]]:
    """The points that networks of the paper's kind show, trained on random data."""
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from depthmup.diagnostics import measured_map
    from depthmup.paper.measured_regimes import (
        LOG2_MULTIPLIER,
        LR,
        RESIDUAL_MLPS,
        STEPS,
        residual_mlps,
    )
    from depthmup.paper.regime_map import map_points

    torch.set_num_threads(1)  # networks this small lose by more
    small, full = (
        residual_mlps(_random_batch, inputs=_NUMBERS, outputs=_CLASSES, log2_multiplier=log2_a)
        for log2_a in (LOG2_MULTIPLIER, 0.0)
    )
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=len(pairs))
        regimes = measured_map(
            small,
            pairs,
            full=full,
            depths=options.depths,
            seeds=options.seeds,
            steps=STEPS,
            lr=LR,
            progress=lambda done, total: bar.update(task, completed=done),
            **RESIDUAL_MLPS,
        )
    rows = [
        {
            "alpha": str(r.alpha),
            "gamma": str(r.gamma),
            "region": r.region,
            "decided": r.decided,
            "properties": list(r.properties),
        }
        for r in regimes
    ]
    points = map_points(
        {(r.alpha, r.gamma): r.region for r in regimes},
        {(r.alpha, r.gamma): r.decided for r in regimes},
    )
    return points, rows


_NUMBERS, _CLASSES = 8, 8


def _random_batch(generator: "Generator") -> "tuple[Tensor, Tensor]":
    """Random inputs with random labels: where a pair lies does not depend on the data."""
    import torch

    inputs = torch.randn(32, _NUMBERS, generator=generator)
    return inputs, torch.randint(_CLASSES, (32,), generator=generator)
