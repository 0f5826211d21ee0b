"""Every chart of a study as files for papers and slides."""

from collections.abc import Iterable
from pathlib import Path

from depthmup.records import Study
from depthmup.reports.charts import CHARTS
from depthmup.reports.files import save_chart
from depthmup.reports.slices import drawn
from depthmup.reports.study_rows import transfers

FORMATS = ("pdf", "png", "svg")


def export(
    study: Study,
    folder: Path | str,
    *,
    formats: Iterable[str] = FORMATS,
    window: int | None = None,
) -> tuple[Path, ...]:
    """Write every chart into a folder in each format, and return the paths.

    Args:
        study: to draw.
        folder: to write into.
        formats: pdf, png (with twice the resolution of a screen) or svg.
        window: index of the window of training, by default the last, which the verdicts are about.

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
    transfers(study)  # an empty study is refused before anything is written
    charts = {name: chart(drawn(study), window=window) for name, chart in CHARTS.items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plain, chart in charts.items():
        name = plain.replace("size", drawn(study).axis)
        for kind in wanted:
            path = folder / f"{name}.{kind}"
            save_chart(chart, path)
            paths.append(path)
    return tuple(paths)
