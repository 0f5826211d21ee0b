"""Several tuned values of a table: answers, refusals, and all that is written of them."""

import json
import math
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import depthmup
from depthmup.records import Verdict
from depthmup.records.finding import rate
from depthmup.reports.recipe_arguments import argument_cells, is_scaled, source_sentence
from depthmup.statistics.recipe import MARGIN

COLUMNS = {"axes": ["width"], "loss": "loss", "seed": "seed"}
TWO = {**COLUMNS, "lr": ["lr", "weight_decay"]}
ROUND = np.array([[0.1, 0.0], [0.0, 0.06]])
RIDGE = 0.08 * np.ones((2, 2))


def runs(curvature=ROUND, drift=(0.0, 0.0), *, noise=0.003, count=30, seed=0, widths=4):
    """A random search over two values at widths from 32 on; best at 2^-8 and 2^-3."""
    rng = np.random.default_rng(seed)
    frames = []
    for i in range(widths):
        x = rng.uniform(-2.5, 2.5, (count, 2))
        away = x - i * np.array(drift)
        y = 1 - 0.1 * i + 0.5 * np.einsum("rj,jk,rk->r", away, curvature, away)
        columns = {"lr": 2.0 ** (x[:, 0] - 8), "weight_decay": 2.0 ** (x[:, 1] - 3)}
        loss = np.exp(y + noise * rng.standard_normal(count))
        frames.append(pd.DataFrame({"width": 32 * 2**i, "seed": 0, **columns, "loss": loss}))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def report():
    return depthmup.fit(runs(), **TWO, target={"width": 1024})


