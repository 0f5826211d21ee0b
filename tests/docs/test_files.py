"""docs/reference/files.md describes every field of every file that is written, and no other."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from own_models import SOURCE

from depthmup.cli import main
from depthmup.records import Certificate, Check, Estimate
from reproduction.evidence import Accepted, Comparison, Evidence, Finding
from reproduction.pages.evidence import evidence_summary

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text(encoding="utf-8")


def documented(heading, part=0):
    """The fields in the tables below a heading."""
    section = re.split(rf"^## {re.escape(heading)}$", PAGE, flags=re.M)[1].split("\n## ")[0]
    rows = section.split("\nWith `--optimum`:")[part]
    return {
        name
        for row in re.findall(r"^\| (`.*?) \| [^|]*\|$", rows, re.M)
        for name in re.findall(r"`([^`]+)`", row)
    }


def paths(value, at=""):
    """Every leaf of a JSON document; lists are one field with [] for their entries."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from paths(below, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for one in value:
            yield from paths(one, f"{at}[]")
    else:
        yield f"{at}[]" if isinstance(value, list) else at


def check(document, fields):
    leaves = set(paths(document))
    open_ended = tuple(f.removesuffix("*") for f in fields if f.endswith(".*"))
    undescribed = {p for p in leaves if p not in fields and not p.startswith(open_ended or "\0")}
    assert undescribed == set()
    stale = {
        field
        for field in fields
        if field.removesuffix(".*") not in leaves
        and not any(p.startswith((field.removesuffix("*"), f"{field}.")) for p in leaves)
    }
    assert stale == set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def run(*words):
    assert main([str(word) for word in words]) == 0


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_summary_and_certificate(folder):
    run(
        "transfer", "--depths", "8,16", "--schemes", "depth-mup", "--seeds", "2", "--steps", "10",
        "--target", "depth=64", "--workers", "1", "--out", folder,
    )  # fmt: skip
    check(read(folder / "summary.json"), documented("summary.json"))
    written = set(read(folder / "certificate.json"))
    assert written == {f.name for f in dataclasses.fields(Certificate)} | {"doublings_beyond"}


def test_records_that_are_files_by_themselves():
    """Their fields are described with the records (test_public_names.py)."""
    for record, file in ((Certificate, "certificate"), (Check, "check")):
        [section] = re.findall(rf"^## {file}.json$(.*?)^## ", PAGE, re.M | re.S)
        assert f"fields of `{record.__name__}`" in section


def test_plan(folder):
    (folder / "mine.py").write_text(SOURCE)
    run("plan", "--model", f"{folder}/mine.py:make", "--base", "16x2", "--target", "32x4",
        "--scheme", "depth-mup", "--out", folder)  # fmt: skip
    check(read(folder / "plan.json"), documented("plan.json"))


@pytest.mark.parametrize(("part", "more"), [(0, ["--depth", "4"]), (1, ["--optimum"])])
def test_limit(folder, part, more):
    run("limit", "--steps", "2", "--out", folder / str(part), *more)
    check(read(folder / str(part) / "limit.json"), documented("limit.json", part))


def test_evidence():
    comparison = Comparison(
        what="a slope", paper="0", ours=Estimate(value=0.0, low=-0.1, high=0.1), accepted=Accepted()
    )
    finding = Finding(
        claim="fig1", title="t", shows="s", source="Figure 1", comparisons=(comparison,),
        notes=("a note",), config={"steps": 1},
    )  # fmt: skip
    evidence = Evidence(
        scale="laptop", findings=(finding,), environment={"cores": 2}, config={"seeds": 1}
    )
    check(evidence_summary(evidence), documented("evidence.json"))
