"""What a table is read as, cleaned to, and asked: small tables whose answers are known."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from pytest import approx

import depthmup
from depthmup.records import Answer, Defect, Place, Verdict
from depthmup.records.certificate import Lack
from depthmup.rules import RUN_RULES, RunLaws, rules_of
from depthmup.sweep import StoreError
from depthmup.tables import Reading, example
from depthmup.tables.where import parse_filter


def table(*, exponents, sizes, noise=0.004, base=-6.0, seeds=(0,), **constant):
    """Runs whose best log2 rate is linear in log2 of the sizes."""
    rng = np.random.default_rng(0)
    rows = []
    for values in sizes:
        named = dict(zip(exponents, values, strict=True))
        best = base + sum(e * np.log2(named[a]) for a, e in exponents.items())
        for rate in 2.0 ** (np.round(best) + np.arange(-4, 4.1)):
            for seed in seeds:
                valley = 0.07 * (np.log2(rate) - best) ** 2 + noise * rng.standard_normal()
                loss = (2 + 1 / np.log2(4 * np.prod(values))) * np.exp(valley)
                rows.append({**named, "lr": rate, "seed": seed, "loss": loss, **constant})
    return pd.DataFrame(rows)


def fitted(runs, axes, **asked):
    return depthmup.fit(runs, axes=axes, lr="lr", loss="loss", **asked)


DEPTH = table(exponents={"depth": -0.5}, sizes=[(d,) for d in (1, 2, 4, 8, 16)])


class TestReading:
    @pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
    def test_every_format_gives_one_answer(self, suffix, tmp_path):
        path = tmp_path / f"runs{suffix}"
        if suffix == ".parquet":
            pytest.importorskip("pyarrow")
            DEPTH.to_parquet(path)
        elif suffix == ".jsonl":
            DEPTH.to_json(path, orient="records", lines=True, double_precision=15)
        else:
            DEPTH.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
        here = fitted(DEPTH, ["depth"]).exponent("depth")
        there = fitted(path, ["depth"]).exponent("depth")
        assert there.value == approx(here.value, abs=1e-6)
        assert there.high == approx(here.high, abs=1e-6)

    def test_a_frame_is_left_as_it_is(self):
        before = DEPTH.copy()
        fitted(DEPTH, ["depth"])
        pd.testing.assert_frame_equal(DEPTH, before)

    def test_sizes_may_have_a_letter_for_millions_and_billions(self, tmp_path):
        numbers = table(exponents={"parameters": -0.5}, sizes=[(n * 1e8,) for n in (1, 4, 16, 64)])
        named = {1e8: "100M", 4e8: "0.4B", 16e8: " 1.6b", 64e8: "6400M"}
        letters = numbers.assign(parameters=numbers.parameters.map(named))
        here, there = fitted(numbers, ["parameters"]), fitted(letters, ["parameters"])
        assert there.finding().drift == here.finding().drift
        assert there.finding().optima == here.finding().optima
        some = fitted(letters, ["parameters"], where="parameters <= 1.6B and parameters != 400M")
        assert [o.size["parameters"] for o in some.finding().optima] == [1e8, 16e8]
        with pytest.raises(ValueError, match="Write it out"):  # milli or million?
            fitted(letters.assign(lr=[f"{1e3 * lr:g}m" for lr in letters.lr]), ["parameters"])

    def test_nested_json_is_flattened(self, tmp_path):
        path = tmp_path / "runs.jsonl"
        rows = [
            {"config": {"depth": r.depth, "lr": r.lr}, "summary": {"loss": r.loss}}
            for r in DEPTH.itertuples()
        ]
        path.write_text("\n".join(map(json.dumps, rows)))
        report = depthmup.fit(
            path, axes={"depth": "config.depth"}, lr="config.lr", loss="summary.loss"
        )
        assert report.verdict is Verdict.DRIFTS

    def test_an_empty_cell_is_missing_and_nan_has_diverged(self, tmp_path):
        path = tmp_path / "runs.csv"
        runs = DEPTH.astype({"loss": object})
        runs.loc[0, "loss"] = ""  # of the smallest rate
        runs.loc[8, "loss"] = "nan"  # of the largest
        runs.to_csv(path, index=False)
        report = fitted(path, ["depth"])
        assert [row.row for row in report.excluded] == [1]
        told = {f.defect: f.count for f in report.notes()}
        assert told[Defect.MISSING] == told[Defect.DIVERGED] == 1

    def test_nan_in_a_frame_diverged_above_the_best_rate_and_is_missing_below(self):
        runs = DEPTH.copy()
        runs.loc[8::9, "loss"] = np.nan  # the largest rate of every size
        runs.loc[18, "loss"] = np.nan  # the smallest one of one
        told = {f.defect: f.count for f in fitted(runs, ["depth"]).notes()}
        assert told[Defect.DIVERGED] == 5
        assert told[Defect.MISSING] == 1

    def test_the_report_survives_its_file(self, tmp_path):
        report = fitted(DEPTH, ["depth"], target={"depth": 32})
        report.save(tmp_path)
        again = depthmup.load(tmp_path)
        assert again.to_dict() == report.to_dict()
        assert again.summary() == report.summary()
        assert again.page == report.page
        (tmp_path / "summary.json").write_text("{}")
        with pytest.raises(StoreError, match="cannot be read"):
            depthmup.load(tmp_path)


class TestFilters:
    def test_a_filter_is_parsed_and_not_evaluated(self):
        first, second = parse_filter("`my lr` <= 0.1 and name in (a, 'b c')")
        assert (first.column, first.operator, first.values) == ("my lr", "<=", ("0.1",))
        assert second.values == ("a", "b c")
        assert second.of(["a", "b", "b c"]).tolist() == [True, False, True]

    @pytest.mark.parametrize(
        "text",
        ["", "a", "a ==", "== 1", "a == 1 or b == 2", "a in 1", "a in (1", "a == (1)", "a b"],
    )
    def test_what_is_no_filter_is_refused(self, text):
        with pytest.raises(ValueError, match="in the filter"):
            parse_filter(text)

    def test_numbers_are_compared_as_numbers(self):
        report = fitted(DEPTH, ["depth"], where="depth > 1.5 and depth != 16.0")
        assert [o.size["depth"] for o in report.finding().optima] == [2, 4, 8]

    def test_groups_are_variants(self):
        other = table(exponents={"depth": 0.0}, sizes=[(d,) for d in (1, 2, 4, 8)])
        runs = pd.concat([DEPTH.assign(kind="a"), other.assign(kind="b")])
        report = fitted(runs, ["depth"], by="kind")
        verdicts = report.verdicts
        assert verdicts == {"kind a": Verdict.DRIFTS, "kind b": Verdict.TRANSFERS}

    def test_one_edge_of_many_sizes_that_contradicts_stops_no_verdict(self):
        """One has its optimum eight times too high, beyond its grid: of 24 sizes, and of 6."""

        def off(sizes):
            runs = table(exponents={"batch": 0.5, "tokens": -0.25}, sizes=sizes, base=-1)
            at = (runs.batch == 32) & (runs.tokens == 4e9)
            best = runs[at].groupby("lr").loss.mean().idxmin()
            runs.loc[at, "lr"] *= 8
            return runs[~(at & (runs.lr > 4 * best))]

        many = off([(b, t) for b in (8, 16, 32, 64, 128, 256) for t in (1e9, 4e9, 16e9, 64e9)])
        few = off([(b, t) for b in (16, 32, 64) for t in (1e9, 4e9)])
        found = fitted(many, ["batch", "tokens"]).finding(axis="batch")
        assert found.verdict is Verdict.DRIFTS
        assert "At batch 32 the optimum lies at an edge of the grid, or beyond." in found.why
        assert found.drift.value == approx(0.5, abs=0.15)
        doubtful = fitted(few, ["batch", "tokens"]).finding(axis="batch")
        width = found.drift.high - found.drift.low
        assert doubtful.drift.high - doubtful.drift.low > 1.2 * width

    def test_a_group_that_cannot_be_fitted_says_why_and_the_others_are(self):
        runs = pd.concat([DEPTH.assign(kind="a"), DEPTH[DEPTH.depth == 4].assign(kind="b")])
        report = fitted(runs, ["depth"], by="kind")
        assert "two sizes" in report.finding("kind b").why
        assert "two sizes" in report.summary()
        assert report.scheme() == "kind a"


GRID = [(b, t) for b in (32, 64, 128) for t in (1e9, 4e9, 16e9)]


class TestQuestions:
    def test_slices_hold_the_other_axes(self):
        runs = table(exponents={"batch": 0.5, "tokens": -0.25}, sizes=GRID, base=-1, wd=0.1)
        report = fitted(runs, ["batch", "tokens"], reading=Reading(tuned="rate"))
        batch, tokens = (report.finding(axis=axis) for axis in ("batch", "tokens"))
        assert batch.drift.value == approx(0.5, abs=0.03)
        assert tokens.drift.value == approx(-0.25, abs=0.03)
        assert batch.question == "the best rate against batch, at fixed tokens, wd unchanged"
        assert len(batch.slices) == 3
        joint = {s.axis: s.estimate.value for s in report.law().exponents}
        assert joint == approx({"batch": 0.5, "tokens": -0.25}, abs=0.03)

    @pytest.mark.parametrize(
        ("steps", "words"), [(1000, "at fixed steps"), ("tokens", "at fixed tokens")]
    )
    def test_steps_tell_what_was_held_as_the_batch_grew(self, steps, words):
        runs = table(exponents={"batch": 0.3}, sizes=[(b,) for b in (32, 64, 128, 256)], base=-8)
        runs["steps"] = 1000 if steps == 1000 else 2**20 // runs.batch
        report = fitted(runs, ["batch"], steps="steps")
        assert words in report.finding().question

    def test_without_steps_it_says_that_this_is_not_known(self):
        runs = table(exponents={"batch": 0.3}, sizes=[(b,) for b in (32, 64, 128)], base=-8)
        report = fitted(runs, ["batch"])
        assert any("is not known" in note.text for note in report.notes())
        assert report.rules() == ()

    def test_tokens_of_a_value_for_every_size_are_seen(self):
        """Of few runs a size such a column has too many values for a setting."""
        sizes = [(2.0**k * 1e7,) for k in range(8)]
        runs = table(exponents={"parameters": -0.25}, sizes=sizes, base=-2)
        runs = runs[runs.groupby("parameters").cumcount().between(1, 7)]
        report = fitted(runs.assign(tokens=20 * runs["parameters"] + 3), ["parameters"])
        assert any("tokens changes with parameters" in note.text for note in report.notes())
        assert report.rules() == ()

    @pytest.mark.parametrize(
        ("column", "told"),
        [("n_layers", True), ("seq_len", True), ("weight_decay", True), ("n_heads", False)],
    )
    def test_other_columns_that_move_the_best_rate_too_are_told(self, column, told):
        runs = table(exponents={"width": -0.25}, sizes=[(w,) for w in (64, 128, 256, 512)])
        report = fitted(runs.assign(**{column: runs["width"] // 32}), ["width"])
        said = any(f"{column} changes with width" in note.text for note in report.notes())
        assert said is told
        assert (report.rules() == ()) is told

    @pytest.mark.parametrize("grows", [True, False])
    def test_a_batch_that_grows_with_the_sizes_unnamed_is_told(self, grows):
        runs = table(exponents={"width": -0.25}, sizes=[(w,) for w in (64, 128, 256, 512)])
        runs["batch_size"] = runs["width"] // 4 if grows else 16
        report = fitted(runs, ["width"])
        texts = [note.text for note in report.notes()]
        told = "batch_size changes with width: a drift may be its doing, so no published rule"
        assert any(told in text for text in texts) is grows
        assert (report.rules() == ()) is grows

    def test_axes_that_change_together_but_not_in_step_are_told_apart(self):
        """Shapes of one budget: wide and shallow, narrow and deep. A line along one misleads."""
        sizes = [(80, 256), (3, 768), (50, 1536), (12, 3072), (24, 512)]
        planted = {"depth": -0.5, "width": -0.5}
        report = fitted(table(exponents=planted, sizes=sizes, base=4), ["depth", "width"])
        assert not any("change together" in note.text for note in report.notes())
        for axis, slope in planted.items():
            found = report.finding(axis=axis)
            assert found.together == ()
            assert found.drift.low <= slope <= found.drift.high
            assert found.drift.value == approx(slope, abs=0.1)
            assert "from the law of all axes" in found.why
            assert len(found.optima) == len(sizes)
        three = fitted(table(exponents=planted, sizes=sizes[:3], base=4), ["depth", "width"])
        assert not three.finding(axis="width").drift.known
        assert three.finding(axis="width").verdict == "undecided"
        assert (
            "Depth changes too, and not in step. Vary width alone."
            in three.finding(axis="width").why
        )

    def test_a_size_at_an_edge_that_changes_one_axis_alone_is_on_no_slice_of_both(self):
        sizes = [(d, 64 * d) for d in (1, 2, 4, 8)]
        planted = {"depth": -0.25, "width": -0.25}
        diagonal = table(exponents=planted, sizes=sizes)
        beside = table(exponents=planted, sizes=[(8, 64)])
        edge = beside[beside["lr"] <= beside.loc[beside["loss"].idxmin(), "lr"] / 2]
        report = fitted(pd.concat([diagonal, edge]), ["depth", "width"])
        found = report.finding(axis="depth")
        assert found.together == ("depth", "width")
        assert [o.size["width"] for o in found.optima] == [64, 128, 256, 512]
        alone = fitted(diagonal, ["depth", "width"]).finding(axis="depth").drift
        # Its runs say something of the valley's shape.
        assert found.drift.value == approx(alone.value, abs=0.01)

    def test_axes_that_always_change_together_cannot_be_told_apart(self):
        sizes = [(d, 64 * d) for d in (1, 2, 4, 8)]
        runs = table(exponents={"depth": -0.25, "width": -0.25}, sizes=sizes)
        report = fitted(runs, ["depth", "width"])
        texts = " ".join(note.text for note in report.notes())
        assert "Depth and width always change together" in texts
        named = fitted(runs.rename(columns={"depth": "N", "width": "D"}), ["N", "D"])
        assert any("N and D always change together" in note.text for note in named.notes())
        measured = report.finding()
        assert measured.together == ("depth", "width")
        assert "while width change" in measured.question
        assert measured.drift.value == approx(-0.5, abs=0.05)
        assert report.rules() == ()
        assert not any(s.estimate.known for s in report.law().exponents)

    def test_a_law_of_axes_that_change_together_names_no_unknown_numbers(self):
        runs = table(exponents={"depth": -0.5}, sizes=[(d,) for d in (1, 2, 4, 8, 16)])
        runs["tokens"] = 20 * runs.depth
        text = fitted(runs, ["depth", "tokens"]).summary()
        assert "All axes at once, per doubling: depth and tokens not told apart." in text
        assert "unknown" not in text

    def test_a_setting_that_follows_the_axis_is_told(self):
        runs = DEPTH.assign(weight_decay=0.1 / DEPTH.depth)
        question = fitted(runs, ["depth"]).finding().question
        assert question.endswith("while weight_decay change too")

    def test_an_exponent_that_changes_is_told(self):
        runs = []
        for depth in (1, 2, 4, 8, 16, 32):
            x = np.log2(depth)
            one = table(exponents={"depth": 0.0}, sizes=[(depth,)], base=-3 - 0.1 * x - 0.1 * x**2)
            runs.append(one)
        bend = fitted(pd.concat(runs), ["depth"]).finding().bend
        assert bend.low <= -0.2 <= bend.high < 0


class TestCleaning:
    def told(self, runs, **asked):
        report = fitted(runs, ["depth"], **asked)
        return report, {note.defect: note for note in report.notes() if note.defect}

    def test_duplicates(self):
        report, told = self.told(pd.concat([DEPTH, DEPTH.iloc[:3]]), seed="seed")
        assert told[Defect.DUPLICATE].count == 3
        assert [row.row for row in report.excluded] == [len(DEPTH) + i for i in (1, 2, 3)]

    def test_a_run_with_two_losses_is_averaged(self):
        again = DEPTH.iloc[[5]].assign(loss=DEPTH.loss[5] * 1.01)
        report, told = self.told(pd.concat([DEPTH, again]), seed="seed")
        assert told[Defect.REPEATED].count == 2
        assert not report.excluded

    def test_runs_cut_short(self):
        runs = DEPTH.assign(steps=500)
        runs.loc[[4, 17], "steps"] = 130
        runs.loc[[4, 17], "loss"] *= 1.3
        report, told = self.told(runs, steps="steps")
        assert {row.row for row in report.excluded} == {5, 18}
        assert "130 steps" in report.excluded[0].reason
        assert told[Defect.SHORT].count == 2

    def test_a_rate_beyond_any_sense(self):
        stray = DEPTH.iloc[[7]].assign(lr=3e4, loss=2.2)
        report, told = self.told(pd.concat([DEPTH, stray]))
        assert told[Defect.RATE].count == 1
        assert report.exponent("depth").value == approx(-0.5, abs=0.03)

    def test_a_rate_of_one_with_a_loss_near_zero(self):
        """As published tables have it; it would be the "optimum" of its size."""
        runs = DEPTH.copy()
        runs.loc[runs.index[-1], ["lr", "loss"]] = [1.0, 0.0003]
        report, told = self.told(runs)
        assert [row.row for row in report.excluded] == [len(runs)]
        assert Defect.IMPOSSIBLE in told

    def test_a_size_whose_losses_go_below_zero_is_left_out_whole(self):
        """The rates above zero that remain would show an edge far from its optimum."""
        runs = DEPTH.copy()
        last = runs.depth == 16
        runs.loc[last, "loss"] -= runs.loc[last, "loss"].quantile(0.6)
        report, _ = self.told(runs)
        assert {row.row - 1 for row in report.excluded} == set(runs.index[last])
        assert {o.size["depth"] for o in report.finding().optima} == {1, 2, 4, 8}
        # One alone is a slip of the table.
        runs = DEPTH.copy()
        runs.loc[runs.index[-1], "loss"] = -2.0
        report, _ = self.told(runs)
        assert [row.row for row in report.excluded] == [len(runs)]

    def test_one_number_that_marks_failed_runs_costs_no_size(self):
        runs = DEPTH.copy()
        failed = runs.groupby("depth").lr.rank(method="dense", ascending=False) <= 2
        runs.loc[failed, "loss"] = -1.0
        report, told = self.told(runs)
        assert told[Defect.IMPOSSIBLE].count == failed.sum()
        assert {row.row - 1 for row in report.excluded} == set(runs.index[failed])
        assert {o.size["depth"] for o in report.finding().optima} == {1, 2, 4, 8, 16}

    def test_an_optimum_at_an_edge_is_a_bound(self):
        runs = DEPTH[(DEPTH.depth != 16) | (DEPTH.lr > 2.0**-8.2)]
        report, told = self.told(runs)
        assert told[Defect.EDGE].count == 1
        last = report.finding().optima[-1]
        assert last.log2_lr.low == -np.inf
        assert "the optimum lies at an edge of the grid, or beyond" in report.finding().why
        assert report.exponent("depth").value == approx(-0.5, abs=0.03)

    def test_an_edge_that_contradicts_the_law_is_no_transfer(self):
        """Four optima agree; at depth 16 it lies an octave above its grid, three above theirs."""
        other = table(exponents={"depth": 0.0}, sizes=[(1,), (2,), (4,), (8,)])
        far = table(exponents={"depth": 0.0}, sizes=[(16,)], base=-2)
        far = far[far.lr <= 2.0**-3]
        measured = fitted(pd.concat([other, far]), ["depth"]).finding()
        assert measured.verdict is not Verdict.TRANSFERS
        assert "depth 16" in measured.why
        # Least squares of 0, 0, 0, 0 and 4 over five doublings.
        assert measured.drift.low < 0.8
        assert measured.drift.high > 0.6

    def test_tokens_that_are_counted_otherwise(self):
        runs = table(exponents={"batch": 0.5, "tokens": -0.25}, sizes=GRID, base=-1)
        runs["steps"] = runs.tokens / runs.batch / 1024
        off = (runs.batch == 64) & (runs.tokens == 4e9)
        runs.loc[off, "tokens"] *= 4
        report = fitted(runs, ["batch", "tokens"], steps="steps")
        assert {row.row - 1 for row in report.excluded} == set(runs.index[off])
        assert report.excluded[0].defect is Defect.UNIT

    @pytest.mark.parametrize("unit", [2**7, 2**10])
    def test_a_batch_in_tokens_among_sequences(self, unit):
        runs = table(exponents={"batch": 0.5, "tokens": -0.3}, sizes=GRID, base=6)
        largest = runs.batch.max()

        def told():
            notes = fitted(runs, ["batch", "tokens"]).study().notes
            return [n.text for n in notes if n.defect is Defect.UNIT]

        assert not told()
        runs["batch"] = runs.batch.where(runs.batch < largest, largest * unit)
        [text] = told()
        assert f"and {largest * unit} lies a factor of {2 * unit:.3g} without runs" in text

    def test_tokens_are_compared_where_steps_are_named(self):
        """One number of tokens four times too large is seen by no other column."""
        runs = table(exponents={"batch": 0.5, "tokens": -0.3}, sizes=GRID, base=6)
        runs["max_steps"] = runs.tokens / runs.batch
        most = runs.tokens.max()
        runs["tokens"] = runs.tokens.where(runs.tokens < most, 4 * most)
        told = [n.text for n in fitted(runs, ["batch", "tokens"]).study().notes]
        assert any("name the column of steps, --steps max_steps" in text for text in told)
        report = fitted(runs, ["batch", "tokens"], steps="max_steps")
        told = [n.text for n in report.study().notes]
        assert any("otherwise than batch x steps x length" in text for text in told)
        assert not any("--steps" in text for text in told)

    def test_rates_of_one_seed_alone_make_an_optimum_less_certain(self):
        runs = table(exponents={"depth": -0.5}, sizes=[(d,) for d in (1, 2, 4, 8)], seeds=range(3))
        lone = (runs.depth == 4) & (runs.seed > 0) & (runs.lr < runs.lr[runs.depth == 4].max())
        widths = []
        for asked in (runs, runs[~lone]):
            report = fitted(asked, ["depth"], seed="seed", target={"depth": 16})
            best = report.study().headline.transfers[0].optima[2].log2_lr
            widths.append(best.high - best.low)
            assert report.certificates[0].issued
        assert widths[1] > 0.9 * widths[0]

    def test_an_edge_that_one_seed_alone_reaches_counts(self):
        sizes = [(d,) for d in (1, 2, 4, 8, 16)]
        runs = table(exponents={"depth": -0.5}, sizes=sizes, seeds=range(3))
        last, lowest = runs.depth == 16, runs.lr == runs.lr[runs.depth == 16].min()
        asked = {"seed": "seed", "target": {"depth": 32}}
        one = runs[~last | (((runs.seed == 0) | lowest) & (np.log2(runs.lr) < -8.1))]
        [certificate] = fitted(one, ["depth"], **asked).certificates
        assert certificate.issued
        assert certificate.predicted.low < -8.5 < certificate.predicted.high
        # Where the others have no run there at all, every size counts as of one seed.
        [certificate] = fitted(
            one[(one.depth < 16) | (one.seed == 0)], ["depth"], **asked
        ).certificates
        assert certificate.seeds == 1

    def test_optima_at_edges_decide_a_clear_drift(self):
        """Five rates a size are enough, though most of their optima are bounds."""
        runs = table(exponents={"depth": -0.5}, sizes=[(d,) for d in (1, 2, 4, 8, 16)])
        best = -6 - 0.5 * np.log2(runs.depth)
        report = fitted(runs[(runs.depth == 4) | (np.log2(runs.lr) > best - 0.6)], ["depth"])
        found = report.finding()
        assert found.verdict is Verdict.DRIFTS
        assert found.drift.low < -0.5 < found.drift.high

    def test_a_clean_table_has_no_findings(self):
        report, told = self.told(DEPTH)
        assert told == {}
        assert report.excluded == ()


class TestRules:
    def test_every_rule_has_a_source_and_a_standing(self):
        assert len({rule.name for rule in RUN_RULES}) == len(RUN_RULES)
        for rule in RUN_RULES:
            assert (
                rule.exponents or rule.beside != RunLaws()
            )  # of the rate, or of settings beside it
            assert rule.source
            assert rule.reach
            assert rule.setting
            for stated in rule.exponents.values():
                assert (stated.low is None) == (stated.high is None)
                assert stated.low is None or stated.low < stated.value < stated.high

    def test_batch_at_fixed_steps_moves_tokens_too(self):
        [rule] = [r for r in rules_of("batch") if r.name == "HyperP"]
        assert float(rule.along("batch", fixed="tokens")) == 0.5
        assert float(rule.along("batch", fixed="steps")) == approx(0.18)
        assert rule.along("batch") is None

    def test_the_true_rule_is_consistent_and_others_are_rejected(self):
        runs = table(exponents={"batch": 0.5, "tokens": -0.5}, sizes=GRID, base=6)
        judged = {(j.rule, j.axis): j for j in fitted(runs, ["batch", "tokens"]).rules()}
        own = judged["Complete(d)P", "batch"]
        assert own.answer is Answer.CONSISTENT
        assert judged["one rate for all batches", "batch"].answer is Answer.REJECTED
        assert own.cost.value < 0.01 < judged["one rate for all batches", "batch"].cost.low

    def test_a_rule_for_the_best_batch_is_not_judged_where_the_batch_is_held(self):
        """Step Law's rate rises with tokens at the batch that is best for them, by its own law.

        At a held batch the same law of the optimum may fall with tokens: the two agree.
        """
        runs = table(exponents={"batch": 0.5, "tokens": -0.5}, sizes=GRID, base=6)
        judged = {(j.rule, j.axis): j for j in fitted(runs, ["batch", "tokens"]).rules()}
        held = judged["Step Law", "tokens"]
        assert held.answer is Answer.ELSEWHERE
        assert held.cost.known
        # Where a table has no batch, each of its runs may have had its best.
        alone = runs[runs.batch == runs.batch.min()].drop(columns="batch")
        answers = {j.rule: j.answer for j in fitted(alone, ["tokens"]).rules()}
        assert answers["Step Law"] is Answer.REJECTED
        # A column of one batch, a filter or groups by batch say that it was held.
        one, picked = runs[runs.batch == 32], {"where": "batch == 32"}
        for of, asked in ((one, {}), (runs, picked), (runs, {"by": "batch"})):
            rules = fitted(of, ["tokens"], **asked).rules()
            assert {j.answer for j in rules if j.rule == "Step Law"} == {Answer.ELSEWHERE}

    def test_columns_named_as_in_the_field_have_their_rules(self):
        runs = table(exponents={"batch": 0.5, "tokens": -0.5}, sizes=GRID, base=6)
        here = fitted(runs, ["batch", "tokens"]).rules()
        named = runs.rename(columns={"batch": "bs", "tokens": "D"})
        there = fitted(named, ["bs", "D"]).rules()
        assert [(j.rule, j.answer) for j in there] == [(j.rule, j.answer) for j in here]
        assert {j.axis for j in there} == {"bs", "D"}
        # d may be a width, and is nobody's tokens.
        assert not fitted(runs.rename(columns={"tokens": "d"}), ["batch", "d"]).rules()

    def test_under_a_scheme_the_drift_beyond_it_is_judged(self):
        runs = table(exponents={"batch": 0.0, "tokens": 0.0}, sizes=GRID)
        judged = {
            (j.rule, j.axis): j
            for j in fitted(runs, ["batch", "tokens"], scheme="complete-dp").rules()
        }
        assert judged["Complete(d)P", "tokens"].exponent == 0
        assert judged["Complete(d)P", "tokens"].answer is Answer.CONSISTENT
        runs = table(exponents={"depth": 0.0}, sizes=[(d,) for d in (1, 2, 4, 8)])
        [only] = fitted(runs, ["depth"], scheme="completep").rules()
        assert (only.rule, only.exponent, only.answer) == ("CompleteP", 0, Answer.CONSISTENT)

    def test_the_cost_of_a_wrong_exponent_is_that_of_the_valley(self):
        judged = {j.rule: j for j in fitted(DEPTH, ["depth"]).rules()}
        wrong = judged["one rate for all depths"]
        best = fitted(DEPTH, ["depth"]).finding().optima[-1].loss.value
        # Four doublings at -1/2 are two octaves: 0.07 x 4 of log loss.
        assert wrong.cost.value == approx(best * np.expm1(0.28), rel=0.1)


def test_the_prediction_and_the_span_of_published_rules():
    runs = table(exponents={"batch": 0.5, "tokens": -0.25}, sizes=GRID, base=-1)
    report = fitted(runs, ["batch", "tokens"], target={"batch": 256, "tokens": 64e9})
    [certificate] = report.certificates
    assert certificate.issued
    truth = -1 + 0.5 * 8 - 0.25 * np.log2(64e9)
    assert certificate.predicted.low <= truth <= certificate.predicted.high
    rates = [rule.rate for rule in certificate.rules]
    assert max(rates) / min(rates) > 8
    frame = report.to_pandas("predictions")
    assert frame.rule[0] == "these runs"


def test_a_target_beyond_reach_is_refused_with_reasons():
    report = fitted(DEPTH, ["depth"], target={"depth": 4096})
    [certificate] = report.certificates
    assert not certificate.issued
    assert "more than 16 times" in report.summary()


def test_a_flat_valley_is_kept_and_counts_little():
    """One seed: steep kinks beside it show no scatter of runs, only what a parabola misses."""
    runs = pd.DataFrame(
        [(b, 2.0**k) for b in 2.0 ** np.arange(4, 10) for k in np.arange(-8, 3, 0.5)],
        columns=["batch", "lr"],
    )
    away = np.log2(runs.lr) + 6 - np.log2(runs.batch) / 2
    runs["loss"] = np.exp(np.where(runs.batch > 32, 0.15 * abs(away), 0.004 * away**2))
    [certificate] = fitted(runs, ["batch"], target={"batch": 1024}).certificates
    assert [o.size["batch"] for o in certificate.optima] == [16, 32, 64, 128, 256, 512]
    assert certificate.issued
    assert certificate.predicted.low <= -1 <= certificate.predicted.high


def test_two_values_of_an_axis_suffice():
    """Beyond them the interval is wider."""
    sizes = [(d, w) for d in (1, 2, 4, 8, 16) for w in (64, 128)]
    runs = table(exponents={"depth": -0.5, "width": 0.2}, sizes=sizes)
    widths = []
    for width in (128, 512):
        [certificate] = fitted(
            runs, ["depth", "width"], target={"depth": 32, "width": width}
        ).certificates
        assert certificate.issued
        widths.append(certificate.predicted.high - certificate.predicted.low)
    assert widths[0] < widths[1]


def test_a_bound_at_the_nearest_size_that_contradicts_the_law_widens_the_forecast():
    """The grid of depth 16 ends below its best rate: the law's 2^-8, or three octaves above it."""
    last = DEPTH.depth == 16
    widths = []
    for octaves in (0.0, 3.0):
        edge = DEPTH[last & (DEPTH.lr < 2.0**-8.2)]
        edge = edge.assign(lr=edge.lr * 2.0**octaves)
        runs = pd.concat([DEPTH[~last], edge])
        [certificate] = fitted(runs, ["depth"], target={"depth": 32}).certificates
        widths.append(certificate.predicted.high - certificate.predicted.low)
    assert widths[1] > 1.5 * widths[0]


