"""What planning does grows with the model and no faster: operations and copies are counted."""

import pytest
import torch
from torch import Tensor, nn

from depthmup.planning import plan, trace
from depthmup.planning.measured import measure
from depthmup.tracing import Graph, streams


class Blocks(nn.Module):
    def __init__(self, depth, width=8):
        super().__init__()
        self.into, self.out = nn.Linear(4, width), nn.Linear(width, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.into(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x).relu())
        return self.out(x)


@pytest.fixture
def walked(monkeypatch):
    """How many nodes walks over graphs pass, and pairs of additions are compared."""
    count, back, nested = [0], Graph.back, streams._nested

    def counted(self, *where):
        for node in back(self, *where):
            count[0] += 1
            yield node

    def compared(*pair):
        count[0] += 1
        return nested(*pair)

    monkeypatch.setattr(Graph, "back", counted)
    monkeypatch.setattr(streams, "_nested", compared)
    return count


def test_walks_grow_as_layers_do(walked):
    """Twice as many layers are twice as much work: 2.0 here, and 3.3 where each walks to x."""
    works = []
    for depth in (16, 32, 64):
        walked[0] = 0
        plan(Blocks(depth), base=Blocks(2), example_inputs=torch.zeros(1, 4), proof="off")
        works.append(walked[0])
    assert works[2] - works[1] < 2.2 * (works[1] - works[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_tensor_is_measured_whole_in_pieces_that_stay_in_cache(dtype, monkeypatch):
    pieces, double = [], Tensor.double
    tensor = torch.randn(3 << 18, dtype=dtype) * 0.02
    before = tensor.clone()
    monkeypatch.setattr(Tensor, "double", lambda x: pieces.append(x.numel()) or double(x))
    measured = measure(tensor)
    monkeypatch.undo()
    assert max(pieces) <= 1 << 18
    assert sum(pieces) == tensor.numel()
    square = tensor.double().square()
    assert measured.rms == pytest.approx(float(square.mean().sqrt()), rel=1e-12)
    kurtosis = float((square * square).mean() / square.mean() ** 2)
    assert measured.kurtosis == pytest.approx(kurtosis, rel=1e-12)
    assert torch.equal(tensor, before)  # in double precision a piece is the tensor itself


class Writes(nn.Module):
    """Scales its own large weights in place whenever it runs."""

    def __init__(self, width):
        super().__init__()
        self.layer, self.out = nn.Linear(64, width), nn.Linear(width, 3)

    def forward(self, x):
        with torch.no_grad():
            self.layer.weight.mul_(2)
        return self.out(self.layer(x))


def test_large_parameters_are_not_copied_and_stay_as_they_are(monkeypatch):
    model, copied, to = Writes(1 << 13), [], Tensor.to
    before = [p.detach().clone() for p in model.parameters()]

    def counted(tensor, *args, **options):
        copied.append(tensor.numel() if options.get("copy") else 0)
        return to(tensor, *args, **options)

    monkeypatch.setattr(Tensor, "to", counted)
    trace(model, torch.zeros(1, 64))
    monkeypatch.undo()
    assert 0 < sum(copied) < model.layer.weight.numel() // 2
    assert all(torch.equal(p, kept) for p, kept in zip(model.parameters(), before, strict=True))
