"""A probe of the target before it is certified: a few steps there at the predicted learning rate.

Whether a scheme breaks down between the measured sizes and the target cannot be seen at the smaller
sizes. It can at the target, before training and in the first steps (``statistics.refusals``).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from depthmup.records import RUN_AXES, Certificate, Record
from depthmup.records.certificate import Probe
from depthmup.sweep.design import Variant
from depthmup.sweep.executors import WorkerError
from depthmup.sweep.store import Store
from depthmup.sweep.sweep import Sweep

STEPS, LAST = 20, 5
"""Steps of a probe of a size, and the number of last steps over which its loss is averaged."""

SEEDS = 2
"""Runs of a probe at each size."""

AFFORDABLE = 0.5
"""Most work of a probe as a fraction of the sweep's; beyond it the target's depth is probed at the
base's width."""


Train = Callable[[Sequence[Any]], None]
"""Trains runs that the store does not hold."""


def probe_target(
    certificate: Certificate, sweep: Sweep, variant: Variant, store: Store, train: Train | None
) -> Probe | None:
    """Losses at the target over those at measured sizes, at the certified learning rate.

    None if runs are missing or the target cannot be built. Without ``train`` none is trained.
    """
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
    whole = {axis: int(value) for axis, value in size.items()}
    return replace(sweep.run(variant, whole, log2_lr, seed), steps=STEPS)


def _at(
    size: Mapping[str, float],
    certificate: Certificate,
    sweep: Sweep,
    variant: Variant,
    store: Store,
    train: Train | None,
) -> Probe | None:
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

    def level(name: str, loss: Callable[[Record[Any]], float]) -> float:
        """The geometric mean over seeds."""
        logs = [math.log(loss(records[run])) for run in runs[name]]
        return math.exp(math.fsum(logs) / len(logs))

    return Probe(
        size=dict(size),
        initial=level("target", _first) / level("base", _first),
        first_steps=level("target", _last) / level("largest", _last),
        steps=STEPS,
    )


def _first(record: Record[Any]) -> float:
    return float(record.losses[0]) if len(record.losses) else math.inf


def _last(record: Record[Any]) -> float:
    return record.mean_loss(STEPS - LAST, STEPS)
