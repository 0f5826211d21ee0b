"""Evidence as one self-contained page, as a table in Markdown, as lines, and as JSON."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from depthmup.records import Estimate
from depthmup.reports import (
    Files,
    duration,
    facts,
    interval,
    library,
    number,
    render,
    save_chart,
    script_json,
    strict,
    together,
)
from depthmup.reports import Picture as Drawn
from reproduction.evidence import Comparison, Evidence, Finding, Reproduction
from reproduction.prices import counted

_TONES = {
    Reproduction.REPRODUCED: "#00734f",
    Reproduction.NOT_REPRODUCED: "#a83f00",
    Reproduction.UNDECIDABLE: "#5b6472",
}
GROUPS = {
    "figures": "Figures",
    "claims": "Claims and theorems",
    "errata": "Errata of the paper",
    "beyond": "Beyond the paper",
}
# Not the paper's own: a statement about its text, or a result it does not have, stands or not.
_NOT_THE_PAPERS = ("errata", "beyond")
_CONFIRMED_WORDS = {
    Reproduction.REPRODUCED: "confirmed",
    Reproduction.NOT_REPRODUCED: "not confirmed",
    Reproduction.UNDECIDABLE: "open",
}


_EXPECTED = {"beyond": "derived"}
"""Where the paper says nothing, what is expected was derived."""


def evidence_page(evidence: Evidence) -> str:
    """All findings as one HTML page: a summary table, then every claim with its charts.

    Opens offline and asks no server for anything; text is escaped wherever it stands.
    """

    return render(
        "evidence.html.j2",
        package="reproduction.pages",
        headline=evidence_headline(evidence),
        scale=evidence.scale,
        groups=[
            {"title": title, "findings": [_finding(f) for f in evidence.findings if f.group == g]}
            for g, title in GROUPS.items()
            if any(f.group == g for f in evidence.findings)
        ],
        config=facts(evidence.config),
        environment=facts(evidence.environment),
        charts=script_json(
            {
                _place(finding, picture.name): picture.spec
                for finding in evidence.findings
                for picture in finding.pictures
            }
        ),
        frames=script_json({f.claim: _frames(f) for f in evidence.findings if _frames(f)}),
        library=library(),
    )


def evidence_headline(evidence: Evidence) -> str:
    """How many statements were reproduced, in one sentence.

    Example:
        >>> print(evidence_headline(Evidence(scale="laptop", findings=(), environment={})))
        0 of 0 figures and claims reproduced
    """
    counted = [f for f in evidence.findings if f.group not in _NOT_THE_PAPERS]
    parts = [
        f"{sum(f.verdict is Reproduction.REPRODUCED for f in counted)} of {len(counted)} figures "
        "and claims reproduced"
    ]
    for verdict in (Reproduction.NOT_REPRODUCED, Reproduction.UNDECIDABLE):
        count = sum(f.verdict is verdict for f in counted)
        parts += [f"{count} {verdict.value}"] * bool(count)
    for group, words in (("errata", "errata"), ("beyond", "results beyond the paper")):
        findings = [f for f in evidence.findings if f.group == group]
        confirmed = sum(f.verdict is Reproduction.REPRODUCED for f in findings)
        parts += [f"{confirmed} of {len(findings)} {words} confirmed"] * bool(findings)
    return "; ".join(parts)


def evidence_markdown(evidence: Evidence, *, command: str, beside: Sequence[Evidence] = ()) -> str:
    """The summary table for a repository, with when, where and how it was obtained."""
    lines = [
        "# Evidence",
        "",
        "Figures and claims of Tensor Programs VI (arXiv 2310.02244), measured again at scale "
        f"`{evidence.scale}`: {evidence_headline(evidence)}.",
        "",
        f"Made by `{command}`, which also writes the page with all charts. Each verdict is "
        "computed: a claim is reproduced if every decisive interval lies in what was accepted "
        "beforehand, not reproduced if one lies outside, and else not decidable at this scale. "
        "Where what is accepted was revised after a first result, the claim says so.",
        "",
        *_facts(evidence),
    ]
    if beside:
        lines += ["", "## By scale", "", *_by_scale((evidence, *beside))]
    lines += _tables(evidence, level="##")
    for other in beside:
        lines += [
            "",
            f"## At scale `{other.scale}`",
            "",
            f"{evidence_headline(other)}.",
            "",
            *_facts(other),
            *_tables(other, level="###"),
        ]
    opened = [f for f in evidence.findings if f.verdict is Reproduction.UNDECIDABLE]
    if opened:
        lines += ["", "## Open: what would decide it", ""]
        lines += [f"- **{f.claim}**: {remedy_of(f)}" for f in opened]
    revised = [f for f in evidence.findings if f.revised]
    if revised:
        lines += ["", "## Revised after a first result", ""]
        lines += [f"- **{f.claim}**: {f.revised}" for f in revised]
    notes = [(f, note) for f in evidence.findings for note in f.notes]
    if notes:
        lines += ["", "## Notes", "", *(f"- **{f.claim}**: {note}" for f, note in notes)]
    lines += ["", "Verdicts in brackets are shown beside and decide nothing.", ""]
    return "\n".join(lines)


def _facts(evidence: Evidence) -> list[str]:
    """When, where and how it was obtained."""
    rows = facts({**evidence.environment, **evidence.config})
    return [
        "| | |",
        "| --- | --- |",
        *(f"| {_cell(label)} | {_cell(text)} |" for label, text in rows),
    ]


def _by_scale(scales: Sequence[Evidence]) -> list[str]:
    """The verdicts of every claim that was measured at another scale than the first, by scale."""
    verdicts = [{f.claim: _word(f) for f in of_scale.findings} for of_scale in scales]
    named = {f.claim: f for of_scale in scales[1:] for f in of_scale.findings}
    titles = [f"`{of_scale.scale}`" for of_scale in scales]
    lines = [f"| claim | {' | '.join(titles)} |", "| --- " * (len(scales) + 1) + "|"]
    for claim, finding in named.items():
        row = (f"**{claim}** {finding.title}", *(words.get(claim, "–") for words in verdicts))
        lines.append(f"| {' | '.join(_cell(text) for text in row)} |")
    return lines


def _tables(evidence: Evidence, *, level: str) -> list[str]:
    """A table of comparisons for every group of findings, under headings of a level."""
    lines: list[str] = []
    for group, title in GROUPS.items():
        findings = [f for f in evidence.findings if f.group == group]
        if not findings:
            continue
        lines += [
            "",
            f"{level} {title}",
            "",
            f"| claim | what | {_EXPECTED.get(group, 'paper')} | ours (95%) | accepted | verdict |",
            "| --- " * 6 + "|",
        ]
        for finding in findings:
            for i, c in enumerate(finding.comparisons or ()):
                first = f"**{finding.claim}** {finding.title}: {_word(finding)}"
                first = f"{first} ({cost_of(finding)})" if not i else ""
                verdict = _word_of(c, finding) if c.decisive else f"({_word_of(c, finding)})"
                row = (first, c.what, c.paper, measured(c.ours), str(c.accepted), verdict)
                lines.append(f"| {' | '.join(_cell(text) for text in row)} |")
    return lines


def evidence_text(evidence: Evidence) -> str:
    """The verdicts as aligned lines, and what would decide those that are open."""
    rows = [("claim", "verdict", "title")]
    rows += [(f.claim, _word(f), f.title) for f in evidence.findings]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ["  ".join(t.ljust(w) for t, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    opened = [f"{f.claim}: {said}" for f in evidence.findings if (said := remedy_of(f))]
    return "\n".join([*lines, "", evidence_headline(evidence), *([""] if opened else []), *opened])


def evidence_summary(evidence: Evidence) -> dict[str, Any]:
    """What a machine reads: every comparison with its interval and verdict."""
    return {
        "scale": evidence.scale,
        "headline": evidence_headline(evidence),
        "claims": [
            {
                "claim": f.claim,
                "title": f.title,
                "group": f.group,
                "source": f.source,
                "verdict": f.verdict.value,
                "runs": f.runs,
                "seconds": round(f.seconds, 1),
                "comparisons": [
                    {
                        "what": c.what,
                        "paper": c.paper,
                        "estimate": strict(c.ours.value),
                        "low": strict(c.ours.low),
                        "high": strict(c.ours.high),
                        "unit": c.ours.unit,
                        "accepted": str(c.accepted),
                        "decisive": c.decisive,
                        "verdict": c.verdict.value,
                    }
                    for c in f.comparisons
                ],
                "revised": f.revised,
                "notes": list(f.notes),
                "config": strict(f.config),
            }
            for f in evidence.findings
        ],
        "config": strict(evidence.config),
        "environment": strict(evidence.environment),
    }


def export_pictures(
    evidence: Evidence, folder: Path, *, formats: Iterable[str], files: Files | None = None
) -> tuple[Path, ...]:
    """Every chart as a file, at the last frame of its slider; with ``files`` of the same result."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    pictures = [(finding, picture) for finding in evidence.findings for picture in finding.pictures]
    with together(files) as drafts:
        for finding, picture in pictures:
            spec = {**picture.spec}
            if spec.get("width") == "container":
                spec["width"] = 560
            for kind in sorted(set(formats)):
                path = folder / f"{_place(finding, picture.name)}.{kind}"
                save_chart(Drawn(spec=spec), path, files=drafts)
                written.append(path)
    return tuple(written)


