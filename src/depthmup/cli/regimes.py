"""``depthmup regimes``: where a pair of exponents lies."""

import json as json_format
from dataclasses import asdict, dataclass

from depthmup.rules import regime


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where (alpha, gamma) lies: stable, nontrivial, faithful, diverse (Claims 7.1 to 7.6)."""

    alpha: str = "1/2"
    """Branch multiplier proportional to depth^-alpha."""

    gamma: str = "1/2"
    """Updates inside branches proportional to depth^-gamma."""

    json: bool = False
    """Print JSON."""


def run(options: Options) -> int:
    found = regime(options.alpha, options.gamma)
    values = {
        name: value if isinstance(value, bool | None) else str(value)
        for name, value in asdict(found).items()
    }
    if options.json:
        print(json_format.dumps(values, indent=2))
        return 0
    yes_or_no = {True: "yes", False: "no", None: "-", "None": "-"}
    print(f"alpha = {found.alpha}, gamma = {found.gamma}: {found.name}\n")
    for name, value in values.items():
        if name not in ("alpha", "gamma", "name", "why"):
            print(f"  {name.replace('_', ' '):<20}{yes_or_no.get(value, value)}")
    print(f"\n{found.why}")
    return 0
