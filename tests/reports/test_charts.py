"""Charts draw the study's numbers, keep one frame for all windows, and become valid files."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise

import altair as alt
import pytest
import vl_convert
from pytest import approx

from depthmup.records import Estimate
from depthmup.reports import (
    CHARTS,
    export,
    limit_chart,
    loss_against_size,
    optimum_against_size,
    page,
    rate_panel,
    save_chart,
)
from depthmup.reports.axes import best_loss_axis, loss_axis, round_values, spread, study_loss_axis
from depthmup.reports.charts import scheme_colours, size_colours
from depthmup.reports.study_charts import FILES, available
from reproduction.claims.panels import Axis, lines


def rows(spec: dict) -> list[dict]:
    return [row for values in spec["datasets"].values() for row in values]


def domains(node: object, channel: str) -> list:
    """Every scale domain of a channel, anywhere in a specification."""
    if isinstance(node, list):
        return [found for item in node for found in domains(item, channel)]
    if not isinstance(node, dict):
        return []
    here = node.get("encoding", {}).get(channel, {}).get("scale", {}).get("domain")
    return ([here] if here else []) + [f for v in node.values() for f in domains(v, channel)]


def test_a_panel_draws_every_point_of_every_window(study):
    drawn = {
        (r["window"], r["depth"], r["log2_lr"]): r
        for r in rows(rate_panel(study, "ode").to_dict())
        if "seeds" in r
    }
    for index, window in enumerate(study.windows):
        for curve in window.curves:
            if curve.scheme != "ode":
                continue
            for point in curve.points:
                row = drawn.pop((index, curve.depth, point.log2_lr))
                known = point.loss.known
                assert row["loss"] == (point.loss.value if known else None)
                assert row["diverged"] == point.diverged
    assert not drawn


def test_a_charts_page_is_not_left_by_what_a_title_holds(tmp_path):
    hostile = "</script><script>alert(1)</script>"
    chart = alt.Chart(alt.Data(values=[{"x": 1, "name": hostile}]), title=hostile)
    save_chart(chart.mark_point().encode(x="x:Q", color="name:N"), tmp_path / "chart.html")
    page = (tmp_path / "chart.html").read_text(encoding="utf-8")
    assert "alert(1)" in page
    assert hostile not in page
    assert page.count("</script>") == 2  # of the library and of the chart


@pytest.mark.xdist_group("browser")
def test_a_saved_chart_is_drawn_offline(browser, study, tmp_path):
    path = tmp_path / "chart.html"
    save_chart(CHARTS["drift"](study), path)
    tab = browser.open(path, width=1280)
    assert tab.run(
        "(async () => { for (let i = 0; i < 50 && !document.querySelector('#chart svg'); i++)"
        " await new Promise(done => setTimeout(done, 100));"
        " return document.querySelector('#chart svg').innerHTML.length; })()"
    )
    assert tab.requests == [path.as_uri()]
    assert tab.complaints == []


def test_an_interval_that_reaches_below_zero_is_drawn_to_the_floor_of_a_logarithmic_axis():
    rows = [
        {"depth": 8, "loss": 0.4, "low": 0.2, "high": 0.6},
        {"depth": 16, "loss": 0.3, "low": -0.1, "high": 0.7},
    ]
    given = [dict(row) for row in rows]
    picture = lines(
        rows, name="n", caption="c", x=Axis(field="depth", title="depth"),
        y=Axis(field="loss", title="loss", log=True),
    )  # fmt: skip
    assert rows == given, "what a caller holds is left as it was"
    text = json.dumps(picture.spec)
    assert '"low": 0.2, "high": 0.7' in text


def test_a_curve_of_a_scheme_without_a_finding_is_refused(study):
    curve = replace(study.headline.curves[0], scheme="mup")
    stray = replace(study, windows=(replace(study.headline, curves=(curve,)),))
    with pytest.raises(ValueError, match="scheme 'mup', for which there is no finding"):
        rate_panel(stray, "depth-mup")


def test_wide_intervals_do_not_squash_the_best_losses(study):
    usual = best_loss_axis(study)
    first, *others = study.headline.transfers
    wild = replace(first.optima[0], loss=replace(first.optima[0].loss, low=1e-9, high=1e9))
    transfers = (replace(first, optima=(wild, *first.optima[1:])), *others)
    wide = replace(
        study, windows=(*study.windows[:-1], replace(study.headline, transfers=transfers))
    )
    axis = best_loss_axis(wide)
    assert axis.low > usual.low / 3
    assert axis.high < usual.high * 3
    bar = next(r for r in rows(loss_against_size(wide).to_dict()) if r.get("loss_high") == 1e9)
    assert (bar["band_low"], bar["band_high"]) == (axis.low, axis.high)


def test_the_loss_axis_ends_a_little_above_an_untrained_network(study):
    axis = study_loss_axis(study)
    untrained = study.windows[0].curves[0].points[0].loss.value
    assert untrained < axis.high < 2 * untrained


def test_all_panels_and_windows_share_their_axes(study):
    specs = [rate_panel(study, t.scheme).to_dict() for t in study.headline.transfers]
    for channel in ("x", "y"):
        found = {json.dumps(d) for spec in specs for d in domains(spec, channel)}
        assert len(found) == 1


def titles_of_channels(node: object) -> list[str]:
    """The titles of all channels, those of tooltips too, anywhere in a specification."""
    if isinstance(node, list):
        return [title for item in node for title in titles_of_channels(item)]
    if not isinstance(node, dict):
        return []
    below = [title for inner in node.values() for title in titles_of_channels(inner)]
    own = node.get("title")
    return [own, *below] if "field" in node and isinstance(own, str) else below


def test_words_for_what_was_tuned_do_not_end_an_expression(study):
    """Vega-Lite escapes their quotes and nothing else: a backslash before one ends the text."""
    tuned = replace(study.tuned, name='\\";window.hit=1;//\u2028rate')
    spelt = replace(study, tuned=tuned)
    charts = [rate_panel(spelt, "sp"), optimum_against_size(spelt)]
    titles = titles_of_channels([chart.to_dict() for chart in charts])
    assert any("window.hit" in title for title in titles)
    assert not any(sign in title for title in titles for sign in "\\\u2028")


def test_an_axis_of_any_name_is_no_field_of_a_chart(study, tmp_path):
    """Vega reads brackets, dots and quotes in the name of a field as a path or as code."""
    name = "layers[0].'x\\"

    def renamed(items):
        return tuple(replace(each, size={name: each.depth}) for each in items)

    windows = [
        replace(
            w,
            curves=renamed(w.curves),
            transfers=tuple(replace(t, optima=renamed(t.optima)) for t in w.transfers),
        )
        for w in study.windows
    ]
    odd = replace(study, axis=name, windows=tuple(windows), config={})
    for key in available(odd):
        chart = CHARTS[FILES.get(key, key)]
        spec = chart(odd).to_dict()
        marks = spec.pop("datasets")
        assert not re.search(r'"field": "(?!\w+")', json.dumps(spec)), key
        usual = chart(study).to_dict()["datasets"]
        assert [len(rows) for rows in marks.values()] == [len(rows) for rows in usual.values()]
    paths = export(odd, tmp_path, formats={"svg"})
    assert "optimum-against-layers_0___x_.svg" in {path.name for path in paths}
    assert all(path.parent == tmp_path for path in paths)
    assert name in page(odd).replace("&#39;", "'")


def test_exploded_runs_do_not_squash_the_rest(study):
    usual = study_loss_axis(study)
    curve = study.headline.curves[0]
    wild = replace(curve.points[-2], loss=Estimate(value=1e9, low=1e8, high=1e10))
    curves = (replace(curve, points=(*curve.points[:-2], wild)), *study.headline.curves[1:])
    exploded = replace(study, windows=(*study.windows[:-1], replace(study.headline, curves=curves)))
    assert study_loss_axis(exploded).high <= 1.5 * usual.high
    drawn = rows(rate_panel(exploded, curve.scheme).to_dict())
    assert any(r.get("loss") == 1e9 for r in drawn)  # drawn as leaving the panel, not dropped
    assert all(r["band_high"] is None or r["band_high"] <= usual.high * 1.5
               for r in drawn if "seeds" in r)  # fmt: skip


def test_valleys_of_language_models_fill_their_panels(study):
    """Losses near an entropy that no model beats: the axis is theirs, and not down from nothing."""
    curve = study.headline.curves[0]
    losses = [2.45, 2.40, 2.36, 2.35, 2.37, 2.42, 7.5, 9.0]
    points = tuple(
        replace(point, loss=Estimate(value=loss, low=loss, high=loss))
        for point, loss in zip(curve.points, losses, strict=True)
    )
    first = study.headline.transfers[0]
    loss = Estimate(value=2.35, low=2.35, high=2.35)
    optima = tuple(replace(o, loss=loss) for o in first.optima)
    window = replace(
        study.headline,
        curves=tuple(
            replace(c, points=points) for c in study.headline.curves if c.scheme == first.scheme
        ),
        transfers=(replace(first, optima=optima),),
    )
    axis = study_loss_axis(replace(study, windows=(window,)))
    assert axis.where(2.45) - axis.where(2.35) > 0.4
    assert len(axis.ticks) > 3
    assert round_values(2.19, 2.71) == (2.2, 2.3, 2.4, 2.5, 2.6, 2.7)


@pytest.mark.parametrize("values", [[], [math.nan], [0.5], [math.inf, 1.0, 2.0], [1e-9, 2.3]])
def test_a_loss_axis_exists_for_any_losses(values):
    axis = loss_axis(values, must_show=values[:2])
    assert axis.low < axis.high
    assert axis.ticks
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    for value in values[:2]:
        if math.isfinite(value):
            assert axis.low <= value <= axis.high


def test_the_band_widens_by_the_tolerance_per_doubling(study):
    wedge = {
        r["x"]: r
        for r in rows(optimum_against_size(study).to_dict())
        if "scheme" not in r and r["window"] == 4
    }
    at_base = [t.optima[0].log2_lr.value for t in study.headline.transfers]
    centre = sum(at_base) / len(at_base)
    for depth in (8, 16, 32, 64, 128):
        octaves = 0.15 * math.log2(depth / 8)
        assert math.log2(wedge[depth]["band_low"]) == pytest.approx(centre - octaves)
        assert math.log2(wedge[depth]["band_high"]) == pytest.approx(centre + octaves)


def test_edges_and_failures_are_marked_differently(odd_study, hostile):
    for chart in (optimum_against_size, loss_against_size):
        marks = {
            (r["scheme"], r["depth"]): r
            for r in rows(chart(odd_study).to_dict())
            if "mark" in r and r["place"] != "failed"
        }
        assert marks[hostile, 2]["mark"] == "high edge"
        assert marks["edges", 2]["mark"] == "low edge"
        assert marks["edges", 4]["mark"] == "edges"
        failed = [
            r for r in rows(chart(odd_study).to_dict())
            if r.get("place") == "failed" and r["value"] is not None
        ]  # fmt: skip
        assert [(r["scheme"], r["depth"]) for r in failed] == [(hostile, 4)]


def test_a_single_seed_has_no_band(odd_study):
    drawn = [r for r in rows(rate_panel(odd_study, "edges").to_dict()) if "seeds" in r]
    assert drawn
    assert all(r["band_low"] is None and r["band_high"] is None for r in drawn)


def test_colours_are_distinct_and_depth_darkens(study):
    assert len(set(scheme_colours(study).values())) == 4

    def luminance(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shades = [luminance(c) for c in size_colours(study).values()]
    assert shades == sorted(shades, reverse=True)
    assert min(a - b for a, b in pairwise(shades)) > 8


def test_labels_keep_their_distance():
    wished = [0.1, 0.1, 0.12, 0.5, 0.9]
    moved = spread(wished, [0.05] * 5)
    gaps = [b - a for a, b in pairwise(moved)]
    assert min(gaps) >= 0.05 - 1e-9
    assert moved[3:] == approx(wished[3:])


def test_labels_of_several_lines_stay_inside_the_chart():
    heights = [0.1, 0.2, 0.1, 0.15]
    for wished in ([0.0, 0.05, 0.05, 0.1], [0.9, 1.0, 0.95, 0.92], [0.5, 0.2, 0.5, 0.9]):
        moved = spread(wished, heights)
        ends = sorted((m - h / 2, m + h / 2) for m, h in zip(moved, heights, strict=True))
        assert ends[0][0] >= -1e-9
        assert ends[-1][1] <= 1 + 1e-9
        assert all(above[0] >= below[1] - 1e-9 for below, above in pairwise(ends))
        order = sorted(range(4), key=lambda i: wished[i])
        assert [moved[i] for i in order] == sorted(moved)


def test_charts_refuse_a_window_that_is_not_there(study):
    with pytest.raises(ValueError, match="windows 0 to 4; got window=5"):
        CHARTS["drift"](study, window=5)


def files_of(study, *formats):
    names = [FILES.get(name, name).replace("size", "depth") for name in available(study)]
    return {f"{name}.{form}" for name in names for form in formats}


def test_export_writes_valid_files_in_every_format_of_odd_studies_too(odd_study, tmp_path):
    exported = export(odd_study, tmp_path / "figures")
    assert {path.name for path in exported} == files_of(odd_study, "svg", "pdf", "png")
    for path in exported:
        content = path.read_bytes()
        if path.suffix == ".svg":
            assert content.startswith(b"<svg")
            assert not re.search(rb"NaN|undefined|Infinity", content), path.name
        elif path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
            assert int.from_bytes(content[16:20]) > 800  # pixels: twice a screen's
        else:
            assert content.startswith(b"%PDF-")
            assert b"%%EOF" in content[-32:]


def test_export_draws_the_window_asked_for(study, tmp_path):
    last = {p.name: p.read_bytes() for p in export(study, tmp_path / "last", formats={"svg"})}
    assert last.keys() == files_of(study, "svg")
    assert not any(b"NaN" in content for content in last.values())
    for path in export(study, tmp_path / "first", formats="svg", window=0):
        assert path.read_bytes() != last[path.name]


def test_export_refuses_unknown_formats_before_writing(study, tmp_path):
    with pytest.raises(ValueError, match="written as pdf, png, svg; got gif"):
        export(study, tmp_path / "figures", formats={"svg", "gif"})
    assert not (tmp_path / "figures").exists()


def test_the_loss_axis_reaches_down_to_an_optimum_below_all_points():
    axis = loss_axis([0.6, 0.9, 2.0], must_show=[0.4])
    assert axis.low < 0.4
    assert loss_axis([0.6, 0.9, 2.0], must_show=[0.7]).low > 0.5


def test_a_long_title_is_folded_and_not_cut(study):
    """Labels of a chart are cut where they are longer than their room; lines of one are not."""
    title = "CompleteP with AdamW, multiplier 0.5, decay 0.1"
    windows = [
        replace(w, transfers=(replace(w.transfers[0], title=title), *w.transfers[1:]))
        for w in study.windows
    ]
    renamed = replace(study, windows=tuple(windows))
    spec = CHARTS["drift"](renamed).to_dict()
    name = next(row["name"] for row in rows(spec) if row.get("title") == title)
    assert name.replace("\n", " ") == title
    assert max(map(len, name.splitlines())) <= 16
    assert "split(datum.label" in json.dumps(spec)
    beside = optimum_against_size(renamed).to_dict()
    words = {row["words"] for row in rows(beside) if row.get("title") == title}
    assert {text.replace("\n", " ") for text in words} == {title}
    assert '"lineBreak": "\\n"' in json.dumps(beside)


def test_losses_over_training_end_at_the_best_loss_that_was_run(study):
    spec = CHARTS["loss-against-step"](study).to_dict()
    drawn = [row for row in rows(spec) if "of" in row]
    last = study.headline
    ends = {row["loss"] for row in drawn if row["of"] == f"{last.start}–{last.stop}"}
    best = {
        min(p.loss.value for p in curve.points if math.isfinite(p.loss.value))
        for curve in last.curves
        if any(math.isfinite(p.loss.value) for p in curve.points)
    }
    assert ends == best
    assert len({row["of"] for row in drawn}) == len(study.windows)
    one = replace(study, windows=study.windows[-1:], training=())
    assert "training" in available(study)
    assert "training" not in available(one)


def test_ticks_of_steps_are_plain_numbers():
    """d3 gives a format without digits as few as tell ticks apart: of 10, 20, 30 that is one."""
    chart = limit_chart([2.0 / (t + 1) for t in range(50)], [0.0, 1.0], [[1.0, 1.2]] * 50, title="")
    drawn = re.findall(r">([^<>]+)</text>", vl_convert.vegalite_to_svg(chart.to_dict()))
    assert {"0", "10", "20", "30", "40"} <= {*drawn}
    assert not [label for label in drawn if "e+" in label]


def test_words_without_an_interval_stand_where_there_is_room(study):
    from depthmup.reports.drift_chart import forest

    for drift, side in ((-0.8, "left"), (0.8, "right")):
        known_row = {"drift": drift, "drift_low": drift - 0.1, "drift_high": drift + 0.1}
        lost = dict.fromkeys(known_row, math.nan)
        rows = [
            {"name": name, "text": "needed", "tone": "", **row}
            for name, row in (("one", known_row), ("two", lost))
        ]
        forest(study, rows, axis="depth", tips=[], height=60, description="")
        assert rows[1]["side"] == side
