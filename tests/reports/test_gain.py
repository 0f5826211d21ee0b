"""Gains on console, page and JSON, and as their own chart and table."""

import json
import math
import re
from dataclasses import replace

import pytest

import depthmup
from depthmup.records import Verdict
from depthmup.records.gain import GainVerdict
from depthmup.reports import comparison_page, example_study
from depthmup.reports.gain import chart_of, gain_lines, gain_section, percent
from depthmup.several import gains_between


def table(gains, *, seeds=2, widths=(64, 128, 256, 512)):
    """Groups of a sweep whose gains over the first are these, by width."""
    import pandas as pd

    rows = []
    for arch, gain in gains.items():
        for i, width in enumerate(widths):
            for k in range(-6, 7, 2):
                for seed in range(seeds):
                    noise = 1e-3 * math.sin(7 * k + 3 * i + 5 * seed + len(arch))
                    log = 1.0 - 0.1 * i - gain[i] + 0.05 * (k / 4) ** 2 + noise
                    rows.append((arch, width, 2.0 ** (k / 4 - 8), seed, math.exp(log)))
    return pd.DataFrame(rows, columns=["arch", "width", "lr", "seed", "loss"])


FADES = {"old": (0.0,) * 4, "new": (0.08, 0.04, 0.02, 0.01)}
COLUMNS = {"axes": ["width"], "lr": "lr", "loss": "loss", "seed": "seed", "by": "arch"}


@pytest.fixture(scope="module")
def report():
    return depthmup.fit(table(FADES), **COLUMNS, over="old")


def test_two_lines_say_who_is_better_and_whether_it_stays(report):
    lines = gain_lines(report.study())
    # 0.08 nats are 7.7%, 0.01 are 1.0%.
    assert re.match(
        r"new over old: gain 7\.\d% at width 64, [01]\.\d+% .* at width 512: it fades\.", lines[0]
    )
    assert "Worth" in lines[1]
    assert lines[0] in str(report)


def test_percent_has_two_digits_and_a_true_minus():
    assert [percent(g) for g in (0.035, -0.0075, 1e-7, 0.5)] == ["3.4%", "−0.75%", "0%", "39%"]
    assert [percent(g) for g in (-4.6, -15.2)] == ["−9848%", "<−10000%"]


def test_json_frame_and_file_hold_the_gain(report, tmp_path):
    said = report.to_dict()["gains"]
    assert [(g["of"], g["over"], g["verdict"]) for g in said] == [("arch new", "arch old", "fades")]
    report.save(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["gains"] == said
    again = depthmup.load(tmp_path)
    assert again.study().gains == report.study().gains
    frame = report.to_pandas("gains")
    assert list(frame.width) == [64, 128, 256, 512, 512]
    assert frame.tuned.iloc[0] == pytest.approx(0.08, abs=2e-3)


def test_a_report_gives_gains_and_levels(report):
    gain = report.gain("new", over="old", target={"width": 1024})
    assert gain.low < 0.005 < gain.high
    assert not gain.trained
    assert gain.at({"width": 64}).tuned.value == pytest.approx(0.08, abs=2e-3)
    with pytest.raises(KeyError, match="Expected one of the sizes"):
        gain.at({"width": 1024})
    level = report.level("old", {"width": 1024})
    assert level.low < math.exp(0.6) < level.high
    with pytest.raises(ValueError, match="got 'newer'"):
        report.gain("newer")
    with pytest.raises(ValueError, match="twice"):
        report.gain("new", over="new")


def test_a_gain_draws_itself(report, tmp_path):
    gain = report.gain("new", over="old", target={"width": 2048})
    gain.plot(tmp_path / "gain.svg")
    assert "gain, percent" in (tmp_path / "gain.svg").read_text()
    chart = chart_of([gain], "width", ["new over old"])
    points = next(layer for layer in chart.layers if layer.mark == "point")
    assert points.rows[0]["value"] == pytest.approx(-100 * math.expm1(-0.08), abs=0.2)
    assert len(gain.to_pandas()) == 5


def test_an_interval_of_millions_of_percent_hides_no_other(report):
    gain = report.gain("new", over="old", target={"width": 2048})
    plain = chart_of([gain], "width", ["new over old"]).y
    wild = replace(gain, tuned=replace(gain.tuned, low=-15.0))
    y = chart_of([wild], "width", ["new over old"]).y
    assert plain.low - 3 * (plain.high - plain.low) < y.low < 0 < y.high < 3 * plain.high
    assert y.low < plain.low


def test_the_chart_names_a_target_only_where_there_is_one(report):
    assert all(gain.trained for gain in report.study().gains)
    assert "target" not in gain_section(report.study()).lead
    aimed = replace(report.study(), gains=(report.gain("new", over="old", target={"width": 1024}),))
    assert "Diamond: the target" in gain_section(aimed).lead


def test_a_loaded_report_has_its_curves_for_a_gain(report, tmp_path):
    report.save(tmp_path)
    again = depthmup.load(tmp_path).gain("new", over="old")
    assert again.value == pytest.approx(report.gain("new", over="old").value, abs=2e-3)


def test_of_many_groups_gains_are_told_where_one_is_named():
    many = table({f"g{n}": (0.01 * n,) * 4 for n in range(5)}, seeds=1)
    assert depthmup.fit(many, **COLUMNS).study().gains == ()
    found = depthmup.fit(many, **COLUMNS, over="g0").study().gains
    assert [(g.of, g.among) for g in found] == [(f"arch g{n}", 4) for n in range(1, 5)]


def test_what_no_gain_can_be_over_is_refused():
    with pytest.raises(ValueError, match="got 'older'"):
        depthmup.fit(table(FADES), **COLUMNS, over="older")
    alone = table({"old": (0.0,) * 4})
    with pytest.raises(ValueError, match="Expected several groups"):
        depthmup.fit(alone, **COLUMNS | {"by": ()}, over="old")


def test_reports_side_by_side_compare_losses(tmp_path):
    frame = table(FADES)
    for name in FADES:
        rows = frame[frame.arch == name]
        depthmup.fit(rows, **COLUMNS | {"by": ()}).save(tmp_path / name)
    loaded = {name: depthmup.load(tmp_path / name) for name in FADES}
    [gain] = gains_between(loaded, "old")
    assert (gain.of, gain.over, gain.verdict) == ("new", "old", GainVerdict.FADES)
    page = comparison_page({n: r.studies for n, r in loaded.items()}, gains=[gain])
    assert "new over old: gain" in page
    assert "it fades" in page


def test_undecided_verdicts_are_no_agreement():
    study = example_study()
    transfers = study.headline.transfers
    undecided = tuple(replace(t, verdict=Verdict.UNDECIDED) for t in transfers)
    window = replace(study.headline, transfers=undecided)
    open_ = replace(study, windows=(window,))
    page = comparison_page({"one": [open_], "two": [open_]})
    assert "All verdicts" not in page
    assert "2 of 2 are undecided" in page
    assert "All verdicts along depth agree" in comparison_page({"one": [study], "two": [study]})


def test_other_steps_are_said():
    frame = table(FADES)
    frame["steps"] = [2000 if arch == "new" else 1000 for arch in frame.arch]
    [gain] = depthmup.fit(frame, **COLUMNS, steps="steps", over="old").study().gains
    assert "took 2000 steps, and those of old 1000" in " ".join(gain.reservations)
    frame["steps"] = 1000
    [gain] = depthmup.fit(frame, **COLUMNS, steps="steps", over="old").study().gains
    assert "steps" not in " ".join(gain.reservations)
