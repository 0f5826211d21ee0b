"""From records to certificates: the best learning rate predicted for a size not swept.

Whether a scheme breaks down between the measured sizes and the target cannot be seen at the smaller
sizes. It can at the target, before training and in the first steps (``statistics.refusals``): so a
target is probed before it is certified, by a few steps at the predicted learning rate.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

from depthmup.records import RUN_AXES, Certificate, Record
from depthmup.records.certificate import Lack, Refusal, TargetProbe
from depthmup.records.sizes import size_names
from depthmup.statistics import TOLERANCE, calibrate
from depthmup.statistics.study import shared_optima
from depthmup.sweep.custom import Custom
from depthmup.sweep.design import Size, Variant
from depthmup.sweep.executors import WorkerError
from depthmup.sweep.question import question
from depthmup.sweep.store import Store
from depthmup.sweep.study import early_window, runs_of
from depthmup.sweep.sweep import Records, Sweep

STEPS, LAST = 20, 5
"""Steps of a probe of a size, and the number of last steps over which its loss is averaged."""

SEEDS = 2
"""Runs of a probe at each size."""

AFFORDABLE = 0.5
"""Most work of a probe as a fraction of the sweep's; beyond it the target's depth is probed at the
base's width."""

TrainMissing = Callable[[Sequence[Any]], None]
"""Trains runs that the store does not hold."""


def certificate(
    sweep: Sweep,
    records: Records,
    variant: Variant,
    target: Size,
    *,
    probe: TargetProbe | None = None,
    tolerance: float = TOLERANCE,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
) -> Certificate:
    """One variant's certificate for a target, judged by the last window of training."""
    late = slice(sweep.design.steps - sweep.design.window, sweep.design.steps)
    asked = question(sweep.design, [variant])
    early = early_window(sweep.design.steps, sweep.design.window)
    runs = runs_of(sweep, records, variant, late)
    before = None if early is None else runs_of(sweep, records, variant, early).curves
    return calibrate(
        sizes=runs.sizes,
        curves=runs.curves,
        early=before,
        target=target,
        base=sweep.design.base,
        chance=runs.chance,
        probe=probe,
        tolerance=tolerance,
        about={
            "rate_unit": 1.0,
            "title": variant.title,
            "scheme": variant.name,
            "model": sweep.model.code if isinstance(sweep.model, Custom) else "",
            "tuned": sweep.design.tune,
            "measure": _measure(sweep, late),
            # Of the sentences about a sweep those about this variant.
            "config": {
                **(config or {}),
                **({"question": list(asked)} if asked else {}),
            },
            "environment": environment or {},
        },
    )


def _measure(sweep: Sweep, late: slice) -> str:
    """What runs are judged by; where they differ in length, by the same fraction of each.

    A command logs as many losses as it likes.
    """
    design, model = sweep.design, sweep.model
    own = model if isinstance(model, Custom) and not model.untrained_loss else None
    if own is None and len({design.steps_at(size) for size in design.all_sizes}) == 1:
        return f"mean training loss over steps {late.start} to {late.stop}"
    loss = "training loss" if own is None else own.loss or "loss"
    return f"mean {loss} over the last {design.window / design.steps:.0%} of every run"


def certify(
    sweep: Sweep,
    store: Store,
    records: Records,
    target: Size,
    *,
    train: TrainMissing | None = None,
    tolerance: float = TOLERANCE,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
    spent: Collection[str] = (),
) -> tuple[Certificate, ...]:
    """Every variant's certificate, checked by a probe of the target.

    ``spent`` names the variants whose search a budget ended.
    """
    # Whether a scheme breaks down is a matter of the network: the run of the base shows it, and its
    # losses can be compared with those of the other networks.
    base = sweep.design.base
    network = {axis: base[axis] if axis in RUN_AXES else n for axis, n in target.items()}
    certificates = []
    for variant in sweep.design.judged:
        of = partial(
            certificate,
            sweep,
            records,
            variant,
            tolerance=tolerance,
            config=config,
            environment=environment,
        )
        result = of(target)
        of_network = result if network == target else of(network)
        if result.issued and of_network.issued and network != base:
            # What the probe shows may withdraw the certificate, so it is judged once more with it.
            probe = probe_target(of_network, sweep, variant, store, train)
            result = result if probe is None else of(target, probe=probe)
        if variant.name in spent:
            result = _for_want_of_budget(result, sweep, variant)
        certificates.append(result)
    # Variants that agree at a size have the same runs there, and one optimum.
    keys = [
        [(tuple(o.size.items()), sweep.run(variant, _whole(o.size), 0.0, 0)) for o in c.optima]
        for c, variant in zip(certificates, sweep.design.judged, strict=True)
    ]
    counts = [
        sum(
            len(seeds) for rates in sweep.points(variant, sweep.design.all_sizes) for seeds in rates
        )
        for variant in sweep.design.judged
    ]
    optima = shared_optima(keys, [c.optima for c in certificates], counts)
    return tuple(replace(c, optima=each) for c, each in zip(certificates, optima, strict=True))


