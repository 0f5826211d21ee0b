"""A model's own initialization is recognized and corrected, never counted twice."""

import copy
import math

import pytest
import torch
from planning_zoo import MLPBlock, ResidualMLP, Tower, vectors
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import PlanMismatch, UnrecognizedInit, recorded
from depthmup.rules import Power

BASE, TARGET = (64, 2), (256, 8)
M, R = 4, 4


def own(weight, bias="zero"):
    """A residual MLP with an initialization of its own: ``weight(fan_in, depth)`` is the std."""

    def make(width, depth):
        model = ResidualMLP(width, depth)
        for name, p in model.named_parameters():
            if p.dim() == 2:
                last = ".down." in name
                nn.init.normal_(p, std=weight(p.shape[1], depth if last else 1))
            elif "norm" not in name and bias == "zero":
                nn.init.zeros_(p)
        return model

    return make


INITS = {
    "fixed": own(lambda fan_in, depth: 0.02),
    "fan-in": own(lambda fan_in, depth: fan_in**-0.5),
    "mean field": own(lambda fan_in, depth: 1 / fan_in),
    "GPT-2": own(lambda fan_in, depth: 0.02 / math.sqrt(2 * depth)),
    "fan-in and depth": own(lambda fan_in, depth: (fan_in * depth) ** -0.5),
    "torch": ResidualMLP,
}


def std(parameter):
    return parameter.detach().double().square().mean().sqrt().item()


@pytest.mark.long
@pytest.mark.parametrize("folding", [True, False], ids=["folded", "explicit"])
@pytest.mark.parametrize("init", INITS)
def test_every_model_ends_at_the_base_times_the_law(init, folding):
    torch.manual_seed(0)
    base, model = INITS[init](*BASE), INITS[init](*TARGET)
    plan = depthmup.plan(
        model, base=base, scheme="completep", example_inputs=vectors(), folding=folding
    )
    plan.initialize(model)
    for p in plan.prescriptions:
        expected = std(base.get_parameter(p.base_name)) * p.init
        ours = model.get_parameter(p.name)
        # Two independent tensors: sqrt(1/2N + 1/2N'), normal entries; 5 sigma of the smallest.
        error = 5 * math.hypot((2 * ours.numel()) ** -0.5, (2 * math.prod(p.base_shape)) ** -0.5)
        assert std(ours) == approx(expected, rel=max(error, 1e-6), abs=1e-12), p.name


def test_the_correction_is_exact_and_not_the_measured_ratio():
    torch.manual_seed(0)
    base, model = INITS["GPT-2"](*BASE), INITS["GPT-2"](*TARGET)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    plan = depthmup.plan(model, base=base, scheme="completep", example_inputs=vectors())
    plan.initialize(model)
    factors = {
        "inp.weight": 1,
        "blocks.3.up.weight": M**-0.5,
        "blocks.3.down.weight": M**-0.5 / R * R**0.5,  # its own 1/sqrt(2L) is undone
        "out.weight": 1 / M,
    }
    for name, factor in factors.items():
        torch.testing.assert_close(
            model.get_parameter(name).detach(), before[name] * factor, rtol=1e-6, atol=0
        )
    assert plan.own_laws["blocks.3.down.weight"].law == "m_in^-1/2 or r^-1/2"  # the same here
    assert plan.own_laws["blocks.3.up.weight"].law == "1"
    assert plan.own_laws["blocks.3.norm.weight"].law == "constant"
    assert plan.own_laws["blocks.3.up.bias"].law == "zero"


