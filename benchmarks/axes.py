"""Rules of the run, measured: the best learning rate as batch and duration change.

    python -m benchmarks.axes train STORE    # what the store does not hold yet
    python -m benchmarks.axes STORE          # the tables of docs/axes.md
    python -m benchmarks.axes search FOLDER  # the rest of them: Muon under the other rules

Residual networks of width 32 and depth 4 on the digits, and decoders of width 32 and two layers on
bytes of Python's standard library. Batches over a factor of 32, durations over a factor of 16.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from depthmup import Auto, Design, Execution, transfer
from depthmup.model import Model
from depthmup.paper.decoders import normed, python_text
from depthmup.records import Estimate, Place, Transfer, environment
from depthmup.rules import NO_RULE, RUN_RULES, Ratios, RunRule
from depthmup.sweep import (
    BuiltIn,
    Custom,
    InProcess,
    Progress,
    Store,
    Sweep,
    run,
    studies,
    together,
    training,
)

MEMBERS = 15
CONTEXT = 16
TRAINED = ("none", "sde", "sqrt-batch", "power-lines", "decay-time", "beta2-half-life")
"""Rules that move more than the learning rate. Of the others the runs are those of no rule at other
learning rates, so that their drift is that of no rule less their exponent."""


def bytes_of_python(generator: Any, batch: int) -> Any:
    """Windows of 16 bytes."""
    return python_text().batch(generator, batch, CONTEXT)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question asked of one network under one optimizer, under several rules."""

    network: str
    optimizer: str
    title: str
    axis: str
    sweep: Sweep


def decoder() -> Model:
    version = f"axes 1, {python_text().digest[:16]}"
    return Model(normed, batch=bytes_of_python, version=version)


def residual(title: str, axis: str, rules: tuple[str, ...] = TRAINED, **asked: Any) -> Question:
    """Of the built-in network: a constant learning rate, weight decay 0.5."""
    design = Design(
        lrs=[2.0 ** (k / 2) for k in range(-25, -5)], schemes="depth-mup", optimizers="adamw",
        weight_decays=0.5, seeds=5, run=rules, **asked,
    )  # fmt: skip
    return Question(
        network="residual network", optimizer="adamw", title=title, axis=axis,
        sweep=Sweep(model=BuiltIn(), design=design),
    )  # fmt: skip


def decoding(
    title: str,
    axis: str,
    rules: tuple[str, ...],
    optimizer: str = "adamw",
    *,
    least: int = -6,
    **asked: Any,
) -> Question:
    """Of the decoder: warmed up, then linearly to zero; weight decay 0.5."""
    model, centre = decoder(), {"adamw": -5.5, "muon": -3.5}[optimizer]
    design = Design(
        lrs=[2.0 ** (centre + k / 2) for k in range(least, 6)], schemes="completep", seeds=3,
        optimizers=optimizer, weight_decays=0.5, run=rules,
        settings={"schedule": "linear", "warmup": 0.1}, **asked,
    )  # fmt: skip
    return Question(
        network="decoder", optimizer=optimizer, title=title, axis=axis,
        sweep=Sweep(model=Custom(name=model.name, code=model.code), design=design),
    )  # fmt: skip


SMALL = {"width": 32, "depth": 4, "batch": 64}
TEXT = {"width": 32, "depth": 2, "batch": 16}
DURATIONS = (64, 256, 1024)


