"""A page's charts are written without Altair, and are what Altair writes of them."""

import json

import pytest

from depthmup.reports import example_study, page_spec
from depthmup.reports.axes import Axis
from depthmup.reports.chart import Chart, Layer, draw, specification
from depthmup.reports.study_charts import chart_sections
from depthmup.reports.theme import PAGE

ONE = Chart(
    layers=[Layer(mark="point", rows=[{"x": 1.0, "name": "a", "order": 0}], x="x", y="name")],
    x=Axis(title="a\\'b", room=True),
    y=Axis(names=True),
)
CHARTS = [
    *(plot.chart for s in chart_sections(example_study()) for plot in s.plots),
    ONE,  # rows that all layers share stand at the top
    Chart(layers=[], x=Axis(), y=Axis()),
]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.description[:40])
def test_a_chart_of_a_page_is_altairs_to_the_byte(chart):
    by_altair = page_spec(draw(chart, PAGE))
    assert json.dumps(specification(chart, PAGE)) == json.dumps(by_altair)
