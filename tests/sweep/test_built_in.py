from dataclasses import replace
from math import inf, log2, nan

import pytest
from pytest import approx
from sweeps import residual

from depthmup.records import Data
from depthmup.rules import CATALOGUE, ODE, SP, scheme
from depthmup.sweep import BuiltIn, Design, Sweep
from depthmup.sweep.built_in import usual_rate

FOUR = tuple(scheme(name) for name in ("depth-mup", "block-multiplier", "sp", "ode"))
NETWORKS = residual(schemes=FOUR, seeds=2)
BASE_RATE = -9.0
"""log2 of a learning rate at the base."""


def cell(name, depth, *, log2_lr=BASE_RATE, width=64, **settings):
    sweep = residual(schemes=(scheme(name),), **settings)
    return sweep.run(sweep.design.variant(), {"width": width, "depth": depth}, log2_lr, 0)


@pytest.mark.parametrize(
    ("name", "depth", "expected"),
    [
        ("depth-mup", 8, -9),
        ("depth-mup", 32, -10),
        ("depth-mup", 16, -9.5),
        ("block-multiplier", 32, -9),
        ("sp", 128, -9),
        ("ode", 128, -9),
        ("3/4,1/4", 128, -10),
    ],
)
def test_effective_rate_of_adam(name, depth, expected):
    """eta (L / 8)^-gamma."""
    assert log2(cell(name, depth).optimizer.lr) == approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "depth", "expected"), [("depth-mup", 128, -3), ("ode", 16, -2), ("sp", 128, -3)]
)
def test_effective_rate_of_sgd(name, depth, expected):
    """eta (L / 8)^(alpha - gamma)."""
    lr = cell(name, depth, log2_lr=-3.0, optimizer="sgd").optimizer.lr
    assert log2(lr) == approx(expected, abs=1e-9)


def test_width_follows_mup_from_the_base():
    wide, at_base = cell("depth-mup", 8, width=256), cell("depth-mup", 8)
    assert log2(wide.optimizer.lr) == log2(at_base.optimizer.lr) - 2
    assert wide.network.hidden_std == approx(256**-0.5)
    assert wide.network.readout_std == approx(1 / 256)
    assert wide.network.input_std == 1 / 8
    assert wide.optimizer.epsilon == approx(1e-8 / 4)


@pytest.mark.parametrize(("name", "alpha"), [("depth-mup", 0.5), ("ode", 1), ("sp", 0)])
def test_branch_multiplier_and_epsilon_follow_alpha(name, alpha):
    deep = cell(name, 32, multipliers=2.0)
    assert deep.network.multiplier == approx(2 * 4**-alpha)
    assert deep.optimizer.epsilon == approx(1e-8 * 4**-alpha)


def test_at_the_base_all_schemes_are_the_same_cell():
    assert len({cell(each.name, 8) for each in CATALOGUE}) == 1


def test_schemes_differ_away_from_the_base():
    assert cell("ode", 16) != cell("depth-mup", 16)


def test_no_effective_cell_is_trained_twice():
    """gamma only relabels the axis: at depth 32 Depth-muP's rate -3 is (1/2, 0)'s rate -4."""
    pair = residual(schemes=FOUR[:2], depths=(8, 32), seeds=2)
    assert cell("depth-mup", 32) == cell("block-multiplier", 32, log2_lr=BASE_RATE - 1)
    # 8 rates shared at the base; -8..0 together at depth 32; two seeds.
    assert len(pair.runs) == 2 * (8 + 9)


def test_four_schemes_have_as_many_cells_as_counted_by_hand():
    per_seed = 8 + (16 + 8 + 8) + (9 + 8 + 8) + (16 + 8 + 8) + (10 + 8 + 8)
    assert len(NETWORKS.runs) == 2 * per_seed


def test_cells_have_stable_keys():
    first = NETWORKS.runs[0]
    assert first.key == type(first).from_json(first.to_json()).key
    assert type(first).from_json(first.to_json()) == first
    assert len({each.key for each in NETWORKS.runs}) == len(NETWORKS.runs)


