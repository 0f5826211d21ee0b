"""Groups that exist, rescaled; and what verify finds wrong with an optimizer or its schedule."""

import copy
import dataclasses
import math
from contextlib import nullcontext
from functools import cache

import pytest
import torch
from planning_zoo import ResidualMLP, Transformer, tokens, traced, vectors
from pytest import approx
from torch import nn
from torch.optim import lr_scheduler

import depthmup
from depthmup.planning import PlanMismatch
from depthmup.planning.rescale import CONVENTIONS
from depthmup.rules import Family

LR, DECAY, EPS = 3e-3, 0.1, 1e-7


def planned(optimizer="adamw", kind=Transformer, inputs=None, **options):
    """A model, initialized, and its plan."""
    shapes = ((32, 8), (16, 2))
    model, base = (kind(*shape) for shape in shapes)
    example = inputs if inputs is not None else (tokens() if kind is Transformer else vectors())
    plan = depthmup.plan(
        model,
        base,
        scheme="completep",
        optimizer=optimizer,
        example_inputs=example,
        own_init="fan_in",
        options=traced(kind, *shapes, example),
        **options,
    )
    plan.initialize(model)
    return model, plan


def settings(groups):
    """What every parameter is trained with."""
    return {
        id(p): tuple(float(group[key]) for key in ("lr", "weight_decay", "eps"))
        for group in groups
        for p in group["params"]
    }


def test_base_rates_and_keys_of_single_groups_stay():
    """A rate for gains and biases, none of their decay, and keys that nobody else knows."""
    model, plan = planned()
    vectors_ = [p for p in model.parameters() if p.ndim < 2]
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    groups = [
        {"params": matrices, "lr": LR, "weight_decay": DECAY, "eps": EPS, "mine": "a"},
        {"params": vectors_, "lr": 2 * LR, "weight_decay": 0.0, "eps": EPS, "name": "vectors"},
    ]
    before = copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in groups])
    rescaled = plan.rescale(model, groups)
    assert [{k: v for k, v in g.items() if k != "params"} for g in groups] == before
    names = {id(p): name for name, p in model.named_parameters()}
    for group in rescaled:
        original = groups[0 if "mine" in group else 1]
        assert group.keys() == original.keys()  # optimizers may refuse keys of ours
        for p in group["params"]:
            prescription = plan[names[id(p)]]
            assert group["lr"] == approx(original["lr"] * prescription.lr)
            assert group["weight_decay"] == approx(original["weight_decay"] * prescription.decay)


def test_what_the_plan_does_not_know_is_left_alone():
    model, plan = planned()
    extra = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([*model.parameters(), extra], lr=LR)
    plan.rescale(model, optimizer)
    assert settings(optimizer.param_groups)[id(extra)] == (LR, 0.01, 1e-8)
    with pytest.raises(PlanMismatch, match="None of the groups' parameters"):
        plan.rescale(model, [{"params": [extra], "lr": LR}])


def test_a_part_of_the_model_has_its_own_optimizer():
    """A pipeline stage: names are the model's, other parameters are elsewhere."""
    model, plan = planned()
    stage = nn.Module()
    stage.blocks = model.blocks
    optimizer = torch.optim.AdamW(stage.parameters(), lr=LR)
    with pytest.raises(PlanMismatch):
        plan.rescale(stage, optimizer)
    plan.rescale(stage, optimizer, strict=False)
    whole = settings(plan.param_groups(model, lr=LR, weight_decay=0.01))
    for key, values in settings(optimizer.param_groups).items():
        assert values == approx(whole[key])
    plan.verify(stage, optimizer, strict=False, initialized_by_plan=False)


