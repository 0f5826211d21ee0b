"""Synthetic studies."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from depthmup.records import (
    UNKNOWN,
    Curve,
    Estimate,
    Optimum,
    Place,
    Point,
    Study,
    Transfer,
    Verdict,
    Window,
)

DEPTHS = (8, 16, 32, 64, 128)
RATES = tuple(float(k) for k in range(-7, 1))
# name, title, alpha, gamma, optimum per depth, best loss per depth; None: nothing trains.
SCHEMES = (
    ("depth-mup", "Depth-muP", "1/2", "1/2", (-2.91, -3.03, -3.06, -3.01, -3.01),
     (.291, .199, .170, .150, .143)),
    ("block-multiplier", "(1/2, 0)", "1/2", "0", (-2.91, -3.48, -4.06, -4.64, -5.01),
     (.291, .205, .178, .160, .155)),
    ("sp", "SP", "0", "0", (-2.91, -4.88, None, None, None), (.291, .353, None, None, None)),
    ("ode", "ODE", "1", "0", (-2.91, -2.79, -2.33, -2.16, -2.16), (.291, .368, .460, .532, .598)),
)  # fmt: skip


def study_like_the_real_one() -> Study:
    """Four schemes, depths 8..128, eight learning rates, five seeds, five windows."""
    rng = random.Random(0)
    windows = []
    for index in range(5):
        early = 1.9 ** (4 - index)  # the loss falls as training goes on
        curves, transfers = [], []
        for name, title, alpha, gamma, bests, losses in SCHEMES:
            optima = []
            for depth, best, floor in zip(DEPTHS, bests, losses, strict=True):
                shift = 0.35 * (4 - index)
                points = []
                for rate in RATES:
                    seeds, off = [], math.inf if best is None else rate - best - shift
                    for _ in range(5):
                        fault = rng.gauss(0, 0.03)
                        wall = 2.4 if name != "sp" else 1.2
                        if off + 3 * fault > wall:
                            continue
                        steep = 0.55 if off > 0 else 0.42
                        loss = floor * early * math.exp(steep * off * off / (1 + 0.25 * abs(off)))
                        seeds.append(min(loss, 2.31) * math.exp(fault))
                    points.append(_point(rate, seeds))
                curves.append(Curve(scheme=name, size={"depth": depth}, points=tuple(points)))
                if best is None:
                    optima.append(
                        Optimum(
                            size={"depth": depth}, log2_lr=UNKNOWN, loss=UNKNOWN, place=Place.FAILED
                        )
                    )
                    continue
                at, spread = best + shift + rng.gauss(0, 0.02), rng.uniform(0.05, 0.12)
                loss = min(floor * early, 2.2)
                optima.append(
                    Optimum(
                        size={"depth": depth},
                        log2_lr=Estimate(value=at, low=at - spread, high=at + spread),
                        loss=Estimate(value=loss, low=0.97 * loss, high=1.03 * loss),
                        place=Place.INTERIOR,
                    )
                )
            transfers.append(_transfer(name, title, alpha, gamma, tuple(optima), index))
        windows.append(
            Window(
                start=60 * index,
                stop=60 * (index + 1),
                curves=tuple(curves),
                transfers=tuple(transfers),
            )
        )
    return Study(
        title="Learning-rate transfer across depth: residual MLP on handwritten digits",
        windows=tuple(windows),
        tolerance=0.15,
        config={
            "command": "depthmup transfer --preset small --seeds 5 --out runs/demo",
            "schemes": [s[0] for s in SCHEMES],
            "depths": list(DEPTHS),
            "base_depth": 8,
            "log2_lrs": list(RATES),
            "seeds": 5,
            "width": 64,
            "steps": 300,
            "batch_size": 64,
            "activation": "abs",
            "optimizer": {"name": "adam", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
            "data": {"name": "digits", "label_noise": 0.3, "label_seed": 0},
        },
        environment={
            "depthmup": "0.1.0",
            "python": "3.11.2",
            "torch": "2.13.0+cpu",
            "hardware": "2 cores of an AMD EPYC 9R14",
            "seconds": 151.3,
        },
    )


def _point(rate: float, seeds: list[float]) -> Point:
    if not seeds:
        return Point(log2_lr=rate, loss=UNKNOWN, seeds=5, diverged=5)
    mean = math.fsum(seeds) / len(seeds)
    half = 2 * max(abs(s - mean) for s in seeds) / math.sqrt(len(seeds))
    loss = Estimate(value=mean, low=mean - half, high=mean + half)
    return Point(log2_lr=rate, loss=loss, seeds=5, diverged=5 - len(seeds))


def _transfer(name, title, alpha, gamma, optima, index) -> Transfer:
    drift = {"depth-mup": -0.02, "block-multiplier": -0.54, "sp": -1.97, "ode": 0.21}[name]
    verdict = Verdict.TRANSFERS if name == "depth-mup" else Verdict.DRIFTS
    why = {
        "depth-mup": "The whole interval lies within ±0.15 octaves per doubling.",
        "block-multiplier": "The whole interval lies below −0.15 octaves per doubling.",
        "sp": "From depth 32 no learning rate trains, and between 8 and 16 the optimum falls.",
        "ode": "The whole interval lies above 0.15 octaves per doubling.",
    }[name]
    regret = Estimate(value=0.004, low=0.001, high=0.007)
    if name == "sp":
        regret = Estimate(value=math.inf, low=math.nan, high=math.nan)
    elif name != "depth-mup":
        regret = Estimate(value=0.21, low=0.17, high=0.26)
    half = 0.03 + 0.02 * (4 - index)
    return Transfer(
        scheme=name,
        title=title,
        alpha=alpha,
        gamma=gamma,
        optima=optima,
        drift=Estimate(
            value=drift, low=drift - half, high=drift + half, unit="octaves per doubling"
        ),
        regret=regret,
        verdict=verdict if index else Verdict.UNDECIDED,
        why=why,
    )


HOSTILE = "</script><img src=x onerror=alert(1)>\u2028[bold]{{ 7*7 }}"


def study_of_odd_cases() -> Study:
    """Edges, failures, single seeds, NaN and infinity everywhere, and hostile text."""
    nan = math.nan

    def lone(value: float) -> Estimate:
        return Estimate(value=value, low=nan, high=nan)

    def curve(scheme: str, depth: int, losses: tuple[float, ...]) -> Curve:
        return Curve(
            scheme=scheme,
            size={"depth": depth},
            points=tuple(
                Point(log2_lr=-3.0 + i, loss=lone(loss), seeds=1, diverged=int(math.isnan(loss)))
                for i, loss in enumerate(losses)
            ),
        )

    def optimum(depth: int, rate: float, loss: float, place: Place) -> Optimum:
        return Optimum(size={"depth": depth}, log2_lr=lone(rate), loss=lone(loss), place=place)

    def transfer(scheme: str, optima: tuple[Optimum, ...], verdict: Verdict) -> Transfer:
        return Transfer(
            scheme=scheme,
            title=scheme,
            alpha=HOSTILE,
            gamma="0",
            optima=optima,
            drift=UNKNOWN if verdict is Verdict.UNDECIDED else lone(-0.25),
            regret=Estimate(value=math.inf, low=nan, high=math.inf),
            verdict=verdict,
            why=HOSTILE,
        )

    window = Window(
        start=0,
        stop=10,
        curves=(
            curve(HOSTILE, 2, (0.5, 0.4, 0.3)),
            curve(HOSTILE, 4, (nan, nan, nan)),
            curve("edges", 2, (0.2, 0.4, 2000.0)),
            curve("edges", 4, (0.9, 0.7, nan)),
        ),
        transfers=(
            transfer(
                HOSTILE,
                (
                    optimum(2, -1.0, 0.3, Place.HIGH_EDGE),
                    Optimum(size={"depth": 4}, log2_lr=UNKNOWN, loss=UNKNOWN, place=Place.FAILED),
                ),
                Verdict.UNDECIDED,
            ),
            transfer(
                "edges",
                (optimum(2, -3.0, 0.2, Place.LOW_EDGE), optimum(4, -2.0, 0.7, Place.INTERIOR)),
                Verdict.DRIFTS,
            ),
        ),
    )
    return Study(
        title=HOSTILE,
        windows=(window,),
        tolerance=0.15,
        config={"name": HOSTILE, HOSTILE: nan, "command": ["depthmup", HOSTILE]},
        environment={"memory": math.inf, "host": HOSTILE, "path": Path("/tmp/x")},
    )


@pytest.fixture(scope="session")
def study() -> Study:
    return study_like_the_real_one()


@pytest.fixture(scope="session")
def odd_study() -> Study:
    return study_of_odd_cases()


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture
def sliced_study(study) -> Study:
    """The first scheme at two widths, each a slice along depth; twice the rates at the wider."""

    def at(width, measured):
        return replace(measured, size={**measured.size, "width": width})

    window, (first, *others) = study.headline, study.headline.transfers
    narrow = [at(32, o) for o in first.optima]
    wide = [
        at(64, replace(o, log2_lr=replace(o.log2_lr, value=o.log2_lr.value + 1)))
        for o in first.optima
    ]
    count = len(narrow)
    slices = (tuple(range(count)), tuple(range(count, 2 * count)))
    both = replace(first, optima=(*narrow, *wide), slices=slices)
    others = [replace(t, optima=tuple(at(64, o) for o in t.optima)) for t in others]
    curves = [at(64, c) for c in window.curves]
    curves += [at(32, c) for c in window.curves if c.scheme == first.scheme]
    window = replace(window, transfers=(both, *others), curves=tuple(curves))
    return replace(study, windows=(window,))
