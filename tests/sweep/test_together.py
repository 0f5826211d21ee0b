"""A search over several values tuned together: what it asks for, finds, keeps and refuses."""

import json
import math
import sys

import numpy as np
import pytest

import depthmup
from depthmup.cli.main import main
from depthmup.records import Verdict
from depthmup.statistics.recipe_search import RecipeSearch, cross_and_corners, next_recipes
from depthmup.sweep import MAIN_STORE, Auto, BuiltIn, Custom, Design, Store, Sweep

WIDTHS = (32, 64, 128, 256)
BEST = {"lr": 2.0**-8, "weight_decay": 2.0**-3}
ROUND, RIDGE = np.array([[0.1, 0.0], [0.0, 0.06]]), 0.06 * np.ones((2, 2))


class Bowl:
    """A training function whose loss is a parabola of two values, and counts its runs."""

    def __init__(self, *, drift=(0.0, 0.0), curvature=ROUND, stop_at=math.inf, wall=math.inf):
        self.drift, self.curvature = np.array(drift), curvature
        self.stop_at, self.wall, self.trained = stop_at, wall, []

    def __call__(self, trial):
        if len(self.trained) >= self.stop_at:
            raise KeyboardInterrupt
        self.trained.append(trial)
        i = math.log2(trial.size["width"] / WIDTHS[0])
        x = np.log2([trial.lr / BEST["lr"], trial.weight_decay / BEST["weight_decay"]])
        away = x - i * self.drift
        if away[0] > self.wall:
            return [math.inf]
        place = [trial.seed, int(i), *(round(1000 * k) % 2**32 for k in x)]
        noise = 0.003 * np.random.default_rng(place).standard_normal()
        return [float(np.exp(1 - 0.1 * i + 0.5 * away @ self.curvature @ away + noise))]


def design(**asked):
    usual = {
        "base": {"width": 32, "lr": 2.0**-8.5, "weight_decay": 2.0**-2}, "width": WIDTHS,
        "tune": ("lr", "weight_decay"), "steps": 1, "seeds": 4,
    }  # fmt: skip
    return Design(**{**usual, **asked})


