"""The benchmarks' command: it runs, its tables and charts hold what was measured."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import growth, imports
from benchmarks.__main__ import main

ROOT = Path(__file__).parent.parent

DRAWN = """
import json
from benchmarks import batches, drawings, engines, scaling

def rates(factor):
    return {size: [factor * 100.0, factor * 120.0, factor * 110.0] for size in engines.SIZES}

result = engines.Result(
    rates={"native": rates(6), engines.FUSED: rates(1), "sgemm": rates(2), "stream": rates(1)},
    quiet=0.98, cores=2,
)
costs = scaling.Result(
    depth={(64, 4): 4.2, (64, 8): 4.3}, members={("native", m): 4.5 for m in scaling.MEMBERS},
    cores={(64, 8): (100.0, 190.0)}, memory={("native", (64, 64)): 6.0 * 2**20}, processes=2,
)
shares = batches.Shares(
    engine={(64, 8, 16): [30.0, 40.0, 50.0], (64, 8, 512): [60.0, 80.0, 70.0]},
    own={(64, 8, 16): [60.0, 50.0, 50.0], (64, 8, 512): [80.0, 80.0, 80.0]},
    best=[90.0, 100.0],
)
print(json.dumps({
    "batches": batches.table(shares),
    "engines": engines.table(result),
    "scaling": scaling.table(costs),
    "charts": [drawings.of_engines(result, "Some CPU").to_dict(),
               drawings.of_scaling(costs, "Some CPU").to_dict()],
    "rates": [engines.rate([engines.Timing(units=10, wall=2, cpu=1)] * 2, clock, 2)
              for clock in ("wall", "cpu")],
    "every core": engines.rate([engines.Timing(units=10, wall=2, cpu=4)], "cpu", 2),
}))
"""


PREDICTED = """
import json, math
import numpy as np
from studies import predict
from depthmup.records import Estimate

def at(value):
    return Estimate(value=value, low=value - 0.1, high=value + 0.1)

def row(predicted, measured):
    return predict.Row(title="net", way="rule", sizes=(8, 16, 32), predicted=predicted,
                       measured=None if measured is None else [at(v) for v in measured])

