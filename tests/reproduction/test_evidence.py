"""The evidence page: every finding is on it, in a browser it draws, offline, at any width."""

import json
import math
from dataclasses import replace

import pytest

from depthmup.records import Estimate
from reproduction.claims.panels import Axis, heat_map, lines
from reproduction.evidence import Accepted, Comparison, Evidence, Finding, Picture
from reproduction.pages.evidence import (
    evidence_headline,
    evidence_markdown,
    evidence_page,
    evidence_summary,
    evidence_text,
    export_pictures,
    measured,
    remedy_of,
)


def comparison(value=-0.03, low=-0.05, high=-0.01, **changes):
    return Comparison(
        **{
            "what": "drift of the best learning rate",
            "paper": "0",
            "ours": Estimate(value=value, low=low, high=high, unit="octaves per doubling"),
            "accepted": Accepted(low=-0.15, high=0.15),
            **changes,
        }
    )


def frames():
    rows = [
        {"depth": d, "loss": d**-0.5 + 0.1 * w, "low": d**-0.6, "high": d**-0.4, "window": w,
         "scheme": s}
        for w in (0, 1) for d in (8, 16, 32) for s in ("ode", "depth-mup")
    ]  # fmt: skip
    return lines(
        rows, name="frames", caption="Moves with the slider.",
        x=Axis(field="depth", title="depth", log=True),
        y=Axis(field="loss", title="loss", log=True),
        by="scheme", references=[("slope", [(8, 0.4), (32, 0.2)])], frames=("early", "late"),
    )  # fmt: skip


def heat():
    rows = [{"a": a, "b": b, "loss": a * b, "best": a == b} for a in (0, 1, 2) for b in (0, 1)]
    return heat_map(
        rows, name="heat", caption="A map.", x=Axis(field="a", title="log2 a"),
        y=Axis(field="b", title="log2 b"), value=Axis(field="loss", title="loss"),
        marked="best", lines_over={"l": [(0, 0), (2, 1)]},
    )  # fmt: skip


@pytest.fixture
def evidence():
    shared = {"shows": "One sentence. Another.", "source": "TP6 Figure 10"}
    return Evidence(
        scale="laptop",
        findings=(
            Finding(claim="fig10", title="It stays", comparisons=(comparison(),),
                    revised="Depths <b>and</b> seeds.", pictures=(frames(), heat()),
                    command="depthmup reproduce fig10", **shared),
            Finding(claim="fig11", title="It moves", remedy="Run more.",
                    comparisons=(comparison(high=0.3), comparison(low=-3, decisive=False)),
                    notes=("Worth knowing.",), **shared),
            Finding(claim="erratum1", title="An index", group="errata",
                    comparisons=(comparison(value=0.5, low=0.4, high=0.6),), **shared),
        ),
        environment={"processor": "a <b>fast</b> one"},
        config={"scale": "laptop"},
    )  # fmt: skip


def test_the_headline_counts_errata_apart(evidence):
    assert evidence_headline(evidence) == (
        "1 of 2 figures and claims reproduced; 1 not decidable at this scale; "
        "0 of 1 errata confirmed"
    )


def test_every_finding_is_in_every_form(evidence):
    text, markdown = evidence_text(evidence), evidence_markdown(evidence, command="depthmup")
    summary = json.loads(json.dumps(evidence_summary(evidence), allow_nan=False))
    assert [c["claim"] for c in summary["claims"]] == ["fig10", "fig11", "erratum1"]
    assert summary["claims"][1]["comparisons"][0]["verdict"] == "not decidable at this scale"
    for finding in evidence.findings:
        assert finding.title in text
        assert finding.title in markdown
    assert "not confirmed" in text
    assert f"fig11: {remedy_of(evidence.findings[1])}" in text, "an open claim ends with what to do"
    assert "(not decidable at this scale)" in markdown, "what decides nothing is in brackets"
    assert "Worth knowing." in markdown


