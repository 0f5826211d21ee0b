"""Forecasts against runs made later: what held, what did not, and what nobody can tell."""

import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from pytest import approx

import depthmup
from depthmup.cli import main
from depthmup.records import Certificate, Estimate, Verdict
from depthmup.records.certificate import Lack
from depthmup.records.finding import rate
from depthmup.records.score import Fate
from depthmup.reports import certificate_text, score_page
from depthmup.reports.result import _sealed

COLUMNS = {"lr": "lr", "loss": "loss", "seed": "seed"}
TARGET = {"depth": 64}


def runs(depths=(4, 8, 16, 32, 64), *, slope=-0.5, seeds=3, noise=0.05, draw=0, rates=(-11, -1)):
    """Valleys whose optimum is known: log2 of the best rate is -4 + slope * log2(depth / 4)."""
    rng = np.random.default_rng(draw)
    rows = []
    for depth in depths:
        for seed in range(seeds):
            best = -4 + slope * math.log2(depth / 4) + noise * rng.standard_normal()
            level = 2 + 0.002 * rng.standard_normal()
            for k in np.arange(*rates, dtype=float):
                rows.append((depth, 2.0**k, seed, level * math.exp(0.02 * (k - best) ** 2)))
    return pd.DataFrame(rows, columns=["depth", "lr", "seed", "loss"])


def forecast(table, **options):
    small = table[table.depth < 64]
    report = depthmup.fit(small, axes=["depth"], **COLUMNS, target=TARGET, **options)
    (certificate,) = report.certificates
    assert certificate.issued, certificate
    return certificate


def test_forecasts_hold_as_often_as_they_say():
    """90% intervals: of 16 at least 11, which a rate of 90% misses once in 300 times."""
    scores = []
    for draw in range(16):
        table = runs(draw=draw)
        scores.append(depthmup.score(forecast(table), table, **COLUMNS))
    assert sum(each.value is Fate.HELD for each in scores) >= 11
    assert sum(each.bound is Fate.HELD for each in scores) >= 11
    best = np.array([each.best.log2_lr.value for each in scores])
    # By how the runs were made: -4 - 0.5 * 4.
    assert abs(best.mean() + 6) < 0.05


@pytest.mark.parametrize(
    ("depth", "beyond", "words"),
    [
        (128, 2.0, "the target is 2 doublings of depth beyond"),
        (64, 1.0, "the target is 1 doubling of depth beyond"),
        (24, 0.0, "measured up to depth 32."),
    ],
)
def test_a_forecast_tells_how_far_it_reaches(depth, beyond, words):
    report = depthmup.fit(runs((4, 8, 16, 32)), axes=["depth"], **COLUMNS, target={"depth": depth})
    [certificate] = report.certificates
    assert json.loads(certificate.to_json())["doublings_beyond"] == {"depth": beyond}
    assert Certificate.from_json(certificate.to_json()).doublings_beyond == {"depth": beyond}
    assert words in " ".join(certificate_text(certificate).split())


@pytest.mark.parametrize("octaves", [-2.0, 2.0])
def test_a_forecast_that_is_wrong_is_missed(octaves):
    table = runs()
    right = forecast(table)
    moved = replace(
        right.predicted,
        value=right.predicted.value + octaves,
        low=right.predicted.low + octaves,
        high=right.predicted.high + octaves,
    )
    score = depthmup.score(replace(right, predicted=moved), table, **COLUMNS)
    assert (score.value, score.bound) == (Fate.MISSED, Fate.MISSED)
    page = score_page(score)
    assert f"<h1>The forecast missed. Use learning rate {rate(score.measured.value)}" in page
    assert page.count("</span> Missed</span>") == 2
    # By how the runs were made; the optimum of three seeds is known to 0.05 octaves.
    assert score.excess.value == pytest.approx(math.expm1(0.02 * (moved.value + 6) ** 2), rel=0.1)


def test_what_was_run_too_coarsely_or_beside_the_optimum_decides_nothing():
    table = runs()
    certificate = forecast(table)
    edge = runs((64,), rates=(-6, -1))  # the lowest rate is the best one that was run
    assert depthmup.score(certificate, edge, **COLUMNS).value is Fate.UNDECIDED
    beyond = runs((64,), rates=(-4, 2))  # and here the forecast lies on the other side
    assert depthmup.score(certificate, beyond, **COLUMNS).value is not Fate.HELD
    sharp = replace(certificate, predicted=Estimate(value=-6.0, low=-6.0001, high=-5.9999))
    assert depthmup.score(sharp, table, **COLUMNS).value is not Fate.HELD


