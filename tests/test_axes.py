"""Custom models along any axis: batch, duration, and names that the library does not know."""

import json
from dataclasses import replace
from math import log2

import numpy as np
import pytest
import torch
from mixtures import Layer
from own_models import Branch, make
from pytest import approx
from torch import nn

import depthmup
from depthmup.model import Model, batches_at, network_at, resolved
from depthmup.planning import NotUnderstood
from depthmup.records import Place, Trial
from depthmup.records.certificate import compare
from depthmup.sweep import Custom, Store, Sweep

RATES = [2.0**-9, 2.0**-7, 2.0**-5]
ASKED = {"lrs": RATES, "schemes": "depth-mup", "optimizers": "adamw", "seeds": 2}


class Mixture(nn.Module):
    """The mean of several experts, each a matrix."""

    def __init__(self, width, experts):
        super().__init__()
        self.experts = nn.ModuleList(Branch(width, width, bias=False) for _ in range(experts))

    def forward(self, x):
        return x + sum(expert(x) for expert in self.experts) / len(self.experts)


def make_mixture(width, depth, experts):
    return nn.Sequential(
        nn.Linear(16, width), *(Mixture(width, experts) for _ in range(depth)), nn.Linear(width, 8)
    )


def batch(generator, batch=32):
    x = torch.randn(batch, 16, generator=generator)
    return x, x[:, :8].argmax(-1)


MIXTURE = Model(make_mixture, batch=batch, version="1")
OWN = Model(make, batch=batch, version="1")


def test_an_axis_that_is_not_known_is_measured_like_any_other(tmp_path):
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "experts": 2}, experts=(2, 4, 8), steps=10, **ASKED
    )
    report = depthmup.transfer(MIXTURE, design, out=tmp_path, target={"experts": 32})
    assert design.axes == ("experts",)
    assert [o.size["experts"] for o in report.finding(axis="experts").optima] == [2, 4, 8]
    assert "per doubling of experts" in report.finding().drift.unit
    assert {run.size["experts"] for run in report.records} == {2, 4, 8}
    (certificate,) = report.certificates
    assert certificate.target == {"width": 8, "depth": 2, "experts": 32}
    page = (tmp_path / "report.html").read_text()
    assert "experts" in page
    with Store(tmp_path / "results.sqlite") as store:
        again = depthmup.report.load_report(store)
    assert repr(again.finding()) == repr(report.finding())  # NaN is not equal to itself
    assert Trial.from_json(next(iter(report.records)).to_json()) in report.records


def routed(width, depth, experts, share, expert_width):
    """``share`` of every four experts are active."""
    active = experts * share // 4
    layers = (Layer(width, experts, active, expert_width, shared=False) for _ in range(depth))
    return nn.Sequential(nn.Linear(16, width), *layers, nn.Linear(width, 8))


ROUTED = Model(routed, batch=batch, version="1")
ROUTED_BASE = {"width": 8, "depth": 1, "experts": 4, "share": 2, "expert_width": 8}


def test_experts_and_their_width_are_arms_under_the_rule_for_them(tmp_path):
    design = depthmup.Design(
        base=ROUTED_BASE, experts=(4, 8), expert_width=(8, 16), steps=4,
        **{**ASKED, "schemes": "completep+moe", "seeds": 1},
    )  # fmt: skip
    report = depthmup.transfer(ROUTED, design, out=tmp_path)
    assert design.axes == ("experts", "expert_width")
    for axis, values in (("experts", [4, 8]), ("expert_width", [8, 16])):
        assert [o.size[axis] for o in report.finding(axis=axis).optima] == values
    # What has the base's size is the same under any scheme.
    assert {run.scheme for run in report.records} == {"completep+moe", "any"}


