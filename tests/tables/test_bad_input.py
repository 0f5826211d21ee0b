"""What is no table, or says nothing: a clear message, exit status 2, and nothing written."""

import json
import os
import random
import re
import tracemalloc
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import depthmup
from depthmup import fit
from depthmup.cli import main
from depthmup.tables import LARGEST_FILE, Reading, example
from depthmup.tables.formats import Source

HEAD = "layers,lr,seed,loss,optimizer,batch\n"
ROWS = [
    f"{depth},{2.0**k},{seed},{2 + 0.1 * (k + 4 + 0.1 * depth) ** 2 + 0.01 * seed:.6f},adam,32"
    for depth in (4, 8, 16)
    for k in range(-10, 1)
    for seed in (0, 1)
]
GOOD = HEAD + "\n".join(ROWS) + "\n"
NAMED = ["--axes", "depth=layers", "--lr", "lr", "--loss", "loss"]


def changed(column, value):
    """The good table with one column's text changed, by a value or a function of the row."""
    names = HEAD.strip().split(",")
    i = names.index(column)
    rows = [row.split(",") for row in ROWS]
    for number, row in enumerate(rows):
        row[i] = value(number, row) if callable(value) else value
    return HEAD + "\n".join(",".join(row) for row in rows) + "\n"


def only(condition):
    return HEAD + "\n".join(row for row in ROWS if condition(row.split(","))) + "\n"


