"""Rules of the run, measured: the best learning rate as batch and duration change.

    python -m studies.axes train STORE    # what the store does not hold yet
    python -m studies.axes STORE          # the tables of docs/studies/axes.md

Residual networks of width 32 and depth 4 on the digits, and decoders of width 32 and two layers on
bytes of Python's standard library, each with AdamW and with Muon. Batches over a factor of 32,
durations over a factor of 16.
"""

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from depthmup import Design
from depthmup.data import Dataset, digits
from depthmup.model import Model
from depthmup.models import ResidualMLP
from depthmup.records import Estimate, Optimum, Place, Transfer, Trial, Verdict, environment
from depthmup.records.finding import verdict_of
from depthmup.rules import NO_RULE, RUN_RULES, Ratios, RunRule
from depthmup.statistics import TOLERANCE
from depthmup.sweep import (
    BuiltIn,
    Custom,
    InProcess,
    Progress,
    Store,
    Sweep,
    Train,
    run,
    studies,
    together,
    training,
)
from reproduction.claims.decoders import normed, python_text

CONTEXT = 16
POSITIONS, MEMBERS = 24_576, 60
"""Positions of a step of a stack, and its members at most: what small networks share is the start
of their operations, until their activations outgrow the cache."""
TRAINED = ("none", "sde", "sqrt-batch", "power-lines", "decay-time", "beta2-half-life")
"""Rules that move more than the learning rate. Of the others the runs are those of no rule at other
learning rates, so that their drift is that of no rule less their exponent."""


def bytes_of_python(generator: Any, batch: int) -> Any:
    """Windows of 16 bytes."""
    return python_text().batch(generator, batch, CONTEXT)


@lru_cache(maxsize=1)
def images() -> Dataset:
    """The digits of the built-in network, with its noise in the labels."""
    return digits()


