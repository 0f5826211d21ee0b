"""``depthmup.transfer`` as a person uses it: from Python, in process and in worker processes."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import own_models
import pandas as pd
import pytest
from sweeps import measure

import depthmup
from depthmup.cli import main
from depthmup.records import Place, Status, Verdict
from depthmup.report import load_report
from depthmup.rules import DEPTH_MUP, completep
from depthmup.sweep import InProcess, Store, WorkerError
from depthmup.sweep.logs import TensorBoard

ASKED = {
    "base": (16, 2),
    "depths": (2, 4),
    "widths": (16, 32),
    "lrs": [2.0**-9, 2.0**-7, 2.0**-5],
    "schemes": ["depth-mup", "sp"],
    "steps": 10,
    "seeds": 2,
    "settings": {"own_init": "fan_in"},
    "version": "1",
}
# Two schemes share the base: (1 + 2 + 2) sizes x 3 rates x 2 seeds.
RUNS = 30


def transfer(make=own_models.make, **changes):
    return measure(make, **{"batch": own_models.batch, **ASKED, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mine")


@pytest.fixture(scope="module")
def report(folder):
    return transfer(out=folder)


def losses_of(report):
    return {trial: (record.status, list(record.losses)) for trial, record in report.records.items()}


def test_every_run_once_and_the_base_shared(report):
    assert len(report.sweep.runs) == len(report.records) == RUNS
    assert Counter((t.width, t.depth) for t in report.sweep.runs) == {
        (16, 2): 6, (16, 4): 12, (32, 2): 12,
    }  # fmt: skip
    found = report.finding("sp", "width")
    assert found.scheme == "sp"
    assert [(o.width, o.depth) for o in found.optima] == [(16, 2), (32, 2)]
    assert "per doubling of width" in found.drift.unit


def test_losses_are_those_of_the_records(report):
    found = report.losses("sp", "depth")
    assert found.sizes == ({"width": 16, "depth": 2}, {"width": 16, "depth": 4})
    assert found.log2_lrs == (-9.0, -7.0, -5.0)
    assert found.values.shape == (2, 3, 2)
    trial = report.sweep.run(report.sweep.design.variant("sp"), {"width": 16, "depth": 4}, -7.0, 1)
    expected = np.mean(report.records[trial].losses[8:10])
    assert found.values[1, 1, 1] == pytest.approx(expected)
    assert [*map(tuple, (size.values() for size in report.losses().sizes))] == [
        (16, 2), (16, 4), (32, 2),
    ]  # fmt: skip
    assert report.losses("sp", "depth", window=0).values[1, 1, 1] == pytest.approx(
        np.mean(report.records[trial].losses[0:2])
    )


def test_the_same_call_again_trains_nothing(report, folder):
    def never(width, depth):
        raise AssertionError("a model was made")

    never.__name__ = "make"
    assert losses_of(transfer(never, out=folder)) == losses_of(report)


def test_other_code_other_settings_more_seeds(report, folder):
    seen = []

    def counted(width, depth):
        seen.append((width, depth))
        return own_models.make(width, depth)

    counted.__name__ = "make"
    before = len(report.records)
    with_more = transfer(counted, out=folder, seeds=3)
    assert len(with_more.records) == before * 3 // 2
    assert losses_of(report).items() <= losses_of(with_more).items()
    for changes in (
        {"version": "2"},
        {"steps": 11},
        {"settings": {"own_init": "fan_in", "warmup": 0.5}},
    ):
        other = transfer(**changes, schemes="sp", widths=(), seeds=1)
        assert not set(other.records) & set(report.records), changes


def test_worker_processes_give_the_same_bits(report):
    assert losses_of(transfer(workers=2)) == losses_of(report)


def test_what_others_cannot_import_runs_here_and_says_so():
    with pytest.warns(UserWarning, match=r"not at the top of a module.*in this process"):
        found = transfer(lambda w, d: own_models.make(w, d), workers=2, widths=(), seeds=1)
    assert "in process" in found.studies[0].environment["executor"]


def test_an_error_in_the_code_stops_no_other_run(tmp_path):
    def fails(width, depth):
        if depth == 4:
            raise LookupError("no layer of mine")
        return own_models.make(width, depth)

    fails.__name__ = "make"
    asked = {"out": tmp_path, "schemes": "sp"}
    with pytest.raises(LookupError, match="no layer"):  # before any training
        transfer(fails, **asked)

    def fails_late(generator):
        late.append(1)
        if len(late) == 40:
            raise LookupError("no data of mine")
        return own_models.batch(generator)

    late = []
    with pytest.raises(WorkerError, match=r"(?s)training make.*fails_late.*no data of mine"):
        transfer(batch=fails_late, **asked)
    with Store(tmp_path / "results.sqlite") as store:
        assert 0 < len(store) == 18 - 1
    assert len(transfer(**asked).records) == 18


def test_a_function_that_trains_by_itself(tmp_path):
    seen = []

    def train(trial):
        """Its best rate is 1/16 at every size with mup, and falls as the width grows with sp."""
        seen.append(trial)
        best = -4 - (trial.scheme == "sp") * np.log2(trial.ratio("width"))
        loss = 2 + 0.1 * (np.log2(trial.lr) - best) ** 2 + 0.001 * trial.seed
        return [loss] * trial.steps if trial.lr < 0.5 else [3.0, float("nan")]

    found = measure(train=train, base=(8, 2), widths=(8, 16, 32), steps=5, seeds=3,
                              lrs=[2.0**k for k in range(-8, 0)], schemes=["mup", "sp"],
                              version="1", out=tmp_path)  # fmt: skip
    assert found.verdict is Verdict.TRANSFERS
    assert found.drift.value == pytest.approx(0, abs=1e-3)  # losses are in single precision
    assert found.finding("sp").drift.value == pytest.approx(-1, abs=1e-3)
    assert found.finding("sp").verdict is Verdict.DRIFTS
    statuses = {r.cell.lr >= 0.5: r.status for r in found.records.values()}
    assert statuses == {False: Status.FINISHED, True: Status.DIVERGED}
    # What the base does under each scheme is theirs to say, so it is not shared.
    assert len(seen) == 2 * 3 * 8 * 3
    assert seen[0].ratio("depth") == 1


def test_grids_over_everything():
    def train(trial):
        return [1.0 + trial.multiplier + trial.weight_decay + (trial.optimizer == "sgd")]

    found = measure(train=train, base=(8, 2), depths=(2, 4), lrs=[0.1], steps=1, seeds=1,
                              multipliers=[0.5, 1.0], weight_decays=[0.0, 0.1],
                              optimizers=["sgd", "adamw"], version="1")  # fmt: skip
    names = [variant.name for variant in found.sweep.design.variants]
    assert len(names) == 8
    assert "depth-mup sgd a=0.5 decay=0.1" in names
    values = [found.losses(name).values[0, 0, 0] for name in names]
    assert values == pytest.approx([2.5, 2.6, 3.0, 3.1, 1.5, 1.6, 2.0, 2.1])


class TestReport:
    def test_table_page_and_notebook(self, report):
        class Text(HTMLParser):
            text = ""

            def handle_data(self, data):
                self.text += data

        reader = Text()
        reader.feed(report.page.replace("<script>", "<!--").replace("</script>", "-->"))
        for said in ("Along depth", "Along width", "Is wider better?", "Depth-muP", "SP"):
            assert said in reader.text
        assert "Best learning rate by width n" in report.summary()
        assert report.summary() in str(report)
        shown = report._repr_html_()
        assert shown.count("<svg") == 4
        assert "<script" not in shown
        identities = re.findall(r'id="([^"]+)"', report.page)
        assert len(identities) == len(set(identities))

    def test_summary_and_folder(self, report, folder):
        found = json.loads((folder / "summary.json").read_text())
        assert [(s["scheme"], s["axis"]) for s in found["schemes"]] == [
            ("depth-mup", "depth"), ("sp", "depth"), ("depth-mup", "width"), ("sp", "width"),
        ]  # fmt: skip
        assert found["schemes"][3]["widths"] == [16, 32]
        assert found["schemes"][3]["optimum"][1]["width"] == 32
        assert found["config"]["name"] == "make"
        assert (folder / "report.html").exists()

    def test_frames_survive_files(self, report, tmp_path):
        for kind, rows in (("points", 2 * 2 * 2 * 3 * 5), ("optima", 40), ("transfers", 20)):
            frame = report.to_pandas(kind)
            assert len(frame) == rows, kind
        trials = report.to_pandas("trials")
        # A row for each variant: what two share stands twice.
        assert trials["key"].nunique() == RUNS
        report.to_csv(tmp_path / "runs.csv", "trials")
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "runs.csv"), trials)
        pytest.importorskip("pyarrow")
        report.to_parquet(tmp_path / "points.parquet")
        back = pd.read_parquet(tmp_path / "points.parquet")
        pd.testing.assert_frame_equal(back, report.to_pandas("points"))

    def test_parquet_without_pyarrow(self, report, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ValueError, match=r"depthmup\[parquet\]"):
            report.to_parquet(tmp_path / "points.parquet")

    def test_unknown_names(self, report):
        with pytest.raises(ValueError, match="'depth-mup', 'sp', which were measured; got 'ode'"):
            report.finding("ode")
        with pytest.raises(ValueError, match="depth, width; got 'height'"):
            report.finding(axis="height")

    def test_is_rebuilt_from_the_store_alone(self, report, folder):
        with Store(folder / "results.sqlite") as store:
            again = load_report(store, report.sweep)
        assert again.to_dict()["schemes"] == report.to_dict()["schemes"]

    def test_a_certificate_or_its_refusal(self, report):
        found = report.certificate({"width": 32, "depth": 8})
        assert not found.issued  # two sizes along each axis are no law
        assert found.target == {"width": 32, "depth": 8}


def test_a_shard_shows_itself_and_says_what_it_has_not(tmp_path):
    found = transfer(out=tmp_path, shard="1/2")
    assert "A shard: 15 runs" in found._repr_html_()
    assert "15 runs" in str(found)
    assert found.to_pandas("trials")["key"].nunique() == 15
    for ask in (
        lambda: found.page, lambda: found.to_dict(), lambda: found.summary(), lambda: found.verdict,
        lambda: found.losses(), lambda: found.certificate({"depth": 8}), lambda: found.to_pandas(),
        lambda: found.save(tmp_path),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="depthmup merge"):
            ask()


def test_certificates_of_an_earlier_measurement_do_not_stay(tmp_path):
    asked = {"out": tmp_path, "widths": (), "seeds": 1}
    transfer(**asked, target=(16, 8))
    assert sorted(p.name for p in tmp_path.glob("certificate*")) == [
        "certificate-2.json", "certificate.json",
    ]  # fmt: skip
    transfer(**asked, schemes="sp", target=(16, 8))
    assert [p.name for p in tmp_path.glob("certificate*")] == ["certificate.json"]
    transfer(**asked)
    assert not list(tmp_path.glob("certificate*"))


class TestLog:
    def test_is_told_every_run_once(self, tmp_path):
        class Kept:
            def __init__(self):
                self.records = []

            def write(self, record):
                self.records.append(record)

        first, second = Kept(), Kept()
        asked = {"out": tmp_path, "schemes": "sp", "widths": (), "seeds": 1}
        found = transfer(log=first, **asked)
        transfer(log=second, on=InProcess(), **asked)
        assert sorted(r.cell.key for r in first.records) == sorted(t.key for t in found.records)
        assert second.records == []

    def test_tensorboard(self, tmp_path):
        events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        found = transfer(log=TensorBoard(tmp_path), schemes="sp", widths=(), seeds=1, lrs=[0.01])
        folders = sorted(tmp_path.iterdir())
        assert [f.name.rpartition("-")[0] for f in folders] == [
            "w16-d2-lr0.01-s0", "w16-d4-lr0.01-s0",
        ]  # fmt: skip
        told = events.EventAccumulator(str(folders[0])).Reload().Scalars("loss")
        expected = next(r for r in found.records.values() if r.cell.depth == 2)
        assert [e.value for e in told] == list(expected.losses)

    def test_tensorboard_that_is_not_there(self, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(ValueError, match=r"depthmup\[tensorboard\]"):
            TensorBoard(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lrs": []}, "at least one"),
        ({"lrs": [0.1, 0.01]}, "strictly increasing"),
        ({"lrs": [0.0, 0.01]}, "lrs to be positive"),
        ({"depths": (2,), "widths": ()}, "at least two sizes along an axis"),
        ({"depths": (4, 8)}, "contain the base's, 2"),
        ({"widths": (32, 64)}, "contain the base's, 16"),
        ({"depths": (2, 2.5)}, "whole numbers"),
        ({"depths": (4, 2)}, "strictly increasing"),
        ({"base": (16, 0)}, "depth of base to be a whole number"),
        ({"window": 11}, r"between 1 and the number of steps \(10\)"),
        ({"steps": 0}, "at least 1"),
        ({"seeds": 0}, "at least 1"),
        ({"schemes": "nope"}, "Expected a scheme"),
        ({"schemes": ["sp", "sp"]}, "different from each other"),
        ({"schemes": []}, "at least one, different"),
        ({"optimizers": "adamax2"}, "Expected an optimizer"),
        ({"multipliers": 0.0}, "multipliers to be positive"),
        ({"weight_decays": -1.0}, "finite and not negative"),
        ({"weight_decays": 0.1, "optimizers": "rmsprop"}, "cannot|no factor makes it transfer"),
        ({"tolerance": 0.0}, "a positive tolerance"),
        ({"target": (64, 0)}, "depth of the target"),
        ({"target": (64, 8), "lrs": [0.01]}, "at least two learning rates"),
        ({"schemes": replace(DEPTH_MUP, alpha=Fraction(2))}, "'depth-mup' is another scheme there"),
        ({"schemes": replace(DEPTH_MUP, name="mine")}, "'mine' is not in it"),
        ({"workers": -1}, "workers to be at least 1"),
        ({"workers": 100_000}, "at most 1,024"),
        ({"settings": {"betas": object()}}, "settings of types that JSON has"),
        ({"batch": None}, r"make\(width, depth\) and batch\(generator\).*got make alone"),
        ({"train": lambda trial: []}, "either train"),
        ({"make": None, "batch": None}, "got none of them"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_kept(changes, message, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=message):
        transfer(**{"out": out, **changes})
    assert not out.exists()


def test_whole_numbers_of_numpy_and_schemes_as_objects():
    asked = {"depths": np.array([2, 4]), "widths": (), "base": (np.int64(16), 2), "seeds": 1}
    found = transfer(**asked, schemes=completep("3/4"), lrs=[0.01, 0.02])
    assert {type(trial.depth) for trial in found.records} == {int}
    assert found.finding().scheme == "completep-3/4"


def test_what_a_begun_sweep_refuses_leaves_no_session(folder, report):
    with Store(folder / "results.sqlite") as store:
        before = store.sessions()
    with pytest.raises(ValueError, match="no factor makes it transfer"):
        transfer(out=folder, weight_decays=0.1, optimizers="rmsprop")
    with Store(folder / "results.sqlite") as store:
        assert store.sessions() == before


@pytest.mark.long
def test_sp_drifts_and_depth_mup_does_not():
    """A planted wrong rule: the default initialization and one learning rate for all sizes."""
    found = transfer(base=(32, 2), depths=(2, 8, 32), widths=(32, 64, 128), steps=40, seeds=2,
                     lrs=[2.0 ** (k / 2) for k in range(-19, -7)], settings=None,
                     engine="stacked")  # fmt: skip
    for axis in ("depth", "width"):
        assert abs(found.finding("depth-mup", axis).drift.value) < 0.15
        assert found.finding("depth-mup", axis).verdict is not Verdict.DRIFTS
        assert found.finding("sp", axis).drift.high < 0
    assert found.finding("depth-mup", "depth").verdict is Verdict.TRANSFERS
    assert found.finding("sp", "width").verdict is Verdict.DRIFTS
    # At depth 32 its stream explodes: no rate comes back below the loss of guessing.
    assert found.finding("sp", "depth").optima[-1].place is Place.FAILED
    assert found.finding("sp", "depth").verdict is not Verdict.TRANSFERS
    assert found.finding("sp", "depth").regret.value == math.inf


SESSION = """
import depthmup
{source}
design = depthmup.Design(base={{"width": 16, "depth": 2}}, depth=(2, 4), lrs=[0.01], steps=5,
                         seeds=1, settings={{"own_init": "fan_in"}})
