"""Results in a notebook: short reprs, cards, and one vocabulary on all of them."""

import copy
import json
import math
import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn

import depthmup
from depthmup.models import ResidualMLP
from depthmup.records import Outcome, Verdict, tuned
from depthmup.reports import example_certificate, example_check, example_study
from depthmup.tables import example


@pytest.fixture(scope="module")
def report():
    return depthmup.Report(studies=(example_study(),))


@pytest.fixture
def design():
    return depthmup.Design(base="64x2", depth=(2, 4), lrs=(1e-3, 3e-3), schemes="completep")


def test_reprs_are_a_line(report, design):
    shown = [repr(one) for one in (report, example_check(), design, example_certificate())]
    assert shown[0] == (
        "<Report: Use learning rate 2.3e-3 with Depth-muP. It holds from depth 8 to 128; print it "
        "for the table>"
    )
    assert shown[2] == (
        "<Design: width 64 and depth 2, 4; completep; learning rates 0.001, 0.003; 3 seeds>"
    )
    assert all(len(text) < 200 and "\n" not in text for text in shown)


def test_cards_show_the_verdict_in_its_colour(report, design):
    failed = replace(example_check(), outcome=Outcome.FAIL, title="<mine>")
    page = failed._repr_html_()
    assert "&lt;mine&gt;" in page
    assert "#a83f00" in page
    assert "#a83f00" not in example_check()._repr_html_()
    assert "certified" in example_certificate()._repr_html_()
    assert "completep" in design._repr_html_()
    cards = report._repr_html_()
    assert cards.index("Use learning rate 2.3e-3") < cards.index("transfers") < cards.index("<svg")


def test_a_check_is_true_if_it_passed():
    passed = example_check()
    assert passed
    assert passed.passed
    for outcome in (Outcome.FAIL, Outcome.UNDECIDED):
        other = replace(passed, outcome=outcome)
        assert not other
        assert other.verdict is outcome


def test_a_check_as_text_and_tables():
    check = example_check()
    assert str(check) == check.summary()
    assert check.summary().startswith(check.headline)
    assert len(check.summary(everything=True).splitlines()) > len(check.exponents)
    assert len(check.to_pandas()) == len(check.exponents)
    assert {"module", "estimate.value"} <= {*check.to_pandas()}
    assert len(check.to_pandas("sizes")) == len(check.sizes)
    with pytest.raises(ValueError, match="Expected exponents or sizes"):
        check.to_pandas("points")


def test_the_vocabulary_of_a_report(report, tmp_path):
    assert report.verdict is Verdict.TRANSFERS
    best = report.best_lr
    assert best.value == pytest.approx(2.3e-3, rel=0.03)
    assert best.low < best.value < best.high
    assert str(report) == report.summary()
    assert len(report.to_pandas("optima")) > 3
    report.save(tmp_path)
    shown = report.plot(tmp_path / "optima.svg")
    assert (tmp_path / "optima.svg").stat().st_size > 1000
    assert report.plot().to_dict() == shown.to_dict()
    assert (
        shown.spec["title"]["text"] == "Flat lines transfer, slopes drift"
    )  # no page says what it shows
    assert example_check().plot().to_dict()["width"] > 400  # a file has no place to be as wide as


def test_no_best_rate_where_another_value_was_tuned(report):
    other = depthmup.Report(studies=(replace(report.study(), tuned=tuned("weight_decay")),))
    with pytest.raises(AttributeError, match="to_pandas"):
        _ = other.best_lr


def test_columns_are_proposed_in_python_too():
    with pytest.raises(ValueError, match=r"axes=\{'depth': 'n_layers', 'width': 'd_model'\}, lr="):
        depthmup.fit(example())


def test_sizes_as_text(design):
    assert design.base == {"width": 64, "depth": 2}
    assert depthmup.Design(base="depth=2 tokens=1e4 batch=10").base["tokens"] == 10_000


@pytest.mark.parametrize("text", ["", "64", "64x", "x4", "64x4x2", "0x4", "-1x4", "axb", "depth="])
def test_texts_that_are_no_size(text, report):
    for wanting in (
        lambda: depthmup.Design(base=text),
        lambda: report.certificate(text),
        lambda: depthmup.fit(example(), axes={"depth": "n_layers"}, lr="lr", loss="final_loss",
                             by="scheme", target=text),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="as WIDTHxDEPTH"):
            wanting()


