"""Schedules: every step of one, tried on a stand-in for its optimizer."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    MultiStepLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from depthmup.planning.layout import Setting, of_ratios


def length_of(scheduler: Any) -> int | None:
    """The steps of a whole schedule; None where it does not say.

    Example:
        >>> adamw = torch.optim.AdamW([torch.zeros(1)])
        >>> length_of(torch.optim.lr_scheduler.CosineAnnealingLR(adamw, 20))
        20
    """
    if isinstance(scheduler, SequentialLR):
        last = length_of(scheduler._schedulers[-1])
        return None if last is None else scheduler._milestones[-1] + last
    if isinstance(scheduler, ChainedScheduler):
        parts = [length_of(part) for part in scheduler._schedulers]
        return None if None in parts else max(part for part in parts if part is not None)
    if isinstance(scheduler, MultiStepLR):
        return max(scheduler.milestones, default=0)
    if isinstance(scheduler, CosineAnnealingWarmRestarts):  # the later periods repeat the first
        return int(scheduler.T_0)
    if isinstance(scheduler, CyclicLR):
        return int(scheduler.total_size)
    total = getattr(scheduler, "total_steps", None)
    if isinstance(total, int):  # of which the first is made by building it
        return total - 1
    length = getattr(scheduler, "T_max", getattr(scheduler, "total_iters", None))
    return int(length) if isinstance(length, int | float) else None


def of_schedule(scheduler: Any, found: Sequence[Setting], steps: int | None) -> Iterator[str]:
    """What a schedule makes of groups that contradicts the plan, at its first such step."""
    scheduler = getattr(scheduler, "scheduler", scheduler)  # accelerate's
    if steps is None:
        whole = length_of(scheduler)
        if whole is None:
            raise ValueError(
                f"Expected steps=, as {type(scheduler).__name__} does not say how long it is: "
                "plan.verify(model, optimizer, scheduler=scheduler, steps=...) tries as many."
            )
        steps = whole - max(scheduler.last_epoch, 0)
    real = scheduler.optimizer
    groups = [{**group, "params": [torch.zeros(0)]} for group in real.param_groups]
    stand_in = torch.optim.SGD(groups, lr=1.0)
    tried = copy.deepcopy(scheduler, {id(real): stand_in})
    # One that reads a loss is given one that stays, so that it lowers the rates.
    step = partial(tried.step, 0.0) if isinstance(tried, ReduceLROnPlateau) else tried.step
    numbers = {id(group): i for i, group in enumerate(real.param_groups)}
    moved = [
        replace(setting, group=stand_in.param_groups[numbers[id(setting.group)]])
        if id(setting.group) in numbers
        else setting
        for setting in found
    ]
    for number in range(1, steps + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no optimizer steps between
            step()
        if problems := [*of_ratios(moved)]:
            yield from (f"after step {number} of the schedule: {p}" for p in problems)
            return
