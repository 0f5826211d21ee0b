"""A command that ran before, of code that did not change: its report, without loading the code.

A person's file imports PyTorch, which takes longer than everything else where all runs are done.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from depthmup.recipes import RecipeReport
    from depthmup.report import Report


def finished_before(out: Path, command: Sequence[str]) -> "Report | RecipeReport | None":
    """The report of a folder whose last measurement is this command's and lacks no run, else none.

    The command, the folder where it was given, the files that its model was read from, and the
    versions are those of that session: in a copy of a project the same words name other files.
    """
    from depthmup.model.source_files import unchanged
    from depthmup.records import environment
    from depthmup.report import load_report
    from depthmup.sweep import MAIN_STORE, MissingRuns, Sweep, snapshot

    path = out / MAIN_STORE
    if not path.is_file():
        return None
    with snapshot(path) as store:
        last = next(iter(store.sessions()[-1:]), {})
        sources, then = last.get("sources"), last.get("environment", {})
        if last.get("folder") != str(Path.cwd()):
            return None
        if last.get("command") != [*command] or not isinstance(sources, dict) or not sources:
            return None
        if any(then.get(name) != value for name, value in environment().items()):
            return None
        if not unchanged(sources):
            return None
        try:
            return load_report(store, Sweep.from_dict(last["sweep"]))
        except MissingRuns:
            return None
