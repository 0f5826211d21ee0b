"""What claims cost: forecasts, their own runs afterwards, and what would decide an open one."""

import math

import pytest
from planted import SMALL, planted, residual_law

from depthmup.cli import main
from depthmup.records import Estimate
from depthmup.sweep import InProcess, Store, core_seconds
from reproduction import Setting, judge, named, plan_claims, reproduce
from reproduction.evidence import Accepted, Comparison, Finding, Reproduction
from reproduction.pages.evidence import remedy_of
from reproduction.prices import price, prices, spent

TINY = {"seeds": 2, "steps": 5, "window": 1, "width": 8, "depths": (8, 16)}
STAYS = Accepted(low=-0.15, high=0.15)


def test_a_price_is_the_work_of_all_runs_each_once():
    """Figures 10 and 22 are of one grid: together they cost what one does."""
    planned = plan_claims(named(["fig10", "fig22"]), Setting(sizes=TINY))
    cells = planned[0][1].cells
    alone, _ = prices(planned)
    with Store(":memory:") as store:
        both = price(planned, store)
    assert both == alone
    assert both.runs == len(cells)
    assert both.seconds(2) == pytest.approx(core_seconds(cells, engine="native") / 2)


def test_what_is_there_costs_nothing_more_and_counts_for_each_claim(tmp_path):
    planned = plan_claims(named(["fig10", "fig20"]), Setting(sizes=SMALL))
    for _, experiment in planned:
        with planted(experiment, tmp_path, residual_law) as store:
            pass
    with Store(tmp_path / "results.sqlite") as store:
        assert price(planned, store).runs == 0
        costs = spent(planned, store)
    (fig10, of10), (fig20, of20) = costs["fig10"], costs["fig20"]
    assert fig10 >= len(planned[0][1].cells)
    assert fig20 == len(planned[1][1].cells)
    assert max(of10, of20) < 1 < of10 + of20, "they share runs"


@pytest.mark.parametrize(
    ("value", "half", "times"),
    [(0.1, 0.1, 4.0), (0.2, 0.1, 4.0), (0.15, 0.1, math.inf), (0.0, 0.1, 1.0), (0.0, 0.3, 4.0)],
    ids=["inside", "outside", "on the edge", "decided", "about zero"],
)
def test_an_error_falls_as_the_root_of_the_runs(value, half, times):
    ours = Estimate(value=value, low=value - half, high=value + half)
    one = Comparison(what="", paper="", ours=ours, accepted=STAYS)
    assert one.times_to_decide == pytest.approx(times)
    beside = Comparison(what="", paper="", ours=ours, accepted=STAYS, decisive=False)
    finding = Finding(
        claim="c", title="", shows="", source="", comparisons=(one, beside), runs=100, seconds=60.0,
        remedy="Go on.",
    )  # fmt: skip
    said = remedy_of(finding)
    if times == 1:
        assert said == ""
    elif math.isinf(times):
        assert (
            said
            == "More runs would not: 100 times as many leave it open, if estimates stay. Go on."
        )
    else:
        assert said == "400 runs of this kind would (4 min 0 s), if estimates stay. Go on."


def test_after_its_budget_a_search_that_only_narrows_ends_open(tmp_path):
    """The grid is trained in any case; the claim is judged by it, and says that it was stopped."""
    planned = plan_claims(named(["fig13"]), Setting(sizes=TINY))
    ((_, experiment),) = planned
    with Store(tmp_path / "results.sqlite") as store:
        assert reproduce(planned, store=store, executor=InProcess(), most_runs=1) == len(
            experiment.cells
        )
        assert experiment.ahead(store).narrows
        (finding,) = judge(planned, store, scale="laptop", environment={}).findings
        assert finding.verdict is Reproduction.UNDECIDABLE
        assert finding.going_on == len(experiment.ahead(store).missing) > 0
        assert finding.runs == len(experiment.cells)
        assert "stopped before its limit; `depthmup reproduce fig13` goes on" in remedy_of(finding)
        assert reproduce(planned, store=store, executor=InProcess(), seconds=3600) > 0
        (finding,) = judge(planned, store, scale="laptop", environment={}).findings
    assert finding.going_on == 0
    assert finding.runs > len(experiment.cells)


def test_a_budget_is_read_before_work_starts(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", "fig13", "--budget", "much", "--out", str(out)]) == 2
    assert "Expected --budget to be a number of runs" in capsys.readouterr().err
    assert not out.exists()