class TestAnswers:
    def test_joint_optima_drifts_and_verdicts(self, report):
        recipe = report.recipe()
        assert [one.key for one in recipe.tuned] == ["lr", "weight_decay"]
        for optimum in (*recipe.optima, recipe.target):
            for estimate, truth in zip(optimum.log2, (-8, -3), strict=True):
                assert estimate.low <= truth <= estimate.high
                assert estimate.value == pytest.approx(truth, abs=0.15)
        assert report.verdict is Verdict.TRANSFERS
        assert set(recipe.along[0].verdicts) == {Verdict.TRANSFERS}
        assert recipe.exponents == ()

    def test_one_value_that_drifts_is_enough(self):
        found = depthmup.fit(runs(drift=(0.0, -0.5)), **TWO).recipe()
        (along,) = found.along
        assert along.verdicts == (Verdict.TRANSFERS, Verdict.DRIFTS)
        assert found.verdict is Verdict.DRIFTS
        assert along.drifts[1].value == pytest.approx(-0.5, abs=0.05)
        assert "weight decay moves by" in along.why

    def test_costs_are_those_of_the_valley(self):
        drift = np.array([0.3, -0.5])
        (along,) = depthmup.fit(runs(drift=drift, seed=1), **TWO).recipe().along
        away = 3 * drift
        whole = np.expm1(0.5 * away @ ROUND @ away)
        assert along.carried.low <= whole <= along.carried.high
        assert along.carried.value == pytest.approx(whole, rel=0.2)
        for cost, each, steep in zip(along.alone, away, np.diag(ROUND), strict=True):
            assert cost.value == pytest.approx(np.expm1(0.5 * steep * each**2), rel=0.25)

    def test_twice_the_best_costs_what_the_curvature_says(self, report):
        recipe = report.recipe()
        for cost, steep in zip(recipe.factor_two, np.diag(ROUND), strict=True):
            assert cost.value == pytest.approx(np.expm1(steep / 2), rel=0.15)

    def test_a_ridge_is_one_combination_and_its_parts_are_free(self):
        found = depthmup.fit(runs(RIDGE), **TWO).recipe()
        assert found.exponents == (1.0, 1.0)
        assert found.combination == "learning rate × weight decay"
        for optimum in found.optima:
            assert optimum.combination.low <= -11 <= optimum.combination.high
            assert optimum.combination.high - optimum.combination.low < 0.6
            assert all(optimum.free)
        (along,) = found.along
        assert set(along.verdicts) == {Verdict.UNDECIDED}
        assert "do not decide the learning rate and the weight decay alone" in along.why

    def test_a_ridge_that_moves_drifts(self):
        found = depthmup.fit(runs(RIDGE, drift=(0.4, 0.4)), **TWO).recipe()
        assert found.verdict is Verdict.DRIFTS
        moved = found.along[0].combination
        assert moved.low <= 0.8 <= moved.high
        assert moved.low > 0.6

    def test_a_value_without_effect_holds_the_other_not_up(self):
        flat = np.diag([0.1, 0.0])
        found = depthmup.fit(runs(flat), **TWO).recipe()
        (along,) = found.along
        assert along.verdicts == (Verdict.TRANSFERS, Verdict.UNDECIDED)
        assert along.carried.high < MARGIN
        assert found.verdict is Verdict.TRANSFERS
        assert "do not decide the weight decay alone. The best learning rate stays" in along.why

    def test_an_edge_is_told(self):
        table = runs()
        found = depthmup.fit(table[table.lr < 2.0**-8.6], **TWO)
        assert all(o.places[0].value == "high edge" for o in found.recipe().optima)
        assert "the best learning rate lies beyond the runs: try higher values" in " ".join(
            str(found).split()
        )

    def test_the_order_of_columns_and_rows_changes_nothing(self, report):
        table = runs().sample(frac=1, random_state=3)
        turned = depthmup.fit(
            table, **{**COLUMNS, "lr": ["weight_decay", "lr"]}, target={"width": 1024}
        )
        for one, other in zip(report.recipe().optima, turned.recipe().optima, strict=True):
            for a, b in zip(one.log2, other.log2[::-1], strict=True):
                assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high), abs=2e-3)

    def test_one_column_in_a_list_is_that_column(self):
        table = runs().groupby(["width", "lr"], as_index=False).first()
        table = table[["width", "lr", "loss"]]
        one = {"axes": ["width"], "loss": "loss"}
        alone = depthmup.fit(table, lr="lr", **one).to_dict()
        assert depthmup.fit(table, lr=["lr"], **one).to_dict() == alone

    def test_two_axes_have_a_drift_each(self):
        wide, deep = runs(drift=(0.4, 0.0)), runs(drift=(0.0, 0.0), seed=1)
        deep = deep.assign(depth=deep.width // 4, width=32)
        table = pd.concat([wide.assign(depth=8), deep[deep.depth > 8]])
        found = depthmup.fit(table, **{**TWO, "axes": ["width", "depth"]}).recipe()
        by_axis = {along.axis: along for along in found.along}
        assert by_axis["width"].verdict is Verdict.DRIFTS
        assert by_axis["depth"].verdict is Verdict.TRANSFERS

    def test_groups_have_a_recipe_each(self):
        table = pd.concat([runs().assign(arch="old"), runs(drift=(0.5, 0)).assign(arch="new")])
        found = depthmup.fit(table, **TWO, by="arch")
        verdicts = {one.title: one.verdict for one in found.recipes}
        assert verdicts == {"new": Verdict.DRIFTS, "old": Verdict.TRANSFERS}


class TestRefusals:
    def refused(self, table, match, **more):
        with pytest.raises(ValueError, match=match):
            depthmup.fit(table, **{**TWO, **more})

    def test_a_value_that_never_varies(self):
        self.refused(runs().assign(weight_decay=0.1), "weight decay to vary.*0.1 alone. Vary it")

    def test_a_value_that_differs_between_sizes_alone(self):
        table = runs()
        self.refused(table.assign(weight_decay=1 / table.width), "differs between sizes alone")

    def test_values_that_vary_only_together(self):
        table = runs()
        self.refused(
            table.assign(weight_decay=3 * table.lr**2), "'lr' and 'weight_decay' vary only together"
        )

    def test_more_values_than_runs_can_tell(self):
        self.refused(runs(count=3), "at least 19 runs that end.*got 12")

    def test_more_than_four_values(self):
        table = runs().assign(a=1, b=2, c=3)
        self.refused(table, "at most 4 values", lr=["lr", "weight_decay", "a", "b", "c"])

    def test_a_column_that_is_not_there(self):
        self.refused(runs(), "momentum", lr=["lr", "momentum"])

    def test_a_column_twice(self):
        self.refused(runs(), "different columns", lr=["lr", "lr"])

    def test_names_that_are_not_as_many(self):
        reading = depthmup.tables.Reading(tuned="rate, decay, clip")
        self.refused(runs(), "a name for each of lr, weight_decay", reading=reading)

    def test_a_value_that_is_not_positive_is_left_out_with_its_reason(self):
        table = runs()
        table.loc[3, "weight_decay"] = 0.0
        found = depthmup.fit(table, **TWO)
        reasons = found.to_pandas("excluded").reason.tolist()
        assert reasons == ["weight_decay is not positive"]

    def test_runs_that_differ_in_a_second_value_are_no_repeats(self):
        table = runs()
        table["lr"] = 2.0 ** np.round(np.log2(table.lr))
        assert len(depthmup.fit(table, **TWO).recipe().runs) == len(table)

    def test_other_questions_about_one_value(self):
        self.refused(runs(), "without a gain", over="old")

    def test_a_certificate_is_scored_for_one_value(self):
        forecast = depthmup.fit(
            runs().drop(columns="weight_decay"), lr="lr", **COLUMNS, target={"width": 2048}
        ).certificates[0]
        both = {"lr": ["lr", "weight_decay"], "loss": "loss"}
        with pytest.raises(ValueError, match="one column of the tuned value"):
            depthmup.score(forecast, runs(), **both)
        with pytest.raises(ValueError, match="one column of the tuned value"):
            depthmup.next_runs(runs(), axes={"width": "width"}, sizes={"width": (32, 64)}, **both)


class TestWritten:
    @pytest.mark.parametrize("width", [60, 80, 100])
    def test_it_fits_a_terminal(self, report, width):
        lines = report.summary(width).splitlines()
        assert max(map(len, lines)) <= max(width, 80)
        assert max(len(line) for line in lines if " " in line and "  " not in line) <= width
        for said in ("width 1024 (predicted, 90%)", "learning rate", "weight decay", "transfers"):
            assert said in " ".join(" ".join(lines).split())

    def test_sizes_have_a_legend_where_the_screen_is_wide_too(self, report):
        _, _, after = report.page.partition("Faint: every run.")
        first = after.partition("<figure")[0]
        assert "sizes" in first
        assert "width 1024" not in first  # of which there are no runs
        assert "width 64" in first

    def test_text_json_frames_and_page(self, report, tmp_path):
        text = str(report)
        assert text.startswith("The recipe transfers along width. At width 1024 use learning rate")
        assert "width 1024 (predicted, 90%)" in text
        report.save(tmp_path)
        saved = json.loads((tmp_path / "summary.json").read_text())
        assert saved["verdict"] == "transfers"
        assert saved["recipes"][0]["tuned"] == ["lr", "weight_decay"]
        assert len(report.to_pandas("optima")) == 2 * 5
        assert report.to_pandas("drifts").value.tolist() == ["lr", "weight_decay", "recipe"]
        assert len(report.to_pandas("runs")) == 120
        page = (tmp_path / "report.html").read_text()
        assert "The plane of learning rate and weight decay" in page
        with pytest.raises(ValueError, match="optima, drifts, runs, rules, excluded"):
            report.to_pandas("points")

    def test_rules_of_the_best_batch_are_not_judged_where_the_batch_is_one_number(self):
        """As of one tuned value: they are for other runs."""
        table = runs().rename(columns={"width": "tokens"}).assign(batch=64)
        rules = depthmup.fit(table, **{**TWO, "axes": ["tokens"]}).to_pandas("rules")
        answers = rules.set_index(["value", "rule"]).answer
        assert answers["lr", "Step Law"] == "for the best batch"
        assert answers["lr", "HyperP"] == "rejected"

    def test_a_cost_without_bound_is_said_in_words(self):
        from depthmup.records import Estimate
        from depthmup.reports.recipe import _percent
        from depthmup.statistics.recipe import _cost

        far = _cost(np.linspace(0.01, 2000, 1000))
        assert far.high == math.inf
        assert _percent(far).endswith(": it may diverge")
        assert _percent(Estimate(value=0.2, low=0.1, high=0.3)) == "20% (10% to 30%)"

    def test_saving_leaves_no_certificate_of_an_earlier_measurement(self, report, tmp_path):
        (tmp_path / "certificate.json").write_text("{}")
        written = report.save(tmp_path, formats={"svg"})
        assert {path.name for path in written} == {path.name for path in tmp_path.iterdir()}
        assert "certificate.json" not in {path.name for path in written}
        assert (tmp_path / "plane.svg").read_text().startswith("<svg")

    def test_the_plane_shows_every_run_and_every_size(self, report):
        spec = report.plot().to_dict()
        rows = [len(values) for values in spec["datasets"].values()]
        assert max(rows) > 120
        assert 120 in rows
        assert 4 in rows

    def test_contours_have_one_height(self, report):
        recipe = report.recipe()
        for contour, optimum in zip(recipe.contours, recipe.optima, strict=True):
            best = [log2.value for log2 in optimum.log2]
            away = np.array(contour.points) - best
            height = 0.5 * np.einsum("rj,jk,rk->r", away, ROUND, away)
            assert np.expm1(height) == pytest.approx(recipe.raised, rel=0.3)

    def test_the_command(self, tmp_path):
        runs().to_csv(tmp_path / "runs.csv", index=False)
        command = [sys.executable, "-m", "depthmup", "fit", "runs.csv", "--axes", "width"]
        command += ["--lr", "lr,weight_decay", "--loss", "loss", "--seed", "seed", "--out", "out"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("The recipe transfers along width.")
        assert (tmp_path / "out" / "report.html").is_file()
        done = subprocess.run(
            [*command[:-2], "--json"], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert json.loads(done.stdout)["recipes"][0]["name"] == ""

    def test_a_notebook_has_cards_the_arguments_and_the_plane(self, report):
        shown = report._repr_html_()
        assert "The recipe along width" in shown
        lr, decay = (rate(2.0**log2.value) for log2 in report.recipe().target.log2)
        assert f"lr={lr}, weight_decay={decay}" in shown
        assert shown.count("<svg") == 1
        assert "<script" not in shown

    def test_a_notebook_without_a_recipe_shows_the_text(self):
        assert depthmup.recipes.RecipeReport(recipes=())._repr_html_() is None


LEANT = np.array([[0.1, 0.04, 0.0], [0.04, 0.08, 0.03], [0.0, 0.03, 0.09]])


class TestThreeValues:
    @pytest.fixture(scope="class")
    def three(self):
        rng, frames = np.random.default_rng(6), []
        for i in range(3):
            x = rng.uniform(-2.5, 2.5, (60, 3))
            y = 1 - 0.1 * i + 0.5 * np.einsum("rj,jk,rk->r", x, LEANT, x)
            loss = np.exp(y + 0.002 * rng.standard_normal(60))
            columns = dict(zip(("lr", "weight_decay", "clip"), 2.0**x.T, strict=True))
            frames.append(pd.DataFrame({"width": 32 * 2**i, "seed": 0, **columns, "loss": loss}))
        return depthmup.fit(
            pd.concat(frames),
            **{**TWO, "lr": ["lr", "weight_decay", "clip"]},
            target={"width": 256},
        )

    def test_contours_of_a_pair_have_one_height_with_the_other_at_its_best(self, three):
        recipe = three.recipe()
        assert [line.pair for line in recipe.contours] == [
            pair for pair in ((0, 1), (0, 2), (1, 2)) for _ in recipe.optima
        ]
        best = {o.size["width"]: [e.value for e in o.log2] for o in recipe.optima}
        for line in recipe.contours:
            pair, (other,) = list(line.pair), {0, 1, 2} - {*line.pair}
            seen = LEANT[np.ix_(pair, pair)] - (
                np.outer(LEANT[pair, other], LEANT[other, pair]) / LEANT[other, other]
            )
            away = np.array(line.points) - np.array(best[line.size["width"]])[pair]
            height = 0.5 * np.einsum("rj,jk,rk->r", away, seen, away)
            assert np.expm1(height) == pytest.approx(recipe.raised, rel=0.3)

    def test_every_pair_has_a_plane(self, three, tmp_path):
        titles = ["Learning rate and weight decay", "Learning rate and clip"]
        titles.append("Weight decay and clip")
        assert [panel["title"]["text"] for panel in three.plot().to_dict()["concat"]] == [
            [title] for title in titles
        ]
        three.plot(tmp_path / "planes.svg")
        assert (tmp_path / "planes.svg").read_text().startswith("<svg")
        page = three.page
        assert "The planes of all pairs" in page
        assert all(title in page for title in titles)
        assert "values of the clip" not in page


class TestArguments:
    @pytest.fixture(scope="class")
    def under(self):
        return depthmup.fit(runs(), **TWO, scheme="mup", target={"width": 1024}).recipe()

    def test_the_plan_takes_them_as_they_are(self, under):
        import torch
        from torch import nn

        def make(width):
            return nn.Sequential(nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 2))

        model = make(64)
        inputs = torch.zeros(4, 8)
        plan = depthmup.plan(model, base=make(16), scheme="mup", example_inputs=inputs)
        told = under.arguments()
        assert told == {
            "lr": 2.0 ** under.target.log2[0].value,
            "weight_decay": 2.0 ** under.target.log2[1].value,
        }
        groups = {tuple(g["param_names"]): g for g in plan.param_groups(model, **told)}
        hidden = next(g for names, g in groups.items() if "1.weight" in names)
        assert hidden["lr"] == pytest.approx(told["lr"] / 4)
        assert hidden["weight_decay"] == pytest.approx(told["weight_decay"] * 4)
        assert "the base's times 4 (law m_in, m_in = 4) for 1 parameter" in plan.explain(
            "weight_decay"
        )
        assert "times 0.25 (law m_in^-1" in plan.explain("lr")
        assert plan.explain("betas").splitlines() == [
            "betas: left alone.", "Source: TP5 (arXiv 2203.03466) Table 8; microsoft/mup 1.0.0."
        ]  # fmt: skip

    def test_values_of_no_scheme_are_those_of_a_size_that_is_named(self, report):
        recipe = report.recipe()
        with pytest.raises(ValueError, match=r"size whose values are wanted.*width 32"):
            recipe.arguments()
        assert recipe.arguments({"width": 32})["lr"] == 2.0 ** recipe.optima[0].log2[0].value
        assert recipe.arguments({"width": 1024})["lr"] == 2.0 ** recipe.target.log2[0].value
        with pytest.raises(ValueError, match=r"one of the sizes width 32; .*got .*33"):
            recipe.arguments({"width": 33})

    def test_what_no_optimizer_takes_is_named(self):
        table = runs().rename(columns={"weight_decay": "multiplier"})
        found = depthmup.fit(table, **{**TWO, "lr": ["lr", "multiplier"]}, scheme="depth-mup")
        with pytest.raises(ValueError, match=r"multiplier = 0\.1.* is none.*out='multiplier'"):
            found.recipe().arguments()
        assert {*found.recipe().arguments(leave_out="multiplier")} == {"lr"}
        assert "no optimizer takes it" in str(found)

    @pytest.mark.parametrize(
        ("column", "told"),
        [
            ("one_minus_beta2", {"betas": (0.9, 0.875)}),
            ("one_minus_beta1", {"betas": (0.875, 0.999)}),
            ("one_minus_momentum", {"momentum": 0.875}),
            ("epsilon", {"eps": 0.125}),
            ("wd", {"weight_decay": 0.125}),
        ],
    )
    def test_names_that_people_have(self, column, told):
        table = runs().rename(columns={"weight_decay": column})
        found = depthmup.fit(table, **{**TWO, "lr": ["lr", column]}).recipe()
        values = found.arguments({"width": 32})
        assert {*values} == {"lr", *told}
        for name, truth in told.items():
            assert values[name] == pytest.approx(truth, abs=0.015)

    def test_the_report_says_what_the_scheme_scales(self, under, report):
        rows = {row["value"]: row for row in argument_cells(under)}
        assert rows["learning rate"]["with size"] == "muP scales it"
        assert rows["learning rate"]["argument"] == f"lr={rate(2.0 ** under.target.log2[0].value)}"
        assert "arXiv 2203.03466" in source_sentence(under)
        rows = {row["value"]: row for row in argument_cells(report.recipe())}
        assert rows["weight decay"]["with size"] == "as the runs of width 1024 had it"
        assert "For a plan take those of its base" in str(report).replace("\n", " ")

    @pytest.mark.parametrize(
        ("scheme", "key", "scaled"),
        [
            ("mup", "lr", True), ("mup", "multiplier", False), ("depth-mup", "multiplier", True),
            ("mup", "one_minus_beta2", False), ("complete-dp", "one_minus_beta2", True),
            ("sp", "lr", False), ("mup", "cooldown", False), ("mup", "init_scale", True),
        ],
    )  # fmt: skip
    def test_what_schemes_scale(self, scheme, key, scaled):
        assert is_scaled(depthmup.rules.scheme(scheme), depthmup.records.tuned(key), "") is scaled


class TestRules:
    def judged(self, report):
        rows = report.to_pandas("rules").to_dict("records")
        return {(row["value"], row["rule"]): row for row in rows}

    def test_every_value_is_judged_by_its_own_rules(self, report):
        found = self.judged(report)
        assert found["lr", "one rate for all widths"]["answer"] == "consistent"
        assert found["lr", "one over the width"]["answer"] == "rejected"
        decay = found["weight_decay", "decay as the width"]
        assert (decay["exponent"], decay["answer"]) == (1.0, "rejected")
        assert "arXiv 2405.13698" in decay["source"]
        # Three octaves up a parabola, within what the shape is known to.
        truth = np.expm1(0.5 * 0.06 * 3**2)
        assert decay["cost_low"] <= truth <= decay["cost_high"]
        assert decay["cost"] == pytest.approx(truth, rel=0.15)
        text = " ".join(str(report).split())
        assert "Weight decay, decay as the width (width^1): rejected. Following it costs" in text
        costs = re.findall(r"[\d.]+(?=%)", text.partition("Following it costs")[2].splitlines()[0])
        assert costs
        assert all(len(cost.replace(".", "").lstrip("0")) <= 3 for cost in costs), costs
        assert "Published rules" in report.page

    def test_a_decay_that_grows_with_the_width_agrees_with_its_rule(self):
        found = self.judged(depthmup.fit(runs(drift=(0.0, 1.0), widths=3), **TWO))
        assert found["weight_decay", "decay as the width"]["answer"] == "consistent"
        assert found["weight_decay", "decay as the width"]["cost"] < 0.01
        assert found["lr", "one rate for all widths"]["answer"] == "consistent"

    def test_under_a_scheme_the_values_are_its_bases_and_stay(self):
        found = self.judged(depthmup.fit(runs(drift=(0.0, -0.5)), **TWO, scheme="mup"))
        assert {rule for _, rule in found} == {"muP"}
        assert found["lr", "muP"]["answer"] == "consistent"
        assert found["weight_decay", "muP"]["answer"] == "rejected"

    def test_a_value_that_is_not_bounded_judges_no_rule(self):
        found = self.judged(depthmup.fit(runs(np.diag([0.1, 0.0])), **TWO))
        assert found["weight_decay", "decay as the width"]["answer"] == "cannot tell"

    def test_a_column_that_changes_with_the_axis_judges_no_rule(self):
        table = runs()
        table["batch_size"] = table.width
        found = depthmup.fit(table, **TWO)
        assert found.to_pandas("rules").empty
        assert "batch_size changes with width" in str(found).replace("\n", " ")

    def test_the_best_batch_grows_with_the_tokens(self):
        columns = {"width": "tokens", "weight_decay": "batch_size"}
        table = runs(drift=(0.3, 0.57), widths=3).rename(columns=columns)
        asked = {"axes": ["tokens"], "lr": ["lr", "batch_size"], "loss": "loss", "seed": "seed"}
        found = self.judged(depthmup.fit(table, **asked))
        assert found["batch_size", "Step Law"]["answer"] == "consistent"
        assert found["batch_size", "Step Law"]["exponent"] == pytest.approx(0.571)
        assert found["lr", "Step Law"]["answer"] == "consistent"  # of runs at their best batch
