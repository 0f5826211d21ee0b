"""Errata and limits on planted networks: what is decided, and by how many standard errors."""

from functools import cache, partial

import numpy as np
import pytest
from planted import NO, OPEN, YES, finding

from depthmup.records import Measurement
from depthmup.sweep import Store
from reproduction import Setting
from reproduction.claims.errata import nearer
from reproduction.claims.infinite_width import deviation, kernels
from reproduction.intervals import surprising
from reproduction.theory.printed import printed_nonlinear


def around(center, errors_off, runs=24):
    """Values of runs whose mean is so many of its own standard errors off a center."""
    noise = np.random.default_rng(0).normal(size=runs)
    noise -= noise.mean()
    return center + noise + errors_off * noise.std(ddof=1) / np.sqrt(runs)


@pytest.mark.parametrize(("errors_off", "verdict"), [(1.9, YES), (2.4, NO)])
def test_one_number_is_judged_as_one(errors_off, verdict):
    """2.4 standard errors are surprising of one mean over 24 networks, and not of five."""
    stream = around((1 + 1 / 4) ** 4, errors_off)

    def law(settings):
        value = stream[settings["run"]]
        return {"explicit": value, "implicit": 100.0 + value}

    result = finding("erratum3", law)
    assert result.comparisons[0].verdict is verdict
    assert result.verdict is verdict
    assert surprising(24) < 2.4 < surprising(24, tests=5)


def compared(columns, expected):
    trained = kernels(Setting(), depth=32)
    with Store(":memory:") as store:
        for run, task in trained.tasks.items():
            row = [float(np.broadcast_to(c, len(trained.tasks))[run]) for c in columns]
            store.add(Measurement(task=task, values={"outputs": row}))
        return deviation(store, trained, "outputs", expected, words="outputs")


def test_steps_that_do_not_scatter_are_no_tests_and_must_be_as_expected():
    for first, verdict in ((0.5 + 1e-9, YES), (0.51, NO)):
        result = compared([first, around(1.0, 1.0)], [0.5, 1.0])
        assert result.accepted.high == surprising(24, tests=1)
        assert result.verdict is verdict
    assert compared([0.5, 1.0], [0.5, 1.0]).verdict is YES


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


def test_what_is_asked_of_the_trained_networks_of_erratum_7():
    from reproduction.claims.infinite_depth import nonlinear_problem

    @cache
    def limit(name):
        steps, options = nonlinear_problem(name)
        return np.concatenate(printed_nonlinear(steps, activation=name, **options).outputs)[:, 0]

    def law(settings):
        noise = np.random.default_rng(settings["run"]).normal(size=4, scale=0.01)
        return {"outputs": (limit(settings["activation"]) + noise).tolist()}

    result = finding("erratum7", law)
    assert result.verdict is NO
    assert "nearer" in result.shows
