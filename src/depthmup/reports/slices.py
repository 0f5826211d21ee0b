"""A study as charts draw it: each slice of a table as a line of its own.

Studies of runs that were trained here have one slice along each axis.
"""

from dataclasses import replace

from depthmup.records import Curve, Study, Transfer, Window
from depthmup.records.sizes import size_number

MOST = 12
"""Slices of a variant that are drawn; the frames have all."""


def by_slice(study: Study) -> Study:
    """The study with a variant for every slice of sizes in which the axis alone changes."""
    if all(len(t.slices) < 2 for window in study.windows for t in window.transfers):
        return study
    return replace(study, windows=tuple(_split(study, window) for window in study.windows))


def _split(study: Study, window: Window) -> Window:
    transfers: list[Transfer] = []
    curves: list[Curve] = []
    for whole in window.transfers:
        own = [curve for curve in window.curves if curve.scheme == whole.scheme]
        if not (slices := slices_of(study, whole)):
            transfers.append(whole)
            curves += own
        for one in slices[:MOST]:
            transfers.append(one)
            sizes = [optimum.size for optimum in one.optima]
            curves += [replace(curve, scheme=one.scheme) for curve in own if curve.size in sizes]
    return replace(window, transfers=tuple(transfers), curves=tuple(curves))


def slices_of(study: Study, whole: Transfer) -> list[Transfer]:
    """The slices of a finding, by what they are held at; none where the axis alone varies."""
    moves = {study.axis, *whole.together}
    before = f"{whole.title}, " if len(study.headline.transfers) > 1 else ""
    slices = []
    for members in whole.slices if len(whole.slices) > 1 else ():
        held = whole.optima[members[0]].size
        name = ", ".join(f"{a} {size_number(n)}" for a, n in held.items() if a not in moves)
        optima = tuple(whole.optima[i] for i in members)
        scheme = f"{whole.scheme} {name}".strip()
        slices.append(
            replace(whole, scheme=scheme, title=f"{before}{name}", optima=optima, slices=())
        )
    return slices
