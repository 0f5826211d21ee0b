"""A table of a random search, in which every run has a size of its own."""

import numpy as np
import pandas as pd
import pytest

import depthmup


def table(runs=400, slope=-0.5, seed=0, noise=0.01):
    rng = np.random.default_rng(seed)
    s, x = rng.uniform(0, 6, (runs, 2)), rng.uniform(-14, -2, runs)
    z = x + 7 - s @ (slope, 0.0)
    loss = np.exp(0.5 - 0.08 * s.sum(1) + 0.015 * z**2 + noise * rng.standard_normal(runs))
    sizes = {"width": 64 * 2 ** s[:, 0], "depth": 4 * 2 ** s[:, 1]}
    return pd.DataFrame({**sizes, "lr": 2.0**x, "loss": loss, "run": np.arange(1.0, runs + 1)})


def fit(runs, axes=("width", "depth"), **more):
    return depthmup.fit(runs, axes=list(axes), lr="lr", loss="loss", **more)


@pytest.mark.parametrize(("slope", "verdict"), [(-0.5, "drifts"), (0.0, "transfers")])
def test_has_a_verdict_along_every_axis(slope, verdict):
    report = fit(table(slope=slope, runs=1200))
    found = report.exponent("width")
    assert found.low <= slope <= found.high
    assert report.study("width").headline.transfers[0].verdict == verdict
    assert report.study("depth").headline.transfers[0].verdict == "transfers"


def test_says_that_it_was_gathered_and_keeps_the_page(tmp_path):
    report = fit(table(), target={"width": 8192, "depth": 512})
    notes = " ".join(note.text for note in report.studies[0].notes)
    assert "Nearly every one of the 400 runs has a size of its own" in notes
    assert "4 cells" in notes
    report.save(tmp_path)
    assert depthmup.load(tmp_path).exponent("width") == report.exponent("width")


def test_a_prediction_rests_on_cells():
    """400 runs along two axes have two cells along each, and a forecast with its interval."""
    target = {"width": 8192, "depth": 512}
    few, many = (fit(table(runs), target=target).certificates[0] for runs in (400, 1200))
    assert few.predicted.high - few.predicted.low > many.predicted.high - many.predicted.low


def test_a_certificate_counts_runs_and_no_seeds():
    """Runs of a cell have sizes and rates of their own: none is another's repetition."""
    certificate = fit(table(540), target={"width": 8192, "depth": 512}).certificates[0]
    assert certificate.seeds == 1
    assert "540 runs in cells around these sizes, by loss" in certificate.summary().replace(
        "\n    ", " "
    )


def test_groups_are_gathered_apart():
    both = pd.concat([table().assign(arm="a"), table(slope=0.0, seed=1, runs=1200).assign(arm="b")])
    transfers = fit(both, by="arm").study("width").headline.transfers
    assert [transfer.verdict for transfer in transfers] == ["drifts", "transfers"]


def test_noise_alone_is_refused():
    runs = table().assign(loss=1 + np.random.default_rng(0).random(400))
    runs["loss"] -= 0.02 * np.log2(runs["lr"])
    with pytest.raises(ValueError, match="together they show no valley"):
        fit(runs)


def test_a_number_of_the_run_is_no_axis():
    runs = table(600)
    runs["lr"] = 2.0 ** np.round(np.log2(runs["lr"]))
    with pytest.raises(ValueError, match="is it an axis"):
        fit(runs, axes=["run"])


def of_depth(runs, width):
    """The table as if all had been trained at one width, under which another one then stands."""
    found = table(runs, slope=0.0)
    return found.assign(loss=found.loss * np.exp(0.08 * np.log2(found.width / 64)), width=width)


def test_the_order_of_rows_changes_nothing():
    runs = table()
    first, second = (fit(each) for each in (runs, runs.sample(frac=1, random_state=0)))
    assert first.to_pandas("optima").equals(second.to_pandas("optima"))
    assert first.regret == second.regret


def test_an_axis_of_one_value_keeps_it():
    """To three digits as the others it would be 1540, which no target names."""
    target = {"width": 1536, "depth": 512}
    [certificate] = fit(of_depth(540, 1536), target=target).certificates
    assert certificate.issued
    assert {size["width"] for size in (o.size for o in certificate.optima)} == {1536}


NARROW = 1000 + np.linspace(0, 5.3, 400)
"""Too far apart to be one value, and one size to three digits."""


@pytest.mark.parametrize("width", [NARROW, np.where(np.arange(400) == 3, 128, 64)])
def test_an_axis_that_hardly_varies_has_no_exponent(width):
    report = fit(of_depth(400, width))
    assert [study.axis for study in report.studies] == ["depth"]
    assert report.drift.low < 0 < report.drift.high


def test_runs_of_sizes_that_hardly_differ_are_of_one():
    with pytest.raises(ValueError, match="two sizes or more; all have width 1000"):
        fit(of_depth(400, NARROW), axes=["width"])


def test_thousands_of_rates_of_one_size_are_averaged_in_bins():
    """Each is nearer to the next than rates are told apart: they were taken for one."""
    rng = np.random.default_rng(0)
    sizes, x = np.repeat([4, 8, 16], 10_000), rng.uniform(-9, -3, 30_000)
    loss = np.exp(0.1 * (x + 6) ** 2 + 0.02 * rng.standard_normal(len(x)))
    report = fit(pd.DataFrame({"depth": sizes, "lr": 2.0**x, "loss": loss}), axes=["depth"])
    assert report.verdict == "transfers"
    assert 20 < len(report.to_pandas("points")) / 3 < 26  # six octaves in bins of a quarter
