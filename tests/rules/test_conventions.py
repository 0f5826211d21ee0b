"""Converted learning rates: optimizers take the same steps, matrix by matrix and plan by plan."""

import math
from itertools import permutations

import pytest
import torch
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import PlanMismatch, PlanOptions
from depthmup.rules import converted_lr, step_size

SHAPES = [(8, 32), (32, 8), (16, 16)]
FORMS = ("muon", "muon-rms", "dion", "spectral-unit", "muonh", "adamw", "lion")


def moved(lr, shape, adjust):
    """A matrix after three steps of torch's Muon."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(shape))
    optimizer = torch.optim.Muon([weight], lr=lr, weight_decay=0.0, adjust_lr_fn=adjust)
    for _ in range(3):
        weight.grad = torch.randn(shape)
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_two_forms_of_torchs_muon_take_the_same_steps(shape):
    lr = converted_lr(0.02, shape, given="muon", wanted="muon-rms")
    expected = moved(0.02, shape, "original")
    assert torch.allclose(moved(lr, shape, "match_rms_adamw"), expected, atol=1e-6)
    assert not torch.allclose(moved(0.02, shape, "match_rms_adamw"), expected, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_that_keeps_the_norm_is_as_long(shape):
    """|W| U V^T / |U V^T| against sqrt(rows/columns) U V^T."""
    u, _, v = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    step, norm = u @ v, 3.7
    lr = converted_lr(0.01, shape, given="dion", wanted="muonh", norm=norm)
    rows, columns = shape
    ours, theirs = lr * norm * step / step.norm(), 0.01 * math.sqrt(rows / columns) * step
    assert torch.allclose(ours, theirs, rtol=1e-12)


def test_entries_of_adams_steps_on_noise_and_of_lions():
    """0.2 is Adam's usual size: ((1 - beta1) / (1 + beta1))^1/2 = 0.229 where all is noise."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(100, 100))
    optimizer = torch.optim.AdamW([weight], lr=1.0, weight_decay=0.0)
    sizes = []
    for _ in range(200):
        before = weight.detach().clone()
        weight.grad = torch.randn_like(weight)
        optimizer.step()
        sizes.append((weight.detach() - before).square().mean().sqrt().item())
    noise = math.sqrt(0.1 / 1.9)
    # 10^4 entries of relative error 1/sqrt(2): within 3%, the first steps over.
    assert sizes[-1] == approx(noise, rel=0.03)
    assert step_size("adamw", (100, 100)) == approx(noise, rel=0.15)
    assert step_size("lion", (3,)) == 1.0  # the mean of a sign's square


def test_there_and_back():
    for one, other in permutations(FORMS, 2):
        there = converted_lr(0.02, (8, 32), given=one, wanted=other, norm=2.0)
        assert converted_lr(there, (8, 32), given=other, wanted=one, norm=2.0) == approx(0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"given": "sgd"}, "a multiple of U V\\^T; got 'sgd', of the family raw"),
        ({"given": "entrywise"}, "adamw, .*lion.*; got 'entrywise'"),
        ({"wanted": "shampoo2"}, "Tune its rate by itself"),
        ({"wanted": "muonh"}, "Give it: norm=weight.norm"),
        ({"lr": 0.0}, "a positive learning rate; got 0.0"),
        ({"shape": (4,)}, "the rows and columns of a matrix, which muon trains; got \\(4,\\)"),
        ({"shape": (4, 0)}, "the rows and columns"),
    ],
)
def test_what_cannot_be_converted_is_refused(options, message):
    settings = {"lr": 0.02, "shape": (8, 4), "given": "muon", "wanted": "dion", **options}
    with pytest.raises(ValueError, match=message):
        converted_lr(settings.pop("lr"), settings.pop("shape"), **settings)


# Whole plans.

LR, ADAMW_LR, DECAY = 0.02, 3e-4, 0.1
X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


def make(width, depth=2):
    torch.manual_seed(width)
    blocks = (Block(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))


def planned(wanted, given, width=32, **options):
    model, base = make(width), make(16)
    options = {"scheme": "completep", "example_inputs": X, "own_init": "fan_in", **options}
    plan = depthmup.plan(
        model, base, optimizer=wanted, options=PlanOptions(tuned_with=given), **options
    )
    return model, plan


class Sphere(torch.optim.Optimizer):
    """A step of the weight's own norm along the orthogonalized gradient, as MuonH takes it."""

    def __init__(self, groups, lr=0.0):
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                u, _, v = torch.linalg.svd(p.grad, full_matrices=False)
                direction = u @ v
                p -= group["lr"] * p.norm() * direction / direction.norm()


FORM = {
    "muon": lambda g: torch.optim.Muon(g, lr=LR, weight_decay=0.0),
    "muon-rms": lambda g: torch.optim.Muon(
        g, lr=LR, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    ),
    "muonh": Sphere,
}


def steps(plan, model, **rates):
    """The change of every parameter by one step on the same gradients, under the plan's groups."""
    if plan.family.matrices_only:
        groups = plan.muon_groups(model, **rates)
        optimizers = [FORM[plan.optimizer](groups.muon), torch.optim.AdamW(groups.adamw)]
    else:
        optimizers = [torch.optim.AdamW(plan.param_groups(model, **rates), lr=rates["lr"])]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    torch.manual_seed(1)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    for optimizer in optimizers:
        optimizer.step()
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}


def size(change):
    return change.square().mean().sqrt().item()


