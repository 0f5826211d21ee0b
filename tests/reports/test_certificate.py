"""A certificate in words, as text, and on a page."""

import math
import re
from dataclasses import replace

import pytest

from depthmup.records import Certificate, Estimate, Lack, Optimum, Place, Refusal, Verdict
from depthmup.records.certificate import AxisSlope, BandPoint, Metrics
from depthmup.reports import Page, certificate_section, certificate_text, page
from depthmup.reports.certificate import certificate_headline, certificate_sentences
from depthmup.reports.certificate_charts import CERTIFICATE_CHARTS
from depthmup.reports.chart import draw
from depthmup.reports.tables import text
from depthmup.reports.theme import Style


def estimate(value, half=0.1):
    return Estimate(value=value, low=value - half, high=value + half)


def size(width, depth):
    return {"width": width, "depth": depth}


def optimum(width, depth, at, place=Place.INTERIOR):
    return Optimum(
        size=size(width, depth), log2_lr=estimate(at), curvature=estimate(0.15, 0.01),
        loss=estimate(0.4, 0.01), place=place,
    )  # fmt: skip


def issued(**changes):
    found = Certificate(
        target=size(4096, 64),
        base=size(256, 4),
        optima=tuple(optimum(w, d, -2.8) for w in (256, 512, 1024) for d in (4, 8, 16)),
        log2_lrs=(-6.0, -4.0, -2.0, 0.0),
        seeds=3,
        title="My model",
        scheme="completep",
        rate_unit=2**-6,
        slopes=(AxisSlope(axis="width", estimate=estimate(0.02)),
                AxisSlope(axis="depth", estimate=estimate(-0.03))),
        predicted=Estimate(value=-2.895, low=-3.2, high=-2.587),
        penalty=Estimate(value=0.001, low=0.0, high=0.008),
        base_regret=Estimate(value=0.012, low=0.001, high=0.034),
        best_loss=estimate(0.3, 0.02),
        metrics=Metrics(
            fit_error=0.034,
            robustness=(AxisSlope(axis="depth", estimate=estimate(-0.2)),),
            horizon_penalty=Estimate(value=0.02, low=0.0, high=math.inf),
        ),
        verdict=Verdict.TRANSFERS,
        law=tuple(BandPoint(at=k / 4, value=-2.8 - k / 40, low=-3, high=-2.5) for k in range(5)),
        penalty_curve=tuple(
            BandPoint(at=-4 + k / 4, value=0.1 * (k / 4 - 1.1) ** 2, low=0.0, high=math.inf)
            for k in range(10)
        ),
        environment={"cores": 2},
    )  # fmt: skip
    return replace(found, **changes)


def refused(**changes):
    return Certificate(
        target=size(64, 4096),
        base=size(64, 8),
        optima=(optimum(64, 8, -7.0, Place.LOW_EDGE), optimum(64, 16, -3.0)),
        log2_lrs=(-7.0, -3.0, 0.0),
        seeds=1,
        refusals=(
            Refusal(lack=Lack.EDGE, reason="It is at the edge.", advice="Extend the grid."),
            Refusal(lack=Lack.FAR, reason="It is far.", advice="Measure closer."),
        ),
        **changes,
    )


def test_the_headline_is_what_to_do():
    assert certificate_headline(issued()) == (
        "Train at width 4096 and depth 64 with learning rate 2.1e-3 (1.7e-3 to 2.6e-3)."
    )
    assert certificate_headline(refused()) == (
        "No learning rate is certified for width 64 and depth 4096."
    )


def test_the_price_the_drift_and_what_it_rests_on():
    bound, price, drift, measured = certificate_sentences(issued())
    assert bound == "Expected excess loss over retuning there: at most 0.8%."
    assert price == "Keeping the learning rate of width 256 and depth 4 costs 1.2% (0.1% to 3.4%)."
    assert drift.startswith(
        "The base's learning rate transfers to the target: +1% (−5% to +9%) per doubling of width"
    )
    assert measured.startswith("Measured under completep on 256x4, 256x8, 256x16, 512x4")
    assert "4 learning rates, 3 seeds, by training loss" in measured


@pytest.mark.parametrize(("width", "says"), [(2080, "1 doubling of"), (3000, "1.6 doublings of")])
def test_the_distance_of_the_target(width, says):
    """2080 is 1.02 doublings beyond 1024, which prints as 1."""
    assert f"the target is {says} width" in certificate_sentences(issued(target=size(width, 16)))[2]


@pytest.mark.parametrize(
    ("regret", "says"),
    [
        (Estimate(value=0.1, low=0.0, high=math.inf), "costs 10%, and may diverge"),
        (Estimate(value=math.inf, low=0.5, high=math.inf), "training is likely to diverge"),
        (Estimate(value=50.0, low=11.0, high=90.0), "more than ten times the loss"),
    ],
)
def test_a_dear_base_rate(regret, says):
    assert says in certificate_sentences(issued(base_regret=regret))[1]


