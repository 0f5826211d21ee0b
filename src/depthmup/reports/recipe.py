"""Several tuned values at once: in words, as rows, as a page, and in a notebook."""

import html
import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from depthmup.records import UNKNOWN, Estimate, Judgement, Place, Tuned, Verdict
from depthmup.records.finding import amount, change, change_span, percent, ranged, rate
from depthmup.records.recipe import Recipe
from depthmup.records.search import SearchStory
from depthmup.records.sizes import size_text
from depthmup.records.text import begin, counted, table_lines
from depthmup.reports.page import Card, Page, Section, Table, card_html
from depthmup.reports.recipe_arguments import argument_cells, copied, source_sentence
from depthmup.reports.recipe_planes import picture_of, planes_section
from depthmup.reports.rules_section import CONSISTENT, judged_cells, rules_section
from depthmup.reports.search_story import runs_of_round
from depthmup.reports.study_rows import Row

WIDTH = 100
"""Columns of sentences on a console."""

SYMBOLS = {Verdict.TRANSFERS: "✓", Verdict.DRIFTS: "✗", Verdict.UNDECIDED: "?"}


def headline(recipe: Recipe) -> str:
    """The verdict, and the values to use."""
    axes = " and ".join(along.axis for along in recipe.along)
    verdicts = {
        Verdict.TRANSFERS: f"The recipe transfers along {axes}.",
        Verdict.DRIFTS: f"The recipe drifts along {axes}.",
        Verdict.UNDECIDED: "Whether the recipe transfers is undecided.",
    }
    if beyond := _more_was_better(recipe):
        return f"{verdicts[recipe.verdict]} {beyond}"
    best = recipe.handed_on
    values = ", ".join(
        f"{one.name} {amount(log2.exp2().value, whole=one.is_whole)}"
        for one, log2 in zip(recipe.tuned, best.log2, strict=True)
    )
    return f"{verdicts[recipe.verdict]} At {size_text(best.size)} use {values}."


def _more_was_better(recipe: Recipe) -> str:
    """What to do where the best batch or number of steps lies above all that were tried."""
    ends = [
        f"{one.name} lies above all that were tried ({recipe.beyond[one.key]} at most)"
        for one in recipe.tuned
        if one.key in recipe.beyond
    ]
    said = f"The best {' and the best '.join(ends)}: fix what you can afford, and tune the rest."
    return said if ends else ""


def combination_sentence(recipe: Recipe) -> str:
    """The best-known combination, and how free its parts are; empty where there is none."""
    if not recipe.exponents:
        return ""
    best = recipe.handed_on
    parts = [
        (one, log2)
        for one, log2, exponent in zip(recipe.tuned, best.log2, recipe.exponents, strict=True)
        if exponent
    ]
    loose = [
        f"the {one.name} by a factor of {rate(2.0 ** ((log2.high - log2.low) / 2))}"
        for one, log2 in parts
    ]
    known = best.combination
    span = change_span(known.low - known.value, known.high - known.value)
    if len(parts) == 1:
        return ""
    return (
        f"{begin(recipe.combination)} = {rate(known.exp2().value)} ({span}) at "
        f"{size_text(best.size)}. Apart they are free: {' and '.join(loose)}."
    )


def sentences(recipe: Recipe) -> list[str]:
    """Everything that is said beside the tables."""
    costs = ", ".join(
        f"of the {one.name} {_percent(cost)}"
        for one, cost in zip(recipe.tuned, recipe.factor_two, strict=True)
    )
    found = [along.why for along in recipe.along]
    found += [combination_sentence(recipe)]
    found += [
        "At the largest size twice or half the best value costs, with the others tuned again: "
        f"{costs} of the loss."
    ]
    for i, (one, places, frees) in enumerate(
        zip(
            recipe.tuned,
            zip(*(o.places for o in recipe.optima), strict=True),
            zip(*(o.free for o in recipe.optima), strict=True),
            strict=True,
        )
    ):
        # Of examples and steps there is one at least.
        least = one.is_whole and min(run.log2[i] for run in recipe.runs) <= 0
        edges = [
            o
            for o, place in zip(recipe.optima, places, strict=True)
            if place.at_edge and not (least and place is Place.LOW_EDGE)
        ]
        if all(frees) and not edges:
            found.append(
                f"The runs do not bound the {one.name}: any value that was tried may be the best."
            )
        elif edges and one.key not in recipe.beyond:
            ways = {p for p in places if p.at_edge}
            way = "lower" if ways == {Place.LOW_EDGE} else "higher"
            way = "lower and higher" if len(ways) > 1 else way
            at = "; ".join(size_text(o.size) for o in edges)
            found.append(f"At {at} the best {one.name} lies beyond the runs: try {way} values.")
    return [sentence for sentence in (*found, *recipe.notes) if sentence]


