import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from cells import cell

from depthmup.training import Weights, batches, build, stream


def weights(**changes):
    network = replace(cell().network, **changes)
    return Weights(network=network, seed=0)


def test_first_layers_of_a_deeper_network_equal_the_shallow_ones():
    shallow, deep = build(cell(depth=2)), build(cell(depth=5))
    for few, many in zip(shallow.branches, deep.branches, strict=False):
        assert torch.equal(few.matrices[0].weight, many.matrices[0].weight)
    assert torch.equal(shallow.input.weight, deep.input.weight)
    assert torch.equal(shallow.readout.weight, deep.readout.weight)


def test_learning_rate_and_multiplier_change_neither_init_nor_data():
    one, other = cell(-2.0, multiplier=0.1), cell(-5.0, multiplier=1.0)
    assert torch.equal(batches(one), batches(other))
    assert torch.equal(build(one).input.weight, build(other).input.weight)


def test_a_longer_run_begins_with_the_shorter_one():
    assert torch.equal(batches(cell(steps=30))[:10], batches(cell(steps=10)))


def test_seeds_layers_and_places_are_independent():
    first = weights().hidden(0, 0)
    others = [
        weights().hidden(1, 0),
        weights().hidden(0, 1),
        Weights(network=cell().network, seed=1).hidden(0, 0),
    ]
    for other in others:
        correlation = torch.corrcoef(torch.stack([first.flatten(), other.flatten()]))[0, 1]
        assert abs(correlation) < 4 / 16  # 4 sigma of 256 entries


@pytest.mark.parametrize(
    ("name", "std"), [("input", 0.125), ("hidden", 128**-0.5), ("readout", 1 / 128)]
)
def test_initial_standard_deviations(name, std):
    drawn = weights(width=128, hidden_std=128**-0.5, readout_std=1 / 128)
    tensor = drawn.hidden(0, 0) if name == "hidden" else getattr(drawn, name)()
    relative = 4 / (2 * tensor.numel()) ** 0.5  # 4 sigma of a sample standard deviation
    assert tensor.std().item() == pytest.approx(std, rel=relative)


def test_streams_are_stable_across_processes_and_machines():
    """Records are compared across machines, so a stream must not depend on hash randomization."""
    assert stream(0, "branch", 3).initial_seed() == 28637376895423376  # wherever it was
    code = "from depthmup.training import stream; print(stream(0, 'branch', 3).initial_seed())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "28637376895423376\n"