def test_an_unknown_law_is_refused_and_can_be_declared():
    make = own(lambda fan_in, depth: 0.3 if fan_in in (256, 512) else 0.02)
    torch.manual_seed(0)
    base, model = make(*BASE), make(*TARGET)
    plan = depthmup.plan(model, base=base, example_inputs=vectors())
    assert any("initialize would refuse" in note for note in plan.notes)
    with pytest.raises(UnrecognizedInit, match=r"matches no known rule.*own_init="):
        plan.initialize(model)
    assert plan.param_groups(model, lr=1.0)
    # Fan-in 64 and 128 in the base start at 0.02, 256 and 512 in the model at 0.3: times 15.
    jump = Power(fan_in=math.log(15) / math.log(M))
    declared = depthmup.plan(
        model, base=base, example_inputs=vectors(),
        own_init={"blocks.*.*.weight": jump, "out.weight": jump, "blocks.*.norm.*": "fixed"},
    )  # fmt: skip
    declared.initialize(model)
    assert std(model.out.weight) == approx(std(base.out.weight) / M, rel=0.2)
    with pytest.raises(ValueError, match="Expected own_init to be 'fixed'"):
        depthmup.plan(make(*TARGET), base=base, example_inputs=vectors(), own_init="xavier")


class TestDeclared:
    """What a person says is checked against what is measured, and concerns what it names alone."""

    def models(self):
        torch.manual_seed(0)
        return ResidualMLP(*TARGET), ResidualMLP(*BASE)

    def test_against_the_measurement_is_refused(self):
        model, base = self.models()
        plan = depthmup.plan(model, base=base, example_inputs=vectors(), own_init="fixed")
        assert any("own_init says that" in note for note in plan.notes)
        before = std(model.blocks[0].up.weight)
        with pytest.raises(UnrecognizedInit, match=r"blocks.0.up.weight starts 1 times.*0\.5"):
            plan.initialize(model)
        assert std(model.blocks[0].up.weight) == before

    def test_one_pattern_leaves_all_others_measured(self):
        model, base = self.models()
        plan = depthmup.plan(
            model, base=base, example_inputs=vectors(), own_init={"out.bias": "fan_in"}
        )
        assert not any("refuse" in note for note in plan.notes)
        assert plan.own_laws["out.bias"].ratio == approx(M**-0.5)
        assert plan.own_laws["blocks.3.up.weight"].ratio == approx(M**-0.5)
        plan.initialize(model)

    def test_a_pattern_that_names_nothing_is_refused_at_once(self):
        model, base = self.models()
        with pytest.raises(
            ValueError, match=r"No parameter matches 'layers\.\*\.up.weight' of own"
        ):
            depthmup.plan(
                model, base=base, example_inputs=vectors(),
                own_init={"layers.*.up.weight": "fixed"},
            )  # fmt: skip
        with pytest.raises(
            ValueError, match=r"No parameter matches 'layers\.\*\.up.weight' of roles"
        ):
            depthmup.plan(
                model, base=base, example_inputs=vectors(), roles={"layers.*.up.weight": "hidden"}
            )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("policy", ["fixed", "fan-in", "mean field", "torch"])
def test_no_seed_decides_what_a_start_depends_on(policy, seed):
    """A few hundred numbers alone leave several laws open; matrices of other shapes do not."""
    torch.manual_seed(seed)
    model, base = INITS[policy](24, 2), INITS[policy](16, 2)
    plan = depthmup.plan(model, base=base, example_inputs=vectors())
    torch.manual_seed(100)
    again = depthmup.plan(INITS[policy](24, 2), base=INITS[policy](16, 2), example_inputs=vectors())
    assert plan.own_laws == again.own_laws
    plan.initialize(model)


@pytest.mark.parametrize("seed", range(4))
def test_few_numbers_are_like_the_others_where_only_depth_grows(seed):
    """torch's layers with biases of a few numbers, which tell nothing about depth by themselves."""
    torch.manual_seed(seed)
    x, make = torch.randn(4, 16), mlp_with_biases
    plan = depthmup.plan(make(32, 4), base=make(32, 2), example_inputs=x)
    assert not any("initialize would refuse" in note for note in plan.notes)
    assert {law.ratio for law in plan.own_laws.values()} == {1.0}