def _percent(cost: Estimate) -> str:
    if math.isinf(cost.high):
        return f"more than {percent(cost.low)}: it may diverge"
    return ranged(cost, percent)


def _best(one: Tuned, log2: Estimate, free: bool) -> str:
    say = partial(amount, whole=one.is_whole)
    best = log2.exp2()
    return f"free ({say(best.low)} to {say(best.high)})" if free else ranged(best, say)


def optimum_cells(recipe: Recipe) -> list[dict[str, str]]:
    """Every size's best values, in words."""
    rows = []
    for at in (*recipe.optima, *([recipe.target] if recipe.target else ())):
        predicted = " (predicted, 90%)" if at is recipe.target else ""
        row = {"size": f"{size_text(at.size)}{predicted}"}
        row |= {
            one.name: _best(one, log2, free)
            for one, log2, free in zip(recipe.tuned, at.log2, at.free, strict=True)
        }
        if recipe.exponents:
            row[recipe.combination] = ranged(at.combination.exp2())
        rows.append(row)
    return rows


def drift_cells(recipe: Recipe) -> list[dict[str, str]]:
    """Every value's drift along every axis and what it costs, in words; the recipe's last."""
    rows = []
    for along in recipe.along:
        names = [one.name for one in recipe.tuned]
        parts = list(
            zip(names, along.drifts, [v.value for v in along.verdicts], along.alone, strict=True)
        )
        rows += [
            {
                "along": along.axis,
                "value": name,
                "per doubling": change(drift.value),
                "95%": change_span(drift.low, drift.high),
                "carried over costs": _percent(cost),
                "verdict": verdict,
            }
            for name, drift, verdict, cost in parts
        ]
        moved = along.combination
        if recipe.exponents:
            rows.append(
                {
                    "along": along.axis,
                    "value": recipe.combination,
                    "per doubling": change(moved.value),
                    "95%": change_span(moved.low, moved.high),
                    "carried over costs": "",
                    "verdict": "",
                }
            )
        rows.append(
            {
                "along": along.axis,
                "value": "the whole recipe",
                "per doubling": "",
                "95%": "",
                "carried over costs": _percent(along.carried),
                "verdict": along.verdict.value,
            }
        )
    return rows


def _lines(rows: Sequence[dict[str, str]], width: int, spared: Sequence[str] = ()) -> list[str]:
    return table_lines(rows, width=width, spared=spared, left=range(len(rows[0])))


def _optimum_lines(recipe: Recipe, width: int) -> list[str]:
    """Every size's best values, in a column each; below each other where they do not fit."""
    rows = optimum_cells(recipe)
    lines = _lines(rows, width)
    if len(lines[1]) <= width:
        return lines
    each = [
        {"value": name, "size": row["size"], "best": row[name]}
        for name in list(rows[0])[1:]
        for row in rows
    ]
    return _lines(each, width)


def recipe_text(recipes: Sequence[Recipe], width: int | None = None) -> str:
    """All recipes of a table, for a console of some width; for files tables are as wide as ever."""
    blocks, wrapped = [], width or WIDTH
    width = width or sys.maxsize
    for recipe in recipes:
        title = [f"{recipe.title}: {headline(recipe)}" if len(recipes) > 1 else headline(recipe)]
        texts = [*sentences(recipe), source_sentence(recipe)]
        said = [line for text in texts for line in textwrap.wrap(text, wrapped)]
        moved = drift_cells(recipe)
        rules = [
            line
            for text in rule_lines(recipe)
            for line in textwrap.wrap(f"- {text}", wrapped, subsequent_indent="  ")
        ]
        blocks.append(
            "\n".join(
                [
                    *(line for text in title for line in textwrap.wrap(text, wrapped)),
                    "",
                    *_optimum_lines(recipe, width),
                    *(["", *_lines(moved, width, ["carried over costs"])] if moved else []),
                    "",
                    *_lines(argument_cells(recipe), width, ["with size"]),
                    "",
                    *said,
                    *(["", "Published rules:", *rules] if rules else []),
                ]
            )
        )
    return "\n\n\n".join(blocks)


