"""Who may import whom, and what a light import must not load."""

import ast
import graphlib
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import depthmup

PACKAGE = Path(depthmup.__file__).parent
REPRODUCTION = PACKAGE.parents[1] / "reproduction"
EVERYTHING = {
    "rules",
    "records",
    "limits",
    "model",
    "tracing",
    "measuring",
    "planning",
    "training",
    "posterior",
    "statistics",
    "sweep",
    "diagnostics",
    "reports",
    "tables",
}
ARROWS = {
    "rules": set(),
    "records": {"rules"},
    "limits": {"rules", "records"},
    "model": {"records"},
    "tracing": set(),
    "measuring": {"tracing", "rules"},
    "planning": {"measuring", "tracing", "rules"},
    "training": {"model", "planning", "measuring", "records", "rules"},
    "posterior": {"records"},
    "statistics": {"posterior", "records"},
    "sweep": {"training", "model", "statistics", "posterior", "records", "rules"},
    "diagnostics": {
        "measuring",
        "model",
        "training",
        "planning",
        "tracing",
        "statistics",
        "posterior",
        "records",
        "rules",
    },
    "reports": {"records", "rules"},
    "tables": {"statistics", "posterior", "records", "rules"},
    "cli": EVERYTHING,
}

# Doors for people to what a room has: no room imports them.
DOORS = {"data", "models"}

# A result draws and saves itself: what does so is loaded when it is asked for.
LATE = {f"records/{name}.py": {"reports"} for name in ("certificate", "check", "gain")}

# The public functions, which join packages into one road.
TOP = {
    "__init__": set(),
    "__main__": {"cli"},
    "_drafts": set(),
    "_excluded": {"tables", "records"},
    "_isolated": set(),
    "_meant": set(),
    "_uncompiled": set(),
    "_version": set(),
    "data": {"training"},
    "execution": {"records", "sweep"},
    "from_table": {"tables", "sweep", "statistics", "records", "rules"},
    "measure": {"model", "sweep", "statistics", "reports", "records"},
    "models": {"training"},
    "notebook": {"sweep", "reports"},
    "recipes": {"tables", "reports", "records"},
    "report": {"sweep", "tables", "statistics", "reports", "records"},
    "runner": {"model", "sweep", "training"},
    "several": {"sweep", "statistics", "records"},
}


def imported_packages(file):
    """The depthmup packages that a file imports anywhere, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "depthmup" and len(parts) > 1 and parts[1] in {*ARROWS, *DOORS}:
                yield parts[1]


@pytest.mark.parametrize("package", ARROWS)
def test_imports_follow_the_arrows(package):
    for file in (PACKAGE / package).rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        wrong = set(imported_packages(file)) - ARROWS[package] - {package} - LATE.get(name, set())
        assert not wrong, f"{name} imports {sorted(wrong)}"


def neighbours(room):
    """What each module of a room imports of the room anywhere, inside functions too."""
    files = {file.relative_to(PACKAGE): file for file in (PACKAGE / room).rglob("*.py")}
    modules = {
        ".".join(("depthmup", *path.with_suffix("").parts)).removesuffix(".__init__"): file
        for path, file in files.items()
    }
    return {
        name: {
            # A room's own door, where the name is no module of the room.
            other if other in modules else module
            for module, taken in imports(file)
            for other in (f"{module}.{what}" for what in taken or ("",))
            if module in modules or other in modules
        }
        for name, file in modules.items()
    }


@pytest.mark.parametrize("room", ARROWS)
def test_no_circle_of_imports_inside_a_room(room):
    try:
        tuple(graphlib.TopologicalSorter(neighbours(room)).static_order())
    except graphlib.CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


MAP = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_map_lists_every_room_above_those_that_it_imports():
    rooms = re.findall(r"^\| `(\w+)/` \|", MAP, re.MULTILINE)
    assert set(rooms) == set(ARROWS)
    for room in EVERYTHING:
        assert all(rooms.index(room) < rooms.index(other) for other in ARROWS[room]), room


def test_the_map_names_files_that_exist():
    root = PACKAGE.parents[1]
    files = {file.relative_to(root).as_posix() for file in root.glob("[st]*/**/*.py")}
    named = set(re.findall(r"`([\w/]*\w+\.py)", MAP))
    missing = {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)}
    assert len(named) > 40
    assert not missing


HOMONYMS = {
    "Options": "of each verb in its own file, which the table of verbs loads by name",
    "Branch": "depthmup.Branch marks a module, limits.Branch sets a problem: both are public",
}
"""Names that several classes have, and why."""


def test_no_two_classes_have_one_name():
    """A reader who meets a name knows what it is, whichever file they are in."""
    places = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(file.relative_to(PACKAGE).as_posix())
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert twice.keys() == HOMONYMS.keys(), twice
    assert sorted(twice["Branch"]) == ["limits/problem.py", "planning/declared.py"]
    assert all(file.startswith("cli/") for file in twice["Options"])


def test_the_reproduction_uses_public_doors_only():
    """What reproduces the paper could have been written outside of this package."""
    files = list(REPRODUCTION.rglob("*.py"))
    assert files
    for file in files:
        for module, names in doors(file):
            exported = getattr(importlib.import_module(module), "__all__", ())
            assert exported, f"{file.name} imports {module}, which is no door"
            inside = set(names) - set(exported) - set(ARROWS if module == "depthmup" else ())
            assert not inside, f"{file.name} takes {sorted(inside)}, which {module} does not export"


def doors(file):
    """The modules of this package that a file imports from, with the names that it takes."""
    for module, names in imports(file):
        if module.partition(".")[0] == "depthmup":
            yield module, names


def imports(file):
    """The modules that a file imports anywhere, with the names that it takes from each."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", [alias.name for alias in node.names]


