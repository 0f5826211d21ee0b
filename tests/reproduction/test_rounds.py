"""Experiments in rounds: what follows from the records, resumed, in any order, and its progress."""

import math
import sqlite3
from contextlib import closing
from functools import partial

import numpy as np
import pytest
from planted import change, planted, record, scatter

from depthmup.sweep import InProcess, Store, StoreError
from reproduction import Setting, judge, named, plan_claims, reproduce
from reproduction.claims.claim import Conclusion
from reproduction.claims.common import networks, sweep_experiment
from reproduction.claims.looks import Look, with_looks
from reproduction.evidence import Accepted, Comparison, Reproduction
from reproduction.intervals import jackknife

TINY = {"seeds": 3, "steps": 5, "window": 1, "width": 8, "depths": (8, 16)}


def keys_of(store):
    with closing(sqlite3.connect(store.path)) as base:
        return {key for (key,) in base.execute("SELECT key FROM records")}


def noting(law, cells):
    """The law, which notes the cells that are asked for."""

    def noted(cell):
        cells.append(cell)
        return law(cell)

    return noted


def drifting(cell, *, drift):
    away = change(cell) + 1.0 - drift * math.log2(cell.network.depth / 8) - scatter(cell, 0)
    return math.exp(0.12 * away**2)


def test_what_is_stopped_goes_on_and_trains_the_same_in_any_order(tmp_path):
    """Networks of 8 neurons: a run to its end, one that stops again and again, and one whose jobs
    are done in reverse order have the same runs, each trained once."""
    planned = plan_claims(named(["fig21"]), Setting(sizes=TINY))

    def reversed_(jobs, listener):
        InProcess()(list(reversed(jobs)), listener)

    def stopping(progress):
        nonlocal told
        told += 1
        if told % 6 == 0:
            raise KeyboardInterrupt

    counts, keys, told = {}, {}, 0
    for name, executor in (("whole", InProcess()), ("reversed", reversed_)):
        with Store(tmp_path / f"{name}.sqlite") as store:
            counts[name] = reproduce(planned, store=store, executor=executor)
            keys[name] = keys_of(store)
            assert reproduce(planned, store=store, executor=executor) == 0
    with Store(tmp_path / "stopped.sqlite") as store:
        for _ in range(100):
            try:
                reproduce(planned, store=store, executor=InProcess(), tell=stopping)
                break
            except KeyboardInterrupt:
                continue
        keys["stopped"] = keys_of(store)
    assert told >= 6
    assert keys["whole"] == keys["reversed"] == keys["stopped"]
    assert counts["whole"] == counts["reversed"] == len(keys["whole"])


def test_a_claim_whose_search_goes_on_is_not_judged(tmp_path):
    planned = plan_claims(named(["fig21"]), Setting(sizes=TINY))
    ((_, experiment),) = planned
    with Store(tmp_path / "results.sqlite") as store:
        for cell in experiment.ahead(store).missing:
            store.add(record(cell, partial(drifting, drift=0.3)))
        assert experiment.ahead(store).missing
        with pytest.raises(StoreError, match=r"results of fig21 are not in"):
            judge(planned, store, scale="laptop", environment={})


def test_progress_counts_all_rounds(tmp_path):
    told = []
    planned = plan_claims(named(["fig21"]), Setting(sizes=TINY))
    with Store(tmp_path / "results.sqlite") as store:
        reproduce(planned, store=store, executor=InProcess(), tell=told.append)
        results = len(keys_of(store))
    assert all(p.done <= p.cells and 0 <= p.fraction <= 1 and p.why for p in told)
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert told[-1].done == told[-1].cells == results
    assert told[-1].fraction == pytest.approx(1.0)
    assert told[0].cells < results, "what follows the scan is not known"


@pytest.mark.parametrize(
    ("drift", "runs", "expected"),
    [(0.6, 40, Reproduction.REPRODUCED), (-0.6, 40, Reproduction.NOT_REPRODUCED)],
)
def test_a_search_is_about_all_depths_and_costs_less_than_the_grid(drift, runs, expected, tmp_path):
    """8 rates of 4 seeds at 4 depths were 128 runs; where the drift is clear, a third do."""
    (claim,) = named(["fig21"])
    experiment = claim.experiment(Setting(sizes={"steps": 5, "window": 1, "seeds": 4}))
    cells = []
    with planted(experiment, tmp_path, noting(partial(drifting, drift=drift), cells)) as store:
        finding = claim.finding(experiment, store)
    assert finding.verdict is expected
    assert {cell.network.depth for cell in cells} == {8, 16, 32, 64}
    assert len(cells) <= runs
    shift = finding.comparisons[0].ours
    assert shift.low <= drift <= shift.high


