"""What a model's own code may do: draw, be complex, attend across lengths; and what is refused."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from depthmup.diagnostics import as_is, check, locate, observe, predict, sharpness, spectral_norm
from depthmup.diagnostics.probes import logits_of
from depthmup.model import Model
from depthmup.planning import plan

SMALL = {"scheme": "completep", "widths": (8, 16, 32), "depths": (2, 3, 4), "seeds": 2, "steps": 1}


class Net(nn.Module):
    """Linear ends around branches of one's own; ``noise`` is added to inputs, in every mode."""

    def __init__(self, width, depth, branch=None, *, noise=0.0):
        super().__init__()
        self.noise = noise
        self.input = nn.Linear(6, width)
        self.layers = nn.ModuleList((branch or plain)(width) for _ in range(depth))
        self.output = nn.Linear(width, 4)

    def forward(self, x):
        h = self.input(x + self.noise * torch.randn_like(x))
        for layer in self.layers:
            h = h + layer(h)
        return self.output(h)


def plain(width, dropout=0.0):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Dropout(dropout))


def dropping(width):
    return plain(width, 0.5)


def batch(generator):
    return torch.randn(8, 6, generator=generator), torch.arange(8) % 4


def model(branch=None, *, data=batch, loss=F.cross_entropy, **settings):
    return Model(lambda width, depth: Net(width, depth, branch, **settings), batch=data, loss=loss)


def values(found):
    return {(e.module, e.observable, e.axis): e.estimate.value for e in found.exponents}


@pytest.mark.parametrize("options", [{"branch": dropping}, {"noise": 1.0}])
def test_what_a_forward_pass_draws_is_part_of_the_seed(options):
    """Verdicts depended on what was drawn before in the process, which drew on from there."""
    found = []
    for state in (1, 2):
        torch.manual_seed(state)
        before = torch.get_rng_state()
        found.append(values(check(model(**options), **SMALL)))
        assert torch.equal(before, torch.get_rng_state())
    assert found[0] == found[1]


def test_noise_in_every_mode_is_the_same_before_and_after_training():
    """A step of the learning rate 1e-6 moves logits by 1e-6 or so; two draws differ by 1."""
    found = check(model(noise=1.0), lr=1e-6, **SMALL)
    moved = [s.value for s in found.sizes if s.observable == "logits change"]
    assert moved
    assert max(moved) < 1e-4


def test_factories_that_draw_with_numpy_or_python():
    def make(width, depth):
        net = Net(width, depth)
        start = torch.tensor(np.random.standard_normal(4) * random.random())  # noqa: NPY002
        net.output.bias.data = start.float()
        return net

    found = [values(check(Model(make, batch=batch), **SMALL)) for _ in range(2)]
    assert found[0] == found[1]


class Attention(nn.Module):
    """Queries of one sequence on the keys of it, twice over: by keywords or with three axes.

    Or once, written out, with slopes that favour places nearby (ALiBi).
    """

    def __init__(self, width, form):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.o, self.form = nn.Linear(width, width), form

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.form == "keywords":
            q, k, v = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k, v))
            out = F.scaled_dot_product_attention(q, key=k, value=v).transpose(1, 2).flatten(2)
        elif self.form == "written out":
            place = torch.arange(x.shape[1])
            far = (place[:, None] - place).abs()
            out = (q @ k.mT * q.shape[-1] ** -0.5 - far / len(self.q.bias)).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, torch.cat([k, k], 1), torch.cat([v, v], 1))
        return self.o(out)


def sequences(generator):
    return torch.randn(2, 3, 6, generator=generator), torch.arange(6).view(2, 3) % 4


def of_places(outputs, targets):
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("form", ["keywords", "three axes"])
def test_attention_logits_of_any_call(form):
    net = Net(16, 2, lambda width: Attention(width, form))
    x = torch.randn(2, 3, 6)
    made = plan(net, base=Net(8, 2, lambda width: Attention(width, form)), example_inputs=x)
    seen = observe(net, x, locate(net, x), made)
    (logits,) = (v for key, v in seen.values.items() if key.observable == "attention logits")
    expected = []
    with torch.no_grad():
        h = net.input(x)
        for layer in net.layers:
            q, k = layer.q(h)[:1], layer.k(h)[:1]
            if form == "keywords":
                q, k = (t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k))
            expected.append((q @ k.mT / q.shape[-1] ** 0.5).square().mean())
            h = h + layer(h)
    assert logits == pytest.approx(float(torch.stack(expected).mean().sqrt()), rel=1e-5)


