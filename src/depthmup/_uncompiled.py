"""Torch's optimizers in a process that compiles nothing."""

from functools import cache
from inspect import unwrap
from typing import Any

import torch


@cache
def uncompiled(made_by: Any) -> Any:
    """An optimizer's class without the decorators of its methods, which load torch's compiler.

    They leave the methods out of what it compiles, or take away gradients in them. Loading it takes
    a second of every process; the updates are those of the class to the bit.
    """
    methods = {
        "add_param_group": unwrap(made_by.add_param_group),
        "zero_grad": unwrap(made_by.zero_grad),
        "step": torch.no_grad()(unwrap(made_by.step)),
    }
    return type(made_by.__name__, (made_by,), methods)
