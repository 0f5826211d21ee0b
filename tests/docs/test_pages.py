"""Every code block of the tutorials and how-tos runs; every command line of the docs is one.

Blocks of one page run in order in one namespace, in a folder of their own. A page that says
``<!-- needs: package -->`` is skipped where the package is not installed, and run by
``make integrations``, which installs it. One that says ``<!-- processes: 2 -->`` is a script for
several processes.
"""

import importlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from depthmup.cli import transfer
from depthmup.cli.spelling import as_meant
from depthmup.cli.verbs import VERBS, module_of, parse
from depthmup.records.sizes import parse_size
from depthmup.sweep.resolution import check_resolved, resolved_sweep
from studies import adoption

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    *sorted(
        page
        for folder in ("tutorials", "how-to", "explanation")
        for page in (DOCS / folder).glob("*.md")
    ),
    DOCS / "gallery.md",
]
USER = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "studies"]
"""Pages for people who use the package; studies are kept as they were written."""
GENERATED = {"command-line", "rules", "changelog", "security", "examples"}
LONG = {"loop", "ten-minutes", "transformer", "tuners", "gallery", "notebook", "your-command"}
_BLOCK = re.compile(
    r"(<!-- not run:[^>]*-->\n)?^```(?:\{code-cell\} )?(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def blocks(page, language):
    return [
        body
        for skipped, named, body in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if named == language and not skipped
    ]


def processes(page):
    """On how many processes a page's code runs."""
    said = re.search(r"<!-- processes: (\d+) -->", page.read_text(encoding="utf-8"))
    return int(said[1]) if said else 1


def commands():
    for page in [*USER, DOCS.parent / "README.md"]:
        for body in blocks(page, ""):
            for line in body.replace("\\\n", " ").splitlines():
                if line.startswith("depthmup "):
                    yield pytest.param(line, id=f"{page.stem}: {line[:60]}")


def skip_without_what_is_needed(page):
    needs = re.search(r"<!-- needs: ([\w ]+) -->", page.read_text(encoding="utf-8"))
    for package in needs[1].split() if needs else ():
        try:
            importlib.import_module(package)
        except (ImportError, RuntimeError) as problem:  # torchvision for another torch: the latter
            pytest.skip(f"{package}: {problem}; `make integrations` installs it")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=p.stem, marks=[pytest.mark.long] if p.stem in LONG else [])
        for p in PAGES
        if blocks(p, "python") and processes(p) == 1
    ],
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    skip_without_what_is_needed(page)
    monkeypatch.chdir(tmp_path)
    # The commands of a page mean this Python.
    here = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([here, os.environ.get("PATH", "")]))
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    torch.manual_seed(0)
    namespace = {"__name__": "page"}
    for number, body in enumerate(blocks(page, "python")):
        code = compile(body, f"{page.name}, block {number + 1}", "exec")
        exec(code, namespace)


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", DOCS / "index.md"])
def test_the_first_code_that_a_stranger_sees_runs_in_a_clone(page, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    monkeypatch.syspath_prepend(str(DOCS.parent))
    exec(compile(blocks(page, "python")[0], page.name, "exec"), {"__name__": "page"})


@pytest.mark.long(slice=False)
@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem) for p in PAGES if blocks(p, "python") and processes(p) > 1]
)
def test_the_code_of_a_page_runs_on_several_processes(page, tmp_path):
    skip_without_what_is_needed(page)
    script, count = tmp_path / "train.py", processes(page)
    script.write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = str(s.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, script.name],
            cwd=tmp_path,
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
            | {"MASTER_ADDR": "localhost", "MASTER_PORT": port},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    errors = [process.communicate(timeout=300)[1] for process in started]
    assert all(process.returncode == 0 for process in started), "\n".join(errors)


@pytest.mark.parametrize("line", list(commands()))
def test_the_command_lines_of_a_page_are_commands(line, monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    words = shlex.split(line, comments=True)
    words = [word for word in words if word != "..."]
    verb, rest = words[1], words[2:]
    if verb.startswith("--"):
        return
    assert verb in VERBS
    if any(re.search("[A-Z]{3}|\\.\\.\\.", word) for word in rest):
        pytest.skip("a pattern of a command")
    options = parse([verb, *as_meant(rest, module_of(verb).Options)])
    if verb == "transfer" and "mine.py" not in line:
        would_train(options)


def would_train(options):
    """As far as ``depthmup transfer`` goes before it trains: what it refuses is refused."""
    model, design = transfer.asked(options)
    sweep, target = resolved_sweep(
        model, design, parse_size(options.target, option="--target") or None
    )
    check_resolved(sweep, target, options.tolerance)


def test_links_between_pages_lead_somewhere():
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            generated = target.startswith("depthmup") and target.endswith(".rst")
            generated |= page.parent.joinpath(target).stem in GENERATED
            assert generated or (page.parent / target).exists(), f"{page.name}: {target}"


def words(page):
    """The words of a page without its code."""
    return len(
        re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S).split()
    )


