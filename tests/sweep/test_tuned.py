"""What is tuned is a choice: designs, runs and their keys, stores, words, and what is refused."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from pytest import approx

import depthmup
from depthmup.cli.main import main
from depthmup.records import LEARNING_RATE, TUNED, Certificate, Place, Tuned, tuned, worded
from depthmup.records.certificate import compare
from depthmup.reports.certificate import certificate_text
from depthmup.rules import Ratios
from depthmup.sweep import BuiltIn, Custom, Design, Store, Sweep
from depthmup.sweep.built_in import cell_of
from depthmup.sweep.hyperparameters import hyperparameters, law_of
from depthmup.tables import Reading, next_runs

BY_LAW = [what for what in TUNED if what.law]  # not what a script alone has
OTHERS = [what for what in BY_LAW if what is not LEARNING_RATE]
SIZES = {"base": {"width": 16, "depth": 2}, "depth": (2, 4)}


def design(**asked):
    usual = {"schemes": "completep", "optimizers": "adamw", "steps": 20, "seeds": 1}
    return Design(**{**SIZES, **usual, **asked})


def value_of(trial, what):
    """The value at the base that a trial was given."""
    match what.key:
        case "init_scale":
            return trial.settings.get("init_scale", 1.0)
        case "one_minus_beta2":
            return 1 - trial.settings["betas"][1]
    return getattr(trial, what.key)


class Valley:
    """A training function whose loss depends on what is tuned alone: the best moves with depth."""

    def __init__(self, what, *, best, drift=0.0):
        self.what, self.best, self.drift = what, best, drift

    def __call__(self, trial):
        best = self.best + self.drift * math.log2(trial.depth / 2)
        octaves = math.log2(value_of(trial, self.what)) - best
        late = math.exp(0.05 * octaves**2 + 0.002 * trial.seed)
        return [20.0, *[late] * (trial.steps - 1)]


def measure(what, *, best, drift=0.0, **asked):
    valley = Valley(what, best=best, drift=drift)
    usual = {
        "base": {"width": 16, "depth": 2}, "depth": (2, 4, 8), "schemes": "completep",
        "optimizers": "adamw", "steps": 20, "seeds": 4, "tune": what, "lrs": 0.01,
    }  # fmt: skip
    called = {name: asked.pop(name) for name in ("out", "target") if name in asked}
    model = depthmup.Model(train=valley, version="1")
    return depthmup.transfer(model, Design(**{**usual, **asked}), on=1, **called)


# Keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (BuiltIn(), "378b0a62dc342d143cd51dba42e24f79"),
        (Custom(name="make", code="1f0c"), "d37eaad8793565080f44932eb7d63303"),
    ],
)
def test_runs_that_tune_the_learning_rate_have_the_keys_that_they_had(model, key):
    sweep = Sweep(
        model=model, design=design(lrs=[2.0**-6, 2.0**-5], weight_decays=0.1, multipliers=2.0)
    )
    assert sweep.runs[-1].key == key
    assert not {"tune", "values"} & set(sweep.to_dict()["design"])
    assert Design.from_dict(sweep.design.to_dict()) == sweep.design


@pytest.mark.parametrize("what", OTHERS, ids=lambda what: what.key)
def test_a_design_is_read_back(what):
    for values in ((0.25, 0.5), depthmup.Auto(start=0.125)):
        asked = design(tune=what.key, lrs=0.01, values=values)
        again = Design.from_dict(json.loads(json.dumps(asked.to_dict())))
        assert again == asked
        assert again.tune == what


@pytest.mark.parametrize("model", [BuiltIn(), Custom(name="make", code="1f0c")])
def test_runs_that_would_train_identically_are_one(model):
    def runs(**asked):
        return Sweep(model=model, design=design(**asked)).runs

    usual = runs(lrs=[2.0**-6])
    assert runs(tune="multiplier", lrs=2.0**-6, values=[1.0]) == usual
    assert runs(tune="init_scale", lrs=2.0**-6, values=[1.0]) == usual
    decayed = runs(lrs=[2.0**-6], weight_decays=0.5)
    assert runs(tune="weight_decay", lrs=2.0**-6, values=[0.5]) == decayed != usual
    averaged = runs(lrs=[2.0**-6], settings={"betas": [0.8, 1 - 2.0**-6]})
    tuned_average = runs(
        tune="one_minus_beta2", lrs=2.0**-6, values=[2.0**-6], settings={"betas": [0.8, 0.999]}
    )
    assert tuned_average == averaged != usual


# Laws ------------------------------------------------------------------------------------------

QUANTITIES = {
    "lr": lambda cell: cell.optimizer.lr,
    "weight_decay": lambda cell: cell.optimizer.weight_decay,
    "multiplier": lambda cell: cell.network.multiplier,
    "init_scale": lambda cell: cell.network.hidden_std,
    "one_minus_beta2": lambda cell: 1 - cell.optimizer.beta2,
}


@pytest.mark.parametrize("scheme", ["sp", "mup", "depth-mup", "completep", "ode"])
@pytest.mark.parametrize("what", BY_LAW, ids=lambda what: what.key)
def test_a_scheme_and_a_rule_move_what_is_tuned_by_their_own_law(what, scheme):
    base = {"width": 16, "depth": 2, "batch": 32, "tokens": 6400}
    grid = {"lrs": [2.0**-6]} if what is LEARNING_RATE else {"lrs": 2.0**-6, "values": [2.0**-6]}
    asked = Design(
        base=base, schemes=scheme, optimizers="adamw", run="sde", tune=what, seeds=1, **grid
    )
    variant, size = asked.variant(), {"width": 64, "depth": 4, "batch": 64, "tokens": 25600}
    small, large = (
        QUANTITIES[what.key](cell_of(BuiltIn(), asked, variant, at, -6.0, 0)) for at in (base, size)
    )
    twice = QUANTITIES[what.key](cell_of(BuiltIn(), asked, variant, base, -5.0, 0))
    assert twice / small == approx(2)
    ratios = Ratios(fan_in=4, fan_out=4, depth=2, batch=2, duration=4)
    assert large / small == approx(law_of(what, variant).at(ratios), rel=1e-9)


def test_the_others_stay_at_their_values():
    asked = design(
        tune="weight_decay", lrs=2.0**-7, values=[0.5], multipliers=2.0,
        settings={"betas": [0.8, 0.99], "init_scale": 0.5},
    )  # fmt: skip
    chosen, log2_lr, settings = hyperparameters(asked, asked.variant(), -1.0)
    assert (chosen.multiplier, chosen.weight_decay) == (2.0, 0.5)
    assert (log2_lr, settings) == (-7.0, {"betas": [0.8, 0.99], "init_scale": 0.5})


# Measurements ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("what", OTHERS[::3], ids=lambda what: what.key)
def test_the_best_value_is_found_and_followed(what, tmp_path):
    report = measure(what, best=-3.6, drift=-0.4, out=tmp_path, target={"depth": 32})
    finding = report.finding()
    assert finding.verdict is depthmup.records.Verdict.DRIFTS
    assert [o.log2_lr.value for o in finding.optima] == approx([-3.6, -4.0, -4.4], abs=0.05)
    assert finding.drift.unit == f"octaves of {what.name} per doubling of depth"
    # The same again trains nothing, and the store alone tells what was tuned.
    before = report.to_dict()
    again = measure(what, best=99, drift=-0.4, out=tmp_path, target={"depth": 32})
    assert again.to_dict() == before
    assert before["tuned"] == what.key
    assert before["schemes"][0]["optimum"][0][what.column] == approx(-3.6, abs=0.05)
    with Store(tmp_path / "results.sqlite") as store:
        assert depthmup.report.load_report(store).studies[0].tuned == what
    [certificate] = report.certificates
    assert certificate.tuned == what
    # The law goes on from the last size, less far than the straight line does.
    assert certificate.value.low <= 2.0**-5.2 < certificate.value.value < 2.0**-4.6
    assert {what.column} <= {*report.to_pandas("points")} & {*report.to_pandas("optima")}


@pytest.mark.long
@pytest.mark.parametrize("what", OTHERS, ids=lambda what: what.key)
def test_nothing_else_is_called_what_is_tuned(what):
    report = measure(what, best=-3.6, target={"depth": 16}, seeds=4, values=2.0 ** np.arange(-6, 0))
    said = report.studies[0].config["tuned"]
    assert said[0].endswith("is tuned. The learning rate is held: 0.01 at the base.")
    assert report.studies[0].config["lr"] == 0.01  # and not 2 to its rounded logarithm
    texts = [report.summary(), certificate_text(report.certificates[0]), report.page]
    texts += [report.figure(name).caption for name in ("transfer", "rates", "loss", "drift")]
    texts.append(json.dumps(report.figure("rates").chart.to_dict(), ensure_ascii=False))
    for text in texts:
        for sentence in said:
            text = text.replace(sentence, "")
        text = re.sub(r"<script.*?vega.*?</script>", "", text, flags=re.S)
        assert what.name in text
        assert not re.search(r"learning.rate|\blog2_lr\b", text, flags=re.I)


def test_one_minus_beta2_is_never_above_one():
    what = tuned("one_minus_beta2")
    report = measure(what, best=3.0)
    tried = [value_of(run, what) for run in report.records]
    assert max(tried) == 1.0
    assert report.finding().optima[0].place is Place.HIGH_EDGE
    [ended] = report.studies[0].search.ended.values()
    assert "lies above the" in ended
    assert "values of 1 − β₂ that were tried. Give values=" in ended


def test_the_rows_of_runs_have_what_is_tuned():
    scaled = measure(tuned("init_scale"), best=-1.0, values=[0.25, 0.5, 1.0]).to_pandas("trials")
    assert {*scaled["init_scale"]} == {0.25, 0.5, 1.0}
    averaged = measure(tuned("one_minus_beta2"), best=-2.0, values=[0.125, 0.25, 0.5])
    assert {*averaged.to_pandas("trials")["beta2"]} == {0.875, 0.75, 0.5}


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"tune": "weight_decay"}, "one learning rate at the base while"),
        ({"tune": "weight_decay", "lrs": [0.1, 0.2]}, "one learning rate at the base while"),
        ({"tune": "weight_decay", "lrs": "auto"}, "one learning rate at the base while"),
        ({"tune": "weight_decay", "lrs": 0.1, "weight_decays": 0.1}, "Leave weight_decays out"),
        ({"tune": "multiplier", "lrs": 0.1, "multipliers": (1, 2)}, "Leave multipliers out"),
        ({"tune": "init_scale", "lrs": 0.1, "settings": {"init_scale": 2}}, "leave init_scale"),
        ({"tune": "one_minus_beta2", "lrs": 0.1, "optimizers": "sgd"}, "beta2 to tune; sgd"),
        ({"tune": "one_minus_beta2", "lrs": 0.1, "values": [0.5, 2.0]}, r"in \(0, 1\]"),
        ({"tune": "weight_decay", "lrs": 0.1, "values": [0.0, 0.1]}, "weight decay to be positive"),
        ({"tune": "weight_decay", "lrs": 0.1, "values": [0.2, 0.1]}, "weight decays to be strict"),
        ({"tune": "momentum", "lrs": 0.1}, "one of lr, weight_decay, multiplier, init_scale"),
        ({"values": [0.1, 0.2]}, "its values are lrs=; leave values="),
        ({"tune": "weight_decay", "lrs": 0.1, "values": []}, "at least one value"),
    ],
)
def test_a_design_that_cannot_be_meant_is_refused(asked, says):
    with pytest.raises(ValueError, match=says):
        design(**asked)


def test_decay_inside_adams_gradient_is_refused_and_adamw_is_the_default():
    asked = {**SIZES, "tune": "weight_decay", "lrs": 0.01, "steps": 5}
    with pytest.raises(ValueError, match="use 'adamw'"):
        depthmup.transfer(BuiltIn(), Design(**asked, optimizers="adam"))
    report = depthmup.transfer(BuiltIn(), Design(**asked, values=[0.1, 0.2], seeds=1))
    assert {run.optimizer.name for run in report.records} == {"adamw"}


# Records, tables and the command line -------------------------------------------------------------


def test_a_certificate_says_what_it_is_of():
    report = measure(tuned("multiplier"), best=-1.0, target={"depth": 16})
    [certificate] = report.certificates
    with pytest.raises(AttributeError, match="for the branch multiplier: read its value"):
        _ = certificate.learning_rate
    text = certificate.to_json()
    assert Certificate.from_json(text) == certificate
    assert "branch multiplier 0.5" in repr(certificate)
    other = dataclasses.replace(certificate, tuned=LEARNING_RATE)
    assert other.learning_rate == certificate.value
    with pytest.raises(ValueError, match="one hyperparameter"):
        compare(certificate, other)
    raw = json.loads(text)
    del raw["tuned"]
    with pytest.raises(ValueError, match="it lacks tuned"):
        Certificate.from_json(json.dumps(raw))


def test_names_are_resolved_once():
    for what in TUNED:
        for name in (what.key, what.key.upper(), what.name, what.key.replace("_", "-")):
            assert tuned(name) == worded(name) == what
    own = worded("clip norm")
    assert (own.name, own.plural, own.column) == (
        "clip norm", "values of the clip norm", "log2_clip_norm",
    )  # fmt: skip


def test_a_table_of_another_hyperparameter_is_not_judged_by_rules_of_learning_rates(tmp_path):
    rows = [
        {"depth": d, "wd": 2.0**k, "seed": s,
         "loss": math.exp(0.05 * (k + 3 + 0.5 * math.log2(d)) ** 2 + 0.001 * s)}
        for d in (2, 4, 8) for k in np.arange(-8, 1.0) for s in (0, 1)
    ]  # fmt: skip
    import pandas as pd

    reading = Reading(tuned="weight decay")
    asked = {"axes": {"depth": "depth"}, "loss": "loss", "seed": "seed", "target": {"depth": 32}}
    fit = depthmup.fit(pd.DataFrame(rows), lr="wd", reading=reading, **asked)
    [prediction] = fit.certificates
    assert fit.exponent("depth").value == approx(-0.5, abs=0.05)
    assert fit.rules() == ()
    assert prediction.rules == ()
    assert prediction.tuned == tuned("weight_decay")
    assert "weight decay" in certificate_text(prediction)
    usual = depthmup.fit(pd.DataFrame(rows), lr="wd", **asked)
    assert usual.rules()
    assert usual.certificates[0].tuned == LEARNING_RATE
    proposal = next_runs(
        pd.DataFrame({"d": [], "wd": [], "loss": []}), axes={"depth": "d"}, lr="wd", loss="loss",
        sizes={"depth": (2, 4)}, tuned="weight decay",
    )  # fmt: skip
    assert proposal.rows[4]["wd"] == tuned("weight_decay").start


def test_the_command_line_tunes_and_says_so(tmp_path, capsys):
    words = ["transfer", "--base", "16x2", "--depths", "2,4", "--steps", "10", "--schemes",
             "depth-mup", "--seeds", "2", "--workers", "1", "--out", str(tmp_path)]  # fmt: skip
    tuning = ["--tune", "multiplier", "--lr", "0.01", "--values", "0.5", "1", "2"]
    words[words.index("2,4")] = "2"
    words.insert(words.index("2") + 1, "4")
    assert main([*words, *tuning]) == 0
    assert "branch multiplier" in capsys.readouterr().out
    assert main(["next", str(tmp_path)]) == 0
    assert main([*words, "--tune", "multiplier", "--lr", "0.01", "--lrs", "0.5", "1"]) == 2
    assert "give --values" in capsys.readouterr().err
    assert main([*words, "--lr", "0.01"]) == 2
    assert "--lr goes with --tune" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"key": 'a"]<img>'}, {"key": ""}, {"name": ""}])
def test_what_a_file_says_was_tuned_is_a_word(change):
    """Charts parse the key as the path of a field: one that is none would end the page."""
    raw = {
        field.name: getattr(LEARNING_RATE, field.name)
        for field in dataclasses.fields(LEARNING_RATE)
    }
    assert Tuned(**raw) == LEARNING_RATE
    with pytest.raises(ValueError, match="key of letters, digits and underscores"):
        Tuned(**{**raw, **change})
