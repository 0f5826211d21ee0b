"""``depthmup plan``: initialization, multipliers and learning rates that a scheme prescribes."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from depthmup.cli.folders import page_and_data
from depthmup.cli.output import print_json, write_files
from depthmup.records import RUN_AXES
from depthmup.records.sizes import parse_size, size_text

if TYPE_CHECKING:
    from depthmup.planning import Plan

Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show the factors that a scheme prescribes for each parameter, and why.

    The file that --model names also defines batch(generator) -> (inputs, targets).

        depthmup plan --model mine.py:make --base 64x4 --target 1024x32 --out runs/plan
        depthmup plan --model mine.py:make --base 64x4 --target 1024x32 --explain head.weight
        depthmup plan --model mine.py:make --base 64x4 --target 1024x32 --format torchtitan
    """

    model: str
    """Your model: module:factory or path/to/file.py:factory, called as factory(width, depth)."""

    base: Names

    target: Names
    """Size to train, same format. Missing axes take the base's value."""

    scheme: str = ""
    """Scheme: {schemes}, or alpha,gamma; for mixtures of experts with a plus and one of
    {expert rules}. By default depth-mup if branches have one matrix, else completep."""

    optimizer: str = "adamw"
    """Optimizer by name, such as adamw or muon (`depthmup rules` lists all), or by family:
    {families}."""

    tuned_with: str = ""
    """Optimizer that the base's learning rate was tuned with, where --optimizer is another one,
    such as adamw for muon-rms: factors then convert the rate."""

    batch: str = "batch"
    """Function that returns a batch; only the shapes of its inputs matter here."""

    depth: float | None = None
    """Depth ratio of target to base, if counting residual additions gets it wrong."""

    explicit: bool = False
    """Apply multipliers in the forward pass by hooks, instead of folding them into parameters."""

    meta: bool = False
    """Build both models on the meta device, which takes no memory."""

    own_init: Literal["measured", "fixed", "fan_in"] = "measured"

    explain: str = ""
    """Explain this parameter's factors in words, instead of printing the table."""

    format: Literal["", "json", "torchtitan", "automodel", "axolotl", "megatron"] = ""
    """Print groups of parameters instead, each a pattern of names with its factors: as JSON or as a
    trainer's configuration."""

    lr: float | None = None
    """With --format: the learning rate at the base, where the format holds values."""

    weight_decay: float = 0.0
    """With --format: the weight decay at the base."""

    eps: float | None = None
    """With --format: the optimizer's epsilon at the base; torch's by default."""

    leave_out: Names = ()
    """With --format: leave out multipliers, epsilon, decay or betas where the format cannot hold
    them."""

    out: Path | None = None
    """Folder for plan.html and plan.json; or a file that ends in .html or .json; the other is
    written next to it."""

    json: bool = False
    """Print the plan as JSON, as in plan.json, and nothing else on stdout."""


def run(options: Options) -> int:
    """Make the plan and print it."""
    import torch
    from torch import nn

    from depthmup._isolated import isolated
    from depthmup.model import (
        Model,
        batches_at,
        check_axes,
        check_batch,
        network_at,
        resolved,
    )
    from depthmup.planning import PlanOptions, plan, recorded

    _check_format(options)
    files = None if options.out is None else page_and_data(options.out, "plan")
    base, target = _sizes(options)
    own = resolved(Model.load(options.model, batch=options.batch))
    check_axes(own, base)
    torch.manual_seed(0)

    @isolated(generators=False)
    def at(size: Mapping[str, int]) -> tuple[nn.Module, Any]:
        with torch.device("meta") if options.meta else nullcontext():
            return recorded(partial(network_at, own, size))

    (model, drawn), (small, base_drawn) = at(target), at(base)
    with isolated():
        inputs, _ = check_batch(batches_at(own, target)(torch.Generator().manual_seed(0)))
    prescribed = plan(
        model,
        base=small,
        scheme=options.scheme or None,
        optimizer=options.optimizer,
        example_inputs=inputs,
        depth=options.depth,
        folding=not options.explicit,
        own_init=None if options.own_init == "measured" else options.own_init,
        drawn=(drawn, base_drawn),
        options=PlanOptions(tuned_with=options.tuned_with),
    )
    if options.json:
        print_json(prescribed.to_json())
    elif options.format:
        text = prescribed.overrides(
            options.format,
            lr=options.lr,
            weight_decay=options.weight_decay,
            eps=options.eps,
            leave_out=options.leave_out,
        )
        print(text, end="")
    else:
        print(prescribed.explain(options.explain) if options.explain else prescribed)
    sizes = f"{size_text(base)} to {size_text(target)}"
    write_files(
        files,
        prescribed.to_json(),
        lambda data: _page(prescribed, model=options.model, sizes=sizes, data=data),
    )
    return 0


