"""Shapes in the signatures of ``limits`` are checked while testing."""

from dataclasses import replace

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from depthmup import limits
from depthmup.limits.sgd import update_weights


@pytest.fixture
def solution():
    steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
    return limits.linear(steps, depth=4, lr=1.0, held_out=[[0.3]], history=True)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("kernel", lambda kernel: kernel[:1]),  # not square
        ("held_out", lambda rows: rows[:-1]),  # one fewer than steps + 1
        ("rms", lambda rms: tuple(of_step[:-1] for of_step in rms)),  # not at every position
        ("losses", lambda losses: losses.astype(int)),
    ],
)
def test_a_wrong_shape_in_a_solution_is_rejected(solution, field, wrong):
    value = getattr(solution, field)
    assert replace(solution, **{field: value}) is not None
    with pytest.raises(TypeCheckError, match=field):
        replace(solution, **{field: wrong(value)})


def test_shapes_are_compared_between_arguments(solution):
    with pytest.raises(TypeCheckError, match="chi"):
        replace(solution.history, chi=solution.history.chi[1:])


def test_what_a_function_returns_is_checked(monkeypatch):
    monkeypatch.setattr("depthmup.limits.sgd.np.zeros", lambda shape: np.ones((*shape, 1)))
    with pytest.raises(TypeCheckError, match="return value"):
        update_weights(np.ones(0))
