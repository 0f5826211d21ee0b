"""Numbers, sizes and names in words."""

import math

import pytest

from depthmup.records import Estimate
from depthmup.records.codec import canonical_json
from depthmup.records.finding import change, change_span, in_percent
from depthmup.records.packages import installed, need, pip, without
from depthmup.records.printable import printable
from depthmup.records.sizes import size_name, size_names, size_number, size_text
from depthmup.records.study import plural, sizes_along
from depthmup.records.text import aligned, html_card

SIZE = {"width": 64, "depth": 8}
BATCHES = [{"width": 64, "batch": batch} for batch in (8, 16, 32)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size_text(SIZE), "width 64 and depth 8"),
        (size_name(SIZE), "width 64 depth 8"),
        (size_names(BATCHES[:2], BATCHES), "batch 8, 16"),
        (
            size_names(BATCHES[:2], [*BATCHES, {"width": 128, "batch": 8}]),
            "width 64 batch 8, width 64 batch 16",
        ),
        ([size_number(n) for n in (64, 0.5, 524288, 999_999)], ["64", "0.5", "524288", "999999"]),
        ([size_number(n) for n in (1e6, 1073741824, 4e9)], ["1M", "1.074B", "4B"]),
        ([size_number(n) for n in (999_949_999, 999_999_999, 2e13)], ["999.9M", "1B", "20T"]),
        ([change(x) for x in (-0.06, 1.0, 0.001, math.inf)], ["−4%", "+100%", "0%", "+∞%"]),
        ([change(x) for x in (9.9, 10.0, 80.4, -80.4)], ["+95443%", *["> +100000%"] * 2, "−100%"]),
        (change_span(-0.15, 0.15), "−10% to +11%"),
        (in_percent(Estimate(value=-0.06, low=-0.2, high=0.06)), "−4% (−13% to +4%)"),
        ([plural(a) for a in ("depth", "batch", "steps")], ["depths", "batches", "steps"]),
        ([sizes_along(a) for a in ("depth", "steps")], ["depths", "durations"]),
        (aligned([("depth", "loss"), ("8", "0.48")], left=()), ["depth  loss", "    8  0.48"]),
        (canonical_json({"steps": 2, "seed": 0}), '{"seed":0,"steps":2}'),
        (printable("a\x1b[2Jb"), "a\\x1b[2Jb"),
        (
            without("A chart", "vl_convert"),
            f"A chart needs vl_convert, which is not installed here: {pip()} install "
            "'depthmup[pages]'.",
        ),
    ],
)
def test_texts(text, expected):
    assert text == expected


def test_a_card_has_its_verdicts_colour_and_escapes_its_title():
    card = html_card("a < b", "fail", ["Why."])
    assert "background:#a83f00" in card
    assert "a &lt; b" in card


def test_packages_that_are_missing_are_named():
    assert installed("json")
    assert not installed("json", "no_such_package")
    need("A page", "json")
    with pytest.raises(ModuleNotFoundError, match="A page needs vl_convert_of_nobody"):
        need("A page", "vl_convert_of_nobody")
