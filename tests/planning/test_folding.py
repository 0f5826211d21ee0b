"""Folded and explicit multipliers are the same model: the strongest test of a plan's numbers.

The explicit form multiplies in the forward pass and is what the theory states; the folded form
leaves the forward pass alone. Both must follow one trajectory, for every family.
"""

import copy
import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from planning_zoo import (
    ConvNeXt,
    GatedBlock,
    InPlaceBlock,
    MLPBlock,
    OneDropoutBlock,
    OrthogonalBlock,
    ParallelBlock,
    ResidualMLP,
    SandwichBlock,
    Tower,
    Transformer,
    batches,
    images,
    tokens,
    tower,
    traced,
    train,
    vectors,
)
from pytest import approx

import depthmup
from depthmup.planning import Hook, Multiplier, Where
from depthmup.planning.hooks import attached

# Depth ratio 4 and alpha in {1/2, 1}, width ratio 4: multipliers are powers of two, so that Muon's
# bfloat16 iteration rounds alike in both forms.
BASE, TARGET = (16, 2), (64, 8)
MODELS = {
    "mlp": (ResidualMLP, vectors()),
    "transformer": (Transformer, tokens()),
    "tied": (lambda w, d: Transformer(w, d, tied=True), tokens()),
    "gated": (tower(GatedBlock), vectors()),
    "sandwich": (tower(SandwichBlock), vectors()),
    "parallel": (tower(ParallelBlock), vectors()),
    "in-place": (tower(InPlaceBlock), vectors()),
    "normal to the stream": (tower(OrthogonalBlock), vectors()),
    "convnext": (lambda w, d: ConvNeXt(w // 2, d // 2, drop=0.0), images()),
    "shared": (tower(MLPBlock, shared=True), vectors()),
}


def optimizers(plan, model, name):
    if name == "sgd":
        groups = plan.param_groups(model, lr=0.02, weight_decay=0.1, momentum=0.9)
        return [torch.optim.SGD(groups)]
    if name == "adamw":
        return [torch.optim.AdamW(plan.param_groups(model, lr=0.01, weight_decay=0.1, eps=1e-3))]
    groups = plan.muon_groups(model, lr=0.05, adamw_lr=0.01, weight_decay=0.1, eps=1e-3)
    adjust = "original" if name == "muon" else "match_rms_adamw"
    muon = [torch.optim.Muon(groups.muon, adjust_lr_fn=adjust)] if groups.muon else []
    return [*muon, torch.optim.AdamW(groups.adamw)]


# Three steps: moments, momentum and decay have all acted on a gradient that they changed before.
def run(name, optimizer, scheme, *, folding, steps=3, mutate=None):
    make, x = MODELS[name]
    torch.manual_seed(0)
    base, model = make(*BASE).double(), make(*TARGET).double()
    plan = depthmup.plan(
        model, base=base, scheme=scheme, optimizer=optimizer, example_inputs=x,
        folding=folding, options=traced(make, TARGET, BASE, x), proof="off",
    )  # fmt: skip
    plan.initialize(model)
    if mutate:
        mutate(model)
    shape = model(x if not x.is_floating_point() else x.double()).shape
    losses = train(model, optimizers(plan, model, optimizer), batches(x, shape, steps))
    return plan, model, losses


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon", "muon-rms"])
@pytest.mark.parametrize("scheme", ["depth-mup", "completep"])
@pytest.mark.parametrize("name", MODELS)
def test_same_trajectory(name, scheme, optimizer):
    folded, model, losses = run(name, optimizer, scheme, folding=True)
    explicit, reference, expected = run(name, optimizer, scheme, folding=False)
    assert attached(reference) > attached(model)
    assert max(abs(p.folded - 1) for p in folded.prescriptions) >= 0.5
    assert all(not m.hooks for m in folded.multipliers if m.where is Where.BRANCH)
    assert losses == approx(expected, rel=1e-10)
    for p in folded.prescriptions:
        whole = model.get_parameter(p.name).detach()
        part = reference.get_parameter(p.name).detach() * (p.folded / explicit[p.name].folded)
        torch.testing.assert_close(whole, part, rtol=1e-9, atol=1e-12)


def test_a_wrong_power_of_the_multiplier_is_caught():
    """The comparison above sees an error of one part in a thousand in one parameter."""

    def mutate(model):
        with torch.no_grad():
            model.blocks[3].down.weight.mul_(1.001)

    _, _, losses = run("mlp", "adamw", "depth-mup", folding=True, mutate=mutate)
    _, _, expected = run("mlp", "adamw", "depth-mup", folding=False)
    assert losses != approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["mlp", "tied", "shared"])
def test_a_multiplier_holds_what_it_is_made_of(name):
    """Base, law, sizes and the model's own constant give its value, with and without folding."""
    make, x = MODELS[name]
    for folding in (True, False):
        plan = depthmup.plan(
            make(*TARGET), make(*BASE), scheme="completep", example_inputs=x, folding=folding
        )
        assert plan.multipliers
        for m in plan.multipliers:
            assert m.value == approx(m.base * m.law.at(m.ratios) / m.own)
            assert bool(m.folds) != bool(m.hooks)


def test_folding_leaves_the_forward_pass_to_the_model():
    _, model, _ = run("mlp", "sgd", "depth-mup", folding=True, steps=1)
    assert attached(model) == 0
    plain = MODELS["mlp"][0](*TARGET).double()
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 6, dtype=torch.float64)
    assert torch.equal(plain(x), model(x))


