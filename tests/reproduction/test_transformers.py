"""Figures 14 to 16: through the store with tiny decoders, and in worlds where they hold or not."""

import math
from array import array
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from pytest import approx

from depthmup.records import BASE_SHAPE, Record, Status
from depthmup.rules import general, scheme
from depthmup.sweep import InProcess, Store
from reproduction import Setting, judge, named, plan_claims, reproduce
from reproduction.claims.decoders import entropies
from reproduction.claims.transformers import limit
from reproduction.evidence import Reproduction
from reproduction.text import standard_library

NAMES = ("fig14", "fig15", "fig16")
SMALL = {"base": (16, 2), "depths": (2, 4, 8), "steps": 5, "seeds": 3}
REPRODUCED, NOT, UNDECIDABLE = (
    Reproduction.REPRODUCED,
    Reproduction.NOT_REPRODUCED,
    Reproduction.UNDECIDABLE,
)


def gamma(trial):
    """That of a trial's scheme; at the base, where all agree, it does not matter."""
    return 0.0 if trial.scheme == BASE_SHAPE else float(scheme(trial.scheme).gamma)


def world(trial, *, start=0.1, gain=-0.1, middle=0.0, end=-0.5, viable=-0.5, by_a=0.0, best=1.9):
    """Losses of five steps, each a window, of a world where the figures hold.

    ``start`` and ``gain``: log loss per doubling of depth early and late; ``middle`` and ``end``:
    exponents of the best learning rate of branches, and ``viable`` of the largest; ``by_a``: what
    an octave of the multiplier costs.
    """
    noise = np.random.default_rng([trial.seed, trial.depth]).normal(0, 0.004, 5)
    doublings = math.log2(trial.ratio("depth"))
    rate = math.log2(trial.lr) - gamma(trial) * doublings
    beyond = entropies()[0] * math.exp(0.6 * (rate + 1 - viable * doublings))
    exponents = np.array([middle, middle, middle, end, end])
    deeper = np.array([start, start, gain, gain, gain]) * doublings
    away = rate + 5.7 - exponents * doublings + noise
    worse = 0.01 * away**2 + by_a * math.log2(trial.multiplier) ** 2
    return np.maximum(best * np.exp(worse + deeper + noise / 4), beyond)


def found(name, path, law=world, rule=None, **changes):
    setting = Setting(sizes=SMALL, **({"depth_mup": rule} if rule else {}))
    planned = plan_claims(named([name]), setting)
    with Store(path / "results.sqlite") as store:
        for trial in planned[0][1].asked:
            curve = array("f", law(trial, **changes))
            store.add(Record(cell=trial, status=Status.FINISHED, losses=curve))
        return judge(planned, store, scale="laptop", environment={}).findings[0]


@pytest.mark.parametrize("name", NAMES)
def test_where_the_statements_hold_the_figures_are_reproduced(name, tmp_path):
    assert found(name, tmp_path).verdict is REPRODUCED


@pytest.mark.parametrize(
    ("name", "changes", "verdicts"),
    [
        ("fig14", {"by_a": 0.005}, [NOT]),  # half of the learning rate's curvature
        ("fig14", {"by_a": 0.0015}, [REPRODUCED]),
        ("fig15", {"start": -0.1}, [NOT, REPRODUCED]),
        ("fig15", {"gain": 0.1}, [REPRODUCED, NOT]),
        ("fig15", {"gain": 0.0}, [REPRODUCED, UNDECIDABLE]),
        ("fig16", {"middle": -0.5}, [NOT, REPRODUCED, REPRODUCED]),
        ("fig16", {"end": 0.0}, [REPRODUCED, NOT, REPRODUCED]),
        ("fig16", {"end": -1.0}, [REPRODUCED, NOT, REPRODUCED]),
        ("fig16", {"viable": 0.0}, [REPRODUCED, REPRODUCED, NOT]),
    ],
)
def test_each_statement_is_judged_by_itself(name, changes, verdicts, tmp_path):
    finding = found(name, tmp_path, **changes)
    assert [comparison.verdict for comparison in finding.comparisons] == verdicts


@pytest.mark.parametrize("name", ["fig15", "fig16"])
def test_before_layers_are_needed_the_end_of_training_is_not_judged(name, tmp_path):
    """Losses above the entropy given the byte before: the early statements stand, the late not."""
    finding = found(name, tmp_path, best=math.exp(0.05) * entropies()[1])
    early, late, beside, *others = finding.comparisons
    assert early.verdict is REPRODUCED
    assert late.verdict is UNDECIDABLE
    assert not beside.decisive
    assert beside.ours.known
    assert all(other.verdict is REPRODUCED for other in others)
    assert finding.verdict is UNDECIDABLE
    assert "layers are needed" in finding.notes[0]


def test_exponents_belong_to_networks_and_not_to_the_rule_that_labels_them(tmp_path):
    rule = general("1/2", "1/4")
    middle, end, *_ = found("fig16", tmp_path, rule=rule).comparisons
    assert (middle.ours.value, end.ours.value) == (approx(0.0, abs=0.02), approx(-0.5, abs=0.02))


def test_the_largest_viable_rate_lies_where_the_last_crossing_is():
    curve = np.array([2.0, 0.0, 2.0, 0.0, 1.0, 3.0])
    assert limit([-5, -4, -3, -2, -1, 0], curve, 1.5) == approx(-0.75)
    assert limit([-1, 0], np.array([0.0, math.inf]), 1.0) == -0.5
    assert math.isnan(limit([-1, 0], np.array([0.0, 0.5]), 1.0))
    assert math.isnan(limit([-1, 0], np.array([2.0, 3.0]), 1.0))


def test_entropies_are_those_of_the_text():
    """Against a count in plain Python."""
    data = bytes(standard_library().train.tolist())
    singles, pairs = Counter(data), Counter(pairwise(data))
    counted = [sum(-n * math.log(n / c.total()) for n in c.values()) / c.total()
               for c in (singles, pairs)]  # fmt: skip
    assert entropies() == approx((counted[0], counted[1] - counted[0]), rel=1e-6)


def test_tiny_decoders_go_through_the_store_and_share_runs(tmp_path):
    sizes = {"base": (16, 1), "depths": (1, 2), "steps": 5, "seeds": 2}
    planned = plan_claims(named(NAMES), Setting(sizes=sizes))
    asked = {each.key for _, experiment in planned for each in experiment.asked}
    assert len(asked) < sum(len(experiment.asked) for _, experiment in planned)
    with Store(tmp_path / "results.sqlite") as store:
        assert reproduce(planned, store=store, executor=InProcess()) == len(asked)
        assert reproduce(planned, store=store, executor=InProcess()) == 0
        findings = judge(planned, store, scale="laptop", environment={}).findings
    assert [finding.claim for finding in findings] == list(NAMES)
    # Five steps teach nothing that needs a layer.
    assert {finding.verdict for finding in findings[1:]} == {UNDECIDABLE}
    assert all(finding.pictures for finding in findings)