def examples(generator: torch.Generator, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.randint(len(images().labels), (batch,), generator=generator)
    return images().inputs[drawn], images().labels[drawn]


def like_built_in(width: int, depth: int) -> nn.Module:
    """The built-in network as a custom model, for Muon, which the built-in engines do not have:
    the same initial scales, and input and readout are not trained."""
    network = ResidualMLP(inputs=64, width=width, depth=depth, outputs=10)
    for matrix, std in ((network.input, 64**-0.5), (network.readout, 1 / width)):
        nn.init.normal_(matrix.weight, std=std).requires_grad_(False)
    for branch in network.branches.modules():
        if isinstance(branch, nn.Linear):
            nn.init.normal_(branch.weight, std=width**-0.5)
    return network


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question asked of one network under one optimizer, under several rules.

    ``model`` is None for the built-in network. ``laws`` are those, beside the learning rate's, of
    which the optimizer has the quantity. A question that is ``continued`` asks the one before it of
    further rules, at other learning rates.
    """

    network: str
    optimizer: str
    title: str
    axis: str
    sweep: Sweep
    model: Model | None = None
    continued: bool = False
    laws: tuple[str, ...] = ("decay", "epsilon", "one_minus_beta", "log_beta2")


def decoder() -> Model:
    version = f"axes 1, {python_text().digest[:16]}"
    return Model(normed, batch=bytes_of_python, version=version)


def residual_model() -> Model:
    return Model(like_built_in, batch=examples, version="axes 1")


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


def residual_muon(title: str, axis: str, rules: tuple[str, ...], **asked: Any) -> Question:
    """The same network: all that is trained are matrices, so that no AdamW stands beside Muon."""
    model = residual_model()
    design = Design(
        lrs=[2.0 ** (k / 2) for k in range(-22, 1)], schemes="depth-mup", optimizers="muon",
        weight_decays=0.5, seeds=5, run=rules, **asked,
    )  # fmt: skip
    return Question(
        network="residual network", optimizer="muon", title=title, axis=axis, model=model,
        sweep=Sweep(model=Custom(name=model.name, code=model.code), design=design),
        laws=("decay",),
    )  # fmt: skip


def decoding(
    title: str,
    axis: str,
    rules: tuple[str, ...],
    optimizer: str = "adamw",
    *,
    least: int = -6,
    most: int = 5,
    continued: bool = False,
    **asked: Any,
) -> Question:
    """Of the decoder: warmed up, then linearly to zero; weight decay 0.5."""
    model, centre = decoder(), {"adamw": -5.5, "muon": -3.5}[optimizer]
    design = Design(
        lrs=[2.0 ** (centre + k / 2) for k in range(least, most + 1)], schemes="completep", seeds=3,
        optimizers=optimizer, weight_decays=0.5, run=rules,
        settings={"schedule": "linear", "warmup": 0.1}, **asked,
    )  # fmt: skip
    return Question(
        network="decoder", optimizer=optimizer, title=title, axis=axis, model=model,
        continued=continued,
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
    # Of what a rule moves beside the rate, Muon without AdamW has decay alone.
    yield residual_muon(
        "batch, tokens held", "batch", ("none", "sde", "decay-time", "power-lines"),
        base={**SMALL, "tokens": 2**15}, batch=batches,
    )  # fmt: skip
    yield residual_muon(
        "batch, steps held", "batch", ("none", "power-lines"), base={**SMALL, "steps": 256},
        batch=batches,
    )  # fmt: skip
    yield residual_muon(
        "duration, batch held", "steps", ("none", "sde", "decay-time", "power-lines"),
        base={**SMALL, "steps": 256}, steps=(64, 128, 256, 512, 1024),
    )  # fmt: skip
    batch = partial(decoding, "batch, tokens held", "batch", optimizer="muon",
                    base={**TEXT, "tokens": 6400}, batch=sequences)  # fmt: skip
    duration = partial(decoding, "duration, batch held", "steps", optimizer="muon",
                       base={**TEXT, "steps": 200}, steps=lengths)  # fmt: skip
    yield batch(("none", "sde"))
    yield batch(("none", "sqrt-batch"), most=3, continued=True)
    # A rule that moves decay or beta2 alone leaves the rate to move as it does without a rule.
    for rules in (("decay-time", "power-lines"), ("beta2-half-life",)):
        yield batch(("none", *rules), least=-8, most=7, continued=True)
    yield duration(("none", "sde"))
    yield duration(("none", "decay-time", "power-lines"), most=7, continued=True)


def train(store: Store) -> None:
    """One question after the other and no rule first, so that tables are there when time runs
    out."""
    asked = list(questions())
    for question in [*map(_without_rule, asked), *asked]:
        for rule in question.sweep.design.run or ():
            of_rule = under(question, [rule])
            model = question.model
            run(
                of_rule.sweep.runs,
                store=store,
                executor=InProcess(),
                jobs=training if model is None else partial(stacks, model=model),
                tell=partial(_tell, f"{_title(question)}, {rule.key}", [time.monotonic()]),
                about={"environment": environment()},
            )


def stacks(trials: Iterable[Trial], *, model: Model) -> list[Train]:
    """Jobs whose members are as many as pay."""
    of_batch: dict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        of_batch[trial.size["batch"]].append(trial)
    length = CONTEXT if model.name == normed.__name__ else 1
    return [
        job
        for batch, alike in of_batch.items()
        for job in together(
            alike, model, members=min(MEMBERS, max(12, POSITIONS // (batch * length)))
        )
    ]


def _without_rule(question: Question) -> Question:
    return under(question, (question.sweep.design.run or ())[:1])


def under(question: Question, rules: Sequence[RunRule]) -> Question:
    """A question asked of some of its rules."""
    design = replace(question.sweep.design, run=tuple(rules))
    return replace(question, sweep=replace(question.sweep, design=design))


def trained(question: Question, store: Store) -> Question | None:
    """A question asked of the rules whose runs are all there."""
    rules = [
        rule
        for rule in question.sweep.design.run or ()
        if not store.missing(under(question, [rule]).sweep.runs)
    ]
    return under(question, rules) if NO_RULE in rules else None


def _title(question: Question) -> str:
    return f"{question.network}, {question.optimizer}: {question.title}"


def _tell(title: str, last: list[float], progress: Progress) -> None:
    if time.monotonic() - last[0] > 60 or progress.done == progress.cells:
        last[0] = time.monotonic()
        done = f"{progress.done} of {progress.cells}, {progress.elapsed:.0f} s"
        print(f"{title}: {done}", flush=True)


HEAD = """\
| rule | best log2 learning rate | drift (95%) | excess loss | best loss | verdict |
| --- | --- | --- | --- | --- | --- |"""


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
    beside = [getattr(rule.laws, law).at(twice) for law in question.laws]
    exponent = round(math.log2(rule.laws.lr.at(twice)), 9)
    return exponent, any(not math.isclose(factor, 1.0) for factor in beside)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one rule did; of a computed one the drift alone is known."""

    rule: str
    drift: Estimate
    verdict: Verdict
    measured: Transfer | None = None

    def __str__(self) -> str:
        optima, excess, loss, name = "", "", "", f"{self.rule} (computed)"
        if self.measured is not None:
            name, regret = self.rule, self.measured.regret.value
            optima = " ".join(map(_optimum, self.measured.optima))
            excess = f"{regret:.3f}" if math.isfinite(regret) else "–"
            loss = f"{self.measured.optima[-1].loss.value:.3f}"
        cells = (name, optima, _interval(self.drift), excess, loss, self.verdict.value)
        return f"| {' | '.join(cells)} |"


def judged(question: Question, store: Store) -> tuple[list[Row], list[str]]:
    """A row for each rule: drift, excess loss and verdict; and which drift depends on what.

    Rules that speak of something else are judged by what training under them does.
    """
    sweep = question.sweep
    study, *_ = studies(sweep, store.records(sweep.runs), config={}, environment={})
    of_rule = {
        v.run.key: t
        for v, t in zip(sweep.design.variants, study.headline.transfers, strict=True)
        if v.run is not None
    }
    none = of_rule[NO_RULE.key]
    # Along the depth none of them says anything.
    trainable = [rule for rule in RUN_RULES if rule.key and question.axis in ("batch", "steps")]
    alike = [r.key for r in trainable if along(r, question) == (0, False)]
    rows = [_measured(", ".join([NO_RULE.key, *alike]), none)] * (not question.continued)
    for rule in trainable:
        exponent, beside = along(rule, question)
        if rule.key in of_rule and rule.key not in alike:
            rows.append(_measured(rule.key, of_rule[rule.key]))
        elif exponent and not beside and not question.continued:
            rows.append(_computed(rule, none, exponent))
    return rows, [
        f"The drift with {study.axis} changes by {_interval(change)} per doubling of {other}."
        for other, change in none.interactions.items()
    ]


def _measured(rule: str, transfer: Transfer) -> Row:
    return Row(rule=rule, drift=transfer.drift, verdict=transfer.verdict, measured=transfer)


def _computed(rule: RunRule, none: Transfer, exponent: float) -> Row:
    drift = shifted(none.drift, exponent)
    verdict = verdict_of(drift, -TOLERANCE, TOLERANCE)
    return Row(rule=rule.key, drift=drift, verdict=verdict)


def summary(rows: Mapping[tuple[str, str], Sequence[Row]]) -> list[str]:
    """Which rules held for which question, from the rows of each question and network."""
    verdicts = (Verdict.TRANSFERS, Verdict.UNDECIDED, Verdict.DRIFTS)
    lines = [
        f"| question | network | {' | '.join(verdict.value for verdict in verdicts)} |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (title, network), of_rules in rows.items():
        cells = [
            ", ".join(
                f"{row.rule.replace(', ', ' = ')} {row.drift.value:+.2f}"
                for row in of_rules
                if row.verdict is verdict
            )
            for verdict in verdicts
        ]
        lines.append(f"| {title} | {network} | {' | '.join(cells)} |".replace(" -0.", " −0."))
    return lines


def _optimum(optimum: Optimum) -> str:
    if optimum.place is not Place.INTERIOR:
        return optimum.place.value.replace(" ", "-")
    return f"{optimum.log2_lr.value:.1f}".replace("-", "−")


def _interval(drift: Estimate) -> str:
    return f"{drift.value:+.2f} [{drift.low:+.2f}, {drift.high:+.2f}]".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="+")
    *verb, path = parser.parse_args().words
    with Store(Path(path)) as store:
        if verb == ["train"]:
            train(store)
            return
        of_all: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for question in questions():
            if not question.continued:
                print(f"\n### {_title(question)}\n\n{HEAD}")
            there = trained(question, store)
            rows, sentences = ([], ["not trained yet"]) if there is None else judged(there, store)
            print("\n".join([*map(str, rows), *(f"\n{said}" for said in sentences)]))
            if question.axis != "depth":
                of_all[question.title, f"{question.network}, {question.optimizer}"] += rows
        print("\n" + "\n".join(summary(of_all)))


if __name__ == "__main__":
    main()
