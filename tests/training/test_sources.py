"""Data that lie elsewhere: found by place, known by content, trained alike by every engine."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from published import write_cifar10, write_mnist
from sweeps import residual

from depthmup.records import Data
from depthmup.sweep import InProcess, Processes, Store, run, training
from depthmup.training import (
    Backend,
    batches,
    dataset,
    find_data,
    train,
    train_ensemble,
    train_native,
)
from depthmup.training.built_in.sources import found_data
from depthmup.training.native import compiler

# Single precision rounds to 6e-8; ten well-conditioned steps must stay far below this.
SAME = 1e-5


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Neither the environment nor what was read before, and both as they were afterwards."""
    for name in ("DEPTHMUP_MNIST", "DEPTHMUP_CIFAR10"):
        monkeypatch.setenv(name, "")
    dataset.cache_clear()
    found_data.cache_clear()


@pytest.fixture
def cifar(tmp_path):
    write_cifar10(tmp_path / "cifar", version="python", examples=20)
    return f"cifar10:{tmp_path / 'cifar'}"


def grid(data, **changes):
    options = {"depths": (2,), "base_depth": 2, "seeds": 2, "width": 16, "batch_size": 16}
    options |= {"steps": 10, "window": 5, "log2_lrs": (-6.0, -5.0), "order": "epochs"}
    return residual(data=data, **{**options, **changes})


def test_the_digits_need_no_place():
    assert find_data("digits") == Data()
    assert find_data("digits", label_noise=0.1) == Data(label_noise=0.1)


def test_the_digest_is_part_of_the_cell_and_the_place_is_not(cifar, tmp_path):
    data = find_data(cifar, verify=False)
    assert (data.name, data.label_noise) == ("cifar10", 0.0)
    assert str(tmp_path) not in grid(data).runs[0].to_json()
    write_cifar10(tmp_path / "elsewhere", version="binary", examples=20)
    assert find_data(f"cifar10:{tmp_path / 'elsewhere'}", verify=False) == data
    write_cifar10(tmp_path / "other", version="binary", examples=20, seed=5)
    other = find_data(f"cifar10:{tmp_path / 'other'}", verify=False)
    assert grid(other).runs[0].key != grid(data).runs[0].key


def test_the_place_may_come_from_the_environment(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    named = find_data(f"mnist:{tmp_path}", verify=False)
    monkeypatch.setenv("DEPTHMUP_MNIST", str(tmp_path))
    assert find_data("mnist", verify=False) == named


def test_a_place_is_remembered_wherever_work_is_done(cifar, monkeypatch, tmp_path):
    """Workers may run in another folder."""
    monkeypatch.chdir(tmp_path)
    data = find_data("cifar10:cifar", verify=False)
    monkeypatch.chdir("/")
    assert len(dataset(data).labels) == 100


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("imagenet", "one of digits, mnist:FOLDER, cifar10:FOLDER; got 'imagenet'"),
        ("digits:here", "got 'digits:here'"),
        ("mnist", "set DEPTHMUP_MNIST=FOLDER"),
        ("mnist:/no-such-place", "no-such-place is not one"),
    ],
)
def test_what_cannot_be_found(spec, message):
    with pytest.raises(ValueError, match=message):
        find_data(spec)


def test_files_that_are_not_the_official_ones_are_used_only_on_demand(cifar):
    with pytest.raises(ValueError, match="to be the official file"):
        find_data(cifar)
    assert find_data(cifar, verify=False).digest


def test_data_that_changed_since_are_refused(cifar, tmp_path):
    data = find_data(cifar, verify=False)
    write_cifar10(tmp_path / "cifar", version="python", examples=20, seed=3)
    with pytest.raises(ValueError, match=f"digest {data.digest}, as in the cell"):
        dataset(data)


def test_label_noise_is_drawn_as_for_the_digits(cifar):
    clean = dataset(find_data(cifar, verify=False))
    noisy = dataset(find_data(cifar, verify=False, label_noise=1.0))
    assert torch.equal(noisy.inputs, clean.inputs)
    assert 0.05 < (noisy.labels == clean.labels).double().mean() < 0.25  # 1/10 of 100, 4 sigma


def test_the_order_is_the_cells(cifar):
    data = find_data(cifar, verify=False)
    epochs = batches(grid(data, steps=25).runs[0]).flatten().reshape(4, 100)
    assert torch.equal(epochs.sort(1).values, torch.arange(100).expand(4, 100))
    drawn = batches(grid(data, steps=25, order="replacement").runs[0]).flatten()[:100]
    assert len(drawn.unique()) < 100


@pytest.mark.parametrize("order", ["epochs", "replacement"])
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_engines_agree_with_the_plain_loop(name, order, tmp_path):
    write_mnist(tmp_path)
    write_cifar10(tmp_path, version="binary")
    cells = grid(find_data(f"{name}:{tmp_path}", verify=False), order=order).runs
    expected = {cell.key: np.asarray(train(cell).losses) for cell in cells}
    engines = [train_ensemble, *([train_native] if compiler() else [])]
    for engine in engines:
        for record in engine(cells):
            np.testing.assert_allclose(record.losses, expected[record.cell.key], rtol=SAME)
    still = replace(cells[0], optimizer=replace(cells[0].optimizer, lr=2.0**-60))
    moved = np.abs(expected[cells[0].key] / np.asarray(train(still).losses) - 1).max()
    assert moved > 100 * SAME


def test_a_members_bits_do_not_depend_on_its_company(cifar):
    cells = grid(find_data(cifar, verify=False), log2_lrs=(-7.0, -6.0, -5.0)).runs
    together = {record.cell.key: record.losses for record in train_ensemble(cells)}
    for cell in cells:
        (alone,) = train_ensemble([cell])
        assert alone.losses == together[cell.key]


@pytest.mark.parametrize("engine", ["stacked", "native"])
def test_workers_find_the_data(engine, cifar, tmp_path):
    if engine == "native" and compiler() is None:
        pytest.skip("there is no C compiler")
    cells = grid(find_data(cifar, verify=False)).runs
    jobs = partial(training, backend=Backend(engine=engine))
    with (
        Store(tmp_path / "workers.sqlite") as theirs,
        Store(tmp_path / "here.sqlite") as ours,
    ):
        run(cells, store=theirs, executor=Processes(workers=1), jobs=jobs)
        run(cells, store=ours, executor=InProcess(), jobs=jobs)
        for cell in cells:
            assert theirs.get(cell) == ours.get(cell)
