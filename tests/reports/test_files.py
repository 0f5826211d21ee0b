"""Files are written whole: nothing foresees their drafts, and a failure leaves nothing."""

import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

import depthmup
from depthmup import _drafts
from depthmup._drafts import PREFIX, together
from depthmup.reports import write_result, write_text
from depthmup.reports.pdf import in_order
from depthmup.reports.recorded import example_certificate, example_check, example_study
from depthmup.tables import example as example_table

SOURCES = Path(depthmup.__file__).parent


def test_a_link_under_a_name_that_could_be_foreseen_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / f".report.html.{os.getpid()}").symlink_to(victim)
    (out / "report.html").symlink_to(victim)
    write_text(out / "report.html", "page")
    assert victim.read_text() == "mine"
    assert not (out / "report.html").is_symlink()
    assert (out / "report.html").read_text() == "page"


def test_a_draft_that_is_there_already_is_no_draft(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(_drafts.secrets, "token_hex", lambda size: "guessed")
    (tmp_path / f"{PREFIX}guessed.html").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "report.html", "page")
    assert victim.read_text() == "mine"


def test_a_full_disk_leaves_no_draft_and_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_text(path, "before")

    def full(draft, content):
        with open(draft, "wb") as file:
            file.write(content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "after")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "before"


def test_a_page_has_the_rights_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "page.html", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o640


def test_what_utf8_does_not_have_is_escaped(tmp_path):
    write_text(tmp_path / "page.html", "a\udcffb")
    assert (tmp_path / "page.html").read_text("utf-8") == r"a\udcffb"


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    """Its draft's name is random: nobody has seen it."""
    path = tmp_path / "gone" / "page.html"
    with pytest.raises(FileNotFoundError) as error:
        write_text(path, "x")
    assert error.value.filename == str(path)


@contextmanager
def disk_of(size):
    """Inside, no file of this process grows beyond this many bytes: as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


FORECAST = replace(example_certificate(), title="another")


def plan():
    make = partial(nn.Sequential, nn.ReLU())
    models = (make(nn.Linear(8, n), nn.Linear(n, n), nn.Linear(n, 4)) for n in (64, 32))
    return depthmup.plan(*models, scheme="mup", example_inputs=(torch.zeros(4, 8),))


WRITERS = {
    "a plan": (lambda out: plan().save(out / "plan.json"), 1000),
    "a result": (lambda out: write_result([example_study()], out), 10_000),
    "its charts": (
        lambda out: write_result(
            [example_study()], out, certificates=[example_certificate()], formats=["pdf", "svg"]
        ),
        600_000,
    ),
    "a check": (lambda out: example_check().save(out), 10_000),
    "a table": (lambda out: example().to_csv(out / "points.csv"), 200),
    "a figure": (lambda out: example().figure("transfer").save(out / "figure.pdf"), 1000),
    "a chart": (lambda out: example().plot(out / "chart.svg"), 1000),
}
"""What writes files that people keep, and a size that one of them exceeds."""


@cache
def example():
    table = pd.read_csv(example_table())
    return depthmup.fit(
        table, axes={"depth": "n_layers"}, lr="lr", loss="final_loss", seed="seed", by="scheme"
    )


@pytest.mark.parametrize("what", WRITERS)
def test_a_disk_that_fills_up_leaves_everything_as_it_was(what, tmp_path):
    write, size = WRITERS[what]
    write(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"the earlier one")
    before = contents(tmp_path)
    with disk_of(size), pytest.raises(OSError, match="File too large") as error:
        write(tmp_path)
    assert Path(error.value.filename).relative_to(tmp_path) in before
    assert contents(tmp_path) == before


def test_no_file_is_opened_to_be_written_elsewhere():
    """What is left: no file at all, a command's log, and a copy that is only read."""
    written = re.compile(
        r"""(?<!draft)\.write_(?:text|bytes)\(|\bopen\([^)\n]*["'][wax]b?["']|"""
        r"\.to_(?:csv|parquet)\((?!draft)|json\.dump\(|np\.save|torch\.save|copyfile|savefig"
    )
    found = {
        (path.relative_to(SOURCES).as_posix(), text)
        for path in SOURCES.rglob("*.py")
        for text in written.findall(path.read_text())
    }
    assert found == {
        ("_drafts.py", ".write_bytes("),
        ("_excluded.py", ".to_csv("),  # a text
        ("cli/streams.py", 'open("w"'),
        ("sweep/shards.py", "copyfile"),
        ("training/command.py", 'open("ab"'),
    }


