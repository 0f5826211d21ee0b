"""Nothing is printed that was not measured: steps, names of losses, prices, why a search ended."""

import html
import json
import re
import shlex
import sys

import pytest

from depthmup.cli import main
from depthmup.sweep import MAIN_STORE, snapshot

SCRIPT = """\
import argparse, csv, math
parser = argparse.ArgumentParser()
for name, kind in (("lr", float), ("depth", int), ("seed", int), ("out", str)):
    parser.add_argument("--" + name, type=kind)
a = parser.parse_args()
end = 1.5 + 0.03 * math.log2(a.lr / 4e-3) ** 2 + 1e-3 * math.sin(97 * a.seed + a.depth)
with open(a.out + "/log.csv", "w", newline="") as file:
    log = csv.writer(file)
    log.writerow(["iter", "val_loss"])
    log.writerows([4 * i, end + 1 / i**2] for i in range(1, 11))
"""
TEMPLATE = (
    f"{shlex.quote(sys.executable)} log.py "
    "--lr {lr} --depth {depth} --seed {seed} --out {out}"
)
SWEEP = [
    *("--command", TEMPLATE, "--loss", "{out}/log.csv:val_loss", "--base", "depth=2"),
    *("--depths", "2,4", "--workers", "1"),
]


def words_of(page):
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("said")
    (folder / "log.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def transfer(here, monkeypatch, capsys):
    """Runs a sweep of the command there; its console and its page as text."""
    monkeypatch.chdir(here)

    def transfer(*more, out):
        words = ["transfer", *SWEEP, *more, "--out", out]
        monkeypatch.setattr(sys, "argv", ["depthmup", *words])  # which next commands repeat
        assert main(words) == 0
        told = re.sub(r"\s+", " ", capsys.readouterr().out)
        return told, words_of(here / out / "report.html")

    return transfer


def test_a_command_has_a_share_of_its_run_and_its_own_column(transfer, here):
    console, page = transfer("--budget", "24", "--target", "depth=8", out="target")
    for text in (console, page):
        assert "training loss" not in text
        assert not re.search(r"\bsteps \d", text)
        assert "mean val_loss over the last 20% of every run" in text
    assert "All charts: mean loss over 80–100% of the run" in page
    value = re.match(r"Train at depth 8 with learning rate (\S+) ", console)[1]
    assert f"--lr {value} --depth 8 --seed {{seed}} --out {{out}} " in console
    assert "depthmup.plan" not in console
    shown = (here / "target" / "report.html").read_text()
    assert "160–200" not in shown  # nor in tips, which scripts hold
    assert "adamw" not in page  # which the script was never given
    assert "weight decay" not in page
    config = json.loads((here / "target" / "summary.json").read_text())["config"]
    assert config["loss"] == "val_loss"


def test_a_search_that_its_budget_ends_is_not_called_decisive(transfer, here):
    console, page = transfer("--budget", "10", out="spent")
    assert "the budget is spent" in console
    assert "It ended: the budget is spent" in page
    assert "decisive" not in page
    with snapshot(here / "spent" / MAIN_STORE) as store:
        made = len(store)
    assert f"twice the runs (about {made} runs" in console
    assert f"--budget {2 * made} " in console


def test_a_search_that_is_decided_says_so(transfer):
    _, page = transfer("--budget", "200", out="decided")
    assert re.search(r"It ended: .* is decided after", page)
    assert "the budget is spent" not in page


def test_shards_are_named_and_left_out_of_next_commands(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    grid = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "2", "--depths", "2,4,8", "--out", "parts"]

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["depthmup", *words])
        status = main([*words])
        told = capsys.readouterr()
        return status, re.sub(r"\s+", " ", told.out), re.sub(r"\s+", " ", told.err)

    for i in (1, 3):
        assert run("transfer", *SWEEP, *grid, "--shard", f"{i}/3")[0] == 0
        status, _, told = run("merge", "parts")
        assert status == 2
        lacking = "2/3, 3/3" if i == 1 else "2/3"
        assert f"No store of shard {lacking} was joined. Name its results.shard-2-of-3" in told
    assert run("transfer", *SWEEP, *grid, "--shard=2/3")[0] == 0
    status, told, _ = run("merge", "parts")
    assert status == 0
    assert "Next: Decide" in told
    assert "--lrs" in told.partition("Next: ")[2]
    assert "--shard" not in told
    assert "--shard" not in words_of(here / "parts" / "report.html")


