"""Trials of a person's own model: against a plain loop, and what they refuse."""

import math
import random
import traceback
from array import array
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from own_models import batch, make
from torch import nn
from torch.nn.functional import cross_entropy

import depthmup
from depthmup._isolated import seeded
from depthmup.model import Model
from depthmup.model.loss import cross_entropy as usual_loss
from depthmup.records import BASE_SHAPE, Status, Trial
from depthmup.rules import CATALOGUE
from depthmup.training import stream
from depthmup.training.loop import check_loss
from depthmup.training.preflight import preflight
from depthmup.training.schedules import schedule
from depthmup.training.trial import run_trial

OWN = Model(make=make, batch=batch)
TRIAL = Trial(
    model="make",
    code="1",
    size={"width": 32, "depth": 4},
    base={"width": 32, "depth": 4},
    scheme=BASE_SHAPE,
    optimizer="adamw",
    lr=2.0**-7,
    steps=8,
    seed=3,
)
DEEP, WIDE = {"width": 32, "depth": 8}, {"width": 64, "depth": 4}


def plain_losses(trial, multiplier=1.0, rate=lambda at: 1.0, clip=math.inf, **options):
    """The same training, without a plan, written anew."""
    torch.manual_seed(trial.seed)
    model = make(trial.width, trial.depth, multiplier)
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.lr, **options)
    generator, losses = stream(trial.seed, "batches"), []
    for step in range(trial.steps):
        x, y = batch(generator)
        loss = cross_entropy(model(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.param_groups[0]["lr"] = trial.lr * rate((step + 0.5) / trial.steps)
        optimizer.step()
    return losses


def test_at_the_base_it_is_plain_training():
    record = run_trial(TRIAL, OWN)
    assert record.status is Status.FINISHED
    assert list(record.losses) == plain_losses(TRIAL, weight_decay=0.0)
    decayed = replace(TRIAL, weight_decay=2.0)
    assert list(run_trial(decayed, OWN).losses) == plain_losses(decayed, weight_decay=2.0)


@pytest.mark.parametrize("scheme", [s.name for s in CATALOGUE])
def test_at_the_base_all_schemes_agree(scheme):
    """Which is why they share those runs."""
    named = run_trial(replace(TRIAL, scheme=scheme), OWN)
    assert named.losses == run_trial(TRIAL, OWN).losses


def test_the_multiplier_is_that_of_every_branch():
    record = run_trial(replace(TRIAL, multiplier=0.3), OWN)
    expected = plain_losses(TRIAL, multiplier=0.3, weight_decay=0.0)
    assert list(record.losses) == pytest.approx(expected, rel=1e-4)  # folded, so to rounding
    assert max(abs(a - b) for a, b in zip(expected, plain_losses(TRIAL), strict=True)) > 0.01


def test_rates_schemes_and_sizes_of_a_seed_see_the_same_batches():
    seen = []

    def watched(generator):
        x, y = batch(generator)
        seen.append(float(x.sum()))
        return x, y

    own = Model(make=make, batch=watched)
    runs = [{"lr": 0.1}, {"scheme": "sp", "size": DEEP}, {"size": WIDE, "scheme": "depth-mup"}]
    sequences = []
    for changes in runs:
        run_trial(replace(TRIAL, **changes), own)
        sequences.append(seen[-TRIAL.steps :])
    assert sequences[0] == sequences[1] == sequences[2]
    run_trial(replace(TRIAL, seed=4), own)
    assert seen[-TRIAL.steps :] != sequences[0]


def test_a_longer_run_begins_with_a_shorter_one():
    longer = run_trial(replace(TRIAL, steps=12), OWN)
    assert longer.losses[:8] == run_trial(TRIAL, OWN).losses


def test_divergence_is_data():
    record = run_trial(replace(TRIAL, lr=1e12, optimizer="sgd"), OWN)
    assert record.status is Status.DIVERGED
    assert 0 < len(record.losses) < TRIAL.steps
    assert all(map(math.isfinite, record.losses))

    def broken(width, depth):
        model = make(width, depth)
        nn.init.constant_(model[0].weight, math.inf)
        return model

    settings = {"own_init": "fixed"}
    record = run_trial(replace(TRIAL, settings=settings), Model(make=broken, batch=batch))
    assert record.status is Status.FAILED


def test_randomness_and_threads_outside_stay_as_they_were():
    torch.manual_seed(5)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    run_trial(TRIAL, OWN, threads=2)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("where", ["make", "batch"])
def test_a_run_does_not_depend_on_what_an_earlier_one_set(where):
    def setting(function):
        def calls(*args, **named):
            result = function(*args, **named)
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            return result

        return calls

    alone, functions = run_trial(TRIAL, OWN), {"make": make, "batch": batch}
    with suppress(Exception):  # it may well not train
        run_trial(TRIAL, Model(**{**functions, where: setting(functions[where])}))
    try:
        assert torch.get_default_dtype() is torch.float32
        assert torch.is_grad_enabled()
        assert run_trial(TRIAL, OWN).losses == alone.losses
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)


@pytest.mark.parametrize("name", ["muon", "muon-rms", "sgd", "rmsprop"])
def test_other_optimizers_train(name):
    record = run_trial(replace(TRIAL, optimizer=name, size=DEEP, scheme="depth-mup", steps=20), OWN)
    assert record.losses[-1] < record.losses[0]


def test_schedules():
    cosine = schedule("cosine", 0.2)
    assert [cosine(at) for at in (0.1, 0.2, 0.6)] == pytest.approx([0.5, 1.0, 0.5])
    assert schedule("constant", 0.0)(0.99) == 1.0
    with pytest.raises(ValueError, match="constant, linear, cosine"):
        schedule("step", 0.0)
    settings = {"schedule": "linear", "warmup": 0.5, "clip": 0.1, "betas": [0.8, 0.9]}
    record = run_trial(replace(TRIAL, settings=settings), OWN)
    expected = plain_losses(TRIAL, rate=lambda at: min(2 * at, 2 - 2 * at), clip=0.1,
                            weight_decay=0.0, betas=(0.8, 0.9))  # fmt: skip
    assert list(record.losses) == pytest.approx(expected, rel=1e-5)


class TestOwnTraining:
    """``train(trial)`` instead of a factory."""

    def run(self, *losses):
        return run_trial(replace(TRIAL, steps=3), Model(train=lambda trial: losses))

    def test_losses_become_a_record(self):
        record = self.run(3.0, 2.0, 1.0)
        assert (record.status, record.losses) == (Status.FINISHED, array("f", [3, 2, 1]))

    def test_what_is_not_finite_has_diverged(self):
        assert self.run(3.0, math.nan).status is Status.DIVERGED
        assert self.run(3.0, math.inf, 1.0).losses == array("f", [3])
        assert self.run(math.nan).status is Status.FAILED

    def test_arrays_are_taken(self):
        for losses in (torch.tensor([3.0, 2.0, 1.0]), np.array([3.0, 2.0, 1.0])):
            record = run_trial(replace(TRIAL, steps=3), Model(train=lambda t, x=losses: x))
            assert record.losses == array("f", [3, 2, 1])

    def test_what_is_no_curve_is_refused(self):
        with pytest.raises(ValueError, match=r"3 losses, one for every step .* got 2"):
            self.run(3.0, 2.0)
        with pytest.raises(ValueError, match="never negative"):
            self.run(3.0, 2.0, -1.0)
        with pytest.raises(TypeError, match="a sequence of numbers; got None"):
            run_trial(TRIAL, Model(train=lambda trial: None))


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (torch.ones(3, requires_grad=True), TypeError, r"a tensor of shape \[3\].*loss.mean"),
        (1.0, TypeError, "one number, a tensor without dimensions; got 1.0"),
        (torch.tensor(1.0), ValueError, "has no gradient"),
        (torch.tensor(-1.0, requires_grad=True), ValueError, "never negative; got -1"),
    ],
)
def test_losses_that_cannot_be_trained_by(loss, error, message):
    with pytest.raises(error, match=message):
        check_loss(loss)


