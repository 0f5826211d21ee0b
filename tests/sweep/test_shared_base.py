"""Schemes that agree at the base share its runs there: one curve, one optimum, one price."""

from dataclasses import replace

import numpy as np
import pytest

import depthmup
from depthmup.records.certificate import Lack
from depthmup.reports.next_steps import _runs
from depthmup.statistics.study import shared_optima

DESIGN = depthmup.Design(
    base={"width": 16, "depth": 4}, depth=(4, 8, 16), schemes=("depth-mup", "sp", "ode"), steps=60,
    seeds=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    return depthmup.transfer(depthmup.BuiltIn(batch_size=16), DESIGN, out=folder)


def at_base(report):
    return [t.optima[0] for t in report.study().headline.transfers]


def test_schemes_that_share_the_base_have_one_optimum_there(searched):
    first, *others = at_base(searched)
    assert first.size == {"width": 16, "depth": 4}
    assert [*others] == [first] * len(others)
    deeper = {t.optima[1].log2_lr.value for t in searched.study().headline.transfers}
    assert len(deeper) == len(DESIGN.schemes)
    shown = {scheme["optimum"][0]["log2_lr"] for scheme in searched.to_dict()["schemes"]}
    assert shown == {first.log2_lr.value}


def test_what_one_scheme_asked_for_counts_for_all(searched):
    alone = [s for (_, size), s in searched.sweep.asked.items() if size == 0]
    assert len(alone) == len(DESIGN.schemes)
    assert all(of_scheme == alone[0] for of_scheme in alone)
    curves = [c.points for c in searched.study().headline.curves if c.depth == 4]
    assert curves[1:] == [curves[0]] * (len(curves) - 1)


def test_shared_runs_are_priced_once(searched):
    assert _runs(searched.study()) == len(searched.records)


def test_the_same_runs_as_a_table_have_that_optimum(searched):
    table = depthmup.fit(searched.to_pandas("runs"))
    assert at_base(table) == at_base(searched)


def test_the_one_optimum_is_of_the_variant_with_most_runs(searched):
    one = at_base(searched)[0]
    wide = replace(one, log2_lr=replace(one.log2_lr, low=one.log2_lr.low - 1))
    assert shared_optima(["a", "b"], [[one], [wide]], [3, 9]) == [(one,), (wide,)]
    assert shared_optima(["a", "a", "a"], [[one], [wide], [one]], [8, 9, 8]) == [(wide,)] * 3


def test_a_first_round_counts_shared_runs_once():
    design = replace(DESIGN, lrs=depthmup.sweep.Auto(runs=9))
    report = depthmup.transfer(depthmup.BuiltIn(batch_size=16), design)
    assert len(report.records) == 9


def test_runs_that_differ_are_not_shared():
    grid = replace(DESIGN, optimizers=("adam", "sgd"), schemes="depth-mup", lrs=[0.01, 0.02, 0.04])
    report = depthmup.transfer(depthmup.BuiltIn(batch_size=16), replace(grid, steps=20))
    adam, sgd = at_base(report)
    assert not np.isclose(adam.loss.value, sgd.loss.value)


def test_a_certificate_that_the_budget_prevents_says_so_first():
    auto = depthmup.sweep.Auto(runs=12)
    design = replace(DESIGN, schemes=("depth-mup", "ode"), lrs=auto)
    report = depthmup.transfer(depthmup.BuiltIn(batch_size=16), design, target={"depth": 32})
    for certificate in report.certificates:
        first, *_ = certificate.refusals
        assert first.lack is Lack.BUDGET
        assert first.reason.startswith("The budget was spent before depth ")
    bases = {certificate.optima[0].log2_lr for certificate in report.certificates}
    assert len(bases) == 1
    assert "twice the runs (about" in str(report)
