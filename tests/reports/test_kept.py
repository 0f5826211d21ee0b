"""What is kept in the user's cache folder is theirs, whole, and made once."""

import os

import pytest

from depthmup.records.cache import cache_folder
from depthmup.reports.kept import kept_text


@pytest.fixture
def made(tmp_path, monkeypatch):
    """How often the text was made."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    calls = []

    def make():
        calls.append(None)
        return "a\r\nb é"

    return calls, make


def test_a_text_is_made_once_and_is_the_same(made):
    calls, make = made
    assert [kept_text("name-1", make) for _ in range(3)] == ["a\r\nb é"] * 3
    assert len(calls) == 1
    assert kept_text("name-2", make) == "a\r\nb é"
    assert len(calls) == 2
    assert [file.suffix for file in cache_folder().iterdir()] == [".txt", ".txt"]


@pytest.mark.parametrize("content", [b"a\r\nb e", b"", b"\xff"])
def test_a_file_with_other_content_is_not_read(made, content):
    calls, make = made
    kept_text("name", make)
    [file] = cache_folder().iterdir()
    file.write_bytes(content)
    assert kept_text("name", make) == "a\r\nb é"
    assert len(calls) == 2
    assert kept_text("name", make) == "a\r\nb é"
    assert len(calls) == 2  # the file was replaced


def test_a_file_that_others_may_write_is_not_read(made):
    calls, make = made
    kept_text("name", make)
    [file] = cache_folder().iterdir()
    file.chmod(0o666)
    kept_text("name", make)
    assert len(calls) == 2


def test_a_group_that_may_write_by_the_umask_is_no_hindrance(made):
    calls, make = made
    before = os.umask(0o002)
    try:
        assert [kept_text("name", make) for _ in range(2)] == ["a\r\nb é"] * 2
    finally:
        os.umask(before)
    assert len(calls) == 1


def test_where_others_could_replace_the_folder_nothing_is_kept(made, tmp_path):
    calls, make = made
    tmp_path.chmod(0o777)
    assert [kept_text("name", make) for _ in range(2)] == ["a\r\nb é"] * 2
    assert len(calls) == 2
    assert not list(cache_folder().iterdir())


def test_without_a_folder_it_is_made(made, monkeypatch, tmp_path):
    calls, make = made
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert kept_text("name", make) == "a\r\nb é"
    assert len(calls) == 1