def grown(**changes):
    return [
        TRIAL,
        replace(TRIAL, size=DEEP, scheme="depth-mup", **changes),
        replace(TRIAL, size=WIDE),
    ]


class TestPreflight:
    """What is refused before any training."""

    def check(self, message, error=ValueError, trials=None, **functions):
        own = Model(**{"make": make, "batch": batch, **functions})
        with pytest.raises(error, match=message):
            preflight(own, trials or grown())

    def test_a_good_one_passes(self):
        preflight(OWN, grown())

    def test_a_factory_with_a_generator_of_its_own(self):
        generator = torch.Generator().manual_seed(0)

        def random_make(width, depth):
            model = make(width, depth)
            nn.init.normal_(model[0].weight, generator=generator)
            return model

        self.check("different models for the same seed: 0.weight differs", make=random_make)

    def test_a_factory_that_ignores_a_size(self):
        self.check("ignores its depth: at depth 4 and 8", make=lambda w, d: make(w, 4))
        self.check("ignores its width: at width 32 and 64", make=lambda w, d: make(32, d))

    def test_what_is_no_model(self):
        self.check("to give a torch.nn.Module; got int", TypeError, make=lambda w, d: w)

    def test_a_batch_that_is_none_or_goes_on(self):
        self.check(
            r"a pair, \(inputs, targets\); got Tensor", TypeError, batch=lambda g: torch.ones(2)
        )
        self.check(
            r"a pair, \(inputs, targets\); got tuple of 3", TypeError, batch=lambda g: (1, 2, 3)
        )
        self.check(
            "different data for the same generator",
            batch=lambda g: (torch.randn(4, 16), torch.arange(4)),
        )

    def test_a_loss_of_several_numbers(self):
        def each(outputs, targets):
            return cross_entropy(outputs, targets, reduction="none")

        self.check(r"a tensor of shape \[32\]", TypeError, loss=each)

    def test_settings_that_an_optimizer_does_not_have(self):
        trials = grown(settings={"beta": 0.9})
        self.check("adamw has no setting beta", trials=trials)
        self.check("has no setting nesterov", trials=grown(settings={"nesterov": True}))
        self.check("one of the optimizers .*; got 'lion'", trials=grown(optimizer="lion"))

    def test_a_model_that_the_plan_does_not_understand(self):
        self.check("residual|branch", make=lambda w, d: nn.Sequential(
            nn.Linear(16, w), *(nn.Linear(w, w) for _ in range(d)), nn.Linear(w, 8)))  # fmt: skip

    def test_a_plan_function_that_gives_none(self):
        self.check("to give a depthmup.Plan; got None", TypeError, plan=lambda m, b, t: None)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"weight_decay": 0.1}, "weight_decay is not a setting of the optimizer"),
            ({"lr": 0.1, "plan": 1}, "lr, plan is not a setting"),
            ({"beside_muon": 0.5}, "adamw has no setting beside_muon"),
            ({"betas": [0.9, 1.5]}, "Invalid beta"),
            ({"clip": -1}, "clip to be a positive norm"),
            ({"clip": 0}, "clip to be a positive norm"),
            ({"clip": "1"}, "clip to be a positive norm"),
            ({"schedule": ["cosine"]}, "schedule to be one of"),
        ],
    )
    def test_settings_that_cannot_be(self, settings, message):
        self.check(message, trials=grown(settings=settings))

    def test_a_batch_that_fills_one_buffer_again(self):
        buffer = torch.empty(4, 16)
        self.check(
            "different data for the same generator",
            batch=lambda g: (buffer.normal_(), torch.arange(4)),
        )

    def test_a_batch_without_tensors(self):
        self.check(r"torch\.as_tensor", TypeError, batch=lambda g: (np.ones((4, 16)), np.arange(4)))

    def test_masked_targets_are_the_same_where_both_are_masked(self):
        def masked(generator):
            x, y = batch(generator)
            return x, torch.where(y > 3, math.nan, y.double())

        def loss(outputs, targets):
            return (outputs.mean(-1) - targets.nan_to_num()).square().mean()

        preflight(Model(make=make, batch=masked, loss=loss), grown())

    def test_what_is_the_same_for_every_seed_is_told(self):
        x, y = batch(torch.Generator().manual_seed(0))
        with pytest.warns(UserWarning, match="the same data for every seed"):
            preflight(Model(make=make, batch=lambda g: (x, y)), grown())

        def seeded_make(width, depth):
            torch.manual_seed(0)
            return make(width, depth)

        with pytest.warns(UserWarning, match="the same model for every seed"):
            preflight(Model(make=seeded_make, batch=batch), grown())


