"""Parameter groups for every optimizer of torch.optim, and the decay that cannot transfer."""

import pytest
import torch
from planning_zoo import (
    ConvNeXt,
    ResidualMLP,
    ResNet,
    Transformer,
    batches,
    images,
    tokens,
    traced,
    train,
    vectors,
)
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import recorded
from depthmup.rules import Kind
from depthmup.training.optimizers import optimizers

CLASSES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


def pair(optimizer, scheme="depth-mup"):
    torch.manual_seed(0)
    model = ResidualMLP(32, 8)
    plan = depthmup.plan(
        model, base=ResidualMLP(16, 2), scheme=scheme, optimizer=optimizer,
        example_inputs=vectors(), own_init="fan_in",
        options=traced(ResidualMLP, (32, 8), (16, 2), vectors()),
    )  # fmt: skip
    plan.initialize(model)
    return plan, model


@pytest.mark.parametrize("name", CLASSES)
def test_every_optimizer_takes_them_and_trains(name):
    plan, model = pair(name)
    built = CLASSES[name](plan.param_groups(model, lr=1e-3))
    losses = train(model, [built], list(batches(vectors(), (4, 2), 1, dtype=torch.float32)) * 10)
    assert losses[-1] < losses[0]
    assert len(built.param_groups) < 12
    names = [n for g in built.param_groups for n in g["param_names"]]
    assert sorted(names) == sorted(n for n, _ in model.named_parameters())
    for group in built.param_groups:
        for parameter, label in zip(group["params"], group["param_names"], strict=True):
            assert parameter is model.get_parameter(label)
            assert group["lr"] == approx(1e-3 * plan[label].lr)
            assert group["lr_factor"] == plan[label].lr
            if "eps" in group:
                assert group["eps"] == approx(built.defaults["eps"] * plan[label].epsilon)


def test_an_update_has_the_planned_size():
    """One step of Adam moves each entry by lr * factor: the factors arrive where they belong."""
    plan, model = pair("adamw")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    built = torch.optim.AdamW(plan.param_groups(model, lr=1e-2, eps=1e-30))
    train(model, [built], batches(vectors(), (4, 2), 1, dtype=torch.float32))
    for name, p in model.named_parameters():
        step = (p.detach() - before[name]).abs().max().item()
        assert step == approx(1e-2 * plan[name].lr, rel=1e-3)


@pytest.mark.parametrize("name", ["adamax", "rmsprop", "adagrad"])
def test_coupled_decay_is_refused_with_the_reason(name):
    plan, model = pair(name)
    with pytest.raises(ValueError, match=r"no factor makes it transfer.*decoupled decay"):
        plan.param_groups(model, lr=1e-3, weight_decay=0.1)


@pytest.mark.parametrize("name", ["adam", "nadam", "radam"])
def test_decay_is_decoupled_where_torch_can(name):
    plan, model = pair(name)
    built = CLASSES[name](plan.param_groups(model, lr=1e-3, weight_decay=0.1))
    assert all(group["decoupled_weight_decay"] for group in built.param_groups)
    assert not CLASSES[name](model.parameters()).defaults["decoupled_weight_decay"]


def test_families_for_optimizers_of_others():
    plan, model = pair("entrywise")
    groups = plan.param_groups(model, lr=1e-3)
    assert not any("eps" in group for group in groups)
    with pytest.raises(ValueError, match="How does your entrywise optimizer apply weight_decay"):
        plan.param_groups(model, lr=1e-3, weight_decay=0.1)
    with pytest.raises(ValueError, match="cannot be made to transfer"):
        plan.param_groups(model, lr=1e-3, weight_decay=0.1, decoupled=False)
    groups = plan.param_groups(model, lr=1e-3, weight_decay=0.1, decoupled=True, eps=1e-6)
    assert all("eps" in group for group in groups)


