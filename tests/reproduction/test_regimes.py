"""Figure 1 and Claims 7.1 to 7.6: what trained networks are seen to do decides, too."""

import json
from fractions import Fraction
from functools import cache

import pytest
from planted import NO, OPEN, YES, finding

from depthmup.records import Measurement
from depthmup.rules import REGIONS, general, regime
from depthmup.sweep import Store
from reproduction import Setting
from reproduction.claims.measured_regimes import (
    CLAIMED,
    DECIDING,
    LINEAR,
    measured_by_pair,
    networks,
)
from reproduction.claims.regime_map import ALPHAS, GAMMAS, TRAINED
from reproduction.claims.regimes import exponents_of

CLAIMS = ("fig1", *(f"claim7.{k}" for k in range(1, 7)))


def computed(alpha):
    """Exponents as the claims have them."""
    result = {}
    for gamma in GAMMAS:
        r = regime(alpha, gamma)
        result[str(gamma)] = {
            "x_0": 0.0 if r.stable_at_init else float("inf"),
            "f_1": float(1 - r.alpha - gamma),
            "h_1": max(0.0, -float(gamma)),
            "linearization": -float(gamma),
            "kappa": float("nan") if r.kappa is None else float(r.kappa),
            "region": r.name,
        }
    return result


def as_claimed(pair):
    r = regime(*pair)
    exponents = {"nontrivial": float(1 - r.alpha - r.gamma), "faithful": -float(r.gamma)}
    properties = {name: claim(r) for name, claim in CLAIMED.items()}
    return {"region": r.name, "exponents": exponents, **properties}


def planted(claim, law=as_claimed, of_alpha=computed, **setting):
    def values(settings):
        alpha = Fraction(settings["alpha"])
        if "gammas" in settings:
            return of_alpha(alpha)
        return law((alpha, Fraction(settings["gamma"])))

    return finding(claim, values, **setting)


def verdicts(law=as_claimed, names=CLAIMS, **setting):
    return {name: planted(name, law, **setting).verdict for name in names}


def changed(pair, **values):
    """Networks as claimed, but of one pair."""
    target = tuple(Fraction(v) for v in pair)
    return lambda p: as_claimed(p) | (values if p == target else {})


def test_deciding_pairs_lie_on_the_map_and_in_every_region():
    assert set(DECIDING) <= set(TRAINED)
    assert {regime(*pair).name for pair in DECIDING} == set(REGIONS)


def test_where_networks_do_as_claimed_everything_is_reproduced():
    assert verdicts() == dict.fromkeys(CLAIMS, YES)


@pytest.mark.parametrize(
    ("claim", "pair", "name"),
    [
        ("claim7.1", ("1/4", "3/4"), "stable at initialization"),
        ("claim7.1", ("1/2", "1/4"), "stable in training"),
        ("claim7.2", ("1/2", "3/4"), "nontrivial"),
        ("claim7.3", ("5/4", "-1/4"), "faithful"),
        ("claim7.4", ("3/4", "1/4"), "diverse"),
        ("claim7.6", ("1", "0"), LINEAR),
    ],
)
def test_one_pair_on_the_other_side_is_found_out_and_one_in_doubt_leaves_doubt(claim, pair, name):
    opposite = not as_claimed(tuple(Fraction(v) for v in pair))[name]
    for value, verdict in ((opposite, NO), (None, OPEN)):
        assert planted(claim, changed(pair, **{name: value})).verdict is verdict


def test_a_pair_in_another_region_is_found_out_unless_it_could_not_be_decided():
    pair = ("1/2", "3/4")
    wrong = changed(pair, region="Depth-muP", nontrivial=True, faithful=True, diverse=True)
    assert planted("fig1", wrong).verdict is NO
    in_doubt = changed(pair, region="Depth-muP", nontrivial=None)
    assert planted("fig1", in_doubt).verdict is OPEN
    beside = changed(("3/4", "0"), region="Depth-muP")
    assert planted("fig1", beside).verdict is YES


