"""How long a sweep of a custom model will take: a few steps at two sizes, timed."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from depthmup.model import Model
from depthmup.records import Trial
from depthmup.training.trial import run_trial

STEPS = 4
"""Of a timed run; the first, which allocates and loads, is left out."""


def seconds_of_trials(model: Model, trials: Sequence[Trial]) -> float:
    """Predicted seconds of one idle core for all trials, if none diverges.

    A step takes c_0 + c_1 work seconds: the operations that any model starts, and those that grow
    with its parameters and examples. Both are fitted to the smallest size and the median one.

    Args:
        model: whose trials these are.
        trials: to be trained.

    Returns:
        Seconds; NaN where ``train`` does everything, or a try fails.
    """
    if model.train is not None or not trials:
        return math.nan
    by_work = sorted({trial.step_work: trial for trial in trials}.items())
    (least, small), (more, middle) = by_work[0], by_work[len(by_work) // 2]
    try:
        base = _step(model, small)
        slope = max(0.0, (_step(model, middle) - base) / (more - least)) if more > least else 0.0
    except Exception:  # a forecast is no reason to stop: training itself reports what is wrong
        return math.nan
    return math.fsum(t.steps * (base + slope * (t.step_work - least)) for t in trials)


def _step(model: Model, trial: Trial) -> float:
    """Seconds of a step of one trial."""
    times: list[float] = []
    run_trial(
        replace(trial, steps=STEPS),
        model,
        on_progress=lambda fraction: times.append(time.perf_counter()),
    )
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