@torch.no_grad()
def test_a_bias_of_places_is_no_product():
    """Logits of two examples, less what they share: slopes that follow width are not judged."""
    net = Net(16, 1, lambda width: Attention(width, "written out"))
    x = torch.randn(2, 3, 6)
    base = Net(8, 1, lambda width: Attention(width, "written out"))
    seen = observe(net, x, locate(net, x), plan(net, base=base, example_inputs=x))
    (logits,) = (v for key, v in seen.values.items() if key.observable == "attention logits")
    q, k = (getattr(net.layers[0], name)(net.input(x)) for name in "qk")
    first, second = q @ k.mT / q.shape[-1] ** 0.5
    apart = (first - second).square().mean() / 2
    assert logits == pytest.approx(float(apart.sqrt()), rel=1e-5)


class Complex(nn.Module):
    def __init__(self, width):
        super().__init__()
        start = torch.randn(width, width, dtype=torch.cfloat) / width**0.5
        self.weight = nn.Parameter(1j * start.real.to(torch.cfloat))

    def forward(self, x):
        return (x.to(torch.cfloat) @ self.weight).imag


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_imaginary_count():
    """All of these weights, and of their updates, is imaginary; it was dropped."""
    found = check(model(Complex), plan_options={"own_init": "fan_in"}, **SMALL)
    assert ("layers.*.weight", "spectral update", "width") in values(found)
    assert spectral_norm(torch.tensor([[3j, 0], [0, 1]])) == pytest.approx(3, rel=1e-4)


def test_logits_of_a_mapping():
    first, logits = torch.zeros(2), torch.ones(3)
    assert logits_of({"features": first, "logits": logits}) is logits
    assert logits_of({"features": first}) is first


def test_without_gradients_around():
    """As in a notebook that has switched them off: they are on inside, and off again after."""
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert check(model(), **SMALL).exponents
            assert predict(model(), base=(8, 2), depths=(4,), seeds=2).axes
            assert not torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"loss": lambda f, y: F.cross_entropy(f, y, reduction="none")}, r"one number.*\[8\]"),
        ({"loss": lambda f, y: F.cross_entropy(f, y).item()}, "one number"),
        ({"loss": lambda f, y: F.cross_entropy(f, y).detach()}, "no gradient"),
        ({"data": lambda generator: torch.zeros(8, 6)}, r"pair, \(inputs, targets\); got Tensor"),
        ({"data": lambda generator: (torch.zeros(8, 6),) * 3}, "got tuple of 3"),
    ],
)
@pytest.mark.parametrize(
    "door",
    [
        lambda own: check(own, **SMALL),
        lambda own: predict(own, base=(8, 2), depths=(4,), seeds=2),
    ],
)
def test_losses_and_batches_that_are_none(door, own, message):
    with pytest.raises((TypeError, ValueError), match=message):
        door(model(**own))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"widths": (8.0, 16.0, 32.0)}, "sizes along width as whole numbers"),
        ({"depths": "2,3,4"}, "sizes along depth as whole numbers"),
        ({"seeds": 2.5}, "seeds and steps as whole numbers"),
        ({"steps": True}, "seeds and steps as whole numbers"),
    ],
)
def test_sizes_that_are_no_whole_numbers(sizes, message):
    with pytest.raises(ValueError, match=message):
        check(model(), **{**SMALL, **sizes})


def test_sizes_of_numpy():
    found = check(model(), **{**SMALL, "widths": 2 ** np.arange(3, 6), "depths": np.int64(2)})
    assert found.widths == (8, 16, 32)
    assert found.depths == (2,)


class Routed(nn.Module):
    """One of two matrices, by the sign of what comes in."""

    def __init__(self):
        super().__init__()
        self.negative, self.positive = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return (self.positive if x.sum() > 0 else self.negative)(x)