def test_it_trains_as_param_groups_does_and_resumes():
    torch.manual_seed(0)
    model, plan = planned(kind=ResidualMLP)
    model = model.double()  # what Adam makes of a gradient of zero is its rounding error
    twin = copy.deepcopy(model)
    one = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    plan.rescale(model, one)
    two = torch.optim.AdamW(plan.param_groups(twin, lr=LR, weight_decay=DECAY), lr=LR)

    def step(net, optimizer, seed):
        x = torch.randn(vectors().shape, generator=torch.Generator().manual_seed(seed)).double()
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for seed in range(3):
        step(model, one, seed)
        step(twin, two, seed)
    again = copy.deepcopy(model)
    resumed = torch.optim.AdamW(again.parameters(), lr=1.0)
    plan.rescale(again, resumed)
    resumed.load_state_dict(copy.deepcopy(one.state_dict()))
    for seed in range(3, 6):
        for net, optimizer in ((model, one), (twin, two), (again, resumed)):
            step(net, optimizer, seed)
    for a, b, c in zip(model.parameters(), twin.parameters(), again.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-9)
        assert torch.equal(a, c)


class TestRefusals:
    def test_twice(self):
        model, plan = planned()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
        plan.rescale(model, optimizer)
        with pytest.raises(ValueError, match="multiply twice"):
            plan.rescale(model, optimizer)
        with pytest.raises(ValueError, match="multiply twice"):
            plan.rescale(model, plan.param_groups(model, lr=LR))

    def test_after_the_scheduler(self):
        model, plan = planned()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
        lr_scheduler.StepLR(optimizer, 10)
        with pytest.raises(ValueError, match="between building the optimizer and"):
            plan.rescale(model, optimizer)

    def test_another_optimizer_than_the_plans(self):
        model, plan = planned()
        with pytest.raises(ValueError, match="in a group of sgd, raw"):
            plan.rescale(model, torch.optim.SGD(model.parameters(), lr=LR))

    def test_coupled_decay(self):
        model, plan = planned(optimizer="adam")
        optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=DECAY)
        with pytest.raises(ValueError, match="cannot be made to transfer"):
            plan.rescale(model, optimizer)

    def test_groups_without_what_would_be_multiplied(self):
        model, plan = planned()
        with pytest.raises(ValueError, match=r"has no (learning rate to multiply|eps)"):
            plan.rescale(model, [{"params": list(model.parameters())}])
        with pytest.raises(ValueError, match="has no learning rate to multiply"):
            plan.rescale(model, [{"params": list(model.parameters()), "eps": EPS}])
        with pytest.raises(ValueError, match="has no eps"):
            plan.rescale(model, [{"params": list(model.parameters()), "lr": LR}])
        groups = plan.rescale(
            model, [{"params": list(model.parameters())}], defaults={"lr": LR, "eps": EPS}
        )
        assert len(groups) > 3

    @pytest.mark.parametrize("optimizer", ["adamax", "muon-rms", "lamb"])
    def test_groups_without_an_epsilon_that_the_optimizer_has(self, optimizer):
        model, plan = planned(optimizer)
        others = [p for p in plan.prescriptions if p.family is not Family.SPECTRAL_RMS]
        rest = [dict(model.named_parameters())[p.name] for p in others]
        with pytest.raises(ValueError, match="has no eps"):
            plan.rescale(model, [{"params": rest, "lr": LR}])


@pytest.mark.parametrize(("floor", "kept"), [(0.0, True), (LR / 8, False)])
def test_a_schedule_that_follows_the_loss_is_tried_where_that_stays(floor, kept):
    model, plan = planned()
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=LR), lr=LR)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5, min_lr=floor)
    with nullcontext() if kept else pytest.raises(PlanMismatch, match="of the schedule"):
        plan.verify(model, optimizer, scheduler=plateau, steps=20)
    assert plateau.num_bad_epochs == 0


class Independent(torch.optim.AdamW):
    """AdamW that subtracts weight_decay * w, and not lr * weight_decay * w."""

    @torch.no_grad()
    def step(self):
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            torch._foreach_mul_(group["params"], 1 - group["weight_decay"])
            group["weight_decay"] = 0.0
        super().step()
        for group, decay in zip(self.param_groups, decays, strict=True):
            group["weight_decay"] = decay