def test_a_prediction_takes_in_a_size_at_an_edge_that_agrees():
    """The grid of depth 16 ends above its best rate, 2^-8: the valley of the others leads on."""
    runs = DEPTH[(DEPTH.depth != 16) | (DEPTH.lr > 2.0**-7.8)]
    [certificate] = fitted(runs, ["depth"], target={"depth": 32}).certificates
    assert certificate.optima[-1].size == {"depth": 16}
    assert certificate.optima[-1].place is Place.LOW_EDGE
    p = certificate.predicted
    assert p.low <= -8.5 <= p.high
    # Without it the law reaches as far from depth 8.
    [without] = fitted(DEPTH[DEPTH.depth != 16], ["depth"], target={"depth": 32}).certificates
    assert p.high - p.low < without.predicted.high - without.predicted.low


def test_the_table_that_ships(tmp_path):
    report = depthmup.fit(
        example(), axes={"depth": "n_layers"}, lr="lr", loss="final_loss", seed="seed", by="scheme"
    )
    verdicts = report.verdicts
    assert verdicts["scheme depth-mup"] is Verdict.TRANSFERS
    assert verdicts["scheme sp"] is Verdict.DRIFTS
    report.plot(tmp_path / "optima.svg")
    assert (tmp_path / "optima.svg").read_text().startswith("<svg")
    for kind in ("points", "optima", "transfers", "rules", "laws", "notes", "excluded"):
        assert isinstance(report.to_pandas(kind), pd.DataFrame)
    assert len(report.to_pandas("optima")) == 15
    assert "<svg" in report._repr_html_()
    assert "1 size (32) has the best rate at an edge of the grid: a bound." in report.summary()


