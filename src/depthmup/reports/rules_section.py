"""Published rules beside what runs say of them: the section of a page."""

from collections.abc import Sequence

from depthmup.records import Judgement
from depthmup.reports.page import Section, Table

CONSISTENT = (
    "Consistent: the whole interval{of} lies within the tolerance of the rule. Rejected: none of "
    "it does. "
)


def judged_cells(judged: Judgement, *, cost: str, exponent: str) -> dict[str, str]:
    """A rule in words, with what the runs say of it."""
    return {
        "rule": judged.rule,
        "these runs": judged.answer.value,
        "cost": cost,
        "exponent": exponent,
        "presupposes": f"{judged.setting}.\nRange: {judged.reach}.",
        "source": f"{judged.source} ({judged.standing})",
    }


def rules_section(
    rows: Sequence[dict[str, str]], *, lead: str, name: str, group: str = ""
) -> list[Section]:
    """Rules in a table; none where there are no rows."""
    table = Table(
        rows=rows,
        name=name,
        numbers=("exponent",),
        verdict="these runs",
        wrapped=("presupposes", "source"),
        group=group,
    )
    return [Section(title="Published rules", lead=lead, table=table)] if rows else []
