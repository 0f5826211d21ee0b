"""What was asked for, what is there, and which engine follows; bad combinations are refused."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from cells import cell

from depthmup.records import Status
from depthmup.training import Backend, engine_for, train, train_ensemble, train_group


@pytest.fixture(autouse=True)
def no_wish(monkeypatch):
    monkeypatch.delenv("DEPTHMUP_ENGINE", raising=False)


@pytest.fixture
def ampere(monkeypatch):
    """A CUDA device as PyTorch would tell of it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Some Accelerator")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "abacus"}, "cpu, cuda or cuda:N; got 'abacus'"),
        ({"device": "cuda:x"}, "got 'cuda:x'"),
        ({"device": "cuda:"}, "got 'cuda:'"),
        ({"engine": "fortran"}, "native, stacked or reference; got 'fortran'"),
        ({"device": "cuda", "engine": "native"}, "auto or stacked on 'cuda'; got 'native'"),
        ({"device": "cuda:1", "engine": "reference"}, "on 'cuda:1'; got 'reference'"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        engine_for(cell(), Backend(**settings))


@pytest.mark.parametrize(
    ("precision", "backend", "message"),
    [
        ("tf32", Backend(), "float32 or bf16 on 'cpu'; got 'tf32'"),
        ("bf16", Backend(engine="native"), "the precision 'bf16' is not in the kernel"),
        ("float32", Backend(device="cuda"), "a CUDA device that PyTorch .* can use; got 'cuda'"),
    ],
)
def test_what_a_place_cannot_do_is_refused_before_training(precision, backend, message):
    asked = replace(cell(), precision=precision)
    if torch.cuda.is_available() and backend.on_cuda:
        pytest.skip("there is a CUDA device")
    with pytest.raises(ValueError, match=message):
        engine_for(asked, backend)
    with pytest.raises(ValueError, match=message):
        next(train_group([asked], backend=backend))


def test_the_cpu_offers_every_engine(monkeypatch):
    for name in ("native", "stacked", "reference"):
        chosen = engine_for(cell(), Backend(engine=name))
        assert chosen.name == name
        # What was asked for outweighs the environment.
        monkeypatch.setenv("DEPTHMUP_ENGINE", "stacked")
        assert engine_for(cell(), Backend(engine=name)).name == name
    assert engine_for(replace(cell(), precision="bf16")).name == "stacked"
    monkeypatch.setenv("DEPTHMUP_ENGINE", "reference")
    assert engine_for(cell()).why == "DEPTHMUP_ENGINE=reference"


def test_each_engine_trains_what_it_says():
    cells, fractions = [cell(-6.0), cell(-5.0)], []
    by_loop = list(
        train_group(cells, backend=Backend(engine="reference"), on_progress=fractions.append)
    )
    assert by_loop == [train(each) for each in cells]
    assert fractions == [0.5, 1.0]
    stacked = list(train_group(cells, backend=Backend(engine="stacked")))
    assert stacked == list(train_ensemble(cells))
    assert all(record.status is Status.FINISHED for record in stacked)


@pytest.mark.usefixtures("ampere")
def test_a_cuda_device_is_for_the_stacked_engine(monkeypatch):
    monkeypatch.setenv("DEPTHMUP_ENGINE", "native")  # a wish for the CPU
    chosen = engine_for(replace(cell(), precision="tf32"), Backend(device="cuda", cuda_graphs=True))
    assert str(chosen) == "stacked: Some Accelerator, tf32, CUDA graphs"
    with pytest.raises(ValueError, match="got 'cuda:1', and it finds 1"):
        engine_for(cell(), Backend(device="cuda:1"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5))
    assert engine_for(cell(), Backend(device="cuda")).name == "stacked"
    for precision in ("tf32", "bf16"):
        with pytest.raises(ValueError, match=r"older than compute capability 8\.0"):
            engine_for(replace(cell(), precision=precision), Backend(device="cuda"))


BUILT_IN = """
import sys
from cells import cell
from depthmup.training import Backend, train_group
for engine in ("auto", "stacked", "reference"):
    list(train_group([cell(steps=2)], backend=Backend(engine=engine)))
print({"depthmup.planning", "torch._dynamo"} & sys.modules.keys())
"""


def test_built_in_networks_train_without_plans_and_compiler():
    """Whose modules take up to a second to load, in every worker."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", BUILT_IN], capture_output=True, text=True, env=environment
    )
    assert (done.stdout.strip(), done.returncode) == ("set()", 0), done.stderr
