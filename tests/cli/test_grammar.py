"""Hints are in the grammar of where they are shown: options on the command line, else Python."""

import re

import pandas as pd
import pytest

import depthmup
from depthmup import Auto, Design
from depthmup.cli import main
from depthmup.sweep.built_in import BuiltIn

# A call, a keyword with a value, or a dict of Python.
PYTHON = re.compile(r"Design\(|Auto\(|\b[a-z_]+=[({'\"]|\b(lrs|values|axes|sizes|reading|depths)=")
MAKE = """\
import torch
from torch import nn

def make(width, depth, experts=1):
    return nn.Sequential(nn.Linear(4, width), *[nn.Linear(width, width) for _ in range(depth)])

def batch(generator):
    return torch.randn(8, 4, generator=generator), torch.zeros(8, dtype=torch.long)
"""
TABLE = "depth,learning_rate,val_loss\n" + "".join(
    f"{d},{r},1.0\n" for d in (2, 4) for r in (1, 2, 4)
)
WIDE = "lr,w64,w128,w256\n" + "".join(f"{r},1.0,1.1,1.2\n" for r in (0.1, 0.2, 0.4))
EXPERTS = ("--base", "width=32", "depth=2", "experts=2")
COMMAND = ("transfer", "--command", "train {lr} {depth} {seed} {scheme}", "--loss", "re:(.*)")
OWN = ("transfer", "--model", "grammar.py:make")
SHOWN = {
    "one size": ((*OWN, "--base", "32x2"), "--depths 4,8,16"),
    "a target beyond": (
        (*OWN, "--base", "32x2", "--depths", "2,4", "--target", "width=64", "depth=8"),
        "Vary it, such as --widths 32,64,128",
    ),
    "a target beyond along another axis": (
        (*OWN, *EXPERTS, "--depths", "2,4", "--target", "experts=8"),
        "Vary it, such as --along experts=2,4,8",
    ),
    "an axis without a start": ((*OWN, "--base", "32x2", "--along", "experts=1,2"), "--base exp"),
    "a budget too small": (("transfer", "--preset", "tiny", "--budget", "2"), "--lrs ..."),
    "values of rates": (
        ("transfer", "--preset", "tiny", "--lrs", "1,2", "--values", "1,2"),
        "--values",
    ),
    "a rate while another is tuned": (("transfer", "--tune", "multiplier"), "--lr 0.003"),
    "schemes of a command": (
        (*COMMAND, "--base", "depth=2", "--depths", "2,4"),
        "--schemes sp completep",
    ),
    "a table without axes": (
        ("fit", "table.csv"),
        "--axes depth --lr learning_rate --loss val_loss",
    ),
    "a table without a rate": (
        ("fit", "table.csv", "--axes", "depth", "--loss", "val_loss"),
        "--lr learning_rate",
    ),
    "a wide table": (("fit", "wide.csv", "--axes", "width", "--lr", "lr"), "--wide width --lr lr"),
    "no sizes of next runs": (
        ("next", "table.csv", "--axes", "depth", "--lr", "learning_rate", "--loss", "val_loss"),
        "--sizes depth=4,8,16",
    ),
    "a forecast of one size": (
        ("predict", "--model", "grammar.py:make", "--base", "32x2"),
        "--depths 8,16,32",
    ),
}


@pytest.mark.parametrize(("words", "option"), SHOWN.values(), ids=SHOWN)
def test_a_hint_on_the_command_line_is_an_option(tmp_path, monkeypatch, capsys, words, option):
    monkeypatch.chdir(tmp_path)
    for name, text in (("grammar.py", MAKE), ("table.csv", TABLE), ("wide.csv", WIDE)):
        (tmp_path / name).write_text(text)
    assert main([*words, *(("--out", "out") if words[0] == "transfer" else ())]) == 2
    told = capsys.readouterr().err.replace("\n", " ")
    assert option in told
    assert not PYTHON.search(told), told


def program(kind):
    """The same mistakes in Python."""
    if kind == "a table":
        return depthmup.fit(pd.DataFrame({"depth": [2, 4], "lr": [0.1, 0.2], "loss": [1.0, 1.0]}))
    sizes = {"lrs": Auto(runs=2), "depth": (8, 16)} if kind == "a budget" else {}
    return depthmup.transfer(BuiltIn(), Design(base="32x8", **sizes))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("one size", "Design(..., depth=(4"),
        ("a table", "axes={'depth': '"),
        ("a budget", "lrs=..."),
    ],
)
def test_a_hint_to_a_program_is_python(kind, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(shown)) as caught:
        program(kind)
    assert " --" not in str(caught.value)
