"""Do intervals of several values that were tuned together hold what they promise?

    python -m studies.recipes                 # 100 tables of each kind; half an hour
    python -m studies.recipes --tables 20 --kinds round ridge --values 2
    python -m studies.recipes --digits        # networks trained here; minutes
    python -m studies.recipes --search --tables 20   # searches in the same worlds; an hour
    python -m studies.recipes --against --tables 200 --values 2   # tuners; an hour; needs optuna
    python -m studies.recipes --networks      # searches on networks trained here; minutes

Each table is a random search of 40 runs (two values) or 70 (three) at each of five sizes, six
octaves of every value wide, read by ``depthmup.fit(..., lr=[...])``. Losses are valleys about a
joint optimum that drifts along each value by 0.2 octaves per doubling in the deviation, or not at
all, and scatters by 0.03 octaves; they rise as powers of 1.6 to 2.1 along random directions,
lopsided by up to 35%, and the lopsidedness grows with size. The noise of a run is 0.3%, 1% or 2%;
tables have one seed, or three whose levels differ by 1% and whose optima lie 0.03 octaves aside.

Kinds: *round*, curvatures within a factor of 4; *ridge*, one direction 10 to 100 times steeper than
the others, at any angle; *no effect*, the last value changes nothing; *edge*, the first value's
best lies at the lower edge of the runs, or beyond; *walls*, every run beyond a line in the first
two values diverges, 0.8 to 1.5 octaves from the optimum; *grid*, round, on a full grid of six
values each (two), or four (three), at any phase.

*optimum*, *combination*, *drift*: shares of 95% intervals that hold the truth, of every size's
values, of the steepest direction, and of every value's drift; *target*: of the 90% intervals two
doublings on. *false*: values that drift by more than the tolerance and were said to transfer.
*recipe false*: of recipes, where what is carried over costs more than 2%.

``--search`` lets ``depthmup.transfer`` search the same worlds, from values up to 1.5 octaves off,
with eight seeds whose levels differ by 1% and whose optima lie 0.03 octaves aside; and, of the same
kinds of valley, searches of the rate alone. *runs*: the median and the largest number; *of d = 1*:
the median over that of one value; *work*: of all runs, in runs of the largest size; *of the grid*:
the share of nine values each and three seeds.

``--against`` compares, in the same worlds and two doublings beyond the largest size, the excess
loss of the recipe that a search predicts with those of the best runs of Optuna's TPE and of random
search. These train the largest size alone, three octaves around the same start, as many runs as
cost what the search did, and carry their best run over. *largest*: the search's recipe of the
largest size, carried over as theirs. Optuna comes by ``pip install --target /tmp/optuna optuna``
and ``PYTHONPATH=/tmp/optuna``; a numpy that comes with it must go.

``--networks`` searches the recipe of the built-in networks on the digits at three sizes, predicts a
fourth, and then searches all four: rate and branch multiplier along depth, under Depth-muP, as in
Tensor Programs VI; rate and decay along width, with AdamW; and rate and batch along width, of
6400 examples in any batches.

``--digits`` trains networks of two hidden layers on the digits, 150 steps of AdamW, 30 random pairs
of rate and decay at each of five widths, by standard practice and by a plan of muP. The widest is
predicted from the others.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

import depthmup
from depthmup.posterior import slope_row
from depthmup.records import Estimate, Verdict
from depthmup.statistics import TOLERANCE
from depthmup.statistics.recipe import MARGIN

KINDS = ("round", "ridge", "no effect", "edge", "walls", "grid", "bent")
RUNS = {2: 40, 3: 70}
GRID = {2: 6, 3: 4}
NAMES = ("lr", "weight_decay", "clip")
WIDTHS = (32, 64, 128, 256, 512)
REACH = 3.0
FURTHER = 2


@dataclass(frozen=True, kw_only=True)
class World:
    """The truth of one table.

    Attributes:
        optimum: log2 values at every size, (sizes, values); beyond them the law is ``on``.
        directions: principal ones as rows.
        curvature, power, turn, trend: of the rise along each.
        live: values that have an effect.
        bend: of the steepest direction by the next one, per octave.
    """

    optimum: np.ndarray
    on: np.ndarray
    directions: np.ndarray
    curvature: np.ndarray
    power: np.ndarray
    turn: np.ndarray
    trend: np.ndarray
    live: np.ndarray
    bend: float

    def rise(self, size: int, away: np.ndarray) -> np.ndarray:
        """Log loss above the best, (points,)."""
        v = away @ self.directions.T
        if self.bend:
            v[:, 0] += self.bend * v[:, 1] ** 2 / 2
        lopsided = np.exp((self.turn + self.trend * size) * np.tanh(v))
        return (self.curvature / 2 * np.abs(v) ** self.power * lopsided).sum(1)


def world(rng: np.random.Generator, kind: str, values: int) -> World:
    """One truth of a kind."""
    s = np.arange(len(WIDTHS))
    drift = rng.choice([0.0, 1.0], size=values) * rng.normal(0, 0.2, values)
    start = rng.uniform(-1, 1, values)
    directions, _ = np.linalg.qr(rng.normal(size=(values, values)))
    curvature = 0.05 * 2 ** rng.uniform(0, 2, values)
    live = np.ones(values, bool)
    if kind in ("ridge", "bent"):
        curvature[1:] = curvature[0] / rng.choice([10.0, 30.0, 100.0])
    if kind == "no effect":
        directions, curvature[-1], live[-1] = np.eye(values), 0.0, False
    scatter = rng.normal(0, 0.03, (len(s), values))
    bend = rng.uniform(-0.3, 0.3) if kind == "bent" else 0.0
    return World(
        optimum=start + s[:, None] * drift + scatter,
        on=start + drift * (s[-1] + FURTHER),
        directions=directions,
        curvature=curvature,
        power=rng.uniform(1.6, 2.1, values),
        turn=rng.uniform(-0.3, 0.3, values),
        trend=rng.normal(0, 0.02, values),
        live=live,
        bend=bend,
    )


def table(rng: np.random.Generator, kind: str, truth: World) -> pd.DataFrame:
    """Runs of a random search."""
    values = truth.optimum.shape[1]
    noise, seeds = rng.choice([0.003, 0.01, 0.02]), int(rng.choice([1, 3]))
    own = rng.normal(0, 0.03, (seeds, values)) * (seeds > 1)
    middle = np.zeros(values)
    if kind == "edge":
        middle[0] = REACH + 0.2
    wall, phase = rng.uniform(0.8, 1.5), rng.uniform(-0.5, 0.5, values)
    frames = []
    for i, width in enumerate(WIDTHS):
        x = middle + rng.uniform(-REACH, REACH, (RUNS[values], values))
        if kind == "grid":
            steps = (np.arange(GRID[values]) + 0.5) / GRID[values] * 2 * REACH - REACH
            axes = np.meshgrid(*(phase[:, None] * (steps[1] - steps[0]) + steps))
            x = np.column_stack([axis.ravel() for axis in axes])
        seed = rng.integers(0, seeds, len(x))
        away = x - truth.optimum[i]
        level = 1 - 0.1 * i + rng.normal(0, 0.01, seeds)[seed] * (seeds > 1)
        y = level + truth.rise(i, away - own[seed]) + noise * rng.standard_normal(len(x))
        if kind == "walls":
            y = np.where(away[:, 0] + 0.2 * away[:, 1] > wall, np.inf, y)
        runs = {"width": width, "seed": seed, "loss": np.exp(y)}
        columns = {name: 2.0**column for name, column in zip(NAMES, x.T, strict=False)}
        frames.append(pd.DataFrame({**runs, **columns}))
    return pd.concat(frames, ignore_index=True)


def holds(estimates: Sequence[Estimate], truth: Sequence[float]) -> Iterator[bool]:
    for estimate, value in zip(estimates, truth, strict=True):
        yield bool(estimate.low <= value <= estimate.high)


@dataclass
class Score:
    """What tables of one kind show."""

    optimum: list[bool]
    combination: list[bool]
    drift: list[bool]
    target: list[bool]
    false: list[bool]
    recipe_false: list[bool]
    decided: list[bool]
    seconds: float = 0.0

    @staticmethod
    def none() -> "Score":
        return Score([], [], [], [], [], [], [])

    def add(self, kind: str, values: int, number: int) -> None:
        """One more table."""
        rng = np.random.default_rng([number, values, KINDS.index(kind)])
        truth = world(rng, kind, values)
        runs = table(rng, kind, truth)
        begun = time.perf_counter()
        report = depthmup.fit(
            runs,
            axes=["width"],
            lr=list(NAMES[:values]),
            loss="loss",
            seed="seed",
            target={"width": WIDTHS[-1] * 2**FURTHER},
        )
        self.seconds += time.perf_counter() - begun
        recipe = report.recipe()
        live, (along,) = truth.live, recipe.along
        row = slope_row(np.arange(float(len(WIDTHS))))
        drifts = row @ truth.optimum
        for i, best in enumerate(recipe.optima):
            told = [e for e, on in zip(best.log2, live, strict=True) if on]
            self.optimum += holds(told, truth.optimum[i][live])
            if recipe.exponents and live.all():
                known = float(np.dot(recipe.exponents, truth.optimum[i]))
                self.combination += holds([best.combination], [known])
        self.drift += holds(
            [d for d, on in zip(along.drifts, live, strict=True) if on], drifts[live]
        )
        self.target += holds(
            [e for e, on in zip(recipe.target.log2, live, strict=True) if on], truth.on[live]
        )
        for verdict, drift, on in zip(along.verdicts, drifts, live, strict=True):
            if on:
                self.decided.append(verdict is not Verdict.UNDECIDED)
            if on and abs(drift) > TOLERANCE:
                self.false.append(verdict is Verdict.TRANSFERS)
        last = len(WIDTHS) - 1
        cost = np.expm1(truth.rise(last, (truth.optimum[0] - truth.optimum[last])[None]))[0]
        if cost > MARGIN:
            self.recipe_false.append(report.verdict is Verdict.TRANSFERS)


def share(flags: Sequence[bool]) -> str:
    return f"{np.mean(flags):.1%}" if flags else "–"


def count(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"


def train(width: int, scheme: str, lr: float, decay: float, seed: int) -> float:
    """The test loss of one network."""
    import torch
    from torch import nn

    from depthmup.data import digits

    def make(width: int) -> nn.Module:
        layers = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        return nn.Sequential(*layers, nn.Linear(width, 10))

    data = digits(label_noise=0.0)
    inputs, labels = data.inputs.float(), data.labels
    torch.manual_seed(seed)
    model = make(width)
    groups = model.parameters()
    if scheme == "mup":
        plan = depthmup.plan(model, base=make(WIDTHS[0]), scheme="mup", example_inputs=inputs[:4])
        plan.initialize(model)
        groups = plan.param_groups(model, lr=lr, weight_decay=decay)
    optimizer = torch.optim.AdamW(groups, lr=lr, weight_decay=decay)
    generator = torch.Generator().manual_seed(seed)
    for batch in torch.randint(TRAINED, (STEPS, 64), generator=generator):
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(inputs[TRAINED:]), labels[TRAINED:]))


TRAINED, STEPS, PAIRS = 300, 150, 30
"""Examples, steps, and pairs of rate and decay at each width."""


def on_digits(scheme: str) -> None:
    """Prints the recipe of all widths, and the forecast for the widest from the others."""
    rng, rows = np.random.default_rng(0), []
    for width in WIDTHS:
        for _ in range(PAIRS):
            lr, decay = 2 ** rng.uniform(-11, -3), 2 ** rng.uniform(-5, 3)
            seed = int(rng.integers(3))
            loss = train(width, scheme, lr, decay, seed)
            rows.append(
                {"width": width, "lr": lr, "weight_decay": decay, "seed": seed, "loss": loss}
            )
    runs = pd.DataFrame(rows)
    columns = {"axes": ["width"], "lr": list(NAMES[:2]), "loss": "loss", "seed": "seed"}
    print(scheme, depthmup.fit(runs, **columns), sep="\n\n", end="\n\n", flush=True)
    smaller = runs[runs.width < WIDTHS[-1]]
    forecast = depthmup.fit(smaller, **columns, target={"width": WIDTHS[-1]})
    rows = forecast.to_pandas("optima").query("place == 'predicted'")
    print(rows[["value", "best", "best_low", "best_high"]].to_string(index=False), flush=True)


SEEDS = 8
OFF = 1.5


@dataclass
class Searched:
    """What searches of one kind show."""

    runs: list[int]
    optimum: list[bool]
    drift: list[bool]
    decided: list[bool]
    false: list[bool]
    recipe_false: list[bool]
    seconds: list[float]
    work: list[float]

    @staticmethod
    def none() -> "Searched":
        return Searched([], [], [], [], [], [], [], [])

    def add(self, kind: str, values: int, number: int) -> None:
        """One more world."""
        rng = np.random.default_rng([number, values, KINDS.index(kind), 1])
        truth = world(rng, kind, values)
        if values == 1:  # the law of one value has no other coordinate that turns with it
            truth = world(rng, "round", 1)
        begun = time.perf_counter()
        report = search(trained(rng, kind, truth, number))
        self.seconds.append(time.perf_counter() - begun)
        widths = report.to_pandas("runs")["width"]
        self.work.append(float(((widths / WIDTHS[-1]) ** 2.0).sum()))
        live = truth.live if values > 1 else np.ones(1, bool)
        if values == 1:
            found = report.finding()
            drifts, verdicts, told = [found.drift], [found.verdict], [o.size for o in found.optima]
            self.runs.append(len(report.records))
            bests = [[o.log2_lr] for o in found.optima]
        else:
            (along,) = report.recipe().along
            drifts, verdicts = along.drifts, along.verdicts
            told = [one.size for one in report.recipe().optima]
            self.runs.append(report.search.runs)
            bests = [one.log2 for one in report.recipe().optima]
        sizes = [WIDTHS.index(int(size["width"])) for size in told]
        for i, best in zip(sizes, bests, strict=True):
            known = [e for e, on in zip(best, live, strict=True) if on]
            self.optimum += holds(known, truth.optimum[i][live])
        true = slope_row(np.log2([WIDTHS[i] for i in sizes])) @ truth.optimum[sizes]
        self.drift += holds([d for d, on in zip(drifts, live, strict=True) if on], true[live])
        for verdict, drift, on in zip(verdicts, true, live, strict=True):
            if on and abs(drift) > TOLERANCE:
                self.false.append(verdict is Verdict.TRANSFERS)
        self.decided.append(report.verdict is not Verdict.UNDECIDED)
        last = sizes[-1]
        cost = np.expm1(truth.rise(last, (truth.optimum[0] - truth.optimum[last])[None]))[0]
        if values > 1 and cost > MARGIN:
            self.recipe_false.append(report.verdict is Verdict.TRANSFERS)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What trains in a world: losses of its runs, and where a person begins.

    Attributes:
        kind, truth, number: of the world.
        noise: of a run.
        level, own: of every seed: its level, and how far its optimum lies aside, (seeds, values).
        start: log2 values that a person has, (values,).
        wall: octaves from the optimum at which runs diverge, where they do.
    """

    kind: str
    truth: World
    number: int
    noise: float
    level: np.ndarray
    own: np.ndarray
    start: np.ndarray
    wall: float

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[: len(self.start)]

    def loss(self, i: int, x: np.ndarray, seed: int) -> float:
        """Of a run at the size i with log2 values x."""
        away = x - self.truth.optimum[i]
        if self.kind == "walls" and len(x) > 1 and away[0] + 0.2 * away[1] > self.wall:
            return float("inf")
        place = [round(1000 * k) % 2**32 for k in x]
        noise = np.random.default_rng([self.number, i, seed, *place]).normal(0, self.noise)
        rise = self.truth.rise(i, (away - self.own[seed])[None])[0]
        return float(np.exp(1 - 0.1 * i + self.level[seed] + rise + noise))


