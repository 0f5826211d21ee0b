"""Sections of arguments, results and errors stand at the doors only: what an ``__init__`` exports.

Functions that nobody outside can call say in a line or two what they are.
"""

import ast
import re
from pathlib import Path

import pytest

import depthmup

PACKAGE = Path(depthmup.__file__).parent
ROOMS = ("cli", "diagnostics", "model", "rules", "sweep", "training")
# Files that still have sections inside: to be emptied, never to be added to.
STILL = {
    "cli/agreement.py",
    "sweep/certify.py",
    "sweep/losses.py",
    "sweep/sweep.py",
}
# Exported under the module's name: ``depthmup.sweep.logs.TensorBoard``.
LOGS = {"MLflow", "TensorBoard", "WandB"}
SECTION = re.compile(r"^\s*(Args|Returns|Raises|Yields):\s*$", re.MULTILINE)


def exported():
    """The names that any door exports, by the module that defines them."""
    doors = {}
    for file in (*PACKAGE.rglob("__init__.py"), PACKAGE / "data.py", PACKAGE / "models.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.name for alias in node.names}
                doors.setdefault(node.module, set()).update(names)
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
    for file in (PACKAGE / room).rglob("*.py"):
        if names := with_sections(file):
            found[str(file.relative_to(PACKAGE))] = names
    assert set(found) - STILL == set(), found
