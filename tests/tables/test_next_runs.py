"""Which runs a table needs next: by the function and by the command."""

import csv
import itertools
import json
import math
import re
import shlex
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from pytest import approx

import depthmup
from depthmup.cli.main import main
from depthmup.tables.cells import to_numbers
from depthmup.tables.columns import propose

SIZES = {"depth": (4, 8, 16, 32)}
NAMES = {"axes": {"depth": "layers"}, "lr": "lr", "loss": "loss", "seed": "seed"}


def trained(row, drift=0.0):
    """The loss of a run that was proposed; every run's own noise follows from what it is."""
    k = math.log2(row["lr"])
    own = np.random.default_rng([row["layers"], row["seed"], round(1e4 * -k)])
    away = k + 6.3 - drift * math.log2(row["layers"] / 4)
    return math.exp(0.07 * away**2 + 0.009 * own.standard_normal() + 0.02 * row["seed"])


@pytest.mark.parametrize(("drift", "verdict"), [(0.0, "transfers"), (-0.8, "drifts")])
def test_asked_again_and_again_a_table_comes_to_its_verdict(tmp_path, drift, verdict):
    """Through a file that a person's own trainer appends to, from its header alone."""
    path = tmp_path / "runs.csv"
    path.write_text("layers,lr,seed,loss\n")
    for _ in range(40):
        proposal = depthmup.next_runs(path, sizes=SIZES, **NAMES)
        if not proposal.rows:
            break
        with path.open("a") as file:
            for row in proposal.rows:
                values = (row["layers"], row["lr"], row["seed"], trained(row, drift))
                print(*values, sep=",", file=file)
    runs = pd.read_csv(path)
    assert verdict in proposal.why
    assert not runs.duplicated(["layers", "lr", "seed"]).any()
    assert len(runs) < 8 * 4 * 4
    assert runs["layers"].max() <= 32


def test_a_grid_that_exists_is_where_the_search_goes_on():
    """Two sizes are done: the third is asked for at the optimum that they predict."""
    rows = [
        {"layers": n, "lr": 2.0**k, "seed": s}
        for n in (4, 8)
        for k in range(-9, -3)
        for s in (7, 3)
    ]
    table = pd.DataFrame([{**row, "loss": trained(row, -0.5)} for row in rows])
    proposal = depthmup.next_runs(table, sizes=SIZES, **NAMES)
    assert {row["layers"] for row in proposal.rows} == {16}
    assert {row["seed"] for row in proposal.rows} == {7, 3}
    asked = sorted({math.log2(row["lr"]) for row in proposal.rows})
    assert len(asked) == 3
    assert abs(asked[1] + 7.3) < 0.3


HALF_DECADES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
SERIAL = itertools.count(839)


def asked_until_done(rows, changed):
    """The last answer, where each run comes back as a person's trainer logs it."""
    for _ in range(20):
        proposal = depthmup.next_runs(pd.DataFrame(rows), sizes=SIZES, **NAMES)
        if not proposal.rows:
            break
        rows += [{**row, "loss": trained(row, -0.5)} | changed(row) for row in proposal.rows]
    return proposal


@pytest.mark.parametrize("layers", [(4,), (4, 8, 16)])
@pytest.mark.parametrize("grid", [HALF_DECADES, (0.001, 0.002, 0.005, 0.01, 0.02, 0.05), (0.01,)])
def test_rates_of_a_persons_own_grid_do_not_end_the_search(grid, layers):
    """Its rates lie beside the grain's: what was asked for between them must count once made."""
    rows = [{"layers": n, "lr": rate, "seed": 0} for n in layers for rate in grid]
    rows = [{**row, "loss": trained(row, -0.5)} for row in rows]
    proposal = asked_until_done(rows, lambda row: {})
    assert not proposal.rows
    assert "drifts is decided" in proposal.why