def trained(rng: np.random.Generator, kind: str, truth: World, number: int) -> Trained:
    """One draw of all that a world has beside its truth."""
    values = truth.optimum.shape[1]
    noise = float(rng.choice([0.003, 0.01, 0.02]))
    level, own = rng.normal(0, 0.01, SEEDS), rng.normal(0, 0.03, (SEEDS, values))
    start, wall = rng.uniform(-OFF, OFF, values), float(rng.uniform(0.8, 1.5))
    return Trained(
        kind=kind, truth=truth, number=number, noise=noise, level=level, own=own, start=start,
        wall=wall,
    )  # fmt: skip


def search(of: Trained, target: int | None = None):
    """One search to its end."""

    def train(trial: depthmup.Trial) -> list[float]:
        told = {"lr": trial.lr, "weight_decay": trial.weight_decay, **trial.settings}
        x = np.log2([told[name] for name in of.names])
        return [of.loss(WIDTHS.index(trial.size["width"]), x, trial.seed)]

    begun = {name: float(2.0**k) for name, k in zip(of.names, of.start, strict=True)}
    design = depthmup.Design(
        base={"width": WIDTHS[0], **begun}, tune=of.names, width=WIDTHS, steps=1, seeds=SEEDS
    )
    version = f"{of.number}"
    model = depthmup.Model(train=train, cost=lambda size: size["width"] ** 2.0, version=version)
    return depthmup.transfer(model, design, target={"width": target} if target else None)