def search(bowl, *, out=None, target=None, **asked):
    model = depthmup.Model(train=bowl, version="1", cost=lambda size: size["width"] ** 2.0)
    return depthmup.transfer(model, design(**asked), out=out, target=target)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search to its end, in a folder, with its training function."""
    bowl, out = Bowl(), tmp_path_factory.mktemp("whole")
    return search(bowl, out=out), bowl, out


class TestWhatItFinds:
    def test_a_joint_optimum_that_stays(self, whole):
        report, _, _ = whole
        recipe = report.recipe()
        assert report.verdict is Verdict.TRANSFERS
        assert [one.key for one in recipe.tuned] == ["lr", "weight_decay"]
        for optimum in recipe.optima:
            for estimate, truth in zip(optimum.log2, (-8, -3), strict=True):
                assert estimate.low <= truth <= estimate.high
        for drift in recipe.along[0].drifts:
            assert -0.15 < drift.low <= 0 <= drift.high < 0.15

    def test_it_takes_a_tenth_of_the_full_grid_at_most(self, whole):
        report, bowl, _ = whole
        assert report.search.runs == len(bowl.trained) == len(report.recipe().runs)
        assert report.search.grid_runs == 9**2 * 3 * len(WIDTHS)
        assert report.search.runs <= 0.1 * report.search.grid_runs

    def test_a_value_that_drifts_ends_it_before_the_largest_size(self):
        bowl = Bowl(drift=(0.0, -0.6))
        report = search(bowl)
        (along,) = report.recipe().along
        assert report.verdict is along.verdicts[1] is Verdict.DRIFTS
        assert along.drifts[1].low <= -0.6 <= along.drifts[1].high
        assert max(trial.size["width"] for trial in bowl.trained) == 128
        assert "Not trained: width 256." in report.summary()

    def test_a_ridge_has_its_combination_and_transfers(self):
        report = search(Bowl(curvature=RIDGE))
        recipe = report.recipe()
        assert recipe.combination == "learning rate × weight decay"
        assert report.verdict is Verdict.TRANSFERS
        assert recipe.along[0].verdicts == (Verdict.UNDECIDED,) * 2

    def test_it_walks_to_an_optimum_far_from_the_start(self):
        report = search(Bowl(), base={"width": 32, "lr": 2.0**-13, "weight_decay": 2.0**2})
        first = report.recipe().optima[0]
        assert first.log2[0].low <= -8 <= first.log2[0].high
        assert first.log2[1].low <= -3 <= first.log2[1].high

    def test_runs_that_diverge_bound_the_optimum(self):
        report = search(Bowl(wall=1.2))
        assert any(math.isinf(run.loss) for run in report.recipe().runs)
        assert report.verdict is Verdict.TRANSFERS

    def test_the_runs_of_a_search_are_a_table_that_says_the_same(self, whole):
        report, _, _ = whole
        again = depthmup.fit(
            report.to_pandas("runs"), axes=["width"], lr=["lr", "weight_decay"], loss="loss",
            seed="seed",
        )  # fmt: skip
        columns = ["drift", "drift_low", "drift_high", "cost"]
        mine, table = report.to_pandas("drifts"), again.to_pandas("drifts")
        np.testing.assert_allclose(mine[columns], table[columns], rtol=1e-7, atol=1e-9)


class TestWhatItAsksFor:
    def search_of(self, **fields):
        sizes = tuple({"width": width} for width in WIDTHS)
        usual = {"start": (-8.5, -2.0), "tuned": design().tuned, "costs": (1.0, 2.0, 4.0, 8.0)}
        fields = {**usual, **fields}
        return RecipeSearch(sizes=sizes, base=sizes[0], axes=("width",), **fields)

    def asked(self, losses, **fields):
        return next_recipes(self.search_of(**fields), losses)

    def test_it_begins_with_a_cross_and_corners_about_ones_own_values(self):
        step = self.asked([{} for _ in WIDTHS])
        places = np.array([ask.values for ask in step.asks])
        assert {ask.size for ask in step.asks} == {0}
        assert len(places) == 9 == len(np.unique(places, axis=0))
        assert (places[0] == (-8.5, -2.0)).all()
        np.testing.assert_array_equal(places - places[0], cross_and_corners(2))
        assert {ask.seed for ask in step.asks} == {0}

    @pytest.mark.parametrize(("values", "runs"), [(3, 15), (4, 25)])
    def test_a_first_round_of_more_values_is_no_grid(self, values, runs):
        assert len(cross_and_corners(values)) == runs < 3**values

    def test_it_goes_on_where_the_best_run_lies_at_the_edge(self):
        places = np.array([-8.5, -2.0]) + cross_and_corners(2)
        losses = {tuple(map(float, p)): [1 + 0.1 * float(((p - (-8.5, 3)) ** 2).sum())]
                  for p in places}  # fmt: skip
        step = self.asked([losses, {}, {}, {}])
        assert [ask.values for ask in step.asks] == [(-8.5, 2.0)]

    def test_values_never_pass_the_most_that_they_can_be(self):
        tuned = design(
            tune=("lr", "one_minus_beta2"), base={"width": 32, "one_minus_beta2": 0.9}
        ).tuned
        step = self.asked([{} for _ in WIDTHS], tuned=tuned, start=(-8.0, math.log2(0.9)))
        assert max(ask.values[1] for ask in step.asks) <= 0

    def test_the_order_of_rows_does_not_matter(self):
        places = np.array([-8.5, -2.0]) + cross_and_corners(2)
        rows = [
            (tuple(map(float, p)), [1 + 0.1 * float(((p - (-8, -3)) ** 2).sum())]) for p in places
        ]
        first = self.asked([dict(rows), {}, {}, {}])
        assert first.asks
        assert first == self.asked([dict(rows[::-1]), {}, {}, {}])
        one, other = (
            self.search_of(losses=[dict(some), {}, {}, {}]).trials([0])
            for some in (rows, rows[::-1])
        )
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y, other.y)

    def test_a_search_in_the_same_process_has_its_own_limit(self):
        """What sizes show is kept between rounds, and not what one search may spend."""
        rng = np.random.default_rng(0)
        places = [(0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)]
        wide = [*places, *((2 * a, 2 * b) for a, b in places[1:]),
                *(tuple(map(float, corner)) for corner in cross_and_corners(2)),
                *((a / 2, b / 2) for a, b in places[1:])]  # fmt: skip
        losses = [
            {
                place: [
                    math.exp(0.05 * (place[0] - 0.14 * i) ** 2 + 0.05 * place[1] ** 2
                             + 0.03 * rng.standard_normal())
                    for _ in range(2)
                ]
                for place in dict.fromkeys(wide)
            }
            for i in range(len(WIDTHS))
        ]  # fmt: skip
        runs = sum(len(row) for of_size in losses for row in of_size.values())
        spent = self.asked(losses, start=(0.0, 0.0), most=runs)
        more = self.asked(losses, start=(0.0, 0.0), most=10 * runs)
        assert not spent.asks
        assert f"after {runs} runs (limit {runs})" in spent.why
        assert more.asks

    def test_nothing_trains(self):
        bowl = Bowl(wall=-math.inf)
        report = search(bowl)
        assert report.recipes == ()
        assert report.verdict is Verdict.UNDECIDED
        assert "no learning rate and weight decay train" in report.summary()
        assert report.page.startswith("<!doctype html>")
        assert len(bowl.trained) < 25


class TestFolders:
    def test_the_same_call_trains_nothing_again(self, whole):
        report, bowl, out = whole
        before = len(bowl.trained)
        assert search(bowl, out=out).to_dict()["recipes"] == report.to_dict()["recipes"]
        assert len(bowl.trained) == before

    def test_an_interrupted_search_goes_on_to_the_same_end(self, whole, tmp_path):
        report, bowl, _ = whole
        with pytest.raises(KeyboardInterrupt):
            search(Bowl(stop_at=30), out=tmp_path)
        with Store(tmp_path / MAIN_STORE) as store:
            assert len(store) == 30
        rest = Bowl()
        again = search(rest, out=tmp_path)
        assert len(rest.trained) == len(bowl.trained) - 30
        assert again.to_dict()["recipes"] == report.to_dict()["recipes"]

    def test_it_opens_again(self, whole):
        report, _, out = whole
        again = depthmup.load(out)
        assert isinstance(again, depthmup.RecipeReport)
        assert again.to_dict()["recipes"] == report.to_dict()["recipes"]
        written = json.loads((out / "summary.json").read_text())
        assert written["verdict"] == "transfers"
        assert written["next"] == []
        assert len(written["search"]["rounds"]) == len(report.search.rounds)
        page = (out / "report.html").read_text()
        assert "How the search got there" in page
        assert "a cross and corners about your values" in page

    def test_report_shows_and_next_lists(self, whole, capsys):
        _, _, out = whole
        assert main(["report", str(out)]) == 0
        assert "The recipe transfers along width." in capsys.readouterr().out
        assert main(["next", str(out), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["runs"] == []

    def test_a_budget_ends_it_and_more_goes_on(self, tmp_path):
        bowl = Bowl()
        short = search(bowl, out=tmp_path, values=Auto(runs=30))
        assert len(bowl.trained) <= 30
        assert "the budget is spent" in short.summary()
        step = f"Go on with the search: twice the runs (about {len(bowl.trained)} runs"
        assert f"Next: {step}" in short.summary()
        assert step in (tmp_path / "report.html").read_text()
        assert step in json.loads((tmp_path / "summary.json").read_text())["next"][0]["do"]
        before = len(bowl.trained)
        assert search(bowl, out=tmp_path, values=Auto(runs=400)).verdict is Verdict.TRANSFERS
        keys = [trial.key for trial in bowl.trained]
        assert len(keys) > before
        assert len({*keys}) == len(keys)

    def test_a_budget_below_the_first_round_is_refused(self):
        bowl = Bowl()
        with pytest.raises(ValueError, match="budget of at least 9 runs: the first round is a cro"):
            search(bowl, values=Auto(runs=8))
        assert not bowl.trained


class TestTargets:
    def test_a_recipe_is_predicted(self, tmp_path):
        report = search(Bowl(), out=tmp_path, target={"width": 1024})
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        assert certificate["issued"] is True
        assert [row["value"] for row in certificate["recipe"]][:2] == ["lr", "weight_decay"]
        predicted = report.recipe().target
        assert predicted.log2[0].low <= -8 <= predicted.log2[0].high
        assert "At width 1024 use learning rate" in report.summary()
        assert min(len(own) for own in _seeds(report)) >= 4

    def test_too_far_is_refused_with_what_to_do(self, tmp_path):
        report = search(Bowl(), out=tmp_path, target={"width": 32 * 2**14})
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        assert certificate["issued"] is False
        assert "times the largest that was measured" in certificate["refusals"][0]["reason"]
        assert report.recipe().target is None
        assert "Nothing is predicted." in report.summary()


def _seeds(report):
    by_size = {}
    for run in report.recipe().runs:
        by_size.setdefault(run.size["width"], set()).add(run.seed)
    return by_size.values()


class TestRuns:
    def test_a_run_has_the_key_that_it_has_where_one_value_is_tuned(self):
        model = Custom(name="make", code="1f0c")
        both = Sweep(model=model, design=_resolved(design()))
        alone = Design(
            base={"width": 32}, width=WIDTHS, tune="weight_decay", lrs=2.0**-8, values="auto",
            steps=1, schemes="mup", optimizers="adamw",
        )  # fmt: skip
        one = Sweep(model=model, design=alone)
        (variant,), (same,) = both.design.variants, one.design.variants
        size = both.design.all_sizes[1]
        assert both.run(variant, size, (-8.0, -3.0), 1) == one.run(same, size, -3.0, 1)

    def test_a_design_is_read_back(self):
        made = design(tune=("lr", "dropout"), base={"width": 32, "lr": 0.01, "dropout": 0.1})
        assert Design.from_dict(json.loads(json.dumps(made.to_dict()))) == made
        assert made.to_dict()["tune"] == ["lr", "dropout"]

    def test_one_value_takes_its_start_from_the_base_too(self):
        made = Design(base="width=64 lr=3e-3", width=(64, 128), tune="lr")
        assert made.lrs == Auto(start=3e-3)
        assert dict(made.base) == {"width": 64}

    def test_the_built_in_networks_have_a_multiplier(self):
        made = Design(
            base={"width": 16, "depth": 2, "multiplier": 2.0}, depth=(2, 4), steps=5, seeds=2,
            tune=("lr", "multiplier"), schemes="depth-mup", values=Auto(runs=9),
        )  # fmt: skip
        report = depthmup.transfer(BuiltIn(), made)
        assert report.search.runs == 9
        sweep = Sweep(
            model=BuiltIn(), design=_resolved(made, schemes="depth-mup", optimizers="adam")
        )
        (variant,) = sweep.design.variants
        deep = sweep.run(variant, sweep.design.all_sizes[1], (-6.0, 1.0), 0)
        assert deep.network.multiplier == pytest.approx(2.0 * 2**-0.5)


def _resolved(made, **fields):
    from dataclasses import replace

    start = {one.key: one.start for one in made.tuned}
    usual = {"schemes": "mup", "optimizers": "adamw"}
    return replace(made, **{**usual, **fields}, values=Auto(start={**start, **made.values.start}))


class TestCommands:
    def test_any_placeholder_can_be_tuned(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text(
            "import math, sys\n"
            "lr, dropout, width, seed = map(float, sys.argv[1:5])\n"
            "x, y = math.log2(lr / 0.01), math.log2(dropout / 0.1)\n"
            "print('loss=%.9f' % math.exp(0.1 * x * x + 0.1 * y * y + 0.001 * seed))\n"
        )
        command = f"{sys.executable} -S train.py {{lr}} {{dropout}} {{width}} {{seed}}"
        asked = [
            "transfer", "--command", command, "--loss", r"re:loss=(\S+)", "--tune", "lr,dropout",
            "--base", "width=16,lr=0.02,dropout=0.05", "--widths", "16,32", "--seeds", "2",
            "--budget", "20", "--out", "runs", "--json",
        ]  # fmt: skip
        assert main(asked) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["search"]["rounds"][0]["asked"][0][1] == pytest.approx(
            [math.log2(0.02), math.log2(0.05)], abs=1e-6
        )
        assert told["config"]["tuned"][0] == "The learning rate and the dropout are tuned together."


REFUSED = [
    ({"tune": ("lr", "weight_decay", "multiplier", "init_scale", "one_minus_beta2")}, "at most 4"),
    ({"tune": ("lr", "lr")}, "different values to tune"),
    ({"tune": ("lr", "optimizer")}, "optimizer has none between its choices"),
    ({"tune": ("lr", "width")}, "width is an axis of sizes"),
    ({"tune": ("lr", "batch")}, "the batch of the base, where its search starts"),
    ({"tune": ("lr", "dropout")}, "has its start in the base"),
    ({"base": {"width": 32, "lr": 0.0}}, "the learning rate at the base to be positive"),
    ({"base": {"width": 32, "weight_decay": "much"}}, "Expected a number for weight_decay"),
    ({"lrs": 0.01}, "The learning rate is tuned"),
    ({"lrs": (0.01, 0.02)}, "The learning rate is tuned"),
    ({"values": (0.1, 0.2)}, "or where their search starts; got both"),
    ({"values": (0.1, 0.2), "base": {"width": 32}}, "no grid of values"),
    ({"values": Auto(precision=0.1)}, "the search ends at a verdict"),
    ({"ablate": True}, "what a rule does is measured for one value"),
    ({"schemes": ("mup", "sp")}, "one of the schemes"),
    ({"optimizers": ("adamw", "lion")}, "one of the optimizers"),
    ({"multipliers": (1.0, 2.0)}, "one of the multipliers"),
    ({"weight_decays": 0.1}, "Leave weight_decays out"),
    (
        {"tune": ("weight_decay", "multiplier"), "base": {"width": 32}},
        "Expected one learning rate at the base",
    ),
]


class TestRefusals:
    @pytest.mark.parametrize(("asked", "why"), REFUSED, ids=[why for _, why in REFUSED])
    def test_before_any_training(self, asked, why):
        bowl = Bowl()
        with pytest.raises(ValueError, match=why):
            search(bowl, **asked)
        assert not bowl.trained

    def test_gains_and_several_models(self):
        model = depthmup.Model(train=Bowl(), version="1")
        with pytest.raises(ValueError, match="no variant to compare with"):
            depthmup.transfer(model, design(), over="adamw")
        with pytest.raises(ValueError, match="one model while several values"):
            depthmup.transfer({"old": model, "new": model}, design())

    def test_a_command_without_the_placeholder(self):
        model = depthmup.Model(command="python t.py {lr} {width} {seed}", loss="re:(.+)")
        with pytest.raises(ValueError, match=r"\{weight_decay\} in the command"):
            depthmup.transfer(model, design())

    def test_a_value_that_built_in_networks_have_not(self):
        made = design(
            tune=("lr", "dropout"), base={"width": 16, "depth": 2, "lr": 0.01, "dropout": 0.1},
            width=(16, 32),
        )  # fmt: skip
        with pytest.raises(ValueError, match="values of the built-in networks to tune"):
            depthmup.transfer(BuiltIn(), made)

    def test_reports_of_one_value_refuse_it_by_name(self, whole, tmp_path, capsys):
        _, _, out = whole
        with pytest.raises(ValueError, match="one tuned value for a fit of its folder"):
            depthmup.fit(out)
        assert main(["report", str(out), str(out), "--out", str(tmp_path / "both.html")]) != 0
        assert "one tuned value for a page of several reports" in capsys.readouterr().err