def test_a_refusal_gives_its_reasons_and_no_rate():
    text = certificate_text(refused())
    assert "It is at the edge. Extend the grid." in text
    assert "It is far. Measure closer." in text
    assert "Train at" not in text
    assert "low edge" in text


def test_the_text_names_the_model_and_every_size():
    text = certificate_text(issued())
    assert text.startswith("My model: Train at width 4096")
    assert text.count("interior") == 9
    assert "usual distance from a straight law: ±2%" in text
    assert "no bound" in text


def test_of_many_sizes_text_says_where_they_lie_and_lists_some():
    many = issued(optima=tuple(optimum(256, 2**d, -2.8) for d in range(2, 22)))
    text = certificate_text(many)
    assert "Measured under completep on 20 sizes (width 256 to 256, depth 4 to 2.097M)" in text
    assert "\nNot shown: 8 sizes. --json has all." in text
    assert text.count("interior") == 12


def test_what_to_do_at_the_target_is_said_first(study):
    """A drift that is known predicts a rate as well; of several schemes one that transfers."""
    drifting = replace(study.headline.transfers[2], verdict=Verdict.DRIFTS)
    window = replace(study.headline, curves=(), transfers=(drifting,))
    alone = replace(study, windows=(window,))
    only = issued(scheme=drifting.scheme)
    first = certificate_headline(only)
    assert text(alone, certificates=[only]).startswith(first)
    shown = page(alone, certificates=[only])
    assert re.sub("<.*?>", "", re.findall("<h1>.*?</h1>", shown, re.DOTALL)[0]) == first
    others = [only, issued(scheme="ode")]
    assert not text(alone, certificates=others).startswith(first)
    assert text(study, certificates=[*others, issued(scheme="depth-mup")]).startswith("Train at")
    refused = replace(only, refusals=(Refusal(lack=Lack.SEEDS, reason="One.", advice="Two."),))
    assert not text(alone, certificates=[refused]).startswith("No learning rate")


def test_a_section_has_its_charts_and_escapes_its_strings(hostile):
    section = certificate_section(issued(title=hostile), name="mine")
    assert [plot.name for plot in section.plots] == ["mine-law", "mine-penalty"]
    html = Page(title="t", headline="h", sections=[section]).html()
    assert all(f'id="{plot.name}"' in html for plot in section.plots)
    shown, *scripts = html.split("<script>")
    assert "<img" not in shown + scripts[-1]
    assert [card.verdict for card in section.cards] == ["certified"]
    assert ">certified<" in shown
    assert "refused" not in shown


@pytest.mark.parametrize(
    ("base", "sides"),
    [(-2.8, {"predicted": ("right", -5), "base": ("left", 5)}),
     (-3.0, {"predicted": ("left", 5), "base": ("right", -5)})],
)  # fmt: skip
def test_words_beside_near_rates_stand_on_their_outer_sides(base, sides):
    certificate = issued(optima=(optimum(256, 4, base), optimum(512, 8, base)))
    chart = CERTIFICATE_CHARTS["penalty"](certificate).chart
    spec = draw(chart, Style(width=250, height=200)).to_dict()
    drawn = {}
    for layer in spec["layer"]:
        if isinstance(layer["mark"], dict) and layer["mark"]["type"] == "text":
            [wanted] = [t["filter"] for t in layer["transform"]]
            for row in spec["datasets"][layer["data"]["name"]]:
                if repr(row["outside"]) in wanted:
                    drawn[row["text"]] = layer["mark"]["align"], layer["mark"]["dx"]
    assert drawn == sides


def test_a_refused_section_is_its_reasons():
    """The optima that were measured stand in the page's charts and numbers already."""
    section = certificate_section(refused())
    assert not section.plots
    assert section.table is None
    html = Page(title="t", headline="h", sections=[section]).html()
    assert ">refused<" in html
    assert "Train at" not in html


@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_draws_them(browser, study, tmp_path, width):
    path = tmp_path / "report.html"
    path.write_text(page(study, certificates=(issued(), refused())), encoding="utf-8")
    tab = browser.open(path, width=width)
    assert tab.complaints == []
    assert tab.requests == [path.as_uri()]
    for name in ("certificate-law", "certificate-penalty"):
        drawn = tab.run(f"document.querySelectorAll('#{name} svg path').length")
        assert drawn > 5
    assert tab.run("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize(("at", "told"), [(-6.1, True), (-5.9, False), (-0.1, False), (0.1, True)])
def test_a_value_beyond_all_that_were_tried_is_told(at, told):
    first = certificate_sentences(issued(predicted=estimate(at)))[0]
    expected = "No run used such learning rates: only 2.4e-4 to 0.016 were tried. Train near it."
    assert (first == expected) is told
