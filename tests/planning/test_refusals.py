"""What no plan can be made of, or used for, is refused before any work: each message once."""

import json
import math

import pytest
import torch
from planning_zoo import MLPBlock, Tower, vectors
from torch import nn

import depthmup
from depthmup import PlanOptions
from depthmup.planning import NotUnderstood, PlanDocumentError, PlanMismatch, document


def make(width, depth=2):
    return Tower(MLPBlock, width, depth)


def planned(model=None, base=None, **options):
    options = {"scheme": "completep", "example_inputs": vectors(), "own_init": "fan_in"} | options
    return depthmup.plan(model or make(16, 4), base or make(8), **options)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("option", ["multiplier", "init_scale"])
def test_a_scale_is_positive_and_finite(option, value):
    with pytest.raises(ValueError, match=f"Expected {option}, .* to be positive; got"):
        PlanOptions(**{option: value})


def test_an_initial_scale_of_branches_needs_branches():
    flat = [nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2)) for width in (16, 8)]
    with pytest.raises(NotUnderstood, match="inside residual branches, and none was found"):
        planned(*flat, scheme="mup", options=PlanOptions(init_scale=2.0))


def test_a_gain_is_no_hidden_parameter():
    with pytest.raises(NotUnderstood, match=r"declared hidden but has shape \[16\]"):
        planned(roles={"inp.bias": "hidden"})


def test_what_starts_at_zero_in_one_model_alone():
    base = make(8)
    nn.init.zeros_(base.inp.weight)
    plan = planned(base=base, own_init=None)
    assert any("starts at zero in the base and not in the model" in note for note in plan.notes)


def test_a_rate_of_adamw_goes_with_one_of_matrices():
    model = make(16, 4)
    with pytest.raises(ValueError, match=r"Expected adamw_lr exactly where.*Leave out adamw_lr"):
        planned(model).param_groups(model, lr=0.1, adamw_lr=0.1)
    plan = planned(model, options=PlanOptions(tuned_with="muon-rms"))
    with pytest.raises(ValueError, match=r"Expected adamw_lr exactly where.*Pass adamw_lr"):
        plan.param_groups(model, lr=0.1)
    with pytest.raises(ValueError, match="Expected groups of hidden matrices"):
        plan.rescale(model, [{"params": list(model.parameters()), "lr": 0.1, "eps": 1e-8}])
    with pytest.raises(ValueError, match="one learning rate here, and this plan takes two"):
        plan.overrides("automodel", leave_out=("multipliers", "epsilon"), lr=0.1)


def test_an_epsilon_is_one_number_and_adafactors_are_two():
    """What was given in the other form was left out in silence."""
    model = make(16, 4)
    with pytest.raises(ValueError, match=r"Expected eps of adamw to be one number; got \(None"):
        planned(model).param_groups(model, lr=0.1, eps=(None, 1e-3))
    with pytest.raises(ValueError, match=r"Expected eps of adafactor to be a pair.*got 0\.001"):
        planned(model, optimizer=torch.optim.Adafactor).param_groups(model, lr=0.1, eps=1e-3)


@pytest.mark.parametrize("optimizer", [torch.optim.Adafactor, "relative"])
def test_a_pair_is_scaled_whatever_it_is_written_as(optimizer):
    """A checkpoint's is a list; the second number follows the size of a weight."""
    model = make(16, 4)
    plan = planned(model, optimizer=optimizer)
    for eps in ((None, 1e-3), [None, 1e-3]):
        made = plan.param_groups(model, lr=0.1, eps=eps)
        split = plan.rescale(model, [{"params": list(model.parameters()), "lr": 0.1, "eps": eps}])
        for groups in (made, split):
            sizes = {id(p): group["eps"] for group in groups for p in group["params"]}
            for name, tensor in model.named_parameters():
                assert sizes[id(tensor)] == (None, 1e-3 * plan[name].init)


def test_a_parameter_is_stepped_once():
    model = make(16, 4)
    plan = planned(model)
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=0.1), lr=0.1)
    with pytest.raises(PlanMismatch, match="would be stepped several times"):
        plan.verify(model, [optimizer, optimizer])


def test_torchtitan_builds_adam_alone():
    with pytest.raises(ValueError, match=r"Expected a plan for adam or adamw.*got lion"):
        planned(optimizer="lion").overrides("torchtitan", lr=0.1, leave_out="multipliers")


class Towers(nn.Module):
    """One tower whose additions grow in number, and one whose single branch has more parts."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
        self.deeper = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.wider = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x, y = self.inp(x), self.inp(x).tanh()
        for layer in self.deeper:
            x = x + layer(x).relu()
        y = y + torch.stack([layer(y).relu() for layer in self.wider]).amax(0)
        return self.out(x + y)


def test_parts_that_repeat_along_a_stream_of_one_depth():
    with pytest.raises(NotUnderstood, match="so its depth is not understood"):
        planned(Towers(8, 4), Towers(8, 2))


PLANS = {
    "a field too few": (lambda plan: plan.pop("scheme"), "to have the fields"),
    "a list that is none": (lambda plan: plan.update(notes="none"), "notes to be a list"),
    "a number as text": (lambda plan: plan.update(log_beta2="1"), "to be a finite number"),
    "no number": (lambda plan: plan.update(log_beta2=math.nan), "to be a finite number"),
    "a text that is none": (lambda plan: plan.update(scheme=1), "to be of str"),
    "what moves a cursor": (lambda plan: plan.update(title="\x1b[2J"), "can be printed"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_document_that_somebody_wrote(name, tmp_path):
    """With a right checksum: a plan is what the release writes."""
    change, message = PLANS[name]
    content = json.loads(planned().to_json())
    change(content["plan"])
    content["sha256"] = document._checksum(content["plan"])
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(PlanDocumentError, match=f"no plan of this release.*{message}"):
        depthmup.Plan.load(tmp_path / "plan.json")


def test_a_document_that_is_no_text_or_too_long(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PlanDocumentError, match=r"plan\.json is no text"):
        depthmup.Plan.load(path)
    planned().save(path)
    monkeypatch.setattr(document, "LARGEST", 1000)
    with pytest.raises(PlanDocumentError, match=r"at most 1,000 bytes; .*plan\.json has"):
        depthmup.Plan.load(path)
    with pytest.raises(PlanDocumentError, match="at most 1,000 characters"):
        document.loads(path.read_text())
