"""``depthmup limit --check``: trained networks of growing size against the limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from depthmup import limits
from depthmup.cli import print_json
from reproduction.probes.agreement import Approach, agreement_with_depth, agreement_with_width
from reproduction.probes.factored import Blocks

WIDTHS, DEPTH, RUNS = (128, 256, 512, 1024, 2048), 16, 12
DEPTHS = (32, 64, 128, 256, 512, 1024)


def check(steps: Sequence[limits.Step], settings: Mapping[str, Any], *, as_json: bool) -> int:
    """Train blocks of these settings and compare: 1 if a measured slope excludes the theory's."""
    blocks = Blocks(**settings)
    with Console(stderr=True).status(f"training {RUNS} networks of each width up to {WIDTHS[-1]}"):
        by_width = agreement_with_width(
            steps, blocks, widths=WIDTHS, depth=DEPTH, runs=RUNS, next_order=True
        )
        by_depth = agreement_with_depth(steps, blocks, depths=DEPTHS)
    approaches = {
        f"outputs against width, depth {DEPTH}": by_width.outputs,
        f"RMS of x against width, depth {DEPTH}": by_width.rms,
        "outputs against depth, infinite width": by_depth,
    }
    if as_json:
        print_json({name: _plain(approach) for name, approach in approaches.items()})
    else:
        for name, approach in approaches.items():
            print(name)
            for size, error in zip(approach.sizes, approach.errors, strict=True):
                print(f"  {size:>6}  error {error:.2e}")
            slope = approach.slope
            print(
                f"  slope {slope.value:+.3f} [{slope.low:+.3f}, {slope.high:+.3f}], "
                f"theory {approach.expected:+g}: {'agrees' if approach.agrees else 'DISAGREES'}\n"
            )
    return 0 if all(approach.agrees for approach in approaches.values()) else 1


def _plain(approach: Approach) -> dict[str, object]:
    return {
        "sizes": approach.sizes,
        "errors": approach.errors,
        "slope": {
            "estimate": approach.slope.value,
            "low": approach.slope.low,
            "high": approach.slope.high,
        },
        "expected": approach.expected,
        "agrees": approach.agrees,
    }
