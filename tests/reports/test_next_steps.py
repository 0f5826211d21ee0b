"""What a page says to do next: lines to paste, and the command that decides what is open."""

import ast
import contextlib
import io
import re
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import depthmup
from depthmup.cli.main import main
from depthmup.cli.spelling import as_meant
from depthmup.cli.transfer import Options, asked
from depthmup.cli.verbs import parse
from depthmup.records import Place, Verdict
from depthmup.records.certificate import Lack, Refusal
from depthmup.records.search import SearchStory
from depthmup.reports import example_certificate, example_study, page
from depthmup.reports.next_steps import next_lines, next_steps

COMMAND = ["depthmup", "transfer", "--preset", "small", "--out", "runs/demo"]
RUNS = 4 * 5 * 8 * 5  # schemes, depths, rates, seeds of the synthetic study


def opened(study, ended=None):
    """The study as if its first scheme were undecided, and its search had ended so."""
    first, *others = study.headline.transfers
    window = replace(study.headline, transfers=(replace(first, verdict=Verdict.UNDECIDED), *others))
    story = ended and SearchStory(
        rounds=(), ended={first.scheme: ended}, runs=RUNS, work=1.0, grid_rates=8, grid_seeds=3,
        grid_runs=9, grid_work=1.0,
    )  # fmt: skip
    config = {**study.config, "command": COMMAND}
    return replace(study, windows=(window,), config=config, search=story)


@pytest.mark.parametrize(
    ("certificates", "lr", "where"),
    [([], "2.3e-3", "a larger model"), ([example_certificate()], "2.0e-3", "depth 256")],
)
def test_a_value_is_lines_to_paste(certificates, lr, where):
    [step] = next_steps([example_study()], certificates)
    ast.parse(step.code)
    assert f"lr={lr})\noptimizer" in step.code
    assert step.code.endswith(f"lr={lr})\n")
    assert 'scheme="depth-mup", optimizer="adam"' in step.code
    assert where in step.lead
    shown = page(example_study(), certificates=certificates)
    assert shown.index("plan.initialize(model)") < shown.index("</span> transfers</span>")
    assert lr in re.search("<h1>(.*?)</h1>", shown)[1]


@pytest.mark.parametrize("width", [40, 80])
def test_sentences_are_as_wide_as_the_terminal_and_code_is_whole(width):
    lines = next_lines([example_study()], [], width=width)
    sentences = [line for line in lines if not line.startswith("    ")]
    assert max(map(len, sentences)) <= width
    [step] = next_steps([example_study()], [])
    assert [line[4:] for line in lines if line.startswith("    ")] == step.code.splitlines()


