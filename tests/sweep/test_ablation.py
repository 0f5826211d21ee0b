"""A sweep that takes each rule away: what is asked for, what is shared, what is said.

Losses are simulated (``studies.ablation``): which rule is needed is known.
"""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import depthmup
from depthmup.records import BASE_SHAPE
from depthmup.records.ablation import Need
from depthmup.reports.ablation import ablation_lines, ablation_sentence, loss_change
from depthmup.reports.study_charts import chart_sections
from depthmup.several import gains_between
from depthmup.sweep.ablation import scheme_at
from depthmup.sweep.resolution import resolved_sweep
from depthmup.sweep.strategy import outline
from studies.ablation import World, swept

WORLD = World(seed=5, rule="readout.lr", drift=0.3, gain=0.0, own=0.002)


@pytest.fixture(scope="module")
def report():
    return swept(WORLD)


def test_the_rule_that_is_needed_is_named_and_no_other(report):
    found = {one.rule: one.verdict for one in report.study().ablations}
    assert found.pop("readout.lr") is Need.NEEDED
    assert {*found.values()} == {Need.NO_EFFECT}
    assert report.study().ablations[0].rule == "readout.lr"  # the costliest first
    along = report.study().ablations[0].along[0]
    assert along.change.low < 0.3 < along.change.high
    assert along.drift.value == pytest.approx(along.whole.value + along.change.value)


def test_only_the_largest_size_is_trained_without_a_rule(report):
    sizes = {run.size["width"] for run in report.records if "without" in run.scheme}
    assert sizes == {256}
    whole = len([run for run in report.records if run.scheme == "depth-mup"])
    assert len(report.records) < 2.5 * whole


def test_verdicts_and_certificates_are_the_whole_schemes(report):
    assert [t.scheme for t in report.study().headline.transfers] == ["depth-mup"]
    assert report.study().gains == ()
    # Gains of single rules can still be asked for.
    assert report.gain("depth-mup-without-readout.lr", over="depth-mup").tuned.known


def test_reports_side_by_side_compare_whole_schemes(report):
    other = swept(replace(WORLD, seed=6))
    assert report.schemes == ("depth-mup",)
    (gain,) = gains_between({"old": report, "new": other}, "old")
    assert (gain.of, gain.over) == ("new", "old")


def test_the_same_losses_as_a_table_say_the_same(report):
    fitted = depthmup.fit(report.to_pandas("runs"))
    for one, other in zip(fitted.study().ablations, report.study().ablations, strict=True):
        assert (one.rule, one.verdict, one.over) == (other.rule, other.verdict, other.over)
        numbers = [
            [getattr(along, name) for name in ("whole", "drift", "change", "tuned", "as_trained")]
            for along in (*one.along, *other.along)
        ]
        values, same = [[(e.value, e.low, e.high) for e in row] for row in numbers]
        assert values == [pytest.approx(ends, abs=1e-12) for ends in same]


def test_rules_are_added_to_standard_practice():
    """What drifts when added alone hurts."""

    def train(trial):
        loss = WORLD.loss(trial.size["width"], trial.scheme, trial.lr, trial.seed)
        return [loss] * trial.steps

    design = depthmup.Design(
        base={"width": 32}, width=(32, 64, 128, 256), schemes="depth-mup", optimizers="adam",
        ablate=("add", "readout.lr", "hidden.lr"), steps=1,
    )  # fmt: skip
    found = depthmup.transfer(depthmup.Model(train=train, version="1"), design)
    verdicts = {one.rule: (one.verdict, one.over) for one in found.study().ablations}
    assert verdicts["readout.lr"] == (Need.HARMFUL, "sp")
    assert verdicts["hidden.lr"] == (Need.NO_EFFECT, "sp")
    assert ablation_sentence(found.study()) == (
        "Hurts alone: readout rate. Without effect: hidden rate."
    )


class Block(nn.Linear):
    def forward(self, x):
        return x + super().forward(x).relu()


def make(width, depth):
    blocks = (Block(width, width) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *blocks, nn.Linear(width, 4))


def batch(generator):
    x = torch.randn(32, 8, generator=generator)
    return x, x[:, :4].argmax(-1)


MODEL = depthmup.Model(make, batch=batch, version="1")
DESIGN = depthmup.Design(
    base={"width": 16, "depth": 2}, width=(16, 32), depth=(2, 4), steps=10, seeds=2,
    schemes="depth-mup", ablate=True,
)  # fmt: skip


