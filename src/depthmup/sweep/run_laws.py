"""What a rule of the run makes of learning rate, decay and settings at a size.

A rule of the run is the same for all parameters, so it is written into a run's description: two
runs that would train identically are equal, whichever rule asked for them.
"""

from collections.abc import Mapping
from typing import Any

from depthmup.rules import BETAS, EPSILON, Family, Ratios, RunLaws, family
from depthmup.sweep.design import Design, Size


def ratios_at(design: Design, size: Size) -> Ratios:
    """A size as multiples of the base; the duration is in tokens, which are batch times steps."""
    of = {axis: size[axis] / design.base[axis] for axis in size}
    batch = of.get("batch", 1.0)
    steps = design.steps_at(size) / design.steps
    width, depth = of.get("width", 1.0), of.get("depth", 1.0)
    return Ratios(fan_in=width, fan_out=width, depth=depth, batch=batch, duration=batch * steps)


def settings_under(
    laws: RunLaws, ratios: Ratios, optimizer: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """An optimizer's settings with epsilon and betas as the laws have them at these ratios.

    Settings that stay as they are at the base are not written out, and what an optimizer does not
    have (SGD has neither) does not move.
    """
    moved = dict(settings)
    if family(optimizer) is Family.RAW:
        return moved
    factor = laws.epsilon.at(ratios)
    if factor != 1.0 and (epsilon := settings.get("eps", EPSILON.get(optimizer))) is not None:
        moved["eps"] = epsilon * factor
    if (betas := settings.get("betas", BETAS.get(optimizer))) is not None:
        at_size = laws.betas(tuple(betas), ratios)
        if at_size != tuple(betas):
            moved["betas"] = list(at_size)
    return moved
