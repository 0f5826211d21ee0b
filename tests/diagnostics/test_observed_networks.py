"""What a check looks at: batch norms as they train, and layers of stages at the same height."""

import pytest
import torch
from pytest import approx
from torch import nn

import depthmup
from depthmup.diagnostics import locate, observe
from depthmup.diagnostics.observations import labels_of
from depthmup.rules import Observable


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linears = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.BatchNorm1d(width)
        )

    def forward(self, x):
        return x + self.linears(3 * x)


class Stage(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Staged(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
        self.stages = nn.ModuleList(Stage(width, depth) for _ in range(2))

    def forward(self, x):
        x = self.inp(x)
        for stage in self.stages:
            x = stage(x)
        return self.out(x)


@pytest.fixture
def observed():
    torch.manual_seed(0)
    model, inputs = Staged(16, 3), torch.randn(32, 6)
    plan = depthmup.plan(model, base=Staged(16, 3), scheme="completep", example_inputs=inputs)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return model, before, observe(model, inputs, locate(model, inputs), plan)


def test_a_fresh_batch_norm_is_seen_as_it_trains(observed):
    """In evaluation mode it divides by 1, and a branch that it ends is of any size."""
    _, _, observation = observed
    sizes = {
        k.module: v for k, v in observation.values.items() if k.observable is Observable.BRANCH
    }
    # Of unit variance but for epsilon, 1e-5 beside variances of 0.1 and more.
    assert sizes == {"stages.*.layers.*.linears": approx(1, abs=1e-4)}


def test_observing_leaves_the_statistics_and_the_mode_as_they_were(observed):
    model, before, _ = observed
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert all(module.training for module in model.modules())
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    assert all(norm.track_running_stats for norm in norms)


def test_layers_of_every_stage_are_one_and_parts_of_a_layer_are_not():
    model = Staged(8, 3)
    branches = [f"stages.{i}.layers.{j}.linears" for i in range(2) for j in range(3)]
    labels = labels_of(model, branches=branches)
    assert labels("stages.1.layers.2.linears.0") == "stages.*.layers.*.linears.0"
    assert labels_of(model)("stages.1.layers.2.linears.0") == "stages.*.layers.2.linears.0"