@pytest.mark.parametrize(
    "logged",
    [
        lambda row: {"lr": float(f"{row['lr']:.2g}")},
        lambda row: {"lr": float(f"{row['lr']:.3g}")},
        lambda row: {"seed": next(SERIAL)},
    ],
    ids=["rates of two digits", "rates of three digits", "a seed of its own for each run"],
)
def test_what_trainers_log_in_their_own_way_is_what_was_asked_for(logged):
    proposal = depthmup.next_runs(
        pd.DataFrame(columns=["layers", "lr", "seed", "loss"]), sizes=SIZES, **NAMES
    )
    rows = [{**row, "loss": trained(row, -0.5)} | logged(row) for row in proposal.rows]
    proposal = asked_until_done(rows, logged)
    assert not proposal.rows
    assert "drifts is decided" in proposal.why


def test_two_losses_of_one_run_are_told_and_averaged():
    rows = [{"layers": 4, "lr": 0.01, "seed": 0, "loss": loss} for loss in (2.0, 2.5, 2.5)]
    why = depthmup.next_runs(pd.DataFrame(rows), sizes=SIZES, **NAMES).why
    assert "1 run stands there twice, with different losses of one seed" in why
    assert "twice" not in depthmup.next_runs(pd.DataFrame(rows[1:]), sizes=SIZES, **NAMES).why


@pytest.mark.parametrize(
    "option",
    [
        {"start": 0.0},
        {"start": math.nan},
        {"start": math.inf},
        {"seeds": 0},
        {"seeds": 2.5},
        {"precision": math.nan},
        {"precision": -1.0},
        {"chance": 0.0},
        {"cost": {"depth": math.nan}},
        {"cost": {"depth": 1e6}},
    ],
)
def test_options_that_mean_nothing_are_refused(option):
    with pytest.raises(ValueError, match=f"Expected {next(iter(option))} as"):
        depthmup.next_runs(pd.DataFrame(), sizes=SIZES, **option, **NAMES)


def test_a_cost_of_no_axis_and_a_tolerance_that_is_none_are_refused():
    table = pd.DataFrame([{"layers": 4, "lr": 0.1, "seed": 0, "loss": 1.0}])
    with pytest.raises(ValueError, match="Expected cost for the axes depth; got dpeth"):
        depthmup.next_runs(table, sizes=SIZES, cost={"dpeth": 1}, **NAMES)
    with pytest.raises(ValueError, match="Expected axes as names of axes with their columns"):
        depthmup.next_runs(table, sizes=SIZES, **{**NAMES, "axes": {"depth": 1}})
    with pytest.raises(ValueError, match="Expected a positive tolerance"):
        depthmup.next_runs(table, sizes=SIZES, tolerance=math.nan, **NAMES)


def test_runs_without_a_result_are_asked_for_and_those_that_diverged_are_not():
    first = depthmup.next_runs(
        pd.DataFrame(columns=["layers", "lr", "seed", "loss"]), sizes=SIZES, **NAMES
    )
    done = pd.DataFrame([{**row, "loss": trained(row)} for row in first.rows])
    done.loc[done["lr"] > 0.05, "loss"] = math.inf
    proposal = depthmup.next_runs(done, sizes=SIZES, **NAMES)
    assert all(row["layers"] == 4 and row["seed"] == 1 for row in proposal.rows)
    texts = StringIO(done.to_csv(index=False))
    assert len(list(csv.DictReader(texts))) == len(first.rows)


