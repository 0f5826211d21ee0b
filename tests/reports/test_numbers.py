"""The numbers that are shown, summarized and tabled are the numbers of the study."""

import io
import json
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from depthmup import Report
from depthmup.records import Estimate, Place, Study, Verdict
from depthmup.records.finding import rate
from depthmup.records.judgement import Answer, Judgement
from depthmup.records.note import Note
from depthmup.records.text import aligned, counted
from depthmup.reports import page, plain_table, summary, table
from depthmup.reports.sentences import best_rate, headline, regret_sentence
from depthmup.reports.tables import parts, text


def test_summary_has_exactly_the_published_keys(study):
    found = summary(study)
    assert list(found) == ["schema", "headline", "best", "schemes", "config", "environment", "next"]
    for scheme in found["schemes"]:
        assert set(scheme) == {
            "scheme", "alpha", "gamma", "axis", "depths", "optimum", "drift", "regret", "bend",
            "question", "verdict", "why",
        }  # fmt: skip
        for optimum in scheme["optimum"]:
            assert set(optimum) == {"depth", "log2_lr", "low", "high", "loss", "status"}
        for estimate in (scheme["drift"], scheme["regret"]):
            assert set(estimate) == {"estimate", "low", "high", "unit"}
            assert estimate["unit"]


def test_summary_holds_the_numbers_of_the_last_window(study):
    for given, found in zip(study.headline.transfers, summary(study)["schemes"], strict=True):
        assert (found["scheme"], found["alpha"], found["gamma"]) == (
            given.scheme, given.alpha, given.gamma,
        )  # fmt: skip
        assert found["verdict"] == given.verdict.value
        assert found["drift"]["estimate"] == given.drift.value
        assert (found["drift"]["low"], found["drift"]["high"]) == (
            given.drift.low,
            given.drift.high,
        )
        assert found["depths"] == [o.depth for o in given.optima]
        for o, shown in zip(given.optima, found["optimum"], strict=True):
            if o.place is Place.FAILED:
                assert (shown["log2_lr"], shown["loss"], shown["status"]) == (None, None, "failed")
            else:
                assert (shown["log2_lr"], shown["low"], shown["high"], shown["loss"]) == (
                    o.log2_lr.value, o.log2_lr.low, o.log2_lr.high, o.loss.value,
                )  # fmt: skip


def test_summary_is_strict_json_whatever_was_measured(odd_study, hostile):
    text = json.dumps(summary(odd_study), allow_nan=False)
    found = json.loads(text)
    assert found["environment"] == {"memory": None, "host": hostile, "path": "/tmp/x"}
    assert found["config"][hostile] is None
    failed = found["schemes"][0]
    assert failed["drift"] == {
        "estimate": None, "low": None, "high": None, "unit": "octaves per doubling of depth",
    }  # fmt: skip
    assert failed["regret"]["estimate"] is None
    assert [o["status"] for o in failed["optimum"]] == ["high edge", "failed"]


def test_frames_hold_every_window(study):
    report = Report(studies=(study,))
    assert len(report.to_pandas("points")) == 5 * 4 * 5 * 8
    assert len(report.to_pandas("optima")) == 5 * 4 * 5
    assert len(report.to_pandas("transfers")) == 5 * 4
    curve = study.windows[2].curves[7]
    rows = report.to_pandas("points").query(
        "window == 2 and scheme == @curve.scheme and depth == @curve.depth"
    )
    for point, loss in zip(curve.points, rows["loss"], strict=True):
        assert loss == point.loss.value or (math.isnan(loss) and math.isnan(point.loss.value))


def test_frames_keep_what_could_not_be_measured_as_nan(odd_study):
    report = Report(studies=(odd_study,))
    assert report.to_pandas("optima")["low"].isna().all()
    assert report.to_pandas("points")["loss"].isna().sum() == 4
    assert report.to_pandas("transfers")["regret"].map(math.isinf).all()


def test_tables_show_rates_drift_and_verdict(study):
    text = plain_table(study)
    row = next(line for line in text.splitlines() if line.endswith(" transfers"))
    assert row.startswith("Depth-muP ")
    given = study.headline.transfers[0]
    for optimum in given.optima:
        assert rate(2.0**optimum.log2_lr.value) in row
    assert " −1% " in row
    assert " −3% to +1% " in row
    assert row.endswith("transfers")
    assert text.splitlines()[:2] == [
        "Use learning rate 0.13 with Depth-muP. It holds from depth 8 to 128.",
        headline(study),
    ]
    sp = next(line for line in text.splitlines() if line.startswith("SP "))
    assert sp.count("fails") == 3
    assert " ∞ " in sp


