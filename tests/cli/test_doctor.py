"""``depthmup doctor``: it names the engine that is in use, and why."""

import json
import re
from dataclasses import replace

import pytest
import torch
from simulated_cuda import machine

from depthmup.cli import doctor_gpu, main
from depthmup.training import engine_for
from depthmup.training.cuda_graphs import WARM_UP


def test_it_names_the_engine_and_the_hardware(capsys, monkeypatch):
    monkeypatch.delenv("DEPTHMUP_ENGINE", raising=False)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    chosen = engine_for()
    assert (found["engine"], found["why"]) == (chosen.name, chosen.why)
    assert {"depthmup", "python", "torch", "processor", "cores", "compiler", "cache"} <= set(found)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert chosen.why in out
    assert found["processor"] in out
    assert "speed not measured" in found["on cuda"]


def test_it_says_when_an_engine_was_forced(capsys, monkeypatch):
    monkeypatch.setenv("DEPTHMUP_ENGINE", "stacked")
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine"], found["why"]) == ("stacked", "DEPTHMUP_ENGINE=stacked")


@pytest.mark.parametrize("value", ["cuda", "NATIVE"])
def test_an_engine_that_does_not_exist_is_an_error(value, capsys, monkeypatch):
    monkeypatch.setenv("DEPTHMUP_ENGINE", value)
    assert main(["doctor"]) == 2
    assert f"got '{value}'" in capsys.readouterr().err


def test_every_gpu_is_tried(capsys, monkeypatch):
    whole = doctor_gpu._cells

    def shallow(*arguments, **options):
        return [
            replace(c, network=replace(c.network, depth=2)) for c in whole(*arguments, **options)
        ]

    monkeypatch.setattr(doctor_gpu, "_cells", shallow)
    monkeypatch.setattr(doctor_gpu, "STEPS", WARM_UP + 2)  # of which graphs replay two
    monkeypatch.setattr(doctor_gpu, "NETWORKS", (1, 2))
    monkeypatch.setattr(doctor_gpu, "SIDE", 8)
    with machine(gpus=2):
        assert main(["doctor", "--gpu"]) == 0
    shown = capsys.readouterr().out
    right = r"^cuda:\d Simulated H100(?:, CUDA graphs)?: at most 0.0e\+00 from .* twice: True$"
    assert len(re.findall(right, shown, re.MULTILINE)) == 4
    own = r"^cuda:\d .*, your own models: at most [0-9]\.\de[+-]\d\d from .* twice: True$"
    assert len(re.findall(own, shown, re.MULTILINE)) == 4, shown
    assert len(re.findall(r"^\d networks.*: [\d,]+ steps/s, ", shown, re.MULTILINE)) == 4
    assert "free GiB: 80.0, 80.0" in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_there_is_nothing_to_try(capsys):
    assert main(["doctor", "--gpu"]) == 2
    assert "it finds none.\nhint: Check nvidia-smi" in capsys.readouterr().err
