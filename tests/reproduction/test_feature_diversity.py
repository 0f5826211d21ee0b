"""Figures 17 to 19 in worlds of noise and flow, and on small networks."""

import json
import math

import numpy as np
import pytest
from cells import cell
from planted import NO, OPEN, YES, finding
from pytest import approx

from depthmup.records import Cell
from depthmup.rules import ODE, general
from depthmup.sweep import InProcess, Store
from depthmup.training import build, dataset
from reproduction import Setting, named, reproduce
from reproduction.claims.feature_diversity import STARTS, distances_of
from reproduction.probes.diversity import feature_distances

SIZES = {"width": 64, "depths": (8, 64, 128, 256, 512), "seeds": 4, "steps": 10, "window": 1}
FIGURES = ("fig17", "fig18", "fig19")


def walk_and_flow(described, step, eps, *, grows=0.2, relu=2.0):
    """d(eps): a random walk of L blocks' noise and a flow of L blocks' updates, in quadrature."""
    network, optimizer = described.network, described.optimizer
    blocks = eps * network.depth
    update = network.multiplier * optimizer.lr * network.width * 8
    flow = 0.3 * update * (step / described.steps) ** 0.5 * (network.depth / 512) ** grows
    flow *= relu if network.activation == "relu" else 1.0
    noise = np.random.default_rng([described.seed, network.depth, step]).standard_normal(len(eps))
    squares = blocks * network.multiplier**2 + (blocks * flow) ** 2
    return np.sqrt(squares) * np.exp(0.002 * noise)


def planted(figure, law=walk_and_flow, **setting):
    def values(settings):
        described, eps = Cell.from_json(settings["cell"]), np.array(settings["eps"])
        return {str(t): law(described, t, eps).tolist() for t in settings["steps"]}

    return finding(figure, values, sizes=SIZES, **setting)


def test_where_the_theory_holds_all_three_figures_are_reproduced():
    result = {figure: planted(figure) for figure in FIGURES}
    assert {name: f.verdict for name, f in result.items()} == dict.fromkeys(FIGURES, YES)
    # A network of depth 64 is measured from one block on.
    assert result["fig17"].config["eps"] == (1 / 64, 1 / 32, 1 / 16, 1 / 8)


@pytest.mark.parametrize(
    "rule",
    [ODE, general("3/5", "1/2"), general("1/2", 0)],
    ids=["ode", "alpha 0.6", "gamma 0"],
)
def test_other_rules_are_found_out(rule):
    assert planted("fig17", depth_mup=rule).verdict is NO


def test_an_ode_that_stays_diverse_is_no_reproduction():
    def law(described, step, eps):
        return np.sqrt(eps) * walk_and_flow(described, step, np.ones(1))

    result = planted("fig17", law)
    moved = next(c for c in result.comparisons if c.what.startswith("ODE: slope"))
    assert moved.verdict is not YES
    assert result.verdict is not YES


def test_an_ode_that_is_a_flow_at_any_depth_does_not_move():
    def law(described, step, eps):
        d = walk_and_flow(described, step, eps)
        # The learning rate tells the two apart: under ODE it does not fall with depth.
        ode = described.optimizer.lr * described.network.width > 2.0**-3.5
        return d[0] * (eps / eps[0]) ** 0.9 if ode else d

    result = planted("fig17", law)
    moved, larger = result.comparisons[2:4]
    assert (moved.verdict, larger.verdict) == (OPEN, YES)
    assert abs(moved.ours.value) < 1e-9


def test_features_that_do_not_change_with_training_or_depth_are_no_reproduction():
    def backwards(described, step, eps):
        return walk_and_flow(described, described.steps + 1 - step, eps)

    assert planted("fig18", backwards).verdict is NO


def test_relu_that_is_more_diverse_than_abs_is_no_reproduction():
    def law(described, step, eps):
        return walk_and_flow(described, step, eps, relu=0.5)

    assert planted("fig19", law).verdict is NO


def test_networks_that_diverged_decide_nothing():
    def law(described, step, eps):
        d = walk_and_flow(described, step, eps)
        return d * math.nan if described.network.depth == 512 else d

    assert planted("fig19", law).verdict is OPEN


def test_distances_are_those_of_the_network_at_its_steps():
    one = cell(depth=16, width=16, steps=4)
    result = distances_of(cell=one.to_json(), steps=(0, 4), eps=(1 / 16, 1 / 8))
    inputs = dataset(one.data).inputs[:64]
    d = feature_distances(build(one), inputs, "branches.*", eps=(1 / 16, 1 / 8), at=STARTS)
    assert result["0"] == approx(np.sqrt(np.square(d).mean(axis=0)).tolist())
    assert result["4"] != approx(result["0"], rel=1e-3)
    wild = json.dumps(json.loads(one.to_json()) | {"steps": 200}).replace('"lr": ', '"lr": 9')
    assert list(distances_of(cell=wild, steps=(0, 200), eps=(1 / 16,))) == ["0"]


@pytest.mark.long
def test_small_networks_tell_depth_mup_from_ode(tmp_path):
    """Whether the verdict is reached is a matter of size; in no case is it the other one."""
    sizes = {"width": 32, "depths": (8, 32, 64, 128), "seeds": 4, "steps": 60, "window": 30}
    (claim,) = named(["fig17"])
    with Store(tmp_path / "results.sqlite") as store:
        for rule, possible in ((None, {YES, OPEN}), (ODE, {NO})):
            setting = Setting(sizes=sizes, **({"depth_mup": rule} if rule else {}))
            experiment = claim.experiment(setting)
            reproduce([(claim, experiment)], store=store, executor=InProcess())
            found = claim.finding(experiment, store)
            assert found.verdict in possible
            of = {c.what.split(":")[0]: c.ours for c in found.comparisons}
            assert of["ODE"].known
