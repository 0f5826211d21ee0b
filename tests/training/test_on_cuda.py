"""Training on CUDA devices, which ``simulated_cuda`` simulates: the CPU's losses, and no waste."""

import math
import warnings
from dataclasses import replace

import numpy as np
import own_models
import pytest
import torch
from cells import cell
from simulated_cuda import machine
from torch import nn

import depthmup
from depthmup.diagnostics.networks import fresh
from depthmup.model import Model, resolved
from depthmup.records import Status, Trial
from depthmup.training import Backend, engine, stack, train_ensemble, train_group
from depthmup.training import cells as of_cells
from depthmup.training.cuda_graphs import WARM_UP, cuda_graph
from depthmup.training.preflight import device_of, preflight
from depthmup.training.trial import run_together, run_trial

CELLS = [cell(-6.0), cell(-5.0, seed=1)]
OPTIONS = [
    {},
    {"activation": "tanh", "layer_norm": True},
    {"block_depth": 2, "activation": "relu"},
    {"nonlinearity": "pre", "activation": "softplus"},
    {"mean_subtraction": False, "activation": "gelu"},
    {"name": "adamw", "weight_decay": 2.0},
    {"name": "adam", "weight_decay": 0.05},
    {"name": "sgd", "momentum": 0.9, "weight_decay": 0.05},
    {"name": "sgd"},
]


def losses(records):
    return [list(record.losses) for record in records]


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_built_in_network_has_the_losses_of_the_cpu(options, precision):
    cells = [cell(k, seed=k + 6, **options, steps=8) for k in (-6, -5)]
    cells = [replace(each, precision=precision) for each in cells]
    expected = losses(train_ensemble(cells))
    for device, graphs in (("cuda", False), ("cuda:1", True)):
        with machine(gpus=2) as simulated:
            backend = Backend(device=device, cuda_graphs=graphs)
            assert losses(train_group(cells, backend=backend)) == expected
        assert simulated.touched == {torch.device(device).index or 0}
        assert simulated.counts["replays"] == (8 - WARM_UP if graphs else 0)


def test_every_device_has_its_captures():
    """PyTorch's own stream for captures is of the first device that a process captured on."""
    expected = losses(train_ensemble(CELLS))
    with machine(gpus=2):
        for device in ("cuda:1", "cuda:0", "cuda:1"):
            backend = Backend(device=device, cuda_graphs=True)
            assert losses(train_group(CELLS, backend=backend)) == expected
        assert torch.cuda.current_device() == 0


def test_a_graph_without_kernels_is_an_error():
    with machine(gpus=2):
        numbers = torch.zeros(3, device="cuda:1")
        with pytest.raises(RuntimeError, match="no kernel in the CUDA graph recorded on device 0"):
            cuda_graph(lambda: numbers.add_(1))


def counted(train, shorter=40, longer=104):
    """What one step of a longer training adds, and the number of readings that it adds."""
    counts = []
    for steps in (shorter, longer):
        with machine() as simulated:
            train(steps)
        counts.append(simulated.counts)
    added = counts[1] - counts[0]
    return {name: count / (longer - shorter) for name, count in added.items()}, added["waits"]


@pytest.fixture
def _patient(monkeypatch):
    """Losses are read for their number alone, however slow the simulation is."""
    monkeypatch.setattr(stack, "SECONDS", math.inf)


@pytest.mark.long
@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize(
    ("record", "kernels"), [(None, 40 + 18 * 8), (cuda_graph, 3)], ids=["eager", "graphs"]
)
def test_launches_do_not_grow_and_losses_are_read_every_32_steps(record, kernels):
    def train(steps):
        cells = [cell(-6.0, depth=8, steps=steps, seed=seed) for seed in range(2)]
        list(train_ensemble(cells, device="cuda", record=record))

    each, waits = counted(train)
    assert waits == 64 / stack.EVERY
    assert each.get("to device", 0) == each.get("to host", 0) == 0
    assert each["kernels"] <= kernels
    assert each.get("replays", 0) == (record is not None)


def test_a_member_that_diverges_ends_where_it_does_on_the_cpu():
    cells = [cell(-6.0), cell(1.5), cell(-5.0, seed=1)]
    cells = [replace(one, steps=40) for one in cells]
    expected = {record.cell: record for record in train_ensemble(cells)}
    assert 0 < len(expected[cells[1]].losses) < 39
    for record in (None, cuda_graph):
        with machine():
            found = list(train_ensemble(cells, device="cuda", record=record))
        assert {one.cell: one for one in found} == expected


@pytest.mark.parametrize("name", ["done", "factors"])
def test_the_simulation_notices_a_tensor_that_stayed_on_the_cpu(name, monkeypatch):
    class Forgetful(stack.Stack):
        def __init__(self, members):
            super().__init__(members)
            setattr(self, name, getattr(self, name).cpu())

    monkeypatch.setattr(stack, "Stack", Forgetful)
    with machine(), pytest.raises(RuntimeError, match="on the same device"):
        list(train_ensemble(CELLS, device="cuda"))


