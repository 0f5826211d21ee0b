"""What a person's code changes for its whole process reaches no other run, wherever it is called.

The functions of a model change everything at one size; all that any of them finds at another one is
compared with the state before. A list of the places that call them is compared with the sources.
"""

import ast
import os
import random
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import own_models
import pytest
import torch
from own_models import Block
from torch import nn

import depthmup
from depthmup._isolated import STATE, isolated, isolated_results, seeded
from depthmup.cli import main
from depthmup.execution import Execution
from depthmup.model import Model, resolved
from depthmup.model.load import private_name
from depthmup.records import Trial
from depthmup.training.forecast import bytes_of_trial, seconds_of_stacks
from depthmup.training.preflight import device_of, preflight, suitable_scheme
from depthmup.training.trial import run_together, run_trial

SOURCES = Path(depthmup.__file__).parent
SPOILT = 4
"""The depth at which a function changes everything."""


def spoil(folder):
    """Change all that ``STATE`` has, but for the device."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(3)
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.deterministic = not torch.backends.cudnn.deterministic
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_flush_denormal(True)
    np.seterr(all="ignore")
    os.chdir(folder)
    os.environ["LEFT_BY_A_MODEL"] = "1"
    os.environ.pop("TAKEN_BY_A_MODEL", None)


def draw():
    """From every global generator."""
    return random.random(), float(np.random.rand()), float(torch.rand((), dtype=torch.float32))  # noqa: NPY002


def state():
    """All but the device, which is torch's "meta" while memory is forecast."""
    return {name: read() for name, (read, _) in STATE.items() if name != "default device"}


@dataclass
class Spoiling:
    """A model, one function of which changes everything at one depth; others look."""

    who: str
    folder: Path
    clean: dict = field(default_factory=dict)
    depth: int = 0
    looks: int = 0
    spoilt: int = 0

    def called(self, who, depth=None):
        self.depth = self.depth if depth is None else depth
        if self.depth == SPOILT:
            if who == self.who:
                self.spoilt += 1
                spoil(self.folder)
                if who not in ("loss", "forward"):  # which a stack maps over its members
                    draw()
        elif who in ("make", "train", "cost"):  # with these everything begins
            self.looks += 1
            self.clean = self.clean or state()
            assert state() == self.clean

    def make(self, width, depth):
        self.called("make", depth)
        f32 = {"dtype": torch.float32, "bias": False}
        blocks = [Block(width).float() for _ in range(depth)]
        return nn.Sequential(Spoilt(self, 16, width, **f32), *blocks, nn.Linear(width, 8, **f32))

    def batch(self, generator):
        self.called("batch")
        x = torch.randn(32, 16, generator=generator, dtype=torch.float32)
        return x, x[:, :8].argmax(-1)

    def loss(self, outputs, targets):
        self.called("loss")
        return nn.functional.cross_entropy(outputs, targets)

    def train(self, trial):
        self.called("train", trial.size["depth"])
        return [2.0 + (trial.lr - 0.01) ** 2] * trial.steps

    def cost(self, size):
        self.called("cost", size["depth"])
        return 1.0

    @property
    def model(self):
        functions = (
            {"train": self.train}
            if self.who == "train"
            else {"make": self.make, "batch": self.batch, "loss": self.loss}
        )
        cost = {"cost": self.cost} if self.who == "cost" else {}
        return Model(**functions, **cost, version="1")


class Spoilt(nn.Linear):
    """Its forward pass is a person's code, too."""

    def __init__(self, of, *sizes, **options):
        super().__init__(*sizes, **options)
        self.of, self.depth = [of], of.depth

    def forward(self, x):
        self.of[0].called("forward", self.depth)
        return super().forward(x)


def trial(depth, **settings):
    return Trial(
        model="make",
        code="1",
        size={"width": 16, "depth": depth},
        base={"width": 16, "depth": 2},
        scheme="depth-mup",
        optimizer="adamw",
        **{"lr": 2.0**-7, "steps": 2, "seed": 3, **settings},
    )