@pytest.mark.parametrize("how", ["groups", "rescaled"])
def test_decay_that_is_independent_of_the_rate_is_verified_as_such(how):
    model, plan = planned()
    options = {"lr": LR, "weight_decay": 1e-4}
    if how == "groups":
        groups = plan.param_groups(model, **options, independent_decay=True)
        optimizer = Independent(groups, lr=LR)
    else:
        optimizer = Independent(model.parameters(), **options)
        with pytest.raises(ValueError, match=r"follows lr\^0\.00.*Pass independent_decay=True"):
            plan.rescale(model, optimizer)
        plan.rescale(model, optimizer, independent_decay=True)
    plan.watch(model, optimizer, independent_decay=True)
    plan.verify(model, optimizer, independent_decay=True)
    with pytest.raises(PlanMismatch, match=r"weight decays do not have.*independent_decay=True"):
        plan.verify(model, optimizer)
    optimizer.param_groups[0]["weight_decay"] *= 2
    with pytest.raises(PlanMismatch, match="weight decays do not have"):
        plan.verify(model, optimizer, independent_decay=True)


def test_named_groups_with_rates_of_their_own():
    """Groups with names, as torchtitan makes them; the optimizer's own lr is nobody's."""
    model, plan = planned()
    optimizer = torch.optim.AdamW(
        [{"params": list(model.named_parameters()), "lr": LR, "weight_decay": DECAY}]
    )
    plan.rescale(model, optimizer)
    plan.verify(model, optimizer)


class TestMuon:
    def test_decay_is_decoupled(self):
        model, plan = planned(optimizer="muon")
        expected = plan.muon_groups(model, lr=0.02, adamw_lr=LR, weight_decay=DECAY)
        matrices = [p for group in expected.muon for p in group["params"]]
        muon = torch.optim.Muon(matrices, lr=0.02, weight_decay=DECAY)
        plan.rescale(model, muon)
        decays = {id(p): g["weight_decay"] for g in expected.muon for p in g["params"]}
        for group in muon.param_groups:
            assert all(group["weight_decay"] == approx(decays[id(p)]) for p in group["params"])
        others = [p for group in expected.adamw for p in group["params"]]
        coupled = torch.optim.Adam(others, lr=LR, weight_decay=DECAY)
        with pytest.raises(ValueError, match="cannot be made to transfer"):
            plan.rescale(model, coupled)

    def test_two_optimizers(self):
        model, plan = planned(optimizer="muon")
        groups = plan.muon_groups(model, lr=0.02, adamw_lr=LR)
        hidden = [p for group in groups.muon for p in group["params"]]
        rest = [p for group in groups.adamw for p in group["params"]]
        muon = torch.optim.Muon(hidden, lr=0.02, weight_decay=0.0)
        adamw = torch.optim.AdamW(rest, lr=LR, weight_decay=0.0)
        plan.rescale(model, muon)
        plan.rescale(model, adamw)
        for optimizer, given in ((muon, groups.muon), (adamw, groups.adamw)):
            expected = {id(p): group["lr"] for group in given for p in group["params"]}
            for group in optimizer.param_groups:
                for p in group["params"]:
                    assert group["lr"] == approx(expected[id(p)])
        plan.verify(model, [muon, adamw])
        with pytest.raises(PlanMismatch, match="are in no group"):
            plan.verify(model, muon)

    def test_a_matrix_in_the_wrong_optimizer(self):
        model, plan = planned(optimizer="muon")
        with pytest.raises(ValueError, match="put the parameter into the other one"):
            plan.rescale(model, torch.optim.AdamW(model.parameters(), lr=LR))

    def test_one_optimizer_for_both_with_exact_keys(self):
        """As in Keller Jordan's MuonWithAuxAdam, which asserts the set of keys."""
        model, plan = planned(optimizer="muon")
        made = plan.muon_groups(model, lr=0.02, adamw_lr=LR)
        hidden = {id(p) for group in made.muon for p in group["params"]}
        muon = [p for p in model.parameters() if id(p) in hidden]
        rest = [p for p in model.parameters() if id(p) not in hidden]
        keys = [
            {"params", "lr", "momentum", "weight_decay", "use_muon"},
            {"params", "lr", "betas", "eps", "weight_decay", "use_muon"},
        ]
        groups = [
            {"params": muon, "lr": 0.02, "momentum": 0.95, "weight_decay": 0.0, "use_muon": True},
            {
                "params": rest,
                "lr": LR,
                "betas": (0.9, 0.95),
                "eps": EPS,
                "weight_decay": 0,
                "use_muon": False,
            },
        ]
        rescaled = plan.rescale(model, groups)
        for group in rescaled:
            assert set(group) == keys[not group["use_muon"]]
        with pytest.raises(ValueError, match="in a group of spectral"):
            plan.rescale(model, [{**groups[1], "use_muon": True}])


