"""``depthmup regimes``: the regime of a pair of exponents, or a map of all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from depthmup.cli.output import print_json
from depthmup.rules import exponent, regime

Pair = tuple[Fraction, Fraction]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show the regime of (alpha, gamma): stable, nontrivial, faithful, diverse (Claims 7.1 to 7.6).

    With --map, draw the paper's Figure 1 from exponents computed at infinite width: nothing is
    trained, and none of the claims is assumed. With --measured as well, draw beside it the same map
    from networks of growing depth that are trained for a few steps, in about 2 minutes on one core.
    Exits with 1 if a pair lies in another region than the claims say. Pairs that the networks
    cannot decide are drawn hollow.
    """

    alpha: str = "1/2"
    """Branch multiplier proportional to depth^-alpha."""

    gamma: str = "1/2"
    """Updates inside branches proportional to depth^-gamma."""

    map: Path | None = None
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


# Eighths from SP (0, 0) to beyond the faithful line, with updates growing or shrinking.
ALPHAS = tuple(Fraction(k, 8) for k in range(13))
GAMMAS = tuple(Fraction(k, 8) for k in range(-4, 9))


# Quarters around the line alpha + gamma = 1: every region, with those beyond it on both sides.
MEASURED = tuple((Fraction(a, 4), Fraction(g, 4)) for a, g in product(range(1, 6), range(-1, 4)))


def draw_map(path: Path, options: Options) -> int:
    """Compute Figure 1, and measure it; the exit status is 1 if a point disagrees."""
    from depthmup.cli.folders import prepare_file
    from depthmup.records.codec import encode
    from depthmup.reports import MapPoint, regime_maps, save_chart
    from depthmup.reports.files import CHART_FORMATS

    if path.suffix.lower() not in CHART_FORMATS:
        raise ValueError(f"Expected --map to end in {', '.join(CHART_FORMATS)}; got {str(path)!r}.")
    prepare_file(path, option="--map")
    pairs = [_pair(text) for text in options.pairs] or MEASURED
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
    return [point for point in points if point.decided and point.found != point.expected]


def _print(title: str, points: Sequence[Any]) -> None:
    wrong = _wrong(points)
    undecided = [point for point in points if not point.decided]
    print(
        f"{title}: {len(points)} pairs; {len(wrong)} disagree with Claims 7.1 to 7.6"
        f"{f', {len(undecided)} undecided' if undecided else ''}."
    )
    for point in wrong:
        print(f"  ({point.alpha}, {point.gamma}): {point.found}, not {point.expected}")
    for point in undecided:
        print(f"  ({point.alpha}, {point.gamma}): undecided, perhaps {point.found}")


def _computed() -> tuple[list[Any], list[dict[str, Any]]]:
    from rich.console import Console
    from rich.progress import track

    from depthmup import limits
    from depthmup.reports import MapPoint

    pairs = [(alpha, gamma) for alpha in ALPHAS for gamma in GAMMAS]
    points, rows = [], []
    for alpha, gamma in track(pairs, "computing", console=Console(stderr=True), transient=True):
        computed = limits.depth_exponents(alpha, gamma)
        expected = regime(alpha, gamma).name
        points.append(MapPoint(alpha=alpha, gamma=gamma, found=computed.region, expected=expected))
        exponents = {
            name: value
            for name in ("x_0", "x_1", "f_1", "h_1", "linearization", "kappa")
            if (value := getattr(computed, name)) == value
        }
        rows.append(
            {"alpha": str(alpha), "gamma": str(gamma), "region": computed.region, **exponents}
        )
    return points, rows


def _measured(pairs: Sequence[Pair], options: Options) -> tuple[list[Any], list[dict[str, Any]]]:
    import torch
    from rich.console import Console
    from rich.progress import Progress

    from depthmup.diagnostics import measured_map
    from depthmup.reports import MapPoint

    torch.set_num_threads(1)  # networks this small lose by more
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=len(pairs))
        regimes = measured_map(
            _networks(branches=SMALL),
            pairs,
            full=_networks(branches=1.0),
            depths=options.depths,
            seeds=options.seeds,
            lr=2e-3,
            blocks="branches.*",
            plan_options={"own_init": "fan_in"},
            progress=lambda done, total: bar.update(task, completed=done),
        )
    points = [
        MapPoint(
            alpha=r.alpha,
            gamma=r.gamma,
            found=r.region,
            expected=r.expected.name,
            decided=r.decided,
        )
        for r in regimes
    ]
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
    return points, rows


# The paper's branches at depth 8: the stream's noise does not yet hide what training does to it.
SMALL = 8**-0.5


def _networks(*, branches: float) -> Any:
    """Residual MLPs with branches of this size at depth 1, and random data."""
    import torch

    from depthmup.diagnostics import Subject
    from depthmup.models import ResidualMLP

    def make(width: int, depth: int) -> torch.nn.Module:
        model = ResidualMLP(inputs=8, width=width, depth=depth, outputs=8, multiplier=branches)
        # What is outside of branches moves by order one at any depth, and would hide the rest.
        model.input.requires_grad_(False)
        model.readout.requires_grad_(False)
        return model

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        examples = torch.randn(32, 8, generator=generator)
        return examples, torch.randint(8, (32,), generator=generator)

    return Subject(make=make, batch=batch)
