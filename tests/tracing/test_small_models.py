"""A small model is followed on its own tensors, and what it may not read sends it to fakes."""

import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from depthmup.tracing import TraceError, trace
from tests.zoo.architectures import architectures

# The function of this name hides its module.
tracing = import_module("depthmup.tracing.trace")
PLAIN = {a.name: a for a in architectures(("plain torch", "by hand"))}


@pytest.fixture
def fakes(monkeypatch):
    """Every attempt of a trace: whether it ran on fake tensors."""
    seen, attempt = [], tracing._attempt

    def watched(*args, **kwargs):
        seen.append(not kwargs.get("values", False))
        return attempt(*args, **kwargs)

    monkeypatch.setattr(tracing, "_attempt", watched)
    return seen


@pytest.mark.parametrize("name", list(PLAIN)[::6])
def test_values_and_fakes_give_one_graph(name, fakes, monkeypatch):
    """The same operations, of the same shapes, with the same known numbers."""
    case = PLAIN[name]
    graphs = []
    for small in (tracing._SMALL, -1):
        monkeypatch.setattr(tracing, "_SMALL", small)
        torch.manual_seed(0)
        graphs.append(trace(case.make(16, 2), case.inputs))
    assert graphs[0] == graphs[1]
    assert not fakes[0]
    assert fakes[-1]


class Reader(nn.Module):
    """A forward pass that looks at a value in one way."""

    def __init__(self, looks):
        super().__init__()
        self.up, self.looks = nn.Linear(3, 3), looks

    def forward(self, x):
        h = self.up(x)
        self.looks(h.detach())
        return h


LOOKS = {
    "item": lambda h: h.sum().item(),
    "bool": lambda h: bool(h.sum() > 0),
    "tolist": lambda h: h.tolist(),
    "numpy": lambda h: h.numpy(),
    "asarray": np.asarray,
    "tanh of numpy": np.tanh,
    "from_dlpack": np.from_dlpack,
    "data_ptr": lambda h: h.data_ptr(),
    "storage": lambda h: h.untyped_storage()[0],
    "mask": lambda h: h[h > 0],
    "nonzero": lambda h: h.nonzero(),
    "equal": lambda h: torch.equal(h, h),
}


@pytest.mark.parametrize("looks", LOOKS.values(), ids=LOOKS)
def test_what_reads_a_value_is_tried_on_fakes(looks, fakes):
    graph = trace(Reader(looks), torch.ones(2, 3))
    assert fakes[:2] == [False, True]  # the first refused: else there would be no second
    assert graph.by_values == (fakes[-1] is False)


class Holder(nn.Module):
    """Holds a tensor that is no buffer, and a generator, and changes one of them."""

    def __init__(self, how):
        super().__init__()
        self.up, self.how = nn.Linear(3, 3), how
        self.held, self.generator = torch.zeros(2, 3), torch.Generator().manual_seed(0)

    def forward(self, x):
        h = self.up(x)
        if self.how == "adds":
            self.held += h.detach()
        elif self.how == "writes a part":
            self.held[:, 1:] = h.detach()[:, 1:]
        elif self.how == "draws":
            h = h + torch.rand(2, 3, generator=self.generator)
        return h


@pytest.mark.parametrize("how", ["adds", "writes a part", "draws"])
def test_what_a_model_holds_is_left_as_it_was(how, fakes):
    model = Holder(how)
    state = model.generator.get_state()
    trace(model, torch.ones(2, 3))
    assert fakes == [False, True]
    assert torch.equal(model.held, torch.zeros(2, 3))
    assert torch.equal(model.generator.get_state(), state)


def test_what_compiles_on_the_way_hides_nothing(fakes, monkeypatch):
    """Compiled code shows none of its operations: with the compiler loaded, it runs as written."""
    compiler = import_module("torch._dynamo")
    monkeypatch.delitem(sys.modules, "torch._dynamo")

    def compiles(h):
        sys.modules["torch._dynamo"] = compiler

    trace(Reader(compiles), torch.ones(2, 3))
    assert fakes == [False, True]


def test_a_large_model_is_not_run(fakes):
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.empty(1 << 12).expand(1 << 24, -1))

        def forward(self, x):
            assert not fakes or fakes[-1]
            return x @ self.table[:3, :3]

    try:
        trace(Large(), torch.ones(2, 3))
    except TraceError:
        pytest.fail("fakes follow it")
    assert fakes[0]


def test_a_trace_leaves_tensors_and_random_state_alone(fakes):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 3))
    model.extra = nn.Parameter(torch.ones(1))  # unused, so that training mode is tried as well
    before = {k: v.clone() for k, v in model.state_dict().items()}
    x, state = torch.ones(4, 3), torch.random.get_rng_state()
    trace(model, x)
    assert fakes == [False, False]
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(x, torch.ones(4, 3))
