"""Numbers that a model keeps in buffers, where it has no values: on the meta device."""

import pytest
import torch
from planning_zoo import vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, recorded
from depthmup.tracing import read

BUFFERS = {
    "tensor": lambda width: torch.tensor(width**-0.5),
    "list": lambda width: torch.tensor([width**-0.5]),
    "computed": lambda width: torch.tensor(float(width)).rsqrt(),
    "full": lambda width: torch.full((width,), width**-0.5),
}


class Scaled(nn.Module):
    def __init__(self, width, buffer):
        super().__init__()
        self.first, self.second = nn.Linear(6, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 4)
        self.register_buffer("scale", buffer(width))

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.first(x)) * self.scale)))


def on_meta(width, buffer):
    with torch.device("meta"):
        return recorded(lambda: Scaled(width, buffer))


def read_before(model, base):
    return depthmup.PlanOptions(facts=(read(model, vectors()), read(base, vectors())))


def planned(model, base, **options):
    return depthmup.plan(
        model, base=base, example_inputs=vectors(), scheme="depth-mup", own_init="fixed", **options
    )


@pytest.mark.parametrize("name", BUFFERS)
def test_a_recorded_model_tells_what_its_buffers_hold(name):
    """The same as on the CPU: 1/sqrt(width), undone at the matrix that reads it."""
    (model, drawn), (base, base_drawn) = on_meta(64, BUFFERS[name]), on_meta(16, BUFFERS[name])
    plan = planned(model, base, drawn=(drawn, base_drawn))
    assert plan["second.weight"].folded == approx(2.0)
    assert drawn["scale"].constant == approx(0.125)
    on_cpu = depthmup.plan(
        Scaled(64, BUFFERS[name]),
        base=Scaled(16, BUFFERS[name]),
        example_inputs=vectors(),
        scheme="depth-mup",
    )
    assert on_cpu["second.weight"].folded == approx(2.0)


@pytest.mark.parametrize("name", ["tensor", "list", "computed"])
def test_a_number_that_is_not_at_hand_is_refused(name):
    model, base = on_meta(64, BUFFERS[name])[0], Scaled(16, BUFFERS[name])
    with pytest.raises(NotUnderstood, match="no value on the meta device: scale"):
        planned(model, base)
    with pytest.raises(NotUnderstood, match="no value on the meta device: scale"):
        planned(model, base, options=read_before(model, base))
    model.scale = torch.tensor(0.125)  # as the message advises
    assert planned(model, base)["second.weight"].folded == approx(2.0)


def test_a_vector_that_is_not_at_hand_is_said():
    plan = planned(on_meta(64, BUFFERS["full"])[0], on_meta(16, BUFFERS["full"])[0])
    assert any("multiplies by scale" in note for note in plan.notes)


def test_a_buffer_that_multiplies_nothing_is_not_spoken_of():
    class Added(Scaled):
        def forward(self, x):
            return self.head(F.relu(self.second(F.relu(self.first(x)) + self.scale)))

    for name in ("full", "tensor"):
        with torch.device("meta"):
            model, base = (Added(width, BUFFERS[name]) for width in (64, 16))
        assert not any("meta device" in note for note in planned(model, base).notes)
