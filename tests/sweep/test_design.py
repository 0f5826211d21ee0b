"""What a design varies and holds, and which designs are refused."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from depthmup import BuiltIn, transfer
from depthmup.rules import DEPTH_MUP
from depthmup.sweep import Design
from depthmup.sweep.design import MOST_WINDOWS

BASE = {"width": 16, "depth": 4}


def design(**changes):
    values = {"base": BASE, "depth": (4, 8, 16), "lrs": [0.01, 0.02], "schemes": "depth-mup"}
    return Design(**{**values, **changes})


def test_arms_meet_at_the_base():
    both = design(width=(8, 16, 32))
    assert both.axes == ("depth", "width")
    assert both.sizes_along("depth") == tuple({"width": 16, "depth": d} for d in (4, 8, 16))
    assert both.sizes_along("width") == tuple({"width": w, "depth": 4} for w in (8, 16, 32))
    assert len(both.all_sizes) == 5  # the base once


def test_an_axis_of_any_name():
    """The type knows no axis; models say which they have."""
    experts = Design(base={"experts": 4, "width": 8}, experts=(4, 8, 16), lrs=[0.1])
    assert experts.axes == ("experts",)
    assert experts.sizes_along("experts")[-1] == {"experts": 16, "width": 8}


def test_listed_sizes_lie_on_an_arm_where_one_axis_differs():
    listed = Design(
        base=BASE,
        sizes=[{"width": 16, "depth": 8}, {"width": 32, "depth": 4}, {"width": 32, "depth": 8}],
    )
    assert (listed.arm("depth"), listed.arm("width")) == ((4, 8), (16, 32))
    assert len(listed.all_sizes) == 4  # with the base


def test_a_single_size_has_depth_as_its_axis():
    assert design(depth=()).axes == ("depth",)


def test_a_target_that_grows_along_two_axes_gets_a_corner():
    both = design(width=(16, 32, 64))
    (corner,) = both.toward({"width": 128, "depth": 64}).sizes
    assert corner == {"width": 32, "depth": 16}
    assert both.toward({"width": 16, "depth": 64}) == both
    assert design().toward({"width": 128, "depth": 64}) == design()  # which is refused later
    with_corner = replace(both, sizes=({"width": 64, "depth": 8},))
    assert with_corner.toward({"width": 128, "depth": 64}) == with_corner


def test_what_there_are_several_of_is_named():
    several = design(
        multipliers=(1.0, 2.0), weight_decays=0.1, schemes=("depth-mup", "ode"), optimizers="sgd"
    )
    assert [v.name for v in several.variants] == [
        "depth-mup a=1", "depth-mup a=2", "ode a=1", "ode a=2"
    ]  # fmt: skip
    assert several.variant("ode a=2").multiplier == 2.0
    with pytest.raises(ValueError, match="Expected one of 'depth-mup a=1'"):
        several.variant("ode")


@given(st.floats(-40, 5))
def test_rates_equal_in_theory_are_equal_in_bits(log2_lr):
    once = design(lrs=[2.0**log2_lr])
    assert once.log2_lrs == (round(log2_lr, 9),) or abs(once.log2_lrs[0] - log2_lr) <= 5.1e-10
    assert replace(once, lrs=once.lrs).lrs == once.lrs
    assert Design.from_dict(once.to_dict()) == once


def test_designs_survive_json():
    full = design(
        width=(16, 32), sizes=[{"width": 32, "depth": 16}], settings={"betas": (0.9, 0.95)}
    )
    assert Design.from_dict(full.to_dict()) == full


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": {}}, "a value for every axis"),
        ({"base": (16, 4)}, "a value for every axis"),
        ({"base": {"width": 16, "depth": 0}}, "depth of base to be a whole number"),
        ({"base": {"width": 1.5, "depth": 4}}, "width of base to be a whole number"),
        ({"experts": (1, 2)}, "where the axis experts starts"),
        ({"depth": (8, 16)}, "depth to contain the base's, 4"),
        ({"depth": (16, 8, 4)}, "depth to be strictly increasing"),
        ({"depth": (4, 8.5)}, "depth to be whole numbers"),
        ({"scheme": "sp"}, "write schemes="),
        ({"depths": (4, 8)}, "write depth="),
        ({"sizes": [{"width": 16}]}, "every size to have the axes"),
        ({"lrs": [0.1, 0.1]}, "learning rates to be strictly increasing"),
        ({"lrs": []}, "lrs to be at least one"),
        ({"optimizers": ()}, "optimizers to be at least one"),
        ({"lrs": [0.0]}, "lrs to be positive"),
        ({"lrs": [float("inf")]}, "lrs to be positive"),
        ({"schemes": ("ode", "ode")}, "schemes to be at least one, different"),
        ({"schemes": replace(DEPTH_MUP, name="mine")}, "'mine' is not in it"),
        ({"schemes": replace(DEPTH_MUP, name="ode")}, "'ode' is another scheme there"),
        ({"optimizers": "adamish"}, "adamish"),
        ({"settings": {"f": print}}, "settings of types that JSON has"),
        ({"settings": {"clip": float("nan")}}, "settings of types that JSON has"),
        ({"steps": 2.5}, "steps to be a whole number"),
        ({"seeds": 10**9}, "at most 10,000,000 runs"),
        ({"weight_decays": -1.0}, "weight_decays to be finite and not negative"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        design(**change)


@pytest.mark.parametrize(("steps", "window"), [(1000, 1), (1000, 19), (777, 5), (50, 1)])
def test_windows_that_would_be_too_many_lie_apart(steps, window):
    design = Design(base={"depth": 4}, steps=steps, window=window, lrs=[0.1])
    widths = {each.stop - each.start for each in design.windows}
    starts = [each.start for each in design.windows]
    assert design.windows[-1] == slice(steps - window, steps)
    assert widths == {window}
    assert 45 <= len(design.windows) <= MOST_WINDOWS
    assert len({b - a for a, b in pairwise(starts)}) == 1


@pytest.mark.parametrize(
    ("model", "chosen", "message"),
    [
        (design(), BuiltIn(), r"Expected a depthmup.Model\(make.*got Design"),
        (BuiltIn(), BuiltIn(), r"Expected a depthmup.Design\(base.*got BuiltIn"),
        (BuiltIn(), {"base": BASE}, "got dict"),
    ],
)
def test_what_is_no_model_or_no_design_is_refused(model, chosen, message):
    with pytest.raises(TypeError, match=message):
        transfer(model, chosen)
