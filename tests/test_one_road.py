"""What custom models and the built-in networks have in common: one call, one design, one report."""

import time
from dataclasses import replace

import own_models
import pytest
from pytest import approx

import depthmup
from depthmup.records import Verdict
from depthmup.sweep import cost

DESIGN = depthmup.Design(
    base={"width": 16, "depth": 2}, depth=(2, 4), width=(16, 32), schemes="depth-mup",
    lrs=[2.0**-9, 2.0**-7, 2.0**-5], steps=12, seeds=2,
)  # fmt: skip
MINE = depthmup.Model(own_models.make, batch=own_models.batch, version="1")


def losses_of(report):
    return {run.key: list(record.losses) for run, record in report.records.items()}


def test_built_in_networks_from_python_along_both_axes(tmp_path):
    model = depthmup.BuiltIn(activation="relu", batch_size=16)
    report = depthmup.transfer(model, DESIGN, out=tmp_path)
    assert [study.axis for study in report.studies] == ["depth", "width"]
    assert len(report.records) == 3 * 3 * 2
    sizes = {(cell.network.width, cell.network.depth) for cell in report.records}
    assert sizes == {(16, 2), (16, 4), (32, 2)}
    wide = next(c for c in report.records if c.network.width == 32)
    base = next(c for c in report.records if (c.network.width, c.network.depth) == (16, 2))
    assert wide.network.readout_std == approx(base.network.readout_std / 2)
    assert (tmp_path / "report.html").exists()


def test_optimizers_whose_optima_lie_octaves_apart_are_both_found():
    base = {"width": 16, "depth": 2}
    design = depthmup.Design(base=base, depth=(2, 4), optimizers=("adam", "sgd"), steps=40, seeds=2)
    report = depthmup.transfer(depthmup.BuiltIn(batch_size=8), design)
    adam, sgd = report.sweep.design.variants
    assert (adam.name, sgd.name) == ("depth-mup adam", "depth-mup sgd")
    optima = [report.finding(v.name).optima[0] for v in (adam, sgd)]
    assert [optimum.place.value for optimum in optima] == ["interior", "interior"]
    # Adam's unit is 1 / 16, four octaves below SGD's.
    assert optima[1].log2_lr.value - optima[0].log2_lr.value > 2


def test_without_a_scheme_blocks_decide():
    assert depthmup.transfer(MINE, replace(DESIGN, schemes=None)).verdict in Verdict
    one = depthmup.transfer(depthmup.BuiltIn(batch_size=8), replace(DESIGN, schemes=None, steps=2))
    two = depthmup.transfer(
        depthmup.BuiltIn(batch_size=8, block_depth=2), replace(DESIGN, schemes=None, steps=2)
    )
    names = [report.sweep.design.variant().name for report in (one, two)]
    assert names[0] == "depth-mup"
    assert names[1].startswith("completep")


def test_stacked_runs_are_the_single_ones_to_rounding():
    single = losses_of(depthmup.transfer(MINE, DESIGN))
    stacked = losses_of(depthmup.transfer(MINE, DESIGN, on=depthmup.Execution(
        workers=1, engine="stacked")))  # fmt: skip
    assert single.keys() == stacked.keys()
    for key, losses in single.items():
        assert stacked[key] == approx(losses, rel=1e-3)
    assert any(stacked[key] != losses for key, losses in single.items())  # another engine


def test_the_compiled_kernel_is_for_built_in_networks():
    with pytest.raises(ValueError, match="trains only the built-in networks"):
        depthmup.transfer(MINE, DESIGN, on=depthmup.Execution(engine="native"))


def test_the_time_is_forecast_and_only_where_runs_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "process_time", time.perf_counter)  # a busy machine has no forecast
    said = []
    for model in (MINE, depthmup.BuiltIn(batch_size=8)):
        folder = tmp_path / type(model).__name__
        for _ in range(2):
            depthmup.transfer(model, DESIGN, out=folder, forecast=said.append)
    assert len(said) == 2
    # Of a moment of training no second is told: starting takes longer.
    assert all(text.startswith("18 runs on one core: a few seconds if ") for text in said)


def test_models_whose_weights_do_not_fit_are_refused_before_any_is_built(monkeypatch, tmp_path):
    built = []

    def make(width, depth):
        built.append((width, depth))
        return own_models.make(width, depth)

    monkeypatch.setattr(cost, "available", lambda device="cpu": 600 * 2**20)
    huge = replace(DESIGN, arms={"width": (16, 8192)})
    model = depthmup.Model(make, batch=own_models.batch, version="1")
    with pytest.raises(ValueError, match=r"at least .* GiB with 1 worker,"):
        depthmup.transfer(model, huge, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"experts": 4}, "values of width, depth"),
        ((32, 4), "values of width, depth"),
        ({"depth": 0}, "depth of the target"),
        ({"depth": 8.5}, "depth of the target"),
    ],
)
def test_targets_that_are_no_size(target, message):
    with pytest.raises(ValueError, match=message):
        depthmup.transfer(MINE, DESIGN, target=target)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"depthmup\.Model\(make, batch=batch\)"):
        depthmup.transfer(own_models.make, DESIGN)