@pytest.mark.parametrize(
    ("ended", "option", "runs"),
    [
        (None, "--seeds 10", RUNS),
        ("the budget is spent: 12 of 14 runs", f"--budget {2 * RUNS}", RUNS),
        ("undecided, and no seeds would change that", "--depths 8,16,32,64,128,256", RUNS // 5),
    ],
)
def test_what_is_open_has_a_command_and_its_price(study, ended, option, runs):
    [step] = next_steps([opened(study, ended)], [])
    assert step.code == f"depthmup transfer --preset small --out runs/demo {option}"
    assert f"about {runs} runs" in step.lead


def test_a_target_that_was_asked_for_comes_before_a_scheme_that_is_open(study):
    """Depth-muP transfers; its certificate is refused for uncertainty, and SP is undecided."""
    first, *others = study.headline.transfers
    open_ = [replace(t, verdict=Verdict.UNDECIDED) for t in others]
    window = replace(study.headline, transfers=(first, *open_))
    config = {**study.config, "command": COMMAND}
    given = replace(study, windows=(window,), config=config)
    lack = Refusal(lack=Lack.UNCERTAIN, reason="It is uncertain.", advice="Use more seeds.")
    refused = replace(example_certificate(), scheme=first.scheme, refusals=(lack,))
    leads = [step.lead for step in next_steps([given], [refused])]
    assert leads[-1].startswith("Get a certificate for width 64 and depth 256: twice")
    assert next_steps([given], [])[-1].lead.startswith("Decide")


@pytest.mark.parametrize("given", [["--budget", "2min"], ["--budget=2min"]])
def test_a_search_out_of_time_gets_twice_the_runs_and_no_option_twice(study, given):
    """Seconds are no reason of a search's own: its stories end without one."""
    asked = opened(study, "the budget is spent")
    story = replace(asked.search, ended={})
    command = [*COMMAND[:2], *given, *COMMAND[2:]]
    asked = replace(asked, search=story, config={**asked.config, "command": command})
    [step] = next_steps([asked], [])
    assert step.code == f"depthmup transfer --preset small --out runs/demo --budget {2 * RUNS}"


def test_a_list_that_is_given_is_replaced_whole(study):
    asked = opened(study, "undecided, and no seeds would change that")
    command = [*COMMAND, "--depths", "8", "16", "32", "64", "128"]
    [step] = next_steps([replace(asked, config={**asked.config, "command": command})], [])
    assert step.code == f"{shlex.join(COMMAND)} --depths 8,16,32,64,128,256"


@pytest.mark.parametrize("spelled", [[], ["--lrs", "1e-3"], ["--log2-lrs=-9,-8"]])
@pytest.mark.parametrize("place", [Place.LOW_EDGE, Place.HIGH_EDGE])
def test_an_optimum_at_an_edge_of_the_grid_asks_for_a_wider_one(study, place, spelled):
    """Seeds would not decide it, and asked for again and again it would never end."""
    open_study = opened(study)
    first, *others = open_study.headline.transfers
    at_edge = replace(first, optima=(replace(first.optima[0], place=place), *first.optima[1:]))
    window = replace(open_study.headline, transfers=(at_edge, *others))
    config = {**open_study.config, "command": [*COMMAND, *spelled]}
    [step] = next_steps([replace(open_study, windows=(window,), config=config)], [])
    grid = sorted({p.log2_lr for c in study.headline.curves for p in c.points})
    words = shlex.split(step.code)[1:]
    design = asked(parse([words[0], *as_meant(words[1:], Options)]))[1]
    low, high = design.log2_values[0], design.log2_values[-1]
    steps = {Place.LOW_EDGE: (2, 0), Place.HIGH_EDGE: (0, 2)}[place]
    assert (grid[0] - low, high - grid[-1]) == pytest.approx(steps)
    assert design.log2_values[slice(2 * (steps[0] > 0), None)][: len(grid)] == pytest.approx(grid)
    assert f"about {RUNS * 2 // len(grid)} runs" in step.lead


def test_rates_beyond_an_edge_have_three_digits(study):
    """A search's rate such as 0.10546875006115494 stood in the command to paste."""
    asked, aside = opened(study), 0.1
    curves = tuple(
        replace(c, points=tuple(replace(p, log2_lr=p.log2_lr + aside) for p in c.points))
        for c in asked.headline.curves
    )
    first, *others = asked.headline.transfers
    at_edge = replace(first, optima=(replace(first.optima[0], place=Place.HIGH_EDGE),))
    window = replace(asked.headline, curves=curves, transfers=(at_edge, *others))
    config = {**asked.config, "command": [*COMMAND, "--lrs", "1e-3"]}
    [step] = next_steps([replace(asked, windows=(window,), config=config)], [])
    *kept, one, two = step.code.partition("--lrs ")[2].split(",")
    assert kept
    grid = sorted({p.log2_lr for c in curves for p in c.points})
    for n, new in enumerate((one, two), start=1):
        assert float(new) == pytest.approx(2.0 ** (grid[-1] + n * (grid[-1] - grid[-2])), rel=5e-3)
        assert len(new.replace(".", "").strip("0")) <= 3


def test_a_table_has_no_command(study):
    asked = opened(study)
    asked = replace(asked, config={k: v for k, v in asked.config.items() if k != "command"})
    [step] = next_steps([asked], [])
    assert not step.code
    assert "about" in step.lead


def table(groups=("a b", "c"), column="my optimizer"):
    """Runs whose best rate rises by 12% per doubling: with this scatter, undecided."""
    rows = [
        (group, d, w, 2.0**k, s, d * 10, 1 + 0.05 * (k + 8 - 0.16 * np.log2(d / 4)) ** 2 + 0.01 * s)
        for group in groups
        for d, w in ((4, 64), (8, 64), (16, 64), (4, 128))
        for k in range(-11, -4)
        for s in range(2)
    ]
    return pd.DataFrame(rows, columns=[column, "n_layers", "width", "lr", "seed", "epoch", "loss"])


COLUMNS = {"axes": {"depth": "n_layers", "width": "width"}, "lr": "lr", "loss": "loss"}


def test_a_size_that_grows_in_step_is_added_with_its_other_axis():
    rows = [
        (d, 16 * d, 2.0**k, 2 + 0.1 * (k + 7 + 0.15 * np.log2(d)) ** 2)
        for d in (4, 8, 16)
        for k in range(-11, -4)
    ]
    runs = pd.DataFrame(rows, columns=["n_layers", "width", "lr", "loss"])
    report = depthmup.fit(runs, **COLUMNS)
    assert report.verdict is Verdict.UNDECIDED
    *_, step = next_steps(report.studies, ())
    assert "add depth 32 with its width (about 7 runs)" in step.lead


@pytest.mark.parametrize("by", [["my optimizer"], []])
def test_an_undecided_table_has_a_command_that_runs(tmp_path, capsys, by):
    path = tmp_path / "my runs.csv"
    table().to_csv(path, index=False)
    if not by:
        table(groups=("c",)).to_csv(path, index=False)
    report = depthmup.fit(path, **COLUMNS, seed="seed", by=by, tolerance=0.16)
    assert report.verdict is Verdict.UNDECIDED
    *_, step = next_steps(report.studies, ())
    assert "add depth 32 (about 14 runs)" in step.lead
    assert step.code in report.summary()
    assert {"do": step.lead, "copy": step.code} in report.to_dict()["next"]
    words = shlex.split(step.code)
    assert words[:2] == ["depthmup", "next"]
    assert main(words[1:]) == 0
    asked = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert set(asked["n_layers"]) <= {4, 8, 16, 32}
    assert set(asked["width"]) == {64}


def test_a_group_that_was_asked_for_is_named_once():
    given = {"by": "my optimizer", "where": ["`my optimizer` == c"], "tolerance": 0.16}
    report = depthmup.fit(table(), **COLUMNS, seed="seed", **given)
    *_, step = next_steps(report.studies, ())
    assert step.code.count("== c") == 1


def test_an_undecided_frame_has_python_that_runs():
    runs = table()
    report = depthmup.fit(runs, **COLUMNS, seed="seed", by="my optimizer", tolerance=0.16)
    *_, step = next_steps(report.studies, ())
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(step.code, {"depthmup": depthmup, "runs": runs})
    assert "n_layers" in printed.getvalue()


def test_a_filter_picks_the_rows_of_a_group_or_is_none():
    from depthmup.tables.where import equalities, parse_filter

    assert equalities([("a", "x"), ("b c", "d e")]) == 'a == x and `b c` == "d e"'
    for value in ("", "it's", 'say "x"', "7", "ß"):
        [one] = parse_filter(equalities([("my optimizer", value)]))
        assert (one.column, one.values) == ("my optimizer", (value,))
    assert equalities([("a", "\"'")]) == equalities([("`", "x")]) == ""


def test_runs_that_schemes_share_are_priced_once(study):
    asked = opened(study)
    [window] = asked.windows
    base = min(curve.size["depth"] for curve in window.curves)
    first = next(curve for curve in window.curves if curve.size["depth"] == base)
    curves = [
        replace(c, points=first.points) if c.size["depth"] == base else c for c in window.curves
    ]
    shared = replace(asked, windows=(replace(window, curves=tuple(curves)),))
    step = next_steps([shared], [])[-1]
    assert f"twice the seeds (about {RUNS - 3 * 8 * 5} runs" in step.lead