def test_what_later_versions_added_leaves_the_keys_of_older_cells_alone():
    """Keys as the first stores hold them, of the version of the engines that wrote those."""
    first = residual(numerics=2).runs[0]
    assert first.key == "3562f732c2b37fe12939938f31b33d8e"
    others = [
        replace(first, order="epochs"),
        replace(first, data=replace(first.data, digest="0" * 32)),
    ]
    assert len({first.key, *(each.key for each in others)}) == 3
    for each in others:
        assert type(each).from_json(each.to_json()) == each


@pytest.mark.parametrize("changes", [{}, {"optimizer": "sgd", "settings": {"momentum": 0.9}}])
def test_sweeps_survive_json(changes):
    sweep = residual(
        schemes=(*FOUR, scheme("3/4,1/4")), data=Data(label_noise=0.1), order="epochs", **changes
    )
    assert Sweep.from_dict(sweep.to_dict()) == sweep


@pytest.mark.parametrize(("name", "inputs"), [("mnist", 784), ("cifar10", 3072)])
def test_networks_are_sized_for_the_data(name, inputs):
    first = residual(data=Data(name=name, digest="0" * 32)).runs[0]
    assert (first.network.inputs, first.network.outputs) == (inputs, 10)
    assert first.network.input_std == approx(inputs**-0.5)


def test_usual_rates_follow_the_width_as_the_optimum_does():
    adam = [usual_rate({"width": n, "depth": 8}, "adam") for n in (64, 256)]
    sgd = [usual_rate({"width": n, "depth": 8}, "sgd") for n in (64, 256)]
    assert adam[0] / adam[1] == approx(4)
    assert sgd[0] == sgd[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schemes": ()}, "schemes to be at least one"),
        ({"schemes": (SP, SP)}, "schemes to be at least one, different"),
        ({"depths": (0, 8)}, "depth to be whole numbers of at least 1"),
        ({"depths": (16, 32)}, "contain the base's, 8"),
        ({"depths": (16, 8)}, "depth to be strictly increasing"),
        ({"log2_lrs": ()}, "lrs to be at least one"),
        ({"log2_lrs": (-3.0, -4.0)}, "learning rates to be strictly increasing"),
        ({"log2_lrs": (-3.0, -3.0)}, "learning rates to be strictly increasing"),
        ({"log2_lrs": (nan,)}, "lrs to be positive"),
        ({"log2_lrs": (-inf, 0.0)}, "lrs to be positive"),
        ({"seeds": 0}, "seeds to be at least 1"),
        ({"base_depth": 0}, "depth of base to be a whole number of at least 1"),
        ({"steps": 0}, "steps to be at least 1"),
        ({"window": 301}, "window to be between 1"),
        ({"block_depth": 0}, "block_depth to be at least 1"),
        ({"batch_size": 0}, "batch_size to be at least 1"),
        ({"multipliers": nan}, "multipliers to be positive"),
        ({"settings": {"eps": -1.0}}, "eps to be finite and not negative"),
        ({"settings": {"betas": [0.9, 1.0]}}, r"betas to be in \[0, 1\)"),
        ({"settings": {"betas": 0.9}}, "betas to be two numbers"),
        ({"settings": {"sharpness": 1.0}}, "settings of the built-in networks among"),
        ({"activation": "swich"}, "activation to be one of identity, abs"),
        ({"nonlinearity": "mid"}, "nonlinearity to be 'post'"),
        ({"optimizer": "lion"}, "optimizer to be one of adam"),
        ({"weight_decays": 0.1}, "use 'adamw'"),
        ({"data": Data(name="imagenet")}, "data to be one of digits"),
        ({"data": Data(name="mnist")}, "a digest for all data but the digits"),
        ({"data": Data(digest="0" * 32)}, "a digest for all data but the digits"),
        ({"order": "shuffled"}, "order to be one of replacement, epochs"),
        ({"data": Data(label_noise=2.0)}, "label_noise to be a fraction"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        residual(**change)


def test_other_axes_are_refused():
    design = Design(base={"width": 64, "depth": 8, "experts": 2}, lrs=[0.1], optimizers="sgd")
    with pytest.raises(ValueError, match="axes width, depth, batch"):
        Sweep(model=BuiltIn(), design=replace(design, schemes=(ODE,)))