def test_an_unknown_optimizer_asks_for_its_family():
    with pytest.raises(ValueError, match=r"Expected an optimizer .*name its family"):
        pair("adamish")


def test_decay_of_vectors_can_be_switched_off():
    plan, model = pair("adamw")
    for group in plan.param_groups(model, lr=1e-3, weight_decay=0.1, vector_weight_decay=0.0):
        for name in group["param_names"]:
            assert (group["weight_decay"] == 0) == (model.get_parameter(name).dim() == 1)


def test_groups_do_not_depend_on_the_learning_rate_that_a_schedule_starts_from():
    plan, model = pair("sgd")
    factors = [
        [(group["lr_factor"], group["param_names"]) for group in plan.param_groups(model, lr=lr)]
        for lr in (0.0, 1.0)
    ]
    assert factors[0] == factors[1]
    assert len({factor for factor, _ in factors[0]}) > 1


def test_decay_that_is_said_to_be_coupled_is_refused():
    plan, model = pair("adamw")
    with pytest.raises(ValueError, match="cannot be made to transfer"):
        plan.param_groups(model, lr=1.0, weight_decay=0.1, decoupled=False)


def test_schedules_of_absolute_rates_use_the_factor():
    plan, model = pair("adamw")
    built = torch.optim.AdamW(plan.param_groups(model, lr=1.0))
    for group in built.param_groups:
        group["lr"] = 0.5 * group["lr_factor"]
        assert group["lr"] == approx(0.5 * plan[group["param_names"][0]].lr)
    relative = torch.optim.SGD(plan.param_groups(model, lr=1.0))
    torch.optim.lr_scheduler.LambdaLR(relative, lambda step: 0.1)  # sets rates when it is made
    for group in relative.param_groups:
        assert group["lr"] == approx(0.1 * group["lr_factor"])


def test_the_optimizers_state_is_saved_and_loaded():
    plan, model = pair("adamw")
    built = torch.optim.AdamW(plan.param_groups(model, lr=1e-3))
    train(model, [built], batches(vectors(), (4, 2), 2, dtype=torch.float32))
    other = torch.optim.AdamW(plan.param_groups(model, lr=1e-3))
    other.load_state_dict(built.state_dict())
    assert [g["param_names"] for g in other.param_groups] == [
        g["param_names"] for g in built.param_groups
    ]


class Adapter(nn.Module):
    """A branch through a bottleneck of four units at every width."""

    def __init__(self, width):
        super().__init__()
        self.into, self.out = nn.Linear(16, width, bias=False), nn.Linear(width, 3, bias=False)
        self.down, self.up = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)

    def forward(self, x):
        x = self.into(x)
        return self.out(x + self.up(self.down(x).relu()))


