"""Every code block of the tutorials and how-tos runs; every command line in them is one.

Blocks of one page run in order in one namespace, in a folder of their own. A page that says
``<!-- needs: package -->`` is skipped where the package is not installed, and run by
``make integrations``, which installs it.
"""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import torch

from depthmup.cli.spelling import with_commas
from depthmup.cli.verbs import VERBS, parse

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    page
    for folder in ("tutorials", "how-to", "explanation")
    for page in (DOCS / folder).glob("*.md")
)
LONG = {"ten-minutes", "transformer"}
_BLOCK = re.compile(r"(<!-- not run:[^>]*-->\n)?^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [
        body
        for skipped, named, body in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if named == language and not skipped
    ]


def commands():
    for page in [*PAGES, DOCS.parent / "README.md"]:
        for body in blocks(page, ""):
            for line in body.splitlines():
                if line.startswith("depthmup "):
                    yield pytest.param(line, id=f"{page.stem}: {line[:60]}")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=p.stem, marks=[pytest.mark.long] if p.stem in LONG else [])
        for p in PAGES
        if blocks(p, "python")
    ],
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    needs = re.search(r"<!-- needs: ([\w ]+) -->", page.read_text(encoding="utf-8"))
    for package in needs[1].split() if needs else ():
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `make integrations` installs it")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace = {"__name__": "page"}
    for number, body in enumerate(blocks(page, "python")):
        code = compile(body, f"{page.name}, block {number + 1}", "exec")
        exec(code, namespace)


@pytest.mark.parametrize("line", list(commands()))
def test_the_command_lines_of_a_page_are_commands(line):
    words = shlex.split(line, comments=True)
    words = [word for word in words if word != "..."]
    verb, rest = words[1], words[2:]
    if verb.startswith("--"):
        return
    assert verb in VERBS
    if any(re.search("[A-Z]{3}|\\.\\.\\.", word) for word in rest):
        pytest.skip("a pattern of a command")
    parse([verb, *with_commas(rest, VERBS[verb][0])])


def test_links_between_pages_lead_somewhere():
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            generated = target.startswith("depthmup") and target.endswith(".rst")
            assert generated or (page.parent / target).exists(), f"{page.name}: {target}"
