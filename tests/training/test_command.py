"""Runs by a person's own command: its placeholders, its loss, and its end."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import running, until

from depthmup.model import Model, resolved
from depthmup.model.command import CommandError, check_names, code_of, parsed
from depthmup.records import Status, Trial
from depthmup.training import command as commands
from depthmup.training.command import RunFolders, run_command

SIZE = {"width": 64, "depth": 4}
TRIAL = Trial(
    model="train.py", code="1", size=SIZE, base=SIZE, scheme="sp", optimizer="adamw",
    lr=2.0**-20 / 3, steps=4, seed=5, settings={"betas": [0.9, 0.98], "clip": 1.5},
)  # fmt: skip
LOSS = "{out}/loss.txt"


def run(template, loss, folder, **changes):
    folders = RunFolders(folder=str(folder), start=str(folder))
    return run_command(replace(TRIAL, **changes), parsed(template, loss), folders)


def python(code):
    """A command that runs a script with the run's folder as its argument."""
    return f'{sys.executable} -I -S -c "{code}" {{out}}'


def writes(folder, name, text):
    script = folder / "write.py"
    script.write_text(f"import sys; open(sys.argv[1] + '/{name}', 'w').write({text!r})")
    return f"{sys.executable} -I -S {script} {{out}}"


def test_every_placeholder_is_filled_in_and_no_word_is_split(tmp_path):
    names = ("lr", "width", "depth", "seed", "steps", "scheme", "optimizer", "weight_decay")
    names += ("multiplier", "beta1", "beta2", "one_minus_beta2", "init_scale", "clip")
    folder = tmp_path / "a folder; with $HOME and 'quotes'"
    template = python("import json, sys; d = sys.argv[1:]; open(d[0] + '/all.json', 'w')"
                      ".write(json.dumps(d)); print('loss 0.5')")  # fmt: skip
    template += " " + " ".join(f"{name}={{{name}}}" for name in names) + " '{{a}} $HOME *'"
    run(template, r"re:loss (\S+)", folder)
    (out,) = [path for path in folder.iterdir() if path.is_dir()]
    given = json.loads((out / "all.json").read_text())
    assert given[0] == str(out)
    assert given[-1] == "{a} $HOME *"
    values = dict(word.split("=") for word in given[1:-1])
    assert float(values.pop("lr")) == TRIAL.lr
    assert float(values.pop("one_minus_beta2")) == 1 - 0.98
    assert values == {
        "width": "64", "depth": "4", "seed": "5", "steps": "4", "scheme": "sp",
        "optimizer": "adamw", "weight_decay": "0.0", "multiplier": "1.0", "beta1": "0.9",
        "beta2": "0.98", "init_scale": "1.0", "clip": "1.5",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "loss", "losses"),
    [
        ("loss.txt", " 0.25\n", LOSS, [0.25] * 4),
        ("log.csv", "step,val\n1,3\n2,1\n", "{out}/log.csv:val", [3, 3, 1, 1]),
        ("log.csv", "step, val\n1,\n2,2\n3,\n", "{out}/log.csv:val", [2] * 4),
        ("log.tsv", "a\tval\n1\t3\n", "{out}/log.tsv:val", [3] * 4),
        ("log.csv", "val\n" + "1\n3\n" * 4, "{out}/log.csv:val", [2] * 4),
        ("log.csv", "val\n4\n2\n3\n2.5\n", "{out}/log.csv:val:min", [4, 2, 2, 2]),
        (
            "log.csv",
            "epoch,step,val\n1,10,4\n2,20,2\n3,30,3\n",
            "{out}/log.csv:val@20",
            [4, 4, 2, 2],
        ),
        ("log.csv", "acc\n0.25\n0.75\n", "{out}/log.csv:1-acc", [0.75, 0.75, 0.25, 0.25]),
        ("log.csv", "1-acc\n4\n2\n", "{out}/log.csv:1-acc", [4, 4, 2, 2]),
        ("l.jsonl", '{"t": 9}\n{"v": 4}\n\n{"v": "2"}\n', "{out}/l.jsonl:v", [4, 4, 2, 2]),
    ],
)
def test_losses_are_read_and_spread_over_the_steps(tmp_path, name, text, loss, losses):
    record = run(writes(tmp_path, name, text), loss, tmp_path)
    assert record.losses.tolist() == losses
    assert record.status is Status.FINISHED


