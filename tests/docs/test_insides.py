"""Sections of arguments, results and errors stand at the doors only: what the site documents.

Functions that nobody outside calls have a line or two.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

import depthmup
from tests.docs.test_public_names import generate

PACKAGE = Path(depthmup.__file__).parent
ROOMS = sorted({file.relative_to(PACKAGE).parts[0] for file in PACKAGE.rglob("*.py")})
# Exported under the module's name: ``depthmup.sweep.logs.TensorBoard``.
LOGS = {"MLflow", "TensorBoard", "WandB"}
SECTION = re.compile(r"^\s*(Args|Returns|Raises|Yields):\s*$", re.MULTILINE)


def exported():
    """The names of the packages that the site documents, by the module that defines them."""
    doors = {}
    for package in (*generate.PACKAGES, "depthmup.data", "depthmup.models"):
        door = importlib.import_module(package)
        for value in (getattr(door, name) for name in door.__all__):
            if hasattr(value, "__qualname__"):
                doors.setdefault(value.__module__, set()).add(value.__qualname__)
    return doors


DOORS = exported()


def insides(tree, doors):
    """Functions and classes that are no doors, nor public methods of one that is."""

    def walk(node, inside_of):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from walk(child, inside_of)
                continue
            method = inside_of == "door" and not child.name.startswith("_")
            door = method or (inside_of == "module" and child.name in doors)
            if not door:
                yield child
            is_class = isinstance(child, ast.ClassDef)
            yield from walk(child, "door" if door and is_class else "function")

    return walk(tree, "module")


def with_sections(file):
    name = ".".join(("depthmup", *file.relative_to(PACKAGE).with_suffix("").parts))
    doors = DOORS.get(name, set()) | LOGS
    return [
        each.name
        for each in insides(ast.parse(file.read_text()), doors)
        if SECTION.search(ast.get_docstring(each) or "")
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_insides_have_no_sections(room):
    found = {}
    files = [PACKAGE / room] if room.endswith(".py") else (PACKAGE / room).rglob("*.py")
    for file in files:
        if names := with_sections(file):
            found[str(file.relative_to(PACKAGE))] = names
    assert found == {}