def test_active_experts_alone_are_an_arm_of_a_dense_scheme_and_of_no_rule_for_experts(tmp_path):
    asked = {**ASKED, "seeds": 1, "steps": 4}
    design = depthmup.Design(base=ROUTED_BASE, share=(2, 4), **{**asked, "schemes": "completep"})
    report = depthmup.transfer(ROUTED, design, out=tmp_path / "dense")
    assert [o.size["share"] for o in report.finding(axis="share").optima] == [2, 4]
    design = replace(design, schemes=("completep+moe",))
    with pytest.raises(NotUnderstood, match="share of experts that are active, K/E"):
        depthmup.transfer(ROUTED, design, out=tmp_path / "held")
    assert not (tmp_path / "held" / "results.sqlite").exists()  # refused before training


def test_batch_and_steps_are_axes():
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "batch": 16, "steps": 10},
        batch=(16, 64), steps=(10, 20), **ASKED,
    )  # fmt: skip
    seen = set()

    def watched(generator, size):
        seen.add(size)
        return batch(generator, size)

    report = depthmup.transfer(Model(make, batch=watched, version="1"), design)
    assert design.axes == ("batch", "steps")
    assert seen == {16, 64}
    frame = report.to_pandas("trials")
    assert {*zip(frame["batch"], frame["steps"], strict=True)} == {
        (16, 10),
        (16, 20),
        (64, 10),
    }
    lengths = {(run.size["batch"], len(record.losses)) for run, record in report.records.items()}
    assert lengths == {(16, 10), (16, 20), (64, 10)}
    # Judged by the last fifth of each run, whatever its length.
    values = report.losses(axis="steps").values
    base, longer = (report.sweep.curve(design.variant(), size, -7.0)[1]
                    for size in design.sizes_along("steps"))  # fmt: skip
    assert values[0, 1, 1] == approx(np.mean(report.records[base].losses[8:10]))
    assert values[1, 1, 1] == approx(np.mean(report.records[longer].losses[16:20]))


def test_a_longer_run_has_its_schedule_stretched():
    settings = {"schedule": "linear"}
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "steps": 4}, steps=(4, 8), settings=settings, **ASKED
    )
    report = depthmup.transfer(OWN, design)
    short, long = (report.sweep.curve(design.variant(), size, -5.0)[0]
                   for size in design.sizes_along("steps"))  # fmt: skip
    # The same batches, the same first rates within a step, other rates from then on.
    ones, others = (list(report.records[run].losses) for run in (short, long))
    assert ones[0] == others[0]
    assert ones[1:] != others[1:4]


def test_at_held_tokens_a_larger_batch_takes_fewer_steps():
    design = depthmup.Design(base={"batch": 16, "tokens": 320}, batch=(16, 32), tokens=(160, 320))
    assert [design.steps_at(size) for size in design.all_sizes] == [20, 10, 10]
    assert design.steps == 20
    again = depthmup.Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert again == design


def test_steps_as_an_axis_keep_the_keys_of_runs():
    design = depthmup.Design(base={"width": 8, "depth": 2}, steps=10, depth=(2, 4), **ASKED)
    model = Custom(name="make", code="1")
    first = depthmup.sweep.Sweep(model=model, design=design)
    described = json.loads(first.runs[0].to_json())
    assert described == {
        "model": "make", "code": "1", "size": {"width": 8, "depth": 2},
        "base": {"width": 8, "depth": 2}, "scheme": "any", "optimizer": "adamw", "lr": 2.0**-9,
        "multiplier": 1.0, "weight_decay": 0.0, "steps": 10, "seed": 0, "settings": {},
        "numerics": 2,
    }  # fmt: skip
    # The same runs, so that a sweep in depth is a part of one in both.
    both = depthmup.Design(
        base={"width": 8, "depth": 2, "steps": 10}, depth=(2, 4), steps=(10, 20),
        **ASKED,
    )  # fmt: skip
    runs = depthmup.sweep.Sweep(model=model, design=both).runs
    assert {run.key for run in first.runs} < {run.key for run in runs}


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda width, depth: (width, depth), (8, 2)),
        (lambda depth, width: (width, depth), (8, 2)),
        (lambda n, layers: (n, layers), (8, 2)),
        (lambda width, layers: (width, layers), (8, 2)),
        (lambda *size: size, (8, 2)),
        (lambda **size: size, {"width": 8, "depth": 2, "experts": 4}),
        (lambda width, depth, *, experts: (width, depth, experts), (8, 2, 4)),
        (lambda n, layers, experts: (n, layers, experts), (8, 2, 4)),
        (lambda width, depth, **more: (width, depth, more), (8, 2, {"experts": 4})),
        (lambda depth: depth, 2),
    ],
)
def test_a_factory_is_given_the_axes_that_it_takes(factory, expected):
    own = resolved(Model(factory, batch=lambda generator: None, version="1"))
    assert network_at(own, {"width": 8, "depth": 2, "experts": 4, "batch": 16}) == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda generator: (), ()),
        (lambda generator, size: size, 32),
        (lambda generator, batch_size: batch_size, 32),
        (lambda generator, batch, context: (batch, context), (32, 128)),
        (lambda generator, *, batch=1: batch, 32),
        (lambda generator, width=3: width, 3),  # its data's own
    ],
)
def test_a_batch_is_given_the_axes_that_it_takes(function, expected):
    own = resolved(Model(make, batch=function, version="1"))
    drawn = batches_at(own, {"width": 8, "depth": 2, "batch": 32, "context": 128})
    assert drawn(None) == expected