def test_losses_are_matched_in_the_output_and_never_in_the_command(tmp_path):
    template = python("print('loss=3'); print('x loss=1 loss=2', flush=True)") + " loss=9"
    record = run(template, r"re:loss=(\d+)", tmp_path, steps=3)
    assert record.losses.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("values", "left"),
    [("3\n2\nnan\n2\n", [3, 2]), ("inf\n", []), ("3\n1e60\n", [3, 3]), ("NaN", [])],
)
@pytest.mark.parametrize("status", [0, 1])
def test_a_loss_that_is_not_finite_is_a_run_that_diverged(tmp_path, values, left, status):
    """Also where the script stops itself by an error then."""
    text = "val\\n" + values.replace("\n", "\\n")
    template = python(
        f"import sys; open(sys.argv[1] + '/log.csv', 'w').write('{text}'); sys.exit({status})"
    )
    record = run(template, "{out}/log.csv:val", tmp_path)
    assert record.status is Status.DIVERGED
    assert record.losses.tolist() == left


@pytest.mark.parametrize(
    ("code", "loss", "message"),
    [
        ("print('lost at sea'); sys.exit(3)", LOSS, r"exit status 3\.\n.*\nlost at sea"),
        ("print(1 / 0)", LOSS, r"exit status 1\.[\s\S]*ZeroDivisionError"),
        ("import os; os.kill(os.getpid(), 9)", LOSS, "ended by signal 9"),
        ("open(out + 'a', 'w')", LOSS, r"wrote no file loss\.txt.*folder has a\."),
        ("open(out + 'loss.txt', 'w').write('soon')", LOSS, "not a number: 'soon' in loss.txt"),
        ("open(out + 'loss.txt', 'w').write('-1')", LOSS, "a loss of -1"),
        ("open(out + 'l.csv', 'w').write('a,b')", "{out}/l.csv:v", "'v'; its columns are none"),
        ("open(out + 'l.csv', 'w').write('a,b\\n1,2')", "{out}/l.csv:v", "columns are a, b"),
        ("open(out + 'l.csv', 'w').write('v\\n1\\nx')", "{out}/l.csv:v", "'x' in row 2 of l.csv"),
        ("open(out + 'l.jsonl', 'w').write('{{')", "{out}/l.jsonl:v", "no JSON in line 1"),
        ("print('los 3')", r"re:loss (\d+)", "no line of its output matches"),
        ("print('loss 3,5')", r"re:loss (\S+)", "not a number: '3,5'"),
    ],
)
def test_a_failed_run_is_named_with_its_command_and_its_last_lines(tmp_path, code, loss, message):
    template = python(f"import sys; out = sys.argv[1] + '/'; {code}")
    with pytest.raises(CommandError, match=message) as error:
        run(template.replace("\\n", "\\\\n"), loss, tmp_path)
    assert f"`{sys.executable} -I -S -c" in str(error.value)


def test_nothing_is_left_of_an_attempt_that_was_interrupted(tmp_path):
    """A script that appends would mix two runs."""
    template = python("import sys; open(sys.argv[1] + '/log.csv', 'a').write('v\\\\n1\\\\n')")
    for _ in range(2):
        assert run(template, "{out}/log.csv:v", tmp_path).losses.tolist() == [1] * 4


def test_output_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "LARGEST_OUTPUT", 2**20)
    with pytest.raises(CommandError, match="output passed 1 MiB") as error:
        run("yes marker-of-endless-output {out}", LOSS, tmp_path)
    assert len(str(error.value)) < 5000
    (log,) = tmp_path.glob("*.log")
    assert log.stat().st_size <= 2**20
    assert until(lambda: not running("marker-of-endless-output"))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_dies_leaves_nothing_of_its_command(tmp_path, number):
    """Neither in the command's group, nor what has left the group."""
    marker = f"{31_000_000 + os.getpid()}"
    script = tmp_path / "worker.py"
    script.write_text(
        "from pathlib import Path\n"
        "from test_command import run\n"
        f"run(\"sh -c 'sleep {marker} & setsid sleep {marker} & wait'\", r're:loss=(.*)', "
        f"Path({str(tmp_path)!r}))\n"
    )
    where = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    worker = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": where}
    )
    try:
        assert until(lambda: len(running(f"sleep\0{marker}")) == 2)
        worker.send_signal(number)
        worker.wait(30)
        assert until(lambda: not running(marker))
    finally:
        worker.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_what_a_finished_command_leaves_behind_is_ended(tmp_path):
    marker = f"{32_000_000 + os.getpid()}"
    run(f"sh -c 'setsid sleep {marker} & echo loss=1'", "re:loss=(.*)", tmp_path)
    assert not running(marker)


