"""Several optimizers as one, for trainers that take a single one: Muon and the AdamW beside it."""

from collections.abc import Callable
from typing import Any

import torch

PART = "part"
"""Key of a joined optimizer's groups: the number of the optimizer that steps their parameters."""


class JoinedOptimizer(torch.optim.Optimizer):
    """Optimizers that step together, with one list of groups, one state and one checkpoint.

    Schedulers, clipping, gradient scalers and checkpoints see an ordinary optimizer whose groups
    are those of all parts, in their order. A step is a step of each part, so training has the same
    bits as with the parts one by one.

    Args:
        optimizers: as they were built, with no step taken; they belong to this one from here on.
            The first one's ``lr`` is that of the whole's ``defaults``.

    Raises:
        ValueError: no optimizer is given, one has taken steps, or two train the same parameter.

    Example:
        >>> import torch, depthmup
        >>> from depthmup.models import ResidualMLP
        >>> def make(width, depth):
        ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=2)
        >>> model, x = make(64, 8), torch.zeros(4, 8)
        >>> plan = depthmup.plan(model, make(16, 8), scheme="mup", optimizer="muon",
        ...                      example_inputs=x, own_init="fan_in")
        >>> groups = plan.muon_groups(model, lr=0.02, adamw_lr=3e-3)
        >>> optimizer = JoinedOptimizer(torch.optim.Muon(groups.muon, lr=0.02),
        ...                             torch.optim.AdamW(groups.adamw, lr=3e-3))
        >>> plan.verify(model, optimizer, initialized_by_plan=False)
        >>> len(optimizer.param_groups) == len(groups.muon) + len(groups.adamw)
        True
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        if not optimizers:
            raise ValueError("Expected at least one optimizer to join; got none.")
        if stepped := next((one for one in optimizers if one.state), None):
            raise ValueError(
                f"Expected optimizers that have taken no step; got one of {type(stepped).__name__} "
                "with a state. Join them where they are built, and load a checkpoint of the whole."
            )
        self._parts = optimizers
        groups = [
            group | {PART: number}
            for number, one in enumerate(optimizers)
            for group in one.param_groups
        ]
        super().__init__(groups, {"lr": optimizers[0].defaults.get("lr")})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step every part; returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, one in enumerate(self._parts):
            # Anew at every step: loading a checkpoint and plan.rescale replace the groups.
            one.param_groups = [g for g in self.param_groups if g[PART] == number]
            one.state = self.state
            one.step()
        return loss

    def __getstate__(self) -> dict[str, Any]:
        # torch's own has defaults, state and groups alone: copies would not know their parts.
        return {**super().__getstate__(), "_parts": self._parts}
