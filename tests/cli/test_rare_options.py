"""Options that few examples show, each on the command line."""

import csv
import json
import re
from io import StringIO

import pytest

from depthmup.cli import main

MODEL = """
from pathlib import Path

import torch
from torch import nn


class Block(nn.Linear):
    def forward(self, x):
        return x + super().forward(x).relu()


def make(width, depth):
    return nn.Sequential(
        nn.Linear(4, width), *(Block(width, width) for _ in range(depth)), nn.Linear(width, 3)
    )


def on_meta(width, depth):
    assert torch.empty(0).device.type == "meta", "memory was taken"
    return make(width, depth)


def batch(generator):
    with open(Path(__file__).with_name("batches"), "a") as file:
        file.write("x")
    x = torch.randn(16, 4, generator=generator)
    return x, x[:, :3].argmax(-1)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    return f"{tmp_path}/mine.py:make"


@pytest.fixture
def planned(mine, capsys):
    """The command of a plan, and what it prints."""

    def call(*words, model="make"):
        named = mine.replace(":make", f":{model}")
        status = main(["plan", "--model", named, "--base", "16x2", "--target", "64x4", *words])
        return status, capsys.readouterr()

    return call


def test_check_prints_all_exponents(mine, capsys):
    call = ["check", "--model", mine, "--widths", "16,32,64", "--depths", "2", "--seeds", "2"]
    main(call)
    brief = capsys.readouterr().out
    main([*call, "--all"])
    whole = capsys.readouterr().out
    assert "\npass " not in brief
    assert "\nshown " not in brief
    assert "\npass " in whole
    assert "\nshown " in whole


def test_an_explicit_plan_folds_nothing(planned):
    assert "folded" in planned()[1].out
    explicit = planned("--explicit")[1].out
    assert "by hook" in explicit
    assert ", folded" not in explicit


def test_a_plan_on_meta_is_the_same_without_memory(planned):
    texts = (planned("--meta", model="on_meta")[1].out, planned()[1].out)
    # All but the proof, which needs values.
    meta, real = (re.split(r"(?m)^(?:Not proven|Proven)", text)[0] for text in texts)
    assert meta == real
    status, shown = planned(model="on_meta")
    assert status != 0
    assert "memory was taken" in shown.err


def test_the_epsilon_of_a_configuration_is_the_bases(planned):
    words = ("--format", "torchtitan", "--lr", "1e-3")
    usual, ten = (planned(*words, *more)[1].out for more in ((), ("--eps", "1e-7")))
    assert "'eps': 2.5e-09" in usual
    assert "'eps': 2.5e-08" in ten


@pytest.mark.parametrize(
    "words",
    [["--eps", "1e-7"], ["--lr", "1e-3"], ["--weight-decay", ".1"], ["--leave-out", "decay"]],
)
def test_values_of_a_configuration_ask_for_one(planned, words):
    status, shown = planned(*words)
    assert status == 2
    assert f"Expected --format with {words[0]}" in shown.err


def test_predict_averages_over_batches(mine, tmp_path, capsys):
    call = ["predict", "--model", mine, "--base", "16x2", "--depths", "4", "--seeds", "2"]
    drawn = tmp_path / "batches"
    counts = []
    for batches in (1, 4):
        drawn.unlink(missing_ok=True)
        assert main([*call, "--batches", str(batches), "--json"]) == 0
        counts.append(len(drawn.read_text()))
        json.loads(capsys.readouterr().out)
    assert counts[1] - counts[0] == 3 * 2 * 2  # more batches, sizes, seeds


@pytest.mark.parametrize(
    ("cost", "first"),
    [
        ([], ("4", "64")),
        (["depth=-1"], ("16", "64")),
        (["width=-1"], ("4", "256")),
        (["width=-1", "depth=-2"], ("16", "64")),
        (["width=-1,depth=-2"], ("16", "64")),
    ],
)
def test_next_begins_where_runs_are_cheap(tmp_path, capsys, cost, first):
    table = tmp_path / "runs.csv"
    table.write_text("depth,width,lr,loss\n")
    words = ["--axes", "depth", "width", "--sizes", "depth=4,8,16", "width=64,256"]
    assert main(["next", str(table), *words, *(["--cost", *cost] if cost else [])]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert {(row["depth"], row["width"]) for row in rows} == {first}


def test_next_knows_the_columns_of_the_example(capsys):
    words = ["width=64", "--where", "scheme == depth-mup"]
    assert main(["next", "example", "--sizes", "depth=8,16,32,64,128,256", *words]) == 0
    assert "n_layers,d_model,lr,seed" in capsys.readouterr().out
    assert main(["next", "example", "--sizes", "depth=8,16", *words]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "depth: drifts is decided after 3 seeds" in said.err
