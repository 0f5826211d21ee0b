"""Without a package that only some work needs, that work is refused with a command that helps."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from depthmup.records.packages import EXTRAS, pip

EXTRA_NAMES = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))[
    "project"
]["optional-dependencies"]

HIDDEN = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {names} else real(name, *rest)
sys.meta_path.insert(0, Hidden())
from depthmup.cli import main
sys.exit(main({words}))
"""


def hidden(names, words, folder):
    return subprocess.run(
        [sys.executable, "-c", HIDDEN.format(names=set(names), words=words)],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("prefix", "activated", "expected"),
    [
        ("/usr", "", "pip"),
        ("/home/me/.venv", "/home/me/.venv", "pip"),
        ("/home/me/.venv", "", "/home/me/.venv/bin/python -m pip"),
        ("/home/me/.venv", "/home/me/other", "/home/me/.venv/bin/python -m pip"),
    ],
)
def test_what_is_missing_is_installed_where_it_is_missing(prefix, activated, expected, monkeypatch):
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "executable", "/home/me/.venv/bin/python")
    monkeypatch.setenv("VIRTUAL_ENV", activated)
    assert pip() == expected


def test_extras_that_messages_name_exist():
    assert set(EXTRAS.values()) <= set(EXTRA_NAMES)


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["transfer", "--preset", "tiny", "--out", "runs"], "vl_convert"),
        (["fit", "runs.csv", "--axes", "depth=depth", "--lr", "lr", "--loss", "loss"], "pandas"),
        (["limit", "--out", "limit.html"], "vl_convert"),
        (["check", "--model", "no_such_file.py:make", "--out", "check.html"], "vl_convert"),
    ],
)
def test_work_is_refused_with_the_command_that_installs(words, missing, tmp_path):
    (tmp_path / "runs.csv").write_text("depth,lr,loss\n2,0.1,1\n")
    done = hidden([missing], words, tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'depthmup[{EXTRAS[missing]}]'" in done.stderr
    # Before any training, and before any limit is solved.
    assert {path.name for path in tmp_path.iterdir()} <= {"runs.csv", "runs"}
    assert not list(tmp_path.glob("runs/*.sqlite"))


def test_planning_needs_none_of_them(tmp_path):
    code = "import depthmup, sys; depthmup.plan; depthmup.check; depthmup.transfer"
    code += f"; assert not {set(EXTRAS)} & set(sys.modules), sys.modules.keys() & {set(EXTRAS)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
