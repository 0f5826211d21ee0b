"""What golden files are made from: small sweeps, kept as stores, and small tables of runs.

    python -m tests.golden.inputs

makes the files in ``stores`` and ``tables`` anew. They are inputs, not golden files: only a
search whose statistics ask for other runs needs its store made again. Losses are trained by the
built-in networks, or follow ``law``, whose optima and noise are known; the tests train nothing.
"""

import csv
import lzma
import math
import random
import tempfile
from pathlib import Path

import depthmup

HERE = Path(__file__).parent
STORES, TABLES = HERE / "stores", HERE / "tables"
OCTAVES = tuple(2.0**k for k in range(-11, -3))


def law(trial):
    """The losses of a run: a valley whose bottom moves, noise by seed, and divergence above it."""
    deeper = math.log2(trial.ratio("depth")) if "depth" in trial.size else 0.0
    wider = math.log2(trial.ratio("width")) if "width" in trial.size else 0.0
    batches = math.log2(trial.ratio("batch")) if "batch" in trial.size else 0.0
    drift = {"sp": -0.5, "mup": -0.25}.get(trial.scheme, 0.02)
    best = -7 + drift * deeper + (0.3 * drift * wider) + 0.5 * batches
    best += 3.0 if trial.optimizer == "sgd" else 0.0
    away = math.log2(trial.lr) - best
    if trial.weight_decay:
        away += 0.5 * (math.log2(trial.weight_decay) + 4 - 0.4 * deeper)
    noise = random.Random(f"{sorted(trial.size.items())} {trial.scheme} {trial.seed} {trial.lr}")
    common = random.Random(f"{sorted(trial.size.items())} {trial.seed}").gauss(0, 0.01)
    if away > 3.4 + common:
        return [2.3] * (trial.steps // 2) + [math.nan] * (trial.steps - trial.steps // 2)
    last = 1.6 - 0.05 * deeper - 0.04 * wider + 0.05 * away**2 + 0.004 * away**3
    last += common + noise.gauss(0, 0.004)
    return [last + (2.3 - last) * 0.8**t for t in range(trial.steps)]


LAW = depthmup.Model(train=law, version="1")
SMALL = depthmup.BuiltIn(batch_size=16)


def sweeps():
    """By name: model, design, and what else ``depthmup.transfer`` is given."""
    trained = {"steps": 60, "seeds": 3}
    short = {"steps": 10, "window": 2}
    flat, plane = {"width": 16, "depth": 4}, {"width": 64, "depth": 4}
    rates = [2.0**k for k in (-9, -8, -7, -6, -5, -4, -2, 1)]
    return {
        "grid": (
            SMALL,
            depthmup.Design(
                base=flat, depth=(4, 8, 16, 32), schemes=("depth-mup", "sp"), lrs=rates, **trained
            ),
            {},
        ),
        "search": (
            SMALL,
            depthmup.Design(base=flat, depth=(4, 8, 16), steps=60, lrs=depthmup.Auto(runs=120)),
            {},
        ),
        "two axes": (
            SMALL,
            depthmup.Design(
                base=flat, width=(16, 32, 64), depth=(4, 8, 16), schemes="depth-mup",
                lrs=rates[:6], **trained,
            ),
            {"target": {"width": 128, "depth": 64}},
        ),
        "failures": (
            LAW,
            depthmup.Design(
                base=plane, depth=(4, 8, 16, 512), schemes=("sp", "mup", "depth-mup"),
                lrs=OCTAVES, seeds=2, **short,
            ),
            {},
        ),
        "edges": (
            LAW,
            depthmup.Design(
                base=plane, depth=(4, 8, 16, 32), schemes=("sp", "depth-mup"), lrs=OCTAVES[:5],
                seeds=1, **short,
            ),
            {},
        ),
        "decay": (
            LAW,
            depthmup.Design(
                base=plane, depth=(4, 8, 16, 32), tune="weight_decay", lrs=2.0**-7,
                values=[2.0**k for k in range(-8, 0)], schemes="depth-mup", seeds=3, **short,
            ),
            {},
        ),
        "batch": (
            LAW,
            depthmup.Design(
                base={"width": 64, "batch": 32}, batch=(32, 64, 128, 256), width=(64, 128),
                run=("none", "sde"), schemes="mup", seeds=4, lrs="auto", **short,
            ),
            {},
        ),
        "target": (
            LAW,
            depthmup.Design(
                base=plane, depth=(4, 8, 16, 32), optimizers=("adamw", "sgd"),
                schemes="depth-mup", seeds=6, **short,
                lrs=depthmup.Auto(start={"adamw": 0.003, "sgd": 0.02}, runs=200),
            ),
            {"target": {"depth": 128}, "tolerance": 0.1},
        ),
        "drifting target": (
            LAW,
            depthmup.Design(
                base=plane, depth=(4, 8, 16, 32), width=(64, 128, 256),
                schemes=("sp", "depth-mup"), lrs=OCTAVES, seeds=3, **short,
            ),
            {"target": {"depth": 64, "width": 512}},
        ),
    }  # fmt: skip


def write_stores():
    STORES.mkdir(exist_ok=True)
    for name, (model, design, options) in sweeps().items():
        with tempfile.TemporaryDirectory() as folder:
            depthmup.transfer(model, design, out=folder, **options)
            raw = (Path(folder) / "results.sqlite").read_bytes()
        (STORES / f"{name}.sqlite.xz").write_bytes(lzma.compress(raw, preset=9))
        print(name, len(raw))


def _loss(rng, away, size, scatter=0.006):
    if away > 3.3:
        return "nan" if rng.random() < 0.5 else "inf"
    return f"{2 - 0.06 * size + 0.05 * away**2 + 0.005 * away**3 + rng.gauss(0, scatter):.5f}"


def rows_of(name):
    """A table's rows, the header first."""
    rng = random.Random(name)
    if name == "axes":
        yield "layers", "hidden", "bs", "lr", "seed", "loss"
        sizes = [(d, 128, 32) for d in (4, 8, 16, 32)]
        sizes += [(4, w, 32) for w in (256, 512)] + [(4, 128, b) for b in (64, 128)]
        for layers, hidden, batch in sizes:
            best = -8 - 0.5 * math.log2(layers / 4) - 0.9 * math.log2(hidden / 128)
            best += 0.5 * math.log2(batch / 32)
            for k in range(-13, -4):
                for seed in range(2):
                    away = k - best
                    yield layers, hidden, batch, 2.0**k, seed, _loss(rng, away, layers / 32)
    if name == "groups":
        yield "optimizer", "sched", "depth", "lr", "seed", "val"
        for optimizer, slope in (("adamw", 0.0), ("muon", -0.3), ("sgd", -1.0)):
            for depth in (2, 4, 8, 16, 32):
                for k in range(-12, -3):
                    for seed in range(3):
                        away = k + 8 - slope * math.log2(depth / 2)
                        yield optimizer, "cosine", depth, 2.0**k, seed, _loss(rng, away, depth / 32)
        for k in range(-12, -3):
            yield "lion", "linear", 2, 2.0**k, 0, _loss(rng, k + 8, 0)
    if name == "one seed":
        yield "depth", "lr", "loss"
        for depth in (3, 6, 12, 24, 48, 96):
            for k in range(-22, -8):
                yield depth, 2.0 ** (k / 2), _loss(rng, k / 2 + 7.6, depth / 96, 0.003)
    if name == "edges":
        yield "width", "lr", "loss", "steps"
        for width in (64, 128, 256, 512, 1024):
            for k in range(-11, -5):
                away = k + 7 + 1.2 * math.log2(width / 64)
                yield width, 2.0**k, _loss(rng, away, 0), 1000
    if name == "sparse":
        yield "parameters", "tokens", "lr", "loss"
        for i in range(9):
            for j in range(3):
                best = -6 - 0.35 * i - 0.3 * j
                for k in rng.sample(range(-4, 3), 3):
                    lr = 2.0 ** (round(best) + k)
                    away = math.log2(lr) - best
                    yield 10**6 * 2**i, 10**8 * 4**j, lr, _loss(rng, away, i / 3)
    if name == "defects":
        yield "depth", "lr", "seed", "steps", "loss"
        for depth in (4, 8, 16, 32):
            for k in range(-11, -3):
                for seed in range(2):
                    short = rng.random() < 0.05
                    loss = _loss(rng, k + 7.3, depth / 32)
                    steps = 310 if short else 1000
                    yield depth, 2.0**k, seed, steps, loss
                    if rng.random() < 0.06:
                        yield depth, 2.0**k, seed, steps, loss
        yield 8, -0.01, 0, 1000, 1.9
        yield 8, 2.0**-7, 5, 1000, -4.0
        yield 16, 2.0**-7, 5, 1000, 0.0001
    if name == "decay":
        yield "depth", "wd", "seed", "loss"
        for depth in (4, 8, 16, 32):
            for k in range(-9, 1):
                for seed in range(3):
                    yield depth, 2.0**k, seed, _loss(rng, k + 4 - 0.5 * math.log2(depth), 0)


TABLE_NAMES = ("axes", "groups", "one seed", "edges", "sparse", "defects", "decay")


def write_tables():
    TABLES.mkdir(exist_ok=True)
    for name in TABLE_NAMES:
        with (TABLES / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows_of(name))


if __name__ == "__main__":
    write_tables()
    write_stores()
