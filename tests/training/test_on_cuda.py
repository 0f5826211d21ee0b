"""Training on CUDA devices, which ``simulated_cuda`` simulates: the CPU's losses, and no waste."""

from dataclasses import replace

import own_models
import pytest
import torch
from cells import cell
from simulated_cuda import machine
from torch import nn

from depthmup.diagnostics.networks import Shape, fresh
from depthmup.model import Model, resolved
from depthmup.records import Status, Trial
from depthmup.training import Placement, ensemble, train_ensemble, train_group
from depthmup.training.cuda_graphs import cuda_graph
from depthmup.training.preflight import device_of, preflight
from depthmup.training.stacked_trials import run_together
from depthmup.training.trial import run_trial

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
    right = ensemble.stack_of

    def stack_of(cells, device):
        stack = right(cells, device)
        setattr(stack, name, torch.ones(getattr(stack, name).shape))
        return stack

    monkeypatch.setattr(ensemble, "stack_of", stack_of)
    with machine(), pytest.raises(RuntimeError, match="on the same device"):
        list(train_ensemble(CELLS, device="cuda"))


def small(width, depth):
    return own_models.make(width, depth)


def small_on_cuda(width, depth):
    with torch.device("cuda"):
        return own_models.make(width, depth)


def small_moved(width, depth):
    return own_models.make(width, depth).cuda()


def batch_on_cuda(generator):
    """A data set that lives on the GPU, as those of small networks often do."""
    x = torch.randn(256, 16, generator=torch.Generator().manual_seed(0)).cuda()
    chosen = torch.randint(256, (32,), generator=generator).cuda()
    return x[chosen], x[chosen][:, :8].argmax(-1)


class Masked(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inner = own_models.make(width, depth)

    def forward(self, x):
        return self.inner(x * torch.ones(16, device="cuda"))


FACTORIES = [small, small_on_cuda, small_moved]
BATCHES = [own_models.batch, batch_on_cuda]


def trial(**changes):
    usual = {
        "model": "small",
        "code": "version 1",
        "size": {"width": 32, "depth": 4},
        "base": {"width": 16, "depth": 2},
        "scheme": "depth-mup",
        "optimizer": "adamw",
        "lr": 0.01,
        "steps": 5,
        "seed": 0,
    }
    return Trial(**{**usual, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"settings": {"fused": True}},
        {"settings": {"foreach": True, "clip": 1.0, "schedule": "cosine"}},
        {"optimizer": "sgd"},
        {"optimizer": "muon"},
    ],
    ids=str,
)
def test_a_custom_model_has_the_losses_of_the_cpu(changes):
    model = Model(small, batch=own_models.batch, version="1")
    expected = list(run_trial(trial(**changes), model).losses)
    with machine(gpus=2) as simulated:
        record = run_trial(trial(**changes), model, device="cuda:1")
    assert list(record.losses) == pytest.approx(expected, rel=1e-6)
    assert simulated.touched == {1}
    assert simulated.counts["waits"] <= 2 * trial().steps


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_stack_has_the_losses_of_the_cpu(optimizer):
    model = Model(small, batch=own_models.batch, version="1")
    trials = [trial(optimizer=optimizer, lr=lr, seed=s) for lr in (0.005, 0.01) for s in (0, 1)]
    expected = losses(run_together(trials, model))
    with machine():
        on_cuda = losses(run_together(trials, model, device="cuda"))
    for one, other in zip(on_cuda, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stacked"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("make", FACTORIES)
def test_a_model_is_tried_on_the_device_on_which_it_trains(make, batch, stacked):
    model = Model(make, batch=batch, version="1")
    with machine():
        preflight(model, [trial(steps=2)], stacked=stacked, device="cuda")
        assert run_trial(trial(), model, device="cuda").status is Status.FINISHED


@pytest.mark.parametrize("make", [small_on_cuda, small_moved])
def test_the_device_is_the_models_own(make):
    with machine() as simulated:
        assert device_of(Model(make, batch=own_models.batch, version="1"), trial().base) == "cuda"
    assert simulated.started
    assert device_of(Model(small, batch=own_models.batch, version="1"), trial().base) == "cpu"


def generator_states(simulated):
    return {i: g.get_state().tolist() for i, g in simulated.generators.items()}


def test_training_leaves_the_generators_of_all_gpus_as_they_were():
    model = Model(small_on_cuda, batch=own_models.batch, version="1")
    with machine(gpus=2) as simulated:
        torch.cuda.manual_seed_all(123)
        torch.zeros(1, device="cuda")
        before = generator_states(simulated)
        first = run_trial(trial(), model, device="cuda")
        fresh(resolved(model), Shape(width=16, depth=2), 0)
        assert generator_states(simulated) == before
        assert run_trial(trial(), model, device="cuda") == first


def test_training_on_the_cpu_starts_no_gpu():
    """CUDA takes seconds and half a gigabyte on every device whose generator is asked for."""
    model = Model(small, batch=own_models.batch, version="1")
    with machine(gpus=8) as simulated:
        preflight(model, [trial(steps=1)])
        run_trial(trial(), model)
        list(train_ensemble(CELLS))
    assert (simulated.started, simulated.touched) == (False, set())