@pytest.mark.parametrize(("given", "wanted"), list(permutations(FORM, 2)))
def test_at_the_base_every_parameter_takes_the_step_of_the_rate_that_was_tuned(given, wanted):
    """By the steps of both optimizers: the same to rounding between forms of torch's Muon.

    Newton-Schulz leaves singular values between 0.7 and 1.2, an exact orthogonalization at 1.
    """
    model, own = planned(given, given, width=16)
    expected = steps(own, model, lr=LR, adamw_lr=ADAMW_LR)
    model, plan = planned(wanted, given, width=16)
    changed = steps(plan, model, lr=LR, adamw_lr=ADAMW_LR)
    exact = "muonh" not in (given, wanted)
    for name in expected:
        rel = 1e-4 if exact or not plan[name].family.matrices_only else 0.3
        assert size(changed[name]) == approx(size(expected[name]), rel=rel), name
    hidden = [p.converted for p in plan.prescriptions if p.family.matrices_only]
    assert len(set(hidden)) > 1  # no one factor converts all matrices


@pytest.mark.parametrize(("given", "wanted"), list(permutations(["muon", "muon-rms"], 2)))
def test_at_other_sizes_it_is_the_plan_of_the_given_optimizer(given, wanted):
    """Both prescribe maximal updates: where the rate was converted makes no difference."""
    model, own = planned(given, "", width=64)
    expected = steps(own, model, lr=LR, adamw_lr=ADAMW_LR)
    model, plan = planned(wanted, given, width=64)
    changed = steps(plan, model, lr=LR, adamw_lr=ADAMW_LR)
    for name in expected:
        assert size(changed[name]) == approx(size(expected[name]), rel=1e-4), name


def test_from_adamw_a_matrix_steps_as_adamw_does_on_noise():
    model, plan = planned("muon", "adamw", width=16)
    changed = steps(plan, model, lr=ADAMW_LR, adamw_lr=ADAMW_LR)
    for p in plan.prescriptions:
        if p.family.matrices_only:
            # Adam's on noise, 0.229, against 0.2; Newton-Schulz's values are 0.7 to 1.2.
            assert size(changed[p.name]) == approx(ADAMW_LR * 0.229, rel=0.4)


def test_to_adamw_there_are_two_rates_and_decay_follows():
    model, plan = planned("adamw", "muon-rms")
    with pytest.raises(ValueError, match=r"and adamw_lr is None\. Pass adamw_lr"):
        plan.param_groups(model, lr=LR)
    groups = plan.param_groups(model, lr=LR, adamw_lr=ADAMW_LR, weight_decay=DECAY)
    names = {id(p): name for name, p in model.named_parameters()}
    for group in groups:
        for tensor in group["params"]:
            p = plan[names[id(tensor)]]
            hidden = p.role.kind == "hidden"
            # Entries of 0.2 under both: the rate is the same, times the plan's own factor.
            assert group["lr"] == approx((LR if hidden else ADAMW_LR) * p.lr)
            assert p.converted == approx(1.0)
    optimizer = torch.optim.AdamW(groups, lr=LR)
    plan.verify(model, optimizer, initialized_by_plan=False)
    optimizer.param_groups[0]["lr"] *= 2
    with pytest.raises(PlanMismatch, match="do not have the plan's ratios"):
        plan.verify(model, optimizer, initialized_by_plan=False)
    with pytest.raises(ValueError, match="two, muon-rms's for matrices and AdamW's"):
        plan.overrides("torchtitan", lr=LR)


@pytest.mark.parametrize("given", ["adamw", "muon-rms", "dion"])
def test_the_product_of_rate_and_decay_is_that_of_the_given_optimizer(given):
    own, plan = planned(given, "", width=16)[1], planned("muon", given, width=16)[1]
    for p in plan.prescriptions:
        before = own[p.name]
        assert p.lr * p.decay == approx(before.lr * before.decay)


def test_groups_that_exist_are_converted_too_and_the_plan_is_saved(tmp_path):
    model, plan = planned("muon", "adamw")
    plan.save(tmp_path / "plan.json")
    loaded = depthmup.Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    made = loaded.muon_groups(model, lr=ADAMW_LR, adamw_lr=ADAMW_LR)
    hidden = [p for group in made.muon for p in group["params"]]
    muon = torch.optim.Muon(hidden, lr=ADAMW_LR, weight_decay=0.0)
    plan.rescale(model, muon)
    expected = {id(p): group["lr"] for group in made.muon for p in group["params"]}
    for group in muon.param_groups:
        assert all(group["lr"] == approx(expected[id(p)]) for p in group["params"])
    assert "c: factor by which a step of muon has the same size" in " ".join(str(plan).split())
    name = next(p.name for p in plan.prescriptions if p.family.matrices_only)
    c = plan[name].converted
    assert f"Learning rate (spectral): times {c:.6g} (law c, c = {c:.6g})" in plan.explain(name)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        ("sgd", "muon", "steps are of a known size"),
        ("adamw", "shampoo2", "got 'shampoo2'"),
        ("nonsense", "muon", "Expected an optimizer"),
    ],
)
def test_a_plan_that_cannot_be_converted_is_refused(given, wanted, message):
    with pytest.raises(ValueError, match=message):
        planned(wanted, given)


def test_a_sphere_needs_a_base_with_values():
    with torch.device("meta"):
        model, base = make(32), make(16)
    with pytest.raises(ValueError, match="of the base has no values \\(meta\\)"):
        depthmup.plan(
            model, base, scheme="hyperp", optimizer="muonh", example_inputs=X.to("meta"),
            options=PlanOptions(tuned_with="muon"),
        )  # fmt: skip
    base = make(16)
    nn.init.zeros_(base[1].down.weight)
    with pytest.raises(ValueError, match=r"1\.down\.weight of the base starts at zero"):
        depthmup.plan(
            make(32), base, scheme="hyperp", optimizer="muonh", example_inputs=X,
            own_init="fan_in", options=PlanOptions(tuned_with="muon"),
        )  # fmt: skip
