"""Layouts of groups as trainers make them: each mistake is found, and no right use is refused."""

import copy
import math
from functools import cache

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import depthmup
from depthmup.planning import JoinedOptimizer, PlanMismatch

LR, STEPS = 1e-3, 40


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width),
        )  # fmt: skip

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def make(width, depth):
    return nn.Sequential(
        nn.Embedding(16, width),
        *(Block(width) for _ in range(depth)),
        nn.LayerNorm(width),
        nn.Linear(width, 16, bias=False),
    )


@cache
def plan_for(optimizer):
    torch.manual_seed(0)
    return depthmup.plan(
        make(64, 3), make(16, 2), scheme="completep", optimizer=optimizer,
        example_inputs=torch.zeros(2, 4, dtype=torch.long), own_init="fan_in",
    )  # fmt: skip


class Wrapper:
    """As apex's LARC, and engines of trainers: no torch optimizer."""

    def __init__(self, inner):
        self.inner = inner

    @property
    def param_groups(self):
        return self.inner.param_groups

    def step(self):
        self.inner.step()


class TwoSteps(torch.optim.Optimizer):
    """As sharpness-aware optimizers: the inner one steps, and nobody calls ``step``."""

    def __init__(self, params, inner, **settings):
        super().__init__(params, settings)
        self.inner = inner(self.param_groups, **settings)
        self.param_groups = self.inner.param_groups

    def step(self, closure=None):
        raise RuntimeError("call first_step and second_step")

    def first_step(self):
        pass

    def second_step(self):
        self.inner.step()


def adamw(groups, lr=LR):
    return torch.optim.AdamW(groups, lr=lr, weight_decay=0.1)


def kinds(model):
    """Parameters by what they are: embedding, matrices, vectors, head."""
    found = {}
    for name, p in model.named_parameters():
        kind = "embed" if name[0] == "0" else "head" if name[0] == "5" else ("v", "m")[p.ndim > 1]
        found.setdefault(kind, []).append(p)
    return found


def with_decay(model):
    k = kinds(model)
    return [
        {"params": k["embed"] + k["m"] + k["head"], "weight_decay": 0.1},
        {"params": k["v"], "weight_decay": 0.0},
    ]


def by_layer(model):
    return [
        {"params": list(layer.parameters()), "lr": LR * 0.8 ** (len(model) - i)}
        for i, layer in enumerate(model)
    ]


def muon_and_adamw(model):
    k = kinds(model)
    rest = k["embed"] + k["v"] + k["head"]
    return [torch.optim.Muon(k["m"], lr=0.02), adamw(rest)]


# How trainers build their optimizers.
LAYOUTS = {
    "one group": lambda m: [adamw(m.parameters())],
    "two by decay": lambda m: [adamw(with_decay(m))],
    "one per parameter": lambda m: [adamw([{"params": [p]} for p in m.parameters()])],
    "one per layer, rates that decay": lambda m: [adamw(by_layer(m))],
    "rates by kind": lambda m: [
        adamw([{"params": v, "lr": LR * (1 + i)} for i, v in enumerate(kinds(m).values())])
    ],
    "an optimizer per parameter": lambda m: [adamw([p]) for p in m.parameters()],
    "an optimizer per kind": lambda m: [adamw(v) for v in kinds(m).values()],
    "Muon and AdamW": muon_and_adamw,
    "a wrapper": lambda m: [Wrapper(adamw(with_decay(m)))],
    "two steps": lambda m: [
        TwoSteps(m.parameters(), torch.optim.AdamW, lr=LR, weight_decay=0.1)
    ],
}  # fmt: skip


def built(name, *, forgotten=False):
    """A model, its plan, and its optimizers, rescaled; or the last one forgotten."""
    plan = plan_for("muon" if "Muon" in name else "adamw")
    model = make(64, 3)
    plan.initialize(model)
    optimizers = LAYOUTS[name](model)
    for one in optimizers[: -1 if forgotten else None]:
        plan.rescale(model, one)
    return plan, model, optimizers


