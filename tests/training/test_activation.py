import pytest

from depthmup.models import ACTIVATIONS, activation
from depthmup.sweep import built_in


def test_unknown_activation():
    with pytest.raises(ValueError, match=r"Expected an activation .*abs.*got 'swich'"):
        activation("swich")


def test_the_names_that_grids_accept_are_those_that_exist():
    assert set(built_in.ACTIVATIONS) == set(ACTIVATIONS)
