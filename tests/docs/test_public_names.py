"""Every public name says what it takes, returns and raises, shows an example, and links its source.

The site shows all of them (docs/generate.py). What is still missing is listed here by name, so that
the lists can only shrink: a new function without an example fails, and so does an old one that got
one and still stands in the list.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from depthmup.rules import NAMES

_GENERATE = Path(__file__).parents[2] / "docs" / "generate.py"
_spec = importlib.util.spec_from_file_location("generate", _GENERATE)
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)

# Packages whose content is theory or statistics: every function there names its source.
SOURCED = ("", ".rules", ".limits", ".planning", ".diagnostics", ".statistics")
WITHOUT_SOURCE = {
    "looks up by name what names its own source": {
        "depthmup.rules": "canonical expert_rule family named rules_of run_rule said scheme",
    },
    "puts together or reads what was given": {
        "depthmup": "load",
        "depthmup.rules": "exponent with_experts with_run",
        "depthmup.diagnostics": "as_is planned",
        "depthmup.statistics": "around check_asked curves_of drift_unit measured",
    },
    "reads a program or watches one run": {
        "depthmup.planning": "anatomy find_branches find_uses recorded trace",
        "depthmup.diagnostics": "first_nonfinite locate observe",
    },
    "a definition of school": {
        "depthmup.limits": "cross_entropy mse resolve smooth",
        "depthmup.diagnostics": "local_slopes",
        "depthmup.statistics": "local_slopes",
    },
    "this package's own, derived in docs/studies (statistics.md, adaptive.md, check.md)": {
        "depthmup": "next_runs score",
        "depthmup.diagnostics": "likely_cause",
        "depthmup.statistics": "cost drift loss_estimate minima next_round optima pooled_law",
    },
}
# Classes that are theory and not the container of a result.
THEORY = {
    "depthmup.rules": "Family Regime Response Scheme",
    "depthmup.limits": "Block Hermite Kernel Particles SGD Sobol",
    "depthmup.diagnostics": "GaussNewton",
}


def functions():
    documented = set()
    for package in generate.PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and value not in documented:
                documented.add(value)
                yield pytest.param(value, id=f"{package}.{name}")


FUNCTIONS = list(functions())


def sections(function):
    return set(re.findall(r"^(\w+):$", inspect.cleandoc(function.__doc__ or ""), re.M))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arguments_and_result_are_said(function):
    signature = inspect.signature(function)
    named = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    text = function.__doc__ or ""
    assert not named or "Args" in sections(function)
    listed = text.partition("Args:")[2]
    missing = [name for name in named if not re.search(rf"[\s,*]{name}(:|, )", listed)]
    assert missing == []
    nothing = signature.return_annotation in (None, "None")
    assert nothing or "Returns" in sections(function)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_errors_are_said(function):
    """A function that raises in its own body has a section for it."""
    raises = re.search(r"^ {4,}raise \w+", inspect.getsource(function), re.MULTILINE)
    assert not raises or "Raises" in sections(function)


def test_examples_are_shown():
    without = [
        parameter.id for parameter in FUNCTIONS if ">>>" not in (parameter.values[0].__doc__ or "")
    ]
    assert without == []


def names_of(listed):
    return {f"{package}.{name}" for package, names in listed.items() for name in names.split()}


def test_sources_are_named():
    """The list of exceptions can only shrink: one that names a source must leave it."""
    without = set()
    for package in (f"depthmup{end}" for end in SOURCED):
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and "*Source:*" not in (value.__doc__ or ""):
                without.add(f"{package}.{name}")
    assert without == set().union(*map(names_of, WITHOUT_SOURCE.values()))
    for name in names_of(THEORY):
        package, _, cls = name.rpartition(".")
        assert "*Source:*" in getattr(importlib.import_module(package), cls).__doc__, name


def public(kind, packages=generate.PACKAGES):
    """Every public value once, with the first name that it is documented under."""
    documented = set()
    for package in packages:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            own = getattr(value, "__module__", "").startswith("depthmup")
            if own and kind(value) and value not in documented:
                documented.add(value)
                yield pytest.param(value, id=f"{package}.{name}")


DATACLASSES = list(public(lambda v: inspect.isclass(v) and dataclasses.is_dataclass(v)))


def described(cls, field):
    """In prose, in a list, or below the field itself."""
    doc = inspect.cleandoc(cls.__doc__ or "")
    listed = rf"^    (?:\w+, )*{field}(?:, \w+)*:"
    below = rf'^    {field}: [^\n]*\n(?:        [^\n]*\n|    [])}}][^\n]*\n)*    """'
    return (
        re.search(rf"``{field}\b", doc)
        or re.search(listed, doc, re.MULTILINE)
        or re.search(below, inspect.getsource(cls), re.MULTILINE)
    )


@pytest.mark.parametrize("cls", DATACLASSES)
def test_every_field_is_described(cls):
    inherited = {
        f.name
        for base in cls.__mro__[1:]
        for f in getattr(base, "__dataclass_fields__", {}).values()
    }
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if not field.name.startswith("_")
        and field.name not in inherited
        and not described(cls, field.name)
    ]
    assert missing == []


MAIN = ("depthmup",)
METHODS = [
    pytest.param(method, id=f"{cls.values[0].__name__}.{name}")
    for cls in public(inspect.isclass, MAIN)
    for name, method in inspect.getmembers(cls.values[0], inspect.isroutine)
    if not name.startswith("_") and method.__module__.startswith("depthmup")
]


@pytest.mark.parametrize("method", METHODS)
def test_methods_of_the_main_classes_say_what_they_take_and_give(method):
    function = inspect.unwrap(getattr(method, "__func__", method))
    text = inspect.cleandoc(function.__doc__ or "")
    assert text
    signature = inspect.signature(function)
    named = [
        name
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls") and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    listed = text.partition("Args:")[2]
    said = [name for name in named if re.search(rf"[\s,*]{name}(:|, )", listed)]
    assert said == named
    assert signature.return_annotation in (None, "None") or "Returns:" in text
    raises = re.search(r"^ {4,}raise \w+", inspect.getsource(function), re.MULTILINE)
    assert not raises or "Raises:" in text


def test_every_scheme_optimizer_and_rule_is_on_a_page(tmp_path):
    generate.rules(tmp_path / "rules.md")
    text = (tmp_path / "rules.md").read_text(encoding="utf-8")
    for names in NAMES.values():
        assert all(name in text for name in names)
    lengths = {line.count(" | ") for line in text.splitlines() if line.startswith("| ---")}
    assert lengths == {1, 2, 3, 5}
