"""What the command does without an option is what Python does without the argument."""

import inspect
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import depthmup
from depthmup.cli import check, fit, predict, score
from depthmup.cli import next as next_verb
from depthmup.cli.spelling import arguments, as_meant
from depthmup.cli.transfer import BuiltInNetworks, Options, asked
from depthmup.cli.verbs import parse
from depthmup.tables import Reading

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


RUNS = Path("runs.csv")
SAME_NAMES = (
    (depthmup.check, check.Options(model="mine.py:make")),
    (depthmup.predict, predict.Options(model="mine.py:make", base=("64x4",))),
    (depthmup.fit, fit.Options(table=RUNS)),
    (Reading, fit.Options(table=RUNS)),
    (depthmup.next_runs, next_verb.Options(source=RUNS)),
    (depthmup.score, score.Options(certificate=RUNS, table=RUNS)),
)


@pytest.mark.parametrize(("function", "options"), SAME_NAMES)
def test_options_that_are_called_as_an_argument(function, options):
    """They are handed on by their names; what is left out is empty text there and None here."""
    parameters = inspect.signature(function).parameters
    handed = arguments(function, options)
    assert len(handed) >= 4
    for name, value in handed.items():
        default = parameters[name].default
        if default is not inspect.Parameter.empty:
            assert value == default or not (value or default), name


def test_axes_beside_the_arguments_are_no_option():
    assert "along" not in arguments(depthmup.check, check.Options(model="mine.py:make", along=()))


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--beta1", "0.8"], {"betas": [0.8, 0.999]}),
        (["--beta2=0.99"], {"betas": [0.9, 0.99]}),
        (["--epsilon", "1e-6"], {"eps": 1e-6}),
        (["--momentum", "0.9"], {"momentum": 0.9}),
        (["--schedule", "cosine", "--warmup", "0.1"], {"schedule": "cosine", "warmup": 0.1}),
        (["--schedule", "constant", "--warmup", "0"], {}),  # as without: runs have the same keys
    ],
)
def test_settings_of_training(words, settings):
    _, design = asked(parse(["transfer", "--preset", "tiny", *words]))
    assert design.settings == settings


def test_networks_and_what_is_varied():
    words = "--nonlinearity pre --mean-subtraction off --layer-norm on --multipliers 0.5,2"
    model, design = asked(parse(["transfer", *as_meant(words.split(), Options)]))
    assert (model.nonlinearity, model.mean_subtraction, model.layer_norm) == ("pre", False, True)
    assert design.multipliers == (0.5, 2.0)
