"""The commands and links that the documents show: a new user types them as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from depthmup.cli import main
from depthmup.cli.spelling import as_meant
from depthmup.cli.verbs import module_of, parse

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(document):
    """The command lines of ``depthmup`` in a document's blocks of code."""
    for block in document.read_text().split("```")[1::2]:
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("depthmup "):
                yield line


SINGLE = ("--help", "--version", "completion")
"""Words that are no verbs with options."""

SHOWN = [(path.name, line) for path in DOCUMENTS for line in commands(path)]


def test_there_are_some():
    assert len(SHOWN) > 25


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_is_understood(document, line):
    verb, *words = shlex.split(line, comments=True)[1:]
    if verb in SINGLE:
        assert not words
        return
    parse([verb, *as_meant(words, module_of(verb).Options)])


def test_readme_measures_and_plans_the_example(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (line,) = [
        line
        for name, line in SHOWN
        if name == "README.md" and "plan  --model examples/own_model.py" in line
    ]
    assert main(shlex.split(line, comments=True)[1:]) == 0
    assert "initialize would refuse" not in capsys.readouterr().out


@pytest.mark.long
def test_readme_checks_the_example(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (line,) = [
        line
        for name, line in SHOWN
        if name == "README.md" and "check --model examples/own_model.py" in line
    ]
    assert main(shlex.split(line, comments=True)[1:]) == 0
    assert "pass" in capsys.readouterr().out


def anchors(document):
    """The anchors of a document's headings, as they are made by the usual hosts."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        if name.endswith(".rst"):  # made with the site, whose own test follows it
            continue
        file = (document.parent / name).resolve() if name else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
