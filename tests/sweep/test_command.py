"""Sweeps of a person's own command: refused, interrupted, resumed, shared, reported."""

import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import running, until

import depthmup
from depthmup import Design, Execution, Model
from depthmup.cli.main import main
from depthmup.model.command import parsed
from depthmup.records import Trial
from depthmup.sweep import MAIN_STORE, Store, WorkerError
from depthmup.sweep.resolution import resolved_sweep

SCRIPT = """
import json, math, os, sys, time
given = dict(word.split("=", 1) for word in sys.argv[1:])
with open(os.path.join(os.path.dirname(given["out"]), "started"), "a") as log:
    log.write(os.path.basename(given["out"]) + "\\n")
time.sleep(float(given.get("sleep", 0)))
depth = int(given["depth"])
x = math.log2(float(given["lr"])) + 8 + float(given.get("moves", 0)) * math.log2(depth)
noise = 1e-3 * math.sin(1 + 7 * int(given["seed"]) + 3 * depth)
with open(given["out"] + "/log.jsonl", "a") as log:
    for k in range(10):
        print(json.dumps({"step": k, "loss": 1 + 0.1 * x * x * (k + 1) / 10 + noise}), file=log)
"""
WORDS = "lr={lr} depth={depth} seed={seed} out={out}"
LOSS = "{out}/log.jsonl:loss"
GRID = {"base": {"depth": 4}, "depth": (4, 8, 16), "lrs": [2.0**k for k in (-10, -9, -8, -7, -6)],
        "seeds": 2, "steps": 20}  # fmt: skip
FEW = {**GRID, "lrs": [2.0**k for k in (-9, -8, -7)]}


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "valley.py"
    path.write_text(SCRIPT)
    return path


def command(script, more=""):
    return f"{sys.executable} -I -S {script} {WORDS} {more}"


def started(out):
    return (out / "runs" / "started").read_text().split()


def stored(out):
    with Store(out / MAIN_STORE) as store:
        return len(store)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_the_script_as_it_is_gets_a_verdict_and_its_files_are_kept(tmp_path, script, workers):
    out = tmp_path / "out"
    model = Model(command=command(script), loss=LOSS)
    report = depthmup.transfer(model, Design(**GRID), out=out, on=workers)
    assert report.verdict == "transfers"
    finding = report.finding()
    assert finding.scheme == "sp"
    assert [round(o.log2_lr.value, 1) for o in finding.optima] == [-8.0] * 3
    assert len(started(out)) == stored(out) == 30
    logs = sorted((out / "runs").glob("*.log"))
    assert len(logs) == 30
    assert all(log.with_suffix("").joinpath("log.jsonl").is_file() for log in logs)
    # A target is certified without training it: a few steps there would take the whole command.
    again = depthmup.transfer(model, Design(**GRID), out=out, on=workers, target={"depth": 32})
    (certificate,) = again.certificates
    assert certificate.measure.endswith("of every run")  # of as many losses as it logs
    assert abs(certificate.predicted.value + 8) < 0.1
    assert len(started(out)) == 30


def test_a_rate_reaches_the_command_as_it_was_written():
    """Rates are kept as log2 to nine decimals; 0.004 would come as 0.003999999999063."""
    words = "train --lr {lr} --depth {depth} --seed {seed}"
    model = Model(command=words, loss="re:(.*)")
    lrs = (0.004, 0.01, 2.0**-6.5)
    design = Design(base={"depth": 4}, depth=(4, 8), lrs=lrs, seeds=1, steps=2)
    sweep, _ = resolved_sweep(model, design, None)
    command = parsed(words, "re:(.*)")
    given = {command.filled(trial, Path())[2] for trial in sweep.runs}
    assert given >= {"0.004", "0.01"}
    assert sorted(round(math.log2(float(word)), 9) for word in given) == [
        round(math.log2(lr), 9) for lr in lrs
    ]


