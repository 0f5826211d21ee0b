"""What a sweep of a custom model will take: time, from a few steps, and memory, allocating none."""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import torch
from torch import Tensor

from depthmup._isolated import isolated
from depthmup.measuring import called
from depthmup.model import Functions, Model, network_at, resolved
from depthmup.records import Trial
from depthmup.training.loop import moved
from depthmup.training.trial import first_batch, run_together, run_trial

STEPS = 6
"""Of a timed run; the first, which allocates and loads, is left out."""


MISSED = 2.0
"""Factor by which a forecast may miss; where a timed stack or a busy machine already does, there is
none."""


def seconds_of_stacks(model: Model, stacks: Sequence[Sequence[Trial]]) -> float:
    """Predicted seconds of one idle core for trials, if none diverges; NaN if unknown.

    Setting up and a step are timed of the least stack, the median one and the largest, with lines
    between.
    """
    if resolved(model).whole or not stacks:
        return math.nan
    by_work = sorted({_work(stack): stack for stack in stacks}.items())
    timed = dict(by_work[i] for i in (0, len(by_work) // 2, -1))
    try:
        _step(model, by_work[0][1])  # the first loads what all use
        setup, step = zip(*(_step(model, stack) for stack in timed.values()), strict=True)
    except Exception:  # a forecast is no reason to stop: training itself reports what is wrong
        return math.nan
    work = [*timed]
    if len(work) == 3:
        between = float(np.interp(work[1], work[::2], step[::2]))
        if not between / MISSED <= step[1] <= between * MISSED:
            return math.nan

    def at(stack: Sequence[Trial], seconds: Sequence[float]) -> float:
        return float(np.interp(_work(stack), work, seconds))

    return math.fsum(at(stack, setup) + stack[0].steps * at(stack, step) for stack in stacks)


def _work(stack: Sequence[Trial]) -> float:
    """Of one step."""
    return sum(trial.step_work for trial in stack)


DRAWN = 64
"""The largest batch that is drawn to see what it takes."""

WEIGHTS = 4
"""Copies of a model's weights during training: weights, gradients and Adam's two moments."""


def bytes_of_trial(model: Model, trial: Trial) -> int | None:
    """Least memory of training one trial: its weights with their copies, and what backward needs.

    Read from a forward pass on torch's meta device; None for a model that cannot be built there.
    """
    size, own = trial.size, resolved(model)
    if size.get("batch", 0) <= DRAWN:
        return _bytes_at(own, size)
    # What is kept is proportional to the batch; a large one may not even be drawn.
    half, whole = (_bytes_at(own, {**size, "batch": n}) for n in (DRAWN // 2, DRAWN))
    if half is None or whole is None:
        return None
    return whole + (whole - half) * (size["batch"] - DRAWN) // (DRAWN // 2)


@isolated()
def _bytes_at(own: Functions, size: Mapping[str, int]) -> int | None:
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        # By storage: views of one tensor share its memory and are counted once.
        storages[storage._cdata] = storage
        return tensor

    try:
        with torch.device("meta"):
            network = network_at(own, size)
        weights = list(network.parameters())
        inputs, targets = first_batch(own, size)
        inputs, targets = moved(inputs, "meta"), moved(targets, "meta")
    except Exception:  # functions that need real tensors: their memory is unknown before training
        return None
    with suppress(Exception), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        own.loss(called(network, inputs), targets)  # what was kept before it fails counts too
    # Weights that the backward pass keeps are counted with their copies.
    for weight in weights:
        storages.pop(weight.untyped_storage()._cdata, None)
    of_weights = sum(p.numel() * p.element_size() for p in weights)
    return int(WEIGHTS * of_weights + sum(storage.nbytes() for storage in storages.values()))


def _step(model: Model, stack: Sequence[Trial]) -> tuple[float, float]:
    """Seconds of a stack before its steps, and of a step; NaN where the machine is busy.

    Then little of the time is processor time: an idle core would be faster, or the code waits.
    """
    begun, times = time.process_time(), [time.perf_counter()]
    short = [replace(trial, steps=STEPS) for trial in stack]

    def note(fraction: float) -> None:
        times.append(time.perf_counter())

    if len(short) == 1:
        run_trial(short[0], model, on_progress=note)
    else:
        deque(run_together(short, model, on_progress=note), maxlen=0)
    if times[-1] - times[0] > MISSED * (time.process_time() - begun):
        return math.nan, math.nan
    # Something else may run beside a step.
    step = median(later - earlier for earlier, later in pairwise(times[1:])) if times[2:] else 0.0
    return max(0.0, times[1] - times[0] - step), step