def test_an_open_property_leaves_a_region_open_even_where_it_is_drawn_as_claimed():
    """Networks that are open in everything show nothing, though they are drawn somewhere."""
    for claim, pair, name in (
        ("fig1", ("1/2", "1/2"), "faithful"),
        ("claim7.5", ("1/2", "1/2"), "diverse"),
        ("fig1", ("1/2", "3/4"), "stable in training"),  # trivial is what fails after it
    ):
        assert planted(claim, changed(pair, **{name: None})).verdict is OPEN
    nothing = dict.fromkeys(CLAIMED)
    open_everywhere = verdicts(lambda pair: as_claimed(pair) | nothing)
    assert YES not in open_everywhere.values()


def test_what_is_open_after_the_property_that_fails_does_not_matter():
    pair = ("1/2", "1/4")  # unstable in training
    beyond = changed(pair, nontrivial=None, faithful=None, diverse=None)
    assert verdicts(beyond, ["fig1", "claim7.5"]) == {"fig1": YES, "claim7.5": YES}


def test_pairs_that_networks_left_open_are_hollow_on_the_map():
    rows = []
    for picture in planted("fig1", changed(("1/2", "1/2"), faithful=None)).pictures:
        text = json.dumps(picture.spec)
        rows.append((text.count('"decided": "no"'), "hollow" in picture.caption))
    assert rows == [(0, False), (1, True)]


def test_another_rule_is_not_the_unique_one():
    rule = general("3/5", "1/2")  # beside the map: it is measured, too
    assert planted("claim7.5", depth_mup=rule).verdict is NO


def test_full_branches_decide_what_explodes(tmp_path):
    pair = (Fraction(1, 4), Fraction(3, 4))
    of = networks(Setting(), [pair])
    tame = as_claimed(pair) | {"region": "Depth-muP", "stable at initialization": True}
    with Store(tmp_path / "results.sqlite") as store:
        store.add(Measurement(task=of.pairs.tasks[pair], values=tame))
        store.add(Measurement(task=of.full.tasks[pair[0]], values=as_claimed(pair)))
        values = measured_by_pair(store, of)[pair]
    assert values["region"] == "unstable at initialization"
    assert values["stable at initialization"] is False


def test_an_exponent_that_cannot_be_computed_is_found_out():
    def broken(alpha):
        return {g: v | {"f_1": float("nan")} for g, v in computed(alpha).items()}

    assert planted("claim7.1", of_alpha=broken).verdict is NO


@cache
def exactly(alpha):
    return exponents_of(alpha=str(alpha), gammas=[str(gamma) for gamma in GAMMAS])


@pytest.mark.long(slice=False)
@pytest.mark.parametrize(
    "columns", [ALPHAS[::2], ALPHAS[1::2]], ids=["quarters", "eighths between them"]
)
def test_the_computed_map_holds_and_another_rule_is_not_the_unique_one(columns):
    """Half of the columns of the map are computed, the others as the claims have them."""

    def of_alpha(alpha):
        return exactly(alpha) if alpha in columns else computed(alpha)

    assert verdicts(of_alpha=of_alpha) == dict.fromkeys(CLAIMS, YES)
    other = general("3/4", "1/4")
    assert planted("claim7.5", of_alpha=of_alpha, depth_mup=other).verdict is NO


@pytest.mark.long(slice=False)
def test_small_networks_are_found_where_the_theory_says(tmp_path):
    pairs = [("1/4", "3/4"), ("1/2", "0"), ("1/2", "1/2"), ("3/4", "3/4")]
    pairs = [tuple(Fraction(v) for v in pair) for pair in pairs]
    setting = Setting(sizes={"width": 32, "depths": (8, 16, 32), "seeds": 3})
    of = networks(setting, pairs)
    with Store(tmp_path / "results.sqlite") as store:
        for measure in of.measures:
            values = measure.function(**measure.task.settings)
            store.add(Measurement(task=measure.task, values=values))
        result = measured_by_pair(store, of)
    for pair in pairs:
        assert result[pair]["region"] == regime(*pair).name
        for name, claim in CLAIMED.items():
            claimed = claim(regime(*pair))
            assert claimed is None or result[pair][name] in (claimed, None), name
