"""Words of the command line: lists, sizes, budgets, mistakes, and the colours of verdicts."""

import io

from depthmup.cli import output
from depthmup.cli.plan import Options
from depthmup.cli.sizes import parse_arms, parse_pairs
from depthmup.cli.spelling import mistake, unknown_command
from depthmup.cli.transfer import parse_budget
from depthmup.cli.verbs import overview


def test_words_are_parsed():
    pairs = parse_pairs(["depth=n_layers", "batch"], option="--axes", value="COLUMN", alone=True)
    assert pairs == {"depth": "n_layers", "batch": "batch"}
    arms = parse_arms(["batch=32,64,128", "steps=500,1000"], option="--along")
    assert arms == {"batch": (32, 64, 128), "steps": (500, 1000)}
    assert parse_budget("200") == {"runs": 200}
    assert parse_budget("30min") == {"seconds": 1800.0}


def test_mistakes_have_hints():
    assert mistake(["mine.py:make", "--base", "64x4"], "plan", Options) == (
        "mine.py:make stands without an option.",
        "Use --model mine.py:make.",
    )
    assert unknown_command("tranfer", ["plan", "transfer"]) == (
        "there is no command 'tranfer'. Did you mean `depthmup transfer`?"
    )


def test_the_overview_fits_a_narrow_terminal():
    assert max(map(len, overview().splitlines())) <= 80


def test_verdicts_have_their_colours_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", screen := Terminal())
    output.show("Held: it transfers; not reproduced; undecided; the batch was held")
    green, red, yellow = ("\x1b[1;32m{}\x1b[0m", "\x1b[1;31m{}\x1b[0m", "\x1b[1;33m{}\x1b[0m")
    assert screen.getvalue() == (
        f"{green.format('Held')}: it {green.format('transfers')}; {red.format('not reproduced')}; "
        f"{yellow.format('undecided')}; the batch was held\n"
    )
