"""Kinds of tables that people have, each refused once with a command that did not help, or misread.

Every refusal that proposes a command is followed to its end: it works as printed.
"""

import math
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from pytest import approx

import depthmup
from depthmup.cli import main

RATES = [2.0**k for k in range(-11, -4)]


def runs(groups, *, widths=(64, 128, 256), rates=RATES):
    """A run for each group, width and rate; ``groups`` are columns with their drift."""
    rows = []
    for columns, drift in groups:
        for width in widths:
            best = -8 + drift * math.log2(width / 64)
            for lr in rates:
                loss = 2 + 0.1 * (math.log2(lr) - best) ** 2
                rows.append({**columns, "width": width, "lr": lr, "loss": loss})
    return pd.DataFrame(rows)


def proposed(table, path, capsys, *words):
    """The command that a refusal prints, which is then run."""
    table.to_csv(path, index=False)
    asked = ["fit", str(path), "--axes", "width", "--lr", "lr", "--loss", "loss", *words]
    assert main(asked) == 2
    command = re.search(r"Most likely: depthmup (.*)", capsys.readouterr().err)[1]
    assert main(shlex.split(command)) == 0
    return shlex.split(command)[len(asked) :], capsys.readouterr().out


def test_a_choice_is_one_column_where_the_others_follow_within_its_groups(tmp_path, capsys):
    """``end_lr`` is 0 with a schedule and the rate without: it follows in each scheme alone."""
    schemes = {"std": (-0.5, False, False), "mup": (0.3, True, False), "mup+fix": (0.0, True, True)}
    table = runs(
        [
            ({"scheme": name, "schedule": schedule, "fixed": fixed, "clip": 1}, drift)
            for name, (drift, schedule, fixed) in schemes.items()
        ]
    )
    table["end_lr"] = np.where(table["schedule"], 0.0, table["lr"])
    options, said = proposed(table, tmp_path / "runs.csv", capsys)
    assert options == ["--by", "scheme"]
    assert "mup+fix" in said


def test_a_choice_leaves_runs_that_show_an_answer(tmp_path, capsys):
    """Each of three values stands in two thirds of the runs, and all of them in none."""
    table = runs([({}, -0.5)] * 3)
    kind, some = np.arange(len(table)) % 3, np.arange(len(table)) // 3 % 4
    for i, name in enumerate("abc"):
        rare = [f"{name}{k}" for k in some]
        table[name] = np.where(kind == i, rare, f"usual {name}")
    proposed(table, tmp_path / "runs.csv", capsys)


MENDLESS = {
    "one size": (runs([({"act": "a"}, 0), ({"act": "b"}, 1)], widths=(64,)), "two sizes or more"),
    "two rates": (
        runs([({"act": "a"}, 0), ({"act": "b"}, 1)], rates=RATES[:2]), "at least three values",
    ),
    "no rates": (runs([({}, 0)]).assign(lr=math.nan), "have no number in 'lr'"),
}  # fmt: skip