def step(optimizers):
    for one in optimizers:
        for stepped in (
            (one.first_step, one.second_step) if hasattr(one, "first_step") else (one.step,)
        ):
            stepped()


def groups_of(optimizers):
    return [group for one in optimizers for group in one.param_groups]


def absolute(optimizers, _):
    for group in groups_of(optimizers):
        group["lr"] = LR


def swapped(optimizers, done):
    groups = groups_of(optimizers)
    if done == 0:
        first = groups[0]
        other = next(g for g in groups if not math.isclose(g["lr"], first["lr"]))
        first["lr"], other["lr"] = other["lr"], first["lr"]


def floor(optimizers, done):
    part = 0.5 * (1 + math.cos(math.pi * min(done / STEPS, 1)))
    for group in groups_of(optimizers):
        start = group["lr_base"] * group["lr_factor"]
        group["lr"] = 1e-4 + (start - 1e-4) * part


def resumed_without(optimizers, done):
    """A checkpoint of a run without the plan, whose groups have the same parameters."""
    if done:
        return
    for one in optimizers:
        inner = getattr(one, "inner", one)
        state = inner.state_dict()
        for group in state["param_groups"]:
            for key in [key for key in group if key.startswith("lr_") or key.endswith("_base")]:
                del group[key]
            group["lr"] = LR
        inner.load_state_dict(state)
        if inner is not one and isinstance(one, TwoSteps):
            one.param_groups = inner.param_groups


MISTAKES = {
    "one rate for all": absolute,
    "changed places": swapped,
    "a floor": floor,
    "a checkpoint": resumed_without,
}