class TestMuon:
    def plan(self, make, x, optimizer="muon"):
        torch.manual_seed(0)
        model = make(32, 8)
        return model, depthmup.plan(
            model, base=make(16, 2), scheme="ode", optimizer=optimizer, example_inputs=x,
        )  # fmt: skip

    def test_hidden_matrices_to_muon_and_the_rest_to_adamw(self):
        model, plan = self.plan(Transformer, tokens())
        groups = plan.muon_groups(model, lr=0.02, adamw_lr=1e-3, weight_decay=0.1)
        muon = {n for g in groups.muon for n in g["param_names"]}
        adamw = {n for g in groups.adamw for n in g["param_names"]}
        assert muon == {
            n for n, p in model.blocks.named_parameters(prefix="blocks") if p.dim() == 2
        }
        assert muon | adamw == {n for n, _ in model.named_parameters()}
        torch.optim.Muon(groups.muon)
        assert all("eps" in g for g in groups.adamw)

    @pytest.mark.parametrize(("optimizer", "factor"), [("muon", 1 / 4), ("muon-rms", 1 / 16)])
    def test_a_matrix_of_which_one_side_grows_moves_its_outputs_alike(self, optimizer, factor):
        """The effect of a step on what the step was taken for, at widths 64 and 1024."""
        effects = []
        for width in (64, 1024):
            model, base = Adapter(width), Adapter(64)
            plan = depthmup.plan(model, base=base, scheme="depth-mup", optimizer=optimizer,
                                 example_inputs=torch.ones(2, 16), own_init="fan_in")  # fmt: skip
            down = model.down.weight
            adjust = {"muon": "original", "muon-rms": "match_rms_adamw"}[optimizer]
            groups = plan.muon_groups(model, lr=0.1, adamw_lr=1e-3)
            built = torch.optim.Muon(groups.muon, weight_decay=0.0, adjust_lr_fn=adjust)
            x, before = torch.ones(width), down.detach().clone()
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            down.grad = torch.outer(torch.ones(4), x)
            built.step()
            effects.append(((down.detach() - before) @ x).square().mean().sqrt().item())
        assert plan["down.weight"].lr == approx(factor)
        # Muon rounds to bfloat16.
        assert effects[1] == approx(effects[0], rel=0.02)

    def test_a_matrix_that_is_wide_in_one_model_and_tall_in_the_other(self):
        with pytest.raises(depthmup.planning.NotUnderstood, match="more rows than columns in one"):
            depthmup.plan(Adapter(64), base=Adapter(2), scheme="depth-mup", optimizer="muon",
                          example_inputs=torch.ones(2, 16), own_init="fan_in")  # fmt: skip

    def test_hidden_tensors_that_are_no_matrices_go_to_adamw(self):
        model, plan = self.plan(ConvNeXt, images())
        groups = plan.muon_groups(model, lr=0.02, adamw_lr=1e-3)
        assert "down.1.weight" in {n for g in groups.adamw for n in g["param_names"]}
        assert plan["down.1.weight"].lr == approx(1 / 2)  # entrywise: 1/m_in

    def test_the_other_method_says_which_to_use(self):
        model, plan = self.plan(Transformer, tokens())
        with pytest.raises(ValueError, match=r"plan\.muon_groups"):
            plan.param_groups(model, lr=0.1)
        model, plan = self.plan(Transformer, tokens(), "adamw")
        with pytest.raises(ValueError, match=r"plan\.param_groups"):
            plan.muon_groups(model, lr=0.1, adamw_lr=0.1)


