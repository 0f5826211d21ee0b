"""Sessions of version 0.1, in which built-in networks and custom models had separate grids."""

from collections.abc import Mapping
from typing import Any

from depthmup.records import Data
from depthmup.sweep.built_in import SETTINGS, BuiltIn, rate_unit
from depthmup.sweep.custom import Custom
from depthmup.sweep.design import Design
from depthmup.sweep.sweep import Sweep


def upgraded(session: Mapping[str, Any]) -> dict[str, Any]:
    """A session as this version writes it.

    Raises:
        Exception: of any kind, if its grid is not one that version 0.1 wrote.
    """
    if "grid" not in session or "sweep" in session:
        return dict(session)
    rest = {k: v for k, v in session.items() if k not in ("grid", "kind", "target_depth", "target")}
    grid = session["grid"]
    if session.get("kind") == "trials":
        sweep, size = _of_trials(grid), session.get("target")
        target = {"width": size[0], "depth": size[1]} if size else None
    else:
        sweep, depth = _of_networks(grid), session.get("target_depth")
        target = {**sweep.design.base, "depth": depth} if depth else None
    return {**rest, "sweep": sweep.to_dict(), "target": target}


def _of_trials(grid: Mapping[str, Any]) -> Sweep:
    width, depth = grid["base"]
    return Sweep(
        model=Custom(
            name=grid["model"],
            code=grid["code"],
            planned=grid["planned"],
            numerics=grid["numerics"],
        ),
        design=Design(
            base={"width": width, "depth": depth},
            width=grid["widths"],
            depth=grid["depths"],
            sizes=[{"width": w, "depth": d} for w, d in grid.get("corners", ())],
            lrs=[2.0**k for k in grid["log2_lrs"]],
            schemes=grid["schemes"],
            optimizers=grid["optimizers"],
            multipliers=grid["multipliers"],
            weight_decays=grid["weight_decays"],
            settings=grid["settings"],
            seeds=grid["seeds"],
            steps=grid["steps"],
            window=grid["window"],
        ),
    )


def _of_networks(grid: Mapping[str, Any]) -> Sweep:
    width = grid["width"]
    if grid.get("base_width") not in (None, width):
        raise ValueError("Expected the width of the base; a grid of another width is not read.")
    names = ("activation", "nonlinearity", "block_depth", "mean_subtraction", "layer_norm")
    later = {name: grid[name] for name in ("order", "precision") if name in grid}
    model = BuiltIn(
        **{name: grid[name] for name in names},
        **later,
        batch_size=grid["batch_size"],
        data=Data(**grid["data"]),
        numerics=grid["numerics"],
    )
    settings = {
        "betas": [grid["beta1"], grid["beta2"]],
        "eps": grid["epsilon"],
        "momentum": grid["momentum"],
    }
    # Learning rates were counted in units of 1 / width for Adam.
    unit = rate_unit(grid["optimizer"], width)
    return Sweep(
        model=model,
        design=Design(
            base={"width": width, "depth": grid["base_depth"]},
            depth=grid["depths"],
            lrs=[unit * 2.0**k for k in grid["log2_lrs"]],
            schemes=grid["schemes"],
            optimizers=grid["optimizer"],
            multipliers=grid["multiplier"],
            weight_decays=grid["weight_decay"],
            settings={k: v for k, v in settings.items() if v != SETTINGS[k]},
            seeds=grid["seeds"],
            steps=grid["steps"],
            window=grid["window"],
        ),
    )
