"""``depthmup regimes``: the regime of a pair of exponents, or a map of all of them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from depthmup.cli.clone import reproduction
from depthmup.cli.output import print_json, show
from depthmup.records.text import aligned
from depthmup.rules import regime


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show the regime of (alpha, gamma): stable, nontrivial, faithful, diverse (Claims 7.1 to 7.6).

    With --map, in a clone of the repository, draw the paper's Figure 1 from exponents computed at
    infinite width: it trains no network and assumes none of the claims. With --measured as well,
    draw a second map from networks of growing depth that are trained for a few steps, in about 2
    minutes on one core. Exits with 1 if any pair contradicts the paper's claims. Pairs that the
    networks cannot decide are drawn hollow.

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
    """With --map: train networks too, and draw the measured map next to the computed one."""

    pairs: tuple[str, ...] = ()
    """With --measured: the pairs to train: alpha,gamma; by default 25, multiples of 1/4."""

    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    """With --measured: depths of the networks, three or more multiples of 8."""

    seeds: int = 4
    """With --measured: number of networks of every pair and depth."""

    json: bool = False


def run(options: Options) -> int:
    if options.map is not None:
        status: int = reproduction("map_command").draw_map(
            options.map,
            measured=options.measured,
            pairs=options.pairs,
            depths=options.depths,
            seeds=options.seeds,
            as_json=options.json,
        )
        return status
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
    shown = {"True": "yes", "False": "no", "None": "-"}
    rows = [
        ("", name.replace("_", " "), shown.get(str(value), str(value)))
        for name, value in values.items()
        if name not in ("alpha", "gamma", "name", "why")
    ]
    print(*aligned(rows, left=(0, 1, 2)), sep="\n")
    show(f"\n{region.why}")
    return 0