STEPS = ("summary.json", "report.html", "certificate.json")


@pytest.mark.parametrize("number", range(8))
def test_a_kill_at_any_moment_leaves_no_file_beside_those_of_another_result(number, tmp_path):
    """The process is killed before its n-th change of a folder; all files left are of one result.

    A file may be missing, and is written by the next call.
    """
    write_result([example_study()], tmp_path, certificates=[example_certificate()])
    old = contents(tmp_path)
    child = os.fork()
    if not child:
        changes = iter(range(100))

        def killed(change):
            def counted(*args, **options):
                if next(changes) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*args, **options)

            return counted

        Path.replace, Path.unlink = killed(Path.replace), killed(Path.unlink)
        write_result([other_study()], tmp_path, certificates=[FORECAST])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    left = {p: c for p, c in contents(tmp_path).items() if not p.name.startswith(PREFIX)}
    of_old = {path: content for path, content in left.items() if old.get(path) == content}
    assert of_old in ({}, left)
    assert os.WIFSIGNALED(status) == (number < 5)
    write_result([other_study()], tmp_path, certificates=[FORECAST])
    assert {path.name for path in tmp_path.iterdir()} == {*STEPS}


def other_study():
    study = example_study()
    return replace(study, config={**study.config, "steps": 7})


def write_three(folder):
    with together() as files:
        for name in STEPS:
            files.write(folder / name, name)


def test_an_interrupt_between_two_files_waits_for_all(tmp_path, monkeypatch):
    replaced, replace_file = [], Path.replace

    def interrupted(path, target):
        replaced.append(replace_file(path, target))
        if len(replaced) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_three(tmp_path)
    assert contents(tmp_path) == {Path(name): name.encode() for name in STEPS}


def test_an_error_before_the_end_changes_nothing(tmp_path):
    (tmp_path / "page.html").write_text("before")
    with suppress(ZeroDivisionError), together() as files:
        files.write(tmp_path / "page.html", "after")
        files.remove(tmp_path / "page.html")
        raise ZeroDivisionError
    assert contents(tmp_path) == {Path("page.html"): b"before"}


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path):
    begin = "import sys, time; from pathlib import Path; from depthmup._drafts import new_draft; "
    begin += "kept = new_draft(Path(sys.argv[1])); print(kept[0].name, flush=True); time.sleep(60)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", begin, tmp_path / "page.html"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    names = [process.stdout.readline().strip() for process in processes]
    processes[0].kill()
    processes[0].wait()
    (tmp_path / ".mine.html").write_text("not ours")
    (tmp_path / f"{PREFIX}link.html").symlink_to(tmp_path / ".mine.html")
    try:
        write_text(tmp_path / "report.html", "page")
        left = {path.name for path in tmp_path.iterdir()}
    finally:
        processes[1].kill()
        processes[1].wait()
    assert left == {"report.html", ".mine.html", f"{PREFIX}link.html", names[1]}


def test_pdfs_have_the_same_bytes(tmp_path):
    """svg2pdf numbers fonts by the order of a hash table: of 12 alike, 11 differed."""
    for name in ("one.pdf", "two.pdf"):
        example().plot(tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.pdf", "two.pdf"))
    assert one == two
    start = int(re.search(rb"startxref\n(\d+)\n%%EOF$", one)[1])
    table = one[start:].split(b"\n")
    assert table[0] == b"xref"
    places = [int(line[:10]) for line in table[3:] if line.endswith(b" n\r")]
    assert len(places) == int(table[1].split()[1]) - 1 > 10
    for number, place in enumerate(places, start=1):
        assert one[place:].startswith(b"%d 0 obj\n" % number)


def test_a_pdf_that_is_built_otherwise_stays_as_it_is():
    assert (
        in_order(b"%PDF-1.7\n%\x80\n1 0 obj\n<<>>\nendobj\n")
        == b"%PDF-1.7\n%\x80\n1 0 obj\n<<>>\nendobj\n"
    )
