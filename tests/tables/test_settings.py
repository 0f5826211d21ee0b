"""Columns that nobody named: their values decide whether they are settings, not their names."""

import math
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from pytest import approx

import depthmup
from depthmup.cli import main
from depthmup.records import Defect
from depthmup.tables import Reading
from studies import settings as study

ASKED = {"axes": {"depth": "depth"}, "lr": "lr", "loss": "loss", "seed": "seed"}
DEPTHS, OCTAVES, SEEDS = (2, 4, 8, 16), range(-12, -3), range(3)


def table(drift=-0.5, rng=None, moved=0.0):
    """A run for each depth, rate and seed; the best rate moves by ``drift`` per doubling."""
    rng = rng or np.random.default_rng(0)
    rows = []
    for depth in DEPTHS:
        best = -7 + drift * math.log2(depth / 2) + moved
        for k in OCTAVES:
            for seed in SEEDS:
                loss = 2 + 0.1 * (k - best) ** 2 + 0.004 * rng.standard_normal()
                rows.append((depth, 2.0**k, seed, loss))
    return pd.DataFrame(rows, columns=["depth", "lr", "seed", "loss"])


def two(column, first, second):
    """Two settings, whose best rates are a factor of eight apart."""
    return pd.concat(
        [table().assign(**{column: first}), table(moved=3).assign(**{column: second})],
        ignore_index=True,
    )


