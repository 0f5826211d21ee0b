"""The chart of predicted and measured optima."""

import json
import math

from depthmup import reports
from depthmup.records import AxisPrediction, Estimate, Prediction, SharpnessAt
from depthmup.reports import Movement


def at(value, half=0.1):
    return Estimate(value=value, low=value - half, high=value + half)


def rows(chart):
    """All data that a chart draws."""
    found = [row for values in chart.to_dict()["datasets"].values() for row in values]
    return [row for row in found if "octaves" in row]


PREDICTED = Movement(
    label="predicted so", sizes=(8, 16, 32), octaves=(at(0), at(-1), at(-math.inf))
)


def test_points_stand_beside_the_line():
    measured = Movement(
        label="measured so",
        sizes=(8, 16),
        octaves=(at(0), Estimate(value=-0.8, low=-math.inf, high=-0.7)),
    )
    chart = reports.optimum_chart(PREDICTED, measured=measured, title="A title")
    drawn = {(row["kind"], row["size"]): row for row in rows(chart)}
    assert set(drawn) == {
        ("predicted", 8), ("predicted", 16), ("measured", 8), ("measured", 16),
    }  # fmt: skip
    assert drawn["predicted", 16]["octaves"] == -1
    assert drawn["measured", 16]["low"] == -0.8  # an open interval ends at the value
    text = json.dumps(chart.to_dict(), allow_nan=False)
    assert "predicted so" in text
    assert "measured so" in text


def test_a_panel_for_each_axis():
    def along(axis, sizes):
        return AxisPrediction(
            axis=axis,
            drift=at(0),
            sizes=tuple(
                SharpnessAt(size={"width": w, "depth": d}, curvature=at(1), octaves=at(0))
                for w, d in sizes
            ),
        )

    prediction = Prediction(
        title="mine.py:make", scheme="ODE", optimizer="sgd", base={}, seeds=3,
        confidence=0.95, tolerance=0.15,
        axes=(along("depth", [(16, 2), (16, 4)]), along("width", [(16, 2), (32, 2)])),
    )  # fmt: skip
    chart = reports.prediction_chart(prediction)
    assert len(chart.to_dict()["concat"]) == 2
    assert {row["size"] for row in rows(chart)} == {2, 4, 16, 32}
