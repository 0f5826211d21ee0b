"""What programs read: the value to use, errors as JSON, a status of its own for undecided."""

import json
import math
from dataclasses import replace

import pytest

import depthmup
from depthmup.cli import check as check_command
from depthmup.cli import main, refusals, transfer
from depthmup.cli.verbs import VERBS, parse
from depthmup.records import Outcome, Place, Verdict
from depthmup.reports import example_certificate, example_check, example_study, summary

DIGITS = ("transfer", "--preset", "tiny", "--executor", "in-process", "--json")
REFUSALS = {
    "no table": ("fit", "nowhere.csv", "--axes", "depth", "--lr", "lr", "--loss", "loss"),
    "no folder": ("report", "nowhere"),
    "a mistyped option": ("fit", "example", "--lsr", "lr"),
    "a mistyped value": ("transfer", "--seeds", "many"),
    "a mistyped command": ("trasnfer", "--preset", "tiny"),
    "a bad budget": ("transfer", "--preset", "tiny", "--budget", "2", "--out", "out"),
}


def ended(words):
    try:
        return main([*words])
    except SystemExit as end:  # of the parser
        return end.code


@pytest.mark.parametrize("words", REFUSALS.values(), ids=REFUSALS)
def test_an_error_is_json_where_a_program_reads(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status = ended([*words, "--json"])
    told = capsys.readouterr()
    error = json.loads(told.out)
    assert set(error) == {"schema", "error", "hint", "status"}
    assert error["status"] == status == 2
    assert error["error"].split()[0] in told.err
    assert ended(words) == 2
    assert capsys.readouterr().out == ""


def test_a_result_is_one_document(capsys, tmp_path):
    assert main(["fit", "example", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"]["lr"] == pytest.approx(2.0 ** found["schemes"][0]["optimum"][0]["log2_lr"])
    assert found["headline"]


def test_the_value_to_use_is_the_base_s_or_the_target_s():
    study, forecast = example_study(), example_certificate()
    transfer_ = study.headline.transfers[0]
    at = transfer_.optima[0]
    best = summary(study)["best"]
    assert best["scheme"] == transfer_.scheme == "depth-mup"
    assert best["verdict"] == "transfers"
    assert best["lr"] == pytest.approx(2.0**at.log2_lr.value)
    assert (best["low"], best["high"]) == pytest.approx((2.0**at.log2_lr.low, 2.0**at.log2_lr.high))
    assert best["size"] == dict(at.size)
    assert not best["certified"]
    told = summary(study, certificates=[forecast])
    best = told["best"]
    value = forecast.value
    assert (best["lr"], best["low"], best["high"]) == (value.value, value.low, value.high)
    assert best["size"] == dict(forecast.target)
    assert best["confidence"] == forecast.confidence
    assert best["certified"]
    assert told["headline"].startswith("Train at ")


def test_a_value_that_is_a_bound_is_not_given():
    study = example_study()
    transfers = [
        replace(t, verdict=Verdict.UNDECIDED, optima=(replace(t.optima[0], place=Place.LOW_EDGE),))
        for t in study.headline.transfers
    ]
    window = replace(study.headline, transfers=tuple(transfers))
    best = summary(replace(study, windows=(window,)))["best"]
    assert best["lr"] is best["low"] is best["high"] is None
    assert best["verdict"] == "undecided"
    assert not math.isnan(best["confidence"])


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Verdict.TRANSFERS, 0), (Verdict.DRIFTS, 1), (Verdict.UNDECIDED, 5)],
)
def test_what_is_undecided_has_a_status_of_its_own(monkeypatch, tmp_path, verdict, status):
    class Found:
        records = ()

    found = Found()
    found.verdict = verdict
    monkeypatch.setattr("depthmup.measure.transfer", lambda *a, **k: found)
    monkeypatch.setattr("depthmup.cli.report.deliver", lambda *a, **k: None)
    out = ("--out", str(tmp_path / "out"))
    assert transfer.run(parse([*DIGITS, *out, "--fail-unless", "transfers"])) == status
    assert transfer.run(parse([*DIGITS, *out])) == 0


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.PASS, 0), (Outcome.FAIL, 1), (Outcome.UNDECIDED, 5)]
)
def test_an_undecided_check_is_no_refusal(monkeypatch, tmp_path, outcome, status):
    result = replace(example_check(), outcome=outcome)
    (tmp_path / "mine.py").write_text("def make(width, depth): ...\ndef batch(generator): ...\n")
    monkeypatch.setattr("depthmup.diagnostics.check", lambda **k: result)
    words = parse(["check", "--model", f"{tmp_path}/mine.py:make"])
    assert check_command.run(words) == status
    assert refusals.REFUSED == 2


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_the_commands_are_a_document(words, capsys):
    assert main([*words, "--json"]) == 0
    commands = json.loads(capsys.readouterr().out)["commands"]
    assert {name for group in commands.values() for name in group} == {*VERBS, "completion"}


@pytest.mark.parametrize("words", [["next", "--help"], ["help", "next"], ["--json", "next", "-h"]])
def test_the_options_are_a_document(words, capsys):
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "next"
    assert document["examples"]
    assert any(option["names"].startswith("--sizes") for option in document["options"])


def test_the_version_is_a_document(capsys):
    assert main(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "version": depthmup.__version__}


def test_json_alone_lists_the_commands(capsys):
    assert main(["--json"]) == 2
    assert "commands" in json.loads(capsys.readouterr().out)


def test_json_may_come_first(capsys):
    assert main(["--json", "rules"]) == 0
    assert "Schemes" in json.loads(capsys.readouterr().out)