def test_the_data_behind_a_forecast_are_known_by_their_hash():
    table = runs()
    first = forecast(table).data
    assert len(first) == 32
    assert forecast(table.sample(frac=1, random_state=1)).data == first
    changed = table.copy()
    changed.loc[7, "loss"] *= 1.0001
    assert forecast(changed).data != first
    # The target's own runs are no part of it.
    assert forecast(table.assign(loss=table.loss.where(table.depth < 64, 9.0))).data == first


def test_a_file_keeps_its_date_as_long_as_it_forecasts_the_same(tmp_path):
    table = runs()
    file = tmp_path / "certificate.json"
    today = _sealed(forecast(table), file)
    assert today.date
    file.write_text(replace(today, date="2025-01-31").to_json())
    assert _sealed(forecast(table), file).date == "2025-01-31"
    changed = table.assign(loss=table.loss * 1.001)
    assert _sealed(forecast(changed), file).date == today.date
    file.write_text("{}")
    assert _sealed(forecast(table), file).date == today.date


def test_the_command_takes_the_word_example(tmp_path, capsys):
    """As ``fit`` and ``next`` do."""
    columns = ["--lr", "lr", "--loss", "final_loss", "--seed", "seed"]
    fit = ["fit", "example", "--axes", "depth=n_layers", *columns, "--scheme", "depth-mup"]
    small = ["--where", "scheme == depth-mup and n_layers < 128"]
    assert main([*fit, *small, "--target", "depth=128", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    words = ["--axes", "depth=n_layers", *columns, "--where", "scheme == depth-mup"]
    assert main(["score", str(tmp_path / "certificate.json"), "example", *words]) == 0
    assert capsys.readouterr().out.startswith("Forecast of ")


def test_the_command_reads_what_fit_wrote(tmp_path, capsys):
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    runs((4, 8, 16, 32)).to_csv(small, index=False)
    # One size by itself knows its optimum as sharply as the forecast on a finer grid alone.
    runs((64,), slope=-0.5, rates=(-11, -1, 0.25)).to_csv(large, index=False)
    columns = ["--lr", "lr", "--loss", "loss", "--seed", "seed"]
    out = tmp_path / "out"
    fit = ["fit", str(small), "--axes", "depth", *columns, "--target", "depth=64"]
    assert main([*fit, "--out", str(out)]) == 0
    certificate = Certificate.from_json((out / "certificate.json").read_text())
    capsys.readouterr()
    words = ["score", str(out / "certificate.json"), str(large), *columns]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Forecast of {certificate.date} for depth 64: learning rate 0.0")
    assert "\nHeld: the best one there is 0.0" in said
    page = tmp_path / "score.html"
    assert main([*words, "--json", "--out", str(page)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["value"], told["bound"], told["data"]) == ("held", "held", certificate.data)
    assert told["measured"]["low"] < 2.0**-6 < told["measured"]["high"]
    shown = page.read_text()
    assert f"The forecast held. Use learning rate {rate(told['measured']['value'])}" in shown
    assert shown.count("</span> Held</span>") == 2
    assert f"of {certificate.date} for depth 64" in shown
    assert main([*words, "--out", str(page.with_suffix(".txt"))]) == 2


def test_a_cost_that_may_be_above_the_bound_has_not_held_it():
    """Two seeds whose optima lie far apart: the best rate is known to a factor of six."""
    table = runs()
    noisy = runs((64,), noise=0.8, seeds=2, rates=(-9, -3))
    score = depthmup.score(forecast(table), noisy, **COLUMNS)
    assert score.excess.value < score.certificate.penalty.high < score.excess.high
    assert (score.value, score.bound) == (Fate.UNDECIDED, Fate.UNDECIDED)


def test_a_certificate_that_rests_on_its_target_is_no_forecast():
    table = runs()
    own = depthmup.fit(table, axes=["depth"], **COLUMNS, target=TARGET).certificates[0]
    assert own.issued
    with pytest.raises(ValueError, match="rests on runs at its own target, depth 64"):
        depthmup.score(own, table, **COLUMNS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t[t.depth < 64], "Expected runs at the forecast's target, depth 64"),
        (lambda t: t.rename(columns={"depth": "layers"}), "depth"),
        (lambda t: t.assign(loss=math.inf), "finite loss"),
    ],
)
def test_tables_that_cannot_judge_are_refused(change, said):
    table = runs()
    with pytest.raises(ValueError, match=said):
        depthmup.score(forecast(table), change(table), **COLUMNS)


def test_what_is_no_forecast_is_refused(tmp_path):
    table = runs()
    certificate = forecast(table)
    refused = depthmup.fit(
        runs((4, 8), noise=0.4, seeds=2), axes=["depth"], **COLUMNS, target={"depth": 4096}
    ).certificates[0]
    assert not refused.issued
    with pytest.raises(ValueError, match="this one was refused"):
        depthmup.score(refused, table, **COLUMNS)
    other = depthmup.fit(
        table[table.depth < 64], axes=["depth"], **COLUMNS, target=TARGET,
        reading=depthmup.tables.Reading(tuned="weight decay"),
    ).certificates[0]  # fmt: skip
    with pytest.raises(ValueError, match="of which the forecast speaks"):
        depthmup.score(other, table, **COLUMNS, reading=depthmup.tables.Reading())
    assert depthmup.score(other, table, **COLUMNS).value is Fate.HELD
    two = pd.concat([table.assign(kind="a"), table.assign(kind="b")])
    with pytest.raises(ValueError, match="one variant; the table has kind a, kind b"):
        depthmup.score(certificate, two, **COLUMNS, by="kind")
    assert depthmup.score(certificate, two, **COLUMNS, by="kind", where="kind == a")
    for name, text in {"none.json": None, "text.json": "x", "list.json": "[]"}.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match="Expected"):
            depthmup.score(tmp_path / name, table, **COLUMNS)


