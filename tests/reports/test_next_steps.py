"""What a page says to do next: lines to paste, and the command that decides what is open."""

import ast
from dataclasses import replace

import pytest

from depthmup.records import Verdict
from depthmup.records.search import SearchStory
from depthmup.reports import example_certificate, example_study, page
from depthmup.reports.next_steps import next_steps

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
    assert f"lr={lr}), lr={lr})" in step.code
    assert 'scheme="depth-mup", optimizer="adam"' in step.code
    assert where in step.lead
    shown = page(example_study(), certificates=certificates)
    assert shown.index("plan.initialize(model)") < shown.index("Where the minima line up")


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


def test_a_table_has_no_command(study):
    asked = opened(study)
    asked = replace(asked, config={k: v for k, v in asked.config.items() if k != "command"})
    [step] = next_steps([asked], [])
    assert not step.code
    assert "about" in step.lead
