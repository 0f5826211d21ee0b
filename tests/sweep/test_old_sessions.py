"""Stores of version 0.1: opened, resumed without training anything, judged as this version does."""

import lzma
from pathlib import Path

import pytest
from pytest import approx

import depthmup
from depthmup.records import Verdict
from depthmup.report import load_report
from depthmup.sweep import BuiltIn, Custom, Store
from depthmup.sweep.sessions import sweep_of

STORES = Path(__file__).parent / "stores"


@pytest.fixture
def unpacked(tmp_path):
    def unpack(name):
        path = tmp_path / "results.sqlite"
        path.write_bytes(lzma.decompress((STORES / f"{name}-0.1.sqlite.xz").read_bytes()))
        return path

    return unpack


def test_built_in_networks(unpacked):
    path = unpacked("built-in")
    with Store(path) as store:
        report = load_report(store)
        (session,) = store.sessions()
        sweep = sweep_of(session)
        assert sweep.model == BuiltIn(numerics=2)
        assert session["target"] == {"width": 64, "depth": 256}
        assert not store.missing(sweep.runs)
        before = len(store)
    # As version 0.1 judged them, whose rates were in units of 1 / 64.
    verdicts = {t.scheme: t.verdict for t in report.study().headline.transfers}
    assert verdicts["block-multiplier"] is verdicts["sp"] is Verdict.DRIFTS
    assert Verdict.DRIFTS not in (verdicts["depth-mup"], verdicts["ode"])
    found = [optimum.log2_lr.value for optimum in report.finding("depth-mup").optima]
    assert found == approx([-2.45 - 6, -2.72 - 6, -2.79 - 6, -2.71 - 6], abs=0.25)
    design = sweep.design
    again = depthmup.transfer(sweep.model, design, out=path.parent)
    with Store(path) as store:
        assert len(store) == before
    assert again.finding() == report.finding()


def test_custom_models(unpacked):
    path = unpacked("custom")
    with Store(path) as store:
        report = load_report(store)
        (session,) = store.sessions()
        sweep = sweep_of(session)
        assert sweep.model == Custom(name="make", code="721b0b9ed2913d2a", numerics=2)
        assert sweep.design.axes == ("depth", "width")
        assert session["target"] == {"width": 16, "depth": 32}
        assert not store.missing(sweep.runs)
    assert {
        report.finding(s, a).verdict for s in ("depth-mup", "sp") for a in sweep.design.axes
    } == {Verdict.UNDECIDED}
    # Two noisy seeds: the wider fit of this version sees all optima 0.36 octaves higher.
    first, *others = [optimum.log2_lr.value for optimum in report.finding("sp").optima]
    assert [at - first for at in others] == approx([-6.40 + 5.91, -7.87 + 5.91], abs=0.1)
