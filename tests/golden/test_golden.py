"""The library says what it said when the golden files were made; see ``tests.golden.freeze``.

Of the slow sections a slice is compared here; ``make golden`` compares all.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.golden import freeze

PARTS = {"limits": 5, "plans": 120, "plan_texts": 120}
"""Of these sections one case in so many is compared here."""

TOGETHER = {"studies": "reports", "fits": "reports", "texts": "reports"} | {
    "plans": "golden plans", "plan_texts": "golden plans",
}  # fmt: skip
"""Sections that read the same reports or plans: one process makes these once."""


def each():
    for section in freeze.SECTIONS:
        marks = [pytest.mark.xdist_group(TOGETHER[section])] if section in TOGETHER else []
        yield pytest.param(section, marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("section", [*each()])
def test_says_what_it_said(section):
    if section == "names" and sys.version_info[:2] != (3, 11):
        pytest.skip("Types are written otherwise by other versions of Python.")
    if section == "paper":
        pytest.importorskip("reproduction", reason="Not in a clone.")
    if section.startswith("plan"):
        pytest.importorskip("transformers", reason="pip install 'depthmup[hf]'")
    order = sorted(freeze.frozen(section))[:: PARTS.get(section, 1)]
    assert not list(freeze.compare(section, set(order).__contains__))


def test_differences_are_found():
    was = {"a": [1.0, "x"], "b": None, "c": {"d": 2}, "e": "inf"}
    assert not list(freeze.differences(was, freeze.plain(was)))
    assert not list(freeze.differences(was, {**was, "a": [1 + 5e-5, "x"]}))
    for now in (
        {**was, "a": [1 + 5e-4, "x"]}, {**was, "a": [1.0, "y"]}, {**was, "a": [1.0]},
        {**was, "b": 0}, {**was, "c": {}}, {**was, "f": 1}, {**was, "e": 2.0},
    ):  # fmt: skip
        assert len(list(freeze.differences(was, now))) == 1
