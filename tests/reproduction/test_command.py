"""``depthmup reproduce``: names and data are checked first, work is kept, the page is rebuilt."""

import json
import re

import pytest

from depthmup.cli import main


@pytest.fixture
def out(tmp_path):
    return tmp_path / "evidence"


def test_the_claims_are_listed_with_their_prices_and_verdicts(out, capsys):
    assert main(["reproduce", "lemma4.3", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["reproduce", "--list", "--out", str(out)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert re.match(r"fig10 +\d{3} .*\d s .*drift", lines["fig10"])
    assert "  reproduced  " in lines["lemma4.3"]
    assert "erratum1" in lines
    assert main(["reproduce", "--list", "--json", "--out", str(out)]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["lemma4.3"]["verdict"] == "reproduced"
    assert rows["fig10"]["verdict"] == ""
    assert rows["fig10"]["runs"] > 400
    assert rows["fig10"]["seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Expected figures or claims of the paper, such as fig10"),
        (["fig99"], "Did you mean fig9"),
        (["fig10", "--scale", "paper"], "pass --data cifar10:FOLDER"),
        (["fig10", "--data", "cifar10:/nowhere"], "/nowhere"),
        (["fig10", "--data", "digits", "digits"], "at most one data set to train on, and mnist"),
        (["fig10", "--data", "svhn"], "svhn"),
        (["fig9", "--workers", "-1"], "at least 1"),
        (["fig9", "--device", "tpu"], "tpu"),
        (["lemma4.3", "--beside", "/nowhere"], "Expected --markdown FILE with --beside"),
        (["fig9", "--address", "10.0.0.1:6379"], "is for --executor ray"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(arguments, message, out, capsys):
    assert main(["reproduce", *arguments, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_the_table_shows_both_scales(out, capsys):
    """Whatever is measured at another scale stands beside, in a section of its own."""
    table, medium = out.parent / "EVIDENCE.md", out.parent / "medium"
    assert main(["reproduce", "lemma4.3", "--scale", "medium", "--out", str(medium)]) == 0
    arguments = ["reproduce", "lemma4.3", "--out", str(out), "--markdown", str(table)]
    assert main([*arguments, "--beside", str(medium)]) == 0
    text = table.read_text()
    head, _, below = text.partition("## At scale `medium`")
    assert "| claim | `laptop` | `medium` |" in head
    assert "The Γ, C recursion at finite depth | reproduced | reproduced |" in head
    assert text.count("**lemma4.3** ") == 3
    assert "### Claims and theorems" in below

    assert main([*arguments, "--beside", str(out.parent / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_a_claim_is_reproduced_kept_and_rebuilt(out, capsys):
    table = out.parent / "EVIDENCE.md"
    arguments = ["reproduce", "lemma4.3", "--out", str(out)]
    assert main([*arguments, "--json", "--markdown", str(table)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "evidence.json").read_text())
    assert printed["claims"][0]["verdict"] == "reproduced"
    assert "**lemma4.3**" in table.read_text()
    page = (out / "evidence.html").read_text()
    assert "depthmup reproduce lemma4.3 --scale laptop" in page

    (out / "evidence.html").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "evidence.html").read_text() == page

    assert main(["reproduce", "prop4.4", "--out", str(out)]) == 0
    both = json.loads((out / "evidence.json").read_text())
    assert [claim["claim"] for claim in both["claims"]] == ["lemma4.3", "prop4.4"]