@pytest.mark.parametrize(
    ("template", "loss", "message"),
    [
        ("", LOSS, "Expected a command, such as"),
        ("python 'train.py --out {out}", LOSS, "splits into words"),
        ("train --lr {lr:.3f} {out}", LOSS, "a name in braces"),
        ("train --lr {lr.real} {out}", LOSS, "a name in braces"),
        ("train {} {out}", LOSS, "a name in braces"),
        ("train {lr {out}", LOSS, "Write {{ and }} for braces"),
        ("train --lr {lr}", LOSS, "take {out}, the run's folder"),
        ("train {out}", None, r"got None"),
        ("train {out}", 3, r"got 3"),
        ("train {out}", "results/log.csv:val", "Expected loss to be '{out}/FILE:COLUMN'"),
        ("train {out}", "re:(", "Expected a regular expression; got"),
        ("train {out}", r"re:loss \S+", "one group, .* got 0 groups"),
    ],
)
def test_commands_that_cannot_be_read(template, loss, message):
    with pytest.raises(ValueError, match=message):
        parsed(template, loss)
    if loss is not None and template:
        with pytest.raises(ValueError, match=message):
            Model(command=template, loss=loss)


def test_a_command_stands_alone():
    with pytest.raises(ValueError, match=r"either a command, .* got train, command"):
        Model(command="train {out}", loss=LOSS, train=print)
    with pytest.raises(ValueError, match="Expected loss to be"):
        Model(command="train {out}")


def test_placeholders_that_no_run_has():
    with pytest.raises(ValueError, match=r"\(width, depth, lr, .*\); got {layers}"):
        check_names(parsed("train --layers {layers} {out}", LOSS), SIZE, ())
    check_names(parsed("train --layers {depth} {out}", "{out}/{seed}.txt"), SIZE, ())


def test_a_changed_script_is_another_run(tmp_path, monkeypatch):
    """As for functions: the script, the person's own modules that it imports, small files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts.py").write_text("WIDTH = 4\n")
    (tmp_path / "train.py").write_text("import parts\n")
    (tmp_path / "conf.yaml").write_text("a: 1\n")
    template = "python train.py --config=conf.yaml {out}"
    model = Model(command=template, loss=LOSS)
    codes = [model.code]
    assert resolved(model).command.name == "train.py"
    (tmp_path / "train.py").write_text("import parts  # a comment\n")
    assert model.code == codes[0]
    for name, text in (("parts.py", "WIDTH = 8\n"), ("train.py", "import math, parts\n"),
                       ("conf.yaml", "a: 2\n")):  # fmt: skip
        (tmp_path / name).write_text(text)
        codes.append(model.code)
    codes += [code_of(parsed(template, "{out}/l.csv:v")), code_of(parsed(f"{template} -v", LOSS))]
    codes.append(code_of(parsed("python -m train {out}", LOSS)))
    (tmp_path / "parts.py").write_text("WIDTH = 16\n")
    codes.append(code_of(parsed("python -m train {out}", LOSS)))
    assert len({*codes}) == len(codes)
    assert Model(command=template, loss=LOSS, version="2").code == "version 2"


def test_losses_beyond_the_steps_are_averaged():
    trial = Trial(model="t", code="", size={}, base={}, scheme="sp", optimizer="adam", lr=1.0,
                  steps=10, seed=0)  # fmt: skip
    values = [float(k) for k in range(35)]
    losses = commands.record_of(trial, values).losses
    assert len(losses) == 10
    assert math.isclose(sum(losses[-2:]) / 2, sum(values[-7:]) / 7, rel_tol=0.01)
