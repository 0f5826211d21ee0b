"""The plan: a scheme applied to a model, parameter by parameter."""

import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from depthmup.planning import (
    apply,
    clipping,
    document,
    explanation,
    export,
    groups,
    hooks,
    html,
    rescale,
    table,
    verification,
)
from depthmup.planning.anatomy import anatomy
from depthmup.planning.declared import BranchHints, RoleHints
from depthmup.planning.declared_init import check_patterns, declared
from depthmup.planning.default_scheme import default_scheme
from depthmup.planning.depth_ratios import StreamDepth
from depthmup.planning.initializers import Drawn
from depthmup.planning.measured import Measured, exactly, measure
from depthmup.planning.own_init import (
    OwnInit,
    OwnLaw,
    Sizes,
    UnrecognizedInit,
    recognize,
)
from depthmup.planning.prescription import Multiplier, Prescription, prescribe
from depthmup.rules import CAVEATS, Family, Ratios, Scheme, named
from depthmup.rules import scheme as scheme_named
from depthmup.tracing import ExampleInputs, Facts, parameters, pattern_of, plain_name

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from rich.console import Console, ConsoleOptions, Group
    from rich.text import Text


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """What a scheme prescribes for one model under one optimizer, and how to apply it.

    Printing a plan shows a table of every parameter; repeated layers share a row. The plan holds
    names and numbers only: it can be saved, loaded, and applied to any copy of the model, wrapped
    or sharded in any way.
    """

    scheme: str
    title: str
    source: str
    optimizer: str
    family: Family
    prescriptions: tuple[Prescription, ...]
    multipliers: tuple[Multiplier, ...]
    notes: tuple[str, ...] = ()
    one_minus_beta: float = 1.0
    own_init: OwnInit | None = None
    base_init: Mapping[str, Measured] = field(default_factory=dict, repr=False)
    base_default: Mapping[str, Measured] = field(default_factory=dict, repr=False)
    model_init: Mapping[str, Measured] = field(default_factory=dict, repr=False)
    own_laws: Mapping[str, OwnLaw] = field(default_factory=dict, repr=False)
    depths: tuple[StreamDepth, ...] = ()

    def __getitem__(self, name: str) -> Prescription:
        """The prescription of one parameter, under any of its names."""
        for p in self.prescriptions:
            if name in p.names:
                return p
        raise KeyError(
            f"The plan has no parameter {name!r}; it has {self.prescriptions[0].name!r} and "
            f"{len(self.prescriptions) - 1} others."
        )

    def __str__(self) -> str:
        return table.text(self, _columns())

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.title} for {self.optimizer}, {len(self.prescriptions)} parameters, "
            f"{len(self.multipliers)} multipliers; print it for the table>"
        )

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[Group | Text]":
        yield table.page(self, options.max_width)

    def _repr_html_(self) -> str:
        return html.table(self)

    def explain(self, name: str) -> str:
        """Say in words what is prescribed for a parameter, and why."""
        return explanation.explain(self, name)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per parameter."""
        return table.frame(self)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON."""
        Path(path).write_text(document.dumps(self), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read a plan that ``save`` wrote; refuses one that was changed since."""
        return Plan(**document.read(Path(path)))

    def initialize(self, model: nn.Module, *, force: bool = False) -> None:
        """Rescale the model's own initialization in place, and attach explicit multipliers."""
        apply.initialize(self, model, force=force)

    def attach(self, model: nn.Module) -> None:
        """Install the explicit multipliers (none if all are folded). Repeating it is harmless."""
        apply.check(self, model)
        hooks.attach(model, self.multipliers)

    def detach(self, model: nn.Module) -> None:
        """Remove the explicit multipliers."""
        hooks.detach(model)

    def export(self, model: nn.Module) -> nn.Module:
        """A copy whose plain class computes the same: explicit multipliers become weights.

        Tied weights come apart where one of their uses has a multiplier.
        """
        apply.check(self, model)
        return export.export(model, self.multipliers)

    def param_groups(
        self, model: nn.Module, *, lr: float, weight_decay: float = 0.0, **options: Any
    ) -> list[dict[str, Any]]:
        """Parameter groups for one optimizer; see ``groups.param_groups``."""
        return groups.param_groups(self, model, lr=lr, weight_decay=weight_decay, **options)

    def muon_groups(
        self, model: nn.Module, *, lr: float, adamw_lr: float, **options: Any
    ) -> groups.MuonGroups:
        """Parameter groups for Muon and for the AdamW beside it; see ``groups.muon_groups``."""
        return groups.muon_groups(self, model, lr=lr, adamw_lr=adamw_lr, **options)

    def rescale(
        self,
        model: nn.Module,
        optimizer: "torch.optim.Optimizer | Iterable[Mapping[str, Any]]",
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Multiply the rates of groups that exist by the factors; see ``rescale.rescale``."""
        return rescale.rescale(self, model, optimizer, **options)

    def verify(self, model: nn.Module, optimizer: verification.Optimizers, **options: Any) -> None:
        """Refuse what does not train the model by this plan; see ``verification.verify``."""
        verification.verify(self, model, optimizer, **options)

    def watch(
        self, model: nn.Module, optimizer: verification.Optimizers, **options: Any
    ) -> list[Any]:
        """Verify now and again while the optimizer steps; see ``verification.watch``."""
        return verification.watch(self, model, optimizer, **options)

    def clip_grad_norm_(
        self, model: nn.Module, max_norm: float, *, norm_type: float = 2.0
    ) -> Tensor:
        """Clip by the norm of the gradients that the unfolded model would have."""
        return clipping.clip_grad_norm_(self, model, max_norm, norm_type=norm_type)


def plan(
    model: nn.Module,
    base: nn.Module,
    *,
    scheme: str | Scheme | None = None,
    optimizer: str | Family | type = "adamw",
    example_inputs: ExampleInputs | None = None,
    base_inputs: ExampleInputs | None = None,
    branches: BranchHints | None = None,
    roles: RoleHints | None = None,
    own_init: OwnInit | None = None,
    drawn: tuple[Mapping[str, Drawn], Mapping[str, Drawn]] | None = None,
    facts: tuple[Facts, Facts] | None = None,
    depth: float | None = None,
    folding: bool = True,
    multiplier: float = 1.0,
    batch: float = 1.0,
    duration: float = 1.0,
) -> Plan:
    """Apply a width x depth parametrization to a model, its code unchanged.

    Args:
        model: the model to train, on any device, ``meta`` included; wrapped or not.
        base: the same architecture in the size whose hyperparameters are known; may be on
            ``meta``.
        scheme: a name of ``depthmup.rules.CATALOGUE``, ``"alpha,gamma"``, or a ``Scheme``; by
            default Depth-muP where branches have one matrix, else CompleteP, with a note.
        optimizer: a name of ``depthmup.rules.OPTIMIZERS`` (or Trainer's, such as
            ``"adamw_torch_fused"``), its class or, for any other, its family
            (``depthmup.family_of`` measures it).
        example_inputs: arguments of one forward pass: a tensor, a tuple, or a dict of keywords.
            Only shapes and types matter.
        base_inputs: the same for the base, where they differ.
        branches: where the residual branches are, if the dataflow does not show it.
        roles: what single parameters are, if their use does not show it.
        own_init: how the model's initialization depends on its size, if it cannot be measured:
            ``"fixed"``, ``"fan_in"``, a ``Power``, or one of these per pattern of names; what no
            pattern names is measured.
        drawn: what the parameters of the model and of the base were drawn from, as
            ``depthmup.planning.recorded`` saw their factory draw them: then nothing is estimated.
        facts: what ``depthmup.tracing.read`` gave for the model and for the base, where they were
            read before.
        depth: how many times as deep as the base the model is (r), in place of the residual
            additions that are counted along each stream; the printed plan says what was counted.
        folding: keep forward multipliers in parameters where that is exact (the model's forward
            pass stays as it is); ``False`` keeps all of them in hooks.
        multiplier: of every branch at the base, beside the model's own: the paper's a.
        batch, duration: batch size and examples seen, as multiples of the base run's.

    Raises:
        UnrelatedModels, TraceError, NotUnderstood, UnrecognizedInit: each says what to do.

    Example:
        >>> import torch, depthmup
        >>> def make(width, depth):
        ...     return nn.Sequential(nn.Linear(8, width), *(Block(width) for _ in range(depth)),
        ...                          nn.Linear(width, 2))
        >>> class Block(nn.Module):
        ...     def __init__(self, width):
        ...         super().__init__()
        ...         self.linear = nn.Linear(width, width)
        ...     def forward(self, x):
        ...         return x + self.linear(x).relu()
        >>> model = make(64, 8)
        >>> plan = depthmup.plan(model, base=make(16, 2), scheme="depth-mup", optimizer="adamw",
        ...                      example_inputs=torch.zeros(4, 8), own_init="fan_in")
        >>> plan["3.linear.weight"].lr    # 1/4 for width, 1/sqrt(4) for depth, folded: again 1/2
        0.0625
        >>> plan.initialize(model)
        >>> groups = plan.param_groups(model, lr=1e-2, weight_decay=0.1)
        >>> optimizer = torch.optim.AdamW(groups, lr=1e-2)    # lr also here: schedulers read it
    """
    given = None if scheme is None else scheme_named(scheme)
    name, family = named(optimizer)
    if not 0 < multiplier < math.inf:
        raise ValueError(
            f"Expected multiplier, that of the branches at the base, to be positive; got "
            f"{multiplier}."
        )
    if depth is not None and not 0 < depth < math.inf:
        raise ValueError(f"Expected depth, the ratio of the depths, to be positive; got {depth}.")
    found = anatomy(
        model,
        base,
        example_inputs=example_inputs,
        base_inputs=base_inputs,
        branches=branches,
        roles=roles,
        depth=depth,
        read_before=facts,
    )
    chosen, why = (given, "") if given is not None else default_scheme(found.places)
    run = Ratios(batch=batch, duration=duration)
    prescriptions, multipliers = prescribe(
        found, chosen, family, run=run, folding=folding, multiplier=multiplier
    )
    notes = found.notes + tuple(note for note in (why, CAVEATS.get(name)) if note)
    if found.positive and 0 < chosen.alpha < 1:
        notes += (_coherent(found.positive[0], chosen),)
    names = [p.name for p in prescriptions]
    check_patterns(own_init, names)
    seen, base_seen = drawn or ({}, {})
    base_names = {place.name: place.base_name for place in found.places}
    # A scheme without a theory of width leaves a model's own scales alone.
    gains = found.temperatures if chosen.follows_width else ()
    seen = {**_numbers(model, gains), **seen}
    base_seen = {**_numbers(base, [base_names[name] for name in gains]), **base_seen}
    unknown = [n for n in gains if parameters(base)[base_names[n]].is_meta]
    if unknown and not all(base_names[name] in base_seen for name in unknown):
        notes += (_unknown_start(unknown),)
    model_init = _exact(model, seen)
    ours = apply.sizes_of(model, model_init)
    theirs = apply.sizes_of(base, _exact(base, base_seen))
    own_laws: Mapping[str, OwnLaw] = {}
    try:
        own_laws, more = _own_laws(prescriptions, own_init, ours, theirs)
        notes += more
    except UnrecognizedInit as problem:  # parameter groups do not depend on it
        notes += (f"initialize would refuse: {problem}",)
    return Plan(
        scheme=chosen.name,
        title=chosen.title,
        source=chosen.source,
        optimizer=name,
        family=family,
        prescriptions=prescriptions,
        multipliers=multipliers,
        notes=notes,
        one_minus_beta=chosen.run.one_minus_beta.at(run),
        own_init=own_init,
        base_init=theirs.measured if theirs is not None else {},
        base_default=theirs.defaults if theirs is not None else {},
        model_init=model_init,
        own_laws=own_laws,
        depths=found.depths,
    )


def _columns() -> int | None:
    """The width of the terminal that is printed to, or of $COLUMNS; None where there is neither."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


def _numbers(model: nn.Module, names: Iterable[str]) -> dict[str, Drawn]:
    """Parameters of one value, taken for what they are set to and not for a draw."""
    tensors = parameters(model)
    values = {name: measure(tensors[name]) for name in names}
    return {
        name: Drawn(rms=value.rms, constant=value.constant)
        for name, value in values.items()
        if value is not None and value.constant is not None
    }


def _coherent(label: str, scheme: Scheme) -> str:
    return (
        f"The branch {pattern_of(label)} ends in a nonlinearity whose mean is positive, so what "
        "branches add does not cancel: at the start the stream grows as "
        f"depth^{1 - scheme.alpha} under {scheme.title}. Subtract the mean over features from the "
        "branch (as the paper does), put the nonlinearity before the matrix, or take "
        "scheme='completep' (alpha = 1)."
    )


def _unknown_start(names: Sequence[str]) -> str:
    return (
        f"{pattern_of(names[0])} multiplies a product of activations, and how "
        "it starts in the base is not known, as that is on the meta device. It is taken to start "
        "as own_init says; where it starts at 1/sqrt(head size), pass a base with values."
    )


def _exact(model: nn.Module, drawn: Mapping[str, Drawn]) -> dict[str, Measured]:
    plain = {plain_name(name): d for name, d in drawn.items()}
    return {
        name: exactly(plain[name], p.numel())
        for name, p in parameters(model).items()
        if name in plain
    }


def _own_laws(
    prescriptions: tuple[Prescription, ...],
    own_init: OwnInit | None,
    ours: Sizes | None,
    theirs: Sizes | None,
) -> tuple[Mapping[str, OwnLaw], tuple[str, ...]]:
    """How each parameter's start depends on size, as far as it can be told, and notes on it."""
    measured = (ours.measured if ours else {}, theirs.measured if theirs else {})
    laws = declared(prescriptions, own_init, *measured)
    rest = [p for p in prescriptions if p.name not in laws]
    if not rest or ours is None or theirs is None:
        return laws, ()
    recognized = recognize(rest, ours, theirs)
    return {**laws, **recognized.laws}, recognized.notes
