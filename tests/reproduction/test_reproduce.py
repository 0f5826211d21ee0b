"""Claims as a whole: names, sharing, resuming, and what a wrong implementation does to verdicts."""

from dataclasses import replace

import pytest

from depthmup.records import UNKNOWN
from depthmup.rules import general
from depthmup.sweep import InProcess, Store, StoreError
from reproduction import (
    CLAIMS,
    Claim,
    Conclusion,
    Experiment,
    Scale,
    Setting,
    judge,
    named,
    plan_claims,
    reproduce,
)
from reproduction.evidence import Accepted, Comparison, Reproduction

WRONG = general("3/5", "1/2")  # alpha = 0.6 where 1/2 is meant


def verdicts(names, store, setting=Setting()):  # noqa: B008 - frozen
    planned = plan_claims(named(names), setting)
    reproduce(planned, store=store, executor=InProcess())
    evidence = judge(planned, store, scale=setting.scale.value, environment={})
    return {finding.claim: finding.verdict for finding in evidence.findings}


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        yield store


def test_every_claim_has_a_name_of_its_own_and_says_what_it_shows():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.title
        assert not claim.title.endswith(".")
        assert claim.shows.endswith(".")
        assert claim.source.startswith("docs/" if claim.group == "beyond" else "TP6")


@pytest.mark.parametrize("scale", list(Scale))
def test_every_claim_can_be_planned_at_every_scale(scale):
    for claim, experiment in plan_claims(CLAIMS, Setting(scale=scale)):
        keys = [each.key for each in experiment.asked]
        assert len(set(keys)) == len(keys), claim.name


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"fig10.*; got fig99.*fig9 or fig19"):
        named(["fig10", "fig99"])


def test_claims_are_in_the_papers_order():
    names = [claim.name for claim in named(["claim7.1", "fig10", "fig9", "erratum1", "claimE.1"])]
    assert names == ["fig9", "fig10", "claim7.1", "claimE.1", "erratum1"]


def test_what_was_revised_after_a_first_result_is_said_in_a_sentence():
    revised = {claim.name: claim.revised for claim in CLAIMS if claim.revised}
    asked = {"fig12", "fig13", "fig16", "fig23", "fig24", "sec3.1", "claim7.3"}
    assert asked | {"erratum3", "erratum7", "fig10", "fig20"} <= set(revised)
    assert all(text.endswith(".") for text in revised.values())
    assert "tolerance" in revised["claim7.3"]
    assert "tolerance" not in revised["claim7.2"]


@pytest.mark.parametrize(("scale", "advice"), [("laptop", "Go larger."), ("paper", "")])
def test_there_is_no_larger_scale_than_the_papers(scale, advice, store):
    open_ = Comparison(what="w", paper="p", ours=UNKNOWN, accepted=Accepted(low=0.0))
    experiment = Experiment(conclude=lambda store: Conclusion(comparisons=(open_,)))
    claim = Claim(
        name="c", title="t", shows="s", source="p", experiment=lambda setting: experiment,
        remedy="Go larger.", revised="It was changed.",
    )  # fmt: skip
    (finding,) = judge([(claim, experiment)], store, scale=scale, environment={}).findings
    assert finding.remedy == advice
    assert finding.revised == "It was changed."


def test_what_is_missing_is_named(store):
    planned = plan_claims(named(["sec3.1"]), Setting())
    with pytest.raises(StoreError, match=r"of sec3\.1 are not in .* yet"):
        judge(planned, store, scale="laptop", environment={})


def test_the_computed_claims_hold_and_a_wrong_exponent_is_found_out(store):
    """No network is trained: the recursion, its limit, and its approach to the limit."""
    names = ["fig9", "lemma4.3", "prop4.4", "thmC.3", "erratum4"]
    assert set(verdicts(names, store).values()) == {Reproduction.REPRODUCED}
    wrong = verdicts(["fig9"], store, Setting(depth_mup=WRONG))
    assert wrong == {"fig9": Reproduction.NOT_REPRODUCED}


@pytest.mark.long(slice=False)
def test_one_step_needs_the_right_multiplier(store):
    assert verdicts(["sec3.1"], store) == {"sec3.1": Reproduction.REPRODUCED}
    wrong = verdicts(["sec3.1"], store, Setting(depth_mup=WRONG))
    assert wrong == {"sec3.1": Reproduction.NOT_REPRODUCED}


@pytest.mark.long
def test_networks_are_where_the_theory_says_under_the_right_rule_only(store):
    assert verdicts(["thm4.1"], store) == {"thm4.1": Reproduction.REPRODUCED}
    wrong = verdicts(["thm4.1"], store, Setting(depth_mup=WRONG))
    assert wrong == {"thm4.1": Reproduction.NOT_REPRODUCED}


def test_a_setting_changes_tasks_and_so_never_reads_anothers_results():
    right, wrong = (
        plan_claims(named(["thm4.1", "sec3.1"]), Setting(depth_mup=rule))
        for rule in (Setting().depth_mup, WRONG)
    )
    for (_, one), (_, other) in zip(right, wrong, strict=True):
        assert not {t.key for t in one.asked} & {t.key for t in other.asked}


def test_scales_differ():
    small, large = (Setting(scale=s) for s in (Scale.LAPTOP, Scale.PAPER))
    assert small.choose(laptop=1, medium=2, paper=3) == 1
    assert large.choose(laptop=1, medium=2, paper=3) == 3
    assert replace(small, scale=Scale.MEDIUM).choose(laptop=1, medium=2, paper=3) == 2