def _check_format(options: Options) -> None:
    """Refuse values that only a configuration holds, where none is printed."""
    given = {
        "--lr": options.lr is not None,
        "--weight-decay": options.weight_decay != 0,
        "--eps": options.eps is not None,
        "--leave-out": bool(options.leave_out),
    }
    if any(given.values()) and not options.format:
        named = next(name for name, there in given.items() if there)
        raise ValueError(
            f"Expected --format with {named}: a plan holds factors, and no values. Add e.g. "
            "--format torchtitan, or leave it out."
        )


def _sizes(options: Options) -> tuple[dict[str, int], dict[str, int]]:
    """The base and the target, by axis."""
    base, target = (
        parse_size(words, option=f"--{name}")
        for name, words in (("base", options.base), ("target", options.target))
    )
    if not base or not target:
        raise ValueError("Expected --base and --target as sizes, such as 64x4 and 1024x32.")
    if unknown := target.keys() - base.keys():
        raise ValueError(f"Expected --target to name axes of --base; got {min(unknown)} as well.")
    for axis in RUN_AXES:
        if axis in target and target[axis] != base[axis]:
            raise ValueError(
                f"Expected --target to keep the base's {axis}: this command plans the model. For "
                "the run, see depthmup rules, or depthmup.plan(options=PlanOptions(batch=, "
                "duration=))."
            )
    return base, {**base, **target}


_USE = """\
plan = depthmup.Plan.load("{data}")
plan.initialize(model)
"""
_OF_ALL = """\
optimizer = {of}(plan.param_groups(model, lr, weight_decay=weight_decay), lr)
plan.verify(model, optimizer)
"""
_OF_MATRICES = """\
groups = plan.muon_groups(model, lr=lr, adamw_lr=adamw_lr)
first = {first}
optimizers = [first, torch.optim.AdamW(groups.adamw, adamw_lr)]
plan.verify(model, optimizers)
"""
_FIRST = {
    "muon": "torch.optim.Muon(groups.muon, lr)",
    "muon-rms": 'torch.optim.Muon(groups.muon, lr, adjust_lr_fn="match_rms_adamw")',
}


def _page(plan: "Plan", *, model: str, sizes: str, data: str) -> str:
    """The page of a plan; ``sizes`` are its base and its target in words."""
    from depthmup.planning.show import caption, factor_texts, forward, rows, sizes_text
    from depthmup.reports import Page, Section, Table
    from depthmup.reports.next_steps import class_of

    table = []
    for row in rows(plan):
        p = row.first
        # Factors stand first: a telephone shows the first columns alone.
        cells = {"parameter": row.pattern + (f"  x{row.count}" if row.count > 1 else "")}
        for name, (value, law) in factor_texts(p).items():
            cells[name] = f"{value}\n{law}".rstrip()
        cells |= {
            "multiplier": "\n".join(forward(plan, p)),
            "own init": row.own,
            "role": str(p.role),
            "shape": f"{sizes_text(p.shape)}\n<- {sizes_text(p.base_shape)}",
        }
        table.append(cells)
    source, *notes = caption(plan).splitlines()
    first = _FIRST.get(plan.optimizer, f"Mine(groups.muon, lr=lr)  # your {plan.optimizer}")
    of = class_of(plan.optimizer)
    use = (_OF_MATRICES if plan.family.matrices_only else _OF_ALL).format(first=first, of=of)
    return Page(
        title=f"Plan of {model}",
        headline=f"{plan.title} for {plan.optimizer}, from {sizes}",
        lead=[source],
        sections=[
            Section(
                title="Use it",
                lead="With the learning rate and the weight decay of the base; the factors follow.",
                code=_USE.format(data=data) + use,
            ),
            Section(
                title="Parameters",
                lead="Factors of the base's values, with their laws.",
                table=Table(rows=table, name="Parameters"),
            ),
        ],
        notes=notes,
        command=["depthmup", *sys.argv[1:]],
        files=[data],
    ).html()
