"""What few calls of ``plan`` need, in one object."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from depthmup.rules import RunRule
from depthmup.tracing import ExampleInputs, Facts

ReadBefore: TypeAlias = tuple[Facts | None, Facts | None]
"""What ``tracing.read`` gave for the model and for the base, where it was asked before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """Less common settings of a plan.

    ``base_inputs``: arguments of one forward pass of the base, if they differ from the model's.
    ``facts``: results of ``depthmup.tracing.read`` for the model and for the base, None
    where they are still to be read.
    ``multiplier``: of every branch at the base (the paper's a), times the model's own.
    ``init_scale``: of the initial weights inside branches, times the model's own.
    ``batch`` and ``duration``: batch size and examples seen, in multiples of the base run's.
    ``run``: the rule for learning rate, decay, epsilon and betas under them, such as ``"sde"``; by
    default the scheme's own. ``tuned_with``: the optimizer that the base's learning rate was tuned
    with, such as ``"adamw"`` or ``"muon-rms"``, if the plan is for another one. The factors then
    convert the rate, and the product of rate and decay stays. ``head_rows``: rows of one head, by
    patterns of parameters whose heads Muon orthogonalizes one by one (queries, keys, values); a
    pair for the model and the base, if heads grow.

    Raises:
        ValueError: a multiplier or a scale that is not positive and finite.

    Example:
        >>> PlanOptions(run="sde", batch=8, duration=2).multiplier
        1.0
    """

    base_inputs: ExampleInputs | None = None
    facts: ReadBefore = (None, None)
    multiplier: float = 1.0
    init_scale: float = 1.0
    batch: float = 1.0
    duration: float = 1.0
    run: str | RunRule | None = None
    tuned_with: str = ""
    head_rows: Mapping[str, int | tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ValueError(
                f"Expected multiplier, that of the branches at the base, to be positive; got "
                f"{self.multiplier}."
            )
        if not 0 < self.init_scale < math.inf:
            raise ValueError(
                f"Expected init_scale, of the initial weights inside branches, to be positive; got "
                f"{self.init_scale}."
            )
