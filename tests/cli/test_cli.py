"""The command line as a person and as a script would use it."""

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import until

import depthmup
from depthmup.cli import main
from depthmup.cli.spelling import as_meant
from depthmup.cli.transfer import Options, asked
from depthmup.cli.verbs import VERBS, parse
from depthmup.report import load_report
from depthmup.sweep import Store, StoreError, Sweep

# One process makes the sweep that most of these read.
pytestmark = pytest.mark.xdist_group("cli")

TINY = [
    *("--depths", "2", "4", "--base", "16x2"),
    *("--lrs", "0.001953125", "0.0078125", "0.03125", "0.125", "0.5"),
    *("--seeds", "2", "--steps", "20", "--window", "10", "--workers", "1"),
    *("--schemes", "depth-mup", "3/4,1/4"),
]


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "depthmup", *arguments], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out, shown, told = tmp_path_factory.mktemp("finished"), StringIO(), StringIO()
    with redirect_stdout(shown), redirect_stderr(told):
        assert main(["transfer", *TINY, "--out", str(out), "--json"]) == 0
    written = (out / "summary.json").read_text()  # which other tests write again
    return out, SimpleNamespace(stdout=shown.getvalue(), stderr=told.getvalue(), written=written)


def test_json_is_all_that_stdout_holds(finished):
    _, done = finished
    assert json.loads(done.stdout) == json.loads(done.written)
    assert done.stderr == ""


def test_the_summary_has_the_agreed_form(finished):
    summary = json.loads(finished[1].stdout)
    assert {"schemes", "config", "environment"} <= set(summary)
    first, second = summary["schemes"]
    assert (first["scheme"], first["alpha"], first["gamma"]) == ("depth-mup", "1/2", "1/2")
    assert (second["scheme"], second["alpha"], second["gamma"]) == ("3/4,1/4", "3/4", "1/4")
    for scheme in (first, second):
        assert scheme["depths"] == [2, 4]
        assert [o["depth"] for o in scheme["optimum"]] == [2, 4]
        assert set(scheme["optimum"][0]) == {
            "width",
            "depth",
            "log2_lr",
            "low",
            "high",
            "loss",
            "status",
        }
        assert set(scheme["drift"]) == {"estimate", "low", "high", "unit"}
        assert set(scheme["regret"]) == {"estimate", "low", "high", "unit"}
        assert scheme["verdict"] in ("transfers", "drifts", "undecided")
        assert scheme["why"]
    assert summary["config"]["steps"] == 20
    assert summary["environment"]["torch"]


def test_the_same_command_again_trains_nothing(finished, capsys):
    out, done = finished
    before = (out / "results.sqlite").stat().st_size
    assert main(["transfer", *TINY, "--out", str(out), "--json"]) == 0
    again, first = json.loads(capsys.readouterr().out), json.loads(done.stdout)
    assert again["schemes"] == first["schemes"]
    assert (out / "results.sqlite").stat().st_size <= before + 8192


def test_report_rebuilds_the_page_from_the_store_alone(finished, tmp_path):
    out, _ = finished
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    (copy / "results.sqlite").write_bytes((out / "results.sqlite").read_bytes())
    assert main(["report", str(copy), "--export", "svg"]) == 0
    assert (copy / "report.html").read_text() == (out / "report.html").read_text()
    assert json.loads((copy / "summary.json").read_text()) == json.loads(
        (out / "summary.json").read_text()
    )
    assert list((copy / "charts").glob("*.svg"))


def test_report_of_a_fitted_table_keeps_all_that_its_summary_holds(tmp_path, capsys):
    out = tmp_path / "fit"
    assert main(["fit", "example", "--out", str(out)]) == 0
    before = (out / "summary.json").read_text()
    (out / "report.html").unlink()
    assert main(["report", str(out), "--export", "svg"]) == 0
    assert str(out / "report.html") in capsys.readouterr().out
    assert (out / "summary.json").read_text() == before
    assert (out / "report.html").is_file()
    assert list((out / "charts").glob("*.svg"))