def optimum_rows(recipe: Recipe) -> list[Row]:
    """Best values as numbers, one row for each size and value; the target's too."""
    rows: list[Row] = []
    for at in (*recipe.optima, *([recipe.target] if recipe.target else ())):
        parts = zip(recipe.tuned, at.log2, at.places, at.free, strict=True)
        for one, log2, place, free in parts:
            rows.append(
                {
                    "group": recipe.name,
                    **at.size,
                    "value": one.key,
                    **_numbers("best", log2.exp2()),
                    **_numbers("log2", log2),
                    "place": "predicted" if at is recipe.target else place.value,
                    "free": free,
                }
            )
        if recipe.exponents:
            rows.append(
                {
                    "group": recipe.name,
                    **at.size,
                    "value": recipe.combination,
                    **_numbers("best", at.combination.exp2()),
                    **_numbers("log2", at.combination),
                    "place": "predicted" if at is recipe.target else "",
                    "free": False,
                }
            )
    return rows


def drift_rows(recipe: Recipe) -> list[Row]:
    """Drifts and costs as numbers, one row for each axis and value; "recipe" is all of them."""
    rows: list[Row] = []
    for along in recipe.along:
        parts = zip(recipe.tuned, along.drifts, along.alone, along.verdicts, strict=True)
        rows += [
            {
                "group": recipe.name,
                "axis": along.axis,
                "value": one.key,
                **_numbers("drift", drift),
                **_numbers("cost", cost),
                "verdict": verdict.value,
            }
            for one, drift, cost, verdict in parts
        ]
        rows.append(
            {
                "group": recipe.name,
                "axis": along.axis,
                "value": "recipe",
                **_numbers("drift", UNKNOWN),
                **_numbers("cost", along.carried),
                "verdict": along.verdict.value,
            }
        )
    return rows


def rule_rows(recipe: Recipe) -> list[Row]:
    """What the runs say of each published rule of a value; costs are fractions of the loss."""
    about = ("setting", "reach", "source", "standing")
    return [
        {
            "group": recipe.name,
            "axis": judged.axis,
            "value": one.key,
            "rule": judged.rule,
            "exponent": judged.exponent,
            "answer": judged.answer.value,
            **_numbers("cost", judged.cost),
            **{name: getattr(judged, name) for name in about},
        }
        for one, judged in judged_of(recipe)
    ]


def run_rows(recipe: Recipe) -> list[Row]:
    """Every run that was used, with its seed where there are several."""
    several = len({run.seed for run in recipe.runs}) > 1
    return [
        {
            "group": recipe.name,
            **run.size,
            **{one.key: 2.0**x for one, x in zip(recipe.tuned, run.log2, strict=True)},
            **({"seed": run.seed} if several else {}),
            "loss": run.loss,
        }
        for run in recipe.runs
    ]


def _numbers(name: str, estimate: Estimate) -> dict[str, float]:
    ends = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
    return {f"{name}{end}": value for end, value in ends.items()}


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """A recipe for other programs."""
    return {
        "name": recipe.name,
        "verdict": recipe.verdict.value,
        "tuned": [one.key for one in recipe.tuned],
        "combination": {
            one.key: exponent
            for one, exponent in zip(recipe.tuned, recipe.exponents, strict=bool(recipe.exponents))
        },
        "optima": optimum_rows(recipe),
        "drifts": drift_rows(recipe),
        "why": {along.axis: along.why for along in recipe.along},
        "factor_two": {
            one.key: _numbers("cost", cost)
            for one, cost in zip(recipe.tuned, recipe.factor_two, strict=True)
        },
        "rules": rule_rows(recipe),
        "noise": recipe.noise,
        "runs": len(recipe.runs),
        "tolerance": recipe.tolerance,
        "notes": list(recipe.notes),
    }


def cards_of(recipe: Recipe) -> list[Card]:
    """A card for the verdict along every axis."""
    return [
        Card(
            title=f"The recipe along {along.axis}",
            verdict=along.verdict.value,
            symbol=SYMBOLS[along.verdict],
            text=[along.why],
            notes=[f"The base's recipe costs {_percent(along.carried)} at the largest size."],
        )
        for along in recipe.along
    ]


def _section(recipe: Recipe, *, named: bool) -> list[Section]:
    """Everything about one recipe."""
    best, moved = optimum_cells(recipe), drift_cells(recipe)
    return [
        Section(title=recipe.title if named else "", part=named, cards=cards_of(recipe)),
        Section(
            title="The recipe to copy",
            lead=source_sentence(recipe),
            table=Table(
                rows=argument_cells(recipe), name="Arguments", wrapped=("with size",), numbers=()
            ),
            code=copied(recipe),
        ),
        planes_section(recipe),
        Section(
            title="The recipe of every size",
            lead="Best values with 95% intervals, all others being at their best.",
            table=Table(rows=best, name="Best values"),
        ),
        Section(
            title="What moves, and what it costs",
            lead="Carried over: the excess loss at the largest size with the smallest's value, "
            "the others tuned again there.",
            table=Table(rows=moved, name="Drifts", group="along", verdict="verdict"),
            text=sentences(recipe),
        ),
        *_rules_section(recipe),
    ]


