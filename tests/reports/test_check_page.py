"""The page of a coordinate check: what is drawn of exponents that are far off."""

import json
import re
from dataclasses import replace

import pytest

from depthmup.records import Check, Estimate, Exponent, Outcome, Size
from depthmup.reports.check_page import check_page


@pytest.fixture
def check():
    """One exponent 4 off, one 0.3 off."""
    exponents = tuple(
        Exponent(
            observable="stream",
            module=f"blocks.{k}",
            axis="depth",
            expected="0",
            outcome=Outcome.FAIL,
            estimate=Estimate(value=off, low=off - 0.1, high=off + 0.1),
        )
        for k, off in enumerate((4.0, 0.3))
    )
    sizes = tuple(
        Size(
            observable="stream",
            module=f"blocks.{k}",
            width=8,
            depth=depth,
            value=float(depth**off),
            spread=0.1,
            seeds=(float(depth**off),),
        )
        for k, off in enumerate((4.0, 0.3))
        for depth in (2, 4)
    )
    return Check(
        title="mine", scheme="Depth-muP", optimizer="adamw", applied=True, widths=(8,),
        depths=(2, 4), seeds=2, steps=1, lr=0.1, margin=0.25, confidence=0.95,
        outcome=Outcome.FAIL, exponents=exponents, sizes=sizes,
    )  # fmt: skip


def test_a_check_saves_its_page_and_its_numbers(check, tmp_path):
    page, data = check.save(tmp_path / "new")
    assert page.read_text(encoding="utf-8") == check_page(check)
    assert [e["axis"] for e in json.loads(data.read_text())["exponents"]] == ["depth", "depth"]
    assert (page.name, data.name) == ("check.html", "check.json")


def test_a_check_is_drawn_as_a_file(check, tmp_path):
    check.plot(tmp_path / "check.svg")
    svg = (tmp_path / "check.svg").read_text()
    assert "blocks.0: stream" in svg
    assert "blocks.1: stream" in svg
    with pytest.raises(ValueError, match=r"to end in \.html, \.svg"):
        check.plot(tmp_path / "check.gif")
    with pytest.raises(ValueError, match="exponents to draw"):
        replace(check, exponents=()).plot(tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_what_is_far_off_leaves_the_panel_and_is_not_drawn_at_its_edge(check):
    page = check_page(check)
    charts = json.loads(re.search(r"const CHARTS = (\{.*\});", page).group(1))
    layers = charts["deviations"]["layer"]
    assert all(layer["mark"]["clip"] for layer in layers)
    assert "clamp" not in json.dumps(layers)
    for layer in layers[1:]:
        assert {tip["field"] for tip in layer["encoding"]["tooltip"]} >= {"value", "low", "high"}
    assert "The panel ends at ±1.25" in page


@pytest.mark.xdist_group("browser")
def test_in_a_browser_only_what_lies_in_the_panel_is_seen(browser, check, tmp_path):
    path = tmp_path / "check.html"
    path.write_text(check_page(check), encoding="utf-8")
    tab = browser.open(path, width=1280)
    places = tab.run(
        "(async () => { for (let i = 0; i < 50; i++) {"
        " if (document.querySelector('#deviations svg')) break;"
        " await new Promise(done => setTimeout(done, 100)); }"
        " const panel = document.querySelector('#deviations .background').getBBox().width;"
        " return [...document.querySelectorAll('#deviations .mark-symbol.role-mark path')]"
        ".map(point => point.transform.baseVal[0].matrix.e / panel); })()"
    )
    assert sum(0 <= x <= 1 for x in places) == 1
    assert sum(x > 1 for x in places) == 1, "what lies beyond is hidden by the panel's clip"
    assert tab.complaints == []


@pytest.mark.xdist_group("browser")
def test_on_a_phone_nothing_of_the_chart_is_cut(browser, check, tmp_path):
    path = tmp_path / "check.html"
    path.write_text(check_page(check), encoding="utf-8")
    tab = browser.open(path, width=390)
    shown, whole = tab.run(
        "(async () => { await window.drawn; const c = document.getElementById('deviations');"
        " return [c.clientWidth, c.scrollWidth]; })()"
    )
    assert whole <= shown < 390
    assert tab.run("document.documentElement.scrollWidth") == 390
