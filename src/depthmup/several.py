"""Several models of one design in one report: a sweep for each, with the same seeds.

A variant of the whole is a model's variant; its name mentions what has several values only.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from depthmup.records import Study, Window
from depthmup.records.gain import Gain
from depthmup.records.printable import printable
from depthmup.report import Report
from depthmup.statistics.gain import gains, gains_of, without_gain
from depthmup.statistics.runs import Runs
from depthmup.sweep import Size

_NAME = re.compile(r"\w[\w.+-]{0,59}")
"""Of a model: it names a folder, too."""


def check_names(models: Mapping[str, Any]) -> None:
    """Refuse a single model, and names that are no folders'."""
    if len(models) < 2:
        raise ValueError(
            f"Expected two models or more by their names; got {len(models)}. One needs no name."
        )
    if bad := [name for name in models if not isinstance(name, str) or not _NAME.fullmatch(name)]:
        raise ValueError(
            "Expected names of models that are letters, digits and _ . + -, such as 'new'; got "
            f"{printable(repr(bad[0]))}."
        )


def measured_together(
    models: Mapping[str, Any],
    measure: Callable[[Any, Path | None], Report],
    *,
    out: Path | None,
    over: str,
    target: Size | None,
) -> Report:
    """Measure one model after the other, each in its own folder of ``out``, and join them."""
    found = {
        name: measure(model, None if out is None else out / name) for name, model in models.items()
    }
    report = joined(found, over=over, target=target)
    if out is not None:
        report.save(out)
    return report


def joined(reports: Mapping[str, Report], *, over: str = "", target: Size | None = None) -> Report:
    """One report of all variants of several, along the axes that all of them measured."""
    called = partial(_called, reports)
    runs = [*_variants(reports).values()]
    first, *others = reports.values()
    axes = [
        s.axis for s in first.studies if all(s.axis in {t.axis for t in o.studies} for o in others)
    ]
    found = gains(runs, over=over, target=target)
    lacking = without_gain(runs, found, over)
    studies: list[Study] = []
    for axis in axes:
        own = {
            name: _renamed(report.study(axis), partial(called, name))
            for name, report in reports.items()
        }
        one = next(iter(own.values()))
        windows = [s.headline for s in own.values()]
        whole = Window(
            start=one.headline.start,
            stop=one.headline.stop,
            curves=tuple(curve for window in windows for curve in window.curves),
            transfers=tuple(transfer for window in windows for transfer in window.transfers),
        )
        studies.append(
            replace(
                one,
                title=f"{' and '.join(reports)}: {one.title.partition(':')[0].lower()}",
                windows=(whole,),
                training=(),
                search=None,
                rules=tuple(rule for s in own.values() for rule in s.rules),
                notes=(*lacking, *(note for s in own.values() for note in s.notes)),
                gains=() if studies else tuple(found),
                config={**one.config, "models": list(reports)},
            )
        )
    certificates = tuple(
        replace(certificate, title=called(name, certificate.title))
        for name, report in reports.items()
        for certificate in report.certificates
    )
    return Report(studies=tuple(studies), certificates=certificates, table_runs=tuple(runs))


def gains_between(reports: Mapping[str, Report], over: str) -> list[Gain]:
    """The gain of every report's variants over those of one report that are called alike.

    Where reports have one variant each, they need no common name. Variants without a common size
    have none.
    """
    runs = _variants(reports)
    pairs = {
        each.name: base.name
        for (name, key), each in runs.items()
        for (other, of), base in runs.items()
        if other == over != name
        and (
            key.casefold() == of.casefold()
            or len(reports[name].variants) == len(reports[over].variants) == 1
        )
    }
    return gains_of([*runs.values()], pairs)


def _called(reports: Mapping[str, Report], name: str, variant: str) -> str:
    """A variant of a report, where it stands beside those of others."""
    return f"{variant}, {name}" if len(reports[name].schemes) > 1 else name


def _variants(reports: Mapping[str, Report]) -> dict[tuple[str, str], Runs]:
    """The runs of the variants by report and name, but of those that lack a rule."""
    return {
        (name, key): replace(
            each,
            name=_called(reports, name, each.name),
            title=_called(reports, name, each.title),
        )
        for name, report in reports.items()
        for key, each in report.variants.items()
        if report.sweep is None or key in report.schemes
    }


def _renamed(study: Study, called: Callable[[str], str]) -> Study:
    """A study whose variants have other names."""
    window = study.headline
    curves = tuple(replace(c, scheme=called(c.scheme)) for c in window.curves)
    transfers = tuple(
        replace(t, scheme=called(t.scheme), title=called(t.title)) for t in window.transfers
    )
    return replace(
        study,
        windows=(replace(window, curves=curves, transfers=transfers),),
        rules=tuple(replace(rule, scheme=called(rule.scheme)) for rule in study.rules),
        notes=tuple(
            replace(note, scheme=called(note.scheme)) if note.scheme else note
            for note in study.notes
        ),
        gains=(),
    )
