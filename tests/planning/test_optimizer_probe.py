"""Unknown optimizers are told by what their updates follow."""

import pytest
import torch
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import family_of
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
    "Rprop": Family.ENTRYWISE,
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
        family_of(lambda parameters: torch.optim.SGD(parameters, lr=0.0))