def of(**base):
    return depthmup.Design(base=base, depth=(2, 4), steps=4, **ASKED)


@pytest.mark.parametrize(
    ("model", "design", "message"),
    [
        (OWN, of(width=8, depth=2, experts=2), r"parameter experts\. Write make\(width, depth, "),
        (MIXTURE, of(width=8, depth=2), "argument of make_mixture; the base has no 'experts'"),
        (
            Model(make, batch=lambda generator: batch(generator), version="1"),
            of(width=8, depth=2, batch=32),
            r"parameter batch\. Write <lambda>\(generator, batch\)",
        ),
        (
            Model(make, batch=lambda generator, size: batch(generator), version="1"),
            replace(of(width=8, depth=2, batch=32), arms={"batch": (32, 64)}),
            "batch function ignores the batch",
        ),
        (
            Model(make, batch=lambda generator, size: batch(generator, min(size, 48)),
                  version="1"),
            replace(of(width=8, depth=2, batch=32), arms={"batch": (32, 64, 128)}),
            "Expected batches of 128 to be 4 times as large",
        ),
        (
            Model(lambda width, depth, heads: make(width, depth), batch=batch, version="1"),
            replace(of(width=8, depth=2, heads=2), arms={"heads": (2, 4)}),
            "factory ignores its heads",
        ),
    ],
)  # fmt: skip
def test_axes_that_a_model_does_not_take_are_refused_before_training(model, design, message):
    with pytest.raises(ValueError, match=message):
        depthmup.transfer(model, design, out="/nonexistent/never/written")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"base": {"batch": 32, "tokens": 320}, "batch": (32, 64, 96)}, "multiple of the batch"),
        ({"base": {"batch": 32, "tokens": 100}}, "multiple of the batch"),
        ({"base": {"batch": 32, "tokens": 320, "steps": 10}}, "two of batch, steps and tokens"),
        ({"base": {"depth": 2, "tokens": 320}}, "name the batch beside the tokens"),
        ({"base": {"depth": 2, "steps": 10}, "steps": 20}, "those of the base, 10"),
        ({"base": {"depth": 2}, "steps": (10, 20)}, "where the axis steps starts"),
        ({"base": {"depth": 2, "steps": 10}, "steps": (20, 40)}, "steps to contain the base's"),
    ],
)
def test_designs_whose_question_cannot_be_asked(asked, message):
    with pytest.raises(ValueError, match=message):
        depthmup.Design(**asked)


def test_what_varies_width_and_depth_alone_says_which_argument_it_cannot_give():
    def sized(generator, batch):
        return torch.randn(batch, 16, generator=generator), torch.zeros(batch, dtype=torch.long)

    model = Model(make, batch=sized, version="1")
    with pytest.raises(ValueError, match=r"has no 'batch'.*or give it a default"):
        depthmup.check(model, scheme="sp", widths=(8, 16, 32), depths=(2,))


