from dataclasses import replace
from math import inf, log2, nan

import pytest
from pytest import approx

from depthmup.records import Data
from depthmup.rules import CATALOGUE, DEPTH_MUP, ODE, SP, scheme
from depthmup.sweep import Grid

FOUR = tuple(scheme(name) for name in ("depth-mup", "block-multiplier", "sp", "ode"))
GRID = Grid(schemes=FOUR, seeds=2)


def log2_rate(name, depth, k=-3.0, **changes):
    cell = replace(GRID, schemes=(scheme(name),), **changes).cell(scheme(name), depth, k, 0)
    return log2(cell.optimizer.lr)


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
    """2^k / n (L / 8)^-gamma at n = 64."""
    assert log2_rate(name, depth) == approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "depth", "expected"), [("depth-mup", 128, -3), ("ode", 16, -2), ("sp", 128, -3)]
)
def test_effective_rate_of_sgd(name, depth, expected):
    """2^k (L / 8)^(alpha - gamma)."""
    assert log2_rate(name, depth, optimizer="sgd") == approx(expected, abs=1e-9)


def test_width_follows_mup_from_the_base_width():
    wide = replace(GRID, width=256, base_width=64)
    at_base = replace(GRID, width=64, base_width=64)
    cell = wide.cell(DEPTH_MUP, 8, -3.0, 0)
    assert log2(cell.optimizer.lr) == log2(at_base.cell(DEPTH_MUP, 8, -3.0, 0).optimizer.lr) - 2
    assert cell.network.hidden_std == approx(256**-0.5)
    assert cell.network.readout_std == approx(1 / 256)
    assert cell.network.input_std == 1 / 8
    assert cell.optimizer.epsilon == approx(1e-8 / 4)


@pytest.mark.parametrize(("name", "alpha"), [("depth-mup", 0.5), ("ode", 1), ("sp", 0)])
def test_branch_multiplier_and_epsilon_follow_alpha(name, alpha):
    cell = replace(GRID, multiplier=2.0).cell(scheme(name), 32, -3.0, 0)
    assert cell.network.multiplier == approx(2 * 4**-alpha)
    assert cell.optimizer.epsilon == approx(1e-8 * 4**-alpha)


def test_at_the_base_all_schemes_are_the_same_cell():
    assert len({replace(GRID, schemes=(s,)).cell(s, 8, -3.0, 1) for s in CATALOGUE}) == 1


def test_no_effective_cell_is_trained_twice():
    """gamma only relabels the axis: at depth 32 Depth-muP's rate -3 is (1/2, 0)'s rate -4."""
    pair = replace(GRID, schemes=FOUR[:2], depths=(8, 32))
    assert pair.cell(FOUR[0], 32, -3.0, 0) == pair.cell(FOUR[1], 32, -4.0, 0)
    # 8 rates shared at the base; -8..0 together at depth 32; two seeds.
    assert len(pair.cells) == 2 * (8 + 9)


def test_the_small_preset_has_as_many_cells_as_counted_by_hand():
    per_seed = 8 + (16 + 8 + 8) + (9 + 8 + 8) + (16 + 8 + 8) + (10 + 8 + 8)
    assert len(GRID.cells) == 2 * per_seed


def test_cells_have_stable_keys():
    cell = GRID.cells[0]
    assert cell.key == type(cell).from_json(cell.to_json()).key
    assert type(cell).from_json(cell.to_json()) == cell
    assert len({each.key for each in GRID.cells}) == len(GRID.cells)


def test_what_later_versions_added_leaves_the_keys_of_older_cells_alone():
    """Keys as the first stores hold them, of the version of the engines that wrote those."""
    first = Grid(numerics=2).cells[0]
    assert first.key == "3562f732c2b37fe12939938f31b33d8e"
    others = [
        replace(first, order="epochs"),
        replace(first, data=replace(first.data, digest="0" * 32)),
    ]
    assert len({first.key, *(each.key for each in others)}) == 3
    for each in others:
        assert type(each).from_json(each.to_json()) == each


def test_grids_survive_json():
    grid = replace(GRID, schemes=(*FOUR, scheme("3/4,1/4")), data=Data(label_noise=0.1))
    assert Grid.from_dict(grid.to_dict()) == grid
    images = replace(grid, data=Data(name="cifar10", digest="0" * 32), order="epochs")
    assert Grid.from_dict(images.to_dict()) == images
    older = {k: v for k, v in grid.to_dict().items() if k != "order"}
    assert Grid.from_dict(older) == grid


@pytest.mark.parametrize(("name", "inputs"), [("mnist", 784), ("cifar10", 3072)])
def test_networks_are_sized_for_the_data(name, inputs):
    cell = replace(GRID, data=Data(name=name, digest="0" * 32)).cells[0]
    assert (cell.network.inputs, cell.network.outputs) == (inputs, 10)
    assert cell.network.input_std == approx(inputs**-0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schemes": ()}, "schemes to be at least one"),
        ({"schemes": (SP, SP)}, "schemes to be different"),
        ({"depths": (0, 8)}, "depths to be at least 1 each"),
        ({"depths": (16, 32)}, "contain the base depth 8"),
        ({"depths": (16, 8)}, "depths to be strictly increasing"),
        ({"log2_lrs": ()}, "log2_lrs to be a list"),
        ({"log2_lrs": (-3.0, -4.0)}, "log2_lrs to be strictly increasing"),
        ({"log2_lrs": (-3.0, -3.0)}, "log2_lrs to be strictly increasing"),
        ({"log2_lrs": (nan,)}, "log2_lrs to be finite"),
        ({"log2_lrs": (-inf, 0.0)}, "log2_lrs to be finite"),
        ({"seeds": 0}, "seeds to be at least 1"),
        ({"width": 0}, "width to be at least 1"),
        ({"steps": 0}, "steps to be at least 1"),
        ({"window": 301}, "window to be between 1"),
        ({"block_depth": 0}, "block_depth to be at least 1"),
        ({"multiplier": nan}, "multiplier to be finite"),
        ({"epsilon": -1.0}, "epsilon to be finite and not negative"),
        ({"beta2": 1.0}, r"beta2 to be in \[0, 1\)"),
        ({"activation": "swich"}, "activation to be one of abs, relu"),
        ({"nonlinearity": "mid"}, "nonlinearity to be 'post'"),
        ({"optimizer": "adamish"}, "optimizer to be one of adam"),
        ({"weight_decay": 0.1}, "use optimizer='adamw'"),
        ({"data": Data(name="imagenet")}, "data to be one of digits"),
        ({"data": Data(name="mnist")}, "other data to have one"),
        ({"data": Data(digest="0" * 32)}, "the digits, .* to have no digest"),
        ({"order": "shuffled"}, "order to be one of replacement, epochs"),
        ({"data": Data(label_noise=2.0)}, "label_noise to be a fraction"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        replace(GRID, **change)


def test_ode_and_depth_mup_differ_away_from_the_base():
    assert GRID.cell(ODE, 16, -3.0, 0) != GRID.cell(DEPTH_MUP, 16, -3.0, 0)
