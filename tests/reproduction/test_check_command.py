"""``depthmup limit --check``: networks of growing size against the limit."""

import json

import pytest

from depthmup.cli import main
from reproduction import check_command

SMALL = ["--steps", "3", "--batch-size", "2"]


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--block-depth", "2", "--scheme", "completep"]])
def test_check_finds_the_slopes_of_the_theory(options, capsys, monkeypatch):
    monkeypatch.setattr(check_command, "WIDTHS", check_command.WIDTHS[:-1])
    assert main(["limit", *SMALL, "--check", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("schema") == 1
    assert [each["expected"] for each in found.values()] == [-0.5, -0.5, -1.0]
    assert all(each["agrees"] for each in found.values())
