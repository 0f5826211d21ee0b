"""Words of the command line: lists, sizes, budgets, mistakes, and the colours of verdicts."""

import dataclasses
import importlib
import inspect
import io
import re
from functools import partial

import pytest

from depthmup.cli import help, output
from depthmup.cli.help import api_words, entries
from depthmup.cli.plan import Options
from depthmup.cli.sizes import parse_arms, parse_pairs, parse_values
from depthmup.cli.spelling import mistake, options_of, unknown_command
from depthmup.cli.transfer import parse_budget
from depthmup.cli.verbs import VERBS, module_of, overview


def test_words_are_parsed():
    pairs = parse_pairs(["depth=n_layers", "batch"], option="--axes", value="COLUMN", alone=True)
    assert pairs == {"depth": "n_layers", "batch": "batch"}
    arms = parse_arms(["batch=32,64,128", "steps=500,1000"])
    assert arms == {"batch": (32, 64, 128), "steps": (500, 1000)}
    assert parse_values(["D/N=10, 20"], option="--sizes") == {"D/N": (10, 20)}
    assert parse_budget("200") == {"runs": 200}
    assert parse_budget("30min") == {"seconds": 1800.0}


@pytest.mark.parametrize(
    ("parse", "word", "error"),
    [
        (partial(parse_values, option="--sizes"), "depth=4,0", "whole numbers from 1 in --sizes"),
        (partial(parse_values, option="--sizes"), "depth=4,", "such as depth=4,8,16; got"),
        (partial(parse_values, option="--sizes"), "depth", "Expected --sizes as AXIS=VALUE,VALUE"),
        (parse_arms, "batch=1.5", "whole numbers from 1 in --along"),
        (parse_arms, "D/N=10,20", "arguments of your factory"),
    ],
)
def test_lists_of_sizes_are_one_grammar(parse, word, error):
    with pytest.raises(ValueError, match=re.escape(error)):
        parse([word])


def test_mistakes_have_hints():
    assert mistake(["mine.py:make", "--base", "64x4"], "plan", Options) == (
        "mine.py:make stands without an option.",
        "Use --model mine.py:make.",
    )
    assert unknown_command("tranfer", ["plan", "transfer"]) == (
        "there is no command 'tranfer'. Did you mean `depthmup transfer`?"
    )


def helped(verb):
    """The names and the text of every option of a verb."""
    for _, names, text in entries(module_of(verb).Options):
        yield re.findall(r"--[\w-]+", names), text


def owners(options):
    """A verb's options, and the groups of them, that take texts from the API."""
    # A dict keeps the order, in which every worker must collect the same tests.
    return dict.fromkeys(o for o, *_ in options_of(options) if getattr(o, "API", ()))


APIS = [(v, owner) for v in VERBS for owner in owners(module_of(v).Options)]


@pytest.mark.parametrize(
    ("verb", "owner"), APIS, ids=lambda given: getattr(given, "__name__", given)
)
def test_options_are_the_apis_own(verb, owner):
    """An option without a text of its own has that of the API's argument, and its default."""
    same = {"": None, "measured": None, "on": True, "off": False, (): None}
    named = {f"--{f.name.replace('_', '-')}": f for f in dataclasses.fields(owner)}
    compared = 0
    for reference in owner.API:
        words = api_words(reference)
        module, _, function = reference.partition(":")
        api = getattr(importlib.import_module(f"depthmup.{module}"), function)
        parameters = inspect.signature(api).parameters
        for option, field in named.items():
            if field.name in words and any(
                text.startswith(words[field.name])
                for names, text in helped(verb)
                if option in names
            ):
                ours, theirs = field.default, parameters[field.name].default
                as_lists = [tuple(x) if isinstance(x, list | tuple) else x for x in (ours, theirs)]
                ours, theirs = (same.get(x, x) for x in as_lists)
                assert ours == theirs or ours == (theirs,), (verb, option)
                compared += 1
    assert compared


def test_an_argument_that_is_added_shows(monkeypatch):
    """Its text needs no line beside the API's."""
    Added = dataclasses.make_dataclass("Added", [("folding", bool, False)])
    monkeypatch.setattr(help, "_words", lambda owner: api_words("planning.plan:plan"))
    ((_, names, text),) = list(entries(Added))[1:]
    assert names.strip() == "--folding"
    assert text.startswith("Keep forward multipliers in parameters")


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