@pytest.mark.parametrize("mistake", [*MISTAKES, "one that was forgotten"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_each_mistake_is_found(name, mistake):
    plan, model, optimizers = built(name, forgotten="forgotten" in mistake)
    if "forgotten" in mistake:
        with pytest.raises(PlanMismatch):
            plan.verify(model, optimizers)
        return
    plan.watch(model, optimizers)
    step(optimizers)

    def train():
        for done in range(STEPS + 1):
            MISTAKES[mistake](optimizers, done)
            step(optimizers)

    with pytest.raises(PlanMismatch, match="before step"):
        train()


def scheduled(plan, model, optimizers):
    """Warm-up from zero, and a cosine to zero."""
    inner = [getattr(one, "inner", one) for one in optimizers]
    schedulers = [
        lr_scheduler.LambdaLR(one, lambda t: min(t / 5, 1) * (1 + math.cos(t / 7)) / 2)
        for one in inner
    ]
    for scheduler in schedulers:
        plan.verify(model, optimizers, scheduler=scheduler, steps=20)
    for _ in range(20):
        step(optimizers)
        for scheduler in schedulers:
            scheduler.step()


def frozen(plan, model, optimizers):
    """The first group stops after a while, and another origin goes its own way."""
    for done in range(20):
        groups = groups_of(optimizers)
        groups[0]["lr"] = 0.0
        named = (id(optimizers[-1]), groups[-1].get("lr_origin"))
        for one in optimizers:
            for group in one.param_groups:
                if (id(one), group.get("lr_origin")) == named and group["lr"]:
                    group["lr"] = group["lr_base"] * group["lr_factor"] * (1 - 0.037 * done)
        step(optimizers)


def resumed(plan, model, optimizers):
    """A checkpoint in the middle of a schedule, loaded into groups that were built alike."""
    for group in groups_of(optimizers):
        group["lr"] *= 0.3
    step(optimizers)
    for one in optimizers:
        inner = getattr(one, "inner", one)
        inner.load_state_dict(copy.deepcopy(inner.state_dict()))
        if inner is not one and isinstance(one, TwoSteps):
            one.param_groups = inner.param_groups
    step(optimizers)
    plan.verify(model, optimizers)


@pytest.mark.parametrize("use", [scheduled, frozen, resumed])
@pytest.mark.parametrize("name", LAYOUTS)
def test_no_right_use_is_refused(name, use):
    plan, model, optimizers = built(name)
    handles = plan.watch(model, optimizers)
    use(plan, model, optimizers)
    for handle in handles:
        handle.remove()
    absolute(optimizers, 0)
    step(optimizers)  # nobody looks any more


def test_a_joined_optimizer_is_one_layout_more():
    plan = plan_for("muon")
    model = make(64, 3)
    plan.initialize(model)
    groups = plan.muon_groups(model, lr=0.02, adamw_lr=LR, weight_decay=0.1)
    joined = JoinedOptimizer(torch.optim.Muon(groups.muon, lr=0.02), adamw(groups.adamw))
    plan.watch(model, joined)
    joined.step()
    absolute([joined], 0)
    with pytest.raises(PlanMismatch, match="before step 2"):
        joined.step()


@pytest.mark.parametrize("name", ["two by decay", "Muon and AdamW"])
def test_groups_of_an_earlier_release_are_compared_by_their_ratios(name):
    """Their checkpoints hold factors and origins, and no values at the base."""
    plan, model, optimizers = built(name)
    for group in groups_of(optimizers):
        for key in [key for key in group if key.endswith("_base")]:
            del group[key]
    plan.watch(model, optimizers)
    step(optimizers)
    for group in groups_of(optimizers):
        group["lr"] *= 0.5
    step(optimizers)
    absolute(optimizers, 0)
    with pytest.raises(PlanMismatch, match="do not have the plan's ratios"):
        step(optimizers)


def test_verify_after_a_resume_agrees_with_watch():
    """A loop that sets rates itself leaves no trace of the first one but the base's value."""
    plan, model, _ = built("one group")
    optimizer = adamw(plan.param_groups(model, lr=LR, weight_decay=0.1))
    for group in optimizer.param_groups:
        group["lr"] = 0.3 * LR * group["lr_factor"]
    again = adamw(plan.param_groups(model, lr=LR, weight_decay=0.1))
    again.load_state_dict(optimizer.state_dict())
    plan.watch(model, again)
    again.step()
    plan.verify(model, again)


class TestLateGroups:
    def unfrozen(self, *, matrices=False, steps=3):
        plan, model = plan_for("adamw"), make(64, 3)
        plan.initialize(model)
        blocks = list(model)[1:4]
        inside = [p for layer in blocks for p in layer.parameters()]
        inside = [layer.up.weight for layer in blocks] if matrices else inside
        for p in inside:
            p.requires_grad_(False)
        optimizer = adamw([p for p in model.parameters() if p.requires_grad])
        plan.rescale(model, optimizer)
        plan.watch(model, optimizer)
        for _ in range(steps):
            optimizer.step()
        for p in inside:
            p.requires_grad_(True)
        return plan, model, optimizer, inside

    def test_one_without_factors_is_found(self):
        _, _, optimizer, inside = self.unfrozen()
        optimizer.add_param_group({"params": inside, "lr": 1e-4})
        with pytest.raises(
            PlanMismatch, match=r"before step 4 \(as planned until step 3\).*in one"
        ):
            optimizer.step()

    def test_one_of_single_factors_is_found(self):
        _, _, optimizer, inside = self.unfrozen(matrices=True)
        optimizer.add_param_group({"params": inside, "lr": 1e-4})
        with pytest.raises(PlanMismatch, match="without the plan's factor"):
            optimizer.step()

    def test_rescale_splits_it_and_leaves_the_others_alone(self):
        plan, model, optimizer, inside = self.unfrozen()
        before = [dict(group) for group in optimizer.param_groups]
        optimizer.add_param_group({"params": inside, "lr": 1e-4})
        plan.rescale(model, optimizer)
        assert optimizer.param_groups[: len(before)] == before
        optimizer.step()
        plan.verify(model, optimizer)
        origins = {group["lr_origin"] for group in optimizer.param_groups}
        assert origins == {0, 1}
        with pytest.raises(ValueError, match="multiply twice"):
            plan.rescale(model, optimizer)


class Counting(dict):
    reads = 0

    def __getitem__(self, key):
        Counting.reads += 1
        return super().__getitem__(key)

    def get(self, key, default=None):
        Counting.reads += 1
        return super().get(key, default)


@pytest.mark.parametrize("schedule", [False, True])
def test_a_look_costs_a_few_reads_per_group(schedule):
    plan, model, (optimizer,) = built("one per parameter")
    optimizer.param_groups[:] = [Counting(group) for group in optimizer.param_groups]
    optimizer.step = lambda: [hook(optimizer, (), {}) for hook in hooks]  # the look alone
    plan.watch(model, optimizer, trust=True)
    hooks = list(optimizer._optimizer_step_pre_hooks.values())
    for _ in range(3):
        if schedule:
            for group in optimizer.param_groups:
                group["lr"] *= 0.9
        Counting.reads = 0
        optimizer.step()
        read = Counting.reads / len(optimizer.param_groups)
    assert read <= (16 if schedule else 4)


def test_lists_for_each_group_follow_the_origin():
    plan, model, (optimizer,) = built("two by decay")
    rates = plan.expand(optimizer, [2.0, 3.0])
    for rate, group in zip(rates, optimizer.param_groups, strict=True):
        assert rate == (2.0, 3.0)[group["lr_origin"]] * group["lr_factor"]
    halves = plan.expand(optimizer, [lambda t: 0.5**t, lambda t: 0.25**t])
    scheduler = lr_scheduler.LambdaLR(optimizer, halves)
    plan.verify(model, optimizer, scheduler=scheduler, steps=4)
    one_cycle = lr_scheduler.OneCycleLR(
        optimizer, max_lr=plan.expand(optimizer, [LR, 2 * LR]), total_steps=9
    )
    plan.verify(model, optimizer, scheduler=one_cycle)
    with pytest.raises(ValueError, match="each of the 2 groups"):
        plan.expand(optimizer, [1.0])
    with pytest.raises(ValueError, match="has split"):
        plan.expand(adamw(plan.param_groups(model, lr=LR)), [1.0])


# Schedules and the step at which they first contradict; None: they say no length.
LENGTHS = {
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 8, eta_min=1e-4), 1),
    "restarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 8, eta_min=1e-4), 1),
    "one cycle": (lambda o: lr_scheduler.OneCycleLR(o, max_lr=LR, total_steps=8), 0),
    "warm-up, then cosine": (
        lambda o: lr_scheduler.SequentialLR(
            o,
            [lr_scheduler.LinearLR(o), lr_scheduler.CosineAnnealingLR(o, 8, eta_min=1e-4)],
            milestones=[5],
        ),
        6,
    ),
    "function": (lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.5**t), None),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_schedule_is_tried_as_a_whole(name):
    make_scheduler, first = LENGTHS[name]
    plan, model, (optimizer,) = built("one group")
    scheduler = make_scheduler(optimizer)
    if first is None:
        with pytest.raises(ValueError, match="Expected steps=, as LambdaLR does not say"):
            plan.verify(model, optimizer, scheduler=scheduler)
        return
    with pytest.raises(PlanMismatch, match=f"after step {first} of" if first else "do not have"):
        plan.verify(model, optimizer, scheduler=scheduler)


def test_what_is_no_optimizer():
    plan, model, _ = built("one group")
    for name in ("verify", "watch"):
        with pytest.raises(ValueError, match="Expected an optimizer with param_groups"):
            getattr(plan, name)(model, model)


@pytest.mark.parametrize("method", ["param_groups", "rescale", "verify", "watch", "overrides"])
def test_unknown_arguments_are_refused_with_the_near_one(method):
    plan, model, (optimizer,) = built("one group")
    given, wrong, near = {
        "param_groups": ((model, LR), "weight_decy", "weight_decay"),
        "rescale": ((model, optimizer), "default", "defaults"),
        "verify": ((model, optimizer), "schedule", "scheduler"),
        "watch": ((model, optimizer), "independent", "independent_decay"),
        "overrides": (("json",), "weight_decays", "weight_decay"),
    }[method]
    with pytest.raises(TypeError, match=f"Did you mean '{near}'"):
        getattr(plan, method)(*given, **{wrong: 0.1})
