"""What a check looks at: batch norms as they train, and layers of stages at the same height."""

import pytest
import torch
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.diagnostics import locate, observe
from depthmup.diagnostics.effects import patches
from depthmup.diagnostics.labels import labels_of
from depthmup.records import Outcome
from depthmup.rules import Observable
from depthmup.tracing import read


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


class Tabular(nn.Module):
    """The ResNet of rtdl: batch norms read the stream, and nothing else does."""

    def __init__(self, width, depth, norm=nn.BatchNorm1d):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(nn.Sequential())
            self.blocks[-1].add_module("norm", norm(width))
            self.blocks[-1].add_module("up", nn.Linear(width, 2 * width))
            self.blocks[-1].add_module("relu", nn.ReLU())
            self.blocks[-1].add_module("down", nn.Linear(2 * width, width))
        self.head = nn.Sequential(norm(width), nn.ReLU(), nn.Linear(width, 8))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.LayerNorm, nn.Identity])
def test_biases_that_batch_norms_take_away_have_no_gradient(norm):
    """What Adam makes of rounding follows no law, and is not judged."""
    make = {nn.Identity: lambda width: nn.Identity()}.get(norm, norm)
    model = Tabular(16, 3, make).double()
    model(torch.randn(9, 6, dtype=torch.float64)).square().sum().backward()
    without = {
        name
        for name, p in model.named_parameters()
        if p.ndim == 1 and p.grad.abs().max() < 1e-10 * model.inp.weight.grad.abs().max()
    }
    undone = read(model, torch.zeros(9, 6, dtype=torch.float64)).undone
    assert undone == without
    assert bool(undone) == (norm is nn.BatchNorm1d)
    located = locate(model, torch.zeros(9, 6, dtype=torch.float64))
    assert located.undone == ({"inp.bias", "blocks.*.down.bias"} if undone else set())


def test_the_tabular_resnet_passes():
    """Its input's bias failed by -0.6 where 0 is expected: of a gradient of 1e-9."""

    def batch(generator):
        labels = torch.randint(8, (16,), generator=generator)
        return torch.randn(16, 6, generator=generator), labels

    result = depthmup.check(
        depthmup.Model(make=Tabular, batch=batch, loss=F.cross_entropy), scheme="completep",
        widths=(16, 32, 64), depths=(2, 4, 8), seeds=3, steps=2,
    )  # fmt: skip
    of_biases = {e.outcome for e in result.exponents if e.module in ("inp.bias", "inp")}
    assert of_biases == {Outcome.SHOWN}
    assert result.outcome is Outcome.PASS


@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "dilation": 2}, {"groups": 2}])
def test_a_convolution_sums_over_the_patches_that_count_its_inputs(options):
    """W on the patches is the convolution; of several groups, the first."""
    conv, x = nn.Conv2d(4, 6, 3, bias=False, **options), torch.randn(2, 4, 9, 9)
    rows, first = patches(conv, x), 6 // options.get("groups", 1)
    found = (rows @ conv.weight[:first].flatten(1).T).transpose(1, 2)
    torch.testing.assert_close(found, conv(x)[:, :first].flatten(2))


def test_a_convolution_along_a_line_is_not_counted():
    """Its last dimension is that of places, whatever their number."""
    assert patches(nn.Conv1d(5, 6, 1), torch.randn(2, 5, 5)) is None


class Spelled(nn.Module):
    """One matrix, called by position, by keyword, or as a class of the person's own."""

    def __init__(self, how):
        super().__init__()
        self.how, self.out = how, nn.Linear(6, 2)
        self.inner = (type("Own", (nn.Linear,), {}) if how == "own" else nn.Linear)(6, 6)

    def forward(self, x):
        h = self.inner(input=x) if self.how == "keyword" else self.inner(x)
        return self.out(x + h)


@pytest.mark.parametrize("how", ["keyword", "own"])
def test_what_an_update_does_is_the_same_by_a_product_and_by_the_module(how):
    """A matrix that is known to be linear is not run on zeros; to rounding that is the same."""
    seen = []
    for spelling in ("position", how):
        torch.manual_seed(0)
        model, x = Spelled(spelling), torch.randn(8, 6)
        plan = depthmup.plan(model, base=model, scheme="completep", example_inputs=x)
        points, weights = (
            locate(model, x),
            {n: p.detach().clone() for n, p in model.named_parameters()},
        )
        first = observe(model, x, points, plan)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.01 * torch.randn_like(p))
        second = observe(model, x, points, plan, initial=first, weights=weights)
        seen.append({str(key): value for key, value in second.values.items()})
    assert {"inner.weight: update effect", "inner.bias: update effect"} <= seen[0].keys()
    assert seen[1] == approx(seen[0], rel=1e-4)