def test_nothing_in_the_package_imports_the_reproduction_by_name():
    """It is found in a clone, or it is not there."""
    for file in PACKAGE.rglob("*.py"):
        for module, _ in imports(file):
            assert module.partition(".")[0] != "reproduction", file


@pytest.mark.parametrize("file", sorted(PACKAGE.glob("*.py")), ids=lambda file: file.stem)
def test_files_at_the_top_follow_the_arrows_too(file):
    wrong = set(imported_packages(file)) - TOP[file.stem]
    assert not wrong, f"{file.name} imports {sorted(wrong)}"


def test_every_package_is_on_the_map():
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert folders <= set(ARROWS)


def loaded_by(statement, *, modules):
    code = f"import sys; {statement}; print(*[m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "statement",
    [
        "import depthmup",
        "import depthmup.rules",
        "import depthmup.records",
        "import depthmup.reports",
        "import depthmup.sweep",
        "import depthmup.tables",
        "import depthmup; depthmup.fit",
        "from depthmup.training import engine_for; engine_for()",
        "from depthmup.cli.verbs import parse; parse(['transfer'])",
    ],
)
def test_light_imports_do_not_load_torch(statement):
    assert loaded_by(statement, modules=["torch", "altair", "pandas", "sklearn"]) == []


def test_a_worker_reads_the_digits_without_scikit_learn():
    assert loaded_by("from depthmup.data import digits; digits()", modules=["sklearn"]) == []


def test_a_worker_that_only_starts_commands_loads_no_scipy():
    assert loaded_by("import depthmup.sweep.executors.processes", modules=["scipy", "torch"]) == []


def test_rules_need_the_standard_library_alone():
    assert loaded_by("import depthmup.rules", modules=["numpy", "scipy", "rich", "tyro"]) == []


def imports_inside(room):
    """Each file of a room -> the files of the room that it imports anywhere."""
    files = {file.stem: file for file in (PACKAGE / room).glob("*.py") if file.stem != "__init__"}
    door = f"depthmup.{room}"
    result = {}
    for stem, file in files.items():
        names = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == door:
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{door}."):
                names.add(node.module.removeprefix(f"{door}."))
        result[stem] = names & files.keys()
    return result


@pytest.mark.parametrize("room", ["planning", "measuring", "tracing"])
def test_no_circle_inside_a_room(room):
    """Files can be put in an order in which each imports those before it alone."""
    left = imports_inside(room)
    while lowest := {file for file, names in left.items() if not names & left.keys()}:
        left = {file: names for file, names in left.items() if file not in lowest}
    assert not left, f"{sorted(left)} import each other in a circle"
