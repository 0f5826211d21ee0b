"""Errors on the command line: whose they are, their exit status, and what they leave behind."""

import errno
import json
import os
import re
import resource
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from own_models import SOURCE

from depthmup.cli import main, refusals
from depthmup.cli.interrupts import INTERRUPTED, UNREAD
from depthmup.cli.refusals import DEFECT, OWN_CODE, REFUSED, explained
from depthmup.model import time_limit

TINY = [
    *("--base", "16x2", "--depths", "2", "4", "--steps", "4", "--seeds", "2"),
    *("--own-init", "fan_in", "--workers", "1", "--lrs", "0.015625", "0.03125"),
]


@pytest.fixture
def own(tmp_path):
    """Writes a person's file, with some of its text replaced, and names its factory."""

    def written(old="", new="", name="mine_refused.py", more=""):
        assert old in SOURCE
        (tmp_path / name).write_text(SOURCE.replace(old, new, 1) + more if old else SOURCE + more)
        return f"{tmp_path / name}:make"

    return written


def depthmup(*words, env=None, cwd=None, timeout=600):
    return subprocess.run(
        [sys.executable, "-m", "depthmup", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=timeout,
    )


def raising(error):
    def work():
        raise error

    return work


def test_without_arguments_the_verbs_are_shown(capsys):
    assert main([]) == REFUSED
    assert "transfer" in capsys.readouterr().out


VERBS = {
    "transfer": [*TINY],
    "check": ["--widths", "8", "--depths", "2", "4", "8", "--seeds", "2"],
    "plan": ["--base", "16x2", "--target", "32x4"],
}
MAKE = "def make(width, depth):\n"
OWN_ERRORS = {
    "TypeError": "    None + 1\n",
    "KeyError": "    {}['width']\n",
    "OverflowError": "    2.0 ** 5000\n",
    "MemoryError": "    raise MemoryError\n",
    "RecursionError": "    return make(width, depth)\n",
    "RuntimeError": "    torch.ones(2) @ torch.ones(3)\n",
    "ModuleNotFoundError": "    import no_such_module_here\n",
    "Unheard": "    class Unheard(BaseException): pass\n    raise Unheard\n",
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", OWN_ERRORS)
def test_an_error_of_a_persons_code_is_their_traceback_alone(own, tmp_path, verb, kind, capsys):
    model = own(MAKE, MAKE + OWN_ERRORS[kind])
    out = ["--out", str(tmp_path / "out" / "deep")] if verb == "transfer" else []
    assert main([verb, "--model", model, *VERBS[verb], *out]) == OWN_CODE
    told = capsys.readouterr()
    assert f"error: your own code raised {kind}" in told.err
    assert "mine_refused.py" in told.err
    assert "/depthmup/cli/" not in told.err
    assert told.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("where", ["factory", "file"])
def test_code_that_exits_by_zero_is_no_success(own, tmp_path, verb, where, capsys):
    leave = "import sys\nsys.exit(0)\n"
    model = (
        own(MAKE, MAKE + "    import sys; sys.exit(0)\n")
        if where == "factory"
        else own("import torch\n", leave)
    )
    out = ["--out", str(tmp_path / "out")] if verb == "transfer" else []
    assert main([verb, "--model", model, *VERBS[verb], *out]) == OWN_CODE
    assert "ended the program by sys.exit(0)" in capsys.readouterr().err


def test_a_refusal_of_this_package_below_a_persons_code_is_a_refusal(own, capsys):
    model = own(MAKE, MAKE + "    import depthmup.rules; depthmup.rules.scheme('none')\n")
    assert main(["plan", "--model", model, "--base", "16x2", "--target", "32x4"]) == REFUSED
    assert "Expected a scheme" in capsys.readouterr().err


def test_this_packages_own_type_errors_are_messages(own, capsys):
    model = own("    return x, x", "    return 1, 2  # ")
    assert main(["transfer", "--model", model, *TINY]) == REFUSED
    told = capsys.readouterr().err
    assert told.startswith("error: Expected batch(generator)")
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad"), REFUSED),
        (MemoryError(), REFUSED),
        (OverflowError("too large"), REFUSED),
        (OSError("gone"), REFUSED),
        (KeyboardInterrupt(), INTERRUPTED),
        (ModuleNotFoundError("broken", name="numpy"), DEFECT),
        (AttributeError("ours"), DEFECT),
        (SystemExit(0), DEFECT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_statuses(error, status, monkeypatch, capsys):
    """As of this package itself: the code of these tests counts as a library."""
    from depthmup.model import errors

    monkeypatch.setattr(errors, "_owner", lambda frame: "library")
    assert explained(raising(error)) == status
    assert ("a mistake in depthmup" in capsys.readouterr().err) is (status == DEFECT)


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (
            "plan mine.py:make --base 64x4",
            "mine.py:make stands without",
            "Use --model mine.py:make",
        ),
        ("rules depth_mup", "depth_mup stands without", "Use --scheme depth-mup."),
        ("rules --scheme mup", "Expected --base and --target", "lists all schemes"),
        ("plan --model m.py:f --base 32,2 --target 8x8", "got '32,2'", "Did you mean 32x2?"),
        ("plan --model m.py:f --base 64x4", "--target is missing", "plan --help"),
        ("transfer --steps abc", "--steps takes whole numbers; got 'abc'", "transfer --help"),
        ("transfer --lr x", "--lr takes numbers; got 'x'", "transfer --help"),
        ("transfer --preset huge", "--preset takes tiny, small, medium; got 'huge'", "--help"),
        ("transfer --seed 3", "There is no option --seed", "Did you mean --seeds?"),
        ("transfer --out", "--out needs a value", "transfer --help"),
        ("transfer --optimizer AdmaW", "got 'AdmaW'", "Did you mean adamw"),
        ("transfer --scheme complete", "got 'complete'", "Did you mean completep or complete-dp?"),
        ("fit --lr lr", "TABLE is missing", "fit --help"),
        ("score certificate.json --lr lr", "TABLE is missing", "score --help"),
        ("fot", "no command 'fot'", "Did you mean `depthmup fit`?"),
        ("help tranfer", "no command 'tranfer'", "Did you mean `depthmup transfer`?"),
        ("completion klingon", "no completion for 'klingon'", "bash, zsh, tcsh, fish"),
        ("--verison", "no option '--verison'", "Did you mean --version?"),
        ("transfer --tune weight_decay", "such as --lr 0.003", "weight decay depends"),
        ("rules --base batch=4 --target batch=8", "steps or tokens next to", "such as steps=1000"),
    ],
)
def test_an_error_and_its_hint_stand_in_lines_of_their_own(words, error, hint, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")] if words.startswith("transfer --") else []
    words = words.split()
    with pytest.raises(SystemExit, match="2"):
        sys.exit(main([words[0], *out, *words[1:]]))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert second.startswith("hint: ")
    assert hint in second
    assert not (tmp_path / "out").exists()


def test_colour_is_for_terminals_without_no_color(monkeypatch, capsys):
    from depthmup.cli import output

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.show("Depth-muP: transfers")
    assert capsys.readouterr().out == "Depth-muP: \x1b[1;32mtransfers\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    output.show("Depth-muP: transfers")
    assert capsys.readouterr().out == "Depth-muP: transfers\n"


def test_sentences_fit_a_terminal_and_commands_stay_whole(monkeypatch, capsys):
    from depthmup.cli import output

    monkeypatch.setattr(output, "terminal_width", lambda stream=None: 40)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    sentence = "This is a sentence of more than forty letters, which a terminal would cut."
    command = "    depthmup transfer --command 'python train.py' --depths 2,4,8"
    row = "depth-mup  0.15  0.13  0.12  0.12  0.13  −4%  0.019  transfers"
    output.show("\n".join([sentence, f"Copy this: {command.strip()}", command, row]))
    one, two, *whole = capsys.readouterr().out.splitlines()
    assert max(len(one), len(two)) <= 40
    assert f"{one} {two}" == sentence
    assert whole == [f"Copy this: {command.strip()}", command, row]


def test_whoever_stops_reading_is_told_of_by_the_status():
    words = [sys.executable, "-m", "depthmup", "help", "transfer"]
    command = shlex.join(words) + " | head -1 >&2; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert done.returncode in (0, UNREAD)  # 0: the pipe took all before the reader ended
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (UNREAD, b"")


def test_a_message_cannot_command_a_terminal(capsys):
    assert main(["report", "/nowhere/\x1b[2Jx"]) == REFUSED
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert r"\x1b[2J" in told


NAMES = ["random.py", "types.py", "my.model.py", "torch.py", "a b.py"]
MAKE_ALL = """
import sys
from depthmup.model import find_function
for reference in sys.argv[1:]:
    make = find_function(reference)
    assert len(make(width=8, depth=2)) == 4 and make.__module__.startswith("_depthmup_file_")
import random, types, torch
assert random.random and types.FunctionType and torch.nn
"""


def test_files_of_any_name_are_loaded_and_replace_nothing(own):
    references = [own(name=name) for name in NAMES]
    subprocess.run([sys.executable, "-c", MAKE_ALL, *references], check=True, timeout=600)


@pytest.mark.long
def test_a_file_of_another_modules_name_is_loaded_in_workers(own, tmp_path):
    model, out = own(name="torch.py"), tmp_path / "out"
    words = [*TINY, "--executor", "processes"]
    assert main(["transfer", "--model", model, *words, "--out", str(out)]) == 0
    assert (out / "report.html").exists()


NOISY = """
import os
print("from the file")
_make = make
def make(width, depth):
    print("from Python")
    os.write(1, b"from C\\n")
    return _make(width, depth)
"""


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_json_alone_on_stdout_whatever_a_persons_code_prints(own, tmp_path, workers):
    model = own(more=NOISY)
    words = [w if w != "1" else str(workers) for w in TINY]
    done = depthmup("transfer", "--model", model, *words, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert {"schemes", "config"} <= json.loads(done.stdout).keys()
    for text in ("from the file", "from Python", "from C"):
        assert text in done.stderr


def test_json_alone_in_this_process(own, capsys):
    model = own(more=NOISY)
    words = ["--widths", "8", "--depths", "2", "4", "8", "--seeds", "2", "--json"]
    main(["check", "--model", model, *words])
    told = capsys.readouterr()
    assert "exponents" in json.loads(told.out)
    assert "from Python" in told.err


UNGUARDED = """
import depthmup
print("started")
design = depthmup.Design(base={"width": 16, "depth": 2}, depth=(2, 4), lrs=[2**-6, 2**-5], steps=4,
                         seeds=2, schemes="depth-mup")
depthmup.transfer(depthmup.BuiltIn(), design,
                  on=depthmup.Execution(workers=1, executor="processes"))
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["no guard", "an error of its own"])
def test_a_script_that_workers_cannot_run_again_is_told_so(tmp_path, how):
    script = tmp_path / "script.py"
    text = UNGUARDED
    if how != "no guard":
        text = (
            "import sys\nif sys.argv[1:] != ['again']: sys.argv.append('again')\nelse: 1 / 0\n"
            + text
        )
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, cwd=tmp_path
    )
    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr
    assert "out of memory" not in done.stderr


REFUSALS = {
    "two names of one scheme": ["--schemes", "depth-mup", "0.5,0.5"],
    "a rate beyond sense": ["--lrs", "1e200", "1e201"],
    "an exponent beyond sense": ["--schemes", "1e99999999,0"],
    "an exponent of many digits": ["--schemes", "1/" + "9" * 5000 + ",0"],
    "seeds beyond sense": ["--seeds", "100000000000"],
    "no threads": ["--threads", "0"],
    "threads beyond sense": ["--threads", "100000"],
    "a target beyond sense": [
        *("--lrs", "0.00390625", "0.0078125", "0.015625", "0.03125", "--depths", "2", "4", "8"),
        *("--target", "width=16", "depth=1" + "0" * 400),
    ],
    "an unknown device": ["--device", "tpu-9"],
    "a device that is not there": ["--device", "cuda:99"],
    "TensorBoard in a file": ["--log", "tensorboard:/dev/null/x"],
}


@pytest.mark.parametrize("words", REFUSALS.values(), ids=REFUSALS)
def test_what_can_be_refused_is_refused_first_and_leaves_nothing(own, tmp_path, words, capsys):
    command = ["transfer", "--model", own(), *TINY, "--out", str(tmp_path / "out" / "deep")]
    assert main([*command, *words]) == REFUSED
    assert "Traceback" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py"] in (
        [],
        ["__pycache__"],
    )


def test_a_loss_that_is_not_finite_at_the_start_is_refused(own, tmp_path, capsys):
    model = own(more="\ndef loss(outputs, targets):\n    return outputs.mean() * float('nan')\n")
    assert main(["transfer", "--model", model, *TINY, "--out", str(tmp_path / "out")]) == REFUSED
    assert "finite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lr", ["nan", "inf", "-1", "0"])
def test_check_refuses_a_learning_rate_that_is_none(own, lr, capsys):
    words = ["--widths", "8", "--depths", "2", "4", "8", "--seeds", "2", "--lr", lr]
    assert main(["check", "--model", own(), *words]) == REFUSED
    assert "lr" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["report.html", "summary.json", "results.sqlite"])
def test_a_folder_in_the_way_of_a_result_is_refused_first(own, tmp_path, name, capsys):
    (tmp_path / "out" / name).mkdir(parents=True)
    assert main(["transfer", "--model", own(), *TINY, "--out", str(tmp_path / "out")]) == REFUSED
    assert "there is a folder of that name" in capsys.readouterr().err


@pytest.mark.long
def test_a_path_that_is_no_utf8(own, tmp_path):
    out = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff")
    assert main(["transfer", "--model", own(), *TINY, "--out", out]) == 0
    assert os.path.exists(os.path.join(out, "report.html"))


@pytest.mark.long
def test_a_factory_that_hangs_is_stopped_in_the_driver_too(own, tmp_path, monkeypatch, capsys):
    """What is no training has the limit of a run, and a minute at least."""
    monkeypatch.setattr(time_limit, "LOADING", 2.0)
    model = own(MAKE, MAKE + "    import time; time.sleep(1000)\n")
    words = ["--trial-seconds", "1", "--out", str(tmp_path / "out")]
    assert main(["transfer", "--model", model, *TINY[:-5], *TINY[-3:], *words]) == REFUSED
    assert "was stopped after 2 s" in capsys.readouterr().err


def test_next_takes_each_axis_once(tmp_path, capsys):
    table = tmp_path / "runs.csv"
    table.write_text("depth,layers,lr,loss\n8,8,0.1,1.0\n")
    assert main(["next", str(table), "--axes", "depth=depth", "depth=layers"]) == 2
    assert "depth stands twice" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".", "..", "a..b", ".mine", "a b"])
def test_a_name_that_no_module_can_have(name, tmp_path, capsys):
    words = ["transfer", "--model", f"{name}:make", *TINY, "--out", str(tmp_path / "out")]
    assert main(words) == REFUSED
    assert "Expected a module such as mine" in capsys.readouterr().err


def test_a_link_to_nothing_is_named(own, tmp_path, capsys):
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    assert main(["transfer", "--model", own(), *TINY, "--out", str(tmp_path / "out")]) == REFUSED
    assert re.search(r"is a link to .*gone, which does not exist", capsys.readouterr().err)


def test_python_without_docstrings_draws_pages(tmp_path):
    code = "from depthmup import reports; print(reports.page(reports.example_study())[:15])"
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code], capture_output=True, text=True, timeout=600
    )
    assert done.stdout.lower().startswith("<!doctype html>"), done.stderr


@pytest.mark.parametrize("verb", ["check", "predict"])
def test_a_result_that_cannot_be_written_was_printed_before(verb, own, tmp_path, capsys):
    """A full disk costs the page, not what minutes of training found."""
    words = {
        "check": ["--widths", "8", "--depths", "2", "4", "8", "--seeds", "2", "--steps", "1"],
        "predict": ["--base", "16x2", "--depths", "4", "--seeds", "2"],
    }[verb]
    out = tmp_path / "page.html"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9999, before[1]))
    try:
        status = main([verb, "--model", own(), *words, "--out", str(out)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == REFUSED
    told = capsys.readouterr()
    assert f"error: {out}: File too large.\nhint: This account may write" in told.err
    assert "Depth-muP" in told.out
    assert [file.name for file in tmp_path.iterdir()] == ["mine_refused.py"]


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free some"), (errno.EMFILE, "ulimit")]
)
def test_errors_of_the_system_tell_what_to_do(number, remedy):
    said = refusals._text(OSError(number, os.strerror(number), "runs/page.html"))
    assert said.startswith(f"runs/page.html: {os.strerror(number)}. ")
    assert remedy in said


def test_one_refusal_of_a_table_names_all_that_is_unnamed(tmp_path, monkeypatch, capsys):
    """Columns, then settings, then metadata came one refusal at a time."""
    monkeypatch.chdir(tmp_path)
    lines = ["n_layers,opt,scheme,lr,seed,final_loss,gpu"]
    for depth, opt, scheme, k, seed in product((2, 4, 8), "ab", ("sp", "mup"), range(5), range(2)):
        loss = 2 + 0.05 * (k - 2 + (opt == "a") * 0.3) ** 2 + 1e-3 * seed
        lines.append(f"{depth},{opt},{scheme},{2.0 ** (k - 9)},{seed},{loss},{(k + seed) % 2}")
    Path("runs.csv").write_text("\n".join(lines))
    for given in ([], ["--axes", "depth=n_layers"], ["--lr", "lr"]):
        assert main(["fit", "runs.csv", *given]) == 2
        _, _, command = capsys.readouterr().err.partition("Most likely: depthmup ")
        words = shlex.split(command)
        assert words[-5:] == ["--by", "opt", "scheme", "--ignore", "gpu"]
        assert main(words) == 0
        capsys.readouterr()
