"""``depthmup plan``: initialization, multipliers and learning rates that a scheme prescribes."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show what a scheme prescribes for each parameter of your model, and why.

    The file that --model names also defines batch(generator) -> (inputs, targets).
    """

    model: str
    """Your model: module:factory or path/to/file.py:factory, called as factory(width, depth)."""

    base: str
    """Size at which the hyperparameters are known, as WIDTHxDEPTH, such as 64x4."""

    target: str
    """Size to train, as WIDTHxDEPTH, such as 1024x32."""

    scheme: str = ""
    """Scheme: sp, mup, depth-mup, ode, completep, complete-dp, block-multiplier, or alpha,gamma. By
    default depth-mup if branches have one matrix, else completep."""

    optimizer: str = "adamw"
    """Optimizer by name (sgd, adam, adamw, muon, ...) or by family (raw, entrywise, spectral)."""

    batch: str = "batch"
    """Function that returns a batch; only the shapes of its inputs matter here."""

    explicit: bool = False
    """Apply multipliers in the forward pass by hooks, instead of folding them into parameters."""

    meta: bool = False
    """Build both models on the meta device, which takes no memory."""

    own_init: Literal["measured", "fixed", "fan_in"] = "measured"
    """How the model's own initialization depends on its size, where its code does not show that:
    measured, fixed (the same at every size) or fan_in (like torch's layers)."""

    explain: str = ""
    """Explain in words what is prescribed for this parameter, instead of printing the table."""

    out: Path | None = None
    """File for the plan as JSON."""


def run(options: Options) -> int:
    """Make the plan and print it."""
    import torch

    from depthmup.cli.folders import prepare_file
    from depthmup.model import Model, resolved, size
    from depthmup.planning import plan, recorded

    if options.out is not None:
        prepare_file(options.out, option="--out")
    given = Model.load(options.model, batch=options.batch)
    make = resolved(given).make
    base, target = size(options.base), size(options.target)
    torch.manual_seed(0)
    with torch.device("meta") if options.meta else nullcontext():
        (model, drawn), (small, base_drawn) = (
            recorded(partial(make, *shape)) for shape in (target, base)
        )
    prescribed = plan(
        model,
        base=small,
        scheme=options.scheme or None,
        optimizer=options.optimizer,
        example_inputs=given.example_inputs(),
        folding=not options.explicit,
        own_init=None if options.own_init == "measured" else options.own_init,
        drawn=(drawn, base_drawn),
    )
    print(prescribed.explain(options.explain) if options.explain else prescribed)
    if options.out is not None:
        prescribed.save(options.out)
        print(f"Saved {options.out}")
    return 0