SETTINGS = {
    "optimizer.name": ("adamw", "muon"),
    "per_device_train_batch_size": (8, 64),
    "trial_group": ("a", "b"),
    "run/version": (1, 2),
    "gpu_precision": ("bf16", "fp32"),
    "hostname": ("node-1", "node-2"),
    "start_lr_ratio": (0.1, 0.5),
    "epoch_warmup": (True, False),
    "commit": ("0a1b2c3d4e5f", "5f4e3d2c1b0a"),
    "path": ("/data/c4", "/data/pile"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_refused_whatever_its_name(name, tmp_path, capsys):
    """The command that is printed works as it stands."""
    both, path = two(name, *SETTINGS[name]), tmp_path / "runs.csv"
    both.to_csv(path, index=False)
    words = ["fit", str(path), "--axes", "depth", "--lr", "lr", "--loss", "loss", "--seed", "seed"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"differ in '{name}'" in said
    command = re.search(r"Most likely: (depthmup .*)", said)[1]
    assert main(shlex.split(command)[1:]) == 0
    option = "--ignore" if name == "hostname" else "--by"
    assert shlex.split(command)[-2:] == [option, name]


def metadata(runs):
    """Columns whose values say that they are no settings."""
    rng, rows = np.random.default_rng(1), np.arange(len(runs))
    return runs.assign(
        optimizer=[f"run-{i:03}" for i in rows],
        warmup=[f"2026-11-{d:02} 10:00:00" for d in rng.integers(1, 9, len(runs))],
        model=[f"192.0.2.{i}" for i in rng.integers(1, 5, len(runs))],
        dropout="0.1",
        train_loss=runs["loss"] + 0.1 * rng.random(len(runs)),
        accuracy=(1 - runs["loss"] / 4).round(1),
        diverging=np.where(runs["loss"] > 3, "yes", "no"),
        bucket=np.where(runs["lr"] < 2e-3, 1, 2),
        notes=rng.choice(["None", "", "{}"], len(runs)),
    )


def test_metadata_is_known_by_its_values():
    runs = table()
    report, plain = depthmup.fit(metadata(runs), **ASKED), depthmup.fit(runs, **ASKED)
    assert report.exponent("depth") == plain.exponent("depth")


@pytest.mark.parametrize("name", ["optimizer", "warmup", "model", "diverging", "bucket", "notes"])
def test_each_kind_of_metadata_would_be_refused_with_other_values(name):
    """With two or three plain values, apart from rate and loss, each is a setting."""
    mixed = metadata(table()).assign(**{name: np.arange(len(table())) % 3})
    with pytest.raises(ValueError, match=f"differ in '{name}'"):
        depthmup.fit(mixed, **ASKED)


def test_groups_are_not_named_by_what_all_share():
    both = two("optimizer", "adamw", "muon").assign(model="gpt", heads=8)
    report = depthmup.fit(both, **ASKED, by=["model", "optimizer", "heads"])
    assert report.schemes == ("optimizer adamw", "optimizer muon")


def test_hyperparameters_at_random_are_named_with_what_they_do():
    """Their share of the scatter is known: two thirds, half of it by one that nothing says of."""
    rng, rows = np.random.default_rng(0), []
    for n in (1000, 2000, 4000):
        for _ in range(300):
            k, drop, beta = rng.uniform(-12, -2), rng.uniform(0, 1), rng.uniform(0.5, 1)
            scatter = 0.02 * (2 * drop - 1) * math.sqrt(3 * 2)
            log = 0.7 + 0.01 * (k + 7) ** 2 + scatter + 0.02 * rng.standard_normal()
            rows.append((n, 2.0**k, drop, beta, math.exp(log), math.exp(log) * 1.1, rng.random()))
    names = ["steps", "lr", "dropout", "beta1", "loss", "train_loss", "seconds"]
    runs = pd.DataFrame(rows, columns=names)
    runs["seconds"] = runs["seconds"] + runs["steps"]
    asked = {"axes": ["steps"], "lr": "lr", "loss": "loss"}
    noise = [n.text for n in depthmup.fit(runs, **asked).notes() if "noise in the answer" in n.text]
    assert len(noise) == 1
    assert noise[0].startswith("dropout, beta1 differ from run to run and nobody named them")
    share = int(re.search(r"(\d+)% of the scatter", noise[0])[1]) / 100
    assert share == approx(2 / 3, abs=0.06)  # 900 runs know it to 0.02
    reading = Reading(ignore=["dropout", "beta1"])
    notes = depthmup.fit(runs, **asked, reading=reading).notes()
    assert not any("noise in the answer" in note.text for note in notes)
    grid = runs.drop(columns=["dropout", "beta1"])
    assert not any("noise" in note.text for note in depthmup.fit(grid, **asked).notes())


def test_few_runs_at_random_are_named_too():
    rng = np.random.default_rng(0)
    rows = [
        (n, 2.0 ** rng.uniform(-12, -2), rng.uniform(0, 1)) for n in (8, 16, 32) for _ in range(12)
    ]
    runs = pd.DataFrame(rows, columns=["steps", "lr", "dropout"])
    runs["loss"] = np.exp(0.7 + 0.01 * (np.log2(runs["lr"]) + 7) ** 2 + 0.1 * runs["dropout"])
    said = str(depthmup.fit(runs, axes=["steps"], lr="lr", loss="loss"))
    assert "dropout differs from run to run" in said


STATUSES = {
    "ray": ("unknown", "raised"),
    "wandb": ("finished", "crashed"),
    "mlflow": ("FINISHED", "KILLED"),
    "optuna": ("TrialState.COMPLETE", "TrialState.PRUNED"),
    "syne-tune": ("Completed", "In Progress"),
}


@pytest.mark.parametrize("name", STATUSES)
def test_runs_that_did_not_finish_are_left_out(name):
    done, dead = STATUSES[name]
    rng, runs = np.random.default_rng(0), table()
    died = rng.random(len(runs)) < 0.2
    runs["state of it"] = np.where(died, dead, done)
    runs.loc[died, "loss"] += 1
    report = depthmup.fit(runs, **ASKED)
    finished = depthmup.fit(runs[~died].drop(columns="state of it"), **ASKED)
    assert report.exponent("depth") == finished.exponent("depth")
    assert {e.defect for e in report.excluded} == {Defect.UNFINISHED}
    assert len(report.excluded) == died.sum()
    assert any(n.text.startswith(f"{died.sum()} runs did not finish") for n in report.notes())
    kept = depthmup.fit(runs, **ASKED, reading=Reading(keep="unfinished", ignore="state of it"))
    assert kept.excluded == ()


def test_a_run_that_failed_as_it_diverged_diverged():
    runs = table().assign(status="finished")
    wild = runs["lr"] > 2.0**-5.5
    runs = runs.assign(
        loss=runs["loss"].mask(wild, math.inf), status=runs["status"].mask(wild, "failed")
    )
    report = depthmup.fit(runs, **ASKED)
    assert report.excluded == ()
    assert any(n.text.startswith(f"{wild.sum()} runs diverged") for n in report.notes())


def test_zero_and_the_largest_double_are_spellings_of_nan():
    runs = table()
    wild = runs["lr"] > 2.0**-5.5
    infinite = depthmup.fit(runs.assign(loss=runs["loss"].mask(wild, math.inf)), **ASKED)
    for spelled in (0.0, 1.7976931348623157e308):
        report = depthmup.fit(runs.assign(loss=runs["loss"].mask(wild, spelled)), **ASKED)
        assert report.exponent("depth") == infinite.exponent("depth")
        assert any(n.text.startswith(f"{wild.sum()} runs diverged") for n in report.notes())
        assert any("exactly zero" in n.text for n in report.notes()) is (spelled == 0)


def test_a_null_is_missing_in_every_format(tmp_path):
    """NaN that is no null says that a run diverged; pandas writes NaN as null."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    runs = table()
    runs.loc[runs["lr"] > 2.0**-5.5, "loss"] = math.nan
    runs.to_csv(tmp_path / "runs.csv", index=False)
    runs.to_parquet(tmp_path / "runs.parquet")
    asked = {name: depthmup.fit(tmp_path / name, **ASKED) for name in ("runs.csv", "runs.parquet")}
    first, second = asked.values()
    assert first.exponent("depth") == second.exponent("depth")
    assert len(first.excluded) == len(second.excluded) == runs["loss"].isna().sum()
    runs.to_csv(tmp_path / "runs.csv", index=False, na_rep="nan")
    said = pyarrow.table({name: runs[name].to_numpy() for name in runs})
    parquet.write_table(said, tmp_path / "runs.parquet")
    for name in asked:
        report = depthmup.fit(tmp_path / name, **ASKED)
        assert report.excluded == ()
        assert any(n.text.startswith("108 runs diverged") for n in report.notes()) is False
        assert sum(p.diverged for c in report.study().headline.curves for p in c.points) > 0


def test_a_wide_table_is_read_by_its_option(tmp_path, capsys):
    wide = table()[lambda t: t.seed == 0].pivot(index="lr", columns="depth", values="loss")
    wide.columns = [f"d{depth}" for depth in wide.columns]
    path = tmp_path / "wide.csv"
    wide.reset_index().to_csv(path, index=False)
    assert main(["fit", str(path), "--lr", "lr", "--loss", "loss"]) == 2
    assert "Read it by --wide width --lr lr." in capsys.readouterr().err
    assert main(["fit", str(path), "--lr", "lr", "--wide", "depth"]) == 0
    long = depthmup.fit(table()[lambda t: t.seed == 0], **{**ASKED, "seed": ""})
    read = depthmup.fit(path, lr="lr", reading=Reading(wide="depth"))
    assert read.exponent("depth") == long.exponent("depth")
    with pytest.raises(ValueError, match="Expected columns whose names differ in a number"):
        depthmup.fit(wide[["d2"]].reset_index(), lr="lr", reading=Reading(wide="depth"))


def test_a_rate_that_was_tuned_at_one_size_alone_is_refused_with_what_lacks():
    tuned = table()[lambda t: (t.depth == 2) | (t.lr == 2.0**-7)]
    with pytest.raises(ValueError, match=r"tuned at depth 2 alone \(9 values\), and the 3 other"):
        depthmup.fit(tuned, **ASKED)


def test_an_axis_of_steps_of_checkpoints_judges_no_rule():
    """Of separate runs of each length the same numbers are judged."""
    rows = []
    for i, k in enumerate(range(-14, -8)):
        for steps in (100, 200, 400, 800):
            loss = 3 - 0.1 * math.log2(steps) + 0.02 * (k + 8 + 0.3 * math.log2(steps)) ** 2
            rows.append((f"run-{i}", 2.0**k, steps, loss))
    runs = pd.DataFrame(rows, columns=["run", "lr", "step", "loss"])
    asked = {"axes": {"steps": "step"}, "lr": "lr", "loss": "loss"}
    parts = depthmup.fit(runs, **asked)
    assert parts.rules() == ()
    assert any("checkpoints of runs, as 'run' shows" in note.text for note in parts.notes())
    whole = depthmup.fit(runs.drop(columns="run"), **asked)
    assert whole.rules()
    assert whole.exponent("steps") == parts.exponent("steps")


def test_the_next_step_names_columns_before_it_asks_for_runs():
    both = pd.concat([table().assign(optimizer="adamw", decay="0"),
                      two("decay", "0", "1").assign(optimizer="muon")])  # fmt: skip
    said = str(depthmup.fit(both, **ASKED, by="optimizer"))
    lead = said[said.index("Next:") :]
    assert "Decide muon along depth: its runs differ in columns that nobody named" in lead
    assert "fit(..., by=['optimizer', 'decay'])" in lead


def test_the_next_step_extends_grids_before_it_asks_for_sizes():
    low = table()[lambda t: t.lr >= 2.0**-6]
    said = str(depthmup.fit(low, **ASKED))
    lead = " ".join(said[said.index("Next:") :].split())
    assert "extend the grid downwards at depth 2, 4, 8, 16: add 7.8e-3 and 3.9e-3" in lead
    assert "(about 8 runs)" in lead
    # A bound reaches to the next value that was tried.
    row = next(line for line in said.splitlines() if line.startswith("All runs"))
    assert "≤ 0.031" in row


def test_the_first_line_is_short_whatever_the_number_of_groups():
    """Two of four transfer; their names come after the line that counts them."""
    runs = [table(drift=d).assign(optimizer=f"a-long-name-of-an-optimizer-{i}")
            for i, d in enumerate((0, -0.5, 0, -0.5))]  # fmt: skip
    said = str(depthmup.fit(pd.concat(runs), **ASKED, by="optimizer")).splitlines()
    first = next(i for i, line in enumerate(said) if "4 groups" in line)
    assert said[first] == "Best learning rate along depth, 4 groups: 2 transfer and 2 drift."
    assert "a-long-name-of-an-optimizer-2" in said[first + 1]
    assert max(map(len, said[: first + 1])) <= 100


def test_thresholds_tell_outcomes_settings_and_noise_apart():
    """Of 60 sweeps each; docs/studies/fit.md has 400."""
    from depthmup.tables.settings import DESIGNED, OUTCOME, SAME

    rng = np.random.default_rng(1)
    for make, is_set in ((study.outcome, False), (study.setting, True), (study.paired, True)):
        found = [study.rates_and_order(*make(rng)) for _ in range(60)]
        called = [by_rate < DESIGNED or order < OUTCOME for by_rate, order in found]
        assert np.mean(np.array(called) != is_set) <= 0.02
    for _ in range(60):
        size, rate, log, free, same = study.drawn(rng, 100)
        by_rate, order = study.rates_and_order(size, rate, log, free)
        assert by_rate < DESIGNED
        assert order < SAME
        by_rate, order = study.rates_and_order(size, rate, log, same)
        assert by_rate > DESIGNED or order > SAME