def test_many_undecided_groups_get_one_answer():
    """Half of twelve models are undecided; together they drift, and the report says so first."""
    rng = np.random.default_rng(2)
    rows = [
        (f"model {m}", rank, 2.0**k, float(np.exp(0.1 * (k + 4 - 0.35 * np.log2(rank) - at) ** 2)))
        for m in range(12)
        for rank in (1, 4, 16)
        for at in [0.6 * rng.standard_normal()]
        for k in np.arange(-9.0, 5.0)
    ]
    table = pd.DataFrame(rows, columns=["model", "rank", "lr", "loss"])
    table["loss"] *= np.exp(0.2 * rng.standard_normal(len(table)))
    report = depthmup.fit(table, axes=["rank"], lr="lr", loss="loss", by="model")
    alone = [report.finding(name).verdict for name in report.schemes]
    assert sum(verdict is Verdict.UNDECIDED for verdict in alone) >= 6
    together = report.across_groups("rank")
    assert together.mean.low > 0.15
    assert together.mean.low < 0.35 < together.mean.high
    first = str(report).splitlines()[0]
    assert first.startswith("All 12 groups together: the best learning rate drifts, +")
    assert len(first) <= 100
    assert first.removesuffix(".") in report.page
    [summed] = report.to_dict()["together"]
    assert summed["verdict"] == "drifts"
    assert summed["drift"]["estimate"] == together.mean.value
    assert "Decide" not in str(report)  # one group, where all are decided
    # Of twelve groups what all share is said once, and rules are judged by all together.
    assert str(report).count("One run for each rate") == 1
    judged = {rule.rule: rule.answer for rule in report.study("rank").rules if not rule.scheme}
    assert judged["muA, B at zero"] is Answer.REJECTED
    assert str(report).count("muA, B at zero") == 1