def test_the_command_prints_rows_of_the_same_table(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text("layers,lr,seed,loss\n4,0.01,0,1.5\n")
    asked = [
        "next",
        str(path),
        "--axes",
        "depth=layers",
        "--sizes",
        "depth=4,8,16",
        "--seed",
        "seed",
    ]
    assert main(asked) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert {row["layers"] for row in rows} == {"4"}
    assert main([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [str(run["lr"]) for run in printed["runs"]] == [row["lr"] for row in rows]
    assert "depth 4" in printed["why"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"width": (4, 8)}, "with positive numbers for depth, such as sizes=.*; got {'w"),
        ({"depth": (4,)}, "two values or more"),
        *[
            ({"depth": values}, "Expected sizes with positive numbers")
            for values in ((0, 4), (4, math.nan), (4, 10**400), ("4", "8"), "48", 8, (True, 4))
        ],
    ],
)
def test_sizes_that_say_nothing_are_refused(sizes, message):
    table = pd.DataFrame([{"layers": 4, "lr": 0.1, "seed": 0, "loss": 1.0}])
    with pytest.raises(ValueError, match=message):
        depthmup.next_runs(table, sizes=sizes, **NAMES)


def test_runs_of_one_size_that_differ_in_a_setting_are_not_one_curve():
    """Two widths in one table: their optima would be averaged, and neither's be told."""
    rows = [
        {"layers": n, "width": w, "lr": 2.0**k, "seed": s}
        for n in (4, 8, 16, 32) for w in (64, 256) for k in range(-9, -3) for s in (0, 1)
    ]  # fmt: skip
    table = pd.DataFrame([{**row, "loss": trained(row, -0.5) * row["width"]} for row in rows])
    with pytest.raises(ValueError, match=r"Runs of one size differ in 'width'.*--ignore"):
        depthmup.next_runs(table, sizes=SIZES, **NAMES)
    narrow = table[table["width"] == 64]
    proposal = depthmup.next_runs(narrow, sizes=SIZES, **NAMES)
    noted = narrow.assign(rack=np.arange(len(narrow)) % 2)
    assert depthmup.next_runs(noted, sizes=SIZES, ignore="rack", **NAMES) == proposal


def test_losses_that_are_not_positive_are_refused():
    table = pd.DataFrame([{"layers": 4, "lr": 0.1, "seed": 0, "loss": -1.0}])
    with pytest.raises(ValueError, match="Expected positive losses"):
        depthmup.next_runs(table, sizes=SIZES, **NAMES)