def test_few_numbers_that_their_module_draws_are_not_like_others_that_follow_depth():
    torch.manual_seed(0)
    models = [mlp_with_biases(32, depth) for depth in (4, 2)]
    for model, depth in zip(models, (4, 2), strict=True):
        for p in list(model.parameters())[:-1]:  # all but the last bias, of four numbers
            p.data *= depth**-0.5
    plan = depthmup.plan(models[0], base=models[1], example_inputs=torch.randn(4, 16))
    assert plan.own_laws["5.bias"].ratio == 1
    assert plan.own_laws["5.weight"].ratio == approx(2**-0.5)


@pytest.mark.parametrize("seed", range(8))
def test_a_law_beside_another_is_told_from_it_or_refused(seed):
    """r^-1/2 = 0.471 of the last matrices of branches, beside m_in^-1/2 = 0.5: never the latter."""
    torch.manual_seed(seed)
    model, base = like_gpt2(32, 9), like_gpt2(8, 2)
    plan = depthmup.plan(model, base=base, example_inputs=torch.randn(4, 16))
    law = plan.own_laws.get("1.down.weight")
    assert law is None or law.ratio == pytest.approx((2 / 9) ** 0.5)


def like_gpt2(width, depth):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(width, 2 * width, bias=False)
            self.down = nn.Linear(2 * width, width, bias=False)
            nn.init.normal_(self.up.weight, std=0.02)
            nn.init.normal_(self.down.weight, std=0.02 / (2 * depth) ** 0.5)

        def forward(self, x):
            return x + self.down(self.up(x).relu())

    ends = nn.Linear(16, width, bias=False), nn.Linear(width, 4, bias=False)
    for end in ends:
        nn.init.normal_(end.weight, std=0.02)
    return nn.Sequential(ends[0], *(Block() for _ in range(depth)), ends[1])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_two_numbers_show_no_kurtosis(seed):
    """A bias of two numbers was refused in 2% of draws, as if known to some percent."""
    torch.manual_seed(seed)
    model, base = ResidualMLP(32, 8), ResidualMLP(16, 2)
    plan = depthmup.plan(model, base=base, example_inputs=vectors())
    assert not any("refuse" in note for note in plan.notes)
    assert plan.own_laws["out.bias"].ratio == approx(0.5**0.5)


def test_layers_that_start_alike_were_set_and_not_drawn():
    """Their ratio is exact, though eight numbers could not tell it (as of Mamba's decay rates)."""

    class Block(nn.Linear):
        def __init__(self, width):
            super().__init__(width, width)
            self.rates = nn.Parameter(torch.arange(1.0, width + 1))

        def forward(self, x):
            return x + super().forward(x) * self.rates

    def make(width, depth):
        blocks = (Block(width) for _ in range(depth))
        return nn.Sequential(nn.Linear(16, width), *blocks, nn.Linear(width, 4))

    torch.manual_seed(0)
    plan = depthmup.plan(make(32, 4), base=make(8, 2), example_inputs=torch.randn(4, 16))
    square = {n: (n + 1) * (2 * n + 1) / 6 for n in (32, 8)}
    assert plan.own_laws["1.rates"].ratio == approx(math.sqrt(square[32] / square[8]))


@pytest.mark.parametrize("seed", range(4))
def test_a_vector_that_fits_several_laws_takes_the_commonest_with_a_note(seed):
    """Six numbers beside the base's three, as large as these or 1/sqrt(2) of them."""

    class Block(nn.Linear):
        def __init__(self, width):
            super().__init__(width, width)
            self.shift = nn.Parameter(torch.randn(width))
            self.second = nn.Parameter(self.shift.detach().clone())

        def forward(self, x):
            return x + super().forward(x + self.shift) + self.second

    def make(width, depth):
        blocks = (Block(width) for _ in range(depth))
        return nn.Sequential(nn.Linear(16, width), *blocks, nn.Linear(width, 4))

    torch.manual_seed(seed)
    plan = depthmup.plan(make(6, 1), base=make(3, 1), example_inputs=torch.randn(4, 16))
    assert plan.own_laws["1.shift"].ratio == 1
    (note,) = (note for note in plan.notes if "too few numbers" in note)
    assert "*.shift, *.second have too few" in note


