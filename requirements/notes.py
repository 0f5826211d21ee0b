"""The notes of a release: what CHANGELOG.md says of a version, one line for each change.

python requirements/notes.py v0.2.0
"""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(version: str, changelog: str) -> str:
    """The section of a version, with every entry on a line of its own."""
    name = re.escape(version.removeprefix("v"))
    found = re.search(rf"^## {name}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if found is None or not found[1].strip():
        raise SystemExit(
            f"Expected a section '## {version.removeprefix('v')}' in CHANGELOG.md; there is none. "
            "Name the version there, in place of 'Unreleased'."
        )
    return re.sub(r"\n {2,}(?=\S)", " ", found[1]).strip() + "\n"


if __name__ == "__main__":
    print(notes(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")), end="")