def test_the_built_in_networks_have_batch_and_duration(tmp_path):
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "batch": 16, "tokens": 160}, batch=(16, 32),
        tokens=(160, 320), schemes="depth-mup", optimizers="adamw", run=("none", "sde"),
        lrs=RATES, seeds=2,
    )  # fmt: skip
    report = depthmup.transfer(depthmup.BuiltIn(), design, out=tmp_path)
    shapes = {(cell.batch_size, cell.steps) for cell in report.records}
    assert shapes == {(16, 10), (32, 5), (16, 20)}
    assert "the tokens are held" in report.summary()
    page = (tmp_path / "report.html").read_text()
    assert "the tokens are held" in page
    # Batches of 32 take 5 steps, and runs of twice the tokens 20.
    assert "over steps 8–10 of the base’s run, and the same part of every other." in page
    assert {study.axis for study in report.studies} == {"batch", "tokens"}
    # An older run of the same batch and steps is the same run.
    plain = replace(design, base={"width": 8, "depth": 2}, arms={"depth": (2, 4)}, steps=10)
    older = depthmup.transfer(depthmup.BuiltIn(batch_size=16), replace(plain, run=None))
    assert {cell.key for cell in older.records} & {cell.key for cell in report.records}
    with pytest.raises(ValueError, match=r"base has 16, and the network 8"):
        depthmup.transfer(depthmup.BuiltIn(batch_size=8), design)
    with pytest.raises(ValueError, match="width, depth, batch, and steps or tokens"):
        depthmup.transfer(depthmup.BuiltIn(), depthmup.Design(base={"depth": 2, "experts": 2}))


def test_a_function_that_trains_is_given_the_whole_size():
    def train(trial):
        octaves = log2(trial.lr) + 7 + 0.5 * log2(trial.ratio("batch"))
        return [1 + 0.1 * octaves**2 + 0.01 * trial.seed] * trial.steps

    design = depthmup.Design(
        base={"batch": 32, "tokens": 640}, batch=(32, 64, 128), seeds=2, schemes="sp",
        lrs=[2.0 ** (k / 2) for k in range(-22, -7)],
    )  # fmt: skip
    report = depthmup.transfer(Model(train=train, version="1"), design)
    assert report.drift.value == approx(-0.5, abs=0.02)
    assert {run.steps for run in report.records} == {20, 10, 5}


@pytest.mark.parametrize("steps", [1, 20])
def test_a_final_loss_alone_is_no_loss_before_training(steps):
    """Deeper networks that end above the shallow one's mean over rates would count as failed."""

    def train(trial):
        loss = 1 + 0.02 * (log2(trial.lr) + 8) ** 2 + 0.4 * log2(trial.size["depth"])
        return [loss + 0.001 * trial.seed] * trial.steps

    design = depthmup.Design(
        base={"width": 64, "depth": 4}, depth=(4, 8, 16, 32), seeds=2, schemes="sp",
        lrs=[2.0**k for k in range(-12, -3)], steps=steps,
    )  # fmt: skip
    model = Model(train=train, version="1")
    report = depthmup.transfer(model, design, target={"depth": 64})
    optima = report.study().headline.transfers[0].optima
    assert [optimum.place for optimum in optima] == [Place.INTERIOR] * 4
    assert report.drift.value == approx(0.0, abs=0.02)
    # Nor are the final losses at the target and at the base those before training.
    assert not any("Before training" in r.reason for r in report.certificates[0].refusals)