def test_one_number_is_no_constant():
    """The bias of a readout with one output is drawn anew: it follows the other biases."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(16, n), nn.ReLU(), nn.Linear(n, 1)) for n in (64, 16)]
    plan = depthmup.plan(models[0], base=models[1], example_inputs=torch.randn(4, 16))
    assert plan.own_laws["2.bias"].ratio == pytest.approx(0.5)
    before = models[0][2].bias.item()
    plan.initialize(models[0])
    factor = plan["2.bias"].init / 0.5
    assert models[0][2].bias.item() == pytest.approx(before * factor)


def mlp_with_biases(width, depth):
    class Block(nn.Linear):
        def forward(self, x):
            return x + super().forward(x).relu()

    blocks = (Block(width, width) for _ in range(depth))
    return nn.Sequential(nn.Linear(16, width), *blocks, nn.Linear(width, 4))


@pytest.mark.parametrize("device", ["cpu", "meta"], ids="base on {}".format)
def test_a_parameter_without_entries_has_nothing_to_compare(device):
    """As the register tokens of a vision transformer that has none."""

    def make(width, depth):
        model = ResidualMLP(width, depth)
        model.registers = nn.Parameter(torch.empty(0, width))
        model.inp.register_forward_hook(lambda *given: torch.cat([model.registers, given[-1]]))
        return model

    with torch.device(device):
        base, base_drawn = recorded(lambda: make(*BASE))
    model, drawn = recorded(lambda: make(*TARGET))
    plain, inputs = ResidualMLP(*TARGET), {"example_inputs": vectors()}
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k != "registers"})
    depthmup.plan(model, base=base, drawn=(drawn, base_drawn), **inputs).initialize(model)
    depthmup.plan(plain, base=ResidualMLP(*BASE), **inputs).initialize(plain)
    for name, p in plain.named_parameters():
        torch.testing.assert_close(p, model.get_parameter(name))


def test_a_start_that_is_not_finite_is_named():
    """As torch.empty may leave it (Whisper's positions, before a checkpoint is loaded)."""

    def make(width):
        model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 4))
        with torch.no_grad():
            model[0].weight[0, 0] = math.nan
        return model

    model = make(64)
    plan = depthmup.plan(model, base=make(16), scheme="mup", example_inputs=vectors())
    with pytest.raises(UnrecognizedInit, match=r"0\.weight starts with numbers that are not fin"):
        plan.initialize(model)


def test_a_base_on_meta_needs_to_be_told():
    torch.manual_seed(0)
    with torch.device("meta"):
        base, shape_only = ResidualMLP(*BASE), ResidualMLP(*TARGET)
    model = ResidualMLP(*TARGET)
    plan = depthmup.plan(model, base=base, example_inputs=vectors())
    assert len(plan.param_groups(model, lr=1.0)) > 1
    with pytest.raises(UnrecognizedInit, match=r"base is on the meta device.*own_init='fixed'"):
        plan.initialize(model)
    with pytest.raises(UnrecognizedInit, match=r"inp\.weight is on the meta device"):
        plan.initialize(shape_only)
    real = ResidualMLP(*BASE)
    measured = depthmup.plan(copy.deepcopy(model), base=real, example_inputs=vectors())
    told = depthmup.plan(model, base=base, example_inputs=vectors(), own_init="fan_in")
    twin = copy.deepcopy(model)
    measured.initialize(twin)
    told.initialize(model)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_after_to_empty_and_the_models_own_initialization():
    with torch.device("meta"):
        model = ResidualMLP(*TARGET)
    plan = depthmup.plan(model, base=ResidualMLP(*BASE), example_inputs=vectors())
    model.to_empty(device="cpu")
    torch.manual_seed(3)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    plan.initialize(model)
    reference = ResidualMLP(*TARGET)
    torch.manual_seed(3)
    for module in reference.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    plan.initialize(reference)
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(a, b)