def test_a_stray_shard_does_not_hide_a_finished_sweep(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    finished = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "2", "--depths", "2,4"]
    other = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "2", "--depths", "2,4,16"]
    for i in (1, 2):
        assert main(["transfer", *SWEEP, *finished, "--out", "stray", "--shard", f"{i}/2"]) == 0
    assert main(["transfer", *SWEEP, *other, "--out", "stray", "--shard", "1/3"]) == 0
    capsys.readouterr()
    assert main(["merge", "stray"]) == 0
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "This is number 1, depth 2, 4 under" in told
    assert "2 is depth 2, 4, 16 under" in told
    assert "--measurement 2`" in told
    assert main(["report", "stray"]) == 0
    assert "This is number 1, depth 2, 4 under" in words_of(here / "stray" / "report.html")
    assert main(["report", "stray", "--measurement", "2"]) == 2  # its runs are missing
    assert main(["report", "stray", "--measurement", "3"]) == 2
    assert "Expected a measurement of 1 to 2" in capsys.readouterr().err


def test_two_unfinished_sweeps_and_their_missing_shards_are_named(here, monkeypatch, capsys):
    """The stray shard takes the name of the one that is missing, so no file is missing."""
    monkeypatch.chdir(here)
    wanted = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "2", "--depths", "2,4"]
    stray = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "2", "--depths", "2,8"]
    for asked in ([*wanted, "--shard", "1/2"], [*stray, "--shard=2/2"]):
        words = ["transfer", *SWEEP, *asked, "--out", "half"]
        monkeypatch.setattr(sys, "argv", ["depthmup", *words])  # which stores keep
        assert main(words) == 0
    capsys.readouterr()
    assert main(["merge", "half"]) == 2
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert re.search(r"1 is depth 2, 4 under .*? no store of its shard 2/2 was joined\.", told)
    assert re.search(r"2 is depth 2, 8 under .*? no store of its shard 1/2 was joined\.", told)


def test_a_folder_with_two_finished_sweeps_asks(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    lrs = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "2", "--out", "two"]
    assert main(["transfer", *SWEEP, *lrs, "--depths", "2,4"]) == 0
    assert main(["transfer", *SWEEP, *lrs, "--depths", "2,8"]) == 0
    capsys.readouterr()
    for number, depths in ((None, "2, 8"), (1, "2, 4"), (2, "2, 8")):
        chosen = [] if number is None else ["--measurement", str(number)]
        assert main(["report", "two", *chosen]) == 0
        told = re.sub(r"\s+", " ", capsys.readouterr().out)
        assert f"This is number {number or 2}, depth {depths} under" in told


def test_code_that_changed_between_two_sessions_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "log.py"
    script.write_text(SCRIPT)
    asked = ["transfer", *SWEEP, "--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "1", "--out", "out"]
    assert main(asked) == 0
    assert "has changed" not in "".join(capsys.readouterr())
    script.write_text(SCRIPT + "\nbeside = 1\n")
    assert main(asked) == 0
    told = re.sub(r"\s+", " ", "".join(capsys.readouterr()))
    assert "has changed since the runs in out: none of them is used again" in told
    assert main(["report", "out"]) == 0
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    one, two = re.search(r"This is number 2, (.*?)\. 1 is (.*?)\. Show another", told).groups()
    assert one != two  # by their code alone
    assert one.partition(", code")[0] == two.partition(", code")[0]


def test_a_finished_grid_names_what_shows_the_next_command(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    asked = ["--lrs", "1.6e-2,3.2e-2,6.4e-2", "--seeds", "1", "--out", "whole"]
    assert main(["transfer", *SWEEP, *asked]) == 0
    capsys.readouterr()
    assert main(["next", "whole"]) == 0
    told = re.sub(r"\s+", " ", "".join(capsys.readouterr()))
    assert "The grid's 6 runs are all there. `depthmup report whole` ends with" in told
