"""Batch and steps as tuned values: runs of whole numbers, their price, and ends that are said."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

import depthmup
from depthmup.cli.main import main
from depthmup.records import LEARNING_RATE, Place, Trial
from depthmup.records.tuned import COUNTS
from depthmup.statistics.recipe_search import CROSS, FurtherRuns, Narrowing, RecipeSearch
from depthmup.statistics.search import Ask
from depthmup.sweep import Auto, BuiltIn, Design
from depthmup.sweep.resolution import resolved_sweep
from depthmup.sweep.strategy import SearchState, recipe_search_of
from depthmup.sweep.study import claims_of

WIDTHS = (32, 64, 128)
TOKENS = 6400
RATE, BATCH = 2.0**-8, 48.0


class Valley:
    """Trains in words: a parabola of the rate, and of the batch or the steps."""

    def __init__(self, better):
        self.better, self.trained = better, []

    def __call__(self, trial):
        self.trained.append(trial)
        x = math.log2(trial.lr / RATE)
        place = [trial.seed, trial.size["width"], round(1000 * x) % 2**32, trial.steps]
        noise = 0.002 * np.random.default_rng(place).standard_normal()
        last = math.exp(1 + 0.05 * x * x + self.better(trial) + noise)
        return [last] * trial.steps


def about_a_batch(trial):
    return 0.05 * math.log2(trial.size["batch"] / BATCH) ** 2


def larger_is_better(trial):
    return -0.1 * math.log2(trial.size["batch"])


def longer_is_better(trial):
    return -0.1 * math.log2(trial.steps)


def asked(*names, **fields):
    usual = {"width": WIDTHS, "tune": ("lr", *names), "seeds": 2}
    return Design(**{**usual, **fields})


TOKENS_FIXED = {"width": 32, "tokens": TOKENS, "lr": 2.0**-7.5, "batch": 32}
STEPS_FIXED = {"width": 32, "lr": 2.0**-7.5, "batch": 32}


def trained(better, design, **model):
    valley = Valley(better)
    return depthmup.transfer(depthmup.Model(train=valley, version="1", **model), design), valley


@pytest.fixture(scope="module")
def at_fixed_tokens():
    return trained(about_a_batch, asked("batch", base=TOKENS_FIXED))


@pytest.fixture(scope="module")
def at_fixed_steps():
    design = asked("batch", base=STEPS_FIXED, steps=20)
    return trained(larger_is_better, design, cost=lambda size: size["width"] * size["batch"])


@pytest.fixture(scope="module")
def of_any_length():
    return trained(longer_is_better, asked("steps", base={"width": 32, "lr": 2.0**-8}, steps=40))


class TestBatchAtFixedTokens:
    def test_its_optimum_is_found(self, at_fixed_tokens):
        report, _ = at_fixed_tokens
        for optimum in report.recipe().optima:
            low, high = (2.0**end for end in (optimum.log2[1].low, optimum.log2[1].high))
            assert low <= BATCH <= high
            assert high < 4 * low

    def test_runs_see_the_same_tokens(self, at_fixed_tokens):
        _, valley = at_fixed_tokens
        assert len({trial.size["batch"] for trial in valley.trained}) > 4
        for trial in valley.trained:
            batch = trial.size["batch"]
            assert isinstance(batch, int)
            assert trial.steps == max(1, round(TOKENS / batch))

    def test_a_batch_may_be_all_tokens_and_no_more(self):
        design = asked("batch", base=TOKENS_FIXED)
        assert design.most(COUNTS["batch"]) == TOKENS
        assert design.run_size(design.base, (-8.0, math.log2(TOKENS)))[1] == 1

    def test_what_is_fixed_is_said(self, at_fixed_tokens):
        report, _ = at_fixed_tokens
        assert report.config["tuned"] == [
            "The learning rate and the batch are tuned together. All runs of a size see the same "
            "tokens: twice the batch takes half the steps."
        ]

    def test_rules_of_the_best_batch_are_judged_along_tokens(self):
        design = asked("batch", base=TOKENS_FIXED, width=(32,), tokens=(TOKENS, 2 * TOKENS))
        design = replace(design, schemes="mup", optimizers="adamw")
        (variant,) = design.variants
        assert any(c.exponent for c in claims_of(design, variant, "tokens", COUNTS["batch"]))
        of_rate = list(claims_of(design, variant, "tokens", LEARNING_RATE))
        assert of_rate
        assert not any(claim.elsewhere for claim in of_rate)
        held = Design(
            base={"width": 32, "batch": 32, "tokens": TOKENS}, tokens=(TOKENS, 2 * TOKENS),
            schemes="mup", optimizers="adamw",
        )  # fmt: skip
        of_rate = claims_of(held, held.variants[0], "tokens", LEARNING_RATE)
        assert any(claim.elsewhere for claim in of_rate)


def one_is_best(trial):
    return 0.1 * math.log2(trial.size["batch"])


class TestEdges:
    def test_a_batch_of_one_is_no_edge(self):
        """Where the best batch lies below one, one is the least there is."""
        report, valley = trained(one_is_best, asked("batch", base={**TOKENS_FIXED, "batch": 4}))
        text = report.summary()
        assert min(trial.size["batch"] for trial in valley.trained) == 1
        assert all(o.places[1] is Place.LOW_EDGE for o in report.recipe().optima)
        assert "batch 1." in " ".join(text.split("\n\n")[0].split())
        assert "batch = 1" in text
        assert "try lower values" not in text

    def test_no_batch_is_beyond_the_first_cross_where_it_costs(self, at_fixed_steps):
        _, valley = at_fixed_steps
        assert max(t.size["batch"] for t in valley.trained) == 32 * 2**CROSS

    def test_the_edge_is_said_and_not_extrapolated(self, at_fixed_steps):
        report, _ = at_fixed_steps
        recipe, text = report.recipe(), report.summary()
        assert {o.places[1] for o in recipe.optima} == {Place.HIGH_EDGE}
        assert recipe.beyond == {"batch": 128}
        assert "The best batch lies above all that were tried (128 at" in text
        assert "batch > 128" in text
        assert " use " not in text.split("\n\n")[0]
        assert "depends on the batch that you fix" in text
        assert "try higher values" not in text

    def test_runs_of_any_length_end_at_the_first_cross(self, of_any_length):
        report, valley = of_any_length
        assert max(trial.steps for trial in valley.trained) == 40 * 2**CROSS
        assert report.recipe().beyond == {"steps": 160}
        assert "Runs of any length compete" in report.config["tuned"][0]

    def test_an_optimum_inside_is_no_edge(self, at_fixed_tokens):
        report, _ = at_fixed_tokens
        assert report.recipe().beyond == {}
        assert "use learning rate" in report.summary()


class TestPrices:
    def test_work_counts_the_batch(self, at_fixed_steps):
        report, valley = at_fixed_steps
        cost = sum(trial.size["width"] * trial.size["batch"] for trial in valley.trained)
        assert report.search.runs == len(valley.trained)
        assert report.search.work == pytest.approx(cost)

    def test_work_counts_the_steps(self, of_any_length):
        report, valley = of_any_length
        cost = sum(trial.size["width"] ** 2 * trial.steps for trial in valley.trained)
        assert report.search.work == pytest.approx(cost)

    def test_at_fixed_tokens_a_batch_is_free(self):
        model = depthmup.Model(train=Valley(about_a_batch), version="1")
        sweep, _ = resolved_sweep(model, asked("batch", base=TOKENS_FIXED))
        search = recipe_search_of(SearchState(sweep=sweep), sweep.design.variants[0])
        assert search.cost(0, (-8.0, 4.0)) == search.cost(0, (-8.0, 8.0)) == search.costs[0]

    def test_the_search_weighs_runs_by_their_own_price(self):
        model = depthmup.Model(train=Valley(larger_is_better), version="1")
        sweep, _ = resolved_sweep(model, asked("batch", base=STEPS_FIXED, steps=20))
        search = recipe_search_of(SearchState(sweep=sweep), sweep.design.variants[0])
        narrowing = Narrowing(search=search, known=None, along=None)

        def cost(*batches):
            asks = tuple(Ask(size=0, log2_lr=-8.0, beside=(float(b),), seed=0) for b in batches)
            return narrowing._cost([FurtherRuns(size=0, asks=asks, told=np.zeros(0), why="")])

        assert cost(7) == pytest.approx(4 * cost(5))
        assert cost(5, 7) == pytest.approx(5 * cost(5))
        assert cost(5) == search.costs[0]

    def test_places_are_those_of_whole_numbers(self):
        model = depthmup.Model(train=Valley(larger_is_better), version="1")
        sweep, _ = resolved_sweep(model, asked("batch", base={**STEPS_FIXED, "batch": 3}, steps=20))
        search = recipe_search_of(SearchState(sweep=sweep), sweep.design.variants[0])
        places = search.rounded(np.array([[-7.5, k] for k in (-2.0, 0.4, 1.2, 3.0, 9.0)]))
        np.testing.assert_allclose(2.0 ** places[:, 1], [1, 1, 2, 8, 12], atol=1e-6)

    def test_the_rest_is_at_the_best_batch_so_far(self):
        def search(best):
            sizes = tuple({"width": width} for width in WIDTHS)
            return RecipeSearch(
                sizes=sizes, costs=(1.0, 4.0, 16.0), base=sizes[0], axes=("width",),
                start=(-8.0, 5.0), tuned=(LEARNING_RATE, COUNTS["batch"]),
                price=lambda i, values: 4.0**i * 2.0 ** (values[1] - 5),
                losses=[{(-8.0, 5.0): [2.0], (-8.0, 7.0): [best]}, {}, {}],
            )  # fmt: skip

        from depthmup.statistics.recipe_search import _round

        cheap, dear = (_round(search(best), (), "", 0).rest for best in (3.0, 1.0))
        assert dear == pytest.approx(4 * cheap)
        assert cheap > 0


class TestModels:
    def test_the_built_in_networks(self):
        base = {"width": 16, "depth": 2, "lr": 0.01, "batch": 8, "steps": 12}
        design = Design(
            base=base, width=(16, 32), tune=("lr", "batch", "steps"), values=Auto(runs=15),
            schemes="mup", seeds=2,
        )  # fmt: skip
        sweep, _ = resolved_sweep(BuiltIn(), design)
        cell = sweep.run(sweep.design.variants[0], design.all_sizes[1], (-6.0, 3.5, 4.0), 0)
        assert (cell.batch_size, cell.steps) == (11, 16)
        report = depthmup.transfer(BuiltIn(), design)
        asks = np.array([k for one in report.search.rounds for _, k, _ in one.asked])
        assert report.search.runs == 15
        np.testing.assert_allclose(2.0 ** asks.max(0)[1:], [8 * 2**CROSS, 12 * 2**CROSS])

    def test_a_batch_function_is_given_it(self):
        from torch import nn, randn

        drawn = set()

        def make(width):
            return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))

        def batch(generator, batch):
            drawn.add(batch)
            x = randn(batch, 4, generator=generator)
            return x, x[:, 0]

        def deaf(generator, batch):
            return randn(8, 4, generator=generator), randn(8, generator=generator)

        def loss(outputs, targets):
            return ((outputs.squeeze(-1) - targets) ** 2).mean() + 0.1

        design = asked("batch", base={"width": 8, "lr": 0.01, "batch": 4}, width=(8, 16), steps=5,
                       values=Auto(runs=9), schemes="mup")  # fmt: skip
        depthmup.transfer(depthmup.Model(make, batch=batch, loss=loss, version="1"), design)
        assert {1, 4, 16} <= drawn
        with pytest.raises(ValueError, match="batch function ignores the batch: at batch 4 and 16"):
            depthmup.transfer(depthmup.Model(make, batch=deaf, loss=loss, version="1"), design)
        alone = depthmup.Model(make, batch=lambda generator: None, loss=loss, version="1")
        with pytest.raises(ValueError, match="batch"):
            depthmup.transfer(alone, design)

    def test_a_command(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text(
            "import math, sys\n"
            "lr, batch, steps, width, seed = float(sys.argv[1]), *map(int, sys.argv[2:6])\n"
            "x = math.log2(lr / 0.01)\n"
            "print('loss=%.9f' % math.exp(0.1 * x * x + 3 / batch + 3 / steps + 0.001 * seed))\n"
        )
        words = f"{sys.executable} -S train.py {{lr}} {{batch}} {{steps}} {{width}} {{seed}}"
        arguments = [
            "transfer", "--loss", r"re:loss=(\S+)", "--tune", "lr,batch,steps", "--widths",
            "16,32", "--base", "width=16,lr=0.02,batch=8,steps=100", "--seeds", "2",
            "--budget", "15", "--out", "runs", "--json",
        ]  # fmt: skip
        assert main([*arguments, "--command", words]) == 0
        told = json.loads(capsys.readouterr().out)
        asks = [k for one in told["search"]["rounds"] for _, k, _ in one["asked"]]
        assert {round(2.0 ** k[1]) for k in asks} >= {2, 8, 32}
        assert {round(2.0 ** k[2]) for k in asks} >= {25, 100, 400}
        without = words.replace(" {batch}", " 8")
        assert main([*arguments, "--command", without, "--out", "others"]) != 0
        assert "{batch}" in capsys.readouterr().err

    def test_a_run_has_the_key_of_a_swept_batch(self):
        """So that runs of one question serve the other."""
        model = depthmup.Model(train=Valley(about_a_batch), version="1")
        swept = Design(base={"width": 32, "batch": 32}, batch=(32, 64), width=(32, 64), steps=20)
        tuned = asked("batch", base=STEPS_FIXED, width=(32, 64), steps=20)
        one, other = (resolved_sweep(model, design)[0] for design in (swept, tuned))
        size = {"width": 32, "batch": 64}
        first = one.run(one.design.variants[0], size, -8.0, 1)
        second = other.run(other.design.variants[0], {"width": 32}, (-8.0, 6.0), 1)
        assert isinstance(first, Trial)
        assert dict(first.size) == dict(second.size)
        assert (first.steps, first.lr) == (second.steps, second.lr)


def test_a_design_is_read_back():
    for made in (
        asked("batch", base=TOKENS_FIXED),
        asked("batch", "steps", base={**STEPS_FIXED, "steps": 50}),
        asked("steps", base={"width": 32}, steps=30),
    ):
        again = Design.from_dict(json.loads(json.dumps(made.to_dict())))
        assert again == made
        assert again.counted == made.counted
        assert replace(made, seeds=3).counted == made.counted


REFUSED = [
    ({"tune": "batch", "lrs": 0.01}, "the learning rate tuned together with the batch"),
    ({"tune": ("lr", "batch"), "base": {"width": 32}}, "the batch of the base, where its search"),
    ({"batch": (32, 64)}, "the batch tuned or swept, not both"),
    ({"base": {"width": 32, "batch": 1.5}}, "to be a whole number"),
    ({"base": {"width": 32, "tokens": 6400, "batch": 48}}, "a multiple of the batch"),
    ({"tune": ("lr", "steps"), "base": {"width": 32, "batch": 8, "tokens": 64}}, "name two of"),
    ({"tune": ("lr", "tokens"), "base": {"width": 32, "tokens": 64}}, "tokens is an axis of sizes"),
]


@pytest.mark.parametrize(("fields", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_refused(fields, why):
    with pytest.raises(ValueError, match=why):
        asked(**{"base": STEPS_FIXED, "tune": ("lr", "batch"), **fields})