class Batch(NamedTuple):
    inputs: torch.Tensor
    targets: torch.Tensor


def test_batches_with_names():
    named = Model(make=make, batch=lambda generator: Batch(*batch(generator)))
    preflight(named, grown())
    assert run_trial(TRIAL, named).losses == run_trial(TRIAL, OWN).losses


def test_an_own_plan_is_given_the_trial_as_it_is():
    seen = []

    def own_plan(model, base, trial):
        seen.append(trial)
        x, _ = batch(stream(0, "batches"))
        return depthmup.plan(model, base=base, scheme="depth-mup", optimizer=trial.optimizer,
                             example_inputs=x, own_init="fan_in")  # fmt: skip

    trial = replace(TRIAL, weight_decay=0.1, settings={"clip": 1.0})
    run_trial(trial, Model(make=make, batch=batch, plan=own_plan))
    assert seen == [trial]


def test_randomness_in_training_is_not_that_of_the_initial_weights():
    first = []

    class Noisy(nn.Linear):
        def forward(self, x):
            if self.training:
                first.append((torch.randn(3), random.random(), np.random.rand()))  # noqa: NPY002
            return super().forward(x)

    drawn = []

    def noisy(width, depth):
        drawn.append((torch.randn(3), random.random(), np.random.rand()))  # noqa: NPY002
        model = make(width, depth)
        model[0] = Noisy(16, width, bias=False)
        return model

    run_trial(replace(TRIAL, steps=1), Model(make=noisy, batch=batch, loss=cross_entropy))
    for ours, theirs in zip(first[-1], drawn[0], strict=True):
        assert not np.array_equal(ours, theirs)


