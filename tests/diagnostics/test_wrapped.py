"""Probes on wrapped and sharded models see what they see on the plain one."""

import pytest
import sharded_worker
import torch
from pytest import approx
from several import together

from depthmup.diagnostics.sharding import whole

pytestmark = pytest.mark.xdist_group("several")


def found(folder, how):
    """What the first of several processes saw."""
    together(sharded_worker.work, str(folder), how)
    return torch.load(folder / "found.pt", weights_only=True)


@pytest.mark.long
@pytest.mark.parametrize("how", ["ddp", "blocks", "matrices"], ids=lambda h: h)
def test_two_processes_see_what_one_sees_at_first_and_after_training(how, tmp_path):
    """Every observable; each process trains on half of the examples.

    Adam's epsilon is large enough for sums in another order not to be blown up where gradients are
    near zero.
    """
    result = found(tmp_path, how)
    for name in sharded_worker.MODELS:
        expected = sharded_worker.seen(name, "plain")
        kinds = {key.split(": ")[-1] for key in expected}
        assert {"stream", "update effect", "stream change", "readout update"} <= kinds
        assert result[name].keys() == expected.keys()
        assert min(v for k, v in expected.items() if "change" in k) > 1e-3
        for key, value in expected.items():
            assert result[name][key] == approx(value, rel=1e-3, abs=1e-6), (name, key)


@pytest.mark.long
def test_a_check_of_sharded_networks_is_that_of_plain_ones(tmp_path):
    result = found(tmp_path, "check")
    expected = sharded_worker.checked("plain")
    assert result.keys() == expected.keys()
    assert len(result) > 20
    for key, value in expected.items():
        # float32 sums in another order, amplified by two steps of Adam where gradients are small.
        assert result[key] == approx(value, abs=0.01), key


def test_a_plain_tensor_is_whole():
    p = torch.nn.Parameter(torch.ones(3))
    assert whole(p).data_ptr() == p.data_ptr()
    assert not whole(p).requires_grad
