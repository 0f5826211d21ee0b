"""What the command does without an option is what Python does without the argument."""

import inspect
from dataclasses import MISSING, fields

import pytest

import depthmup
from depthmup.cli.check import Options as CheckOptions
from depthmup.cli.transfer import BuiltInNetworks, Options

ON_OFF = {"on": True, "off": False}


def default_of(cls, name):
    (field,) = (f for f in fields(cls) if f.name == name)
    return field.default if field.default is not MISSING else field.default_factory()


# The command line's own way to name data and sets of defaults.
OWN = ("preset", "data", "unverified_data", "label_noise")


@pytest.mark.parametrize("option", [f.name for f in fields(BuiltInNetworks) if f.name not in OWN])
def test_built_in_networks(option):
    given = getattr(BuiltInNetworks(), option)
    assert ON_OFF.get(given, given) == getattr(depthmup.BuiltIn(), option)


@pytest.mark.parametrize("option", ["multipliers", "weight_decays"])
def test_design(option):
    design = depthmup.Design(base={"width": 8, "depth": 2}, depth=(2, 4))
    assert getattr(Options(), option) == getattr(design, option)


def test_transfer():
    parameters = inspect.signature(depthmup.transfer).parameters
    assert Options().tolerance == parameters["tolerance"].default
    assert Options().target == ()
    assert parameters["target"].default is None


def test_check():
    parameters = inspect.signature(depthmup.check).parameters
    for name in ("widths", "depths", "seeds", "steps", "lr", "modules"):
        assert getattr(CheckOptions(model="mine.py:make"), name) == parameters[name].default, name
    assert CheckOptions(model="mine.py:make").optimizer == parameters["optimizer"].default
