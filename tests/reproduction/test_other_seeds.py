"""Claims measured again: other seeds for every run, asked for by the same searches."""

from depthmup.records import Estimate
from depthmup.sweep import MAIN_STORE, InProcess, Store
from reproduction import Setting, judge, named, plan_claims, reproduce
from reproduction.evidence import Accepted, Comparison, Finding
from studies.other_seeds import FIRST, OtherSeeds, closest, room

TINY = {"seeds": 2, "steps": 5, "window": 1, "width": 8, "depths": (8, 16)}


def test_the_same_claim_with_seeds_that_no_run_had(tmp_path):
    planned = plan_claims(named(["fig20"]), Setting(sizes=TINY))
    path = tmp_path / MAIN_STORE
    with OtherSeeds(path) as store:
        trained = reproduce(planned, store=store, executor=InProcess())
        assert reproduce(planned, store=store, executor=InProcess()) == 0
        (finding,) = judge(planned, store, scale="laptop", environment={}).findings
    cells = planned[0][1].cells
    assert trained == len(cells) == finding.runs
    with Store(path) as store:
        assert store.missing(cells) == list(cells)
    with Store(tmp_path / "own.sqlite") as store:
        reproduce(planned, store=store, executor=InProcess())
        (own,) = judge(planned, store, scale="laptop", environment={}).findings
    grown, other = own.comparisons[2].ours, finding.comparisons[2].ours
    assert grown.value != other.value
    assert max(cell.seed for cell in cells) < FIRST


def test_the_closest_are_those_with_least_room():
    def claim(name, high):
        ours = Estimate(value=0.0, low=-high, high=high)
        stays = Accepted(low=-0.15, high=0.15)
        one = Comparison(what="", paper="", ours=ours, accepted=stays)
        return Finding(claim=name, title="", shows="", source="", comparisons=(one,))

    wide, narrow, open_ = claim("wide", 0.1), claim("narrow", 0.05), claim("open", 0.2)
    assert room(wide.comparisons[0]) == (0.15 - 0.1) / 0.1
    assert closest([narrow, open_, wide]) == ["wide", "narrow"]
