"""``transfer --target``: a certificate or its refusal, in every form."""

import json
import shutil

import pytest

from depthmup.cli import main
from depthmup.records import Certificate, Lack

TINY = [
    *("transfer", "--depths", "2", "4", "8", "--base", "16x2", "--seeds", "2"),
    *("--steps", "20", "--window", "10", "--workers", "1", "--schemes", "depth-mup", "ode"),
    *("--lrs", "0.0078125", "0.03125", "0.125", "0.5"),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("foretold")
    assert main([*TINY, "--target", "depth=4096", "--out", str(out)]) == 0
    return out


def test_one_file_for_each_scheme(out):
    found = [
        Certificate.from_json((out / name).read_text())
        for name in ("certificate.json", "certificate-2.json")
    ]
    assert [each.scheme for each in found] == ["depth-mup", "ode"]
    for each in found:
        assert each.target == {"width": 16, "depth": 4096}
        assert each.base == {"width": 16, "depth": 2}
        assert each.rate_unit == 1.0
        assert Lack.FAR in {refusal.lack for refusal in each.refusals}
        assert each.measure == "mean training loss over steps 10 to 20"
        assert each.environment["cores"]


def test_page_and_text_hold_them_also_when_rebuilt(out, capsys):
    (out / "certificate.json").unlink()
    assert main(["report", str(out)]) == 0
    assert "No learning rate is certified for width 16 and depth 4096." in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert page.count("Depth 4096 is more than 16 times the largest that was measured, 8.") == 2
    assert json.loads((out / "certificate.json").read_text())["refusals"]


def test_without_a_target_there_is_none(out, tmp_path, capsys):
    copy = shutil.copytree(out, tmp_path / "copy")  # the command removes certificates of before
    assert main([*TINY, "--out", str(copy)]) == 0
    assert "certified" not in capsys.readouterr().out


def test_a_negative_depth_is_refused(tmp_path, capsys):
    assert main([*TINY, "--target", "depth=-4", "--out", str(tmp_path)]) != 0
    assert "Expected --target as NAME=VALUE" in capsys.readouterr().err
