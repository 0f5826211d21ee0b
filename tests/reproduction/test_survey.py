"""Surveys: tasks that are found again, and values in the order of their keys."""

import numpy as np
import pytest

from depthmup.records import Measurement, Task
from depthmup.sweep import Store
from reproduction.claims.survey import survey


def sums(*, depth, seed):
    return {"sum": 10 * depth + seed, "pair": [depth, seed]}


def measured(keys):
    return survey("sums", sums, {(d, s): {"depth": d, "seed": s} for d, s in keys})


@pytest.fixture
def store():
    with Store(":memory:") as store:
        yield store


def add_all(store, surveyed):
    for measure in surveyed.measures:
        values = measure.function(**measure.task.settings)
        store.add(Measurement(task=measure.task, values=values))


def test_tasks_have_the_key_of_their_name_settings_and_version():
    one = survey("sums", sums, {"a": {"depth": 1, "seed": 2}}, version=3)
    expected = Task(name="sums", settings={"seed": 2, "depth": 1}, version=3)
    assert one.tasks["a"].key == expected.key
    assert [measure.task for measure in one.measures] == [expected]
    assert survey("sums", sums, {"a": {"depth": 1, "seed": 2}}).tasks["a"].key != expected.key


def test_arrays_have_an_axis_for_every_entry_of_the_keys(store):
    surveyed = measured([(d, s) for d in (8, 4) for s in range(3)])
    add_all(store, surveyed)
    np.testing.assert_array_equal(
        surveyed.array(store, "sum"), [[10 * d + s for s in range(3)] for d in (8, 4)]
    )
    assert surveyed.array(store, "pair").shape == (2, 3, 2)
    assert surveyed.values(store)[4, 2] == {"sum": 42, "pair": [4, 2]}


def test_keys_that_are_no_grid_have_no_array(store):
    """Reshaped, the values would stand at other keys than their own."""
    for keys in ([(1, 0), (1, 1), (2, 0)], [(1, 0), (2, 0), (1, 1), (2, 1)]):
        surveyed = measured(keys)
        add_all(store, surveyed)
        with pytest.raises(ValueError, match="all combinations"):
            surveyed.array(store, "sum")
        assert len(surveyed.values(store)) == len(keys)


def test_work_may_differ_by_key():
    settings = {d: {"depth": d, "seed": 0} for d in (8, 16)}
    works = survey("sums", sums, settings, work=lambda depth: 2.0 * depth).measures
    assert [measure.work for measure in works] == [16.0, 32.0]
    assert {m.work for m in survey("sums", sums, settings, work=7.0).measures} == {7.0}
