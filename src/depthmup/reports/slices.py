"""A study as charts draw it: each slice of a table as a line of its own.

Studies of runs that were trained here have one slice along each axis.
"""

from collections.abc import Iterator
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
    several = len(window.transfers) > 1
    for whole in window.transfers:
        own = [curve for curve in window.curves if curve.scheme == whole.scheme]
        if len(whole.slices) < 2:
            transfers.append(whole)
            curves += own
            continue
        for name, members in list(_slices(study, whole))[:MOST]:
            scheme = f"{whole.scheme} {name}".strip()
            title = f"{whole.title}, {name}" if several else name
            optima = tuple(whole.optima[i] for i in members)
            transfers.append(replace(whole, scheme=scheme, title=title, optima=optima, slices=()))
            sizes = [optimum.size for optimum in optima]
            curves += [replace(curve, scheme=scheme) for curve in own if curve.size in sizes]
    return replace(window, transfers=tuple(transfers), curves=tuple(curves))


def _slices(study: Study, transfer: Transfer) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The slices with what they are held at."""
    for members in transfer.slices:
        held = transfer.optima[members[0]].size
        moves = {study.axis, *transfer.together}
        yield ", ".join(f"{a} {size_number(n)}" for a, n in held.items() if a not in moves), members
