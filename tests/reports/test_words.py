"""Numbers, findings and labels in words."""

import math

import pytest

from depthmup.records import Estimate
from depthmup.records.finding import rate
from depthmup.records.search import SearchStory
from depthmup.reports.axes import round_values
from depthmup.reports.certificate import percent
from depthmup.reports.chart import tip_title
from depthmup.reports.search_story import runs_of_round, saved_sentence
from depthmup.reports.sentences import (
    bend_sentence,
    duration,
    folded,
    is_larger_better,
    rate_interval,
)
from depthmup.reports.theme import ramp

STORY = SearchStory(
    rounds=(), ended={}, runs=60, work=2.0, grid_rates=8, grid_seeds=3, grid_runs=96, grid_work=9.0
)
ASKED = [({"depth": 8}, k, (0, 1)) for k in (-7.0, -6.0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            [percent(x) for x in (0.0078, 0.123, 1e-6, 31.0, math.inf)],
            ["0.78%", "12%", "below 0.01%", "above 1000%", "no bound"],
        ),
        (tip_title("log2 \\rate"), "log2 ∖rate"),
        (
            bend_sentence(Estimate(value=0.1, low=0.05, high=0.15)),
            " With every doubling this change itself moves by +7% (+4% to +11%).",
        ),
        (
            saved_sentence(STORY),
            "60 runs; a full grid (8 learning rates, 3 seeds) would take 96, 4.5 times the work.",
        ),
        (runs_of_round(ASKED), "depth 8: 7.8e-3, 0.016 (seeds 0, 1)"),
        (is_larger_better("depth"), "Is deeper better?"),
        (is_larger_better("batch"), "Is a larger batch better?"),
        ([rate(x) for x in (0.0021, 0.25, 3.0, math.inf)], ["2.1e-3", "0.25", "3", "∞"]),
        (rate_interval(Estimate(value=-9.0, low=-10.0, high=-8.0)), "[9.8e-4, 3.9e-3]"),
        ([duration(s) for s in (75, 4, 7300)], ["1 min 15 s", "4 s", "2 h 1 min"]),
        (folded("CompleteP, every multiplier 0.5"), "CompleteP, every\nmultiplier 0.5"),
    ],
)
def test_texts(text, expected):
    assert text == expected


def test_round_values_and_colours():
    assert round_values(1e-4, 1e-2) == (0.0001, 0.0003, 0.001, 0.003, 0.01)
    assert ramp(2) == ["#8bb8e0", "#062550"]