def test_clipping_sees_the_same_norm_in_both_forms():
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    norms, clipped, naive = [], [], []
    for folding in (True, False):
        plan, model, _ = run("mlp", "sgd", "completep", folding=folding, steps=1)
        model.zero_grad()
        model(x).square().sum().backward()
        naive.append(torch.nn.utils.get_total_norm(p.grad for p in model.parameters()).item())
        norms.append(plan.clip_grad_norm_(model, 1e-2).item())
        clipped.append(plan.clip_grad_norm_(model, 1e9).item())
    assert norms[0] == approx(norms[1], rel=1e-9)
    assert clipped == approx([1e-2, 1e-2], rel=1e-3)
    assert naive[0] != approx(naive[1], rel=1e-2)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_the_norm_is_that_of_all_unfolded_gradients_at_once(norm_type):
    plan, model, _ = run("mlp", "adamw", "depth-mup", folding=True, steps=1)
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    unfolded = [before[p.name].flatten() * p.folded for p in plan.prescriptions]
    assert any(p.folded != 1 for p in plan.prescriptions)
    expected = torch.linalg.vector_norm(torch.cat(unfolded), norm_type).item()
    norm = plan.clip_grad_norm_(model, 0.5 * expected, norm_type=norm_type)
    assert norm.item() == approx(expected, rel=1e-12)
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, 0.5 * before[name], rtol=1e-5)


CLIPS = {
    "norm": lambda plan, model: plan.clip_grad_norm_(model, 0.1),
    "value": lambda plan, model: plan.clip_grad_value_(model, 1e-3),
}


@pytest.mark.parametrize("clip", CLIPS)
def test_clipped_trajectories_are_the_same(clip):
    results = []
    for folding in (True, False):
        make, x = MODELS["mlp"]
        torch.manual_seed(0)
        base, model = make(*BASE).double(), make(*TARGET).double()
        plan = depthmup.plan(
            model, base=base, scheme="completep", optimizer="sgd", example_inputs=x,
            folding=folding,
        )  # fmt: skip
        plan.initialize(model)
        results.append(
            train(
                model,
                optimizers(plan, model, "sgd"),
                batches(x, (4, 2), 20),
                clip=lambda m, plan=plan: CLIPS[clip](plan, m),
            )
        )
    assert results[0] == approx(results[1], rel=1e-10)