def measured(estimate: Estimate) -> str:
    """A number with its interval, as many digits as the interval warrants.

    Example:
        >>> print(measured(Estimate(value=-0.0312, low=-0.0401, high=-0.0223)))
        −0.031 [−0.040, −0.022]
        >>> print(measured(Estimate(value=0.0031, low=0.0030, high=0.0032)))
        0.00310 [0.00300, 0.00320]
        >>> print(measured(Estimate(value=3.2e-12, low=3.2e-12, high=3.2e-12)))
        3.2e-12
        >>> print(measured(Estimate(value=float("inf"), low=1.5, high=float("inf"))))
        ∞ [1.50, ∞]
    """
    value, low, high = estimate.value, estimate.low, estimate.high
    if math.isnan(value):
        return "not measured"
    if low == high or math.isnan(low) or math.isnan(high):
        if 0 < abs(value) < 1e-3:
            return _short(value, 2)
        text = number(value, 3)
        return text.rstrip("0").rstrip(".") if "." in text else text
    spread = high - low
    # Two digits of the interval's width, and two decimals at least.
    digits = 2 if math.isinf(spread) else max(2, 1 - math.floor(math.log10(spread)))
    if digits <= 6:
        return f"{number(value, digits)} {interval(estimate, digits)}"
    size = max(abs(v) for v in (value, low, high))
    digits = min(max(2, math.floor(math.log10(size)) + 1 + digits), 12)
    return f"{_short(value, digits)} [{_short(low, digits)}, {_short(high, digits)}]"


