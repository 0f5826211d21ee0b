"""Where branches end, and what is compared under one name.

Of four published architectures a check failed for what it looked at: dropouts that several places
of a layer share (RetNet, TSMixer), a readout that is added to the inputs (NAFNet), layers of one
list of which some lie on a stream that grows and biases that a weighted mean keeps (Enformer).
"""

import pytest
import torch
from pytest import approx
from torch import nn

import depthmup
from depthmup.diagnostics import check, locate, observe, planned
from depthmup.model import Model
from depthmup.records import Outcome
from depthmup.rules import Observable

SIZES = {"widths": (32, 64, 128), "depths": (2, 4, 8), "seeds": 3, "steps": 2}


def checked(make, batch, **options):
    found = check(
        Model(make=make, batch=batch, loss=nn.functional.mse_loss),
        scheme="completep",
        **SIZES | options,
    )
    return found, {(e.module, e.observable, e.axis): e for e in found.exponents}


class Shared(nn.Module):
    """A layer with one dropout, which its hidden and its last activations pass."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.drop(self.down(self.drop(self.up(self.norm(x)).relu())))


class Layered(nn.Sequential):
    def __init__(self, width, depth):
        layers = (Shared(width) for _ in range(depth))
        super().__init__(nn.Linear(6, width), *layers, nn.Linear(width, 4))


def rows(generator):
    return torch.randn(16, 6, generator=generator), torch.randn(16, 4, generator=generator)


def test_a_branch_is_seen_at_the_call_that_ends_it():
    model, (x, _) = Layered(16, 3), rows(torch.Generator().manual_seed(0))
    plan = depthmup.plan(model, base=Layered(16, 3), scheme="completep", example_inputs=x)
    seen = observe(model, x, locate(model, x), plan).values
    [size] = [value for key, value in seen.items() if key.observable is Observable.BRANCH]
    with torch.no_grad():
        model.eval()
        stream, added = model[0](x), []
        for layer in (model[1], model[2], model[3]):
            added.append(layer(stream) - stream)
            stream = stream + added[-1]
    assert size == approx(float(torch.stack(added).square().mean().sqrt()), rel=1e-4)


def test_a_dropout_that_places_of_a_layer_share_passes():
    found, of = checked(Layered, rows)
    branch = of["*.drop", "branch output", "depth"]
    assert (branch.outcome, branch.expected) == (Outcome.PASS, "-1")
    assert found.outcome is Outcome.PASS


class Restored(nn.Module):
    """A readout that is added to the image, as in networks that restore it."""

    def __init__(self, width, depth):
        super().__init__()
        self.inner = Layered(width, depth)
        self.inner[-1] = nn.Linear(width, 6)

    def forward(self, x):
        return x + self.inner(x)


def images(generator):
    return torch.randn(16, 6, generator=generator), torch.randn(16, 6, generator=generator)


def test_a_readout_that_is_added_to_the_inputs_starts_as_readouts_do():
    found, of = checked(Restored, images)
    branch = of["inner", "branch output", "width"]
    assert (branch.outcome, branch.expected) == (Outcome.PASS, "-1/2")
    assert found.outcome is Outcome.PASS


def test_a_readout_added_to_the_inputs_that_does_not_shrink_fails():
    def too_large(network, plan, lr):
        optimizers = planned(network, plan, lr)
        network.inner[-1].weight.data *= network.inner[-1].in_features / 32
        return optimizers

    _, of = checked(Restored, images, prepare=too_large, depths=2, seeds=8)
    assert of["inner", "branch output", "width"].outcome is Outcome.FAIL


class Fixed(nn.Module):
    """A readout over the places of a series, which are as many at every width."""

    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential() for _ in range(depth))
        for layer in self.layers:
            layer.add_module("norm", nn.LayerNorm(5))
            layer.add_module("up", nn.Linear(5, width))
            layer.add_module("relu", nn.ReLU())
            layer.add_module("down", nn.Linear(width, 5))
        self.over = nn.Linear(6, 4)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.over(x.transpose(1, 2))


def series(generator):
    x = torch.randn(8, 6, 5, generator=generator)
    return x, torch.randn(8, 5, 4, generator=generator)


def test_a_readout_of_as_many_inputs_at_every_width_does_not_shrink():
    found, of = checked(Fixed, series)
    updates = of["over.weight", "update effect", "width"]
    assert (updates.outcome, updates.expected) == (Outcome.PASS, "0")
    assert not any(key[1] == "readout" for key in of)
    assert found.outcome is not Outcome.FAIL


class Convolution(nn.Module):
    def __init__(self, width, factor=1.0):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)
        self.conv.weight.data *= factor

    def forward(self, x):
        return x + self.conv(self.norm(x).relu())


class Pooled(nn.Module):
    """Pairs of places, weighted by a softmax over each."""

    def __init__(self, width):
        super().__init__()
        self.logits = nn.Conv1d(width, width, 1, bias=False)

    def forward(self, x):
        weights = self.logits(x).unflatten(-1, (-1, 2)).softmax(-1)
        return (x.unflatten(-1, (-1, 2)) * weights).sum(-1)


class Towered(nn.Module):
    """A tower, whose last layer lies on the stream of the layers that follow."""

    def __init__(self, width, depth, factor=1.0):
        super().__init__()
        self.inp, self.head = nn.Conv1d(3, width, 1), nn.Linear(width, 4)
        self.tower = nn.ModuleList(
            nn.Sequential(
                nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 3)),
                Convolution(width, factor if last else 1.0),
                *(() if last else (Pooled(width),)),
            )
            for last in (False, True)
        )
        self.layers = nn.ModuleList(Convolution(width, factor) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for part in (*self.tower, *self.layers):
            x = part(x)
        return self.head(x.mean(-1))


def signals(generator):
    x = torch.randn(8, 3, 10, generator=generator)
    return x, torch.randn(8, 4, generator=generator)


@pytest.fixture(scope="module")
def towered():
    return checked(Towered, signals)


def test_layers_of_one_list_are_told_apart_where_their_depths_differ(towered):
    found, of = towered
    sizes = {module: e.expected for (module, seen, axis), e in of.items()
             if seen == "branch output" and axis == "depth"}  # fmt: skip
    assert sizes == {"tower.0.-2.conv": "0", "tower.1.*.conv": "-1", "layers.*.conv": "-1"}
    assert found.outcome is not Outcome.FAIL


def test_a_layer_of_the_list_that_keeps_its_size_in_deep_models_fails():
    """Under one name with the layer before it, half of this would be lost."""

    def kept(network, plan, lr):
        optimizers = planned(network, plan, lr)
        network.tower[1][1].conv.weight.data *= len(network.layers) / 2
        return optimizers

    _, of = checked(Towered, signals, prepare=kept, widths=48)
    assert of["tower.1.*.conv", "branch output", "depth"].outcome is Outcome.FAIL
    assert of["tower.0.-2.conv", "branch output", "depth"].outcome is Outcome.PASS


def test_biases_that_a_weighted_mean_keeps_until_a_norm_takes_them_away_are_not_judged(towered):
    """Their gradients are rounding: Adam made updates of n^-0.95 of them."""
    model, (x, target) = Towered(16, 2).double(), signals(torch.Generator().manual_seed(0))
    (model(x.double()) - target).square().mean().backward()
    for module in (model.inp, model.tower[0][0][-1]):
        assert module.bias.grad.abs().max() < 1e-12 * module.weight.grad.abs().max()
    _, of = towered
    judged = {module for (module, *_), e in of.items() if e.outcome is not Outcome.SHOWN}
    assert not judged & {"inp.bias", "tower.0.*.-1.bias", "tower.0.-2.conv.bias"}
    assert "layers.*.conv.bias" in judged


class Spans(nn.Module):
    """Logits of places: what a norm adds to all places alike, their softmax ignores (Splinter)."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.norm = nn.Linear(6, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Shared(width) for _ in range(depth))
        self.query = nn.Linear(width, width)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.query(x[:, :1]).mT / x.shape[-1]


def test_a_norms_bias_that_the_loss_ignores_is_not_judged():
    def places(generator):
        x = torch.randn(8, 5, 6, generator=generator)
        return x, torch.randint(5, (8, 1), generator=generator)

    found = check(
        Model(make=Spans, batch=places, loss=nn.functional.cross_entropy),
        scheme="completep",
        **SIZES | {"depths": 2},
    )
    outcomes = {e.module: set() for e in found.exponents}
    for e in found.exponents:
        outcomes[e.module].add(e.outcome)
    assert outcomes["norm.bias"] == {Outcome.SHOWN}
    assert Outcome.PASS in outcomes["norm.weight"]
