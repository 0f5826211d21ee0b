"""The planes of several tuned values: every pair's runs, contours, and path of the optimum."""

import math
from collections.abc import Sequence
from itertools import combinations

from depthmup.records.recipe import Recipe
from depthmup.records.sizes import size_text
from depthmup.records.text import begin, counted
from depthmup.reports.axes import plain
from depthmup.reports.chart import Chart, Layer, draw
from depthmup.reports.figure import picture
from depthmup.reports.page import Plot, Section
from depthmup.reports.picture import Picture
from depthmup.reports.theme import INK, SCREEN, ramp

AIR = 0.5
"""Octaves around what a plane shows."""


def planes(recipe: Recipe) -> list[Plot]:
    """A plane of every pair of values, in the order of the recipe."""
    names = [one.name for one in recipe.tuned]
    return [
        Plot(chart=_plane(recipe, pair), title=f"{begin(names[pair[0]])} and {names[pair[1]]}")
        for pair in combinations(range(len(names)), 2)
    ]


def planes_section(recipe: Recipe) -> Section:
    """The plane of two values, and of more the matrix of all pairs."""
    drawn = planes(recipe)
    sizes = [(words, "━", colour) for words, colour in drawn[0].chart.colours.items()]
    alone = len(drawn) == 1
    others = "" if alone else ", all other values being at their best"
    return Section(
        title=f"The plane of {drawn[0].title.lower()}" if alone else "The planes of all pairs",
        lead=f"Contours: the loss is {recipe.raised:.1%} above the best of its size{others}. "
        "Crosses: best values with 95% intervals. Faint: every run.",
        legend=[*sizes, ("path of the optimum", "━", INK)],
        legend_of="sizes",
        plots=[Plot(chart=drawn[0].chart)] if alone else drawn,
        layout="wide" if alone else "panels",
    )


def picture_of(recipe: Recipe) -> Picture:
    """The plane as a picture of its own, or the matrix of all pairs."""
    drawn = planes(recipe)
    if len(drawn) == 1:
        return draw(drawn[0].chart)
    words = f"{counted(len(drawn), 'plane')} of {len(recipe.tuned)} values"
    return picture(drawn, SCREEN, columns=len(recipe.tuned) - 1, title=words)


def _plane(recipe: Recipe, pair: tuple[int, int]) -> Chart:
    """Two tuned values: every run, the contour of every size, and the path of the optimum."""
    sizes = [size_text(one.size) for one in recipe.optima]
    points = [
        {
            "x": 2.0 ** run.log2[pair[0]],
            "y": 2.0 ** run.log2[pair[1]],
            "size": size_text(run.size),
            "loss": run.loss if math.isfinite(run.loss) else None,
        }
        for run in recipe.runs
    ]
    low = [min(run.log2[i] for run in recipe.runs) - AIR for i in pair]
    high = [max(run.log2[i] for run in recipe.runs) + AIR for i in pair]

    def within(log2: Sequence[float]) -> tuple[float, float]:
        x, y = (2.0 ** min(max(v, low[i]), high[i]) for i, v in enumerate(log2))
        return x, y

    corners = [
        {"x": within(corner)[0], "y": within(corner)[1], "size": size_text(line.size), "at": number}
        for line in recipe.contours
        if line.pair == pair
        for number, corner in enumerate(line.points)
    ]
    path = []
    for number, (one, words) in enumerate(zip(recipe.optima, sizes, strict=True)):
        x, y = within([one.log2[i].value for i in pair])
        left, down = within([one.log2[i].low for i in pair])
        right, up = within([one.log2[i].high for i in pair])
        path.append(
            {"x": x, "y": y, "left": left, "right": right, "down": down, "up": up,
             "size": words, "at": number}
        )  # fmt: skip
    first, second = (recipe.tuned[i] for i in pair)
    tips = [("size", "size", ""), ("x", first.name, ".3~g"), ("y", second.name, ".3~g")]
    return Chart(
        layers=[
            Layer(mark="point", rows=points, x="x", y="y", by="size", filled=True,
                  tips=[*tips, ("loss", "loss", ".4g")],
                  look={"size": 14, "opacity": 0.35, "strokeWidth": 0}),
            Layer(mark="line", rows=corners, x="x", y="y", by="size", order="at",
                  look={"strokeWidth": 1.6}),
            Layer(mark="line", rows=path, x="x", y="y", order="at",
                  look={"color": INK, "strokeWidth": 1.6}),
            Layer(mark="rule", rows=path, x="left", x2="right", y="y", by="size",
                  look={"strokeWidth": 1.2}),
            Layer(mark="rule", rows=path, x="x", y="down", y2="up", by="size",
                  look={"strokeWidth": 1.2}),
            Layer(mark="point", rows=path, x="x", y="y", by="size", tips=tips,
                  look={"size": 70, "filled": True}),
        ],
        x=plain(low[0], high[0], first.name),
        y=plain(low[1], high[1], second.name),
        colours=dict(zip(sizes, ramp(len(sizes)), strict=True)),
        legend="size",
        description=f"The plane of {first.name} and {second.name} with the optimum of every size",
        height=420 if len(recipe.tuned) == 2 else 300,
    )  # fmt: skip
