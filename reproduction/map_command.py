"""``depthmup regimes --map``: Figure 1, computed at infinite width and measured on networks."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, track

from depthmup.cli import prepare_file, print_json
from depthmup.records import encode
from depthmup.reports import CHART_FORMATS, save_chart, write_text
from depthmup.rules import exponent
from reproduction.claims import regime_map as figure_1
from reproduction.claims.measured_regimes import (
    LOG2_MULTIPLIER,
    LR,
    RESIDUAL_MLPS,
    STEPS,
    residual_mlps,
)
from reproduction.claims.regimes import computed_exponents
from reproduction.pages.regime_map import MapPoint, regime_maps, regimes_page

if TYPE_CHECKING:
    from torch import Generator, Tensor


def draw_map(
    path: Path,
    *,
    measured: bool,
    pairs: Sequence[str],
    depths: Sequence[int],
    seeds: int,
    as_json: bool,
) -> int:
    """Compute Figure 1, and measure it; the exit status is 1 if a point disagrees."""
    prepare_file(path, option="--map", ends=CHART_FORMATS)
    trained = list(dict.fromkeys(_pair(text) for text in pairs)) or list(figure_1.TRAINED)
    if measured and (len(depths) < 3 or any(d < 8 or d % 8 for d in depths)):
        raise ValueError(f"Expected --depths to be three or more multiples of 8; got {depths}.")
    maps: dict[str, Sequence[MapPoint]] = {}
    points, rows = _computed()
    maps["Regimes of depth, computed at infinite width"] = points
    says: dict[str, Any] = {"points": rows, "disagreements": len(_wrong(points))}
    if measured:
        points, rows = _measured(trained, depths=depths, seeds=seeds)
        maps["Measured on trained networks"] = points
        says["measured"] = {
            "points": rows,
            "disagreements": len(_wrong(points)),
            "undecided": sum(not point.decided for point in points),
        }
    if path.suffix.lower() == ".html":
        wrong = sum(len(_wrong(drawn)) for drawn in maps.values())
        total = sum(map(len, maps.values()))
        headline = (
            f"{wrong} of {total} pairs lie in another region than Claims 7.1 to 7.6 predict."
            if wrong
            else "Deep networks learn features where alpha + gamma = 1 and alpha is 1/2 to 1: all "
            f"{total} pairs lie in the region of Claims 7.1 to 7.6."
        )
        command = ["depthmup", *sys.argv[1:]]
        write_text(path, regimes_page(maps, headline=headline, command=command))
    else:
        save_chart(regime_maps(maps), path)
    if as_json:
        print_json(encode(says))
    else:
        for title, drawn in maps.items():
            _print(title, drawn)
        print(f"The map: {path.resolve()}")
    return 1 if any(_wrong(drawn) for drawn in maps.values()) else 0


def _pair(text: str) -> figure_1.Pair:
    parts = text.split(",")
    if len(parts) != 2:
        raise ValueError(f"Expected --pairs of alpha,gamma such as 1/2,1/2; got {text!r}.")
    return exponent(parts[0], name="alpha"), exponent(parts[1], name="gamma")


def _wrong(points: Iterable[MapPoint]) -> list[MapPoint]:
    return [point for point in points if point.decided and point.region != point.expected]


def _print(title: str, points: Sequence[MapPoint]) -> None:
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


def _computed() -> tuple[list[MapPoint], list[dict[str, Any]]]:
    """The points of the paper's map, and its exponents, from networks of infinite width."""
    pairs = [(alpha, gamma) for alpha in figure_1.ALPHAS for gamma in figure_1.GAMMAS]
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
    return figure_1.map_points(regions), rows


def _measured(
    pairs: Sequence[figure_1.Pair], *, depths: Sequence[int], seeds: int
) -> tuple[list[MapPoint], list[dict[str, Any]]]:
    """The points that networks of the paper's kind show, trained on random data."""
    import torch

    from reproduction.probes.regimes import measured_map

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
            depths=depths,
            seeds=seeds,
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
    points = figure_1.map_points(
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
