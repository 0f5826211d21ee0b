"""Every public name says what it takes, returns and raises, shows an example, and links its source.

The site shows all of them (docs/generate.py). What is still missing is listed here by name, so that
the lists can only shrink: a new function without an example fails, and so does an old one that got
one and still stands in the list.
"""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

_GENERATE = Path(__file__).parents[2] / "docs" / "generate.py"
_spec = importlib.util.spec_from_file_location("generate", _GENERATE)
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)

# Drawing and writing of records, whose examples would need a finished study.
NEED_A_STUDY = "depthmup.reports"
WITHOUT_EXAMPLE = {
    "depthmup.diagnostics": {
        "approach",
        "as_is",
        "branch_linearizations",
        "measured_map",
        "measured_regime",
        "observe",
        "planned",
    },
    "depthmup.limits": {"proposition_residual"},
    "depthmup.planning": {"anatomy"},
    "depthmup.records": {"sentence"},
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
    return set(re.findall(r"^    (\w+):$", inspect.getdoc(function) and function.__doc__, re.M))


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
    without = {
        parameter.id for parameter in FUNCTIONS if ">>>" not in (parameter.values[0].__doc__ or "")
    }
    expected = {f"{package}.{name}" for package, names in WITHOUT_EXAMPLE.items() for name in names}
    unexplained = {name for name in without if not name.startswith(NEED_A_STUDY)}
    assert unexplained == expected
