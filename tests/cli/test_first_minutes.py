"""What a newcomer types first: bare command, version, typos, commas, other code pages."""

import os
import subprocess
import sys

import pytest

from depthmup import __version__
from depthmup.cli import main
from depthmup.cli.main import VERBS, parse
from depthmup.cli.overview import EXAMPLES, GROUPS
from depthmup.cli.spelling import with_commas
from depthmup.cli.transfer import Options


def test_the_bare_command_shows_the_commands_in_80_columns(capsys):
    assert main([]) == 2
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert max(map(len, bare.splitlines())) <= 80


def test_the_overview_has_every_command():
    commands = {name for group in GROUPS.values() for name in group}
    assert commands == {*VERBS, "completion"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_are_commands(example):
    program, *words = example.split()
    assert program == "depthmup"
    parse(words)


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_the_version(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out == f"depthmup {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("tranfer", "transfer"), ("Plan", "plan"), ("limits", "limit")]
)
def test_a_typo_of_a_command_gets_a_suggestion(typed, meant, capsys):
    assert main([typed]) == 2
    assert f"Did you mean `depthmup {meant}`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--depths 8,16,32", "--depths 8 16 32"),
        ("--depths=8,16", "--depths 8 16"),
        ("--log2-lrs -9,-7.5,-6", "--log2-lrs -9 -7.5 -6"),
        ("--scheme sp,depth-mup 3/4,1/4", "--scheme sp depth-mup 3/4,1/4"),
        ("--schemes 1/2,1/2", "--schemes 1/2,1/2"),
        ("--base width=64,depth=4", "--base width=64,depth=4"),
        ("--out a,b", "--out a,b"),
    ],
)
def test_lists_with_commas(typed, words):
    assert with_commas(typed.split(), Options) == words.split()


def test_completion_of_the_shell(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["completion", "bash"])
    assert ended.value.code in (0, None)
    assert "complete -F" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_code_pages_without_a_minus_sign(encoding):
    """The words of a table, through the streams of a process of its own."""
    code = (
        "from depthmup.cli.output import show_everywhere; show_everywhere();"
        "print('\\u22128.48 [\\u22120.26, \\u221e] \\u03b1 \\u4e2d')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode(encoding).strip() == "-8.48 [-0.26, inf] alpha \\u4e2d"