def form_of_muon(size, **keys):
    """An optimizer of another package: U V^T times a function of a matrix's shape."""

    class Form(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr, **keys})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    u, s, v = torch.linalg.svd(p.grad, full_matrices=False)
                    p.sub_(group["lr"] * size(*p.shape) * (u * (s > 0)) @ v)

    return Form


# Optimizers of matrices by their updates, whatever they are called, and the plans they go with.
FORMS_OF_MUON = {
    "the original": (lambda r, c: max(1, r / c) ** 0.5, {"adjust_lr": "rms_norm"}, ["muon"]),
    "as Adam": (lambda r, c: 0.2 * max(r, c) ** 0.5, {"adjust_lr_fn": "original"}, ["muon-rms"]),
    "the unclamped ratio": (lambda r, c: (r / c) ** 0.5, {"algorithm": "dion"}, ["dion"]),
    "no factor": (lambda r, c: 1.0, {"use_muon": True}, ["spectral-unit"]),
    "one of its own": (lambda r, c: (r * c) ** 0.25, {}, []),
}


of_muon = cache(lambda optimizer: planned(optimizer=optimizer))


@pytest.mark.parametrize("case", FORMS_OF_MUON)
def test_a_form_of_muon_is_known_by_what_it_does(case):
    size, keys, fitting = FORMS_OF_MUON[case]
    form = form_of_muon(size, **keys)
    for planned_for in ("muon", "muon-rms", "dion", *fitting):
        model, plan = of_muon(planned_for)
        made = plan.muon_groups(model, lr=0.02, adamw_lr=LR)
        hidden = [p for group in made.muon for p in group["params"]]
        optimizer = form(hidden, lr=0.02)
        if planned_for in fitting:
            plan.rescale(model, optimizer)
        else:
            with pytest.raises(ValueError, match=r"the norm of its updates follows .* assumes"):
                plan.rescale(model, optimizer)


@pytest.mark.parametrize(("adjusted", "family"), [(False, "spectral"), (True, "spectral-rms")])
def test_the_keys_of_pytorch_optimizer_mean_what_is_measured(adjusted, family):
    muon = pytest.importorskip("pytorch_optimizer").Muon
    probe = depthmup.family_of(
        lambda p: muon([{"params": p, "use_muon": True}], use_adjusted_lr=adjusted)
    )
    assert probe.family == family == CONVENTIONS["use_adjusted_lr"][adjusted]


def erased(optimizer):
    for group in optimizer.param_groups:
        group["lr"] = LR