def test_rates_are_found_along_the_batch_as_along_any_axis():
    def train(trial):
        octaves = log2(trial.lr) + 7 + 0.5 * log2(trial.ratio("batch"))
        # Falls within a run, so that a window of another fraction would have another loss.
        falling = 2 - np.arange(trial.steps) / trial.steps
        return list(falling + 0.1 * octaves**2 + 0.01 * trial.seed)

    design = depthmup.Design(
        base={"batch": 32, "tokens": 6400}, batch=(32, 64, 128, 256), schemes="sp",
        lrs=depthmup.Auto(start=2.0**-9),
    )  # fmt: skip
    report = depthmup.transfer(Model(train=train, version="1"), design)
    assert report.drift.value == approx(-0.5, abs=0.02)
    assert report.verdict is depthmup.records.Verdict.DRIFTS


def test_a_plan_of_ones_own_is_given_the_whole_size():
    seen = set()

    def plan(model, base, trial):
        seen.add((trial.size["steps"], trial.base["steps"], trial.steps))
        return depthmup.plan(model, base=base, scheme=trial.scheme, optimizer=trial.optimizer,
                             example_inputs=torch.zeros(2, 16))  # fmt: skip

    design = depthmup.Design(base={"width": 8, "depth": 2, "steps": 4}, steps=(4, 8), **ASKED)
    depthmup.transfer(Model(make, batch=batch, plan=plan, version="1"), design)
    assert seen == {(4, 4, 4), (8, 4, 8)}


def test_a_head_count_changes_no_shape_and_is_an_axis_all_the_same():
    class Heads(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)

        def forward(self, x):
            return x + self.attention(x, x, x, need_weights=False)[0]

    def attending(width, depth, heads):
        return nn.Sequential(
            nn.Linear(16, width), *(Heads(width, heads) for _ in range(depth)), nn.Linear(width, 8)
        )

    def sequences(generator):
        x = torch.randn(4, 3, 16, generator=generator)
        return x, x[..., :8]

    model = Model(attending, batch=sequences, loss=nn.functional.mse_loss, version="1")
    design = depthmup.Design(base={"width": 8, "depth": 1, "heads": 1}, heads=(1, 4), steps=5,
                             **ASKED)  # fmt: skip
    report = depthmup.transfer(model, design)
    assert {run.size["heads"] for run in report.records} == {1, 4}


def test_batches_that_do_not_fit_into_memory_are_refused_before_training(monkeypatch):
    from depthmup.sweep import cost

    monkeypatch.setattr(cost, "available", lambda device="cpu": 600 * 2**20)
    design = depthmup.Design(base={"width": 64, "depth": 8, "batch": 2}, steps=4, **ASKED)
    with pytest.raises(ValueError, match=r"largest model has width 64, depth 8 and batch 200000"):
        depthmup.transfer(OWN, replace(design, arms={"batch": (2, 200_000)}))
    # One that no machine has is refused without being drawn.
    with pytest.raises(ValueError, match="and batch 20T"):
        depthmup.transfer(OWN, replace(design, arms={"batch": (2, 20_000_000_000_000)}))


def test_a_stack_holds_the_memory_of_all_its_members(monkeypatch):
    """Of three rates and two seeds: six models, of which one and a half would fit."""
    from depthmup.sweep import cost
    from depthmup.sweep.trainer import Trainer
    from depthmup.training import Backend
    from depthmup.training.forecast import bytes_of_trial

    design = depthmup.Design(base={"width": 64, "depth": 8, "batch": 2}, steps=4, **ASKED)
    trials = Sweep(model=Custom(name=OWN.name, code=OWN.code), design=design).runs
    of_one = bytes_of_trial(OWN, trials[0])
    monkeypatch.setattr(cost, "available", lambda device="cpu": cost.PROCESS + 1.5 * of_one)
    Trainer(model=OWN).check(trials)
    with pytest.raises(ValueError, match=r"and 6 of them train as one stack\. Train them one by"):
        Trainer(model=OWN, backend=Backend(engine="stacked")).check(trials)