def test_a_plain_table_is_as_wide_as_a_usual_terminal():
    """Five depths with whole intervals; a space between columns is enough for that."""
    names, numbers = ("Depth-muP", "SP"), [*["2.4e-3"] * 5, "−77%", "−86% to −60%"]
    rows = [[name, *numbers, "0.028", "undecided"] for name in names]
    header = ["scheme", "L=8", "L=16", "L=32", "L=64", "L=128", "drift", "95%", "excess", "verdict"]
    assert max(map(len, aligned([header, *rows]))) == 80
    assert aligned([["a", "b"], ["1", "2"]]) == ["a  b", "1  2"]
    wide = [["a" * 50, "b" * 50]]
    assert aligned(wide) == ["a" * 50 + "  " + "b" * 50]  # one space would not make it fit


def test_one_is_no_plural():
    assert [counted(n, "run") for n in (0, 1, 2, 1200)] == [
        "0 runs",
        "1 run",
        "2 runs",
        "1,200 runs",
    ]


def test_plain_table_is_plain(study):
    assert all(ord(sign) >= 32 or sign == "\n" for sign in plain_table(study))


def test_a_value_that_drifts_along_another_axis_is_not_advised(study):
    """Of the first study alone it would hold; in the second the same scheme drifts."""
    first, *others = study.headline.transfers
    drifts = replace(first, verdict=Verdict.DRIFTS)
    window = replace(study.headline, transfers=(drifts, *others))
    other = replace(study, windows=(window,))
    assert text(study).startswith("Use learning rate 0.13")
    assert "Use learning rate" not in text(study, other)
    assert "Use learning rate" not in drawn(table(study, (study, other)), 80)
    assert text(study, replace(study)).count("Use learning rate") == 1


def test_a_note_names_the_scheme_it_is_about(study):
    notes = (Note(text="Rates end at 0.1.", scheme="depth-mup"), Note(text="One run diverged."))
    shown = text(replace(study, notes=notes))
    assert "- Depth-muP: Rates end at 0.1.\n- One run diverged." in shown
    assert "Depth-muP: Rates end at 0.1." in page(replace(study, notes=notes))


def test_what_all_schemes_share_is_said_once(study):
    notes = tuple(Note(text="One seed.", scheme=t.scheme) for t in study.headline.transfers)
    assert "runs:\n- One seed." in text(replace(study, notes=notes))
    assert "- Depth-muP: One seed." in text(replace(study, notes=notes[:-1]))


def test_a_published_rule_is_one_line(study):
    def judged(scheme, answer):
        return Judgement(
            scheme=scheme, rule="Law", axis="depth", exponent=-0.5, answer=answer,
            cost=Estimate(value=0.2, low=0.1, high=0.3), setting="", reach="", source="A paper",
            standing="",
        )  # fmt: skip

    def lines(*rules):
        shown = text(replace(study, rules=rules)).splitlines()
        return [line for line in shown if line.startswith("Law ")]

    one, other = judged("sp", Answer.REJECTED), judged("ode", Answer.UNDECIDED)
    law = "Law (depth^−0.50): "
    assert lines(one, other) == [law + "rejected (SP), cannot tell (ODE). A paper."]
    assert lines(one, replace(one, scheme="ode")) == [law + "rejected (SP; ODE). A paper."]
    everyone = [replace(one, scheme=t.scheme) for t in study.headline.transfers]
    assert lines(*everyone) == [law + "rejected. A paper."]
    costs = "Following it costs 0.200 in loss [0.100, 0.300]. A paper."
    assert lines(one) == [f"{law}rejected (SP). {costs}"]
    own = replace(one, rule="Law of SP")
    named = replace(study.headline.transfers[2], title="Law of SP")
    window = replace(study.headline, transfers=(*study.headline.transfers[:2], named))
    shown = text(replace(study, windows=(replace(window, curves=()),), rules=(own,)))
    assert f"Law of SP (depth^−0.50): rejected. {costs}" in shown


@pytest.mark.parametrize("width", [40, 80])
def test_notes_are_as_wide_as_the_terminal(study, width):
    """Of 100 columns on a terminal of 80, every second line would hold two words."""
    noted = replace(study, notes=(Note(text="A run of that size diverged. " * 9),))
    notes = [part for part in parts([noted], [], width=width) if part.startswith("Notes")]
    assert max(map(len, notes[0].splitlines())) in range(width - 10, width + 1)


def test_a_command_is_not_said_to_be_judged_by_steps(study):
    config = {**study.config, "untrained_loss": False, "window": 40, "steps": 200}
    assert "over the last 20% of every run" in page(replace(study, config=config))
    assert "over the last" not in page(study)


def test_what_slices_are_held_at_does_not_fold_on_a_terminal(study, sliced_study):
    shown = drawn(table(sliced_study, width=80), 80)
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    first = next(i for i, line in enumerate(lines) if line.startswith("  width 32  "))
    assert lines[first + 1].startswith("  width 64  ")
    assert "--json has all" not in drawn(table(study, width=80), 80)  # five depths fit


