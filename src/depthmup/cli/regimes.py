"""``depthmup regimes``: where a pair of exponents lies, or where every pair does."""

import json as json_format
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from depthmup.rules import regime


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where (alpha, gamma) lies: stable, nontrivial, faithful, diverse (Claims 7.1 to 7.6).

    With --map, the paper's Figure 1 from exponents computed at infinite width: nothing is trained,
    and none of the claims is assumed.
    """

    alpha: str = "1/2"
    """Branch multiplier proportional to depth^-alpha."""

    gamma: str = "1/2"
    """Updates inside branches proportional to depth^-gamma."""

    map: Path | None = None
    """Compute a grid of pairs and draw it to this file (.html, .svg, .pdf or .png)."""

    json: bool = False
    """Print JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    if options.map is not None:
        return draw_map(options.map, json=options.json)
    found = regime(options.alpha, options.gamma)
    values = {
        name: value if isinstance(value, bool | None) else str(value)
        for name, value in asdict(found).items()
    }
    if options.json:
        print(json_format.dumps(values, indent=2))
        return 0
    print(f"alpha = {found.alpha}, gamma = {found.gamma}: {found.name}\n")
    for name, value in values.items():
        if name not in ("alpha", "gamma", "name", "why"):
            shown = {"True": "yes", "False": "no", "None": "-"}.get(str(value), value)
            print(f"  {name.replace('_', ' '):<20}{shown}")
    print(f"\n{found.why}")
    return 0


# Eighths from SP (0, 0) to beyond the faithful line, with updates growing or shrinking.
ALPHAS = tuple(Fraction(k, 8) for k in range(13))
GAMMAS = tuple(Fraction(k, 8) for k in range(-4, 9))


def draw_map(path: Path, *, json: bool) -> int:
    """Compute Figure 1; the exit status is 1 if a point disagrees with the claims."""
    from rich.console import Console
    from rich.progress import track

    from depthmup import limits
    from depthmup.reports import MapPoint, regime_map, save_chart
    from depthmup.reports.files import CHART_FORMATS

    if path.suffix.lower() not in CHART_FORMATS:
        raise ValueError(f"Expected --map to end in {', '.join(CHART_FORMATS)}; got {str(path)!r}.")
    pairs = [(alpha, gamma) for alpha in ALPHAS for gamma in GAMMAS]
    points, rows = [], []
    for alpha, gamma in track(pairs, "computing", console=Console(stderr=True), transient=True):
        found = limits.depth_exponents(alpha, gamma)
        expected = regime(alpha, gamma).name
        points.append(MapPoint(alpha=alpha, gamma=gamma, found=found.region, expected=expected))
        exponents = {
            name: value if abs(value) < float("inf") else str(value)
            for name in ("x_0", "x_1", "f_1", "h_1", "linearization", "kappa")
            if (value := getattr(found, name)) == value
        }
        rows.append({"alpha": str(alpha), "gamma": str(gamma), "region": found.region, **exponents})
    save_chart(regime_map(points, title="Regimes of depth, computed at infinite width"), path)
    wrong = [point for point in points if point.found != point.expected]
    if json:
        print(json_format.dumps({"points": rows, "disagreements": len(wrong)}, indent=2))
    else:
        print(f"{len(points)} pairs computed; {len(wrong)} disagree with Claims 7.1 to 7.6.")
        for point in wrong:
            print(f"  ({point.alpha}, {point.gamma}): {point.found}, not {point.expected}")
        print(f"The map: {path.resolve()}")
    return 1 if wrong else 0