def questions() -> Iterator[Question]:
    batches, sequences = (16, 32, 64, 128, 256, 512), (4, 8, 16, 32, 64, 128)
    lengths = (50, 100, 200, 400, 800)
    yield residual("batch, tokens held", "batch", base={**SMALL, "tokens": 2**15}, batch=batches)
    yield residual(
        "batch, steps held", "batch", ("none", "sqrt-batch", "power-lines", "beta2-half-life"),
        base={**SMALL, "steps": 256}, batch=batches,
    )  # fmt: skip
    yield residual(
        "duration, batch held", "steps", ("none", "sde", "decay-time", "power-lines"),
        base={**SMALL, "steps": 256}, steps=(64, 128, 256, 512, 1024),
    )  # fmt: skip
    for steps in DURATIONS:
        yield residual(
            f"depth at {steps} steps", "depth", ("none",), base={**SMALL, "steps": steps},
            depth=(4, 8, 16, 32),
        )  # fmt: skip
    yield residual(
        "depth and duration", "depth", ("none",), base={**SMALL, "steps": 256},
        depth=(4, 8, 16, 32), steps=DURATIONS,
        sizes=[{**SMALL, "depth": depth, "steps": n} for depth in (8, 16, 32) for n in (64, 1024)],
    )  # fmt: skip
    yield decoding(
        "batch, tokens held", "batch", TRAINED, least=-8, base={**TEXT, "tokens": 6400},
        batch=sequences,
    )  # fmt: skip
    yield decoding(
        "duration, batch held", "steps", ("none", "sde", "decay-time", "power-lines"),
        base={**TEXT, "steps": 200}, steps=lengths,
    )  # fmt: skip
    yield decoding(
        "batch, tokens held", "batch", ("none", "sde"), "muon", base={**TEXT, "tokens": 6400},
        batch=sequences,
    )  # fmt: skip
    yield decoding(
        "duration, batch held", "steps", ("none", "sde"), "muon", base={**TEXT, "steps": 200},
        steps=lengths,
    )  # fmt: skip


def searches() -> Iterator[tuple[str, Design]]:
    """Muon under the rules that move more than its rate, at three sizes: rates found as it goes."""
    common = {
        "schemes": "completep", "optimizers": "muon", "weight_decays": 0.5, "seeds": 4,
        "settings": {"schedule": "linear", "warmup": 0.1}, "lrs": Auto(start=2.0**-4.5),
    }  # fmt: skip
    yield "batch, tokens held", Design(
        base={**TEXT, "tokens": 6400}, batch=(16, 64, 128),
        run=("sde", "sqrt-batch", "decay-time", "beta2-half-life"), **common,
    )  # fmt: skip
    yield "duration, batch held", Design(
        base={**TEXT, "steps": 200}, steps=(50, 200, 800),
        run=("sde", "decay-time", "power-lines"), **common,
    )  # fmt: skip


def search(folder: Path) -> None:
    """A row for each rule."""
    columns = ("question", "rule", "best log2 learning rate", "drift (95%)", "excess loss",
               "best loss", "verdict")  # fmt: skip
    print(f"| {' | '.join(columns)} |\n" + "| --- " * len(columns) + "|", flush=True)
    on = Execution(executor="in-process", workers=1, engine="stacked")
    for title, design in searches():
        report = transfer(decoder(), design, out=folder / title.split(",")[0], on=on)
        for variant in design.variants:
            assert variant.run is not None
            row = _row(variant.run.key, report.finding(variant.name))
            print(f"| {title} {row}", flush=True)


def train(store: Store) -> None:
    """One question after the other, so that tables are there when time runs out."""
    own = decoder()
    for question in [*map(_without_rule, questions()), *questions()]:
        built_in = isinstance(question.sweep.model, BuiltIn)
        run(
            question.sweep.runs,
            store=store,
            executor=InProcess(),
            jobs=training if built_in else partial(together, model=own, members=MEMBERS),
            tell=partial(_tell, question, [time.monotonic()]),
            about={"environment": environment()},
        )


def _without_rule(question: Question) -> Question:
    return under(question, (question.sweep.design.run or ())[:1])


def under(question: Question, rules: Sequence[RunRule]) -> Question:
    """A question asked of some of its rules."""
    design = replace(question.sweep.design, run=rules)
    return replace(question, sweep=replace(question.sweep, design=design))


def trained(question: Question, store: Store) -> Question | None:
    """A question asked of the rules whose runs are all there."""
    rules = [
        rule
        for rule in question.sweep.design.run or ()
        if not store.missing(under(question, [rule]).sweep.runs)
    ]
    return under(question, rules) if NO_RULE in rules else None


