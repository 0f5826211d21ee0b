"""A person's model as it first comes: their own errors are shown as theirs, slips with a repair."""

import pytest
import torch
from torch import nn

import depthmup
from depthmup.cli import main
from depthmup.model import Model
from depthmup.tracing import ForwardError

SOURCE = """\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(x).tanh()

class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.first, self.second = nn.Linear(6, width), nn.Linear(3, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.out = nn.Linear(width, 2)

    def forward(self, x, z={default}):
        h = self.first(x)
        return self.out(self.blocks(h if z == 0 else h + self.second(z)))

def make(width, depth):
    return Net(width, depth)

def batch(generator):
    x, targets = torch.randn(4, 6, generator=generator), torch.zeros(4, dtype=torch.long)
    return {batch}
"""
SIZES = {
    "plan": ("--base", "8x2", "--target", "16x4"),
    "check": ("--widths", "8", "16", "32", "--depths", "2", "--seeds", "2"),
    "transfer": ("--base", "8x2", "--depths", "2,4", "--steps", "4", "--executor", "in-process"),
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a verb on the model that returns some batch; its exit status."""
    monkeypatch.chdir(tmp_path)

    def run(verb, batch, default="0"):
        text = SOURCE.replace("{batch}", batch).replace("{default}", default)
        (tmp_path / "contact.py").write_text(text)
        return main([verb, "--model", "contact.py:make", *SIZES[verb]])

    return run


@pytest.mark.parametrize("verb", SIZES)
@pytest.mark.parametrize(
    ("batch", "repair"),
    [
        ('{"x": x, "labels": targets}', 'one dict of x, labels. Return batch, batch["labels"]'),
        ('{"x": x, "y": targets}', 'one dict of x, y. Return batch, batch["y"]'),
        ("x, x, targets", "tuple of 3. Return (x, z), targets"),
        ("x", "got Tensor. Return inputs, targets"),
    ],
)
def test_a_batch_that_is_no_pair_is_refused_with_its_repair(run, capsys, verb, batch, repair):
    assert run(verb, batch) == 2
    told = capsys.readouterr().err
    assert repair in told.replace("\n", " ").replace("hint: ", "")


def test_example_inputs_of_one_dict():
    def batch(generator):
        return {"x": torch.zeros(2, 4), "labels": torch.zeros(2)}

    with pytest.raises(TypeError, match=r'Return batch, batch\["labels"\]'):
        Model(lambda width, depth: nn.Linear(4, width), batch=batch).example_inputs()


def test_an_error_of_ones_own_forward_pass_is_shown_as_such(run, capsys):
    assert run("plan", "x, targets", default="None") == 3
    told = capsys.readouterr().err
    assert "your own code raised TypeError" in told
    assert "return self.out(self.blocks(h if z == 0 else h + self.second(z)))" in told
    assert "Not given: z. Let batch(generator) return the arguments of one real call" in told
    assert "tensors without values" not in told


class Two(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.out = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x, mask=None, *, scale=None, **more):
        return self.out(self.first(x) * scale.sum())


def test_the_error_has_its_place_and_what_was_not_given():
    model = Two(16)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ForwardError, match=r"forward pass of Two fails.*AttributeError") as caught:
        depthmup.plan(model, Two(8), example_inputs=(torch.zeros(2, 4), torch.ones(2)))
    text = str(caught.value)
    assert "test_first_contact.py, line" in text
    assert "self.first(x) * scale.sum()" in text
    assert "Not given: scale. " in text
    assert isinstance(caught.value.__cause__, AttributeError)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training


def test_inputs_of_another_shape_are_named_by_the_models_own_error():
    with pytest.raises(ForwardError, match=r"mat1 and mat2 shapes cannot be multiplied"):
        depthmup.plan(nn.Linear(4, 16), nn.Linear(4, 8), example_inputs=torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Two, r"got the class Two, which makes one\. Call it with its sizes: Two\(\.\.\.\)"),
        (lambda width: Two(width), r"got the function make, .*: make\(\.\.\.\)"),
        ({"model": 1}, r"torch\.nn\.Module; got dict\."),
    ],
)
def test_a_factory_is_no_model(given, words):
    inputs = torch.zeros(2, 4)
    model = Two(8)
    for models in ((given, given), (model, given), (given, model)):
        with pytest.raises(TypeError, match=words):
            depthmup.plan(*models, example_inputs=inputs)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return self.out((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v)


class Attending(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.end = nn.Linear(4, width), nn.Linear(width, 2)
        self.blocks = nn.ModuleList(Attention(width) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.end(x)


@pytest.mark.parametrize("folding", [True, False])
def test_a_hook_is_listed_once(folding):
    plan = depthmup.plan(
        Attending(16, 4), Attending(8, 2), scheme="completep", folding=folding,
        example_inputs=torch.zeros(2, 3, 4),
    )  # fmt: skip
    table, _, _ = str(plan).partition("Source:")
    lines = [line.split()[0] for line in table.splitlines() if "by hook" in line]
    kinds = {str(m.where) for m in plan.multipliers if m.hooks}
    assert table.count("by hook") == len(kinds) == (1 if folding else 3)
    assert "blocks.*.qkv.weight" in lines
    assert folding or {*lines} == {"blocks.*.qkv.weight", "blocks.*.out.weight", "end.weight"}


@pytest.mark.parametrize("command", SIZES)
def test_a_command_s_remedy_is_no_python_argument(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linear.py").write_text(
        "import torch\n"
        "def make(width, depth): return torch.nn.Linear(width, 4)\n"
        "def batch(generator): return torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)\n"
    )
    assert main([command, "--model", "linear.py:make", *SIZES[command]]) == 2
    said = capsys.readouterr().err
    assert "Let batch(generator) return the arguments" in said
    assert "example_inputs" not in said
