"""Values to strict JSON and back."""

import json
import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from depthmup import BuiltIn, Design
from depthmup.records import Certificate, Estimate, Optimum, Place, Refusal, Verdict
from depthmup.records.certificate import AxisSlope, BandPoint, Lack, Metrics
from depthmup.records.codec import decode, encode, strict
from depthmup.sweep import Custom

numbers = st.floats(allow_nan=False)
estimates = st.builds(Estimate, value=numbers, low=numbers, high=numbers, unit=st.text("aZ-9 "))
sizes = st.dictionaries(st.sampled_from(["width", "depth"]), st.integers(1, 2**40), min_size=1)
slopes = st.builds(AxisSlope, axis=st.sampled_from(["width", "depth"]), estimate=estimates)
certificates = st.builds(
    Certificate,
    target=sizes,
    base=sizes,
    optima=st.lists(
        st.builds(
            Optimum,
            size=sizes,
            log2_lr=estimates,
            curvature=estimates,
            loss=estimates,
            place=st.sampled_from(Place),
        ),
        max_size=2,
    ).map(tuple),
    log2_lrs=st.lists(numbers, max_size=3).map(tuple),
    seeds=st.integers(1, 9),
    refusals=st.lists(
        st.builds(Refusal, lack=st.sampled_from(Lack), reason=st.just("a"), advice=st.just("b")),
        max_size=1,
    ).map(tuple),
    predicted=estimates,
    penalty=estimates,
    base_regret=estimates,
    best_loss=estimates,
    metrics=st.none()
    | st.builds(
        Metrics,
        fit_error=numbers,
        robustness=st.lists(slopes, max_size=1).map(tuple),
        horizon_penalty=estimates,
    ),
    verdict=st.sampled_from(Verdict),
    law=st.lists(
        st.builds(BandPoint, at=numbers, value=numbers, low=numbers, high=numbers), max_size=2
    ).map(tuple),
)


@given(certificates)
def test_a_certificate_survives_its_file(certificate):
    assert Certificate.from_json(certificate.to_json()) == certificate


@given(estimates)
def test_encoded_values_are_strict_json_that_decodes_to_the_same(estimate):
    text = json.dumps(encode(estimate), allow_nan=False)
    assert decode(Estimate, json.loads(text), "an estimate") == estimate


@pytest.mark.parametrize(
    ("value", "encoded", "null_alone"),
    [
        (math.nan, None, None),
        (math.inf, "Infinity", None),
        (-math.inf, "-Infinity", None),
        (0.5, 0.5, 0.5),
        (True, True, True),
    ],
)
def test_only_charts_and_summaries_lose_infinities(value, encoded, null_alone):
    assert encode([{"a": (value,)}]) == [{"a": [encoded]}]
    assert strict([{"a": (value,)}]) == [{"a": [null_alone]}]


class Colour(Enum):
    RED = "red"


def test_what_json_has_no_type_for_becomes_its_text():
    assert encode([Fraction(1, 2), Path("a/b"), Place.FAILED, Colour.RED]) == [
        "1/2",
        "a/b",
        "failed",
        "red",
    ]


def test_sweeps_read_back_as_they_were():
    design = Design(
        base={"width": 64, "depth": 8},
        depth=(8, 16),
        sizes=[{"width": 128, "depth": 16}],
        lrs=[2.0**-8, 2.0**-7],
        schemes=["depth-mup", "3/4,1/4"],
        settings={"betas": [0.9, 0.99]},
    )
    assert Design.from_dict(json.loads(json.dumps(design.to_dict()))) == design
    for model in (BuiltIn(activation="relu"), Custom(name="make", code="1f0c", planned=False)):
        assert type(model).from_dict(json.loads(json.dumps(model.to_dict()))) == model


@dataclass(frozen=True, kw_only=True)
class _Asked:
    values: float | tuple[float, ...]
    seen: tuple[int, ...] | None = None


def test_one_value_or_several_are_told_apart_by_the_list():
    for asked in (_Asked(values=-3.5), _Asked(values=(-3.5, 1.0), seen=(1, 2))):
        raw = json.loads(json.dumps(encode(asked)))
        assert decode(_Asked, raw, "asked") == asked
    with pytest.raises(ValueError, match="values"):
        decode(_Asked, {"values": "many"}, "asked")