rates = [-2.0, -1.5, -1.0, -0.5, 0.0]
losses = np.exp([[0.5 * (r + 1.2) ** 2 + 0.01 * s for s in range(3)] for r in rates])
rows = [row([0, -0.5, -1.0], [0, -0.4, -0.6]), row([0, 0.02, 0.1], [0, 0.3, 0.6])]
found = predict.optimum(rates, losses)
few = predict.few(scheme="depth-mup", activation="relu", depth=8, seed=0, rates=[-3.0, 20.0])
print(json.dumps({
    "rows": [str(one) for one in rows], "missing": str(row([0.0], None)),
    "verdict": predict.verdict([row.drifts for row in rows]), "drifts": rows[0].drifts,
    "optimum": [found.value, found.high - found.low],
    "difference": predict.difference(at(1.0), at(0.5)).value,
    "few": [[value if math.isfinite(value) else None for value in of] for of in few.values()],
}))
"""


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, **options
    )


@pytest.fixture
def said(capsys):
    """What code prints as JSON."""

    def of(code):
        exec(compile(code, "<code of a test>", "exec"), {"__name__": "code"})
        return json.loads(capsys.readouterr().out)

    return of


def test_tables_and_charts(said):
    found = said(DRAWN)
    table = "\n".join(found["engines"])
    assert "| native | 660 ±9% |" in table
    assert "| **native / plain loop, fused Adam** | 6.0 (6 wanted) | 6.0 (5 wanted) |" in table
    # 660 steps of 64^2 x 8 parameters at 384 operations each, of 240 GFLOP/s
    assert (
        f"| **native, share of sgemm** | {660 * 384 * 64**2 * 8 / 240e9:.0%} (75% wanted)" in table
    )
    assert "98% of a core" in table
    assert found["batches"][0] == "| native engine, batch | 16 | 512 |"
    # Of the best round; the forecast of 0.88 x 6 b / (6 b + 30).
    assert "| n64 L8: share of sgemm (forecast) | 40% (67%) | 70% (87%) |" in found["batches"]
    # The median of the rounds' own shares: 50%, 80%, 100%.
    assert "share of its own products | 80% | 88% |" in "\n".join(found["batches"])
    assert "| n64 L8 | 100 | 190 | 95% |" in found["scaling"]
    assert "| native | 6.0 |" in found["scaling"]
    for chart in found["charts"]:
        assert "Some CPU" in json.dumps(chart["title"])
    assert found["rates"] == [10.0, 20.0]
    assert found["every core"] == 5.0  # 4 s of two cores are 2 s of the machine


def test_predictions_against_measurements(said):
    found = said(PREDICTED)
    assert "| 0 −0.50 −1.00 | 0±0.10 −0.40±0.10 −0.60±0.10 |" in found["rows"][0]
    assert "not trained yet" in found["missing"]
    assert found["drifts"] == pytest.approx([-0.5, -0.3])
    # errors -0.2 and -0.25 of drifts -0.3 and 0.3; the second is predicted to stay and moves
    assert "error 0.23 octaves" in found["verdict"]
    assert "0.30 if nothing moved" in found["verdict"]
    assert "right in 1 of 2" in found["verdict"]
    # No seed scatters: what is left is what one curve leaves open of its valley's shape.
    value, half = found["optimum"]
    assert value == pytest.approx(-1.2, abs=0.02)
    assert 0.02 < half < 1.645 * 0.7
    assert found["difference"] == 0.5
    (three, exploded), (ten, _) = found["few"]
    assert ten < three < 0.45  # half the mean square of the labels is 0.45
    assert exploded is None or exploded > 1


FORECAST = """
import json
import numpy as np
import pandas as pd
from studies import forecasts

def ladder(jump):
    runs = pd.DataFrame(
        [(depth, 2.0**k, seed, 2 + 0.1 * (k + 4 + 0.2 * np.log2(depth) + 0.02 * seed
          - (depth == 64) * jump) ** 2) for depth in (4, 8, 16, 32, 64) for seed in range(3)
         for k in np.arange(-9, 0.5, 0.5)], columns=["depth", "lr", "seed", "loss"])
    return forecasts.Table(source="ladder", runs=runs, axes={"depth": "depth"}, lr="lr",
                           loss="loss", seed="seed")

asked = forecasts.drawn([ladder(0)])
(next_one,) = [one for one in forecasts.questions(ladder(2)) if one.cut == 32]
held, missed = [forecasts.made(one) for one in (asked[0], next_one)]
none = forecasts.Made(asked=next_one, certificate=None, score=None)
print(json.dumps({
    "asked": sorted((one.cut, one.target["depth"]) for one in asked),
    "depths": sorted(set(map(int, next_one.small["depth"]))),
    "fates": [held.score.value, missed.score.value], "errors": missed.errors,
    "row": forecasts.row("1 doubling", [held, missed, none]),
}))
"""


def test_forecasts_of_the_large_part_of_a_table_from_its_small_part(said):
    found = said(FORECAST)
    assert found["asked"] == [[16, 32], [16, 64], [32, 64]]
    assert found["depths"] == [4, 8, 16, 32]
    assert found["fates"] == ["held", "missed"]
    # The largest depth's rates jump by two octaves upwards, against -0.2 per doubling.
    ours, nearest = found["errors"]
    assert ours == pytest.approx(-2.0, abs=0.1)
    assert nearest == pytest.approx(-1.8, abs=0.1)
    assert found["row"].startswith("| 1 doubling | 2 | 1 | 1 | 1 | 0 |")


DECODERS = """
import json, math, torch
from studies import decoder_sharpness as of
from depthmup.records import Trial
from depthmup.training import stream
from depthmup.training.trial import planned, seeded
curves = list(of.curves())
base = of.trials(curves[2])[0][0]
values = of.look(**of.task(base, "with RMSNorm").settings)
trial, own = Trial.from_json(base.to_json()), of.MODELS["with RMSNorm"]
with seeded(trial.seed):
    model, _ = planned(trial, own)