def test_entries_are_clipped_at_the_size_of_their_gradient():
    """Which is what Adam's epsilon is compared with: another road through the rules."""
    make, x = MODELS["mlp"]
    base, model = make(*BASE), make(*TARGET)
    by_family = {
        optimizer: depthmup.plan(
            model, base=base, scheme="depth-mup", optimizer=optimizer, example_inputs=x
        )
        for optimizer in ("sgd", "adamw")
    }
    by_family["sgd"].initialize(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, -9.0)
    by_family["sgd"].clip_grad_value_(model, 1e-3)
    sizes = {p.name: p.epsilon for p in by_family["adamw"].prescriptions}
    assert len({*sizes.values()}) > 2
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, torch.full_like(parameter, -1e-3 * sizes[name]))
    with pytest.raises(ValueError, match="positive clip_value; got 0"):
        by_family["sgd"].clip_grad_value_(model, 0)


def test_one_module_that_serves_two_branches_multiplies_each_once():
    """Its second branch cannot be folded, so the first may not be either."""
    torch.manual_seed(0)
    model, x = Tower(OneDropoutBlock, 16, 8), torch.randn(4, 6)
    plan = depthmup.plan(model, base=Tower(OneDropoutBlock, 16, 2), scheme="ode", example_inputs=x)
    plan.initialize(model)
    assert attached(model) == 8
    assert all(p.folded == 1 for p in plan.prescriptions)
    y = model.inp(x)
    for block in model.blocks:
        y = y + 0.25 * block.one(block.norm1(y))
        y = y + 0.25 * torch.tanh(block.two(block.norm2(y)))
    torch.testing.assert_close(model(x), model.out(y))


def test_hooks_survive_deepcopy_and_detach_removes_them():
    plan, model, _ = run("mlp", "sgd", "depth-mup", folding=False, steps=1)
    x = torch.randn(4, 6, dtype=torch.float64)
    twin = copy.deepcopy(model)
    assert attached(twin) == attached(model) == 8
    assert torch.equal(twin(x), model(x))
    plan.detach(twin)
    assert attached(twin) == 0
    assert not torch.equal(twin(x), model(x))
    plan.attach(twin)
    plan.attach(twin)
    assert torch.equal(twin(x), model(x))


class Unaffine(Transformer):
    """Tied, and its last norm has no gain that could carry the readout's multiplier."""

    def __init__(self, width, depth):
        super().__init__(width, depth, tied=True)
        self.norm = torch.nn.LayerNorm(width, elementwise_affine=False)


def tied_plan(make):
    torch.manual_seed(0)
    model, base = make(64, 4).double(), make(16, 2).double()
    plan = depthmup.plan(model, base=base, scheme="completep", example_inputs=tokens())
    return model, plan


def test_the_last_norm_carries_a_tied_readouts_multiplier():
    model, plan = tied_plan(lambda w, d: Transformer(w, d, tied=True))
    plan.initialize(model)
    assert attached(model) == 0
    readout = next(m for m in plan.multipliers if m.where is Where.READOUT)
    assert readout.folds == ("norm.bias", "norm.weight")
    assert readout.value == approx(0.25)
    torch.testing.assert_close(model.norm.weight, torch.full((64,), 0.25, dtype=torch.float64))