FILES = {
    "empty": ("", "is empty"),
    "a header alone": (HEAD, "has none"),
    "no header's columns": ("1,2,3\n4,5,6\n", "Expected a column named 'lr'"),
    "names that stand twice": (GOOD.replace("optimizer", "loss", 1), "stands twice"),
    "text in the losses": (changed("loss", lambda n, r: "high" if n == 7 else r[3]), "row 8 has"),
    "text in the sizes": (
        changed("layers", "twelve"),
        "(?s)'layers'; row 1 has 'twelve'.*Write a number",
    ),
    "units in the sizes": (changed("layers", lambda n, r: f"{r[0]}k"), "Write it out"),
    "commas in numbers": (changed("layers", lambda n, r: f'"{r[0]},000"'), "without commas"),
    "percent in the losses": (changed("loss", "5%"), "Write it out"),
    "no loss at all": (changed("loss", ""), "No run is left"),
    "no rates": (changed("lr", ""), "No run is left"),
    "rates of zero": (changed("lr", "0"), "No run is left"),
    "negative sizes": (changed("layers", "-4"), "No run is left"),
    "all diverged": (changed("loss", "nan"), "all diverged"),
    "all infinite": (changed("loss", "inf"), "all diverged"),
    "losses below zero": (changed("loss", "-1.5"), "No run is left"),
    "one size": (only(lambda row: row[0] == "8"), "two sizes or more"),
    "one rate": (only(lambda row: row[1] == "0.0625"), "three values of the learning rate"),
    "a constant size": (changed("layers", "8"), "Runs of one size|two sizes or more"),
    "two optimizers in one": (
        changed("optimizer", lambda n, r: "adam" if n % 2 else "lion"),
        "Runs of one size differ in 'optimizer'",
    ),
    "every run a size of its own": (
        HEAD + "\n".join(f"{3 * n},{2.0 ** -(n % 9)},0,{2 + n % 7},adam,32" for n in range(1, 700)),
        "is it an axis",
    ),
    "two rates of each size": (
        only(lambda row: row[1] in ("0.0625", "0.03125")),
        "three values of the learning rate at two sizes",
    ),
    "lines of many lengths": (GOOD + "1,2,3,4,5,6,7,8,9\n", "to be a table"),
    "decimal commas": (changed("loss", lambda n, r: r[3].replace(".", ",")), "row 1 has more"),
    "a first column without a name": (
        HEAD + "\n".join(f"{n},{row}" for n, row in enumerate(ROWS)),
        "row 1 has more",
    ),
    "a quote that never ends": (GOOD + '"4,0.1,0\n', "to be a table|Expected numbers"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused_and_nothing_is_written(name, tmp_path, capsys):
    content, message = FILES[name]
    (tmp_path / "runs.csv").write_text(content)
    out = tmp_path / "out"
    words = [str(tmp_path / "runs.csv"), *NAMED, "--out", str(out), "--plot", str(out / "p.svg")]
    assert main(["fit", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert "mistake in depthmup" not in said.err
    assert re.search(message, said.err), said.err
    assert len(said.err) < 1500
    assert not out.exists()


ASKED = {
    "no axes": (["--lr", "lr", "--loss", "loss"], "--axes depth=layers"),
    "no rate": (["--axes", "depth=layers", "--loss", "loss"], "--lr lr"),
    "no loss": (["--axes", "depth=layers", "--lr", "lr"], "--loss loss"),
    "a column that is not there": ([*NAMED, "--seed", "sed"], "Did you mean 'seed'"),
    "the loss as an axis": (
        ["--axes", "depth=loss", "--lr", "lr", "--loss", "loss"],
        "stand for one thing",
    ),
    "the rate as the loss": (["--axes", "depth=layers", "--lr", "lr", "--loss", "lr"], "one thing"),
    "an axis twice": (["--axes", "depth=layers", "depth=batch", *NAMED[2:]], "stands twice"),
    "two names of one axis": (
        ["--axes", "tokens=layers", "data=batch", *NAMED[2:]],
        "two for one thing",
    ),
    "an axis without a column": (["--axes", "depth=", *NAMED[2:]], "AXIS=COLUMN"),
    "batch, tokens and steps": (
        ["--axes", "batch=batch", "tokens=layers", "steps=seed", *NAMED[2:]],
        "the third follows",
    ),
    "a target without its axis": ([*NAMED, "--target", "width=8"], "it lacks depth"),
    "a target in words": ([*NAMED, "--target", "depth=deep"], "positive number"),
    "a target of a letter": ([*NAMED, "--target", "depth=B"], "positive number"),
    "a target of zero": ([*NAMED, "--target", "depth=0"], "positive number"),
    "an unknown scheme": ([*NAMED, "--scheme", "magic"], "Expected a scheme"),
    "a filter that is none": ([*NAMED, "--where", "lr <"], "Expected a value"),
    "code as a filter": ([*NAMED, "--where", "__import__('os').system('x')"], "Expected"),
    "a filter of no column": ([*NAMED, "--where", "colour == red"], "of a filter"),
    "a filter that keeps nothing": ([*NAMED, "--where", "lr > 100"], "none does"),
    "a filter that compares text": ([*NAMED, "--where", "lr < high"], "Expected a number"),
    "groups of a column that is not there": ([*NAMED, "--by", "host"], "named 'host'"),
    "too many groups": ([*NAMED, "--by", "loss2"], "named 'loss2'"),
    "a tolerance of zero": ([*NAMED, "--tolerance", "0"], "positive tolerance"),
    "a guess of zero": ([*NAMED, "--chance", "0"], "positive loss of guessing"),
    "a plot of another kind": ([*NAMED, "--plot", "p.jpeg"], "Expected --plot to end in"),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_bad_question_is_refused(name, tmp_path, capsys, monkeypatch):
    words, message = ASKED[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.csv").write_text(GOOD)
    assert main(["fit", "runs.csv", *words, "--out", "out"]) == 2
    said = capsys.readouterr()
    assert message in said.err, said.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs.csv"]


def test_the_good_table_is_fitted(tmp_path, capsys):
    (tmp_path / "runs.csv").write_text(GOOD)
    words = [str(tmp_path / "runs.csv"), *NAMED, "--seed", "seed", "--out", str(tmp_path / "out")]
    assert main(["fit", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["schemes"][0]["axis"] == "depth"
    written = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert written == ["excluded.csv", "report.html", "summary.json"]
    assert main(["fit", *words]) == 0
    assert "Rows left out" not in capsys.readouterr().out


def refused(message, table, **asked):
    given = {"axes": {"depth": "layers"}, "lr": "lr", "loss": "loss", **asked}
    with pytest.raises(ValueError, match=message):
        depthmup.fit(table, **given)


def frame():
    import io

    return pd.read_csv(io.StringIO(GOOD))


def test_other_files(tmp_path, monkeypatch):
    refused("no file", tmp_path / "none.csv")
    refused("is a folder without runs. depthmup.load", tmp_path)
    refused("ends in", Path(__file__))
    (tmp_path / "latin.csv").write_bytes(b"layers,lr,loss\n\xff\xfe,1,2\n")
    refused("not UTF-8", tmp_path / "latin.csv")
    (tmp_path / "runs.jsonl").write_text('{"layers": 4}\nno json\n')
    refused("line 2 is none", tmp_path / "runs.jsonl")
    (tmp_path / "latin.jsonl").write_bytes('{"layers": "é"}\n'.encode("latin-1"))
    refused("Expected latin.jsonl to be a table; it is not UTF-8", tmp_path / "latin.jsonl")
    (tmp_path / "list.jsonl").write_text("[1, 2]\n")
    refused("is a list", tmp_path / "list.jsonl")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000 + "\n")
    refused("line 1 is none", tmp_path / "deep.jsonl")
    pytest.importorskip("pyarrow")
    (tmp_path / "runs.parquet").write_bytes(b"PAR1 no parquet")
    refused("to be Parquet", tmp_path / "runs.parquet")


def test_parquet_without_pyarrow_is_refused_by_name(tmp_path, monkeypatch):
    import sys

    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(r"pip install 'depthmup\[parquet\]'", tmp_path / "runs.parquet")


def test_a_file_of_ten_gigabytes_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 10 * 2**30)  # sparse: it takes no space
    assert path.stat().st_size > LARGEST_FILE
    refused("10.0 GB", path)


def test_other_frames():
    refused("DataFrame, or the path", [1, 2, 3])
    refused("DataFrame, or the path", None)
    refused("has none", frame().iloc[:0])
    refused("Expected numbers", frame().assign(loss=True))
    refused("Expected numbers", frame().assign(loss=1 + 2j))
    refused("Expected numbers", frame().assign(loss=[[1, 2]] * len(frame())))
    refused("axes as names", frame(), axes={"depth": 3})
    refused("columns of the sizes", frame(), axes={})
    with pytest.raises(ValueError, match="tests to keep"):
        Reading(keep=["everything"])
    with pytest.raises(ValueError, match="positive loss of guessing"):
        Reading(chance=-1.0)
    refused("stands twice", frame().rename(columns={"batch": "loss"}))


def test_many_groups_are_refused():
    runs = frame().assign(run=np.arange(len(frame())))
    refused("make 66", runs, by="run", reading=Reading(ignore="optimizer"))


def test_names_of_columns_and_groups_run_nowhere(tmp_path):
    """Formulas in a spreadsheet, HTML on the page, control characters on the terminal."""
    formula, html = "=cmd()", "<script>alert(1)</script>\x1b[31m"
    runs = frame().rename(columns={"layers": formula, "optimizer": html})
    runs[html] = "=HYPERLINK(1)<b>"
    runs.loc[3, "loss"] = 1e-6
    report = depthmup.fit(runs, axes={"<i>d</i>": formula}, lr="lr", loss="loss", by=html)
    report.save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "<i>d</i>" not in page
    assert "(1)<b>" not in page.split("<main>")[1].split("<script>")[0]
    rows = (tmp_path / "excluded.csv").read_text().splitlines()
    assert len(rows) == 2
    assert "'=cmd()" in rows[0]
    assert ",'=HYPERLINK" in rows[1]
    assert "\x1b" not in report.summary()


def test_a_loaded_report_keeps_the_rows_that_were_left_out(tmp_path):
    runs = frame()
    runs.loc[3, "loss"] = 1e-6
    fit(runs, axes={"depth": "layers"}, lr="lr", loss="loss", by="optimizer").save(tmp_path)
    left_out = (tmp_path / "excluded.csv").read_text()
    assert len(left_out.splitlines()) == 2
    depthmup.load(tmp_path).save(tmp_path)
    assert (tmp_path / "excluded.csv").read_text() == left_out


@pytest.mark.parametrize(
    "name", ["=cmd()", "  @SUM(1)", "a;=cmd()", "a\t+cmd()", "＝cmd()", "a\n-cmd()"]
)
def test_no_cell_that_is_written_is_a_formula(name, tmp_path):
    """Also where a spreadsheet cuts lines at semicolons, whatever stands in quotes."""
    runs = frame()
    runs["optimizer"] = name
    runs.loc[3, "loss"] = 1e-6
    report = fit(runs, axes={"depth": "layers"}, lr="lr", loss="loss", by="optimizer")
    report.save(tmp_path)
    report.to_csv(tmp_path / "points.csv")
    for file in ("excluded.csv", "points.csv"):
        text = (tmp_path / file).read_text()
        assert "cmd()" in text or "SUM(1)" in text
        assert not re.search(r"(^|[;,\t\n\"])\s*[=+@＝-](cmd|SUM)", text)


def test_the_table_that_ships_is_small_and_untouched():
    assert example().stat().st_size < 100_000
    before = example().read_bytes()
    depthmup.fit(example(), axes={"depth": "n_layers"}, lr="lr", loss="final_loss", by="scheme")
    assert example().read_bytes() == before


def test_the_same_numbers_in_other_shapes_give_the_same_verdict(tmp_path):
    """Blank lines, a comma at each line's end, indices of frames: none moves a column."""
    frame = pd.read_csv(StringIO(GOOD))
    (tmp_path / "blank.csv").write_text("\n\n" + GOOD.replace("\n", "\n\n"))
    (tmp_path / "commas.csv").write_text(HEAD + ",\n".join(ROWS) + ",\n")
    (tmp_path / "semicolons.csv").write_text(GOOD.replace(",", ";"))
    (tmp_path / "decimal.csv").write_text(GOOD.replace(",", ";").replace(".", ","))
    (tmp_path / "tabs.txt").write_text(GOOD.replace(",", "\t"))
    (tmp_path / "array.json").write_text(frame.to_json(orient="records"))
    (tmp_path / "lines.jsonl").write_text(frame.to_json(orient="records", lines=True))
    frame.set_index(["layers", "lr"]).to_parquet(tmp_path / "index.parquet")
    asked = {"axes": {"depth": "layers"}, "lr": "lr", "loss": "loss", "seed": "seed"}
    whole = fit(frame, **asked).exponent("depth")
    for table in (*tmp_path.iterdir(), frame.set_index("layers")):
        assert fit(table, **asked).exponent("depth") == whole


def test_decimal_commas_are_read_beside_texts_and_points_then_group_digits(tmp_path):
    """One run that diverged, at step 213 of 1,000, leaves an export's losses and steps texts."""
    points = changed("loss", lambda n, r: "NaN" if n == 21 else r[3]).replace("batch", "steps")
    points = re.sub("32$", "1000", points, flags=re.M).replace("NaN,adam,1000", "NaN,adam,213")
    commas = points.replace(",", ";").replace(".", ",").replace("1000", "1.000")
    asked = {"axes": {"depth": "layers"}, "lr": "lr", "loss": "loss", "steps": "steps"}
    reports = []
    for name, text in (("points", points), ("commas", commas)):
        (tmp_path / f"{name}.csv").write_text(text)
        reports.append(fit(tmp_path / f"{name}.csv", **asked))
    one, other = reports
    assert str(one) == str(other)
    assert "1 run diverged" in str(one)
    assert one.exponent("depth") == other.exponent("depth")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.000", "213"], ["1000", "213"]),
        (["1.234,5", "-2,0e-3"], ["1234.5", "-2.0e-3"]),
        (["1.5", "1.250"], ["1.5", "1.250"]),  # a point that groups no digits: none of them does
        (["0.125", "2,5"], ["0.125", "2.5"]),
        (["1.221e-04", "9.766E-04"], ["1.221e-04", "9.766E-04"]),  # powers of ten group no digits
        (["1,3M", "1.300M"], ["1.3M", "1300M"]),
        (["a,b", "adamw"], ["a,b", "adamw"]),
    ],
)
def test_numbers_of_a_column_where_commas_are_decimal(tmp_path, cells, numbers):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["value;lr", *(f"{c};0,5" for c in cells), "nan;0,5"]))
    assert [*Source(path).frame["value"]] == [*numbers, "nan"]


def test_columns_of_a_messy_export_are_proposed_and_dates_name_no_runs(tmp_path):
    path = tmp_path / "export.csv"
    rows = (f"2026-0{i}-1{i} 10:0{i},{64 * i},{4 * i},1e-{i},2.{i}\n" for i in range(1, 7))
    path.write_text("Created,Hidden Dim,# Layers,Peak LR,eval/loss (final)\n" + "".join(rows))
    with pytest.raises(ValueError, match="By their names these look like it") as refused:
        fit(path)
    for named in ("'depth': '# Layers'", "'width': 'Hidden Dim'", "lr='Peak LR'"):
        assert named in str(refused.value)
    assert "Names of runs" not in str(refused.value)


@pytest.mark.parametrize("column", ["lr", "loss", "layers"])
def test_dates_and_durations_are_no_numbers(column):
    frame = pd.read_csv(StringIO(GOOD))
    for kind in ("datetime64[ns]", "timedelta64[ns]"):
        dates = frame.assign(**{column: (frame[column] * 1e9).astype("int64").astype(kind)})
        with pytest.raises(ValueError, match=f"Expected numbers in the column '{column}'"):
            fit(dates, axes={"depth": "layers"}, lr="lr", loss="loss")


def test_a_name_that_stands_twice_in_one_object_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"layers": 4, "lr": 0.1, "loss": 2.0, "lr": 0.2}\n')
    with pytest.raises(ValueError, match="each of its names once; line 1 is none"):
        fit(path, axes={"depth": "layers"}, lr="lr", loss="loss")


def test_long_texts_that_begin_alike_are_two_groups():
    """A configuration written into one cell, as trackers do."""
    frame = pd.read_csv(StringIO(GOOD))
    long = "x" * 300
    both = pd.concat([frame.assign(group=long + "1"), frame.assign(group=long + "2")])
    report = fit(both, axes={"depth": "layers"}, lr="lr", loss="loss", seed="seed", by="group")
    assert len(report.schemes) == 2


def test_a_damaged_parquet_file_is_refused_by_name(tmp_path):
    """A flipped byte in a page of data, in its header, and in the text that pandas leaves."""
    whole, path = tmp_path / "whole.parquet", tmp_path / "runs.parquet"
    pd.read_csv(StringIO(GOOD)).to_parquet(whole, compression="gzip")
    raw, rng = whole.read_bytes(), random.Random(0)
    said = []
    for _ in range(60):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            fit(path, axes={"depth": "layers"}, lr="lr", loss="loss", seed="seed")
        except ValueError as error:
            said.append(str(error))
    assert len(said) > 20
    assert all(re.match("Expected|No run is left|Runs of one size", text) for text in said)


def test_a_prediction_is_shown_without_what_a_terminal_would_obey():
    frame = pd.read_csv(StringIO(GOOD)).rename(columns={"layers": "\x1b[2Jlayers"})
    axis = "\x1b[31mdepth"
    report = fit(frame, axes={axis: "\x1b[2Jlayers"}, lr="lr", loss="loss", target={axis: 32})
    assert "\x1b" not in repr(report) + str(report)


def two_optimizers(rates_of):
    """Runs of two optimizers whose best rates move apart, with the rates that each is given."""
    rows = [
        (depth, 2.0**k, name, 2 + 0.1 * (k + 4 + best) ** 2 + 0.001 * depth)
        for depth in (4, 8, 16)
        for name, best in (("adam", 0.0), ("lion", 3.0))
        for k in rates_of(name)
    ]
    return pd.DataFrame(rows, columns=["layers", "lr", "optimizer", "loss"])


def test_settings_are_told_apart_also_where_no_rate_recurs():
    """Rates at random, grids that interleave, or apart: each rate has one optimizer by chance."""
    rng = np.random.default_rng(0)
    asked = {"axes": {"depth": "layers"}, "lr": "lr", "loss": "loss"}
    drawn = two_optimizers(lambda name: rng.uniform(-10, 0, 9))
    interleaved = two_optimizers(lambda name: np.arange(-10, 1) + (name == "lion") / 2)
    apart = two_optimizers(lambda name: np.arange(-10, -4) + 6 * (name == "lion"))
    for table in (drawn, interleaved, apart):
        with pytest.raises(ValueError, match="Runs of one size differ in 'optimizer'"):
            fit(table, **asked)
    one = interleaved[interleaved["optimizer"] == "adam"]
    buckets = one.assign(bucket=np.where(one["lr"] < 0.05, 0, 1))
    assert fit(buckets, **asked).exponent("depth") == fit(one, **asked).exponent("depth")


def test_a_setting_from_which_all_others_follow_is_proposed():
    asked = {"axes": {"depth": "layers"}, "lr": "lr", "loss": "loss"}
    runs = two_optimizers(lambda name: np.arange(-10, 1))
    again = runs.assign(optimizer=runs["optimizer"] + " nesterov")
    both = pd.concat([runs.assign(nesterov=False), again.assign(nesterov=True)])
    both["kind"] = both["optimizer"].str.split().str[0]
    with pytest.raises(ValueError, match="Use --by optimizer: the other 2 follow from it"):
        fit(both, **asked)
    with pytest.raises(ValueError, match="differ in 'nesterov'") as refusal:
        fit(both.drop(columns="optimizer"), **asked)
    assert "Use --by" not in str(refusal.value)


def test_columns_and_losses_that_cannot_be_are_refused_with_what_helps():
    runs = pd.read_csv(example())[["n_layers", "lr", "final_loss"]]
    asked = {"axes": {"depth": "n_layers"}, "lr": "lr"}
    with pytest.raises(ValueError, match="Add a constant to losses that may be negative"):
        fit(runs.assign(final_loss=runs["final_loss"] - 50), **asked, loss="final_loss")
    with pytest.raises(ValueError, match="Of logarithms use the values themselves"):
        fit(runs.assign(lr=np.log2(runs["lr"])), **asked, loss="final_loss")
    hit = runs.assign(val_acc=1 / runs["final_loss"]).drop(columns="final_loss")
    with pytest.raises(ValueError, match="'val_acc' reads like one that is higher"):
        fit(hit, **asked, loss="val_acc")
    with pytest.raises(ValueError, match="Runs of one size") as passed:
        fit(runs.assign(acc_loss=runs["final_loss"], kind=["a", "b"] * (len(runs) // 2)), **asked,
            loss="acc_loss")  # fmt: skip
    assert "reads like" not in str(passed.value)


RUN = {"depth": 4, "lr": 0.1, "loss": 2.0}


def objects(*records):
    return "\n".join(map(json.dumps, records))


WIDE = {
    "a new name per line": (
        ".jsonl",
        lambda: objects(*({**RUN, f"n{i}": 1} for i in range(20_000))),
    ),
    "many names, few per line": (
        ".jsonl",
        lambda: objects(*({f"n{i % 4000}": 1} for i in range(40_000))),
    ),
    "names on one line": (".jsonl", lambda: objects({f"n{i}": 1 for i in range(300_000)})),
    "long names of inner objects": (
        ".jsonl",
        lambda: objects({"x" * 100_000: {f"n{i}": 1 for i in range(4_000)}}),
    ),
    "a wide header": (".csv", lambda: ",".join(f"n{i}" for i in range(300_000)) + "\n1,2\n"),
    "a wide row": (".csv", lambda: "a,b\n" + "," * 300_000 + "\n"),
    "a long header": (".csv", lambda: "a" * 2**25 + "\n1\n"),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_table_of_many_names_is_refused_in_bounded_memory(name, tmp_path):
    """Files of some megabytes; a frame of what they name would have up to 10^9 cells."""
    suffix, text = WIDE[name]
    path = tmp_path / f"wide{suffix}"
    path.write_text(text())
    size = path.stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="Expected"):
            fit(path, axes={"depth": "depth"}, lr="lr", loss="loss")
        assert tracemalloc.get_traced_memory()[1] < 2**25 + 60 * size
    finally:
        tracemalloc.stop()


def test_a_small_parquet_of_many_cells_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "wide.parquet"
    pd.DataFrame(0, index=range(100_000), columns=[f"n{i}" for i in range(30)]).to_parquet(path)
    assert path.stat().st_size < 100_000
    assert len(Source(path).names) == 30
    monkeypatch.setattr("depthmup.tables.formats.MOST_CELLS", 2_000_000)
    with pytest.raises(ValueError, match=r"at most 2,000,000 cells; wide.parquet has 3,000,000"):
        fit(path, axes={"depth": "n0"}, lr="n1", loss="n2")


def test_lines_that_lack_a_third_of_their_names_are_a_table(tmp_path):
    path = tmp_path / "sparse.jsonl"
    rows = [{**RUN, "depth": d, "lr": 2.0**-k, "loss": 2 + k * k} for d in (4, 8) for k in range(9)]
    path.write_text(objects(*(dict(row, **{f"n{i % 3}": 1}) for i, row in enumerate(rows))))
    assert Source(path).names == (*RUN, "n0", "n1", "n2")
    assert len(Source(path).frame) == len(rows)
