"""The reproduction of the paper is found in a clone of this project, and nowhere else."""

import sys

import pytest

from depthmup.cli import clone, main


def folder(at, *, project="depthmup"):
    """A folder with a package ``reproduction`` whose import would be noticed."""
    (at / "reproduction").mkdir(parents=True)
    for name in ("__init__", "__main__", "command"):
        (at / "reproduction" / f"{name}.py").write_text("raise SystemError('imported')\n")
    (at / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
    return at


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """As after ``pip install``: no checkout around the package."""
    monkeypatch.setattr(clone, "__file__", str(tmp_path / "a" / "b" / "c" / "clone.py"))
    monkeypatch.chdir(tmp_path)


def test_a_checkout_is_found_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert (clone.clone() / "reproduction" / "__main__.py").is_file()


@pytest.mark.parametrize("words", [["reproduce", "fig10"], ["regimes", "--map", "map.svg"]])
def test_elsewhere_an_error_and_a_hint_say_where_it_is(installed, tmp_path, words, capsys):
    before = set(tmp_path.iterdir())
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "`reproduction` of a clone" in said
    assert [line.partition(": ")[0] for line in said.splitlines()] == ["error", "hint"]
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("text", ['[project]\nname = "other"\n', "[tool]\n", "[[", None])
def test_a_folder_of_that_name_in_another_project_is_not_imported(
    installed, monkeypatch, tmp_path, text
):
    other = folder(tmp_path / "other")
    (other / "pyproject.toml").unlink()
    if text is not None:
        (other / "pyproject.toml").write_text(text)
    monkeypatch.chdir(other)
    assert main(["reproduce", "fig10"]) == 2
    assert str(other) not in sys.path


def test_a_clone_in_the_current_directory_is_used(installed, monkeypatch, tmp_path):
    mine = folder(tmp_path / "mine")
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "reproduction"]:
        monkeypatch.delitem(sys.modules, name)
    assert clone.clone() == mine
    with pytest.raises(SystemError, match="imported"):
        clone.reproduction("command")
    assert sys.path[0] == str(mine)