def test_a_prediction_whose_base_is_at_an_edge_names_no_breakdown():
    """No size with an optimum inside has the base's batch: there is nothing to compare."""
    runs = table(exponents={"batch": 0.5}, sizes=[(n,) for n in (16, 32, 64, 128, 256)])
    runs = runs[(runs.batch != 16) | (runs.lr > 2.0**-3.8)]
    [certificate] = fitted(runs, ["batch"], target={"batch": 512}).certificates
    assert certificate.issued
    assert certificate.optima[0].place is Place.LOW_EDGE


def test_axes_that_no_slice_tells_apart_have_no_next_step():
    """One size's optimum lies at an edge, so that no two show which axes change together."""
    sizes = [(4, 64), (8, 128)]
    runs = table(exponents={"depth": 0.0, "width": 0.0}, sizes=sizes)
    runs = runs[(runs.depth == 4) | (runs.lr > 2.0**-5.8)]
    text = fitted(runs, ["depth", "width"]).summary()
    assert "No two sizes differ in depth alone." in text
    assert "Next" not in text


def test_the_same_seed_twice_is_no_second_seed():
    runs = table(exponents={"depth": -0.5}, sizes=[(d,) for d in (1, 2, 4, 8)], seeds=(7, 8))
    report = fitted(runs.assign(seed=7), ["depth"], seed="seed")
    told = " ".join(note.text for note in report.notes())
    assert "repeat a run of the same size, rate and seed with another loss. Averaged." in told
    assert "Seeds are not repeated over rates" not in told
    assert "Only one seed" in report.finding().why


