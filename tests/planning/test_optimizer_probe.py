"""Unknown optimizers are told by what their updates follow."""

import copy
import re

import pytest
import torch
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import family_of, twins
from depthmup.rules import OPTIMIZERS, Family


class Rule(torch.optim.Optimizer):
    """A step that is a function of the weight and the gradient."""

    def __init__(self, params, step):
        super().__init__(params, {"lr": 1e-3})
        self._rule = step

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * self._rule(p, p.grad))


def orthogonal(g):
    u, s, v = torch.linalg.svd(g, full_matrices=False)
    rank = int((s > 1e-4 * s[0]).sum())
    return u[:, :rank] @ v[:rank]


class Adan(torch.optim.Optimizer):
    """Adam with Nesterov momentum of the gradient's changes (arXiv 2208.06677, Algorithm 1)."""

    def __init__(self, params, lr=1e-3, betas=(0.02, 0.08, 0.01)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            of_m, of_v, of_n = group["betas"]
            for p in group["params"]:
                state, g = self.state[p], p.grad
                before = state.setdefault("before", g.clone())
                state.setdefault("m", g.clone())
                state.setdefault("v", torch.zeros_like(g))
                state.setdefault("n", g.square())
                state["m"].lerp_(g, of_m)
                state["v"].lerp_(g - before, of_v)
                state["n"].lerp_((g + (1 - of_v) * (g - before)).square(), of_n)
                state["before"] = g.clone()
                step = (state["m"] + (1 - of_v) * state["v"]) / (state["n"].sqrt() + 1e-30)
                p.sub_(group["lr"] * step)


RULES = {
    "sign": (lambda w, g: g.sign(), Family.ENTRYWISE),
    "lamb": (lambda w, g: w.norm() * g.sign() / g.sign().norm(), Family.RELATIVE),
    "lars": (lambda w, g: w.norm() * g / g.norm(), Family.RELATIVE),
    "orthogonalized alone": (lambda w, g: orthogonal(g), Family.SPECTRAL_UNIT),
    "out over in": (
        lambda w, g: (len(g) / g.shape[1]) ** 0.5 * orthogonal(g), Family.SPECTRAL_RATIO,
    ),
    "on a sphere": (
        lambda w, g: w.norm() * orthogonal(g) / orthogonal(g).norm(), Family.SPHERE,
    ),
    # Of none: the whole matrix normalized, a root of the gradient, columns normalized.
    "normalized": (lambda w, g: g / g.norm(), None),
    "root": (lambda w, g: g.sign() * g.abs().sqrt(), None),
    "columns": (lambda w, g: g / g.norm(dim=0), None),
}  # fmt: skip
TORCH = {
    "SGD": Family.RAW,
    "ASGD": Family.RAW,
    "Adam": Family.ENTRYWISE,
    "AdamW": Family.ENTRYWISE,
    "NAdam": Family.ENTRYWISE,
    "Adamax": Family.ENTRYWISE,
    "RMSprop": Family.ENTRYWISE,
    "Adagrad": Family.ENTRYWISE,
    "RAdam": Family.ENTRYWISE,  # whose first steps are those of SGD
    "Rprop": None,  # whose rate is read once
    "Adadelta": None,  # whose steps are sized by earlier ones
    "Muon": Family.SPECTRAL,
    "Adafactor": Family.RELATIVE,
}


@pytest.mark.parametrize("name", RULES)
def test_rules_as_they_are_written(name):
    step, family = RULES[name]
    assert family_of(lambda parameters: Rule(parameters, step)).family is family


@pytest.mark.parametrize("name", TORCH)
def test_every_optimizer_of_torch_that_has_a_family(name):
    cls = getattr(torch.optim, name)
    probe = family_of(lambda parameters: cls(parameters, lr=1e-3))
    assert probe.family is TORCH[name], str(probe)
    if name.lower() in OPTIMIZERS:  # what is measured is what the name stands for
        assert probe.family is OPTIMIZERS[name.lower()]


def test_adan_steps_entry_by_entry():
    assert family_of(Adan).family is OPTIMIZERS["adan"] is Family.ENTRYWISE


def test_settings_decide():
    def muon(parameters):
        return torch.optim.Muon(parameters, lr=1e-3, adjust_lr_fn="match_rms_adamw")

    assert family_of(muon).family is Family.SPECTRAL_RMS


def test_an_optimizer_is_measured_with_its_class_and_settings():
    built = torch.optim.AdamW([nn.Parameter(torch.zeros(2))], lr=1e-2, weight_decay=0.3)
    probe = depthmup.family_of(built)
    assert probe.family is Family.ENTRYWISE
    assert (probe.gradient, probe.weight) == (approx(0, abs=0.01), approx(0, abs=0.01))
    assert "family entrywise" in str(probe)


def test_one_that_moves_nothing():
    with pytest.raises(ValueError, match="by nothing"):
        family_of(lambda parameters: Rule(parameters, lambda w, g: 0 * g))


class Other(torch.optim.Optimizer):
    """A change of the weight that is a function of the weight, the gradient and the group."""

    def __init__(self, params, change, lr=1e-3, weight_decay=0.0, eps=1e-8):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "eps": eps})
        self._change = change

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(self._change(p, p.grad, group))


