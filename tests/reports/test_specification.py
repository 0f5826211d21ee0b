"""Every chart is valid Vega-Lite: by the schema that Altair has, which is used for nothing else."""

import tomllib
from pathlib import Path

import altair as alt
import jsonschema
import pytest
import vl_convert

from depthmup.reports import (
    FigureKind,
    configured,
    example_certificate,
    example_check,
    example_prediction,
    example_study,
    limit_chart,
    prediction_chart,
    save_chart,
    study_figure,
)
from depthmup.reports.axes import Axis
from depthmup.reports.chart import Chart, Layer, draw
from depthmup.reports.check_page import check_figure
from depthmup.reports.picture import Picture
from depthmup.reports.study_charts import available, picture_of, section_of
from depthmup.reports.theme import FIGURES, PAGE, SCREEN, VEGA_LITE

ROOT = Path(__file__).parents[2]
ONE = Chart(
    layers=[Layer(mark="point", rows=[{"x": 1.0, "name": "a", "order": 0}], x="x", y="name")],
    x=Axis(title="a\\'b", room=True),
    y=Axis(names=True),
)
SECTIONS = [section_of(example_study(), name) for name in available(example_study())]
PICTURES = {
    **{f"page {i}": draw(p.chart, PAGE) for i, s in enumerate(SECTIONS) for p in s.plots},
    **{f"{s.title}": picture_of(s, SCREEN) for s in SECTIONS},
    **{f"{kind} {s.title}": picture_of(s, FIGURES[kind]) for kind in FIGURES for s in SECTIONS},
    "one row": draw(ONE),
    "a check": example_check().plot(),
    "a check's figure": check_figure(example_check()).chart,
    "a certificate": example_certificate().plot(),
    "a prediction": prediction_chart(example_prediction()),
    "a limit": limit_chart([1.0, 0.5], [0.0, 1.0], [[1.0, 1.2], [1.0, 1.4]], title="Two steps"),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=list(PICTURES))
def test_every_chart_is_valid_and_is_drawn(picture):
    spec = picture.to_dict()
    alt.Chart.from_dict(spec)
    assert picture.svg.startswith("<svg")
    assert spec["$schema"].endswith(f"v{VEGA_LITE}.json")


def test_what_is_no_chart_is_seen():
    with pytest.raises(jsonschema.ValidationError):
        alt.Chart.from_dict({**draw(ONE).to_dict(), "layer": [{"mark": "no such mark"}]})


def test_the_version_is_one_that_is_drawn_here_and_that_altair_has():
    assert VEGA_LITE in vl_convert.get_vegalite_versions()
    assert alt.SCHEMA_VERSION.startswith(f"v{VEGA_LITE}.")


def test_the_oldest_vl_convert_that_is_allowed_draws_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (allowed,) = project["optional-dependencies"]["pages"]
    assert allowed == "vl-convert-python>=1.9"  # 1.8 ends at Vega-Lite 6.1


@pytest.mark.parametrize(("kind", "fits"), [("paper", "fit"), ("slide", "fit")])
def test_one_panel_keeps_within_its_width_and_several_do_not(kind: FigureKind, fits):
    assert study_figure(example_study(), "loss", kind=kind).chart.spec["autosize"]["type"] == fits
    assert "autosize" not in study_figure(example_study(), "rates", kind=kind).chart.spec


def test_several_panels_have_one_parameter_of_a_name():
    spec = study_figure(example_study(), "rates").chart.spec
    assert [each["name"] for each in spec["params"]] == ["window_index", "hidden_series"]
    assert not any("params" in panel for panel in spec["concat"])


def test_a_notebook_shows_a_picture_without_scripts_or_networks():
    shown = draw(ONE)._repr_mimebundle_()
    assert set(shown) == {"image/svg+xml", "text/plain"}
    assert "<script" not in shown["image/svg+xml"]


def test_a_picture_is_saved_as_its_suffix_says(tmp_path):
    picture = configured({"mark": "point", "data": {"values": [{"x": 1}]}})
    for suffix, begins in (
        (".svg", b"<svg"),
        (".png", b"\x89PNG"),
        (".pdf", b"%PDF"),
        (".html", b"<!doctype html"),
    ):
        file = tmp_path / f"chart{suffix}"
        save_chart(picture, file)
        assert file.read_bytes()[:14].lower().startswith(begins.lower())
    with pytest.raises(ValueError, match=r"chart\.gif"):
        save_chart(Picture(spec={}), "chart.gif")