def _rules_section(recipe: Recipe) -> list[Section]:
    """Published rules beside what the runs say of them; none where none speaks of a value."""
    rows = [
        {
            "value": one.name,
            **judged_cells(
                judged,
                cost=_percent(judged.cost),
                exponent=f"{judged.axis}^{judged.exponent:.3g}",
            ),
        }
        for one, judged in judged_of(recipe)
    ]
    return rules_section(
        rows,
        lead=CONSISTENT.format(of=" of a value's drift")
        + "Cost: the excess loss of following it from the smallest size to the largest, the other "
        "values tuned again there.",
        name="Published rules",
        group="value",
    )


def judged_of(recipe: Recipe) -> list[tuple[Tuned, Judgement]]:
    """Every published rule that speaks of a value, with what the runs say of it."""
    return [
        (one, judged)
        for along in recipe.along
        for one, rules in zip(recipe.tuned, along.rules, strict=bool(along.rules))
        for judged in rules
    ]


def rule_lines(recipe: Recipe) -> list[str]:
    """A line for each published rule: its answer, its price and its source."""
    return [
        f"{begin(one.name)}, {judged.rule} ({judged.axis}^{judged.exponent:.3g}): "
        f"{judged.answer.value}. Following it costs {_percent(judged.cost)}. {judged.source}."
        for one, judged in judged_of(recipe)
    ]


def recipe_page(
    recipes: Sequence[Recipe],
    *,
    title: str = "A recipe",
    command: Sequence[str] = (),
    search: SearchStory | None = None,
    facts: Mapping[str, Mapping[str, object]] | None = None,
    lead: Sequence[str] = (),
    notes: Sequence[str] = (),
    step: tuple[str, str] | None = None,
) -> str:
    """All recipes of a table, or of a search, as one page, HTML that opens offline."""
    several = len(recipes) > 1
    sections = [Section(title="Next", lead=step[0], code=step[1])] if step else []
    sections += [s for recipe in recipes for s in _section(recipe, named=several)]
    verdict = recipes[0].verdict if recipes else Verdict.UNDECIDED
    return Page(
        title=title,
        tab=f"{verdict.value}: {title}",
        headline=headline(recipes[0]) if recipes else NO_RECIPE,
        sections=[*sections, *([_search_section(search)] if search else [])],
        facts=facts or {},
        lead=lead,
        notes=notes,
        command=command,
    ).html()


NO_RECIPE = "No recipe was found."


def search_sentence(story: SearchStory) -> str:
    """How many runs a search took, and what a grid would have taken."""
    if not story.work:
        return "Nothing was trained."
    ended = "; ".join(why.rstrip(".") for why in story.ended.values())
    return (
        f"{counted(story.runs, 'run')}; a full grid of {story.grid_rates} values and "
        f"{story.grid_seeds} seeds would take {story.grid_runs}, {story.saved:.1f} times the work."
        + (f" The search ended: {ended}." if ended else " The search waits for runs.")
    )


def _search_section(story: SearchStory) -> Section:
    """The rounds of a search."""
    rows = [
        {
            "Round": str(one.number),
            "Why": begin(one.why),
            "Runs": runs_of_round(one.asked),
            "Work": f"{one.work / story.work:.1%}" if story.work else "",
        }
        for one in story.rounds
    ]
    table = Table(rows=rows, name="Rounds", numbers=("Round", "Work"), wrapped=("Why", "Runs"))
    return Section(
        title="How the search got there",
        lead=f"{search_sentence(story)} The most informative runs came first.",
        details=[Section(title=f"{counted(len(rows), 'round')}", table=table)] if rows else [],
    )


RECIPE_ROWS = {
    "optima": optimum_rows,
    "drifts": drift_rows,
    "runs": run_rows,
    "rules": rule_rows,
}
"""Tidy tables by their names."""


def notebook_of(recipes: Sequence[Recipe]) -> str:
    """Cards of verdicts, the table to copy and the planes as HTML without scripts."""
    parts = []
    for recipe in recipes:
        said = f"{recipe.title}: {headline(recipe)}" if len(recipes) > 1 else headline(recipe)
        parts.append(f"<div><b>{html.escape(said)}</b></div>")
        parts += map(card_html, cards_of(recipe))
        parts.append(f"<pre>{html.escape(copied(recipe))}</pre>")
        parts.append(f"<div>{picture_of(recipe).svg}</div>")
    return "\n".join(parts)
