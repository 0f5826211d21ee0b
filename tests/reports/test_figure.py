"""Figures for papers: their size, their type, no title, a caption beside them."""

import json
import re

import pytest

from depthmup.reports import check_figure, study_figure
from depthmup.reports.theme import FIGURES


@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.parametrize("name", ["transfer", "loss"])
def test_the_file_has_the_column_width_and_its_type(study, tmp_path, kind, name):
    path = tmp_path / f"{name}.svg"
    study_figure(study, name, kind=kind).save(path)
    picture = path.read_text(encoding="utf-8")
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', picture).group(1))
    assert width == pytest.approx(FIGURES[kind].width, abs=1)
    assert FIGURES[kind].width / 72 == {"paper": 3.25, "slide": 5.5}[kind]
    sizes = {float(size) for size in re.findall(r'font-size="([\d.]+)px"', picture)}
    assert sizes == {FIGURES[kind].type}
    assert bool(re.search(r">(0\.\d+|\de-\d)<", picture)), "numbers are plain, as text"
    assert "Flat lines transfer" not in picture


def test_a_pdf_is_as_wide_in_points(study, tmp_path):
    study_figure(study).save(tmp_path / "transfer.pdf")
    box = re.search(rb"MediaBox ?\[([^]]*)\]", (tmp_path / "transfer.pdf").read_bytes()).group(1)
    assert float(box.split()[2]) == pytest.approx(72 * 3.25, abs=1)


def test_every_scheme_is_named_in_the_figure_and_its_caption(study, tmp_path):
    figure = study_figure(study)
    caption = figure.save(tmp_path / "transfer.svg")
    picture, words = (
        path.read_text(encoding="utf-8") for path in (tmp_path / "transfer.svg", caption)
    )
    for transfer in study.headline.transfers:
        assert transfer.title in picture
        assert f"{transfer.title} {transfer.verdict.value}" in words
    assert caption.name == "transfer.txt"


def test_panels_of_rates_stay_within_the_column(study, tmp_path):
    study_figure(study, "rates").save(tmp_path / "rates.svg")
    picture = (tmp_path / "rates.svg").read_text(encoding="utf-8")
    width = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', picture).group(1))
    assert width <= 72 * 3.25 * 1.1


@pytest.mark.parametrize(("name", "kind"), [("nope", "paper"), ("transfer", "poster")])
def test_unknown_names_are_refused(study, name, kind):
    with pytest.raises(ValueError, match="Expected a"):
        study_figure(study, name, kind=kind)


def test_the_check_draws_the_predicted_exponent_dashed():
    from depthmup.records import Check, Estimate, Exponent, Outcome, Size

    exponent = Exponent(
        observable="stream",
        module="blocks.*",
        axis="depth",
        expected="-1/2",
        outcome=Outcome.PASS,
        estimate=Estimate(value=-0.5, low=-0.6, high=-0.4),
    )
    sizes = tuple(
        Size(observable="stream", module="blocks.*", width=8, depth=depth,
             value=depth**-0.5, spread=0.1, seeds=(0.9 * depth**-0.5, 1.1 * depth**-0.5))
        for depth in (2, 4, 8)
    )  # fmt: skip
    check = Check(
        title="mine", scheme="Depth-muP", optimizer="adamw", applied=True, widths=(8,),
        depths=(2, 4, 8), seeds=2, steps=1, lr=0.1, margin=0.25, confidence=0.95,
        outcome=Outcome.PASS, exponents=(exponent,), sizes=sizes,
    )  # fmt: skip
    figure = check_figure(check)
    spec = json.loads(figure.chart.to_json())
    dashed, *lines = spec["concat"][0]["layer"]
    assert dashed["mark"]["strokeDash"]
    drawn = [row["value"] for row in spec["datasets"][dashed["data"]["name"]]]
    assert drawn == pytest.approx([1, 2**-0.5, 0.5])
    rows = spec["datasets"][lines[0]["data"]["name"]]
    assert {row["seed"] for row in rows} == {0, 1}
    first = [row["value"] for row in rows if row["size"] == 2]
    assert first[0] * first[1] == pytest.approx(1)
    assert "what Depth-muP predicts" in figure.caption