def test_rich_table_fits_a_terminal_and_shows_the_same(study):
    shown = drawn(table(study), 80)
    assert "…" not in shown
    for row in plain_table(study).splitlines()[2:8]:
        assert all(cell in shown for cell in row.split() if cell != "95%" and "-" * 9 not in cell)


def test_a_terminal_has_a_row_for_every_slice(study, sliced_study):
    """Of two slices, one row would show the values of the last; the drift is that of both."""
    assert table(sliced_study).row_count == len(study.headline.transfers) + 2
    whole, first, second = plain_table(sliced_study).splitlines()[5:8]
    assert first.startswith("  width 32 ")
    assert second.startswith("  width 64 ")
    assert whole.startswith("Depth-muP  ")
    assert whole.split()[1] == "−1%"
    assert "%" not in first + second
    alone = replace(sliced_study.headline, transfers=sliced_study.headline.transfers[:1])
    assert (
        plain_table(replace(sliced_study, windows=(alone,))).splitlines()[3].startswith("held at")
    )


def test_a_table_shows_as_many_sizes_as_a_line_has_room_for(study):
    """Of 20 depths the first, the last and some between; what is left out is said."""
    optimum = study.headline.transfers[0].optima[0]
    optima = tuple(replace(optimum, size={"depth": 10**6 * n}) for n in range(1, 21))
    wide = replace(study.headline.transfers[0], optima=optima)
    window = replace(study.headline, transfers=(wide,), curves=())
    lines = plain_table(replace(study, windows=(window,))).splitlines()
    header = next(line for line in lines if line.startswith("scheme"))
    shown = re.findall(r"L=(\d+)M", header)
    assert (shown[0], shown[-1]) == ("1", "20")
    assert len(header) <= 100 < len(header) + len("  0.0039")
    assert f"Not shown: {20 - len(shown)} columns. --json has all." in lines
    assert not any("Not shown" in line for line in plain_table(study).splitlines())


def test_rich_table_takes_names_literally(odd_study):
    rows = drawn(table(odd_study), 150).split(" verdict")[1]  # below the headline and the header
    assert "[bold]" in rows
    assert "<img src=x" in rows


def drawn(made: Table, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(made)
    return file.getvalue()


def test_words_of_regret(study):
    _, _, sp, ode = study.headline.transfers
    assert regret_sentence(study, ode) == (
        "At depth 128, the learning rate of depth 8 costs 0.210 in loss (0.170 to 0.260)."
    )
    assert regret_sentence(study, sp) == ""  # where nothing trains, the verdict's sentence says so


def test_words_where_little_is_known(odd_study):
    unknown, edges = odd_study.headline.transfers
    assert "diverges at depth 4" in regret_sentence(odd_study, edges)
    assert best_rate(edges.optima[0]) == "≤ 0.12"
    assert best_rate(unknown.optima[0]) == "≥ 0.5"
    assert best_rate(unknown.optima[1]) == "–"


def test_headline_counts_the_verdicts(study):
    assert headline(study) == (
        "Depth-muP transfers its best learning rate from depth 8 to 128; 3 others drift."
    )
    assert headline(_judged(study, "tttt")).startswith("Depth-muP, (1/2, 0), SP and ODE transfer")
    assert headline(_judged(study, "tduu")).endswith("1 other drifts; undecided: SP and ODE.")
    assert headline(_judged(study, "dddd")).startswith("No scheme is shown to transfer")
    assert headline(_judged(study, "uuuu")).endswith("from depth 8 to 128 is undecided.")
    assert headline(_judged(study, "d")) == ("The best learning rate drifts from depth 8 to 128.")


def test_the_base_is_the_configured_depth(study):
    moved = replace(study, config={**study.config, "base_depth": 32})
    assert "from depth 32 to 8 and 128" in headline(moved)
    assert "from depth 8 to 128" in headline(replace(study, config={"base_depth": "32"}))


def test_an_empty_study_says_what_it_needs(study):
    with pytest.raises(ValueError, match="at least one window"):
        summary(replace(study, windows=()))


def test_tiny_losses_keep_their_digits(study):
    tiny = Estimate(value=2.5e-5, low=1e-5, high=4e-5)
    transfer = study.headline.transfers[0]
    losses = [replace(o, loss=replace(o.loss, value=1e-3)) for o in transfer.optima]
    small = replace(transfer, regret=tiny, optima=tuple(losses))
    assert "2.5e-05" in regret_sentence(study, small)
    # Of a loss of 1 that is nothing.
    assert "at most 4e-05" in regret_sentence(study, replace(transfer, regret=tiny))


def _judged(study: Study, letters: str) -> Study:
    meaning = {"t": Verdict.TRANSFERS, "d": Verdict.DRIFTS, "u": Verdict.UNDECIDED}
    transfers = tuple(
        replace(transfer, verdict=meaning[letter])
        for transfer, letter in zip(study.headline.transfers, letters, strict=False)
    )
    return replace(study, windows=(replace(study.headline, transfers=transfers),))