def tuned_at_largest(of: Trained, runs: int, sampler: str) -> np.ndarray:
    """log2 values of the best run of a tuner at the largest size, within REACH of the start."""
    last, best = len(WIDTHS) - 1, (float("inf"), of.start)
    rng = np.random.default_rng([of.number, 2])
    low, high = of.start - REACH, of.start + REACH
    if sampler == "tpe":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=of.number))
    for number in range(runs):
        if sampler == "tpe":
            trial = study.ask()
            ends = zip(of.names, low, high, strict=True)
            x = np.array([trial.suggest_float(name, a, b) for name, a, b in ends])
        else:
            x = rng.uniform(low, high)
        loss = of.loss(last, x, number % SEEDS)
        if sampler == "tpe":
            study.tell(trial, loss)
        best = min(best, (loss, x), key=lambda one: one[0])
    return best[1]


def against(kinds: Sequence[str], values: int, worlds: int) -> None:
    """Prints the excess loss at the target of recipes, and of tuners for the same work."""
    target = WIDTHS[-1] * 2**FURTHER
    ways = ("recipe", "largest", "tpe", "random")
    every: dict[str, list[list[float]]] = {}
    for number in range(worlds):
        kind = kinds[number % len(kinds)]
        rng = np.random.default_rng([number, values, KINDS.index(kind), 3])
        truth = world(rng, kind, values)
        of = trained(rng, kind, truth, number)
        begun = time.process_time()
        report = search(of, target)
        seconds = time.process_time() - begun
        work = float((report.to_pandas("runs")["width"] ** 2.0).sum())
        affordable = int(work / WIDTHS[-1] ** 2)
        # A recipe that nothing is predicted for is carried over from the largest size.
        largest = [one.value for one in report.recipe().optima[-1].log2]
        told = report.recipe().target
        found = {
            "recipe": np.array([one.value for one in told.log2] if told else largest),
            "largest": np.array(largest),
            "tpe": tuned_at_largest(of, affordable, "tpe"),
            "random": tuned_at_largest(of, affordable, "random"),
        }
        last = len(WIDTHS) - 1 + FURTHER
        cost = [float(np.expm1(truth.rise(last, (found[w] - truth.on)[None]))[0]) for w in ways]
        row = [*cost, float(report.search.runs), float(affordable), seconds]
        for name in (kind, "all"):
            every.setdefault(name, []).append(row)
        print(number, kind, *(f"{cell:.5g}" for cell in row), flush=True)
    heads = ("values", "kind", "worlds", "runs", "of the largest", *ways, "of TPE", "of random")
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for kind, rows in every.items():
        middle = np.median(rows, axis=0)
        excess = [f"{cell:.2%}" for cell in middle[:4]]
        shares = [f"{middle[0] / middle[i]:.2f}" for i in (2, 3)]
        counts = [f"{cell:.0f}" for cell in middle[4:6]]
        print(f"| {' | '.join([str(values), kind, str(len(rows)), *counts, *excess, *shares])} |")