def test_the_order_of_rows_changes_nothing():
    """More seeds than a curve has columns are averaged in groups, by their names."""
    runs = table(exponents={"depth": -0.5}, sizes=[(d,) for d in (1, 2, 4)], seeds=range(20))
    here, there = (
        fitted(rows, ["depth"], seed="seed", target={"depth": 8})
        for rows in (runs, runs.sample(frac=1, random_state=0))
    )
    pd.testing.assert_frame_equal(here.to_pandas("optima"), there.to_pandas("optima"))
    assert here.drift.high == approx(there.drift.high, rel=1e-9)


def test_the_law_of_one_axis_has_its_drift():
    """Sizes beside a divergence counted less in the one than in the other, on one grid of rates."""
    runs = table(exponents={"depth": 0.0}, sizes=[(d,) for d in (1, 2, 4, 8, 16)], noise=0.02)
    walls = {2: -5.5, 8: -5.5}
    runs["loss"] = runs.loss.where(np.log2(runs.lr) < runs.depth.map(walls).fillna(0.0), np.inf)
    report = fitted(runs, ["depth"])
    law, drift = report.law().exponents[0].estimate, report.drift
    assert (law.low, law.value, law.high) == approx((drift.low, drift.value, drift.high), abs=1e-9)


def test_groups_whose_axes_change_together_are_not_pooled_with_others():
    """Three groups grow in depth alone, by no drift; in three the width, with one, grows too."""
    alone = table(exponents={"depth": 0.0}, sizes=[(d,) for d in (1, 2, 4, 8)], width=64)
    both = table(exponents={"depth": -1.0}, sizes=[(d,) for d in (1, 2, 4, 8)])
    both["width"] = 64 * both.depth
    runs = pd.concat(
        part.assign(model=f"{name} {i}", loss=part.loss * (1 + 0.001 * (i + part.depth % 3)))
        for name, part in (("alone", alone), ("both", both))
        for i in range(3)
    )
    together = fitted(runs, ["depth", "width"], by="model").across_groups("depth")
    assert together.groups == 3
    assert together.verdict is Verdict.TRANSFERS
    assert together.mean.value == approx(0.0, abs=0.05)