class TestOnlyOnce:
    def pair(self):
        torch.manual_seed(0)
        model = ResidualMLP(*TARGET)
        plan = depthmup.plan(model, base=ResidualMLP(*BASE), example_inputs=vectors())
        plan.initialize(model)
        return plan, model

    def test_a_second_call_is_an_error(self):
        plan, model = self.pair()
        weights = copy.deepcopy(model.state_dict())
        for again in (model, copy.deepcopy(model)):
            with pytest.raises(RuntimeError, match="already initialized by a plan"):
                plan.initialize(again)
            assert all(torch.equal(weights[k], v) for k, v in again.state_dict().items())

    def test_unless_forced_after_a_new_initialization(self):
        plan, model = self.pair()
        fresh = ResidualMLP(*TARGET)
        with torch.no_grad():
            for p, q in zip(model.parameters(), fresh.parameters(), strict=True):
                p.copy_(q)
        plan.initialize(model, force=True)
        plan.initialize(fresh)
        for p, q in zip(model.parameters(), fresh.parameters(), strict=True):
            assert torch.equal(p, q)

    def test_a_checkpoint_is_not_rescaled(self):
        plan, model = self.pair()
        checkpoint = {k: torch.randn_like(v) for k, v in model.state_dict().items()}
        model.load_state_dict(checkpoint)
        with pytest.warns(UserWarning, match="checkpoint was loaded"):
            plan.initialize(model)
        assert all(torch.equal(checkpoint[k], v) for k, v in model.state_dict().items())

    def test_the_state_dict_has_nothing_new(self):
        _, model = self.pair()
        assert model.state_dict().keys() == ResidualMLP(*TARGET).state_dict().keys()


class TestOtherModels:
    def plan(self):
        return depthmup.plan(
            ResidualMLP(32, 4), base=ResidualMLP(16, 2), example_inputs=vectors(), own_init="fan_in"
        )

    @pytest.mark.parametrize("action", ["initialize", "attach", "param_groups"])
    def test_another_model(self, action):
        def act(model):
            options = {"lr": 1.0} if action == "param_groups" else {}
            getattr(self.plan(), action)(model, **options)

        with pytest.raises(PlanMismatch, match="does not have"):
            act(ResidualMLP(32, 3))
        with pytest.raises(PlanMismatch, match=r"has shape \[64, 6\].*made for \[32, 6\]"):
            act(ResidualMLP(64, 4))
        with pytest.raises(PlanMismatch, match="is not in the plan"):
            act(ResidualMLP(32, 5))
        with pytest.raises(PlanMismatch, match="does not have"):
            act(Tower(MLPBlock, 32, 4))

    def test_a_parameter_changed_after_planning(self):
        plan, model = self.plan(), ResidualMLP(32, 4)
        model.out = nn.Linear(32, 7)
        with pytest.raises(PlanMismatch, match=r"out.weight has shape \[7, 32\]"):
            plan.param_groups(model, lr=1.0)
        model.extra = nn.Parameter(torch.zeros(3))
        model.out = nn.Linear(32, 2)
        with pytest.raises(PlanMismatch, match=r"extra .* is not in the plan"):
            plan.param_groups(model, lr=1.0)

    def test_a_frozen_parameter_is_left_out(self):
        plan, model = self.plan(), ResidualMLP(32, 4)
        model.inp.requires_grad_(False)
        names = [n for g in plan.param_groups(model, lr=1.0) for n in g["param_names"]]
        assert len(names) == len(list(model.parameters())) - 2


def test_a_complex_number_is_measured_as_two():
    """One that is imaginary counted as zero."""

    class Rotated(nn.Module):
        def __init__(self, width):
            super().__init__()
            phases = torch.randn(width, width) / width**0.5
            self.turn = nn.Parameter(torch.complex(torch.zeros_like(phases), phases))
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)

        def forward(self, x):
            return self.out((self.inp(x).to(torch.complex64) @ self.turn.T).imag)

    model, base = Rotated(256), Rotated(64)
    plan = depthmup.plan(model, base, scheme="mup", example_inputs=vectors())
    assert plan.own_laws["turn"].law == "m_in^-1/2"
