"""GPUs on Ray: a job trains on the GPU that it was given, and is tried where there is one."""

import os
import tempfile

import pytest
from misbehaviour import Heard, Several, task

import depthmup
from depthmup import BuiltIn, Design, Execution
from depthmup.sweep import Ray, WorkerError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'depthmup[ray]'")
pytestmark = [pytest.mark.long(slice=False), pytest.mark.xdist_group("ray")]

ROUNDS = (2, 5, 3, 1, 4)
"""Jobs of each round, as a search asks for them. One long batch of Ray's tasks shows no mix."""


@pytest.fixture(scope="module")
def two_gpus():
    """A node of four cores and two GPUs, which are numbers alone."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=80 * 2**20,
            _temp_dir=folder,
        )
        try:
            yield
        finally:
            ray.shutdown()


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_job_trains_on_the_gpu_that_it_was_given(two_gpus, tmp_path, share):
    heard, number = Heard(), 0
    with Ray(gpus_per_trial=share).staying() as team:
        for count in ROUNDS:
            numbers = range(number, number + count)
            jobs = [
                Several(
                    tasks=(task("initialize", tmp_path / "log", n, seconds=0.3 + 0.2 * (n % 3)),)
                )
                for n in numbers
            ]
            number += count
            team(jobs, heard)
    assert not heard.failures
    values = [result.values for result in heard.results]
    assert len(values) == sum(ROUNDS)
    assert all(each["given"] == each["bound"] for each in values)
    assert {each["bound"] for each in values} == {0, 1}
    # CUDA starts once for each process that a GPU has room for.
    assert len({each["process"] for each in values}) <= 2 / share


def refuse():
    raise ValueError(f"tried on GPU {os.environ.get('CUDA_VISIBLE_DEVICES')}")


def fail():
    return {}["what is missing"]


def test_runs_are_tried_where_there_is_a_gpu(two_gpus):
    with pytest.raises(ValueError, match=r"^Expected a CUDA device .* Check nvidia-smi"):
        depthmup.transfer(
            BuiltIn(),
            Design(
                base={"width": 16, "depth": 2},
                lrs=[0.002],
                depth=(2, 4),
                schemes="depth-mup",
                optimizers="adam",
                seeds=1,
                steps=2,
            ),
            on=Execution(executor="ray", gpus_per_trial=1.0),
        )
    with pytest.raises((ValueError, WorkerError), match=r"tried on GPU \d"):
        Ray(gpus_per_trial=1.0).elsewhere(refuse)
    with pytest.raises(WorkerError, match="KeyError: 'what is missing'"):
        Ray(gpus_per_trial=1.0).elsewhere(fail)
