"""The examples in the docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

from depthmup import limits


def examples(name):
    return [
        test
        for test in doctest.DocTestFinder().find(importlib.import_module(f"depthmup.limits.{name}"))
        if test.examples
    ]


NAMES = [
    module.name.removeprefix("depthmup.limits.")
    for module in pkgutil.walk_packages(limits.__path__, "depthmup.limits.")
]
MODULES = [name for name in NAMES if examples(name)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    runner = doctest.DocTestRunner()
    for test in examples(name):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


SHOWN = "linear nonlinear two_matrix mean_ode sign_sgd problem solve mse cross_entropy smooth Step"
SHOWN += " Loss Branch SGD Sobol Hermite Particles"


@pytest.mark.parametrize("name", SHOWN.split())
def test_the_public_names_have_examples(name):
    assert ">>>" in getattr(limits, name).__doc__