@pytest.mark.parametrize("name", MENDLESS)
def test_what_no_option_mends_is_said_first(name, tmp_path, capsys):
    table, message = MENDLESS[name]
    table.to_csv(tmp_path / "runs.csv", index=False)
    asked = ["--axes", "width", "--lr", "lr", "--loss", "loss"]
    assert main(["fit", str(tmp_path / "runs.csv"), *asked]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Most likely" not in said


def test_runs_of_one_size_are_told_which_columns_differ_like_sizes(tmp_path, capsys):
    table = runs([({}, -0.5)]).rename(columns={"width": "cfg.n_layer"}).assign(dim=48)
    table.to_csv(tmp_path / "runs.csv", index=False)
    words = ["fit", str(tmp_path / "runs.csv"), "--lr", "lr", "--loss", "loss", "--axes"]
    assert main([*words, "width=dim"]) == 2
    option = re.search(r"look like sizes: --axes (.*)\.\n", capsys.readouterr().err)[1]
    assert main([*words, *shlex.split(option)]) == 0


@pytest.mark.parametrize("ends", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("whole", [1, 100])
def test_an_accuracy_is_read_as_its_error(ends, whole, tmp_path, capsys):
    """The refusal names the option; the answer is that of the error as a column."""
    if ends == "parquet":
        pytest.importorskip("pyarrow")
    plain = runs([({}, -0.5)])
    plain["loss"] = whole * plain["loss"] / plain["loss"].max() * 0.9
    table = plain.assign(val_acc=whole - plain["loss"]).drop(columns="loss")
    path = tmp_path / f"runs.{ends}"
    write = {"csv": table.to_csv, "parquet": table.to_parquet}.get(ends)
    if write is None:
        table.to_json(path, orient="records", lines=True)
    else:
        write(path, index=False)
    words = ["fit", str(path), "--axes", "width", "--lr", "lr", "--loss"]
    assert main([*words, "val_acc"]) == 2
    assert "--loss 1-val_acc reads its error, 100- that of percent" in capsys.readouterr().err
    assert main([*words, f"{whole}-val_acc"]) == 0
    asked = {"axes": ["width"], "lr": "lr"}
    read = depthmup.fit(path, **asked, loss=f"{whole}-val_acc").exponent("width")
    assert read.value == approx(depthmup.fit(plain, **asked, loss="loss").exponent("width").value)


def test_a_column_that_is_called_as_an_error_stays_one():
    table = runs([({}, -0.5)]).rename(columns={"loss": "1-val_acc"})
    report = depthmup.fit(table.assign(val_acc=0.5), axes=["width"], lr="lr", loss="1-val_acc")
    assert report.exponent("width").value == approx(-0.5, abs=0.02)


def test_a_named_column_that_is_not_there_is_told_with_all_that_can_be_named(tmp_path, capsys):
    table = runs([({}, -0.5)]).rename(columns={"lr": "optim.lr", "width": "net.d_model"})
    table.to_csv(tmp_path / "runs.csv", index=False)
    assert main(["fit", str(tmp_path / "runs.csv"), "--lr", "lr", "--loss", "loss"]) == 2
    said = capsys.readouterr().err
    assert "--axes width=net.d_model --lr optim.lr" in said
    words = ["--axes", "width=net.d_model", "--lr", "optim.lr", "--loss", "loss"]
    assert main(["fit", str(tmp_path / "runs.csv"), *words]) == 0


def test_settings_in_names_of_runs_are_read_by_a_pattern_that_the_refusal_prints(tmp_path, capsys):
    """As an export has them where nobody chose columns of the configuration."""
    rows = []
    for width in (64, 128, 256):
        for lr in RATES:
            loss = 2 + 0.1 * (math.log2(lr) + 8 + 0.5 * math.log2(width / 64)) ** 2
            rows.append((f"net-{width}x2_{width // 32}gpus_lr{lr:.3g}_v1", loss))
    table = pd.DataFrame(rows, columns=["Name", "val/loss"])
    table.to_csv(tmp_path / "runs.csv", index=False)
    words = ["fit", str(tmp_path / "runs.csv"), "--loss", "val/loss"]
    assert main(words) == 2
    said = capsys.readouterr().err
    pattern = shlex.split(re.search(r"--names (.*) makes columns", said)[1])
    assert pattern == ["net-{width}x2_{a}gpus_lr{lr}_v1"]
    assert main([*words, "--names", *pattern, "--axes", "width", "--lr", "lr"]) == 0
    reading = depthmup.tables.Reading(names=pattern[0])
    report = depthmup.fit(table, axes=["width"], lr="lr", loss="val/loss", reading=reading)
    assert report.exponent("width").value == approx(-0.5, abs=0.02)
    nothing = depthmup.tables.Reading(names="w{width}")
    with pytest.raises(ValueError, match="that texts of a column fit"):
        depthmup.fit(table, axes=["width"], lr="lr", loss="val/loss", reading=nothing)