def test_the_table_and_the_page_are_announced(finished, capsys):
    assert main(["report", str(finished[0])]) == 0
    shown = capsys.readouterr().out
    assert "Depth-muP" in shown
    assert str(finished[0] / "report.html") in shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--schemes", "nope"], "Expected a scheme (sp, mup, depth-mup"),
        (["--schemes", "x,1/2"], "Expected alpha to be a rational number"),
        (["--activation", "swich"], "Expected activation to be one of identity"),
        (["--depths", "0", "8"], "Expected depth to be whole numbers of at least 1"),
        (["--depths", "16", "32"], "contain the base's, 8"),
        (["--depths", "16", "8"], "strictly increasing"),
        (["--lrs"], "Expected lrs to be at least one"),
        (["--lrs", "1.0", "0.5"], "strictly increasing"),
        (["--lrs", "nan"], "Expected lrs to be positive"),
        (["--seeds", "0"], "at least 1"),
        (["--tolerance", "-1"], "Expected a positive tolerance"),
        (["--tolerance", "1e11"], "Expected a positive tolerance"),
        (["--workers", "-1"], "Expected workers"),
        (["--data", "imagenet"], "Expected data to be one of digits"),
        (["--device", "abacus"], "Expected device"),
        (["--device", "cuda", "--engine", "native"], "auto or stacked on 'cuda'"),
        (["--precision", "tf32"], "float32 or bf16 on 'cpu'; got 'tf32'"),
        (["--precision", "bf16", "--engine", "native"], "'bf16' is not in the kernel"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(wrong, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["transfer", "--out", str(out), *wrong]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("wrong", [["--depths", "8.5"], ["--preset", "huge"], ["--optimiser"]])
def test_what_is_no_option_is_refused_by_the_parser(wrong, tmp_path, capsys):
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as refused:
        main(["transfer", "--out", str(out), *wrong])
    assert refused.value.code == 2
    assert not out.exists()


def test_an_output_folder_that_cannot_be_written(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["transfer", *TINY, "--out", str(file / "out")]) == 2
    assert "Expected --out to be a folder that can be written" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_a_store_that_is_none_is_left_alone(tmp_path, capsys):
    store = tmp_path / "results.sqlite"
    store.write_text("not a database " * 100)
    assert main(["transfer", *TINY, "--out", str(tmp_path)]) == 2
    assert "not a readable store" in capsys.readouterr().err
    assert store.read_text() == "not a database " * 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.sqlite"]


def test_report_of_an_empty_folder(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "Expected a store at" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_presets_show_in_help(capsys):
    assert main(["transfer", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "By default 300 for the built-in networks (preset tiny: 200)" in shown
    for preset, steps, depths in (("tiny", 200, 5), ("small", 300, 5), ("medium", 300, 6)):
        _, design = asked(parse(["transfer", "--preset", preset]))
        assert (design.steps, len(design.arm("depth"))) == (steps, depths)


@pytest.mark.long
def test_the_first_command_decides(tmp_path, capsys):
    """What a new user tries shows an answer, in ten seconds of one core."""
    assert main(["transfer", "--preset", "tiny", "--out", str(tmp_path), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Use learning rate")
    for scheme, verdict in (("Depth-muP", "transfers"), ("(1/2, 0)", "drifts"), ("SP", "drifts")):
        assert f"\n{scheme}: {verdict}." in shown


def test_regimes(capsys):
    assert main(["regimes", "--alpha", "3/4", "--gamma", "1/4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "redundant"
    assert main(["regimes", "--alpha", "1", "--gamma", "0"]) == 0
    shown = capsys.readouterr().out
    assert "faithful" in shown
    assert "kappa" in shown
    assert main(["regimes", "--alpha", "x"]) == 2
    assert "Expected alpha to be a rational number" in capsys.readouterr().err


def records_in(path):
    """How many records a store holds that another process is writing."""
    if not path.exists():
        return 0
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as store:
        return store.execute("SELECT COUNT(*) FROM records").fetchone()[0]
    return 0


def sweeping(out, **streams):
    """A sweep of half a minute, if it is left alone."""
    command = [sys.executable, "-m", "depthmup", "transfer", "--preset", "tiny", "--out", str(out)]
    # Whoever runs the tests in the background ignores Ctrl-C, and so would its children.
    return subprocess.Popen(
        [*command, "--workers", "1", "--steps", "1000"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **streams,
    )


def interrupted(out, number=signal.SIGINT, **streams):
    """A sweep that gets a signal, by default Ctrl-C, once its first record is stored."""
    sweep = sweeping(out, **streams)
    until(lambda: records_in(out / "results.sqlite"))
    sweep.send_signal(number)
    return sweep


@pytest.mark.long
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_stops_cleanly_and_says_how_to_resume(tmp_path, number, status):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    sweep = interrupted(tmp_path, number, **streams)
    _, shown = sweep.communicate(timeout=300)
    assert sweep.returncode == status
    assert "the same command continues from there" in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.long
def test_a_terminal_sees_live_progress(tmp_path):
    """On a terminal: a bar that is redrawn, with the number of runs and why the search goes on."""
    ours, theirs = pty.openpty()
    sweep = sweeping(tmp_path, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    shown, interrupted_at = b"", None
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
            # Of a search, this is all that is known after one run; more of it, later.
            if interrupted_at is None and re.search(rb"a scan for its optimum", shown):
                interrupted_at = len(shown)
                sweep.send_signal(signal.SIGINT)
    except OSError:  # the other side of the terminal is gone
        pass
    assert interrupted_at is not None
    assert sweep.wait(timeout=300) == 130
    assert b"training" in shown
    assert b"\x1b[" in shown


def test_module_and_script_are_the_same_command():
    script = Path(sys.executable).with_name("depthmup")
    ours = run("regimes", "--json").stdout
    assert (
        ours == subprocess.run([script, "regimes", "--json"], capture_output=True, text=True).stdout
    )


def test_a_study_is_of_its_own_grid_when_another_sweep_began_since(finished, tmp_path):
    copy = tmp_path / "results.sqlite"
    copy.write_bytes((finished[0] / "results.sqlite").read_bytes())
    with Store(copy) as store:
        first = store.sessions()[-1]
        sweep = Sweep.from_dict(first["sweep"])
        later = replace(sweep, design=replace(sweep.design, seeds=7))
        store.open_session({**first, "sweep": later.to_dict()})
        assert load_report(store, sweep).study().config["seeds"] == sweep.design.seeds
        found = load_report(store)  # the one that has its runs
        assert found.study().config["seeds"] == sweep.design.seeds
        assert "This folder has 2 measurements. This is number 1" in found.notes()[-1].text
        with pytest.raises(StoreError, match="runs are not in"):
            load_report(store, later)
    assert "This folder has 2 measurements. This is number 1" in depthmup.fit(copy).notes()[0].text


def test_a_note_says_that_runs_are_of_several_engines(finished, tmp_path):
    copy = tmp_path / "results.sqlite"
    copy.write_bytes((finished[0] / "results.sqlite").read_bytes())
    with Store(copy) as store:
        session = store.sessions()[-1]
        alone = load_report(store)
        store.open_session({**session, "environment": {"engine": "stacked"}})
        report = load_report(store)
    assert report.finding().why == alone.finding().why
    assert not any("mixed" in note.text for note in alone.study().notes)
    assert any("Runs of 2 engines are mixed" in note.text for note in report.study().notes)
    assert "Runs of 2 engines are mixed" in str(report)


def test_corners_are_sizes_that_grow_along_several_axes():
    words = ["transfer", "--base", "width=8", "depth=2", "steps=100", "--along", "depth=2,4",
             "width=8,16", "steps=100,400", "--corners", "depth=4,width=16",
             "4x2,steps=400"]  # fmt: skip
    _, design = asked(parse(words))
    assert design.sizes == (
        {"width": 16, "depth": 4, "steps": 100},
        {"width": 4, "depth": 2, "steps": 400},
    )
    assert len(design.all_sizes) == 6
    with pytest.raises(ValueError, match="Expected --corners as NAME=VALUE"):
        asked(parse([*words, "depth"]))


def test_help_has_no_empty_default_and_fits_the_page(capsys):
    for verb in VERBS:
        assert main([verb, "--help-all"]) == 0
        head, options = capsys.readouterr().out.split("\nOptions\n")
        assert not re.search(r"default:\s*\)|default: (None|''|False)\)", options), verb
        assert all(len(line) <= 100 for line in options.splitlines())
        assert head.startswith(f"usage: depthmup {verb} ")


def test_help_of_transfer_is_the_everyday_part(capsys):
    def options(word):
        assert main(["transfer", word]) == 0
        shown = capsys.readouterr().out
        return set(re.findall(r"^  (?:-h, )?(--[\w-]+)", shown, re.MULTILINE)), shown

    (some, short), (every, whole) = options("--help"), options("--help-all")
    assert some < every
    assert {"--base", "--lrs", "--model", "--out"} <= some
    assert "--block-depth" in every - some
    assert short.rstrip().endswith("depthmup transfer --help-all")
    assert "--help-all" not in whole
    assert "--base SIZE" in short
    assert "--depths LIST" in short
    assert "\nExamples\n    depthmup transfer" in short


def test_rates_in_plain_numbers():
    def rates(*words):
        return asked(parse(["transfer", *words]))[1].log2_values

    assert rates("--lrs", "0.0625", "0.125") == rates("--log2-lrs=-4", "-3") == (-4.0, -3.0)
    of_another = ("--tune", "multiplier", "--lr", "0.1")
    assert rates(*of_another, "--log2-values", "0", "1") == rates(*of_another, "--values", "1", "2")
    for words, match in (
        (["--lrs", "1e-3", "--log2-lrs=-3"], "not both"),
        (["--log2-lrs", "nan"], "Expected learning rates from 2"),
        (["--log2-lrs", "0", "-1"], "strictly increasing"),
        (["--lrs=-3"], "Expected lrs to be positive"),
        (["--lrs", "1e-3", "--tune", "multiplier", "--lr", "0.1"], "give --values"),
    ):
        with pytest.raises(ValueError, match=match):
            asked(parse(["transfer", *words]))


def test_whole_numbers_with_an_exponent():
    words = ["--steps", "1e3", "--widths", "6.4e1,128", "--lr", "1e-3", "--seeds=2e0"]
    meant = ["--steps", "1000", "--widths", "64", "128", "--lr", "1e-3", "--seeds=2"]
    assert as_meant(words, Options) == meant
    assert as_meant(["--steps", "1.5e0", "--out", "1e3"], Options) == [
        "--steps", "1.5e0", "--out", "1e3"
    ]  # fmt: skip


def test_a_lone_number_for_a_size_has_a_hint():
    with pytest.raises(ValueError, match=r"Did you mean 32x2, or depth=32\?"):
        asked(parse(["transfer", "--base", "32"]))
