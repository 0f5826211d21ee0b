"""Figures 10, 11, 12 and 20 in worlds where they hold and where they do not."""

import math
from functools import partial

import pytest
from planted import SMALL, planted, residual_law
from pytest import approx

from depthmup.rules import general
from depthmup.sweep import InProcess, Store, run
from reproduction import Setting, named
from reproduction.evidence import Reproduction

FORGETS_GAMMA = general("1/2", 0)  # Adam's learning rate is not scaled
WRONG_ALPHA = general("3/5", "1/2")


def found(name, path, law=residual_law, **setting):
    (claim,) = named([name])
    experiment = claim.experiment(Setting(sizes=SMALL, **setting))
    with planted(experiment, path, law) as store:
        return claim.finding(experiment, store)


def test_figure_10_is_reproduced_but_for_what_octaves_leave_open(tmp_path):
    """From depth 16 on its region is +-0.05; three whole octaves know the drift to 0.065."""
    comparisons = found("fig10", tmp_path, residual_law).comparisons
    settled = comparisons[1]
    others = [c.verdict for c in comparisons if c is not settled]
    assert others == [Reproduction.REPRODUCED] * 5
    assert abs(settled.ours.value) < 0.01
    assert settled.ours.high - settled.ours.low < 0.13


@pytest.mark.long(of="figures")
@pytest.mark.parametrize("name", ["fig11", "fig12", "fig20", "fig22", "fig23", "fig24"])
def test_where_the_theory_holds_the_figure_is_reproduced(name, tmp_path):
    # Figure 12's networks have a = 2, which is one octave of change and of diversity.
    law = partial(residual_law, best=1.4) if name in ("fig12", "fig24") else residual_law
    assert found(name, tmp_path, law).verdict is Reproduction.REPRODUCED


@pytest.mark.long(of="figures")
@pytest.mark.parametrize("name", ["fig10", "fig12", "fig22", "fig24"])
def test_a_rule_that_forgets_the_learning_rate_is_found_out(name, tmp_path):
    law = partial(residual_law, best=1.4) if name in ("fig12", "fig24") else residual_law
    finding = found(name, tmp_path, law, depth_mup=FORGETS_GAMMA)
    assert finding.verdict is Reproduction.NOT_REPRODUCED


def test_an_exponent_that_is_off_by_a_tenth_is_not_let_pass(tmp_path):
    """alpha + gamma = 1.1 leaves 0.1 octaves per doubling, which +-0.15 would let pass."""
    finding = found("fig10", tmp_path, depth_mup=WRONG_ALPHA)
    drift, settled = finding.comparisons[:2]
    assert drift.verdict is not Reproduction.NOT_REPRODUCED
    # Three whole octaves miss up to what their interval allows.
    assert abs(settled.ours.value) == approx(0.1, abs=0.06)
    assert settled.verdict is not Reproduction.REPRODUCED
    assert finding.verdict is not Reproduction.REPRODUCED


def test_figure_12_tells_no_laptop_numbers_of_other_networks(tmp_path):
    law = partial(residual_law, best=1.4)
    (note,) = found("fig12", tmp_path, law).notes  # at sizes that are not the laptop's own
    assert "−0.25" not in note


def test_an_ode_that_is_as_good_is_no_reproduction(tmp_path):
    finding = found("fig11", tmp_path, partial(residual_law, diverse=-1.0))
    assert finding.verdict is Reproduction.NOT_REPRODUCED


def test_ratios_of_schemes_are_paired_by_seed(tmp_path):
    """A shift that a seed gives to every run cancels: here it is all the scatter there is."""

    def law(cell):
        worse = 0.5 if cell.network.multiplier < (8 / cell.network.depth) ** 0.75 else 0.0
        shift = (0.4, -0.3, 0.1)[cell.seed % 3]
        away = math.log2(cell.optimizer.lr) + 9
        return math.exp(0.12 * away**2 + worse + shift)

    ratio = found("fig11", tmp_path, law).comparisons[1].ours
    assert ratio.value == approx(0.5, abs=0.005)  # both fits miss the same
    assert ratio.high - ratio.low == approx(0, abs=1e-4)


def test_sp_that_survives_is_no_reproduction(tmp_path):
    finding = found("fig20", tmp_path, lambda cell: 1.0 / cell.network.depth)
    assert finding.verdict is Reproduction.NOT_REPRODUCED


