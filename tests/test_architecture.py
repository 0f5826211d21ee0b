"""Who may import whom, and what a light import must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import depthmup

PACKAGE = Path(depthmup.__file__).parent
EVERYTHING = {
    "rules",
    "records",
    "limits",
    "tracing",
    "planning",
    "models",
    "data",
    "training",
    "statistics",
    "sweep",
    "diagnostics",
    "reports",
    "fitting",
    "claims",
}
ARROWS = {
    "rules": set(),
    "records": {"rules"},
    "limits": {"rules", "records"},
    "models": set(),
    "tracing": set(),
    "planning": {"tracing", "rules"},
    "data": set(),
    "training": {"planning", "models", "data", "records", "rules"},
    "statistics": {"records"},
    "sweep": {"training", "statistics", "records", "rules"},
    "diagnostics": {
        "training",
        "planning",
        "tracing",
        "models",
        "limits",
        "statistics",
        "records",
        "rules",
    },
    "reports": {"records", "rules"},
    "fitting": {"statistics", "reports", "records", "rules"},
    "claims": EVERYTHING,
    "cli": EVERYTHING,
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
            if parts[0] == "depthmup" and len(parts) > 1 and parts[1] in ARROWS:
                yield parts[1]


@pytest.mark.parametrize("package", ARROWS)
def test_imports_follow_the_arrows(package):
    for file in (PACKAGE / package).rglob("*.py"):
        wrong = set(imported_packages(file)) - ARROWS[package] - {package}
        assert not wrong, f"{file.relative_to(PACKAGE)} imports {sorted(wrong)}"


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
        "import depthmup.fitting",
        "import depthmup; depthmup.fit",
        "from depthmup.training import engine_for; engine_for()",
        "from depthmup.cli.main import parse; parse(['transfer'])",
    ],
)
def test_light_imports_do_not_load_torch(statement):
    assert loaded_by(statement, modules=["torch", "altair", "pandas", "sklearn"]) == []


def test_a_worker_reads_the_digits_without_scikit_learn():
    assert loaded_by("from depthmup.data import digits; digits()", modules=["sklearn"]) == []


def test_rules_need_the_standard_library_alone():
    assert loaded_by("import depthmup.rules", modules=["numpy", "scipy", "rich", "tyro"]) == []