def test_memory_counts_what_the_backward_pass_keeps():
    """Of a chain of matrices: the input of every product, and both sides of the loss."""
    from depthmup.training.forecast import WEIGHTS, bytes_of_trial

    def plain(width, depth):
        return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth)))

    def squares(generator, batch):
        return torch.randn(batch, 16, generator=generator), torch.zeros(batch, 16)

    model = Model(plain, batch=squares, loss=nn.functional.mse_loss, version="1")
    trial = Trial(
        model="plain", code="1", size={"width": 16, "depth": 3, "batch": 32}, base={}, scheme="sp",
        optimizer="adamw", lr=0.1, steps=1, seed=0,
    )  # fmt: skip
    weights, inputs, both_of_the_loss = 3 * 16 * 16, 3 * 32 * 16, 2 * 32 * 16
    assert bytes_of_trial(model, trial) == 4 * (WEIGHTS * weights + inputs + both_of_the_loss)


def test_the_forecast_of_time_knows_batch_and_steps(monkeypatch):
    """Two timed steps give what a step costs by itself and what an example costs."""
    from depthmup.sweep.trainer import Trainer
    from depthmup.training import Backend, forecast

    def seconds(*stack):
        return 0.002 + 1e-5 * sum(trial.size["batch"] for trial in stack)

    timed = []

    def step(model, stack):
        timed.append(stack[0].size["batch"])
        return 0.0, seconds(*stack)

    monkeypatch.setattr(forecast, "_step", step)
    design = depthmup.Design(
        base={"width": 8, "depth": 2, "batch": 8, "steps": 10}, batch=(8, 32, 512),
        steps=(10, 1000), **ASKED,
    )  # fmt: skip
    trials = Sweep(model=Custom(name=OWN.name, code=OWN.code), design=design).runs
    expected = sum(trial.steps * seconds(trial) for trial in trials)
    assert Trainer(model=OWN).seconds(trials) == approx(expected)
    # Twice what is smallest, for what building takes; then how examples and sizes count.
    assert timed == [8, 8, 32, 512]
    # Networks that are stacked share what a step costs by itself.
    stacked = Trainer(model=OWN, backend=Backend(engine="stacked"))
    stacks = [job.runs for job in stacked.jobs(trials)]
    assert max(map(len, stacks)) > 1
    expected = sum(stack[0].steps * seconds(*stack) for stack in stacks)
    assert stacked.seconds(trials) == approx(expected)


@pytest.mark.parametrize("name", ["loss", "seeds", "lrs", "window"])
def test_names_that_stand_for_something_else_are_no_axes(name):
    with pytest.raises(ValueError, match=f"another name for the axis '{name}'"):
        depthmup.Design(base={"depth": 2, name: 4}, depth=(2, 4))


def test_a_corner_for_each_pair_of_axes_along_which_the_target_grows():
    design = depthmup.Design(
        base={"width": 16, "depth": 4, "batch": 8, "steps": 50},
        width=(16, 32, 64), depth=(4, 8, 16), batch=(8, 16, 32),
    )  # fmt: skip
    target = {"width": 256, "depth": 64, "batch": 128, "steps": 50}
    corners = [
        {axis: n for axis, n in size.items() if n != design.base[axis]}
        for size in design.toward(target).sizes
    ]
    assert corners == [
        {"depth": 16, "width": 32}, {"depth": 16, "batch": 16}, {"width": 64, "batch": 16}
    ]  # fmt: skip
    # A pair that the design has a corner of already gets no other.
    some = replace(design, sizes=[{**design.base, "depth": 8, "batch": 16}])
    assert len(some.toward(target).sizes) == 3
    assert design.toward({**target, "width": 16, "batch": 8}) == design


def law(size):
    """Minus a half along the batch, plus a tenth along depth, and an interaction of the two."""
    batch, depth = log2(size["batch"] / 32), log2(size["depth"] / 4)
    return -7 + 0.5 * batch + 0.1 * depth - 0.08 * batch * depth


def obeying(trial):
    octaves = log2(trial.lr) - law(trial.size)
    noise = np.random.default_rng([trial.seed, *trial.size.values()]).normal(0, 0.002)
    return [(2 - 0.1 * log2(trial.size["depth"]) + 0.1 * octaves**2) * np.exp(noise)] * trial.steps