def test_sharpness_of_batches_that_use_different_weights():
    """Half of the mean of x^2 for each: of two batches the larger one counts by half."""
    found = sharpness(
        Routed(),
        [(torch.tensor([[x]]), torch.zeros(1, 1)) for x in (2.0, -3.0)],
        loss=lambda f, y: 0.5 * ((f - y) ** 2).mean(),
    )
    assert found.value == pytest.approx(9 / 2, rel=1e-3)


class Table(nn.Module):
    """An embedding by a function, which has sparse gradients, and a bias beside it."""

    def __init__(self, width, depth):
        super().__init__()
        self.table, self.bias = (
            nn.Parameter(torch.randn(7, width)),
            nn.Parameter(torch.zeros(width)),
        )
        self.net = Net(width, depth)
        self.net.input = nn.Identity()

    def forward(self, x):
        return self.net(F.embedding(x, self.table, sparse=True) + self.bias)


def tokens(generator):
    x = torch.randint(7, (4, 5), generator=generator)
    return x, x % 4


def test_sparse_gradients():
    mine = Model(Table, batch=tokens, loss=of_places)
    assert ("table", "entry update", "width") in values(check(mine, optimizer="sgd", **SMALL))
    assert predict(mine, base=(8, 2), depths=(4,), seeds=2).axes


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"base": (8,)}, "as a width and a depth"),
        ({"base": "8"}, "WIDTHxDEPTH"),
        ({"seeds": 2.5}, "seeds and batches as whole numbers"),
        ({"tolerance": float("nan")}, "positive tolerance"),
        ({"optimizer": torch.optim.AdamW}, "such as sgd; got adamw"),
        ({"depths": (4.5,)}, "depths to be positive integers"),
    ],
)
def test_predictions_that_are_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        predict(model(), **({"base": (8, 2), "depths": (4,), "seeds": 2} | asked))


def test_an_optimizer_by_its_class_and_depths_of_numpy():
    asked = {"base": {"width": np.int64(8), "depth": 2}, "depths": np.array([4]), "seeds": 2}
    assert predict(model(), **asked, optimizer=torch.optim.SGD).optimizer == "sgd"


def test_a_loss_that_curves_downwards():
    mine = model(loss=lambda f, y: -F.cross_entropy(f, y))
    with pytest.raises(ValueError, match=r"sharpness is 0.*does not curve upwards"):
        predict(mine, base=(8, 2), depths=(4,), seeds=2)


def test_factories_and_optimizers_that_give_something_else():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module; got NoneType"):
        check(Model(lambda width, depth: None, batch=batch), **SMALL)
    mine = replace(model(), optimizers=lambda net, lr: torch.optim.AdamW(net.parameters(), lr=lr))
    with pytest.raises(TypeError, match="list of optimizers; got AdamW"):
        check(mine, prepare=as_is, **SMALL)


def test_a_rate_that_is_a_tensor():
    mine = replace(
        model(),
        optimizers=lambda net, lr: [
            torch.optim.AdamW(net.parameters(), lr=torch.tensor(lr), weight_decay=0.1)
        ],
    )
    found = check(mine, prepare=as_is, **SMALL)
    assert {type(s.value) for s in found.sizes if s.observable == "decay"} == {float}


def test_rates_of_a_compiled_model_are_the_plans():
    """Its names have a prefix: all rates were taken to be those of the base."""
    asked = {"base": (8, 2), "depths": (4,), "widths": (16,), "seeds": 2, "scheme": "1/2,0"}
    plain_one = predict(model(), **asked)
    compiled = predict(
        Model(lambda width, depth: torch.compile(Net(width, depth), backend="eager"), batch=batch),
        **asked,
    )
    for one, other in zip(plain_one.axes, compiled.axes, strict=True):
        assert other.drift.value == pytest.approx(one.drift.value, abs=1e-4)


def test_rates_of_no_parameter():
    with pytest.raises(ValueError, match=r"names of the model's parameters; got positive\.wieght"):
        sharpness(
            Routed(),
            [(torch.ones(1, 1), torch.zeros(1, 1))],
            loss=lambda f, y: (f - y).square().mean(),
            rates={"positive.wieght": 0.1},
        )