def test_what_was_revised_stands_at_the_claim_in_every_form(evidence):
    page, markdown = evidence_page(evidence), evidence_markdown(evidence, command="depthmup")
    assert page.count("Revised after a first result:") == 1
    assert "Depths &lt;b&gt;and&lt;/b&gt; seeds." in page
    assert "- **fig10**: Depths <b>and</b> seeds." in markdown
    claims = evidence_summary(evidence)["claims"]
    assert [c["revised"] for c in claims] == ["Depths <b>and</b> seeds.", "", ""]
    for text in (page, markdown):
        assert "accepted beforehand" in text
        assert "before anything was measured" not in text


def test_what_was_not_measured_is_no_number(evidence):
    unknown = comparison(value=float("nan"), low=float("nan"), high=float("nan"))
    finding = replace(evidence.findings[0], comparisons=(unknown,))
    summary = evidence_summary(replace(evidence, findings=(finding,)))
    assert summary["claims"][0]["comparisons"][0]["estimate"] is None
    assert "not measured" in evidence_page(replace(evidence, findings=(finding,)))


def test_infinity_is_a_number_and_outside_what_is_accepted(evidence):
    endless = comparison(value=math.inf, low=math.inf, high=math.inf)
    found = replace(evidence, findings=(replace(evidence.findings[0], comparisons=(endless,)),))
    markdown = evidence_markdown(found, command="depthmup")
    assert "| ∞ | within −0.15 to 0.15 | not reproduced |" in markdown


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.0031, 0.0030, 0.0032), "0.00310 [0.00300, 0.00320]"),
        ((0.1506, 0.1484, 0.1532), "0.1506 [0.1484, 0.1532]"),
        ((-0.72, -0.87, -0.56), "−0.72 [−0.87, −0.56]"),
        ((12.0, 3.0, 40.0), "12.00 [3.00, 40.00]"),
        ((-3.21e-9, -3.26e-9, -3.18e-9), "−3.21e-09 [−3.26e-09, −3.18e-09]"),
        ((2.5, -math.inf, math.inf), "2.50 [−∞, ∞]"),
        ((math.inf, math.inf, math.inf), "∞"),
        ((0.0, 0.0, 0.0), "0"),
        ((100.0, 100.0, 100.0), "100"),
        ((43.91372, 43.91372, 43.91372), "43.914"),
        ((math.nan, math.nan, math.nan), "not measured"),
    ],
)
def test_digits_follow_from_the_width_of_the_interval(numbers, text):
    value, low, high = numbers
    assert measured(Estimate(value=value, low=low, high=high)) == text


def test_names_and_captions_are_escaped(evidence):
    hostile = "<script>alert(1)</script>"
    picture = Picture(name="x", caption=hostile, spec=heat().spec, legend=((hostile, "red"),))
    finding = replace(evidence.findings[0], title=hostile, notes=(hostile,), pictures=(picture,))
    page = evidence_page(replace(evidence, findings=(finding,)))
    assert hostile not in page
    assert "a <b>fast</b> one" not in page


def test_pictures_are_exported_with_a_width_of_their_own(evidence, tmp_path):
    written = export_pictures(evidence, tmp_path, formats=("svg",))
    assert [path.name for path in written] == ["fig10-frames.svg", "fig10-heat.svg"]
    assert all("<svg" in path.read_text() for path in written)


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(browser, evidence, tmp_path, width):
    path = tmp_path / "evidence.html"
    path.write_text(evidence_page(evidence), encoding="utf-8")
    tab = browser.open(path, width=width)
    tab.run("window.drawAll()")
    drawn = tab.run(
        "[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('svg path').length)"
    )
    assert len(drawn) == 2
    assert min(drawn) > 3
    assert tab.run("document.documentElement.scrollWidth") == width
    before = tab.run("document.getElementById('fig10-frames').querySelector('svg').innerHTML")
    tab.run(
        "(async () => { const s = document.querySelector('form[data-claim=\"fig10\"] input');"
        "s.value = 0; s.dispatchEvent(new Event('input'));"
        "await new Promise(done => setTimeout(done, 300)); })()"
    )
    assert tab.run("document.querySelector('form[data-claim] output').textContent") == "early"
    after = tab.run("document.getElementById('fig10-frames').querySelector('svg').innerHTML")
    assert after != before
    assert tab.requests == [path.as_uri()]
    assert tab.complaints == []
