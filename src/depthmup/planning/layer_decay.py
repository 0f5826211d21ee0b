"""Rates that fall by a factor from layer to layer: what they do to transfer, and what keeps it.

By such a factor per layer fewer layers train the deeper the network is; by one over all layers each
size has the same profile. Measured in docs/studies/practice.md.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from depthmup.planning.prescribe import Prescription
from depthmup.tracing import pattern_of

FEWEST = 3
"""Layers whose rates show a factor."""

ALIKE, FALLS = 1e-3, 0.01
"""In logarithms: up to which factors are the same, and from which rates fall at all."""

MEASURED = (
    "Measured, a factor of 0.8 moved the best rate by +0.8 octaves per doubling of depth under "
    "Adam and by +0.6 under SGD, one of 0.95 by +0.4 and +0.3"
)


def layer_decays(rates: Mapping[str, float]) -> dict[str, tuple[float, int]]:
    """The factor from each layer to the one before it, and the number of layers, by pattern.

    Example:
        >>> layer_decays({f"blocks.{i}.weight": 0.1 * 0.5 ** (3 - i) for i in range(4)})
        {'blocks.*.weight': (0.5, 4)}
        >>> layer_decays({f"blocks.{i}.weight": 0.1 for i in range(4)})
        {}
    """
    of_patterns: dict[str, dict[int, float]] = defaultdict(dict)
    for name, rate in rates.items():
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.)", name)
        if len(numbers) == 1 and rate > 0:
            of_patterns[pattern_of(name)][int(numbers[0])] = math.log(rate)
    found = {}
    for pattern, logs in of_patterns.items():
        layers = sorted(logs)
        steps = [(logs[b] - logs[a]) / (b - a) for a, b in pairwise(layers)]
        if len(layers) < FEWEST or max(steps) - min(steps) > ALIKE or steps[0] < FALLS:
            continue
        found[pattern] = round(math.exp(-steps[0]), 4), len(layers)
    return found


def warnings_of_decays(
    rates: Mapping[str, float], prescribed: Mapping[str, Prescription]
) -> Iterator[str]:
    """A sentence for each factor, where the plan's depth is another than the base's."""
    deeper = {name: rate for name, rate in rates.items() if prescribed[name].ratios.depth != 1}
    ratios = {pattern_of(name): prescribed[name].ratios.depth for name in deeper}
    told = {
        (factor, layers, ratios[pattern])
        for pattern, (factor, layers) in layer_decays(deeper).items()
    }
    for factor, layers, ratio in sorted(told):
        kept = factor ** (1 / ratio)
        yield (
            f"Learning rates fall by a factor of {factor:g} from each of {layers} layers to the "
            f"one before it. {MEASURED}: fewer layers train the deeper the network is. A factor of "
            f"{kept:.4g} here is {factor:g} at the base, with the same profile at every depth."
        )
