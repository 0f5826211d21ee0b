"""``depthmup predict`` and ``depthmup limit --optimum``."""

import json
import lzma
import runpy
from pathlib import Path

import pytest

import depthmup
from depthmup.cli import main
from depthmup.records.finding import change

MODEL = """
import torch
from torch import nn


class Branch(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.branch = Branch(width, width, bias=False)

    def forward(self, x):
        return x + self.branch(x)


def make(width, depth):
    first, last = nn.Linear(4, width, bias=False), nn.Linear(width, 3, bias=False)
    for frozen in (first, last):
        frozen.requires_grad_(False)
    return nn.Sequential(first, *(Block(width) for _ in range(depth)), last)


def batch(generator):
    x = torch.randn(16, 4, generator=generator)
    return x, x[:, :3].argmax(-1)
"""


@pytest.fixture
def call(tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    return [
        "predict", "--model", f"{tmp_path}/mine.py:make", "--base", "32x4", "--depths", "8", "16",
        "--seeds", "3", "--own-init", "fan_in",
    ]  # fmt: skip


def test_it_says_what_moves(call, capsys):
    assert main([*call, "--scheme", "1/2,0"]) == 0
    out = capsys.readouterr().out
    assert "Along depth the best learning rate moves down" in out
    assert "docs/studies/predict.md" in out


def test_json_and_a_chart(call, tmp_path, capsys):
    out = tmp_path / "new" / "chart.html"
    assert main([*call, "--scheme", "1/2,0", "--widths", "64", "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [axis["axis"] for axis in found["axes"]] == ["depth", "width"]
    assert found["axes"][0]["drift"]["value"] < -0.3
    page = out.read_text(encoding="utf-8")
    assert "<h1>Undecided along width. Along depth the best learning rate moves down" in page
    assert "vega" in page.lower()


@pytest.mark.parametrize("given", ["new/folder", "there.d"])
def test_out_may_be_a_folder_as_in_every_command(given, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there.d").mkdir()
    assert main([*call, "--out", given]) == 0
    assert (tmp_path / given / "prediction.html").is_file()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--optimizer", "adamw"], "depthmup transfer"),
        (["--out", f"{__file__}/chart.html"], "folder that can be written"),
        (["--out", "chart.bmp"], ".html, .svg"),
        (["--seeds", "1"], "2 seeds"),
    ],
)
def test_refusals(call, wrong, message, capsys):
    assert main([*call, *wrong]) == 2
    assert message in capsys.readouterr().err


def test_the_example():
    """Depth-muP stays or falls a little; (1/2, 0) falls by half an octave per doubling more."""
    example = Path(__file__).parents[2] / "examples" / "predict.py"
    drifts = runpy.run_path(str(example))["main"](log2_lrs=[-1.0, 0.0])
    assert -0.4 < drifts["depth-mup"] < 0.1
    assert drifts["1/2,0"] == pytest.approx(drifts["depth-mup"] - 0.5, abs=0.01)


def optimum(capsys, *arguments):
    status = main(["limit", "--optimum", "--activation", "relu", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_the_optimum_from_the_kernel(capsys):
    _, right = optimum(capsys, "--scheme", "depth-mup")
    _, wrong = optimum(capsys, "--alpha", "1/2", "--gamma", "0")
    assert right["factors"][0] == wrong["factors"][0] == 1
    assert wrong["drift"] == pytest.approx(right["drift"] - 0.5)
    _, two = optimum(capsys, "--scheme", "completep", "--block-depth", "2", "--depths", "16")
    assert two["factors"][0] > 1


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder of ``depthmup transfer``, along depth 4, 8, 16 and 32 under Depth-muP and SP."""
    folder = tmp_path_factory.mktemp("measured")
    stored = Path(__file__).parents[1] / "golden" / "stores" / "grid.sqlite.xz"
    (folder / "results.sqlite").write_bytes(lzma.decompress(stored.read_bytes()))
    return folder


def test_measured_optima_stand_beside(measured, tmp_path, capsys):
    out = tmp_path / "new" / "optimum.json"
    beside = ("--measured", str(measured), "--base-depth", "4")
    _, found = optimum(capsys, *beside, "--out", str(out))
    optima = depthmup.load(measured).finding("depth-mup", "depth").optima
    known = [at for at in optima if at.log2_lr.known]
    assert found["measured"]["depths"] == [at.depth for at in known]
    moved = [at.log2_lr.value - known[0].log2_lr.value for at in known]
    assert [at["value"] for at in found["measured"]["octaves"]] == pytest.approx(moved)
    assert "measured" in out.with_suffix(".html").read_text()
    beside = ("--measured", str(measured / "summary.json"), "--base-depth", "4")
    assert main(["limit", "--optimum", "--activation", "relu", *beside]) == 0
    assert change(moved[1]) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--optimum", "--measured", "nowhere"], "nowhere"),
        (["--optimum", "--measured", "{measured}", "--scheme", "ode"], "no measurement of ODE"),
        (["--optimum", "--measured", "{measured}", "--base-depth", "5"], "--base-depth"),
        (["--optimum", "--depths", "0"], "positive integers"),
        (["--optimum", "--rms-norm"], "--rms-norm has no effect with --optimum"),
        (["--optimum", "--scheme", "ode", "--alpha", "1"], "leave --alpha and --gamma out"),
    ],
)
def test_bad_input(wrong, message, measured, capsys):
    assert main(["limit", *(word.format(measured=measured) for word in wrong)]) == 2
    assert message in capsys.readouterr().err