def test_another_size_at_which_nothing_trains_says_nothing_of_the_target():
    """It made the interval of every optimum unbounded, so that nothing was held or missed."""
    table = runs()
    certificate = forecast(table)
    table.loc[table.depth == 8, "loss"] = math.inf
    score = depthmup.score(certificate, table, **COLUMNS)
    assert (score.value, score.bound) == (Fate.HELD, Fate.HELD)
    [law] = depthmup.fit(table, axes=["depth"], **COLUMNS).studies[0].laws
    assert law.twice.high < math.inf


def certified(table, depth):
    """The certificate of a table for a depth."""
    [found] = depthmup.fit(table, axes=["depth"], **COLUMNS, target={"depth": depth}).certificates
    return found


def test_nothing_is_certified_where_the_table_shows_that_nothing_trains():
    """Depths 32 and 64 diverge at every rate: what is no smaller than them may, too."""
    table = runs(slope=0.0)
    table.loc[table.depth >= 32, "loss"] = math.inf
    assert certified(table, 16).issued
    for depth in (32, 64, 128):
        refused = certified(table, depth)
        assert [r.lack for r in refused.refusals] == [Lack.FAILED]
        assert "trains at depth 32" in refused.refusals[0].reason


def test_no_rate_is_certified_that_diverged_at_the_nearest_size():
    """The law of depths 4 to 16 has 2^-4 at depth 32, where all runs from 2^-5 on diverged."""
    table = runs((4, 8, 16, 32), slope=0.0)
    table.loc[(table.depth == 32) & (table.lr >= 2.0**-5), "loss"] = math.inf
    certificate = certified(table, 32)
    assert certificate.issued
    assert certificate.predicted.value < -5


def test_a_target_of_sizes_that_show_no_optimum_is_refused_with_the_reason():
    """Before, nothing was said of it."""
    table = runs(rates=(-3, 1))
    refused = certified(table[table.lr > 2.0**-3.5], 128)
    assert Lack.EDGE in [r.lack for r in refused.refusals]


def test_the_slopes_of_a_certificate_add_up_to_its_change():
    """No drift along either axis alone, and -0.15 per doubling of both: no transfer."""
    rows = []
    for (i, width), (j, depth) in product(enumerate((64, 128, 256, 512)), enumerate((4, 8, 16))):
        for k in np.arange(-11, 0):
            loss = 2 * math.exp(0.03 * (k + 5 + 0.15 * i * j) ** 2)
            rows.append((width, depth, 2.0**k, loss))
    table = pd.DataFrame(rows, columns=["width", "depth", "lr", "loss"])
    target = {"width": 1024, "depth": 32}
    report = depthmup.fit(table, axes=["width", "depth"], lr="lr", loss="loss", target=target)
    [found] = report.certificates
    assert found.predicted.value == approx(-5 - 0.15 * 4 * 3, abs=0.3)
    total = sum(s.estimate.value * {"width": 4, "depth": 3}[s.axis] for s in found.slopes)
    base = next(o for o in found.optima if o.size == found.base)
    assert total == approx(found.predicted.value - base.log2_lr.value, abs=0.1)
    assert found.verdict is not Verdict.TRANSFERS
