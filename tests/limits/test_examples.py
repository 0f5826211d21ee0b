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


MODULES = [module.name for module in pkgutil.iter_modules(limits.__path__) if examples(module.name)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    runner = doctest.DocTestRunner()
    for test in examples(name):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0


def test_the_public_functions_have_examples():
    for name in ("linear", "nonlinear", "mse", "cross_entropy", "Step", "Loss", "smooth"):
        assert ">>>" in getattr(limits, name).__doc__, name
    for name in ("two_matrix", "mean_ode", "sign_sgd", "Sobol", "Hermite", "Particles"):
        assert ">>>" in getattr(limits, name).__doc__, name
    for name in ("propagators", "feature_diversity", "depth_exponents"):
        assert ">>>" in getattr(limits, name).__doc__, name