def test_one_joint_law_of_depth_batch_and_duration_holds_at_the_target():
    design = depthmup.Design(
        base={"depth": 4, "batch": 32, "tokens": 640},
        depth=(4, 8, 16, 32), batch=(16, 32, 64, 128), tokens=(320, 640, 1280), schemes="sp",
        lrs=[2.0 ** (k / 2) for k in range(-22, -6)],
    )  # fmt: skip
    target = {"depth": 128, "batch": 256, "tokens": 5120}
    report = depthmup.transfer(Model(train=obeying, version="1"), design, target=target)
    (certificate,) = report.certificates
    assert len(report.sweep.design.sizes) == 3
    assert certificate.issued
    truth = law(certificate.target)
    assert certificate.predicted.low < truth < certificate.predicted.high
    # Without the interaction the law would be 5 octaves x 3 octaves x 0.08 = 1.2 higher.
    assert certificate.predicted.value == approx(truth, abs=0.4)
    # The report says which drift depends on what, and which does not.
    along_depth = report.finding(axis="depth")
    assert [*along_depth.interactions] == ["batch", "tokens"]
    batch, tokens = along_depth.interactions.values()
    assert batch.value == approx(-0.08, abs=0.02)
    assert batch.high < 0 < tokens.high
    assert report.finding(axis="batch").interactions["depth"].value == approx(batch.value)
    assert (
        "The drift with depth depends on batch: per doubling of batch it changes by −"
        in along_depth.why
    )
    assert "That the drift with depth depends on tokens was not seen" in report.summary()
    first = report.to_dict()["schemes"][0]
    assert first["interactions"]["batch"]["estimate"] == batch.value
    assert "per doubling of depth and of batch" in first["interactions"]["batch"]["unit"]


def test_a_target_in_a_direction_of_one_size_is_refused_before_training():
    design = depthmup.Design(base={"width": 8, "depth": 2, "batch": 8}, depth=(2, 4), **ASKED)
    with pytest.raises(ValueError, match=r"batch 64, and the design has batch 8 alone"):
        depthmup.transfer(OWN, design, target={"depth": 8, "batch": 64}, out="/nonexistent/never")
    design = depthmup.Design(base={"batch": 8, "tokens": 64}, batch=(8, 16), **ASKED)
    with pytest.raises(ValueError, match="multiple of the batch"):
        depthmup.transfer(OWN, design, target={"batch": 48})


def worse_in_larger_batches(trial):
    octaves = log2(trial.lr) + 7
    noise = np.random.default_rng([trial.seed, trial.size["batch"]]).normal(0, 0.002)
    worse = 0.2 * log2(trial.size["batch"] / 8)
    return [4.0] + [(1 + worse + 0.1 * octaves**2) * np.exp(noise)] * (trial.steps - 1)


def certificates_of_larger_batches(**asked):
    design = depthmup.Design(
        base={"batch": 8, "tokens": 640}, batch=(8, 16, 32, 64), schemes="sp",
        lrs=[2.0 ** (k / 2) for k in range(-20, -9)], **asked,
    )  # fmt: skip
    model = Model(train=worse_in_larger_batches, version="1")
    return depthmup.transfer(model, design, target={"batch": 128}).certificates


def test_larger_batches_may_train_worse_and_no_scheme_has_broken_down():
    """At held tokens fewer steps are taken; a certificate is about the best rate there."""
    (certificate,) = certificates_of_larger_batches()
    assert certificate.refusals == ()
    assert certificate.measure == "mean training loss over the last 20% of every run"


def test_certificates_under_two_rules_are_not_compared_without_a_word():
    none, lmo = certificates_of_larger_batches(run=("none", "lmo"))
    first, second, letters = compare(none, lmo).questions
    assert first.startswith("The first: Learning rate, weight decay, epsilon and betas are")
    assert second.startswith('The second: The run follows "LMO theory" (arXiv 2603.15958)')
    assert letters == "The second: As multiples of the base's: b is the batch and d the tokens."
    assert compare(none, none).questions == ()
