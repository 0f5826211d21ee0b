"""docs/tutorials/csv.md, followed by its text: commands, refusals, printed lines."""

import re
import shlex
from pathlib import Path

import pytest

from depthmup.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "csv.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```([^\n]*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = [body for language, body in FENCES if not language]
COMMANDS = [
    line
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("depthmup")
]
ANSWERED, REFUSED = COMMANDS[:3], COMMANDS[3:]


def followed(command, capsys):
    status = main(shlex.split(command)[1:])
    return status, capsys.readouterr()


def test_the_page_has_the_commands():
    assert len(COMMANDS) == 5


def test_two_refusals_lead_to_the_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status, said = followed(REFUSED[0], capsys)
    assert status == 2
    proposed = re.search(r"Most likely: (depthmup fit .*)", said.err)[1]
    assert followed(proposed, capsys)[0] == 0
    status, said = followed(REFUSED[1], capsys)
    assert status == 2
    assert "'scheme'" in said.err
    assert "--by" in said.err


@pytest.mark.parametrize("command", ANSWERED)
def test_each_command_does_what_the_page_says(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status, said = followed(command, capsys)
    assert status == 0
    if "--target" in command:
        [printed] = [block for block in BLOCKS if not block.startswith("depthmup")]
        for line in printed.splitlines():
            assert line == "..." or line in said.out.splitlines(), line
    if "--out" in command:
        folder = tmp_path / "runs" / "fit"
        assert (folder / "report.html").stat().st_size > 10_000
        drift, interval = re.search(r"drifts by (\S+) \(([^)]*)\)", PAGE).groups()
        assert f"{drift} {interval}" in " ".join(said.out.split())
    if "--plot" in command:
        assert (tmp_path / "optima.svg").exists()
