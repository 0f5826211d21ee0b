"""``--model module:factory``, the plan verb, and the examples."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

from depthmup.cli import plan as verb
from depthmup.model import Model, by_reference, resolved
from depthmup.model.loss import cross_entropy
from depthmup.planning import Plan

ROOT = Path(__file__).parents[2]
MINE = """
import torch
from torch import nn

class Block(nn.Linear):
    def forward(self, x):
        return x + super().forward(x.relu())

def make(width, depth):
    return nn.Sequential(nn.Linear(5, width), *(Block(width, width) for _ in range(depth)),
                         nn.Linear(width, 3))

def batch(generator):
    return torch.randn(4, 5, generator=generator), torch.tensor([0, 1, 2, 0])
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_zoo.py").write_text(MINE)
    (tmp_path / "losses_zoo.py").write_text("def mse(o, t): return (o - t).square().mean()\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mine_zoo", "losses_zoo"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("where", ["mine_zoo", "mine_zoo.py", "{path}/mine_zoo.py"])
def test_modules_and_files(mine, where):
    given = Model.load(where.format(path=mine) + ":make")
    user = resolved(given)
    model = user.make(8, 2)
    inputs, targets = user.batch(torch.Generator().manual_seed(0))
    assert torch.equal(inputs, given.example_inputs(0))
    expected = torch.nn.functional.cross_entropy(model(inputs), targets)
    assert torch.equal(user.loss(model(inputs), targets), expected)


def test_two_functions_of_a_file_are_of_one_module_until_it_changes(mine):
    file = mine / "mine_zoo.py"
    file.write_text(MINE + "\ndef other(width, depth): return make(width, depth)\n")
    one, two = (Model.load(f"{file}:{name}") for name in ("make", "other"))
    assert by_reference(one).make == f"{file}:make"  # what other processes import
    assert by_reference(two).make == f"{file}:other"
    file.write_text(MINE + "\ndef other(width, depth): return 3\n")
    assert Model.load(f"{file}:other").make(8, 2) == 3


def test_loss_of_the_module_or_named(mine):
    assert resolved(Model.load("mine_zoo:make")).loss is cross_entropy
    named = Model.load("mine_zoo:make", loss="losses_zoo:mse")
    assert named.loss(torch.ones(2), torch.zeros(2)) == 1
    (mine / "mine_zoo.py").write_text(MINE + "\ndef loss(outputs, targets): return outputs.sum()\n")
    sys.modules.pop("mine_zoo")
    assert Model.load("mine_zoo.py:make").loss(torch.ones(2), None) == 2


def test_sequences_are_flattened_and_outputs_with_logits_understood():
    class Outputs:
        logits = torch.randn(2, 3, 7)

    targets = torch.zeros(2, 3, dtype=torch.long)
    expected = torch.nn.functional.cross_entropy(Outputs.logits.view(6, 7), targets.view(6))
    assert torch.equal(cross_entropy(Outputs(), targets), expected)


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (
            (5, 1),
            torch.zeros(5, 1),
            r"a float32 tensor of shape \[5, 1\] for",
        ),
        ((5, 3), torch.zeros(5, dtype=torch.bool), "a bool tensor"),
        ((5, 3), torch.zeros(4, dtype=torch.long), r"an int64 tensor of shape \[4\]"),
        ((5, 3), None, "got NoneType"),
        ((), torch.tensor(0), r"logits of shape \[\]"),
        ((5, 3), torch.full((5,), 3), "Expected classes below 3, the number of logits; Target 3"),
    ],
)
def test_targets_that_cross_entropy_does_not_take_name_the_own_loss(logits, targets, message):
    with pytest.raises(ValueError, match=f"(?s){message}.*another loss: loss"):
        cross_entropy(torch.zeros(logits), targets)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine_zoo", "Expected --model module:factory"),
        (":make", "Expected --model module:factory"),
        ("nowhere_zoo:make", "no module 'nowhere_zoo'"),
        ("nowhere.py:make", "no file 'nowhere.py'"),
        ("mine_zoo:build", "mine_zoo has no function 'build'"),
        ("losses_zoo:mse", "losses_zoo has no function 'batch'"),
    ],
)
def test_errors_say_the_convention(mine, spec, message):
    with pytest.raises(ValueError, match=message):
        Model.load(spec)


def options(**changes):
    return verb.Options(
        **({"model": "mine_zoo:make", "base": ("16x2",), "target": ("64x8",)} | changes)
    )


class TestVerb:
    def test_prints_the_table_and_saves_the_plan(self, mine, capsys):
        out = mine / "plans" / "plan.json"
        assert verb.run(options(scheme="completep", out=out)) == 0
        text = capsys.readouterr().out
        plan = Plan.load(out)
        assert text.startswith(str(plan))
        assert "x8" in text

    def test_explains_one_parameter(self, mine, capsys):
        verb.run(options(explain="3.weight"))
        assert "last of branch" in capsys.readouterr().out

    def test_explicit_and_meta(self, capsys):
        model = f"{ROOT / 'examples' / 'own_model.py'}:make"
        verb.run(options(model=model, explicit=True, meta=True))
        assert "by hook" in capsys.readouterr().out


@pytest.mark.long
def test_own_model_example_transfers():
    """The rate tuned at width 32, depth 2 does better at 128 x 16 with the plan than without."""
    done = runpy.run_path(str(ROOT / "examples" / "own_model.py"))["main"](steps=60)
    assert done["planned"] < done["small"]
    assert done["planned"] < done["plain"]


@pytest.mark.long
def test_transformers_example(capsys):
    pytest.importorskip("transformers")
    runpy.run_path(str(ROOT / "examples" / "transformers_model.py"), run_name="__main__")
    assert "same logits in the plain class" in capsys.readouterr().out


def test_own_model_example_from_the_shell(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    verb.run(verb.Options(model="examples/own_model.py:make", base=("32x2",), target=("128x16",)))
    assert "x16" in capsys.readouterr().out