class TestOtherFamilies:
    def plan(self, optimizer, scheme="completep"):
        torch.manual_seed(0)
        model, drawn = recorded(lambda: ResidualMLP(32, 8))
        base, base_drawn = recorded(lambda: ResidualMLP(16, 2))
        plan = depthmup.plan(
            model, base=base, scheme=scheme, optimizer=optimizer, example_inputs=vectors(),
            drawn=(drawn, base_drawn),
        )  # fmt: skip
        return plan, model

    @pytest.mark.long
    @pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon", "muon-rms", "soap", "shampoo2"])
    @pytest.mark.parametrize("scheme", ["completep", "depth-mup", "ode"])
    def test_lr_times_decay_of_matrices_is_the_bases(self, optimizer, scheme):
        """CompleteP with Muon and SGD let it grow with width."""
        plan, model = self.plan(optimizer, scheme)
        options = {"decoupled": True} if optimizer == "soap" else {}
        if plan.family.matrices_only:
            both = plan.muon_groups(model, lr=0.1, adamw_lr=0.1, weight_decay=0.2)
            groups = both.muon + both.adamw
        else:
            groups = plan.param_groups(model, lr=0.1, weight_decay=0.2, **options)
        for group in groups:
            roles = {plan[name].role.kind for name in group["param_names"]}
            if Kind.VECTOR not in roles or optimizer == "sgd":
                assert group["lr"] * group["weight_decay"] == approx(0.1 * 0.2)

    def test_independent_decay_is_lr_times_decay(self):
        plan, model = self.plan("adamw")
        usual = plan.param_groups(model, lr=0.1, weight_decay=0.2)
        alone = plan.param_groups(model, lr=0.1, weight_decay=0.2, independent_decay=True)
        for a, b in zip(usual, alone, strict=True):
            assert b["weight_decay"] == approx(a["weight_decay"] * a["lr_factor"])
        hidden = next(g for g in alone if "blocks.0.up.weight" in g["param_names"])
        assert hidden["weight_decay"] == approx(0.2)

    def test_torchs_adafactor_trains_what_starts_at_zero_as_its_role_must(self):
        """lr * the smallest weight is the step of a tensor of zeros: that of the law, 1/m."""
        torch.manual_seed(0)

        def make(width, depth):
            model = ResidualMLP(width, depth)
            for block in model.blocks:
                nn.init.zeros_(block.down.weight)
            return model

        model, base = make(64, 4), make(16, 4)
        plan = depthmup.plan(
            model, base=base, scheme="depth-mup", optimizer=torch.optim.Adafactor,
            example_inputs=vectors(), folding=False,
        )  # fmt: skip
        optimizer = torch.optim.Adafactor(plan.param_groups(model, lr=1e-2), lr=1e-2)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        steps = model.blocks[0].down.weight.detach().abs().max().item()
        assert steps == approx(1e-2 * 1e-3 / 4, rel=1e-4)
        up = plan["blocks.0.up.weight"]
        assert (up.lr, up.init) == (approx(4**-0.5), approx(4**-0.5))
        assert any("1/sqrt(step)" in note for note in plan.notes)

    @pytest.mark.parametrize("optimizer", ["lamb", "lars"])
    def test_decay_that_is_normalized_with_the_direction_is_refused(self, optimizer):
        plan, model = self.plan(optimizer)
        with pytest.raises(ValueError, match="gives the sum the size of the weight"):
            plan.param_groups(model, lr=0.1, weight_decay=0.1)
        assert any("norm" in note for note in plan.notes)

    def test_decay_on_a_sphere_is_refused(self):
        plan, model = self.plan("muonh")
        with pytest.raises(ValueError, match="would only shrink the sphere"):
            plan.muon_groups(model, lr=0.1, adamw_lr=0.1, weight_decay=0.1)
        groups = plan.muon_groups(model, lr=0.1, adamw_lr=0.1, adamw_weight_decay=0.1)
        assert {g["weight_decay"] for g in groups.muon} == {0.0}

    def test_epsilons_of_matrix_optimizers_follow_the_gradient(self):
        plan, model = self.plan("shampoo2", "ode")
        groups = plan.muon_groups(model, lr=0.1, adamw_lr=0.1, matrix_eps=1e-6)
        for group in groups.muon:
            p = plan[group["param_names"][0]]
            assert group["eps"] == approx(1e-6 * p.epsilon)
            # (g sqrt(in out))^2 at g = 1/(out r), and 1/A^2 where a multiplier is folded.
            assert p.epsilon == approx(4**-2 / p.folded**2)

    def test_what_torch_does_not_have_is_not_trained_with_something_else(self):
        plan, model = self.plan("shampoo")
        with pytest.raises(ValueError, match="which is not in torch"):
            optimizers(plan, model, lr=0.1)


def test_kernels_that_muon_does_not_train_are_named():
    """Four dimensions each: torch's Muon refuses them, and nothing else of a ResNet is hidden."""

    def notes(make, inputs, optimizer="muon"):
        plan = depthmup.plan(
            make(16, 2), make(8, 2), example_inputs=inputs, optimizer=optimizer, own_init="fan_in"
        )
        return [note for note in plan.notes if "AdamW trains them" in note]

    (note,) = notes(ResNet, images())
    assert "layer1.*.conv1.weight" in note
    assert "Nothing is left" in note
    assert not notes(ResNet, images(), "adamw") + notes(Transformer, tokens())
