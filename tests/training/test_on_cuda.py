"""Training on CUDA devices, which ``simulated_cuda`` simulates: the CPU's losses, and no waste."""

from dataclasses import replace

import pytest
import torch
from cells import cell
from simulated_cuda import machine

from depthmup.training import Placement, train_ensemble, train_group
from depthmup.training.cuda_graphs import cuda_graph

CELLS = [cell(-6.0), cell(-5.0, seed=1)]
OPTIONS = [{}, {"name": "adamw", "weight_decay": 2.0, "layer_norm": True}, {"name": "sgd"}]


def losses(records):
    return [list(record.losses) for record in records]


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_built_in_network_has_the_losses_of_the_cpu(options, device, graphs):
    cells = [cell(-6.0, **options), cell(-5.0, seed=1, **options)]
    placement = Placement(device=device, cuda_graphs=graphs)
    expected = losses(train_ensemble(cells))
    with machine(gpus=2) as simulated:
        assert losses(train_group(cells, placement=placement)) == expected
    assert simulated.touched == {torch.device(device).index or 0}


def test_every_device_has_its_captures():
    """PyTorch's own stream for captures is of the first device that a process captured on."""
    expected = losses(train_ensemble(CELLS))
    with machine(gpus=2):
        for device in ("cuda:1", "cuda:0", "cuda:1"):
            placement = Placement(device=device, cuda_graphs=True)
            assert losses(train_group(CELLS, placement=placement)) == expected
        assert torch.cuda.current_device() == 0


def test_a_graph_without_kernels_is_an_error():
    with machine(gpus=2):
        numbers = torch.zeros(3, device="cuda:1")
        with pytest.raises(RuntimeError, match="no kernel in the CUDA graph recorded on device 0"):
            cuda_graph(lambda: numbers.add_(1))


def test_a_step_waits_once_and_copies_nothing_to_the_host():
    counts = []
    for steps in (10, 20):
        with machine() as simulated:
            list(train_ensemble([replace(one, steps=steps) for one in CELLS], device="cuda"))
        counts.append(simulated.counts)
    assert counts[1]["waits"] - counts[0]["waits"] == 10
    assert counts[1]["to device"] == counts[0]["to device"]
    assert counts[1]["to host"] == counts[0]["to host"] == 0


@pytest.mark.parametrize("name", ["branch", "gain"])
def test_the_simulation_notices_a_tensor_that_stayed_on_the_cpu(name, monkeypatch):
    from depthmup.training import ensemble

    right = ensemble.stack_of

    def stack_of(cells, device):
        stack = right(cells, device)
        setattr(stack, name, torch.ones(getattr(stack, name).shape))
        return stack

    monkeypatch.setattr(ensemble, "stack_of", stack_of)
    with machine(), pytest.raises(RuntimeError, match="on the same device"):
        list(train_ensemble(CELLS, device="cuda"))