def test_targets_as_text():
    columns = {"axes": {"depth": "n_layers"}, "lr": "lr", "loss": "final_loss", "by": "scheme"}
    report = depthmup.fit(example(), **columns, target="depth=256")
    named = {c.scheme or c.title: c.target for c in report.certificates}
    assert {tuple(target.items()) for target in named.values()} == {(("depth", 256.0),)}
    assert report.certificate("depth=512").target == {"depth": 512}
    with pytest.raises(ValueError, match="has width too"):
        report.certificate("128x512")
    with pytest.raises(ValueError, match=r"such as \{'depth': 64\}; got 64"):
        depthmup.fit(example(), **columns, target=64)


def test_one_size_of_a_check_needs_no_brackets():
    def make(width, depth):
        return ResidualMLP(inputs=8, width=width, depth=depth, outputs=4)

    def batch(generator):
        return torch.randn(8, 8, generator=generator), torch.arange(8) % 4

    check = depthmup.check(
        depthmup.Model(make, batch=batch), widths=(8, 16, 32), depths=2, seeds=2, steps=1
    )
    assert check.depths == (2,)
    assert math.isfinite(check.exponents[0].estimate.value)


@pytest.mark.parametrize(
    ("name", "meant"), [("df", "to_pandas"), ("apply", "plan.initialize"), ("to_dict", "plan.save")]
)
def test_a_plan_names_what_people_mean(name, meant):
    model, base = (nn.Sequential(nn.Linear(4, n), nn.Linear(n, 2)) for n in (8, 4))
    plan = depthmup.plan(model, base, scheme="mup", example_inputs=torch.zeros(2, 4))
    with pytest.raises(AttributeError, match=meant):
        getattr(plan, name)
    assert copy.deepcopy(plan).title == pickle.loads(pickle.dumps(plan)).title
    assert not hasattr(plan, "anything")


def test_a_plan_is_a_mapping_of_names():
    model, base = (nn.Sequential(nn.Linear(4, n), nn.Linear(n, 2)) for n in (8, 4))
    plan = depthmup.plan(model, base, scheme="mup", example_inputs=torch.zeros(2, 4))
    assert len(plan) == 4
    assert [plan[name].name for name in plan] == [name for name, _ in model.named_parameters()]
    assert "0.weight" in plan
    assert "2.weight" not in plan
    assert json.loads(plan.to_json())["plan"]["scheme"] == "mup"


def test_a_model_that_is_smaller_than_its_base_has_a_note():
    large, small = (nn.Sequential(nn.Linear(4, n), nn.Linear(n, 2)) for n in (8, 4))
    inputs = torch.zeros(2, 4)
    plan = depthmup.plan(small, large, scheme="mup", example_inputs=inputs)
    assert "smaller than its base: 30 parameters for 58" in plan.notes[0]
    plan = depthmup.plan(large, small, scheme="mup", example_inputs=inputs)
    assert not any("smaller" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("runs", r'report.to_pandas\("runs"\)'), ("lr", "best_lr"), ("sumary", "mean 'summary'")],
)
def test_a_report_names_what_people_mean(report, name, meant):
    with pytest.raises(AttributeError, match=meant):
        getattr(report, name)
    assert pickle.loads(pickle.dumps(report)).verdict is report.verdict


def test_the_vocabulary_of_a_certificate(tmp_path):
    certificate = example_certificate()
    assert certificate.best_lr == certificate.learning_rate
    assert str(certificate) == certificate.summary()
    assert certificate.summary().startswith("Depth-muP: Train at width 64 and depth 256")
    shown = certificate.plot(tmp_path / "law.svg")
    assert (tmp_path / "law.svg").stat().st_size > 1000
    assert certificate.plot().to_dict() == shown.to_dict()
    assert shown.spec["title"]["text"] == "The law, up to the target"
    with pytest.raises(AttributeError, match="dates the forecast"):
        _ = certificate.save
    assert pickle.loads(pickle.dumps(certificate)) == copy.copy(certificate) == certificate


def test_a_check_names_what_people_mean():
    with pytest.raises(AttributeError, match=r"check\.failures"):
        _ = example_check().failed


def test_names_of_the_package_have_near_ones():
    with pytest.raises(AttributeError, match="Did you mean 'transfer'"):
        _ = depthmup.trasfer
    with pytest.raises(AttributeError, match=r"rules\.CATALOGUE has the schemes"):
        _ = depthmup.schemes
    with pytest.raises(AttributeError, match=r"rules\.OPTIMIZERS has the optimizers"):
        _ = depthmup.optimizers