SEARCH_HEADS = (
    "values", "kind", "runs", "most", "of d = 1", "work", "of the grid", "decided", "optimum",
    "drift", "false", "recipe false", "seconds",
)  # fmt: skip


def search_line(values: int, kind: str, found: Searched, alone: float) -> str:
    median = float(np.median(found.runs))
    grid = 9**values * 3 * len(WIDTHS)
    cells = [
        str(values), kind, f"{median:.0f}", str(max(found.runs)), f"{median / alone:.1f}",
        f"{np.median(found.work):.1f}",
        f"{median / grid:.1%}", share(found.decided), share(found.optimum), share(found.drift),
        count(found.false), count(found.recipe_false), f"{np.median(found.seconds):.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def searches(kinds: Sequence[str], values: Sequence[int], tables: int) -> None:
    """Prints what searches take and say, beside those of one value."""
    print(f"| {' | '.join(SEARCH_HEADS)} |\n|{' --- |' * len(SEARCH_HEADS)}", flush=True)
    alone, every = Searched.none(), Searched.none()
    for number in range(tables):
        alone.add("round", 1, number)
    usual = float(np.median(alone.runs))
    print(search_line(1, "", alone, usual), flush=True)
    for count_ in values:
        for kind in kinds:
            found = Searched.none()
            for number in range(tables):
                found.add(kind, count_, number)
            print(search_line(count_, kind, found, usual), flush=True)
            for name, flags in vars(found).items():
                setattr(every, name, getattr(every, name) + flags)
    if len(values) == 1:
        print(search_line(values[0], "all", every, usual))


CASES = (
    ("depth", (4, 8, 16, 32), {"lr": 2e-3, "multiplier": 1.0}, {}, "adam"),
    ("width", (32, 64, 128, 256), {"lr": 2e-3, "weight_decay": 0.1}, {}, "adamw"),
    ("width", (32, 64, 128, 256), {"lr": 2e-3, "batch": 32}, {"tokens": 6400}, "adam"),
)
"""The axis, its sizes, where the values begin, what else is fixed, and the optimizer."""


def on_networks(cases: Sequence[tuple] = CASES) -> None:
    """Prints the forecast from three sizes, and what the fourth shows."""
    for axis, sizes, begun, fixed, optimizer in cases:
        base = {"width": 32, "depth": 4, axis: sizes[0], **fixed, **begun}
        fields = {"base": base, "tune": tuple(begun), "optimizers": optimizer}
        fields |= {} if fixed else {"steps": 200}
        with tempfile.TemporaryDirectory() as folder:
            # With a target every size is trained, whatever the smaller ones decide.
            for arm, target in ((sizes[:3], sizes[3]), (sizes, 2 * sizes[3])):
                design = depthmup.Design(**fields, schemes="depth-mup", **{axis: arm})
                report = depthmup.transfer(
                    depthmup.BuiltIn(), design, out=folder, target={axis: target}
                )
                print(f"{axis}, {' and '.join(begun)}, sizes {arm}", report, sep="\n\n")
                print(flush=True)


HEADS = (
    "values", "kind", "optimum", "combination", "drift", "target", "decided", "false",
    "recipe false", "seconds",
)  # fmt: skip


def line(values: int | str, kind: str, score: Score, tables: int) -> str:
    cells = [
        str(values), kind, share(score.optimum), share(score.combination), share(score.drift),
        share(score.target), share(score.decided), count(score.false), count(score.recipe_false),
        f"{score.seconds / tables:.2f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--values", nargs="+", type=int, default=(2, 3), choices=tuple(RUNS))
    parser.add_argument("--digits", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--against", action="store_true")
    parser.add_argument("--networks", action="store_true")
    asked = parser.parse_args()
    if asked.networks:
        on_networks()
        return
    if asked.against:
        for values in asked.values:
            against([kind for kind in asked.kinds if kind != "grid"], values, asked.tables)
        return
    if asked.search:
        searches([kind for kind in asked.kinds if kind != "grid"], asked.values, asked.tables)
        return
    if asked.digits:
        for scheme in ("sp", "mup"):
            on_digits(scheme)
        return
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}", flush=True)
    every = Score.none()
    for values in asked.values:
        for kind in asked.kinds:
            score = Score.none()
            for number in range(asked.tables):
                score.add(kind, values, number)
            print(line(values, kind, score, asked.tables), flush=True)
            for name, flags in vars(score).items():
                setattr(every, name, getattr(every, name) + flags)
    print(line("all", "", every, asked.tables * len(asked.kinds) * len(asked.values)))


if __name__ == "__main__":
    main()
