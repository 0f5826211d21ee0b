"""Files are written whole: nothing foresees their drafts, and a failure leaves nothing."""

import os
from pathlib import Path

import pytest

from depthmup.reports import drafts, write_text


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
    monkeypatch.setattr(drafts.secrets, "token_hex", lambda size: "guessed")
    (tmp_path / ".guessed.html").symlink_to(victim)
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
