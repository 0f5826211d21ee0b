"""Errata and limits on planted networks: what is decided, and by how many standard errors."""

from functools import cache, partial

import numpy as np
import pytest

from depthmup.records import Measurement
from depthmup.sweep import Store
from reproduction import Setting, named
from reproduction.claims.errata import nearer
from reproduction.claims.infinite_width import deviation, kernels
from reproduction.evidence import Reproduction
from reproduction.intervals import surprising
from reproduction.theory.printed import printed_nonlinear

YES, NO, OPEN = Reproduction.REPRODUCED, Reproduction.NOT_REPRODUCED, Reproduction.UNDECIDABLE


def around(center, errors_off, runs=24):
    """Values of runs whose mean is so many of its own standard errors off a center."""
    noise = np.random.default_rng(0).normal(size=runs)
    noise -= noise.mean()
    return center + noise + errors_off * noise.std(ddof=1) / np.sqrt(runs)


def finding(claim, path, values_of_run):
    (claim,) = named([claim])
    experiment = claim.experiment(Setting())
    with Store(path / "results.sqlite") as store:
        for measure in experiment.measures:
            values = values_of_run(measure.task.settings["run"])
            store.add(Measurement(task=measure.task, values=values))
        return claim.finding(experiment, store)


@pytest.mark.parametrize(("errors_off", "verdict"), [(1.9, YES), (2.4, NO)])
def test_one_number_is_judged_as_one(errors_off, verdict, tmp_path):
    """2.4 standard errors are surprising of one mean over 24 networks, and not of five."""
    stream = around((1 + 1 / 4) ** 4, errors_off)

    def values(run):
        return {"explicit": stream[run], "implicit": 100.0 + stream[run]}

    result = finding("erratum3", tmp_path, values)
    assert result.comparisons[0].verdict is verdict
    assert result.verdict is verdict
    assert surprising(24) < 2.4 < surprising(24, tests=5)


def compared(path, columns, expected):
    trained = kernels(Setting(), depth=32)
    with Store(path / "results.sqlite") as store:
        for run, task in trained.tasks.items():
            row = [float(np.broadcast_to(c, len(trained.tasks))[run]) for c in columns]
            store.add(Measurement(task=task, values={"outputs": row}))
        return deviation(store, trained, "outputs", expected, words="outputs")


def test_steps_that_do_not_scatter_are_no_tests_and_must_be_as_expected(tmp_path):
    for index, (first, verdict) in enumerate(((0.5 + 1e-9, YES), (0.51, NO))):
        (tmp_path / str(index)).mkdir()
        result = compared(tmp_path / str(index), [first, around(1.0, 1.0)], [0.5, 1.0])
        assert result.accepted.high == surprising(24, tests=1)
        assert result.verdict is verdict
    (tmp_path / "fixed").mkdir()
    assert compared(tmp_path / "fixed", [0.5, 1.0], [0.5, 1.0]).verdict is YES


def test_networks_near_the_printed_limit_refute_the_correction():
    corrected, printed = np.zeros(3), np.array([0.0, 1.0, 0.0])
    noise = np.random.default_rng(1).normal(size=(24, 3), scale=0.05)
    judged = partial(nearer, "abs", 32, corrected=corrected, printed=printed)
    assert judged(outputs=corrected + noise)[0].verdict is YES
    assert judged(outputs=printed + noise)[0].verdict is NO
    assert judged(outputs=(corrected + printed) / 2 + noise)[0].verdict is OPEN
    far = judged(outputs=corrected - 100 * printed + noise)
    assert far[1].verdict is NO, "networks that are far beyond are said to be so"
    assert not far[1].decisive


def test_what_is_asked_of_the_trained_networks_of_erratum_7(tmp_path):
    from reproduction.claims.infinite_depth import nonlinear_problem

    (claim,) = named(["erratum7"])
    experiment = claim.experiment(Setting())

    @cache
    def limit(name):
        steps, options = nonlinear_problem(name)
        return np.concatenate(printed_nonlinear(steps, activation=name, **options).outputs)[:, 0]

    with Store(tmp_path / "results.sqlite") as store:
        for measure in experiment.measures:
            settings = measure.task.settings
            outputs = limit(settings["activation"]) + np.random.default_rng(settings["run"]).normal(
                size=4, scale=0.01
            )
            store.add(Measurement(task=measure.task, values={"outputs": outputs.tolist()}))
        result = claim.finding(experiment, store)
    assert result.verdict is NO
    assert "nearer" in claim.shows