def test_a_last_norm_that_something_else_reads_does_not():
    class Two(Transformer):
        def __init__(self, width, depth):
            super().__init__(width, depth, tied=True)
            self.value = torch.nn.Linear(width, 1)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions[:, : ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            x = self.norm(x)
            return self.head(x), self.value(x)

    model, plan = tied_plan(Two)
    with pytest.warns(UserWarning, match=r"plan\.attach.*plan\.export"):
        plan.initialize(model)
    assert attached(model) == 1


def test_an_export_computes_the_same_in_the_plain_class():
    model, plan = tied_plan(Unaffine)
    with pytest.warns(UserWarning, match="a hook"):
        plan.initialize(model)
    ids = torch.randint(0, 32, (2, 8))
    expected = model(ids)
    exported = plan.export(model)
    assert (attached(exported), attached(model)) == (0, 1)
    torch.testing.assert_close(exported(ids), expected, rtol=1e-12, atol=1e-12)
    assert exported.head.weight is not exported.tokens.weight
    plain = Unaffine(64, 4).double()
    plain.head.weight = torch.nn.Parameter(plain.head.weight.clone())
    plain.load_state_dict(exported.state_dict())
    torch.testing.assert_close(plain(ids), expected, rtol=1e-12, atol=1e-12)


def test_an_export_says_what_it_cannot_carry():
    plan = depthmup.plan(
        Tower(OneDropoutBlock, 16, 4), base=Tower(OneDropoutBlock, 16, 2), scheme="ode",
        example_inputs=vectors(),
    )  # fmt: skip
    model = Tower(OneDropoutBlock, 16, 4)
    plan.initialize(model)
    with pytest.raises(ValueError, match=r"Dropout has no weight.*plan\.attach"):
        plan.export(model)


def test_a_hook_of_several_branches_is_carried_once():
    """By an export, and in a trainer's configuration."""
    hook = Hook(module="hidden", side="output")
    branches = [Multiplier(where=Where.BRANCH, label=label, value=0.5, hooks=(hook,))
                for label in ("first", "second")]  # fmt: skip

    class Hidden(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.hidden, self.head = torch.nn.Linear(6, width), torch.nn.Linear(width, 2)

        def forward(self, x):
            return self.head(torch.tanh(self.hidden(x)))

    model, x = Hidden(16), torch.randn(4, 6)
    plan = depthmup.plan(model, Hidden(8), scheme="mup", example_inputs=x, own_init="fan_in")
    plan = dataclasses.replace(plan, multipliers=tuple(branches))
    plan.attach(model)
    torch.testing.assert_close(plan.export(model)(x), model(x))
    assert plan.overrides("json").count('"module": "hidden"') == 1


@pytest.mark.parametrize(("make", "apart"), [(Unaffine, True), (Transformer, False)])
def test_an_export_unties_what_a_hook_multiplies_and_nothing_else(make, apart):
    model, plan = tied_plan(make if apart else lambda w, d: Transformer(w, d, tied=True))
    model.config = SimpleNamespace(tie_word_embeddings=True)
    exported = plan.export(model)
    assert (exported.head.weight is not exported.tokens.weight) == apart
    assert exported.config.tie_word_embeddings == (not apart)


class Bent(torch.nn.Linear):
    def forward(self, x):
        return torch.tanh(super().forward(x))


class BentBlock(torch.nn.Linear):
    def forward(self, x):
        return x + torch.tanh(super().forward(x))


class OfBent(torch.nn.Module):
    def __init__(self, layer, width, depth):
        super().__init__()
        self.blocks = torch.nn.ModuleList(layer(width, width) for _ in range(depth))
        self.first, self.head = torch.nn.Linear(6, width), torch.nn.Linear(width, 2)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x) if isinstance(block, Bent) else block(x)
        return self.head(x)


@pytest.mark.parametrize("layer", [Bent, BentBlock])
def test_an_export_puts_no_factor_before_a_nonlinearity(layer):
    """A subclass of a linear layer need not be linear."""
    model, x = OfBent(layer, 16, 4), vectors().float()
    plan = depthmup.plan(model, OfBent(layer, 16, 2), scheme="ode", example_inputs=x)
    plan.initialize(model)
    with pytest.raises(ValueError, match=r"has no weight that could carry it.*plan\.attach"):
        plan.export(model)


class OneTable(torch.nn.Module):
    """Tied without a module for the readout: the embedding's own scale is a hook's."""

    def __init__(self, width, depth):
        super().__init__()
        self.tokens, self.norm = torch.nn.Embedding(32, width), torch.nn.LayerNorm(width)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(depth))
        self.scale = width**0.5

    def forward(self, ids):
        x = self.tokens(ids) * self.scale
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return torch.nn.functional.linear(self.norm(x), self.tokens.weight)


def test_an_export_leaves_a_table_alone_that_is_read_in_two_ways():
    model = OneTable(64, 2)
    plan = depthmup.plan(
        model, OneTable(16, 2), scheme="mup", example_inputs=torch.zeros(1, 4, dtype=torch.long),
        own_init="fixed",
    )  # fmt: skip
    assert [m.hooks for m in plan.multipliers if m.where is Where.INPUT] != [()]
    with pytest.raises(ValueError, match=r"the readout reads tokens\.weight as well"):
        plan.export(model)