TRIALS = [trial(depth) for depth in (2, SPOILT, 3)]
DESIGN = {
    "base": {"width": 16, "depth": 2},
    "depth": (2, SPOILT, 8),
    "schemes": ("depth-mup",),
    "settings": {"own_init": "fan_in"},
    "seeds": 2,
    "steps": 4,
}


def in_turn(function):
    """A door of one size, at the spoilt one between two others."""

    def door(model, folder):
        for each in TRIALS:
            function(model, each)

    return door


def sweep(model, folder):
    design = depthmup.Design(**DESIGN, lrs=(0.01, 0.02))
    depthmup.transfer(model, design, out=folder / "out", on=Execution(executor="in-process"))


def search(model, folder):
    design = depthmup.Design(**DESIGN, lrs=depthmup.Auto(runs=24))
    depthmup.transfer(model, design, out=folder / "out", on=Execution(executor="in-process"))


def stacked(model, folder):
    for each in TRIALS:
        for record in run_together([each, replace(each, seed=4)], model):
            assert state() == resolved(model).make.__self__.clean, record


def example(model, each):
    resolved(model).make.__self__.depth = each.depth
    model.example_inputs()


DOORS = {
    "the memory check": in_turn(lambda model, each: bytes_of_trial(model, each)),
    "the forecast of time": lambda model, folder: seconds_of_stacks(model, [[t] for t in TRIALS]),
    "preflight": lambda model, folder: preflight(model, TRIALS[:2]),
    "preflight of stacks": lambda model, folder: preflight(model, TRIALS[:2], stacked=True),
    "the model's device": in_turn(lambda model, each: device_of(model, each.size)),
    "the model's scheme": in_turn(
        lambda model, each: suitable_scheme(model, each.size, "adamw", {})
    ),
    "a run": in_turn(lambda model, each: run_trial(each, model)),
    "a run from a base that changes": in_turn(
        lambda model, each: run_trial(replace(each, base={"width": 16, "depth": SPOILT}), model)
    ),
    "a stack": stacked,
    "a grid": sweep,
    "a search": search,
    "check": lambda model, folder: depthmup.check(
        model, scheme="depth-mup", widths=(8,), depths=(2, 4, 8), seeds=2, steps=1
    ),
    "predict": lambda model, folder: depthmup.diagnostics.predict(
        model, base=(16, 2), depths=(SPOILT, 8), seeds=2
    ),
    "plan": lambda model, folder: depthmup.plan(
        resolved(model).make,
        base={"width": 16, "depth": 2},
        target={"width": 32, "depth": SPOILT},
        scheme="depth-mup",
        example_inputs=(torch.zeros(4, 16),),
    ),
    "an example": in_turn(example),
}
FEWER = {
    "preflight": ("make", "batch", "forward"),
    "the model's device": ("make",),
    "the model's scheme": ("make", "batch", "forward"),
    "plan": ("make", "forward"),
    "an example": ("batch",),
}
"""What a door calls, if not all."""
WHO = ("make", "batch", "loss", "forward")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAKEN_BY_A_MODEL", "1")
    return tmp_path / "other"


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("door", DOORS)
def test_what_a_function_changes_at_one_size_reaches_no_other(door, who, elsewhere):
    own, before = Spoiling(who, elsewhere), state()
    with seeded(3):
        expected = draw()
    with seeded(3):
        DOORS[door](own.model, elsewhere)
        # What a sweep loads may itself set variables, or draw.
        assert state() == (own.clean or before)
        assert door in ("a grid", "a search") or draw() == expected
    assert bool(own.spoilt) == (who in FEWER.get(door, WHO))
    assert own.looks or door == "an example"


@pytest.mark.parametrize("who", ["train", "cost"])
def test_nor_does_what_trains_or_prices(who, elsewhere):
    own = Spoiling(who, elsewhere)
    (search if who == "cost" else sweep)(own.model, elsewhere)
    assert state() == own.clean
    assert own.looks
    assert own.spoilt


