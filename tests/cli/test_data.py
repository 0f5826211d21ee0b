"""``depthmup transfer --data``: data that lie elsewhere, from the command line."""

import json
import sys

import pytest
from published import write_cifar10, write_mnist

from depthmup.cli import main

TINY = [
    *("transfer", "--depths", "2", "4", "--base", "16x2"),
    *("--lrs", "0.00048828125", "0.001953125", "0.0078125"),
    *("--seeds", "2", "--steps", "10", "--window", "5", "--workers", "1"),
    *("--schemes", "depth-mup", "--order", "epochs", "--json"),
]


@pytest.fixture(autouse=True)
def no_place_known(monkeypatch):
    monkeypatch.setenv("DEPTHMUP_MNIST", "")
    monkeypatch.setenv("DEPTHMUP_CIFAR10", "")


def test_a_sweep_on_images_resumes_wherever_they_lie(tmp_path, capsys):
    write_mnist(tmp_path / "here")
    write_mnist(tmp_path / "there", packed=True)
    out = ["--out", str(tmp_path / "out")]
    here = [*TINY, *out, "--unverified-data", "--data", f"mnist:{tmp_path / 'here'}"]
    assert main(here) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["config"]["data"]["name"] == "mnist"
    assert first["config"]["data"]["label_noise"] == 0
    assert first["config"]["order"] == "epochs"
    size = (tmp_path / "out" / "results.sqlite").stat().st_size
    there = [*TINY, *out, "--unverified-data", "--data", f"mnist:{tmp_path / 'there'}"]
    assert main(there) == 0
    assert json.loads(capsys.readouterr().out)["schemes"] == first["schemes"]
    assert (tmp_path / "out" / "results.sqlite").stat().st_size <= size + 8192
    for file in (tmp_path / "here").iterdir():  # the page needs the store alone
        file.unlink()
    assert main(["report", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schemes"] == first["schemes"]


def test_refused_before_anything_is_written(tmp_path, capsys):
    write_cifar10(tmp_path / "cifar", version="binary")
    for data, message in (
        (f"cifar10:{tmp_path}", "Expected the train files of CIFAR-10"),
        (f"cifar10:{tmp_path / 'cifar'}", "--unverified-data"),
        ("cifar10", "set DEPTHMUP_CIFAR10=FOLDER"),
    ):
        assert main([*TINY, "--out", str(tmp_path / "out"), "--data", data]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_the_packages_of_the_hub(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert main([*TINY, "--out", str(tmp_path / "out"), "--data", "mnist:hf"]) == 2
    assert "pip install 'depthmup[hf]'" in capsys.readouterr().err


def test_a_broken_installation_keeps_its_traceback(monkeypatch):
    monkeypatch.setitem(sys.modules, "depthmup.sweep", None)
    with pytest.raises(ModuleNotFoundError, match=r"depthmup\.sweep"):
        main(TINY)