def test_a_certificate_of_axes_that_change_together_has_their_drift():
    """Half of it was given to each, though no size shows the slope of one alone."""
    runs = table(exponents={"depth": -0.8}, sizes=[(d,) for d in (1, 2, 4, 8, 16)])
    report = fitted(runs.assign(width=64 * runs.depth), ["depth", "width"])
    certificate = report.certificate({"depth": 32, "width": 2048})
    (slope,) = certificate.slopes  # two would read as if they added up
    assert slope.along == "per doubling of depth with width"
    assert slope.estimate.low < -0.8 < slope.estimate.high
    assert certificate.verdict is report.verdict is Verdict.DRIFTS


@pytest.mark.parametrize("rungs", [(4, 6, 11, 17), (4, 6, 11)])
def test_a_ladder_of_whole_layers_is_in_step(rungs):
    """Few rungs fix no slope of each axis, and need none on their line."""
    runs = table(exponents={"depth": -0.8}, sizes=[(d,) for d in rungs])
    width = {d: 64 * 2**i for i, d in enumerate(rungs)}
    report = fitted(runs.assign(width=runs.depth.map(width)), ["depth", "width"])
    assert [study.axis for study in report.studies] == ["depth"]
    exponents = [slope.estimate for law in report.study().laws for slope in law.exponents]
    assert len(exponents) == 2 * (len(rungs) > 3)
    assert not any(exponent.known for exponent in exponents)
    with pytest.raises(
        ValueError, match="It grew in step with depth, whose study is of all that did"
    ):
        report.study("width")
    largest = width[rungs[-1]]
    on = report.certificate({"depth": round(rungs[-1] * 1.6), "width": 2 * largest})
    (slope,) = on.slopes
    assert slope.estimate.low < -0.8 < slope.estimate.high
    beside = report.certificate({"depth": 4 * rungs[-1], "width": 2 * largest})
    assert [r.lack for r in beside.refusals] == [Lack.DIRECTION]