def test_seeds_of_a_foreign_table_do_not_command_the_terminal(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    rows = [f"4,{2.0**k},\x1b[2Jseed,{2 + k**2}" for k in (-9, -8, -7)]
    path.write_text("layers,lr,seed,loss\n" + "\n".join(rows) + "\n")
    words = ["--axes", "depth=layers", "--sizes", "depth=4,8", "--seed", "seed"]
    assert main(["next", str(path), *words]) == 0
    said = capsys.readouterr()
    assert r"\x1b[2Jseed" in said.out
    assert "\x1b" not in said.out + said.err


def test_numbers_and_proposals_of_columns():
    assert to_numbers(pd.Series(["0.5", "", "nan"]), "loss")[0] == approx(
        [0.5, math.nan, math.inf], nan_ok=True
    )
    assert propose(["step", "config.n_layers", "lr", "eval_loss"]) == {
        "lr": "lr",
        "loss": "eval_loss",
        "depth": "config.n_layers",
    }
    odd = ["Optim/LR (peak)", "Final Val Loss", "trainer.seed", "params", "tokens [B]", "_step"]
    assert [*propose(odd).values()] == [*odd[:3], odd[4], odd[3], odd[5]]


def test_what_is_proposed_can_be_pasted(capsys, tmp_path):
    """Names of trackers have blanks and brackets."""
    table = tmp_path / "runs.csv"
    table.write_text("params,tokens (B),optim/lr (peak),Final Val Loss,_step\n")
    assert main(["fit", str(table)]) == 2
    proposed = re.search(r"look like it: (.*)\.$", capsys.readouterr().err, re.MULTILINE)[1]
    assert shlex.split(proposed) == [
        "--axes", "parameters=params", "tokens=tokens (B)", "--lr", "optim/lr (peak)", "--loss",
        "Final Val Loss",
    ]  # fmt: skip


def test_runs_that_a_tracker_s_count_of_steps_shows_to_be_cut_short(tmp_path, capsys):
    """Few runs took fewer steps: they are left out. As many of each number are a setting."""
    table, rows = tmp_path / "runs.csv", ["depth,lr,loss,_step"]
    for i, depth in enumerate((4, 8, 16)):
        for k in range(-12, -3):
            rows.append(
                f"{depth},{2.0**k},{2 + 0.1 * (k + 8) ** 2},{100 if k < -4 else 40 + i % 2}"
            )
    table.write_text("\n".join(rows))
    words = ["fit", str(table), "--axes", "depth", "--lr", "lr", "--loss", "loss"]
    assert main(words) == 0
    assert "3 runs took fewer steps than most of their size, by the column '_step'" in re.sub(
        r"\s+", " ", capsys.readouterr().out
    )
    assert main([*words, "--steps", "_step"]) == 0
    assert "3 runs were trained for another number of steps" in capsys.readouterr().out
    half = [row.replace(",100", f",{100 + 100 * (i % 2)}") for i, row in enumerate(rows)]
    table.write_text("\n".join(half))
    assert main(words) == 2
    assert "--steps _step finds runs that were cut short" in capsys.readouterr().err


def test_of_the_checkpoints_of_a_run_the_last_counts(tmp_path, capsys):
    """Also where a run was resumed, so that steps stand twice, and where one has fewer."""
    table, rows = tmp_path / "log.csv", ["width,lr,loss,_step"]
    for i, width in enumerate((64, 128, 256)):
        for k in range(-12, -3):
            for step in (100, 200, 300)[: 1 if (i, k) == (1, -7) else 3]:
                rows.append(f"{width},{2.0**k},{2 + 9 / step + 0.1 * (k + 8 + i) ** 2},{step}")
    table.write_text("\n".join(rows))
    words = ["fit", str(table), "--axes", "width", "--lr", "lr", "--loss", "loss"]
    for steps in ([], ["--steps", "_step"]):
        assert main([*words, *steps]) == 0
        said = re.sub(r"\s+", " ", capsys.readouterr().out)
        assert "−50% per doubling of width" in said
        assert "52 rows are checkpoints of 27 runs, each at several values of '_step'" in said
        assert "1 run t" in said or "1 run was trained for another number of steps" in said


def test_the_order_of_rows_asks_for_nothing_else():
    """Seed 0 scanned the first size; where seed 1 stood first it was asked for at the next."""
    rows = [{"layers": 4, "lr": 2.0**k, "seed": 0} for k in range(-10, -2)]
    rows += [{"layers": 4, "lr": 2.0**k, "seed": 1} for k in (-7, -6, -5)]
    runs = pd.DataFrame([{**row, "loss": trained(row)} for row in rows])
    asked, turned = (depthmup.next_runs(r, sizes=SIZES, **NAMES) for r in (runs, runs[::-1]))
    assert asked == turned
    assert {row["seed"] for row in asked.rows} == {0}


def test_runs_that_did_not_end_are_no_results():
    """What a status or fewer steps show to be half-trained is asked for again."""
    rows = [{"layers": 4, "lr": 2.0**k, "seed": 0} for k in range(-10, -2)]
    runs = pd.DataFrame([{**row, "loss": trained(row)} for row in rows])
    whole = depthmup.next_runs(runs, sizes=SIZES, **NAMES)
    dead = runs.assign(loss=runs["loss"] + 3, state="killed")
    both = pd.concat([runs.assign(state="finished"), dead.assign(seed=1)], ignore_index=True)
    assert depthmup.next_runs(both, sizes=SIZES, **NAMES) == whole
    short = pd.concat([runs.assign(_step=100), dead[:3].assign(seed=1, _step=40)])
    assert depthmup.next_runs(short.drop(columns="state"), sizes=SIZES, **NAMES) == whole
