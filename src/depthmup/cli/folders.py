"""Folders and files of results: checked before any work, removed again if they stay empty."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from depthmup._drafts import new_draft

_made: list[Path] = []
"""Folders that this command has made, outermost first."""

# Files written into the folder of a measurement, where no folder may have one of these names.
RESULTS = ("results.sqlite", "report.html", "summary.json", "certificate.json")


def prepare_folder(folder: Path, *, results: Sequence[str] = RESULTS) -> None:
    """Make the folder, or say why results could not be stored there."""
    if folder.is_symlink() and not folder.exists():
        raise ValueError(
            f"Expected --out to be a folder; {folder} is a link to {os.readlink(folder)}, which "
            "does not exist. Make that folder, or name another."
        )
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _made.extend(reversed(missing))
        # Tried, not asked: permissions do not tell of disks that are full or mounted to be read.
        probe, descriptor = new_draft(folder / "probe")
        os.close(descriptor)
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"Expected --out to be a folder that can be written; {folder} is not: "
            f"{error.strerror}. Name another folder."
        ) from error
    for name in results:
        _check_file(folder / name)


def prepare_file(path: Path, *, option: str, ends: Sequence[str] = ()) -> None:
    """Make the folder of a file, or say why it could not be written; ``ends`` are its suffixes."""
    if ends and path.suffix.lower() not in ends:
        raise ValueError(f"Expected {option} to end in {', '.join(ends)}; got {path.name!r}.")
    _check_file(path)
    try:
        prepare_folder(path.parent, results=())
    except ValueError as error:
        raise ValueError(str(error).replace("--out to be a folder", f"{option} in a folder")) from (
            error
        )


def page_file(out: Path, name: str, ends: Sequence[str] = (".html",)) -> Path:
    """The one file of a result, ready to be written: ``name.html`` where ``out`` is a folder."""
    file = out if out.suffix and not out.is_dir() else out / f"{name}.html"
    prepare_file(file, option="--out", ends=ends)
    return file


def page_and_data(out: Path, name: str) -> tuple[Path, Path]:
    """The HTML page and the JSON file of a result, both ready to be written.

    ``--out`` means the same in every command: a folder, which then holds ``name.html`` and
    ``name.json``; or, if it ends in .html or .json, the one file, and the other beside it.
    """
    if out.suffix.lower() in (".html", ".json"):
        files = out.with_suffix(".html"), out.with_suffix(".json")
    elif out.suffix and not out.is_dir():
        raise ValueError(
            f"Expected --out to be a folder, or a file that ends in .html or .json; got "
            f"{str(out)!r}."
        )
    else:
        files = out / f"{name}.html", out / f"{name}.json"
    for file in files:
        prepare_file(file, option="--out")
    return files


def remove_unused() -> None:
    """Remove the folders that this command made and left empty."""
    while _made:
        with suppress(OSError):  # not empty: it holds what was finished
            _made.pop().rmdir()


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ValueError(
            f"Expected to write the file {path}, but there is a folder of that name. Move it away."
        )
