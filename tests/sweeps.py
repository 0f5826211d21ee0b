"""Sweeps for tests, from flat settings."""

from dataclasses import fields

import depthmup
from depthmup.sweep import BuiltIn, Design, Sweep, rate_unit

USUAL = {
    "schemes": ("depth-mup",),
    "depths": (8, 16, 32, 64, 128),
    "base_depth": 8,
    "log2_lrs": (-7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0),
    "seeds": 5,
    "width": 64,
    "steps": 300,
    "window": 60,
    "optimizers": "adam",
}


def residual(**settings):
    """A sweep along depth; learning rates are in units of muP's, 1 / width for Adam."""
    values = {**USUAL, **settings}
    model = {f.name: values.pop(f.name) for f in fields(BuiltIn) if f.name in values}
    width = values.pop("width")
    unit = rate_unit(values["optimizers"], width)
    return Sweep(
        model=BuiltIn(**model),
        design=Design(
            base={"width": width, "depth": values.pop("base_depth")},
            depth=values.pop("depths"),
            lrs=[unit * 2.0**k for k in values.pop("log2_lrs")],
            **values,
        ),
    )


MODEL = ("batch", "loss", "train", "plan", "version")
PLACE = ("workers", "shard", "device", "threads", "engine")


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
