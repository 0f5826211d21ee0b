"""One model spelled in several ways has one plan, folded and explicit."""

import pytest
import torch
from planning_zoo import both_forms, vectors
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import (
    NotUnderstood,
    UnrelatedModels,
    anatomy,
    find_branches,
    find_uses,
    trace,
)


@torch.library.custom_op("depthmup_tests::linear", mutates_args=())
def own_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight)


@own_linear.register_fake
def _(x, weight):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _gradients(ctx, gradient):
    x, weight = ctx.saved_tensors
    return gradient @ weight, gradient.T @ x


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


own_linear.register_autograd(_gradients, setup_context=_save)


@torch.library.custom_op("depthmup_tests::of_another_device", mutates_args=())
def elsewhere(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("a kernel for another device")


@elsewhere.register_fake
def _(x, weight):
    return x.new_empty(*x.shape[:-1], weight.shape[0])


class Layer(nn.Module):
    """relu(a x) b, with weights that nothing but this module's call reads."""

    def __init__(self, width, linear=F.linear):
        super().__init__()
        self.a = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.b = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.linear = linear

    def forward(self, x):
        return self.linear(self.linear(x, self.a).relu(), self.b)


class Net(nn.Module):
    """Two branches in each of several layers, in one of several spellings."""

    def __init__(self, width, depth, spelling, linear=F.linear):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
        self.layers = nn.ModuleList(
            nn.ModuleList(Layer(width, linear) for _ in range(2)) for _ in range(depth)
        )
        self.spelling = spelling

    def forward(self, x):
        return self.out(self.spelling(self.inp(x), self.layers))


def plain(x, layers):
    for f, g in layers:
        x = x + f(x) + g(x)
    return x


def bare(x, layers):
    for f, g in layers:
        x = x + sum(F.linear(F.linear(x, layer.a).relu(), layer.b) for layer in (f, g))
    return x


def stacked(x, layers):
    for f, g in layers:
        x = torch.stack([x, f(x), g(x)]).sum(0)
    return x


def averaged(x, layers):
    for f, g in layers:
        x = 3 * torch.stack([x, f(x), g(x)], 1).mean(1)
    return x


def remade(x, layers):
    outputs = [x]
    for f, g in layers:
        whole = sum(outputs)
        outputs += [f(whole) + g(whole)]
    return sum(outputs)


SPELLINGS = {
    "bare parameters": (bare, F.linear),
    "the sum of a stack": (stacked, F.linear),
    "a sum that is made anew": (remade, F.linear),
    "a custom operator": (plain, own_linear),
}


def planned(spelling, linear, **options):
    def make(width, depth):
        return Net(width, depth, spelling, linear).double()

    torch.manual_seed(0)
    model = make(32, 6)
    return model, depthmup.plan(
        model, make(8, 2), example_inputs=vectors().double(), scheme="completep",
        own_init="fan_in", **options,
    )  # fmt: skip


def factors(plan):
    return {p.name: (p.init, p.lr, p.epsilon, p.decay) for p in plan.prescriptions}


@pytest.mark.parametrize("folding", [True, False])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_factors_are_those_of_the_plain_spelling(spelling, folding):
    _, expected = planned(plain, F.linear, folding=folding)
    _, plan = planned(*SPELLINGS[spelling], folding=folding)
    assert factors(plan) == pytest.approx(factors(expected))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_explicit_and_folded_multipliers_train_alike(spelling):
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    outputs = both_forms(lambda folding: planned(*SPELLINGS[spelling], folding=folding), x)
    assert torch.allclose(*outputs, rtol=1e-10, atol=0)


def test_a_multiplier_of_bare_parameters_is_for_the_calls_alone():
    """Checkpoints and optimizers see the parameter; a copy without hooks carries the number."""
    model, plan = planned(bare, F.linear, folding=False)
    plan.initialize(model)
    before = {name: p.clone() for name, p in model.named_parameters()}
    output = model(vectors().double())
    assert {name for name, _ in model.named_parameters()} == {*before}
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    exported = plan.export(model)
    assert torch.allclose(exported(vectors().double()), output)
    plan.detach(model)
    assert not torch.allclose(model(vectors().double()), output)


def test_a_sum_of_a_sequence_is_no_stream():
    """What is stacked was made from each other, step by step."""
    linear = nn.Linear(4, 4)

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = linear

        def forward(self, x):
            states = [x]
            for _ in range(3):
                states.append(self.step(states[-1]).tanh())
            return torch.stack(states).sum(0)

    graph = trace(Steps(), torch.zeros(2, 4))
    assert not find_branches(graph, find_uses(graph)).branches


def test_an_operator_whose_function_cannot_run_is_declared():
    def make(width):
        return Net(width, 2, plain, elsewhere)

    with pytest.raises(NotUnderstood, match=r"layers\.0\.0\.a is used by of_another_device"):
        anatomy(make(32), make(8), example_inputs=vectors())
    declared = {"layers.*.*.a": "hidden", "layers.*.*.b": "hidden"}
    found = anatomy(make(32), make(8), example_inputs=vectors(), roles=declared)
    assert {p.ratios.fan_in for p in found.places if p.name.startswith("layers.")} == {4}


class Replaced(nn.Module):
    """x + c (f(x) - x), by hand or by ``torch.lerp``; ``gain`` is a number that learns."""

    def __init__(self, width, how):
        super().__init__()
        self.f, self.how = nn.Linear(width, width), how
        if how == "gain":
            self.c = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.f(x).tanh()
        if self.how == "lerp":
            return torch.lerp(x, y, 0.1)
        if self.how == "gain":
            return x + self.c * (y - x)
        return x + 0.1 * (y - x)


@pytest.mark.parametrize("how", ["lerp", "by hand", "gain"])
def test_a_branch_that_replaces_a_part_of_the_stream(how):
    """(1 - c) x + c f(x): the multiplier is that of c, and not of f(x) alone."""

    def make(width, depth):
        blocks = (Replaced(width, how) for _ in range(depth))
        return nn.Sequential(nn.Linear(6, width), *blocks, nn.Linear(width, 2)).double()

    torch.manual_seed(0)
    model, x = make(16, 6), torch.randn(4, 6, dtype=torch.float64)
    plan = depthmup.plan(
        model, make(8, 2), example_inputs=x, scheme="completep", folding=False, own_init="fan_in"
    )
    assert {m.value for m in plan.multipliers if m.where.value == "branch"} == {1 / 3}
    assert any("takes away a part of the stream" in note for note in plan.notes)
    plan.initialize(model)
    expected = model[0](x)
    for block in model[1:-1]:
        expected = expected + 0.1 / 3 * (block.f(expected).tanh() - expected)
    plan.detach(model)
    expected = model[-1](expected)
    plan.attach(model)
    readout = next(m.value for m in plan.multipliers if m.where.value == "readout")
    bias = model[-1].bias
    assert torch.allclose(model(x), (expected - bias) * readout + bias)


def test_a_base_without_a_kind_of_layer_is_told_which_would_do():
    class Other(Layer):
        pass

    def make(depth):
        kinds = [Layer, Layer, Other]
        return nn.Sequential(*(kinds[i % 3](8) for i in range(depth)))

    with pytest.raises(UnrelatedModels, match="a pattern of 3 layers: use a base of 3"):
        anatomy(make(6), make(2), example_inputs=torch.zeros(2, 8))
    dense = nn.Sequential(Other(8), *make(9))  # as mixtures begin with a layer that is none
    dense[0].more = nn.Linear(8, 8)
    with pytest.raises(UnrelatedModels, match="behind the first: use a base of 4 or 7"):
        anatomy(dense, make(2), example_inputs=torch.zeros(2, 8))
    first = nn.Sequential(Other(8), *(Layer(8) for _ in range(5)))
    with pytest.raises(
        UnrelatedModels, match="one of each kind, as the first 2 layers of the model"
    ):
        anatomy(first, nn.Sequential(Other(8)), example_inputs=torch.zeros(2, 8))