def _tell(question: Question, last: list[float], progress: Progress) -> None:
    if time.monotonic() - last[0] > 60 or progress.done == progress.cells:
        last[0] = time.monotonic()
        done = f"{progress.done} of {progress.cells}, {progress.elapsed:.0f} s"
        print(f"{question.network} {question.optimizer} {question.title}: {done}", flush=True)


def shifted(drift: Estimate, by: float) -> Estimate:
    return replace(drift, value=drift.value - by, low=drift.low - by, high=drift.high - by)


def along(rule: RunRule, question: Question) -> tuple[float, bool]:
    """The exponent of the learning rate along the axis of a question, and whether a rule moves
    decay, epsilon or averages as well."""
    held = "tokens" if "tokens" in question.sweep.design.base else "steps"
    twice = {
        ("batch", "tokens"): Ratios(batch=2),
        ("batch", "steps"): Ratios(batch=2, duration=2),
        ("steps", "steps"): Ratios(duration=2),
    }.get((question.axis, held), Ratios())
    laws = rule.laws
    beside = (laws.decay, laws.epsilon, laws.one_minus_beta, laws.log_beta2)
    exponent = round(math.log2(laws.lr.at(twice)), 9)
    return exponent, any(not math.isclose(power.at(twice), 1.0) for power in beside)


def table(question: Question, store: Store) -> list[str]:
    """A row for each rule: drift, excess loss and verdict; and which drift depends on what.

    Rules that speak of something else are judged by what training under them does.
    """
    sweep = question.sweep
    records = store.records(sweep.runs)
    study, *_ = studies(sweep, records, config={}, environment={})
    of_rule = {
        v.run.key: t
        for v, t in zip(sweep.design.variants, study.headline.transfers, strict=True)
        if v.run is not None
    }
    none = of_rule[NO_RULE.key]
    # Along the depth none of them says anything.
    trainable = [rule for rule in RUN_RULES if rule.key and question.axis in ("batch", "steps")]
    alike = [r.key for r in trainable if along(r, question) == (0, False)]
    lines = [
        "| rule | best log2 learning rate | drift (95%) | excess loss | best loss | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
        _row(", ".join([NO_RULE.key, *alike]), none),
    ]
    for rule in trainable:
        exponent, beside = along(rule, question)
        if rule.key in of_rule and rule.key not in alike:
            lines.append(_row(rule.key, of_rule[rule.key]))
        elif exponent and not beside:
            lines.append(_computed(rule, none, exponent))
    for other, change in none.interactions.items():
        lines += ["", f"The drift with {study.axis} changes by {_drift(change)} per doubling of "
                      f"{other}."]  # fmt: skip
    return lines


def _row(name: str, transfer: Transfer) -> str:
    optima = " ".join(
        f"{o.log2_lr.value:.1f}".replace("-", "−")
        if o.place is Place.INTERIOR
        else o.place.value.replace(" ", "-")
        for o in transfer.optima
    )
    excess = f"{transfer.regret.value:.3f}" if math.isfinite(transfer.regret.value) else "–"
    cells = (name, optima, _drift(transfer.drift), excess, f"{transfer.optima[-1].loss.value:.3f}",
             transfer.verdict.value)  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _computed(rule: RunRule, none: Transfer, exponent: float) -> str:
    drift = shifted(none.drift, exponent)
    verdict = "transfers" if drift.inside(-0.15, 0.15) else "undecided"
    if drift.outside(-0.15, 0.15):
        verdict = "drifts"
    return f"| {rule.key} (computed) | | {_drift(drift)} | | | {verdict} |"


def _drift(drift: Estimate) -> str:
    return f"{drift.value:+.2f} [{drift.low:+.2f}, {drift.high:+.2f}]".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="+")
    *verb, path = parser.parse_args().words
    if verb == ["search"]:
        search(Path(path))
        return
    with Store(Path(path)) as store:
        if verb == ["train"]:
            train(store)
            return
        for question in questions():
            print(f"\n### {question.network}, {question.optimizer}: {question.title}\n")
            there = trained(question, store)
            print("not trained yet" if there is None else "\n".join(table(there, store)))


if __name__ == "__main__":
    main()
