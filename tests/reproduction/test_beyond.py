"""Results beyond the paper: the cheap ones hold, and a wrong limit is noticed."""

import pytest

from depthmup import limits
from depthmup.sweep import InProcess, Store
from reproduction import Setting, judge, named, plan_claims, reproduce
from reproduction.evidence import Reproduction
from reproduction.pages.evidence import evidence_headline, evidence_markdown


def evidence(names, path):
    with Store(path / "results.sqlite") as store:
        planned = plan_claims(named(names), Setting())
        reproduce(planned, store=store, executor=InProcess())
        return judge(planned, store, scale="laptop", environment={})


def test_what_is_computed_alone_is_confirmed(tmp_path):
    result = evidence(["beyond1", "beyond7"], tmp_path)
    assert {f.verdict for f in result.findings} == {Reproduction.REPRODUCED}
    assert "2 of 2 results beyond the paper confirmed" in evidence_headline(result)
    assert "0 of 0 figures and claims" in evidence_headline(result)
    table = evidence_markdown(result, command="depthmup reproduce all")
    assert "## Beyond the paper" in table
    assert "| derived |" in table


def test_a_limit_with_another_learning_rate_is_not_first_order(tmp_path, monkeypatch):
    right = limits.two_matrix

    def wrong(steps, *, lr, **options):
        return right(steps, lr=1.2 * lr if options["depth"] == float("inf") else lr, **options)

    monkeypatch.setattr(limits, "two_matrix", wrong)
    result = evidence(["beyond1"], tmp_path)
    assert result.findings[0].verdict is Reproduction.NOT_REPRODUCED


@pytest.mark.long
def test_networks_notice_a_wrong_learning_rate(tmp_path, monkeypatch):
    right = limits.two_matrix

    def wrong(steps, *, lr, **options):
        return right(steps, lr=1.5 * lr, **options)

    monkeypatch.setattr(limits, "two_matrix", wrong)
    result = evidence(["beyond2"], tmp_path)
    assert result.findings[0].verdict is Reproduction.NOT_REPRODUCED