def test_runs_that_stay_finite_but_learn_nothing_do_not_survive(tmp_path):
    """SP at chance everywhere is dead, whatever its losses are; six seeds are enough to say so."""

    def law(cell):
        stuck = cell.network.multiplier == 1.0 and cell.network.depth > 8
        return 2.31 if stuck else 1.0 / cell.network.depth

    sp, rule, _ = found("fig20", tmp_path, law).comparisons
    assert (sp.ours.value, sp.ours.low) == (0.0, 0.0)
    assert sp.ours.high == approx(1 - 0.025 ** (1 / 6))
    assert (rule.ours.low, rule.ours.high) == (approx(0.025 ** (1 / 6)), 1.0)
    assert (sp.verdict, rule.verdict) == (Reproduction.REPRODUCED, Reproduction.REPRODUCED)


def test_four_of_six_seeds_leave_open_whether_most_survive(tmp_path):
    def law(cell):
        return math.inf if cell.seed < 2 else 1.0

    for comparison in found("fig20", tmp_path, law).comparisons[:2]:
        assert comparison.ours.value == approx(4 / 6)
        assert comparison.verdict is Reproduction.UNDECIDABLE


def test_figure_20_asks_for_the_cells_of_figure_10_and_more_seeds(tmp_path):
    fig10, fig20 = (claim.experiment(Setting()) for claim in named(["fig10", "fig20"]))
    new = set(fig20.cells) - set(fig10.cells)
    assert {cell.seed for cell in new} == {5}


@pytest.mark.long(of="figures")
@pytest.mark.parametrize(("slope", "verdict"), [(-0.3, "not reproduced"), (-1.2, "reproduced")])
def test_sp_must_shift_more_than_the_block_multiplier_does(slope, verdict, tmp_path):
    """A drift of -0.3 is beyond -0.15, and yet less than the -0.5 of the block multiplier."""

    def law(cell):
        if cell.network.multiplier < 1.0 or cell.network.depth == 8:
            return residual_law(cell)
        if cell.network.depth > 16:
            return math.inf
        best = -math.log2(8 * cell.network.width) + slope
        return math.exp(-1 + 0.12 * (math.log2(cell.optimizer.lr) - best) ** 2)

    rows = found("fig10", tmp_path, law).comparisons
    more, alone = rows[-2:]
    assert more.what.endswith("minus that of (1/2, 0), depths 8, 16")
    assert alone.what.endswith("drift of the best learning rate, depths 8, 16")
    assert (more.decisive, alone.decisive) == (True, False)
    assert more.verdict.value == verdict
    assert alone.ours.value == approx(slope, abs=0.05)


@pytest.mark.long(slice=False)
@pytest.mark.parametrize(
    ("rule", "drifts", "verdict"),
    [
        ({}, Reproduction.REPRODUCED, Reproduction.UNDECIDABLE),
        ({"depth_mup": FORGETS_GAMMA}, Reproduction.NOT_REPRODUCED, Reproduction.NOT_REPRODUCED),
        # It leaves 0.2 octaves per doubling, beyond the tolerance of 0.15.
        ({"depth_mup": general("7/10", "1/2")},) + 2 * (Reproduction.NOT_REPRODUCED,),
        # And this 0.1 where the theory holds: it shows from depth 16 on, where nothing may move.
        ({"depth_mup": WRONG_ALPHA}, Reproduction.UNDECIDABLE, Reproduction.NOT_REPRODUCED),
    ],
    ids=["right", "gamma 0", "alpha 0.7", "alpha 0.6"],
)
def test_small_networks_tell_wrong_rules_from_the_right_one(
    rule, drifts, verdict, tmp_path_factory
):
    """Figure 10 on networks that train in seconds; the store is shared, so that cells are too.

    They are too small to settle what the right rule settles at width 64, but not to find out a
    wrong one.
    """
    sizes = {"width": 32, "depths": (8, 16, 32, 64), "seeds": 4, "steps": 150, "window": 30}
    (claim,) = named(["fig10"])
    experiment = claim.experiment(Setting(sizes=sizes, **rule))
    folder = tmp_path_factory.getbasetemp() / "small-networks"
    folder.mkdir(exist_ok=True)
    with Store(folder / "results.sqlite") as store:
        run(experiment.cells, store=store, executor=InProcess())
        finding = claim.finding(experiment, store)
    assert (finding.comparisons[0].verdict, finding.verdict) == (drifts, verdict)