@pytest.mark.parametrize("page", [p for p in USER if p.stem not in GENERATED], ids=lambda p: p.stem)
def test_a_page_is_short_and_leads_on(page):
    text = page.read_text(encoding="utf-8")
    assert words(page) <= (1_400 if page.stem == "files" else 900)
    assert re.search(r"^Next: .*\]\([^)]+\.md", text.replace("\n[", " ["), re.M)


@pytest.mark.parametrize(
    "page", sorted((DOCS / "studies").glob("[!i]*.md")), ids=lambda page: page.stem
)
def test_a_study_begins_with_question_answer_date_and_command(page):
    if page.stem != "evidence-table":
        text = page.read_text(encoding="utf-8")
        box = text.split("\n\n")[1]
        assert re.findall(r"^> \*\*(\w+)\.\*\* \S", box, re.M) == [
            "Question", "Answer", "Date", "Command"
        ]  # fmt: skip


def test_every_page_stands_in_the_contents():
    listed = set()
    for index, folder in ((DOCS / "index.md", DOCS), (DOCS / "studies/index.md", DOCS / "studies")):
        for body in re.findall(r"```{toctree}\n(.*?)```", index.read_text(encoding="utf-8"), re.S):
            listed |= {folder / name for name in re.findall(r"^[\w/-]+$", body, re.M)}
    assert {page.with_suffix("") for page in DOCS.rglob("*.md")} - listed <= {DOCS / "index"}


class TestAdoption:
    def test_the_table_is_the_one_counted(self):
        page = (DOCS / "explanation" / "comparison.md").read_text(encoding="utf-8")
        assert adoption.table() in page

    @pytest.mark.parametrize("name", adoption.TITLES)
    def test_the_plain_program_knows_no_plan(self, name):
        code = adoption.plain(adoption.program(DOCS / "how-to" / f"{name}.md"))
        assert not re.search(r"\bplan\b|depthmup|\bbase\b", code)
        compile(code, name, "exec")

    @pytest.mark.parametrize("change", [adoption.plain, lambda code: adoption.with_mup(code)])
    def test_the_plain_program_and_mups_run(self, change, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        code = adoption.plain(adoption.program(DOCS / "how-to" / "nanogpt.md"))
        adoption.run(change(code))


def test_every_study_is_quoted_and_every_command_of_a_page_is_there():
    root = DOCS.parent
    texts = [*DOCS.rglob("*.md"), root / "README.md", *(root / "src").rglob("*.py")]
    asked = {
        name
        for path in texts
        for name in re.findall(
            r"python -m ((?:studies|benchmarks)(?:\.\w+)*)", path.read_text(encoding="utf-8")
        )
    }
    there = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__main__")
        for folder in ("studies", "benchmarks")
        for path in (root / folder).rglob("*.py")
        if "__main__" in path.read_text(encoding="utf-8") or path.stem == "__main__"
    }
    assert asked <= there
    assert {name for name in there if name.startswith("studies")} <= asked


def test_the_figures_of_the_first_screen_are_of_one_run():
    """`python -m studies.first_screen` writes the picture's caption, README and the tutorial."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    caption = (DOCS / "_static" / "transfer.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (\S+% \([^)]+\))[^|]* \| (\w+) \|$", readme, re.MULTILINE)
    assert len(rows) == 4
    for drift, verdict in rows:
        assert f"{verdict}, {drift}" in caption
    tutorial = (DOCS / "tutorials" / "ten-minutes.md").read_text(encoding="utf-8")
    planned, plain = re.search(r"(\S+) with a plan, and (\S+) without", readme).groups()
    assert f"planned {planned}, plain {plain}\n" in tutorial


def test_every_document_s_example_is_what_the_code_prints(tmp_path, monkeypatch):
    """`make docs` writes the page anew, where it differs."""
    monkeypatch.syspath_prepend(str(DOCS))
    import generate

    generate.schemas(tmp_path / "json.md")
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    assert page == (tmp_path / "json.md").read_text(encoding="utf-8")
    for document in blocks(DOCS / "reference" / "json.md", "json"):
        read = json.loads(document)
        assert isinstance(read.get("schema", read.get("depthmup_plan")), int)
