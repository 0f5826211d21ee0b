from dataclasses import replace

import pytest
import torch
from cells import cell

from depthmup.records import Data
from depthmup.sweep import check_memory, cost
from depthmup.sweep.cost import core_seconds, memory, work
from depthmup.training import batches


def test_work_is_proportional_to_parameters_and_steps():
    base = cell(width=16, depth=4, steps=20)
    assert work(cell(width=32, depth=4, steps=20)) == 4 * work(base)
    assert work(cell(width=16, depth=8, steps=20)) == 2 * work(base)
    assert work(cell(width=16, depth=4, steps=60)) == 3 * work(base)
    assert work(cell(width=16, depth=4, steps=20, block_depth=2)) == 2 * work(base)


@pytest.mark.parametrize(
    "options",
    [{}, {"layer_norm": True}, {"block_depth": 2, "activation": "tanh"}, {"nonlinearity": "pre"}],
    ids=str,
)
def test_memory_is_what_a_step_of_the_stack_holds(options):
    """The bound holds, and is no wild guess."""
    from depthmup.training.cells import training_of
    from depthmup.training.stack import Stack

    cells = [cell(width=32, depth=8, seed=seed, **options) for seed in range(3)]
    stack, storages = Stack([training_of(each) for each in cells]), {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage  # held, or other tensors would take its place
        return tensor

    stack.take(torch.stack([batches(each)[0] for each in cells]))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        stack()
    trained = [w for w in stack.weights.values() if w.requires_grad]
    for tensor in [*trained, *(w.grad for w in trained), *stack.state]:
        keep(tensor)
    # Besides, of the examples and the outer matrices, what does not grow with depth.
    outside = [w for w in stack.weights.values() if not w.requires_grad]
    held = sum(storage.nbytes() for storage in storages.values())
    held -= sum(w.untyped_storage().nbytes() for w in outside)
    assert held <= memory(cells) < 1.15 * held


def test_a_sweep_that_would_not_fit_is_refused_with_the_number(monkeypatch):
    monkeypatch.setattr(cost, "available", lambda device: 2**30)
    huge = replace(cell().network, width=8192, depth=64)
    groups = [(replace(cell(), network=huge),), (cell(),)]
    with pytest.raises(ValueError, match=r"need 64\.\d GiB with 2 workers, and 1\.0 GiB are"):
        check_memory(groups, workers=2)


def test_on_a_cuda_device_its_own_memory_counts(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (5, 10))
    with pytest.raises(ValueError, match=r"and 0\.0 GiB are available"):
        check_memory([(cell(),)], workers=1, device="cuda:1")
    assert asked == ["cuda:1"]


def test_every_worker_holds_the_data(monkeypatch):
    """Two copies of CIFAR-10 in single precision alone are 50000 x 3072 x 4 x 2 bytes."""
    monkeypatch.setattr(cost, "available", lambda device: 50000 * 3072 * 4 * 2)
    digits = [(cell(),), (cell(),)]
    check_memory(digits, workers=2)
    images = [(replace(each, data=Data(name="cifar10", digest="0" * 32)),) for (each,) in digits]
    with pytest.raises(ValueError, match=r"need 2\.\d GiB with 2 workers"):
        check_memory(images, workers=2)


def test_the_order_of_many_epochs_is_counted(monkeypatch):
    """Twelve members with 10^6 steps of 64 indices of 8 bytes hold 6 GB; one holds 0.5."""
    monkeypatch.setattr(cost, "available", lambda device: 4 * 10**9)
    long = [tuple(cell(seed=seed, steps=10**6, batch_size=64) for seed in range(12))]
    check_memory(long, workers=1, stacked=False)
    with pytest.raises(ValueError, match="This sweep would need"):
        check_memory(long, workers=1)


def test_an_engine_that_trains_members_in_turn_holds_one_of_them():
    from depthmup.training.native.member import Member, Start

    cells = [cell(width=32, depth=8, seed=seed) for seed in range(3)]
    found = memory(cells, stacked=False)
    assert found == memory(cells[:1], stacked=False)
    start = Start.of(cells[0], 16)  # of registers that hold the network without padding
    state = Member(cells[0], 16, start)
    held = sum(array.nbytes for array in (start.hidden, *state.arrays.values()))
    shared = sum(state.arrays[name].nbytes for name in ("table", "order", "labels", "readout"))
    buffers = sum(state.arrays[name].nbytes for name in ("x", "dx", "u", "d", "e"))
    assert held - shared - buffers <= found <= held


def test_small_sweeps_fit():
    check_memory([(cell(),)], workers=2)


def test_the_system_tells_its_memory():
    there = cost.available()
    assert there is None or there > 2**20


def test_predicted_time_is_proportional_to_operations_and_falls_with_the_engines_share():
    one = cell()
    wide = replace(one, network=replace(one.network, width=2 * one.network.width))
    large = replace(one, steps=6 * one.steps)
    native = core_seconds([one], engine="native")
    assert core_seconds([wide], engine="native") == pytest.approx(4 * native)
    assert core_seconds([large], engine="native") == pytest.approx(6 * native)
    assert core_seconds([one, wide], engine="native") == pytest.approx(5 * native)
    assert core_seconds([one], engine="reference") > native
    assert core_seconds([], engine="native") == 0
    # A core makes between one and a thousand billion operations a second.
    assert 6 * one.batch_size * work(one) / native / 0.88 == pytest.approx(3e10, rel=30)


def test_a_step_has_a_cost_beside_its_examples():
    """Products are in proportion to the batch, the update of the weights is not."""
    few, many = (core_seconds([replace(cell(), batch_size=b)], engine="native") for b in (16, 512))
    assert 32 * few > many > 20 * few
    assert work(replace(cell(), batch_size=512)) / work(replace(cell(), batch_size=16)) > 20