def test_a_grid_is_searched_further_where_it_leaves_open(tmp_path):
    """Rates between those of the grid, around the optimum alone, and no run of the grid again."""
    (claim,) = named(["fig2"])
    experiment = claim.experiment(Setting(sizes={"steps": 5, "window": 1, "seeds": 4}))

    def law(cell):
        away = change(cell) - 0.5 + 0.14 * math.log2(cell.network.depth / 8) - scatter(cell, 0)
        return math.exp(0.12 * away**2 - 0.3 * (cell.network.nonlinearity == "post"))

    cells = []
    with planted(experiment, tmp_path, noting(law, cells)) as store:
        drift = claim.finding(experiment, store).comparisons[0]
    added = [cell for cell in cells if cell not in set(experiment.cells)]
    assert added
    assert len(set(cells)) == len(cells)
    assert {cell.network.nonlinearity for cell in added} == {"pre"}
    assert all(abs(change(cell) - 0.5) < 2 for cell in added)
    assert drift.ours.low <= -0.14 <= drift.ours.high


def test_a_search_spends_its_error_over_its_looks(tmp_path):
    """On the edge of the region itself the first look that decides would be wrong in half of cases
    (9 of 20, and 1 of 20 by these intervals)."""
    (claim,) = named(["fig6"])
    experiment = claim.experiment(Setting(sizes={"steps": 5, "window": 1}))

    def law(cell):  # this one ended after 171 runs
        depth = cell.network.depth
        own = 0.15 * np.random.default_rng([15, cell.seed, depth]).standard_normal()
        rate = round(1000 * math.log2(cell.optimizer.lr)) % 100003
        noise = 0.01 * np.random.default_rng([15, cell.seed, depth, rate]).standard_normal()
        return math.exp(0.12 * (change(cell) - 2 - 0.15 * math.log2(depth / 8) - own) ** 2 + noise)

    with planted(experiment, tmp_path, law) as store:
        (shift, _) = claim.finding(experiment, store).comparisons
        runs = experiment.ahead(store).done
    assert shift.verdict is Reproduction.UNDECIDABLE
    assert shift.ours.low < 0.15 < shift.ours.high
    assert len(runs) > 500, "all seeds"


LOOKS = (4, 8)


@pytest.mark.parametrize(
    ("offsets", "seeds", "expected"),
    [
        # Of four seeds at 97.5% t is 4.18: standard errors 0.13 and 0.09.
        ((0.9, 1.3, 1.0, 1.4, 9, 9, 9, 9), 4, Reproduction.REPRODUCED),
        ((-0.9, -1.3, -1.0, -1.4, 9, 9, 9, 9), 4, Reproduction.NOT_REPRODUCED),
        ((0.1, 0.9, 0.2, 1.0, 0.5, 0.6, 0.5, 0.6), 8, Reproduction.REPRODUCED),
        ((0.1, 0.9, 0.2, 1.0, -1.5, -1.5, 0.0, 1.0), 8, Reproduction.UNDECIDABLE),
        # A seed that lies far from the others is one of few at first.
        ((0.1, 2.0, 0.2, 0.3, 0.3, 0.3, 0.3, 0.2), 8, Reproduction.UNDECIDABLE),
    ],
    ids=["clear", "against", "later", "open", "an outlier"],
)
def test_more_seeds_where_a_claim_is_open(offsets, seeds, expected, tmp_path):
    confidences = []

    def build(seeds, confidence):
        confidences.append(confidence)
        sweep = networks(
            Setting(), width=8, depths=(8,), log2_lrs=(-2.0,), schemes="depth-mup", seeds=seeds,
            steps=1, window=1,
        )  # fmt: skip

        def compare(store):
            import numpy as np

            logs = np.log([store.get(cell).losses[0] for cell in sweep.runs])
            mean = jackknife(lambda some: float(some.mean()), logs, confidence=confidence)
            return (Comparison(what="w", paper="p", ours=mean, accepted=Accepted(low=0.0)),)

        conclude = lambda store: Conclusion(comparisons=compare(store))  # noqa: E731
        return Look(experiment=sweep_experiment(sweep, conclude=conclude), compare=compare)

    experiment = with_looks(build, LOOKS)
    assert confidences == [0.975, 0.975]
    with planted(experiment, tmp_path, lambda cell: math.exp(offsets[cell.seed])) as store:
        (comparison,) = experiment.conclude(store).comparisons
        assert len(keys_of(store)) == seeds
    assert comparison.verdict is expected
