"""Where a sweep trains: on the CPU, on a GPU, on all GPUs of a machine; simulated."""

import warnings
from dataclasses import replace

import own_models
import pytest
import torch
from simulated_cuda import machine

import depthmup
from depthmup import BuiltIn, Design, Execution, Model
from depthmup.runner import runner_of
from depthmup.sweep import InProcess, Processes, Sweep
from depthmup.sweep.resolution import resolved_sweep

GRID = {"depth": (2, 4), "schemes": "depth-mup", "seeds": 1, "steps": 3}
DESIGN = Design(
    base={"width": 16, "depth": 2}, lrs=[0.002, 0.004, 0.008, 0.016], optimizers="adamw", **GRID
)
OF_BUILT_IN = Design(
    base={"width": 16, "depth": 2}, lrs=[0.002, 0.004, 0.008], optimizers="adam", **GRID
)


def make_on_cuda(width, depth):
    return own_models.make(width, depth).cuda()


def own(make=own_models.make):
    return Model(make, batch=own_models.batch, version="1")


def losses_of(report):
    return [list(record.losses) for record in report.records.values()]


def test_a_box_of_gpus_has_a_worker_for_each(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    every = ("0", "1", "2")
    with machine(gpus=3):
        chosen = Execution(device="cuda").choose()
        assert (chosen, chosen.gpus) == (Processes(workers=3, gpus=every), every)
        assert Execution(device="cuda", workers=6).choose() == Processes(workers=6, gpus=every)
        assert Execution(device="cuda:1").choose() == Processes(workers=1)
        assert Execution(device="cuda", workers=1).choose() == InProcess()
        assert Execution(device="cuda", executor="in-process").choose() == InProcess()
        assert Execution(workers=1).choose() == InProcess()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
        assert Execution(device="cuda").choose().gpus == ("GPU-a", "GPU-b", "GPU-c")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:9"}, "got 'cuda:9': CUDA error: invalid device ordinal"),
        ({"device": "cuda:1", "executor": "ray", "gpus_per_trial": 1.0}, "Expected --device cuda"),
        ({"device": "cuda", "executor": "ray"}, "Add --gpus-per-trial 1"),
        ({"device": "cpu", "executor": "ray", "gpus_per_trial": 1.0}, "Leave out --device"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with machine(gpus=2), pytest.raises(ValueError, match=message):
        depthmup.transfer(own(), DESIGN, on=Execution(workers=1, **options))


def test_by_default_a_model_trains_where_its_function_puts_it():
    expected = losses_of(depthmup.transfer(own(), DESIGN))
    with machine() as simulated, warnings.catch_warnings():
        warnings.simplefilter("error")
        report = depthmup.transfer(own(make_on_cuda), DESIGN)
        # The kernels of its steps, beyond those of trying it.
        assert simulated.counts["kernels"] > 40 * sum(len(one) for one in expected)
    for one, other in zip(losses_of(report), expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_a_gpu_that_is_not_used_is_named():
    with machine() as simulated:
        with pytest.warns(UserWarning, match="A GPU is here, .* Use --device cuda"):
            depthmup.transfer(own(), DESIGN)
        with pytest.warns(UserWarning, match="A GPU is here, .* Use --device cuda"):
            depthmup.transfer(BuiltIn(), OF_BUILT_IN)
    assert (simulated.started, simulated.touched) == (False, set())
    with machine(gpus=4), pytest.warns(UserWarning, match="4 GPUs are here, and one is used"):
        depthmup.transfer(BuiltIn(), OF_BUILT_IN, on=Execution(device="cuda", workers=1))


@pytest.mark.parametrize("options", [{}, {"cuda_graphs": False}], ids=str)
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_built_in_networks_on_a_gpu(device, options):
    cpu = depthmup.transfer(BuiltIn(), OF_BUILT_IN, on=Execution(workers=1, engine="stacked"))
    here = Execution(workers=1, device=device, **options)
    with machine(gpus=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = depthmup.transfer(BuiltIn(), OF_BUILT_IN, on=here)
    assert losses_of(report) == losses_of(cpu)


def test_a_stack_of_own_models_on_a_gpu():
    cpu = depthmup.transfer(own(), DESIGN, on=Execution(workers=1, engine="stacked"))
    here = Execution(workers=1, device="cuda", engine="stacked")
    with machine():
        report = depthmup.transfer(own(), DESIGN, on=here)
    for one, other in zip(losses_of(report), losses_of(cpu), strict=True):
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_there_is_no_word_of_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        depthmup.transfer(BuiltIn(), OF_BUILT_IN)


@pytest.mark.parametrize("model", [BuiltIn(), own()], ids=["built-in", "own"])
def test_every_record_notes_the_gpu_that_trained_it(model, tmp_path):
    design = OF_BUILT_IN if isinstance(model, BuiltIn) else DESIGN
    first, rest = replace(design, lrs=design.lrs[:2]), design
    depthmup.transfer(model, first, out=tmp_path / "runs")
    with machine():
        here = Execution(workers=1, device="cuda")
        report = depthmup.transfer(model, rest, out=tmp_path / "runs", on=here)
    places = [record.place.partition(",")[0] for record in report.records.values()]
    assert {place: places.count(place) for place in places} == {
        "": len(places) // len(rest.lrs) * 2,
        "Simulated H100": len(places) // len(rest.lrs) * (len(rest.lrs) - 2),
    }


def test_a_session_notes_its_gpu():
    with machine(gpus=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = Execution(workers=1, device="cuda:1")
        sweep = Sweep(model=BuiltIn(), design=OF_BUILT_IN)
        about = runner_of(BuiltIn(), sweep, here).environment
    assert (about["device"], about["gpu"]) == ("cuda:1", "Simulated H100")
    assert {"driver", "cuda", "float32 products"} <= about.keys()


@pytest.mark.parametrize(("free", "fits"), [(650 << 20, True), (550 << 20, False)])
def test_a_gpu_needs_memory_for_one_network_of_a_stack(free, fits):
    """A stack that does not fit is halved. Two workers on two GPUs share none."""
    sweep = Sweep(
        model=BuiltIn(),
        design=Design(
            base={"width": 256, "depth": 2},
            lrs=[0.001 * 2**k for k in range(6)],
            optimizers="adam",
            **{**GRID, "depth": (2, 64)},
        ),
    )
    with machine(gpus=2, free=free):
        runner = runner_of(BuiltIn(), sweep, Execution(device="cuda", workers=2))
        if fits:
            runner.check(sweep.runs)
        else:
            with pytest.raises(ValueError, match="GiB are available"):
                runner.check(sweep.runs)


def stacks(model, design, **options):
    """The sizes of the stacks that a sweep trains on a box of two GPUs with this memory."""
    sweep, _ = resolved_sweep(model, design)
    with machine(gpus=2, free=options.pop("free", 80 << 30)):
        here = Execution(device="cuda", engine="stacked", **options)
        return [len(job.keys) for job in runner_of(model, sweep, here).trainer.jobs(sweep.runs)]


@pytest.mark.parametrize("model", [BuiltIn(), own()], ids=["built-in", "own"])
def test_a_stack_has_as_many_networks_as_fill_a_share_of_the_memory(model):
    optimizer = "adam" if isinstance(model, BuiltIn) else "adamw"
    many = Design(
        base={"width": 64, "depth": 2},
        lrs=[0.001 * 1.01**k for k in range(40)],
        optimizers=optimizer,
        **{**GRID, "depth": (2, 32)},
    )
    assert stacks(model, many, workers=2) == [40, 40]
    few = stacks(model, many, workers=2, free=32 << 20)
    assert sum(few) == 80
    assert 1 <= max(few) < 20
    # Four workers on two GPUs share their memory.
    assert max(stacks(model, many, workers=4, free=32 << 20)) == max(few) // 2


@pytest.mark.parametrize(("free", "fits"), [(560 << 20, True), (513 << 20, False)])
def test_a_gpu_needs_memory_for_one_model_of_a_stack(free, fits):
    large = Design(
        base={"width": 256, "depth": 2},
        lrs=[0.001 * 2**k for k in range(6)],
        optimizers="adamw",
        **{**GRID, "depth": (2, 32)},
    )
    sweep, _ = resolved_sweep(own(), large)
    with machine(free=free):
        runner = runner_of(own(), sweep, Execution(device="cuda", workers=1, engine="stacked"))
        if fits:
            runner.check(sweep.runs)
        else:
            with pytest.raises(ValueError, match="GiB are available"):
                runner.check(sweep.runs)