@pytest.mark.parametrize("named", [False, True])
def test_a_run_that_was_logged_twice_is_no_seed(named):
    once = fitted(DEPTH, ["depth"]).exponent("depth")
    again = DEPTH.assign(loss=DEPTH["loss"] * (1 + 1e-5), seed=1)
    report = fitted(pd.concat([DEPTH, again]), ["depth"], seed="seed" if named else "")
    assert report.exponent("depth").high == approx(once.high, abs=1e-9)
    notes = " ".join(note.text for note in report.notes())
    assert f"{len(again)} runs end like another one of the same size and rate" in notes
    assert ("as if the seed were not applied" in notes) is named


def test_two_sizes_inside_their_grids_are_no_axes_in_step():
    """Others vary each axis alone, with their optima at an edge."""
    runs = table(
        exponents={"batch": 1.0, "steps": 1.0},
        sizes=[(1, 4), (2, 4), (4, 4), (2, 2), (2, 8)],
        base=-9,
    )
    runs = runs[runs["lr"] >= 2.0**-6]  # only the two largest are inside
    report = fitted(runs, ["batch", "steps"])
    assert [study.axis for study in report.studies] == ["batch", "steps"]
    assert not any("change together" in note.text for note in report.notes())
    # Optima at an edge count as bounds, and the law of the others leads on.
    assert report.exponent("batch").value == approx(1.0, abs=0.2)


def test_the_best_loss_is_no_higher_than_the_lowest_run():
    """But for noise; at an edge it is that of the run there."""
    rates = np.arange(-12.0, 0)
    rows = [(w, 2.0**k, 2 + 0.3 * abs(k + 6.3)) for w in (1, 2, 4) for k in rates]  # a kink
    runs = pd.DataFrame([*rows, *((8, 2.0**k, 3 + 0.1 * k) for k in rates)])
    runs.columns = ["width", "lr", "loss"]
    lowest = runs.groupby("width")["loss"].min()
    for optimum in fitted(runs, ["width"]).finding().optima:
        low = lowest[optimum.width]
        assert optimum.loss.value <= (low if optimum.place.at_edge else 1.02 * low)


def test_few_repeats_of_a_rate_are_told():
    some = DEPTH[DEPTH["depth"] == 4].iloc[:3]
    runs = pd.concat([DEPTH, some.assign(loss=some["loss"] * 1.01)])
    notes = [note.text for note in fitted(runs, ["depth"]).notes()]
    assert any("3 runs repeat the size and rate of another. Averaged" in text for text in notes)


def crossed(rng, slope, product, *, scatter=0.03):
    """Runs of tokens x batches whose slope along tokens changes with the batch."""
    rows = []
    for d, tokens in enumerate((1e9, 2e9, 4e9, 8e9, 16e9)):
        for b, batch in enumerate((32, 64, 128, 256, 512, 1024)):
            best = -8 + slope * (d - 2) + product * (d - 2) * (b - 2.5) + 0.3 * (b - 2.5)
            best += scatter * rng.standard_normal()
            for k in np.arange(-15.0, -1.0):
                loss = np.exp(0.05 * (k - best) ** 2 + 0.003 * rng.standard_normal())
                rows.append((tokens, batch, 2.0**k, float(loss)))
    return pd.DataFrame(rows, columns=["tokens", "batch", "lr", "loss"])


def along_tokens(table):
    report = depthmup.fit(table, axes=["tokens", "batch"], lr="lr", loss="loss")
    return report.finding(axis="tokens")


def test_a_drift_that_depends_on_another_axis_is_told_and_is_no_transfer():
    """From -0.25 octaves per doubling at the least batch to +0.25 at the most, zero in the middle.

    One slope for all slices took these differences for the scatter of sizes.
    """
    found = along_tokens(crossed(np.random.default_rng(0), 0.0, 0.1))
    change = found.interactions["batch"]
    assert change.low < 0.1 < change.high
    assert change.low > 0.05
    assert found.drift.low < 0 < found.drift.high
    assert found.drift.high - found.drift.low < 0.15
    assert found.verdict is Verdict.UNDECIDED
    assert "The drift with tokens depends on batch: per doubling of batch" in found.why
    at = re.search(r"It is −(\d+)% at batch 32 and \+(\d+)% at batch 1024\.", found.why)
    lows, highs = (-math.log2(1 - int(at[1]) / 100), math.log2(1 + int(at[2]) / 100))
    assert (lows, highs) == (approx(0.25, abs=0.05), approx(0.25, abs=0.05))