def test_rules_that_act_are_those_of_the_plans():
    sweep, _ = resolved_sweep(MODEL, DESIGN)
    assert sweep.model.acting == {
        "input.epsilon": ("width",),
        "hidden.lr": ("width",),
        "hidden.epsilon": ("width",),
        "readout.start": ("width",),
        "readout.lr": ("width",),
        "vector.epsilon": ("width",),
        "branch.multiplier": ("depth",),
        "branch.lr": ("depth",),
        "branch.epsilon": ("depth",),
    }
    assert sweep.design.changed["depth-mup-without-branch.lr"] == "branch.lr"
    decayed, _ = resolved_sweep(MODEL, replace(DESIGN, weight_decays=(0.1,)))
    assert {*decayed.model.acting} - {*sweep.model.acting} == {
        "hidden.decay", "readout.decay", "branch.decay",
    }  # fmt: skip


def test_runs_that_do_without_a_rule_that_does_not_act_are_the_wholes():
    sweep, _ = resolved_sweep(MODEL, DESIGN)
    deep = {"width": 16, "depth": 4}
    less = sweep.design.variant("depth-mup-without-hidden.lr")
    whole = sweep.design.variants[0]
    assert sweep.run(less, deep, -8.0, 0) == sweep.run(whole, deep, -8.0, 0)
    assert sweep.run(less, {"width": 32, "depth": 2}, -8.0, 0).scheme == less.name
    assert sweep.run(less, sweep.design.base, -8.0, 0).scheme == BASE_SHAPE
    assert len(outline(sweep)) == 3 + len(sweep.model.acting)
    added = "depth-mup-only-hidden.lr"
    assert scheme_at(added, sweep.model.acting, deep, sweep.design.base) == "sp"


def test_a_store_holds_it_and_the_same_call_trains_nothing(tmp_path):
    design = replace(DESIGN, ablate=("hidden.lr",), depth=(2,), arms={"width": (16, 32)})
    first = depthmup.transfer(MODEL, design, out=tmp_path)
    again = depthmup.transfer(MODEL, design, out=tmp_path)
    loaded = depthmup.load(tmp_path)
    assert first.study().ablations == again.study().ablations == loaded.study().ablations
    assert len(first.records) == len(again.records)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [one["rule"] for one in summary["ablations"]] == ["hidden.lr"]
    assert ablation_sentence(first.study()) in (tmp_path / "report.html").read_text()
    rows = loaded.to_pandas("ablations")
    assert rows[["rule", "axis", "width"]].values.tolist() == [["hidden.lr", "width", 32]]


def test_charts_along_every_axis_have_names_of_their_own():
    found = depthmup.transfer(MODEL, replace(DESIGN, ablate=("hidden.lr", "branch.lr")))
    axes = {along.axis for one in found.study().ablations for along in one.along}
    assert axes == {"width", "depth"}
    (section,) = (s for s in chart_sections(found.study()) if s.title == "Which rules are needed?")
    assert len({plot.name for plot in section.plots}) == len(section.plots) > 0


REFUSED = [
    ({"ablate": "hiden.lr"}, "Did you mean hidden.lr"),
    ({"ablate": "hidden.decay"}, "without weight decay: input.epsilon, .*got hidden.decay"),
    ({"ablate": "attention.multiplier"}, "got attention.multiplier, which changes nothing"),
    ({"schemes": "sp"}, "SP has none"),
    ({"schemes": ("mup", "depth-mup")}, "one scheme, .*got 2 variants"),
    ({"multipliers": (1, 2)}, "got 2 variants"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_refused_before_any_training(wrong, message, tmp_path):
    design = replace(DESIGN, **wrong)
    with pytest.raises(ValueError, match=message):
        depthmup.transfer(MODEL, design, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("width", "last"), [(200, "best loss"), (80, "handed on")])
def test_a_table_of_rules_fits_a_terminal(report, width, last):
    lines = ablation_lines(report.study(), width)
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= width
    assert last in table[0]
    assert all(one.verdict.value in "\n".join(table) for one in report.study().ablations)


def test_losses_in_words():
    assert [loss_change(gain) for gain in (0.11, -0.02, 0.0, -9.0, float("nan"))] == [
        "−10%", "+2.0%", "0%", "diverges", "–",
    ]  # fmt: skip
