"""Recorded steps, on a tape in place of a CUDA graph: the same kernels on the same memory."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from cells import cell
from torch.utils._python_dispatch import TorchDispatchMode

from depthmup.records import Status
from depthmup.training import Placement, engine, train_ensemble, train_group
from depthmup.training.cuda_graphs import WARM_UP, cuda_graph

ASKS_THE_DEVICE = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero")


class Tape(TorchDispatchMode):
    """What a CUDA graph keeps of a step: its kernels with the memory that they touch.

    Replaying runs the kernels alone: no Python, no new numbers, no new memory. Recording leaves
    no trace: what kernels wrote is put back. A step that asks for a number cannot be recorded.
    """

    def __init__(self):
        super().__init__()
        self.kernels, self.before, self.own = [], [], set()

    def __torch_dispatch__(self, kernel, types, arguments=(), options=None):
        options = options or {}
        if kernel.overloadpacket.__name__ in ASKS_THE_DEVICE:
            raise RuntimeError(f"{kernel} while recording")
        schema = kernel._schema
        for i, declared in enumerate(schema.arguments):
            given = arguments[i] if i < len(arguments) else options.get(declared.name)
            if declared.alias_info is not None and declared.alias_info.is_write:
                tensors = given if isinstance(given, list | tuple) else [given]
                self.before += [(t, t.clone()) for t in tensors if isinstance(t, torch.Tensor)]
        results = kernel(*arguments, **options)
        self.kernels.append((kernel, arguments, options, results))
        return results

    def put_back(self):
        for tensor, content in reversed(self.before):
            tensor.copy_(content)

    def replay(self):
        for kernel, arguments, options, recorded in self.kernels:
            results = kernel(*arguments, **options)
            for old, new in zip(as_tensors(recorded), as_tensors(results), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def as_tensors(results):
    results = results if isinstance(results, list | tuple) else [results]
    return [each for each in results if isinstance(each, torch.Tensor)]


def on_tape(step):
    tape = Tape()
    with tape:
        step()
    tape.put_back()
    return tape.replay


class Counting:
    """A recorder that counts."""

    def __init__(self):
        self.recorded = self.replayed = 0

    def __call__(self, step):
        self.recorded += 1
        replay = on_tape(step)

        def play():
            self.replayed += 1
            replay()

        return play


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


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_replaying_gives_the_bits_of_running(options, precision):
    cells = [replace(cell(k, seed=1, **options), precision=precision) for k in (-7.0, -6.0, -5.0)]
    count = Counting()
    assert list(train_ensemble(cells, record=count)) == list(train_ensemble(cells))
    assert (count.recorded, count.replayed) == (1, cells[0].steps - WARM_UP)


def test_a_member_that_leaves_has_the_step_recorded_anew():
    """The wild one first diverges after the warm-up, so a recorded step is thrown away."""
    calm, wild = [cell(-6.0), cell(-5.0, seed=1)], cell(1.5)
    count = Counting()
    eager = list(train_ensemble([calm[0], wild, calm[1]]))
    assert eager[0].status is Status.DIVERGED
    assert WARM_UP < len(eager[0].losses) < wild.steps - 2
    assert list(train_ensemble([calm[0], wild, calm[1]], record=count)) == eager
    assert count.recorded == 2


def test_the_tape_would_see_what_a_graph_cannot_do():
    numbers = torch.zeros(3)

    def asks():
        numbers.add_(1)
        if numbers.sum().item() > 0:
            numbers.mul_(2)

    with pytest.raises(RuntimeError, match="while recording"):
        on_tape(asks)

    def counts(state=[0]):  # noqa: B006 - the mistake that is meant
        state[0] += 1
        numbers.fill_(state[0])

    replay = on_tape(counts)
    replay()
    first = numbers.clone()
    replay()
    assert torch.equal(numbers, first)  # run, it would have counted on


def test_recording_leaves_no_trace():
    numbers = torch.arange(4.0)
    replay = on_tape(lambda: numbers.mul_(2).add_(1))
    assert numbers.tolist() == [0, 1, 2, 3]
    replay()
    assert numbers.tolist() == [1, 3, 5, 7]


def test_a_cuda_graph_holds_the_step_that_would_run(monkeypatch):
    """With the two names of torch that it uses played by a tape."""

    @contextmanager
    def graph(tape, stream):
        with tape:
            yield
        tape.put_back()

    for name, played in (("CUDAGraph", Tape), ("graph", graph), ("Stream", lambda: "a stream")):
        monkeypatch.setattr(torch.cuda, name, played)
    cells = [cell(-6.0), cell(-5.0)]
    assert list(train_ensemble(cells, record=cuda_graph)) == list(train_ensemble(cells))


@pytest.mark.parametrize("graphs", [True, False])
def test_placement_decides_whether_steps_are_recorded(graphs, monkeypatch):
    seen = {}

    def stand_in(cells, **options):
        seen.update(options)
        return iter(())

    monkeypatch.setattr("depthmup.training.ensemble.train_ensemble", stand_in)
    monkeypatch.setattr(engine, "_cuda", lambda placement, precision: "a device")
    list(train_group([cell()], placement=Placement(device="cuda:0", cuda_graphs=graphs)))
    assert seen["device"] == "cuda:0"
    assert seen["record"] is (cuda_graph if graphs else None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_on_an_accelerator(options):
    """Against the CPU, with and without graphs, in every precision."""
    cells = [cell(k, width=64, seed=s, **options) for k in (-7.0, -6.0) for s in (0, 1)]
    on_cpu = [np.asarray(r.losses) for r in train_ensemble(cells)]
    for precision, tolerance in (("float32", 1e-4), ("tf32", 2e-3), ("bf16", 2e-2)):
        rounded = [replace(each, precision=precision) for each in cells]
        eager = list(train_ensemble(rounded, device="cuda"))
        replayed = list(train_ensemble(rounded, device="cuda", record=cuda_graph))
        for exact, one, other in zip(on_cpu, eager, replayed, strict=True):
            np.testing.assert_allclose(one.losses, exact, rtol=tolerance)
            np.testing.assert_allclose(other.losses, one.losses, rtol=1e-6)
