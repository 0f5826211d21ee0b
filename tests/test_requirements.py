"""Pins: complete, the same everywhere, each with hashes; an audit that nobody answered fails."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import depthmup

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"


def loaded(name):
    spec = spec_from_file_location(name, FOLDER / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lock, audit, notes = loaded("lock"), loaded("audit"), loaded("notes")


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pins(file):
    """Versions by normalized name."""
    text = (FOLDER / file).read_text().partition("\n")[2]
    return {
        name.lower().replace("_", "-"): re.match(r"\S+==(\S+)", requirement)[1]
        for name, requirement in lock.requirements(text).items()
    }


def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    split = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {name.lower().replace("_", "-"): version for name, version in split}


@pytest.mark.parametrize("file", ["locked", "torch", "cuda", "build", "tools", "oracles"])
def test_every_pin_has_hashes(file):
    text = (FOLDER / f"{file}.txt").read_text().partition("\n")[2]
    parts = lock.requirements(text)
    assert parts
    for requirement in parts.values():
        first, *hashes = [line.strip(" \\") for line in requirement.splitlines()]
        assert "==" in first
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line) for line in hashes)


def test_the_pins_are_those_of_the_constraints():
    locked, named = pins("locked.txt") | pins("torch.txt"), constraints()
    assert {n: v for n, v in named.items() if n != "mup"} == {
        n: locked[n] for n in named if n != "mup"
    }
    assert pins("oracles.txt") == {"mup": named["mup"]}
    assert not any(lock.CUDA.match(name) for name in locked)


def test_everything_that_is_required_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"]]
    wanted += [word for extra in (*lock.EXTRAS, "parquet", "tensorboard") for word in extras[extra]]
    names = {re.match(r"[\w-]+", word)[0].lower() for word in wanted} - {"depthmup"}
    assert names <= pins("locked.txt").keys() | {"torch"}
    [build] = project["build-system"]["requires"]
    assert build == f"hatchling=={pins('build.txt')['hatchling']}"


def test_hashes_of_builds_without_cuda(tmp_path):
    wheel = tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux.whl"
    wheel.write_bytes(b"abc")
    (tmp_path / "torch-2.12.0+cpu-cp311-cp311-linux.whl").write_bytes(b"older")
    page = tmp_path / "torch.html"
    page.write_text(f'<a href="/torch-2.13.0%2Bcpu-cp312-x.whl#sha256={"1" * 64}">x</a>')
    of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    hashes = lock.cpu_hashes("2.13.0", [tmp_path, page])
    assert hashes == {of_abc, "1" * 64}
    text = lock.with_hashes(f"torch==2.13.0 \\\n    --hash=sha256:{'1' * 64}", hashes)
    assert text.count("--hash") == 2
    assert lock.requirements(text + "\n") == {"torch": text}


PIN = {"name": "hatchling", "version": "1.0", "vulns": []}
HOLE = {**PIN, "vulns": [{"id": "PYSEC-1"}]}
UNKNOWN = {"name": "hatchling", "version": "1.0", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ([json.dumps({"dependencies": [PIN]})], 0, "1 pinned packages, 0 with"),
        ([json.dumps({"dependencies": [HOLE]})], 1, "hatchling==1.0: PYSEC-1"),
        ([json.dumps({"dependencies": [UNKNOWN]})], 2, "this is no pass"),
        (["no JSON"], 2, "no route"),
        # One service answers where another does not.
        (["no JSON", json.dumps({"dependencies": [PIN]})], 0, "0 with known"),
        ([json.dumps({"dependencies": [UNKNOWN]}), json.dumps({"dependencies": [HOLE]})], 1, "SEC"),
    ],
)
def test_what_an_audit_concludes(said, status, words, tmp_path, monkeypatch, capsys):
    """pip-audit itself exits with 0 where it could not ask."""
    answers = iter([*said, said[-1]])

    def run(command, **options):
        return subprocess.CompletedProcess(command, 0, next(answers), "no route")

    monkeypatch.setattr(audit.subprocess, "run", run)
    pinned = tmp_path / "pins.txt"
    pinned.write_text(f"hatchling==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    assert audit.main([str(pinned)]) == status
    told = capsys.readouterr()
    assert words in told.out + told.err


def test_a_tool_that_is_not_there_is_no_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "pins.txt").write_text("a==1\n")
    assert audit.main([str(tmp_path / "pins.txt")]) == 2
    assert "pip-audit" in capsys.readouterr().err


def test_an_audit_of_a_file_that_is_not_there_is_no_verdict(tmp_path, capsys):
    """Exit status 1 would say that a vulnerability is known."""
    assert audit.main([str(tmp_path / "pins.txt")]) == 2
    assert "there is no" in capsys.readouterr().err


def test_the_notes_of_a_release_are_a_line_for_each_change():
    added = "- One thing that\n  goes on.\n- Two."
    changelog = f"# C\n\n## 0.3.0\n\n### Added\n\n{added}\n\n## 0.2.0\n\n- Old.\n"
    found = notes.notes("v0.3.0", changelog)
    assert found == "### Added\n\n- One thing that goes on.\n- Two.\n"
    with pytest.raises(SystemExit, match="there is none"):
        notes.notes("v0.4.0", changelog)


def test_the_wheel_that_readme_installs_is_the_one_that_is_built_and_tried():
    [version, extras] = re.search(
        r"^pip install 'depthmup-([\d.]+)-py3-none-any\.whl(\[.*\])'$", text("README.md"), re.M
    ).groups()
    assert version == depthmup.__version__
    assert f'"$$(ls dist/*.whl){extras}"' in text("Makefile")
    workflow = text(".github/workflows/release.yml")
    assert f'"$(ls dist/*.whl){extras}"' in workflow
    classifiers = re.findall(r"Programming Language :: Python :: (3\.\d+)", text("pyproject.toml"))
    assert re.findall(r'"(3\.\d+)"', workflow.partition("matrix:")[2]) == classifiers