def _short(value: float, digits: int) -> str:
    """A small number by its significant digits, with a true minus sign in front."""
    return f"{value:.{digits}g}".replace("-", "−", 1 if value < 0 else 0)


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.claim,
        "title": finding.title,
        "shows": finding.shows,
        "source": finding.source,
        "verdict": _word(finding),
        "tone": _TONES[finding.verdict],
        "remedy": remedy_of(finding),
        "cost": cost_of(finding),
        "revised": finding.revised,
        "notes": finding.notes,
        "command": finding.command,
        "config": facts(finding.config),
        "frames": _frames(finding),
        "comparisons": [
            {
                "what": c.what,
                "paper": c.paper,
                "ours": measured(c.ours),
                "unit": c.ours.unit,
                "accepted": str(c.accepted),
                "verdict": _word_of(c, finding),
                "tone": _TONES[c.verdict],
                "decisive": c.decisive,
            }
            for c in finding.comparisons
        ],
        "pictures": [
            {"id": _place(finding, p.name), "caption": p.caption, "legend": p.legend}
            for p in finding.pictures
        ],
    }


def _word(finding: Finding) -> str:
    if finding.group in _NOT_THE_PAPERS:
        return _CONFIRMED_WORDS[finding.verdict]
    return finding.verdict.value


def _word_of(comparison: Comparison, finding: Finding) -> str:
    if finding.group in _NOT_THE_PAPERS:
        return _CONFIRMED_WORDS[comparison.verdict]
    return comparison.verdict.value


def cost_of(finding: Finding) -> str:
    """What a claim took.

    Example:
        >>> cost_of(Finding(claim="fig10", title="", shows="", source="", comparisons=(),
        ...                 runs=600, seconds=70))
        '600 runs, 1 min 10 s'
    """
    if not finding.runs:
        return "no runs"
    return f"{counted(finding.runs, 'run')}, {duration(finding.seconds)}"


AT_MOST = 100
"""Times the runs of a claim beyond which no more of them are proposed."""


def remedy_of(finding: Finding) -> str:
    """What would decide an open claim: its own runs by their errors, and what it says itself."""
    if finding.verdict is not Reproduction.UNDECIDABLE:
        return ""
    return " ".join(filter(None, (_runs_to_decide(finding), finding.remedy)))


def _runs_to_decide(finding: Finding) -> str:
    if finding.going_on:
        return f"Its search was stopped before its limit; `{finding.command}` goes on."
    runs = finding.runs_to_decide
    if math.isnan(runs) or not finding.runs:
        return ""
    if runs > AT_MOST * finding.runs:
        return f"More runs would not: {AT_MOST} times as many leave it open, if estimates stay."
    time = duration(finding.seconds * runs / finding.runs)
    return f"{math.ceil(runs / 10) * 10:,} runs of this kind would ({time}), if estimates stay."


def _frames(finding: Finding) -> list[str]:
    """What the claim's slider steps through; pictures without frames do not move."""
    return next((list(p.frames) for p in finding.pictures if len(p.frames) > 1), [])


def _place(finding: Finding, name: str) -> str:
    return f"{finding.claim}-{name}".replace(".", "_")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
