"""Layers of the model and of the base that correspond, when their numbers differ."""

import pytest
from planning_zoo import MLPBlock, vectors
from torch import nn

from depthmup.planning import UnrelatedModels, anatomy
from depthmup.planning.matching import Match


def flat(width, depth):
    """The first network of every tutorial: one sequence with ends of other shapes."""
    layers = [nn.Linear(6, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 2))


@pytest.mark.parametrize(
    ("model", "base"), [((32, 4), (8, 2)), ((32, 3), (8, 1)), ((32, 5), (8, 2))]
)
def test_a_flat_sequence_matches_its_ends_and_repeats_its_middle(model, base):
    result = Match(flat(*model), flat(*base)).parameters
    depth, base_depth = model[1], base[1]
    assert result["0.weight"] == "0.weight"
    assert result[f"{2 * depth + 2}.weight"] == f"{2 * base_depth + 2}.weight"
    middle = {f"{2 * i}.weight" for i in range(1, base_depth + 1)}
    assert {result[f"{2 * i}.weight"] for i in range(1, depth + 1)} == middle


def test_a_base_may_be_the_deeper_one():
    result = Match(flat(32, 2), flat(8, 4)).parameters
    assert result == {**result, "0.weight": "0.weight", "6.weight": "10.weight"}


def residual(width, depth):
    blocks = (MLPBlock(width) for _ in range(depth))
    last = nn.Linear(width, width)
    return nn.Sequential(
        nn.Linear(6, width), *blocks, last, nn.LayerNorm(width), nn.Linear(width, 2)
    )


def test_a_flat_residual_network_is_planned():
    result = anatomy(residual(32, 6), residual(8, 2), example_inputs=vectors())
    at = {p.name: p for p in result.places}
    assert at["7.weight"].base_name == "3.weight"
    assert at["9.weight"].base_name == "5.weight"
    assert at["6.up.weight"].ratios.depth == 3


def test_stages_that_do_not_repeat_are_still_refused():
    sizes = (2, 3, 7, 11, 13, 17)

    def pyramid(depth):
        return nn.Sequential(*(nn.Linear(sizes[i], sizes[i + 1]) for i in range(depth)))

    with pytest.raises(UnrelatedModels, match=r"have all different shapes|no counterpart"):
        Match(pyramid(5), pyramid(3))


class Projected(nn.Module):
    """A block that needs a shortcut where its two widths differ."""

    def __init__(self, before, width):
        super().__init__()
        self.main = nn.Linear(before, width)
        self.shortcut = nn.Linear(before, width) if before != width else None


def test_a_shortcut_that_the_base_does_without_is_named():
    """Both begin with 16 coordinates, and 16 is the base's width."""

    def network(width, depth):
        return nn.Sequential(*(Projected(width if i else 16, width) for i in range(depth)))

    with pytest.raises(UnrelatedModels, match=r"has shortcut, which is None in 0 of the base"):
        Match(network(64, 4), network(16, 2))
    assert Match(network(64, 4), network(32, 2)).parameters["3.main.weight"] == "1.main.weight"