def test_a_loss_that_turns_negative_is_told_at_once():
    steps = []

    def falling(outputs, targets):
        steps.append(1)
        return cross_entropy(outputs, targets) - (10.0 if len(steps) > 3 else 0.0)

    with pytest.raises(ValueError, match="never negative; got"):
        run_trial(TRIAL, Model(make=make, batch=batch, loss=falling))
    assert len(steps) == 4


def test_the_usual_loss_of_outputs_of_several_kinds():
    logits, targets = torch.randn(4, 8), torch.arange(4)
    expected = cross_entropy(logits, targets)
    assert torch.equal(usual_loss({"logits": logits}, targets), expected)
    with pytest.raises(TypeError, match=r"got tuple. .*: loss\(outputs, targets\)\."):
        usual_loss((logits, None), targets)


def test_every_size_of_a_compiled_model_is_compiled():
    """Torch compiles a function for eight shapes, and runs it uncompiled from then on."""
    compiled = []

    def backend(graph, inputs):
        compiled.append([tuple(x.shape) for x in inputs])
        return graph.forward

    def compiled_model(width, depth):
        return torch.compile(make(width, depth), backend=backend, dynamic=False)

    own = Model(make=compiled_model, batch=batch, version="1")
    torch.compiler.reset()
    for width in range(16, 16 + 10):
        before = len(compiled)
        run_trial(replace(TRIAL, size={"width": width, "depth": 4}, steps=2), own)
        assert len(compiled) > before, width


@pytest.mark.skipif(torch.accelerator.is_available(), reason="A device beside the CPU is seeded.")
def test_seeds_leave_no_stacks_of_calls_behind(monkeypatch):
    """PyTorch keeps them for devices to come, three for each seed."""
    kept, before = [], torch.get_rng_state()
    monkeypatch.setattr(traceback, "format_stack", lambda *rest: kept.append(rest) or [])
    with seeded(3):
        drawn = torch.rand(4)
    assert torch.equal(drawn, torch.rand(4, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(torch.get_rng_state(), before)
    assert not kept