# Each schedule as people write it, and whether the plan's ratios survive it.
SCHEDULES = {
    "lambda": (lambda o: lr_scheduler.LambdaLR(o, lambda t: (t + 1) / 20), True),
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 20), True),
    "cosine with an absolute floor": (
        lambda o: lr_scheduler.CosineAnnealingLR(o, 20, eta_min=1e-4),
        False,
    ),
    "one cycle with one rate": (
        lambda o: lr_scheduler.OneCycleLR(o, max_lr=LR, total_steps=21),
        False,
    ),
    "one cycle with a rate per group": (
        lambda o: lr_scheduler.OneCycleLR(
            o, max_lr=[group["lr"] for group in o.param_groups], total_steps=21
        ),
        True,
    ),
    "warm-up, then cosine": (
        lambda o: lr_scheduler.SequentialLR(
            o,
            [
                lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=5),
                lr_scheduler.CosineAnnealingLR(o, 15),
            ],
            milestones=[5],
        ),
        True,
    ),
    "polynomial": (lambda o: lr_scheduler.PolynomialLR(o, 20), True),
    "restarts with a floor": (
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, eta_min=1e-4),
        False,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    make, survives = SCHEDULES[name]
    model, plan = planned()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    plan.rescale(model, optimizer)
    scheduler = make(optimizer)
    before = [group["lr"] for group in optimizer.param_groups]
    if survives:
        plan.verify(model, optimizer, scheduler=scheduler, steps=20)
    else:
        with pytest.raises(PlanMismatch, match="do not have the plan's ratios"):
            plan.verify(model, optimizer, scheduler=scheduler, steps=20)
    assert [group["lr"] for group in optimizer.param_groups] == before
    assert scheduler.last_epoch == 0


def test_verify_finds_what_is_ignored():
    model, plan = planned()
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=LR), lr=LR, weight_decay=DECAY)
    with pytest.raises(PlanMismatch, match=r"weight_decay=0\.1 was given to the optimizer"):
        plan.verify(model, optimizer)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=LR))
    with pytest.raises(PlanMismatch, match="Pass lr to the optimizer too"):
        plan.verify(model, optimizer)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=LR, weight_decay=DECAY), lr=LR)
    plan.verify(model, optimizer)


def test_verify_finds_a_model_without_its_multipliers():
    model, plan = planned(folding=False)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=LR), lr=LR)
    plan.verify(model, optimizer)
    plan.detach(model)
    with pytest.raises(PlanMismatch, match="explicit multipliers and the model 0"):
        plan.verify(model, optimizer)
    fresh = Transformer(width=32, depth=8)
    optimizer = torch.optim.AdamW(plan.param_groups(fresh, lr=LR), lr=LR)
    plan.attach(fresh)
    with pytest.raises(PlanMismatch, match="has not initialized"):
        plan.verify(fresh, optimizer)
    plan.verify(fresh, optimizer, initialized_by_plan=False)


def test_verify_finds_parameters_from_before_wrapping():
    model, plan = planned()
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=LR), lr=LR)
    with pytest.raises(PlanMismatch, match="are in no group"):
        plan.verify(copy.deepcopy(model), optimizer)


def test_a_watch_stops_a_loop_that_sets_one_rate():
    model, plan = planned(kind=ResidualMLP)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    plan.rescale(model, optimizer)
    handles = plan.watch(model, optimizer, at=(2,))
    optimizer.step()  # as planned
    erased(optimizer)
    with pytest.raises(PlanMismatch, match="before step 2"):
        optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()


def test_warm_up_from_zero_is_no_mismatch():
    model, plan = planned()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    plan.rescale(model, optimizer)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda t: min(t, 5) / 5)
    assert all(math.isclose(group["lr"], 0) for group in optimizer.param_groups)
    plan.verify(model, optimizer, scheduler=scheduler, steps=8)