# Optimizers whose updates have a family, and that do something else beside them.
BESIDE = {
    "reads a rate of its own": (lambda w, g, o: -1e-3 * g.sign(), r"learning rate as lr\^-?0\.00"),
    "draws weights anew": (lambda w, g, o: torch.randn_like(w) - w, "learning rate as lr"),
    "moves weights without a gradient": (
        lambda w, g, o: -o["lr"] * (g.sign() + w.sign() * (g == 0)),
        "no gradient",
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_what_a_family_does_not_say_leaves_none(case):
    change, why = BESIDE[case]
    probe = family_of(lambda parameters: Other(parameters, change))
    assert probe.family is None
    assert re.search(why, probe.why), probe.why


def test_another_law_of_large_matrices_is_no_family():
    """As of blocks of 64, or of states of eight bits from 4096 entries on."""

    def change(w, g, group):
        return -group["lr"] * (g.sign() if w.numel() <= 4096 else g / g.norm())

    assert family_of(lambda parameters: Other(parameters, change)).family is None


# By the exponents of what is removed in the rate and in weight_decay, and what beside a gradient.
DECAYS = {
    "decoupled": (lambda w, g, o: -o["lr"] * (g.sign() + o["weight_decay"] * w), 1, 1, 1),
    "independent": (lambda w, g, o: -o["lr"] * g.sign() - o["weight_decay"] * w, 0, 1, 1),
    "coupled": (lambda w, g, o: -o["lr"] * (g + o["weight_decay"] * w).sign(), None, 0, None),
    "less beside gradients": (
        lambda w, g, o: -o["lr"] * (g.sign() + (1 - 0.9 * g.any().float()) * o["weight_decay"] * w),
        1,
        1,
        0.1,
    ),
}


@pytest.mark.parametrize("case", DECAYS)
def test_decay_is_measured(case):
    change, in_rate, in_decay, beside = DECAYS[case]
    probe = family_of(lambda parameters: Other(parameters, change, weight_decay=1e-2))
    assert probe.family is Family.ENTRYWISE
    measured = (probe.decay_in_rate, probe.decay_in_decay, probe.decay_beside)
    for value, expected in zip(measured, (in_rate, in_decay, beside), strict=True):
        assert expected is None or value == approx(expected, abs=0.05)


def test_the_error_of_an_optimizer_is_the_cause():
    def change(w, g, group):
        raise KeyError("mine")

    with pytest.raises(ValueError, match="KeyError: 'mine'") as caught:
        family_of(lambda parameters: Other(parameters, change))
    assert isinstance(caught.value.__cause__, KeyError)


def test_nothing_of_the_persons_optimizer_is_touched():
    """Neither state, weights, hooks nor random numbers."""
    parameters = [nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps optimizer.step
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer.step()
    scheduler.step()
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append(1))
    before = copy.deepcopy((optimizer.state_dict(), parameters))
    states = torch.get_rng_state()
    assert family_of(optimizer).family is Family.ENTRYWISE
    assert torch.equal(torch.get_rng_state(), states)
    assert not called
    assert str(optimizer.state_dict()) == str(before[0])
    assert all(torch.equal(a, b) for a, b in zip(parameters, before[1], strict=True))
    assert optimizer.param_groups[0]["params"][0] is parameters[0]


def test_a_class_that_is_edited_is_measured_again():
    class Mine(torch.optim.SGD):
        pass

    optimizer = Mine([nn.Parameter(torch.randn(4, 4))], lr=1e-2)
    assert family_of(optimizer).family is Family.RAW

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad.sign()

    Mine.step = step
    assert family_of(optimizer).family is Family.ENTRYWISE


def test_settings_that_a_function_closes_over_are_told_apart():
    """As of Muon's factor of the shape in some packages: neither a group nor a number holds it."""

    def built(power):
        def step(w, g):
            return orthogonal(g) * (len(g) / g.shape[1]) ** power

        return Rule([nn.Parameter(torch.randn(4, 4))], step)

    assert family_of(built(0)).family is Family.SPECTRAL_UNIT
    assert family_of(built(0.5)).family is Family.SPECTRAL_RATIO


def test_a_schedule_or_another_model_is_no_new_measurement(monkeypatch):
    first = torch.optim.NAdam([nn.Parameter(torch.randn(4, 4))], lr=1e-2)
    found = family_of(first)
    monkeypatch.setattr(twins, "_run", None)
    other = torch.optim.NAdam(nn.Linear(3, 5).parameters(), lr=1e-3)
    torch.optim.lr_scheduler.StepLR(other, 1)
    assert family_of(other) is found


def test_what_an_optimizer_prints_is_not_shown(capsys):
    class Chatty(torch.optim.SGD):
        def __init__(self, params):
            print("a block of parameters")
            super().__init__(params, lr=1e-2)

    assert family_of(Chatty).family is Family.RAW
    assert capsys.readouterr().out == ""


class KeepsWeights:
    """A wrapper that keeps what weights were when it was built, by their order."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.kept = [p.detach().clone() for g in self.param_groups for p in g["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def step(self):
        self.optimizer.step()
        everything = [p for g in self.param_groups for p in g["params"]]
        if sorted(p.shape for p in everything) != sorted(p.shape for p in self.kept):
            raise RuntimeError("these are not my parameters")


def test_a_wrapper_that_keeps_weights_is_built_again_around_a_twin():
    model = nn.Linear(4, 4)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-2)
    assert family_of(KeepsWeights(inner)).family is Family.ENTRYWISE


def test_the_error_of_a_closure_is_told_where_a_step_needs_one():
    with pytest.raises(ValueError, match="exactly one param_group"):
        family_of(lambda parameters: torch.optim.LBFGS(parameters, lr=1e-2))


def test_betas_that_are_not_read_are_found():
    class Deaf(torch.optim.SGD):
        def __init__(self, params, lr):
            super().__init__(params, lr)
            self.param_groups[0]["betas"] = (0.9, 0.99)

    def measured(cls):
        return family_of(cls([nn.Parameter(torch.randn(4, 4))], lr=1e-2)).betas

    assert not measured(Deaf)
    assert measured(torch.optim.AdamW)


def test_steps_of_small_gradients_are_not_lost_in_rounding():
    probe = family_of(lambda parameters: torch.optim.SGD(parameters, lr=1e-3))
    assert probe.gradient == approx(1, abs=2e-3)


def test_closures_and_two_steps():
    class Closure(torch.optim.SGD):
        def step(self, closure):
            closure()
            return super().step()

    class TwoSteps(torch.optim.SGD):
        def step(self):
            raise RuntimeError("call first_step and second_step")

        def first_step(self):
            pass

        def second_step(self):
            super().step()

    for cls in (Closure, TwoSteps):
        optimizer = cls([nn.Parameter(torch.randn(4, 4))], lr=1e-2)
        assert family_of(optimizer).family is Family.RAW


def test_a_model_that_an_optimizer_holds_is_not_copied():
    """Nor is it touched: one that needs it in its step cannot be tried."""

    class Holds(torch.optim.SGD):
        def __init__(self, params, lr, needed, model):
            super().__init__(params, lr=lr)
            self.needed, self.model = needed, model

        def step(self):
            if self.needed:
                next(self.model.parameters()).data.zero_()
            super().step()

    model = nn.Linear(4, 4)
    before = model.weight.detach().clone()
    assert family_of(Holds(model.parameters(), 1e-2, False, model)).family is Family.RAW
    with pytest.raises(ValueError, match="could not be tried"):
        family_of(Holds(model.parameters(), 1e-2, True, model))
    assert torch.equal(model.weight, before)