def test_a_rate_reaches_a_function_as_it_was_written_under_the_key_of_its_run():
    given = {}

    def train(trial):
        given[trial.key] = trial
        return [1.0] * trial.steps

    design = Design(base={"depth": 4}, depth=(4, 8), lrs=(0.004, 0.01), seeds=1, steps=2)
    report = depthmup.transfer(Model(train=train, version="1"), design)
    assert {trial.lr for trial in given.values()} == {0.004, 0.01}
    assert {run.key: run.lr for run in report.records} == {
        key: 2.0 ** round(math.log2(trial.lr), 9) for key, trial in given.items()
    }
    assert all(Trial.from_json(t.to_json()).key == key for key, t in given.items())
    assert {trial.row["lr"] for trial in report.records} == {0.004, 0.01}


def test_the_command_line_finds_the_optimum_that_moves_and_certifies_nothing(tmp_path, script):
    out = tmp_path / "out"
    words = ["transfer", "--command", command(script, "moves=1"), "--loss", LOSS, "--workers", "1"]
    words += ["--base", "depth=4", "--depths", "4,8,16", "--seeds", "3", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert re.search(r'"verdict": "drifts"', json.dumps(summary))


@pytest.mark.parametrize(
    ("more", "loss", "message", "workers"),
    [
        ("", "{out}/other.jsonl:loss", "wrote no file other.jsonl", 2),
        ("", "{out}/log.jsonl:val", "no value in a column 'val'; its columns are step, loss", 1),
        ("", r"re:loss (\S+)", "no line of its output matches", 1),
        ("moves=x", LOSS, "could not convert string to float", 1),
        ("moves=x", LOSS, "could not convert string to float", 2),
    ],
)
def test_a_loss_that_never_comes_is_an_error_before_the_second_run(
    tmp_path, script, more, loss, message, workers
):
    out = tmp_path / "out"
    model = Model(command=command(script, more), loss=loss)
    with pytest.raises(WorkerError, match=message) as error:
        depthmup.transfer(model, Design(**GRID), out=out, on=workers)
    assert len(started(out)) == 1
    assert "at depth 4" in str(error.value)
    assert f"`{sys.executable}" in str(error.value)
    assert ".log)" in str(error.value)


def test_one_run_that_fails_costs_the_others_nothing(tmp_path, script):
    script.write_text(
        SCRIPT.replace("x = ", "assert (given['depth'], given['seed']) != ('16', '1')\nx = ")
    )
    out = tmp_path / "out"
    model = Model(command=command(script), loss=LOSS)
    with pytest.raises(WorkerError, match="AssertionError"):
        depthmup.transfer(model, Design(**FEW), out=out)
    assert stored(out) == 15


def test_a_run_beyond_the_time_limit_is_named_with_its_last_lines(tmp_path, script):
    script.write_text(f"print('the last words', flush=True)\n{SCRIPT}")
    out = tmp_path / "out"
    marker = f"sleep={33_000_000 + os.getpid()}"
    model = Model(command=command(script, marker), loss=LOSS)
    with pytest.raises(WorkerError, match="stopped after 5 s") as error:
        depthmup.transfer(
            model, Design(**GRID), out=out, on=Execution(workers=1, trial_seconds=5.0)
        )
    assert str(error.value).rstrip().endswith("the last words")
    assert f"$ {sys.executable}" in str(error.value)
    assert until(lambda: not running(marker))


def test_shards_share_the_runs(tmp_path, script, monkeypatch):
    out = tmp_path / "out"
    model = Model(command=command(script), loss=LOSS)
    for shard in ("1/2", "2/2"):
        depthmup.transfer(model, Design(**FEW), out=out, on=Execution(shard=shard, workers=1))
    assert len(started(out)) == len({*started(out)}) == 18
    assert main(["merge", str(out)]) == 0
    assert len(depthmup.load(out).records) == 18


TO_THE_END = """
import sys
from depthmup.cli.main import main
status = main(sys.argv[1:])
assert "torch" not in sys.modules, "nothing was computed here, and PyTorch takes a second to load"
sys.exit(status)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_interrupted_often_nothing_is_lost_and_no_process_is_left(tmp_path, script):
    kills = int(os.environ.get("DEPTHMUP_TEST_KILLS", "2"))
    # Each kill comes after one to three runs more and the next of two workers: never the last.
    lrs = [2.0 ** (k / 2 - 10) for k in range(2 + 2 * kills)]
    marker = f"tag={34_000_000 + os.getpid()}"
    words = shlex.join(
        ["transfer", "--command", command(script, f"{marker} sleep=0.15"), "--loss", LOSS,
         "--workers", "2", "--base", "depth=4", "--depths", "4,8,16", "--steps", "20", "--seeds",
         "1", "--lrs", *map(repr, lrs), "--out", str(tmp_path / "out")]
    )  # fmt: skip
    words = shlex.split(words.replace("{out} ", "{out} steps={steps} "))
    line = [sys.executable, "-m", "depthmup", *words]
    out, random_ = tmp_path / "out", random.Random(0)
    last = 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for attempt in range(kills):
        process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL)
        seen = len(started(out)) if (out / "runs" / "started").exists() else 0
        more = seen + random_.randrange(1, 4)
        until(
            lambda process=process, more=more: (
                process.poll() is not None
                or ((out / "runs/started").exists() and len(started(out)) >= more)
            ),
            60,
        )
        time.sleep(random_.random() * 0.2)
        process.send_signal([signal.SIGKILL, signal.SIGINT, signal.SIGTERM][attempt % 3])
        process.wait(30)
        assert until(lambda: not running(marker))
        finished = stored(out) if (out / MAIN_STORE).exists() else 0
        assert finished >= last
        last = finished
    line[1:3] = ["-c", TO_THE_END]
    assert subprocess.run(line, env=environment, stdout=subprocess.DEVNULL).returncode == 0
    assert stored(out) == 3 * len(lrs)
    assert running(marker) == []
    design = Design(**{**GRID, "lrs": lrs, "seeds": 1})
    whole = depthmup.transfer(Model(command=command(script), loss=LOSS), design, on=1)
    again, once = (each.to_pandas("runs") for each in (depthmup.load(out), whole))
    order = ["depth", "lr", "seed"]
    assert all(again.sort_values(order)["loss"].values == once.sort_values(order)["loss"].values)


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ("lr={lr} depth={depth} seed={seed} {out} w={width}", {}, r"got {width}.*Add width to"),
        ("lr={lr} depth={depth} seed={seed} {out} {beta2}", {}, "got {beta2}"),
        ("lr={lr} seed={seed} {out}", {}, "every axis of the base; it has no {depth}"),
        ("depth={depth} seed={seed} {out}", {}, "{lr} in the command"),
        ("lr={lr} depth={depth} {out}", {}, "{seed} in the command"),
        (WORDS, {"schemes": ("sp", "completep")}, "{scheme} in the command"),
        (WORDS + " {scheme}", {}, "Expected schemes for a command that takes {scheme}"),
        (WORDS, {"weight_decays": (0.0, 0.1)}, "{weight_decay} in the command"),
        (WORDS, {"multipliers": 2.0}, "{multiplier} in the command"),
        (WORDS, {"optimizers": ("adamw", "sgd")}, "{optimizer} in the command"),
        (WORDS, {"settings": {"clip": 1.0}}, r"{clip} in the command, .* clip, which is 1\.0"),
        (WORDS, {"tune": "weight_decay", "lrs": 0.01}, "{weight_decay} in the command"),
        ("{lr} {depth} {seed} {out}", {"base": {"depth": 4, "steps": 9}}, "no {steps}"),
    ],
)
def test_differences_that_never_reach_the_script(tmp_path, script, words, changes, message):
    model = Model(command=f"{sys.executable} {script} {words}", loss=LOSS)
    design = {key: value for key, value in GRID.items() if key != "steps" or "base" not in changes}
    with pytest.raises(ValueError, match=message):
        depthmup.transfer(model, Design(**{**design, **changes}), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_program_that_is_not_there(tmp_path):
    model = Model(command=f"no-such-trainer {WORDS}", loss=LOSS)
    with pytest.raises(ValueError, match="there is no 'no-such-trainer' on the path"):
        depthmup.transfer(model, Design(**GRID), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--command", f"python t.py {WORDS}"], "Expected --loss with --command"),
        (["--command", f"python t.py {WORDS}", "--loss", LOSS, "--steps", "9"], "{steps} in the"),
        (["--command", "python t.py", "--train", "t.py:f"], "got --train and --command"),
    ],
)
def test_options_that_contradict_each_other(words, message, capsys):
    assert main(["transfer", *words, "--base", "depth=4", "--depths", "4,8"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_tuned_name_of_another_kind_reaches_the_script(tmp_path):
    script = tmp_path / "beta.py"
    script.write_text(
        "import math, sys\n"
        "beta2, lr, depth = map(float, sys.argv[1:4])\n"
        "assert abs(lr - 0.01) < 1e-10\n"
        "print('loss', 1 + (math.log2(1 - beta2) + 6) ** 2)\n"
    )
    design = Design(base={"depth": 4}, depth=(4, 8, 16), tune="one_minus_beta2", lrs=0.01,
                    values=[2.0**-k for k in (8, 7, 6, 5, 4)], seeds=1, steps=10)  # fmt: skip
    words = f"{sys.executable} -I -S {script} {{beta2}} {{lr}} {{depth}}"
    report = depthmup.transfer(Model(command=words, loss=r"re:loss (\S+)"), design)
    finding = report.finding()
    # Values are an octave apart, and the loss is no power of the distance.
    assert [o.log2_lr.value for o in finding.optima] == pytest.approx([-6.0] * 3, abs=0.05)


def test_the_cooldown_of_a_script_is_followed_from_size_to_size(tmp_path):
    """A script whose best cooldown is a quarter at depth 4 and halves per doubling."""
    script = tmp_path / "cooldown.py"
    script.write_text(
        "import math, sys\n"
        "cooldown, lr, depth = map(float, sys.argv[1:4])\n"
        "print('loss', 1 + (math.log2(cooldown) + 2 + math.log2(depth / 4)) ** 2)\n"
    )
    design = Design(base={"depth": 4}, depth=(4, 8, 16), tune="cooldown", lrs=0.01,
                    values=[2.0**-k for k in (6, 5, 4, 3, 2, 1, 0)], seeds=1, steps=10)  # fmt: skip
    words = f"{sys.executable} -I -S {script} {{cooldown}} {{lr}} {{depth}}"
    report = depthmup.transfer(Model(command=words, loss=r"re:loss (\S+)"), design)
    # A loss of 1 + u^2 is no power of u in its logarithm: to a tenth of the spacing.
    best = [o.log2_lr.value for o in report.finding().optima]
    assert best == pytest.approx([-2.0, -3.0, -4.0], abs=0.1)
    without = Model(command=words.replace("{cooldown}", "0.2"), loss=r"re:loss (\S+)")
    with pytest.raises(ValueError, match=r"\{cooldown\} in the command"):
        depthmup.transfer(without, design)
    with pytest.raises(ValueError, match="schedules of this package have none"):
        depthmup.transfer(depthmup.BuiltIn(), design)


def test_a_command_is_given_the_sizes_of_the_base(script, tmp_path):
    given = command(script, "base={base_depth}")
    design = Design(**{**FEW, "seeds": 1})
    sweep, _ = resolved_sweep(Model(command=given, loss=LOSS), design, None)
    words = {parsed(given, LOSS).filled(run, tmp_path)[-1] for run in sweep.runs}
    assert words == {"base=4"}
    with pytest.raises(ValueError, match=r"got \{base_width\}"):
        resolved_sweep(Model(command=command(script, "{base_width}"), loss=LOSS), design, None)


def test_progress_counts_runs_beside_their_work(script):
    """Depth 16 has four times the work of depth 4; a script starts as slowly at both."""
    told = []
    model = Model(command=f"{shlex.quote(sys.executable)} {script} {WORDS}", loss=LOSS)
    depthmup.transfer(model, Design(**FEW), on=1, progress=told.append)
    of_runs = {p.done: p.of_runs for p in told}
    assert of_runs == pytest.approx({n: n / 18 for n in of_runs})
    assert of_runs[18] == 1
    assert any(p.fraction < p.of_runs / 2 for p in told)