@pytest.mark.parametrize(
    ("adjusted", "planned_for", "message"),
    [
        (None, "muon", ""),
        ("original", "muon", ""),
        ("match_rms_adamw", "muon-rms", ""),
        ("match_rms_adamw", "muon", "group of muon, spectral-rms: .* fan_in\\^0.50.* assumes 0"),
        # A key that torch does not know leaves out every factor, in silence.
        ("none", "muon", "group of muon, spectral-unit: .* fan_out\\^0.00.* assumes 0.5"),
    ],
)
def test_each_adjustment_of_muons_rate_is_a_family_of_its_own(adjusted, planned_for, message):
    model, plan = planned(optimizer=planned_for)
    made = plan.muon_groups(model, lr=0.02, adamw_lr=LR)
    hidden = [p for group in made.muon for p in group["params"]]
    muon = torch.optim.Muon(hidden, lr=0.02, weight_decay=0.0)
    for group in muon.param_groups:
        group["adjust_lr_fn"] = adjusted
    if message:
        with pytest.raises(ValueError, match=message):
            plan.rescale(model, muon)
    else:
        plan.rescale(model, muon)
        assert {g["lr"] for g in muon.param_groups} == {g["lr"] for g in made.muon}


class NeedsMore(torch.optim.AdamW):
    """As optimizers that need second derivatives."""

    def step(self, closure=None):
        raise RuntimeError("no graph to differentiate twice")


def test_one_that_cannot_be_tried_is_refused_unless_it_is_trusted():
    model, plan = planned()
    optimizer = NeedsMore(model.parameters(), lr=LR)
    with pytest.raises(ValueError, match=r"no graph .* pass trust=True") as caught:
        plan.rescale(model, optimizer)
    assert isinstance(caught.value.__cause__, RuntimeError)
    plan.rescale(model, optimizer, trust=True)
    with pytest.raises(PlanMismatch, match="no graph") as caught:
        plan.verify(model, optimizer)
    assert isinstance(caught.value.__cause__, RuntimeError)
    plan.verify(model, optimizer, trust=True)


def test_the_first_that_holds_the_optimizer_measures_it():
    """Groups are made before there is an optimizer: verify sees which one took them."""
    model, plan = planned()
    optimizer = torch.optim.SGD(plan.param_groups(model, lr=LR), lr=LR)
    with pytest.raises(PlanMismatch, match=r"in a group of sgd, raw: .* assumes 0"):
        plan.verify(model, optimizer)


class Signs(torch.optim.Optimizer):
    """Holds every setting of AdamW in its groups, and reads the rate alone."""

    def __init__(self, params, weight_decay=0.0):
        super().__init__(
            params, {"lr": LR, "betas": (0.9, 0.95), "eps": EPS, "weight_decay": weight_decay}
        )

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data -= group["lr"] * p.grad.sign()


def test_stated_settings_that_do_nothing_are_refused():
    model, plan = planned()
    with pytest.raises(ValueError, match=r"removes 0 lr \* weight_decay .* plan assumes 1"):
        plan.rescale(model, Signs(model.parameters(), weight_decay=DECAY))
    plan.rescale(model, Signs(model.parameters()))
    moved = dataclasses.replace(plan, one_minus_beta=2.0)
    with pytest.raises(ValueError, match="the same whatever betas"):
        moved.rescale(model, Signs(model.parameters()))
    moved.rescale(model, torch.optim.AdamW(model.parameters(), lr=LR))


def test_wrappers_with_copies_of_the_groups_are_refused():
    class Copies(torch.optim.SGD):
        def __init__(self, params, **settings):
            params = list(params)
            super().__init__(params, **settings)
            self.inner = torch.optim.SGD(params, **settings)

    model, plan = planned(optimizer="sgd")
    with pytest.raises(ValueError, match="share its groups with the SGD that it holds"):
        plan.rescale(model, Copies(model.parameters(), lr=LR))


def test_one_tensor_for_all_rates_is_split():
    """A scheduler writes into it in place."""
    model, plan = planned()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(LR))
    plan.rescale(model, optimizer)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert len({id(rate) for rate in rates}) == len(rates)
    plan.watch(model, optimizer)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    optimizer.step()
    for rate in rates:
        rate.fill_(LR)
    with pytest.raises(PlanMismatch, match=r"before step 5 \(as planned until step 4\)"):
        optimizer.step()