_NOT_BOUGHT = (Lack.FAILED, Lack.WORSE, Lack.BREAKS)
"""Reasons against a certificate that further runs would not remove."""


def _for_want_of_budget(refused: Certificate, sweep: Sweep, variant: Variant) -> Certificate:
    """A refusal that begins with its cause: sizes of the design that the budget did not reach."""
    sizes = sweep.design.all_sizes
    lacking = [size for size in sizes if not sweep.rates(variant, size)]
    if not lacking or any(r.lack in _NOT_BOUGHT for r in refused.refusals) or refused.issued:
        return refused
    cause = Refusal(
        lack=Lack.BUDGET,
        reason=f"The budget was spent before {size_names(lacking, sizes)} could be trained.",
        advice="Give a larger one; finished runs are not repeated.",
    )
    return replace(refused, refusals=(cause, *refused.refusals))


def probe_target(
    certificate: Certificate,
    sweep: Sweep,
    variant: Variant,
    store: Store,
    train: TrainMissing | None,
) -> TargetProbe | None:
    """Losses at the target over those at measured sizes, at the certified rate; None if unknown."""
    base, target = certificate.base, certificate.target
    in_place = {axis: target[axis] if axis == "depth" else base[axis] for axis in base}
    cost = SEEDS * sweep.work(_run(sweep, variant, target))
    of_sweep = math.fsum(sweep.work(run) for run in sweep.runs)
    sizes = [target] if cost <= AFFORDABLE * of_sweep else []
    for size in [*sizes, *([in_place] if in_place != target else [])]:
        try:
            return _at(size, certificate, sweep, variant, store, train)
        except (WorkerError, MemoryError):
            continue  # too large for this machine, most likely: its depth is what is left
    return None


def _run(
    sweep: Sweep, variant: Variant, size: Mapping[str, float], log2_lr: float = 0.0, seed: int = 0
) -> Any:
    """The run of ``STEPS`` steps of a size."""
    return replace(sweep.run(variant, _whole(size), log2_lr, seed), steps=STEPS)


def _whole(size: Mapping[str, float]) -> dict[str, int]:
    return {axis: int(value) for axis, value in size.items()}


def _at(
    size: Mapping[str, float],
    certificate: Certificate,
    sweep: Sweep,
    variant: Variant,
    store: Store,
    train: TrainMissing | None,
) -> TargetProbe | None:
    base = certificate.base
    of_run = [axis for axis in base if axis in RUN_AXES]
    alike = [o.size for o in certificate.optima if all(o.size[a] == base[a] for a in of_run)]
    largest = max(alike, key=lambda s: sweep.work(_run(sweep, variant, s)))
    rate = certificate.predicted.value
    runs = {
        name: [_run(sweep, variant, where, rate, seed) for seed in range(SEEDS)]
        for name, where in (("target", size), ("base", certificate.base), ("largest", largest))
    }
    asked = list({run.key: run for of_size in runs.values() for run in of_size}.values())
    if missing := store.missing(asked):
        if train is None:
            return None
        train(missing)
    records = store.records(asked)
    # A function that trains and returns its final loss alone shows no start to compare.
    if any(record.losses and not record.shows_start for record in records.values()):
        return None

    def level(name: str, loss: Callable[[Record[Any]], float]) -> float:
        """The geometric mean over seeds."""
        logs = [math.log(loss(records[run])) for run in runs[name]]
        return math.exp(math.fsum(logs) / len(logs))

    last = methodcaller("mean_loss", STEPS - LAST, STEPS)
    return TargetProbe(
        size=dict(size),
        initial=level("target", _first) / level("base", _first),
        first_steps=level("target", last) / level("largest", last),
        steps=STEPS,
    )


def _first(record: Record[Any]) -> float:
    return float(record.losses[0]) if len(record.losses) else math.inf
