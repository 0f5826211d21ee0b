"""The files of a measurement in its folder, and its display in a notebook."""

import hashlib
import html
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from depthmup._drafts import Files, together
from depthmup._version import __version__
from depthmup.records import Study
from depthmup.records.certificate import Certificate
from depthmup.records.codec import encode
from depthmup.reports.files import save_chart
from depthmup.reports.page import card_html
from depthmup.reports.study_charts import FILES, STUDY_CHARTS, picture_of, section_of
from depthmup.reports.study_page import page, verdict_cards
from depthmup.reports.summary_json import summary
from depthmup.reports.tables import said

FORMATS = ("pdf", "png", "svg")

OF_SESSIONS = ("date", "seconds, all sessions")
"""Of a study's environment, what changes when nothing new is trained."""


def export(
    study: Study,
    folder: Path | str,
    *,
    formats: Iterable[str] = FORMATS,
    window: int | None = None,
    files: Files | None = None,
) -> tuple[Path, ...]:
    """Write every chart into a folder in each format, and return the paths.

    Args:
        study: to draw.
        folder: to write into.
        formats: pdf, png (with twice the resolution of a screen) or svg.
        window: index of the window of training, by default the last, which the verdicts are about.
        files: of the same result, with which they are written.

    Returns:
        The paths that were written.

    Raises:
        ValueError: an unknown format, or none.

    Example:
        >>> from depthmup.reports import example_study
        >>> export(example_study(), "charts", formats={"gif"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Charts are written as pdf, png, svg; got gif. Pass some of those, ...
        >>> export(example_study(), "charts", formats={"svg"})  # doctest: +SKIP
        (PosixPath('charts/drift.svg'), ...)
    """
    wanted = tuple(sorted({formats} if isinstance(formats, str) else set(formats)))
    unknown = [name for name in wanted if name not in FORMATS]
    if unknown or not wanted:
        raise ValueError(
            f"Charts are written as {', '.join(FORMATS)}; got {', '.join(unknown) or 'no format'}. "
            "Pass some of those, e.g. formats={'svg'}."
        )
    # An empty study is refused before anything is written.
    sections = {FILES.get(name, name): section_of(study, name, window) for name in STUDY_CHARTS}
    charts = {file: picture_of(section) for file, section in sections.items() if section.plots}
    folder, axis = Path(folder), re.sub(r"\W", "_", study.axis)
    drawn = {
        folder / f"{plain.replace('size', axis)}.{kind}": chart
        for plain, chart in charts.items()
        for kind in wanted
    }
    folder.mkdir(parents=True, exist_ok=True)
    with together(files) as drafts:
        for path, chart in drawn.items():
            save_chart(chart, path, files=drafts)
    return tuple(drawn)


def write_result(
    studies: Sequence[Study],
    folder: Path,
    *,
    certificates: Sequence[Certificate] = (),
    formats: Collection[str] = (),
    whole: bool = False,
    redraw: bool = True,
    more: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, object]:
    """Write report.html, summary.json, certificate.json and the charts; return the summary.

    Args:
        studies: one for each axis.
        folder: to write into.
        certificates: of the target, if there is one.
        formats: of chart files, such as "svg".
        whole: whether the summary holds all that a report is made from (``summary``).
        redraw: whether to draw a page again that is of the same studies and version.
        more: further texts of the result, by the names of their files.

    Returns:
        The summary.

    Example:
        >>> import tempfile
        >>> from depthmup.reports import example_study
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = write_result([example_study()], Path(folder))
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['report.html', 'summary.json']
    """
    contents = summary(*studies, certificates=certificates, whole=whole)
    text = json.dumps(contents, indent=2, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    names = [
        f"certificate-{i + 1}.json" if i else "certificate.json" for i, _ in enumerate(certificates)
    ]
    with together() as files:
        files.write(folder / "summary.json", text + "\n")
        mark = _mark(studies, certificates)
        if redraw or not _has(folder / "report.html", mark):
            drawn = page(*studies, certificates=certificates) + mark
            files.write(folder / "report.html", drawn)
        for name, certificate in zip(names, certificates, strict=True):
            files.write(folder / name, _sealed(certificate, folder / name).to_json() + "\n")
        remove_certificates(files, folder, but=names)
        for name, content in more.items():
            files.write(folder / name, content)
        for i, study in enumerate(studies if formats else ()):
            within = folder / "charts" / study.axis if i else folder / "charts"
            export(study, within, formats=set(formats), files=files)
    return contents


def remove_certificates(files: Files, folder: Path, *, but: Collection[str]) -> None:
    """Remove those of an earlier measurement in a folder."""
    for old in (*folder.glob("certificate.json"), *folder.glob("certificate-*.json")):
        if old.name not in but:
            files.remove(old)


def _mark(studies: Sequence[Study], certificates: Sequence[Certificate]) -> str:
    """A comment for the end of a page: the version and a hash of what it shows.

    The date and the seconds of sessions are no part of it.
    """
    alike = [
        replace(s, environment={k: v for k, v in s.environment.items() if k not in OF_SESSIONS})
        for s in studies
    ]
    shown = [replace(c, environment={}) for c in certificates]
    text = json.dumps(encode([__version__, alike, shown]))
    return f"<!-- depthmup {__version__} {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def _has(page: Path, mark: str) -> bool:
    """Whether a file ends with a mark."""
    try:
        with page.open("rb") as file:
            file.seek(-len(mark), os.SEEK_END)
            return file.read() == mark.encode()
    except OSError:  # there is none, or a shorter one
        return False


def _sealed(certificate: Certificate, file: Path) -> Certificate:
    """The certificate with the date on which its file first forecast this from these runs."""
    today = replace(certificate, date=datetime.now(UTC).date().isoformat())
    try:
        before = Certificate.from_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, or not ours
        return today
    # As text, in which NaN is equal to itself.
    texts = {replace(c, date="", environment={}).to_json() for c in (before, certificate)}
    return today if len(texts) > 1 or not before.date else replace(today, date=before.date)


def notebook(study: Study, *more: Study) -> str:
    """Cards of verdicts and charts as HTML without scripts, which any notebook shows and keeps.

    Args:
        study: to be shown.
        more: further studies.

    Returns:
        HTML.

    Example:
        >>> from depthmup.reports import example_study
        >>> "<svg" in notebook(example_study())
        True
    """
    parts = []
    for s in (study, *more):
        parts += [
            f"<div><b>{html.escape(sentence)}</b></div>" for sentence in said(s, (study, *more))
        ]
        parts += map(card_html, verdict_cards(s))
        for chart in (picture_of(section_of(s, name)) for name in ("transfer", "rates")):
            parts.append(f"<div>{chart.svg}</div>")
    return "\n".join(parts)
