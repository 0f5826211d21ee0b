"""The page as text: it holds the study's numbers, escapes its strings and asks no server."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from depthmup.records import UNKNOWN, Place, Verdict
from depthmup.records.finding import rate
from depthmup.reports import comparison_page, page
from depthmup.reports.page import Page, Section, Table
from depthmup.reports.sentences import best_rate, headline, significant


class Reader(HTMLParser):
    """Collects the elements, the visible text and the scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text, self.scripts, self._inside = "", [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data


def charts_of(reader: Reader) -> dict:
    line = re.search(r"^const CHARTS = (.*);$", reader.scripts[-1], re.MULTILINE)
    return json.loads(line[1])


def test_headline_verdicts_and_numbers_come_from_the_study(study):
    text = Reader(page(study)).text
    assert headline(study) in text
    assert text.index("Use learning rate 0.13 with Depth-muP.") < text.index(headline(study))
    assert "Best learning rate at depth 8: 0.13 (0.13 to 0.14)." in text
    for transfer in study.headline.transfers:
        assert transfer.title in text
        assert transfer.why in text
        for optimum in transfer.optima:
            assert best_rate(optimum) in text
            assert significant(optimum.loss.value) in text
    assert text.index(headline(study)) < text.index("Where the minima line up")
    assert text.count("nothing trains") >= 3


def test_the_page_says_how_it_was_run(study):
    text = Reader(page(study)).text
    assert study.config["command"] in text
    for said in ("2.13.0+cpu", "2 cores of an AMD EPYC 9R14", "151.3", "label noise", "1e-08"):
        assert said in text


def test_numbers_in_tables_do_not_break_at_their_sign():
    rows = [{"rate": "2.0e-3 (1.8e-3 to 2.2e-3)", "name": "<b>"}]
    shown = Page(title="x", headline="y", sections=[Section(table=Table(rows=rows))]).html()
    assert '<td><span class="kept">2.0e-3</span> (<span class="kept">1.8e-3</span> to' in shown
    assert "<td>&lt;b&gt;</td>" in shown


def test_hostile_text_stays_text(odd_study, hostile):
    reader = Reader(page(odd_study))
    assert hostile in reader.text
    assert not [attrs for tag, attrs in reader.tags if tag == "img" or "onerror" in attrs]
    # The library, then our script: a name that ended one early would make another.
    assert len(reader.scripts) == 2
    assert "window.drawn" in reader.scripts[-1]
    assert "49" not in re.findall(r"\[bold\](\S+)", reader.text)  # no template runs in a name
    assert "\u2028" not in "".join(reader.scripts)
    names = {row.get("title") for spec in charts_of(reader).values()
             for values in spec["datasets"].values() for row in values}  # fmt: skip
    assert hostile in names


def test_commands_given_as_words_are_quoted(odd_study, hostile):
    text = Reader(page(odd_study)).text
    assert f"depthmup '{hostile}'" in text


def test_the_page_refers_to_nothing_outside(study):
    text = page(study)
    reader = Reader(text)
    for tag, attrs in reader.tags:
        assert not attrs.get("src"), tag
        # The numbers lie beside the page; nothing is loaded from there.
        beside = attrs.get("href") in ("summary.json", "certificate.json")
        assert beside or attrs.get("href", "data:").startswith("data:"), tag
    assert "default-src 'none'" in html.unescape(text)
    assert "@import" not in text
    assert "url(" not in text.split("</style>")[0]


def test_the_page_is_the_same_every_time(study):
    assert page(study) == page(study)


def test_odd_studies_have_pages(study, odd_study):
    assert "≤ 0.12" in Reader(page(odd_study)).text  # the value tried next to the edge, 0.125
    headline_ = study.headline
    bare = replace(study, windows=(replace(headline_, curves=()),), config={}, environment={})
    assert "How it was run" in Reader(page(bare)).text
    dead = tuple(
        replace(
            t,
            optima=tuple(
                replace(o, place=Place.FAILED, log2_lr=UNKNOWN, loss=UNKNOWN) for o in t.optima
            ),
        )
        for t in headline_.transfers
    )
    assert page(replace(study, windows=(replace(headline_, transfers=dead),)))
    one = replace(headline_, transfers=headline_.transfers[:1], curves=headline_.curves[:1])
    assert page(replace(study, windows=(one,)))


def test_reports_stand_side_by_side(study):
    other = replace(study, axis="depth", title="another")
    text = comparison_page({"before": [study], "after": [other]})
    words = re.sub("<.*?>", "", text)
    assert words.index("before: Depth-muP") < words.index("after: Depth-muP")
    assert ">0%</td>" in text  # the same values
    assert "<h1>All verdicts along depth agree.</h1>" in text
    first, *rest = study.headline.transfers
    drifting = replace(first, title="depth-mup", verdict=Verdict.DRIFTS)  # as a table writes it
    window = replace(study.headline, transfers=(drifting, *rest))
    text = comparison_page({"before": [study], "after": [replace(study, windows=(window,))]})
    headline_ = re.search("<h1>(.*?)</h1>", text)[1]
    assert "along depth: transfers in before, drifts in after." in headline_
    with pytest.raises(ValueError, match="one axis at least"):
        comparison_page({"before": [study], "after": []})


def test_reports_side_by_side_have_a_row_for_every_slice(study, sliced_study):
    """Of two slices, one row would show the values of the last."""
    text = comparison_page({"before": [sliced_study], "after": [sliced_study]})
    narrow, wide = (
        rate(2.0 ** (study.headline.transfers[0].optima[0].log2_lr.value + k)) for k in (0, 1)
    )
    for name, value in (("width 32", narrow), ("width 64", wide)):
        group = text[text.index(f">Depth-muP, {name}</th>") :].partition("</tbody>")[0]
        assert f">{value}</td>" in group


def test_a_card_says_whose_the_value_at_the_base_is(study, sliced_study):
    assert "Best learning rate at depth 8: " in Reader(page(study)).text
    text = Reader(page(sliced_study)).text
    first = text[: text.index("Best learning rate at depth 8: ")]  # of the other schemes
    assert "Best learning rate at depth 8 and width 32: " in first
