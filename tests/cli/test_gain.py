"""Gains from the command line: variants of one sweep, two models, and exit statuses."""

import json
import sys
import textwrap

import pytest

import depthmup.sweep
from depthmup.cli.main import main
from depthmup.cli.refusals import FAILS, HOLDS, UNDECIDED

FACTORY = """
    import torch
    from torch import nn

    class Block(nn.Linear):
        def forward(self, x):
            return x + super().forward(x).{activation}()

    def make(width, depth):
        blocks = (Block(width, width) for _ in range(depth))
        return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))

    def batch(generator):
        x = torch.randn(32, 8, generator=generator)
        return x, x[:, :4].argmax(-1)
"""

COMMAND = """
    import math, sys, zlib
    *numbers, out = sys.argv[1:]
    lr, depth, seed = map(float, numbers)
    away = math.log2(lr / 4e-3)
    noise = 1e-3 * math.sqrt(2) * math.sin(zlib.crc32(f"{lr} {seed} {depth}".encode()))
    loss = math.exp({level} + 0.05 * away**2 + noise)
    open(out + "/loss.txt", "w").write(str(loss))
"""
GRID = ("--base", "depth=2", "--depths", "2,4,8", "--workers", "1", "--loss", "{out}/loss.txt")


def commands(tmp_path, monkeypatch, **levels):
    monkeypatch.chdir(tmp_path)
    for name, level in levels.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(COMMAND).replace("{level}", level))
    return {
        name: f"{sys.executable} -I -S {name}.py {{lr}} {{depth}} {{seed}} {{out}}"
        for name in levels
    }


@pytest.mark.parametrize(
    ("gain", "status"),
    [("0.1", HOLDS), ("0.1 / depth**2", FAILS), ("0.0001", UNDECIDED)],
)
def test_the_exit_status_is_that_of_the_gain(gain, status, tmp_path, monkeypatch, capsys):
    found = commands(tmp_path, monkeypatch, new=f"1.0 - {gain}", old="1.0")
    words = ["transfer", "--command", found["new"], "--over", found["old"], *GRID, "--out", "r"]
    words += ["--lrs", "1e-3,2e-3,4e-3,8e-3,1.6e-2", "--seeds", "2", "--json"]
    assert main([*words, "--fail-unless", "holds"]) == status
    said = json.loads(capsys.readouterr().out)
    assert [(g["of"], g["over"]) for g in said["gains"]] == [("new", "old")]
    assert {path.name for path in (tmp_path / "r").iterdir()} >= {"new", "old", "report.html"}


def test_two_models_are_one_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, activation in (("new", "tanh"), ("old", "relu")):
        text = textwrap.dedent(FACTORY).replace("{activation}", activation)
        (tmp_path / f"{name}.py").write_text(text)
    words = ["transfer", "--model", "new.py:make", "--over", "old.py:make", "--base", "8x1"]
    words += ["--depths", "1,2", "--lrs", "1e-3,4e-3,1.6e-2,.064,.25", "--seeds", "1"]
    words += ["--steps", "30"]
    assert main([*words, "--workers", "1", "--out", "r"]) == 0
    out = capsys.readouterr().out
    assert "new over old: " in out
    # Finished runs are not repeated.
    with depthmup.sweep.Store(tmp_path / "r" / "new" / "results.sqlite") as store:
        trained = len(store)
    assert main([*words, "--workers", "1", "--out", "r"]) == 0
    with depthmup.sweep.Store(tmp_path / "r" / "new" / "results.sqlite") as store:
        assert len(store) == trained == 10


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--over", "sgd"], "got 'sgd'"),
        (["--fail-unless", "holds"], "Expected --over"),
    ],
)
def test_a_gain_that_cannot_be_is_refused_before_training(words, says, tmp_path, capsys):
    asked = ["transfer", "--preset", "tiny", "--schemes", "sp", "depth-mup", "--out"]
    assert main([*asked, str(tmp_path / "r"), *words]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_search_for_a_gain_ends_when_it_is_clear(tmp_path):
    """SP and Depth-muP are one at the base; Depth-muP's lead below is clear with few seeds."""
    words = ["transfer", "--preset", "tiny", "--schemes", "sp", "depth-mup", "--depths", "8,16"]
    words += ["--over", "sp", "--workers", "1", "--steps", "60", "--out", str(tmp_path / "r")]
    assert main(words) == 0
    said = json.loads((tmp_path / "r" / "summary.json").read_text())
    [gain] = said["gains"]
    ended = said["search"]["ended"]
    clear = gain["verdict"] != "undecided"
    assert clear == any("is decided" in why for why in ended.values())
    assert clear or all("every run that could be asked for" in why for why in ended.values())


def test_folders_are_compared_over_one_of_them(tmp_path, monkeypatch, capsys):
    found = commands(tmp_path, monkeypatch, new="1.0 - 0.1", old="1.0")
    grid = ["--lrs", "1e-3,2e-3,4e-3,8e-3,1.6e-2", "--seeds", "2"]
    for name, command in found.items():
        assert main(["transfer", "--command", command, *GRID, *grid, "--out", name]) == 0
    capsys.readouterr()
    assert main(["report", "new", "--over", "old", "--out", "c.html"]) == 0
    assert "new over old: gain 9.5% at depth 2" in capsys.readouterr().out.replace("9.4%", "9.5%")
