"""Sweeps for tests, from flat settings."""

import depthmup
from reproduction.runs import along_depth

USUAL = {
    "schemes": ("depth-mup",),
    "depths": (8, 16, 32, 64, 128),
    "base_depth": 8,
    "log2_lrs": (-7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0),
    "seeds": 5,
    "width": 64,
    "steps": 300,
    "window": 60,
}


def residual(**settings):
    """A sweep along depth; learning rates are in units of muP's, 1 / width for Adam."""
    return along_depth(**{**USUAL, **settings})


MODEL = ("batch", "loss", "train", "plan", "version")
PLACE = ("workers", "shard", "device", "threads", "engine")


FOUR_RUNS = {
    "base": (16, 2),
    "depths": (2, 4),
    "lrs": (1e-3, 4e-3),
    "steps": 6,
    "seeds": 1,
    "window": 3,
    "schemes": "depth-mup",
    "version": "1",
}
"""Of ``measure``: two depths and two rates, for a moment."""


def measure(make=None, *, base, depths=(), widths=(), target=None, on=None, **settings):
    """``depthmup.transfer`` of a custom model whose sizes are (width, depth)."""
    model = {name: settings.pop(name) for name in MODEL if name in settings}
    place = {name: settings.pop(name) for name in PLACE if name in settings}
    called = {
        name: settings.pop(name)
        for name in ("out", "tolerance", "title", "log", "progress", "forecast")
        if name in settings
    }
    width, depth = base
    design = depthmup.Design(
        base={"width": width, "depth": depth}, depth=depths, width=widths, **settings
    )
    if target is not None:
        called["target"] = {"width": target[0], "depth": target[1]}
    return depthmup.transfer(
        depthmup.Model(make, **model),
        design,
        on=depthmup.Execution(**{"workers": 1, **place}) if on is None else on,
        **called,
    )
