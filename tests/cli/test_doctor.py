"""``depthmup doctor``: it names the engine that is in use, and why."""

import json

import pytest

from depthmup.cli import main
from depthmup.training import engine_for


def test_it_names_the_engine_and_the_hardware(capsys, monkeypatch):
    monkeypatch.delenv("DEPTHMUP_ENGINE", raising=False)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    chosen = engine_for()
    assert (found["engine"], found["why"]) == (chosen.name, chosen.why)
    assert {"depthmup", "python", "torch", "processor", "cores", "compiler", "cache"} <= set(found)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert chosen.why in out
    assert found["processor"] in out
    assert "speed not measured" in found["on cuda"]


def test_it_says_when_an_engine_was_forced(capsys, monkeypatch):
    monkeypatch.setenv("DEPTHMUP_ENGINE", "stacked")
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine"], found["why"]) == ("stacked", "DEPTHMUP_ENGINE=stacked")


@pytest.mark.parametrize("value", ["cuda", "NATIVE"])
def test_an_engine_that_does_not_exist_is_an_error(value, capsys, monkeypatch):
    monkeypatch.setenv("DEPTHMUP_ENGINE", value)
    assert main(["doctor"]) == 2
    assert f"got '{value}'" in capsys.readouterr().err
