"""A table exported from this package's own sweeps gives the sweep's verdict and its optima."""

import own_models
import pandas as pd
import pytest
from pytest import approx
from sweeps import residual

import depthmup
from depthmup.fitting import Reading
from depthmup.records import Place
from depthmup.rules import DEPTH_MUP, SP
from depthmup.sweep import InProcess, Store, losses_over, run, studies

RATES = (-5.0, -4.0, -3.0, -2.0, -1.0, 0.0)
GRID = residual(
    schemes=(DEPTH_MUP, SP), depths=(4, 8, 16, 32), base_depth=4, width=16, steps=80, window=20,
    seeds=3, log2_lrs=RATES, activation="relu",
)  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("sweep") / "results.sqlite") as store:
        run(GRID.runs, store=store, executor=InProcess(), about={})
        return store.records(GRID.runs)


def exported(records, scheme):
    """A row for each run, as a person would write it: the rate is the base's."""
    design = GRID.design
    window = slice(design.steps - design.window, design.steps)
    losses = losses_over(
        GRID, records, design.variant(scheme.name), design.sizes_along("depth"), window
    )
    return losses, pd.DataFrame(
        [
            {"depth": size["depth"], "lr": 2.0**k, "seed": seed, "loss": losses.values[i][j][seed]}
            for i, size in enumerate(losses.sizes)
            for j, k in enumerate(losses.log2_lrs)
            for seed in range(design.seeds)
        ]
    )


@pytest.mark.parametrize("scheme", [DEPTH_MUP, SP], ids=lambda s: s.name)
def test_the_sweeps_own_verdict_and_optima(records, scheme):
    losses, runs = exported(records, scheme)
    report = depthmup.fit(
        runs,
        axes=["depth"],
        lr="lr",
        loss="loss",
        seed="seed",
        reading=Reading(chance=losses.chance),
    )
    [study] = studies(GRID, records, config={}, environment={})
    transfer = next(t for t in study.headline.transfers if t.scheme == scheme.name)
    group = report.group()
    for mine, theirs in zip(group.optima, transfer.optima, strict=True):
        assert mine.place is theirs.place
        if mine.place is Place.INTERIOR:
            assert mine.log2_lr.value == approx(theirs.log2_lr.value, abs=1e-9)
            assert mine.log2_lr.high == approx(theirs.log2_lr.high, abs=1e-9)
            assert mine.loss.value == approx(theirs.loss.value, rel=1e-9)
    measured = group.exponents[0]
    assert measured.exponent.value == approx(transfer.drift.value, abs=1e-9)
    assert measured.exponent.high == approx(transfer.drift.high, abs=1e-9)
    assert measured.verdict is transfer.verdict


def test_the_frame_of_a_transfer_is_a_table_as_it_is():
    design = depthmup.Design(
        base={"width": 16, "depth": 2}, depth=(2, 4), width=(16, 32), steps=10, seeds=2,
        lrs=[2.0**-9, 2.0**-7, 2.0**-5], schemes="depth-mup", settings={"own_init": "fan_in"},
    )  # fmt: skip
    model = depthmup.Model(own_models.make, batch=own_models.batch, version="1")
    report = depthmup.transfer(model, design)
    frame = report.frame("trials")
    fitted = depthmup.fit(
        frame, axes=["width", "depth"], lr="lr", loss="loss", seed="seed", scheme="depth-mup"
    )
    assert fitted.group().runs == len(frame)
    assert len(fitted.group().optima) == 3
    sweep = {(o.width, o.depth): o for o in report.finding(axis="depth").optima}
    for mine in fitted.group().optima:
        theirs = sweep.get((mine.size["width"], mine.size["depth"]))
        if theirs is not None:
            assert mine.log2_lr.value == approx(theirs.log2_lr.value, abs=1e-9)
