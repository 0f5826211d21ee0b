"""``depthmup predict`` and ``depthmup limit --optimum``."""

import json
import runpy
from pathlib import Path

import pytest

from depthmup.cli import main

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
    assert "<h1>Along depth the best learning rate moves down" in page
    assert "Along width" in page
    assert "vega" in page.lower()


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


SUMMARY = {
    "schemes": [
        {
            "scheme": "depth-mup", "alpha": "1/2", "gamma": "1/2", "axis": "depth",
            "optimum": [
                {"depth": 8, "log2_lr": -1.0, "low": -1.1, "high": -0.9},
                {"depth": 16, "log2_lr": -1.5, "low": None, "high": -1.4},
                {"depth": 32, "log2_lr": None, "low": None, "high": None},
            ],
        }
    ]
}  # fmt: skip


@pytest.fixture
def summary(tmp_path):
    file = tmp_path / "summary.json"
    file.write_text(json.dumps(SUMMARY))
    return file


def test_measured_optima_stand_beside(summary, tmp_path, capsys):
    out = tmp_path / "new" / "optimum.json"
    _, found = optimum(capsys, "--measured", str(summary.parent), "--out", str(out))
    measured = found["measured"]
    assert measured["depths"] == [8, 16]
    assert [at["value"] for at in measured["octaves"]] == [0, -0.5]
    page = out.with_suffix(".html").read_text()
    assert "measured" in page
    assert main(["limit", "--optimum", "--activation", "relu", "--measured", str(summary)]) == 0
    assert "−29%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--optimum", "--measured", "nowhere.json"], "nowhere.json is no file"),
        (["--optimum", "--measured", "{summary}", "--scheme", "ode"], "no measurement of ODE"),
        (["--optimum", "--measured", "{summary}", "--base-depth", "4"], "--base-depth"),
        (["--optimum", "--depths", "0"], "positive integers"),
        (["--optimum", "--rms-norm"], "--rms-norm has no effect with --optimum"),
        (["--optimum", "--scheme", "ode", "--alpha", "1"], "leave --alpha and --gamma out"),
    ],
)
def test_bad_input(wrong, message, summary, capsys):
    assert main(["limit", *(word.format(summary=summary) for word in wrong)]) == 2
    assert message in capsys.readouterr().err