batch = of.resolved(own).batch(stream(trial.seed, "batches"))
g = of.gradient(model, *batch)
rates = {name: 1 / (t.abs() + 1e-8) for name, t in g.items()}
step, names = of.best_step(model, batch, rates), dict(model.named_parameters())
def loss(rate):
    with torch.no_grad():
        moved = {n: p - rate * rates[n] * g[n] for n, p in names.items()}
        outputs = torch.func.functional_call(model, moved, (batch[0],))
    return float(of.loss_of(outputs, batch[1]))
small = 0.01 * step
print(json.dumps({
    "curves": [[c.title, c.axis, c.sizes, c.octaves] for c in curves],
    "values": values,
    "slope": (loss(-small) - loss(small)) / (2 * small),
    "promised": sum(float((rates[n] * g[n] ** 2).sum()) for n in g),
}))
"""


def test_sharpness_of_decoders_is_set_beside_measured_optima(said):
    found = said(DECODERS)
    assert len(found["curves"]) == 8
    title, axis, sizes, octaves = found["curves"][0]
    assert (title, axis, sizes) == ("SP = muP, RMSNorm", "depth", [2, 4, 8, 16])
    assert octaves[0] == 0
    assert octaves[-1] < -0.5
    assert found["curves"][3][2] == [2, 4]  # without norms SP fails beyond
    assert all(0 < found["values"][way] < math.inf for way in ("initial", "warm", "step"))
    # In Adam's metric, and a thousand times that of the plain loss.
    assert found["values"]["initial"] > 50
    assert found["slope"] == pytest.approx(found["promised"], rel=0.05)


def test_the_command_runs_and_logs_nothing_when_quick(monkeypatch, capsys):
    log = ROOT / "benchmarks" / "log.md"
    before = log.read_text()
    monkeypatch.setattr("depthmup.records.cores", lambda: 1)  # each loads PyTorch
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "engines"])
    assert main() == 0
    out = capsys.readouterr().out
    assert "native, share of sgemm" in out or "stacked torch" in out
    assert log.read_text() == before


def test_imports_are_timed_in_processes_of_their_own(monkeypatch):
    asked = {"nothing": ("-c", ""), "help": ("-m", "depthmup", "--help")}
    assert imports.COMMANDS["depthmup --help"] == asked["help"]
    monkeypatch.setattr(imports, "COMMANDS", asked)
    head, rule, nothing, shown = imports.table(rounds=1)
    assert (head, rule) == ("| | seconds | median |", "| --- | --- | --- |")
    assert [line.split("|")[1].strip() for line in (nothing, shown)] == ["nothing", "help"]
    assert 0 < float(nothing.split("|")[2]) < float(shown.split("|")[2])


def test_parts_that_do_not_exist_are_refused():
    done = run("-m", "benchmarks", "speed")
    assert done.returncode == 2
    assert (
        "engines, batches, scaling, limits, planning, command, imports, tables; got speed"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("case", "size"),
    [("driver", 20), ("sweep", 20), ("own", 2), ("layers", 3), ("limit", 2), ("report", 50)],
)
def test_what_grows_is_there_to_be_measured(case, size, tmp_path):
    make, unit, sizes = growth.CASES[case]
    assert unit
    assert list(sizes) == sorted(sizes)
    make(size, tmp_path)()


def test_growth_is_a_power_of_the_size(monkeypatch):
    monkeypatch.setattr(growth, "measured", lambda case, size, tree: (size**1.5, 100, 10))
    lines = growth.table(["limit"], trees=[ROOT, ROOT], rounds=2)
    assert [line.split(" | ")[-2:] for line in lines[3:]] == [["1.50", "1.50 |"]] * 2