report = depthmup.transfer(depthmup.Model(make, batch=batch), design, on=2)
print(report.studies[0].environment["executor"])
"""


def test_a_script_without_a_guard_runs_in_process(tmp_path):
    (tmp_path / "script.py").write_text(SESSION.format(source=own_models.SOURCE))
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "in process" in done.stdout
    assert "make is defined in the session that is running" in done.stderr


def test_the_main_job_is_logged_too(tmp_path):
    pytest.importorskip("tensorboard")
    words = ["--depths", "2", "4", "--base", "8x2", "--lrs", "0.015625", "--schemes", "sp"]
    words += ["--seeds", "1", "--steps", "5", "--window", "5", "--json"]
    words += ["--executor", "in-process", "--out", str(tmp_path / "out")]
    assert main(["transfer", *words, "--log", f"tensorboard:{tmp_path}/logs"]) == 0
    assert [f.name[:6] for f in sorted((tmp_path / "logs").iterdir())] == ["w8-d2-", "w8-d4-"]


@pytest.mark.long
def test_the_llama_example(tmp_path):
    """A model of transformers, untouched, under the plan."""
    pytest.importorskip("transformers")
    example = Path(__file__).parents[1] / "examples" / "llama.py"
    design = depthmup.Design(
        base={"width": 64, "depth": 2}, depth=(2, 4), schemes="completep", lrs=[2.0**-7], steps=12,
        seeds=1,
    )  # fmt: skip
    found = depthmup.transfer(depthmup.Model.load(f"{example}:make"), design)
    for record in found.records.values():
        assert record.losses[0] == pytest.approx(math.log(256), rel=0.05)  # guessing bytes
        assert record.losses[-1] < 0.9 * record.losses[0]