def test_a_rule_that_holds_at_some_values_of_another_axis_alone_is_left_open():
    """Of the drifts from -0.25 to 0.25 the middle one would reject what holds at the ends."""
    table = crossed(np.random.default_rng(0), 0.0, 0.1)
    report = depthmup.fit(table, axes=["tokens", "batch"], lr="lr", loss="loss")
    spoken = [r for r in report.rules() if r.axis == "tokens" and r.answer is not Answer.ELSEWHERE]
    answers = {r.exponent: r.answer.value for r in spoken}
    near = [e for e in answers if 0.2 < abs(e) < 0.35]
    far = [e for e in answers if abs(e) > 0.5]
    assert near
    assert far
    assert {answers[e] for e in near} == {"cannot tell"}
    assert {answers[e] for e in far} == {"rejected"}
    assert "Published rules along tokens, at every batch:" in report.summary()


def test_slices_of_one_slope_show_no_interaction():
    """95% intervals of what is zero, less three standard errors of 30 tables."""
    rng, tables = np.random.default_rng(1), 30
    found = [along_tokens(crossed(rng, 0.0, 0.0)) for _ in range(tables)]
    silent = np.mean([not f.interactions["batch"].outside(0.0, 0.0) for f in found])
    assert silent > 0.95 - 3 * math.sqrt(0.95 * 0.05 / tables)
    assert all(f.verdict is Verdict.TRANSFERS or "depends" in f.why for f in found)


def test_a_slice_whose_optima_all_lie_at_one_edge_says_nothing_of_the_slope():
    """The least batch has its optima below the grid: a bound for its level, whatever the slope."""
    table = crossed(np.random.default_rng(2), 0.0, 0.0)
    found = along_tokens(table[(table.batch > 32) | (table.lr > 2.0**-7.5)])
    assert {o.place for o in found.optima if o.size["batch"] == 32} == {Place.LOW_EDGE}
    assert found.verdict is Verdict.TRANSFERS


def test_groups_are_called_by_words_and_named_numbers():
    runs = pd.concat(
        DEPTH.assign(optimizer=name, wd=wd, lr=DEPTH["lr"] * by)
        for name, wd, by in (("adamw", 0.1, 1), ("adamw", 0.2, 1), ("lion", 0.1, 0.1))
    )
    report = fitted(runs, ["depth"], by=["optimizer", "wd"])
    titles = [transfer.title for transfer in report.study().headline.transfers]
    assert titles == ["adamw, wd 0.1", "adamw, wd 0.2", "lion, wd 0.1"]


def test_groups_have_a_band_each_from_their_own_start():
    from depthmup.reports.charts import transfer_section

    runs = pd.concat(
        DEPTH.assign(optimizer=name, lr=DEPTH["lr"] * by)
        for name, by in (("adamw", 1), ("lion", 9))
    )
    study = fitted(runs, ["depth"], by=["optimizer"]).study()
    plot = transfer_section(study).plots[0]
    bands = [layer for layer in plot.chart.layers if layer.mark == "area"]
    starts = {row["scheme"]: row["value"] for layer in bands for row in layer.rows}
    first = {t.scheme: 2.0 ** t.optima[0].log2_lr.value for t in study.headline.transfers}
    assert starts == approx(first)


def test_an_unnamed_column_is_told_also_where_sizes_are_renamed():
    """Sizes closer than half a percent are one, called as most of its rows are."""
    runs = table(exponents={"tokens": -0.3}, sizes=[(n,) for n in (1000, 2000, 4000, 8000)])
    near = runs["tokens"] == 8000
    runs.loc[near, "tokens"] = np.where(np.arange(near.sum()) < 4, 8000, 8010)
    runs["batch"] = runs["tokens"].round(-3)
    runs.loc[runs.index[near][5:], "loss"] = np.nan
    report = fitted(runs.assign(loss=runs["loss"].astype(object)), ["tokens"])
    assert any("batch changes with tokens" in note.text for note in report.notes())


def test_a_copy_of_an_axis_confounds_nothing():
    runs = table(exponents={"width": -0.25}, sizes=[(w,) for w in (64, 128, 256, 512)])
    report = fitted(runs.assign(d_model=runs["width"]), ["width"])
    assert not any("d_model" in note.text for note in report.notes())
    assert report.rules()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_run_that_diverged_beside_one_that_ended_is_another_seed(reverse):
    again = DEPTH.assign(loss=np.inf)
    runs = pd.concat([DEPTH, again] if not reverse else [again, DEPTH])
    assert fitted(runs, ["depth"]).excluded == ()


def test_groups_in_which_another_setting_changes_judge_no_rule_together():
    def group(name, slope, decays):
        runs = table(exponents={"width": slope}, sizes=[(w,) for w in (64, 128, 256, 512)])
        return runs.assign(group=name, weight_decay=runs["width"] / 640 if decays else 0.1)

    runs = pd.concat([group("g0", 0.0, False), *(group(f"g{i}", -1.0, True) for i in range(1, 7))])
    rules = fitted(runs, ["width"], by=["group"]).rules()
    assert {rule.scheme for rule in rules} == {"group g0"}


@pytest.mark.parametrize("away", [0.0, 11.4])
def test_a_size_whose_own_optimum_the_fit_contradicts_is_noted(away):
    rng = np.random.default_rng(0)
    rows = [
        (depth, 2.0 ** (best + k), seed, math.exp(0.5 + 0.1 * k**2 + 0.05 * rng.standard_normal()))
        for depth, best in ((8, -6), (16, -6), (32, -6), (64, -6 + away))
        for k in range(-2, 3)
        for seed in range(2)
    ]
    runs = pd.DataFrame(rows, columns=["depth", "lr", "seed", "loss"])
    notes = depthmup.fit(runs, axes=["depth"], lr="lr", loss="loss", seed="seed").study().notes
    far = [note.text for note in notes if note.defect is Defect.FAR]
    assert len(far) == (away > 0)
    assert all("of size depth 64 is 4" in text and "its own runs" in text for text in far)