def test_the_command_that_plans(elsewhere, monkeypatch):
    """It makes the target first; the base's numbers are in single precision all the same."""
    Path("mine.py").write_text(
        own_models.SOURCE.replace(
            "    return nn.Sequential(\n",
            "    if depth == 4:\n        torch.set_default_dtype(torch.float64)\n"
            "    made.append((depth, torch.get_default_dtype()))\n    return nn.Sequential(\n",
        )
        + "\n\nmade = []\n"
    )
    before = state()
    assert main(["plan", "--model", "mine.py:make", "--base", "16x2", "--target", "32x4"]) == 0
    assert state() == before
    assert sys.modules[private_name(Path("mine.py").resolve())].made == [
        (4, torch.float64),
        (2, torch.float32),
    ]


def test_results_are_used_outside():
    """A generator goes on with what it has changed; between its results nothing of it holds."""

    def results():
        torch.set_default_dtype(torch.float64)
        np.random.seed(5)  # noqa: NPY002
        for _ in range(3):
            yield torch.get_default_dtype(), float(np.random.rand())  # noqa: NPY002

    whole = list(results())
    torch.set_default_dtype(torch.float32)
    with isolated():
        found = []
        for result in isolated_results(results()):
            assert torch.get_default_dtype() == torch.float32
            np.random.rand()  # noqa: NPY002
            found.append(result)
    assert found == whole


def test_a_default_device_is_put_back():
    with isolated():
        torch.set_default_device("meta")
        assert torch.zeros(1).is_meta
    assert not torch.zeros(1).is_meta
    torch.set_default_device("meta")
    try:
        with isolated():
            torch.set_default_device("cpu")
        assert torch.zeros(1).is_meta
    finally:
        torch.set_default_device(None)


def test_a_folder_that_is_removed_does_no_harm(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with isolated():
        os.chdir(tmp_path)


PLACES = {
    "cli/plan.py:run": "the command that plans",
    "diagnostics/networks.py:batch_of": "check",
    "diagnostics/networks.py:train": "check",
    "diagnostics/prediction.py:_sharpness": "predict",
    "diagnostics/preparation.py:prepared_by": "check",
    "diagnostics/sharding.py:forward": "a person's own process, whose training it watches",
    "diagnostics/sharpness.py:of": "predict",
    "measuring/outputs.py:look": "plan",
    "model/model.py:example_inputs": "an example",
    "model/sizes.py:batches_at": "those that ask for it",
    "model/sizes.py:network_at": "those that ask for it",
    "planning/factory.py:_module": "plan",
    "planning/factory.py:_refuse_chance": "plan",
    "planning/proof.py:_train": "plan",
    "sweep/resolution.py:resolved_sweep": "cost",
    "tracing/own_error.py:own_error": "plan",
    "tracing/trace.py:_attempt": "plan",
    "training/forecast.py:_bytes_at": "the memory check",
    "training/preflight.py:_check_noticed": "preflight",
    "training/preflight.py:_try_functions": "preflight",
    "training/preflight.py:built": "preflight",
    "training/preflight.py:suitable_scheme": "the model's scheme",
    "training/stack.py:_cost": "a stack",
    "training/stack.py:network": "a stack",
    "training/trial.py:_plan": "a run",
    "training/trial.py:at": "a run",
    "training/trial.py:cost": "a run",
    "training/trial.py:first_batch": "a run",
    "training/trial.py:planned": "a run",
    "training/trial.py:run_trial": "train",
    "training/trial.py:training_of": "a run",
}
"""What calls a person's functions, or hands them on, each with the test above that goes there."""

FUNCTIONS = {"make", "batch", "loss", "train", "plan", "cost", "optimizers"}
ROADS = {"network_at", "batches_at", "called", "functional_call", "with_tensors"}


def calls(node, file):
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id == "own" and node.attr in FUNCTIONS
    roads = ROADS | ({"make"} if file.name == "factory.py" else set())
    return isinstance(node, ast.Call) and ast.unparse(node.func) in roads


def test_these_are_all_places():
    signatures = {"_of_batch", "_of_make", "_unnamed", "check_axes", "name"}  # read, not called
    signatures |= {"joined", "_renamed", "_measure"}  # of a description, no function
    found = {
        f"{file.relative_to(SOURCES).as_posix()}:{function.name}"
        for file in SOURCES.rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef) and function.name not in signatures
        if any(calls(node, file) for node in ast.walk(function))
    }
    assert found == {*PLACES}