@pytest.mark.parametrize("graphs", [True, False])
def test_placement_decides_whether_steps_are_recorded(graphs, monkeypatch):
    seen = {}

    def stand_in(cells, **options):
        seen.update(options)
        return iter(())

    monkeypatch.setattr(of_cells, "train_ensemble", stand_in)
    monkeypatch.setattr(engine, "_cuda", lambda backend, precision: "a device")
    list(train_group([cell()], backend=Backend(device="cuda:0", cuda_graphs=graphs)))
    assert seen["device"] == "cuda:0"
    assert seen["record"] is (cuda_graph if graphs else None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_on_an_accelerator(options):
    """Against the CPU, with and without graphs, in every precision."""
    cells = [cell(k, width=64, seed=s, **options) for k in (-7.0, -6.0) for s in (0, 1)]
    on_cpu = losses(train_ensemble(cells))
    for precision, tolerance in (("float32", 1e-4), ("tf32", 2e-3), ("bf16", 2e-2)):
        rounded = [replace(each, precision=precision) for each in cells]
        eager = losses(train_ensemble(rounded, device="cuda"))
        replayed = losses(train_ensemble(rounded, device="cuda", record=cuda_graph))
        np.testing.assert_allclose(eager, on_cpu, rtol=tolerance)
        np.testing.assert_allclose(replayed, eager, rtol=1e-6)


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


def test_clipping_takes_a_few_launches():
    network, (inputs, _) = small(32, 4), own_models.batch(torch.Generator())
    plan = depthmup.plan(network, base=small(16, 2), example_inputs=(inputs,))
    with machine() as simulated:
        network.cuda()
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        before = simulated.counts["kernels"]
        plan.clip_grad_norm_(network, 1.0)
        assert simulated.counts["kernels"] - before <= 11
        assert simulated.counts["waits"] == simulated.counts["to host"] == 0


def stacked(**changes):
    return [trial(lr=lr, seed=seed, **changes) for lr in (0.005, 0.01) for seed in (0, 1)]


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("record", [None, cuda_graph], ids=["eager", "graphs"])
@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 40},
        {"optimizer": "muon", "steps": 10},
        {"settings": {"clip": 0.1, "schedule": "cosine", "warmup": 0.5}, "steps": 10},
        {"weight_decay": 0.3, "steps": 10},
    ],
    ids=str,
)
def test_a_stack_has_the_losses_of_the_cpu(changes, record):
    model = Model(small, batch=own_models.batch, version="1")
    expected = losses(run_together(stacked(**changes), model))
    with machine(gpus=2) as simulated, warnings.catch_warnings():
        warnings.simplefilter("error")
        on_cuda = losses(run_together(stacked(**changes), model, device="cuda:1", record=record))
    assert_close(on_cuda, expected)
    assert simulated.counts["replays"] == (len(expected[0]) - WARM_UP if record else 0)


@pytest.mark.usefixtures("_patient")
def test_a_recorded_step_of_a_stack_is_a_replay_and_a_few_copies():
    model = Model(small, batch=own_models.batch, version="1")

    def train(steps):
        list(run_together(stacked(steps=steps), model, device="cuda", record=cuda_graph))

    each, waits = counted(train)
    assert waits == 64 / stack.EVERY
    assert each["replays"] == 1
    assert each["to device"] == 2  # inputs and targets
    assert each["kernels"] <= 3  # these copies, and that of the losses


class Altered(nn.Module):
    """A model that does what a recorded step cannot."""

    def __init__(self, width, depth, how):
        super().__init__()
        self.inner, self.how, self.calls = own_models.make(width, depth), how, 0
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        if self.how == "counts":
            self.calls += 1
            x = x * (1 + 0.1 * self.calls)
        elif self.how == "grows":
            self.seen = torch.cat([self.seen, self.seen[:1] + 1])
            x = x * (1 + 0.1 * len(self.seen))
        elif self.how == "copies":
            x = x * torch.tensor([2.0]).to(WHERE)
        elif self.how == "counts elsewhere":
            CALLS.append(1)
            x = x * (1 + 0.1 * len(CALLS))
        return self.inner(x)


WHERE, CALLS = "cpu", []


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("counts", "every step replaces calls of the model"),
        ("grows", "every step replaces seen of the model"),
        ("copies", "operation not permitted when stream is capturing"),
        ("counts elsewhere", "a recorded step gives other numbers than the step itself"),
    ],
)
def test_a_step_that_cannot_be_replayed_is_run_with_a_warning(how, reason, monkeypatch):
    def make(width, depth):
        CALLS.clear()
        return Altered(width, depth, how)

    model = Model(make, batch=own_models.batch, version="1")
    expected = losses(run_together(stacked(), model))
    monkeypatch.setitem(globals(), "WHERE", "cuda")
    heard = []
    with machine() as simulated, pytest.warns(UserWarning, match=reason):
        found = losses(
            run_together(
                stacked(),
                model,
                device="cuda",
                record=cuda_graph,
                on_loss=lambda *loss: heard.append(loss),
            )
        )
    assert_close(found, expected)
    assert simulated.counts["replays"] <= 1
    assert len(heard) == len(set(heard)) == 4 * len(expected[0])


def test_batches_of_another_shape_are_run_as_they_come():
    def uneven(generator):
        x, y = own_models.batch(generator)
        kept = len(x) - int(torch.randint(2, (1,), generator=generator))
        return x[:kept], y[:kept]

    model = Model(small, batch=uneven, version="1")
    trials = [trial(steps=12, lr=lr) for lr in (0.005, 0.01)]
    expected = losses(run_together(trials, model))
    with machine() as simulated:
        found = losses(run_together(trials, model, device="cuda", record=cuda_graph))
    assert_close(found, expected)
    assert simulated.counts["replays"] < 12 - WARM_UP


@pytest.mark.long
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
        fresh(resolved(model), {"width": 16, "depth": 2}, 0)
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
