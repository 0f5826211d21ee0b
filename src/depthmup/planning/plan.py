"""The plan: a scheme applied to a model, parameter by parameter."""

import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from depthmup._drafts import write_text
from depthmup._meant import Meant, keywords
from depthmup.planning import (
    clip,
    document,
    explain,
    export,
    groups,
    hooks,
    initialize,
    overrides,
    rescale,
    show,
    verify,
)
from depthmup.planning.anatomy import anatomy
from depthmup.planning.choice import chosen_scheme
from depthmup.planning.content import PlanContent
from depthmup.planning.declared import BranchHints, RoleHints
from depthmup.planning.factory import Factory, of_factory
from depthmup.planning.heads import heads_apart, heads_note
from depthmup.planning.options import PlanOptions
from depthmup.planning.own_init import OwnInit
from depthmup.planning.prescribe import Prescription, no_matrices, prescribe
from depthmup.planning.proof import PROOF, Loss, prove
from depthmup.planning.remedy import with_remedy
from depthmup.planning.several import HasGroups, Optimizers
from depthmup.planning.starts import Draws, numbers_of, own_start
from depthmup.planning.tuned_with import tuned_with
from depthmup.rules import CAVEATS, Family, Ratios, Scheme, named, run_rule, step_size
from depthmup.rules import scheme as scheme_named
from depthmup.tracing import ExampleInputs

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, ConsoleOptions, Group
    from rich.text import Text
    from torch.distributed import ProcessGroup
    from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Meant, PlanContent):
    """A scheme applied to one model under one optimizer: factors of every parameter.

    Printing a plan shows a table of every parameter; repeated layers share a row. The plan holds
    names and numbers only: it can be saved, loaded, and applied to any copy of the model, wrapped
    or sharded in any way.

    Attributes:
        scheme, title, source: the scheme by its name, in words, and its paper.
        optimizer, family: the optimizer by its name, and the kind of its updates.
        prescriptions: one for each parameter.
        multipliers: forward multipliers, which parameters carry or hooks apply.
        notes: warnings and assumptions, to read before training.
        one_minus_beta, log_beta2: factors of 1 - beta and of log beta2 at this batch size and
            duration.
        own_init: the declared initialization of the model, if any.
        base_init, base_default: the base's measured initial sizes by parameter, and the sizes of
            torch's defaults.
        model_init: the model's own initial sizes.
        own_laws: how each parameter's own initialization depends on size.
        depths: the depth ratio of each residual stream, and its count of additions.
        mixtures: how mixtures of experts grow.
        tuned_with: the optimizer that the base's rate was tuned with, if not the plan's own.
        proof: what was measured of the plan before it was given back, or why nothing was.
    """

    MEANT: ClassVar = {
        **dict.fromkeys(("table", "df", "to_df", "dataframe", "frame"), "plan.to_pandas()"),
        **dict.fromkeys(("summary", "show"), "print(plan)"),
        **dict.fromkeys(("to_dict", "export_json"), "plan.to_json() or plan.save(path)"),
        "apply": "plan.initialize(model), and plan.param_groups(model, lr) for the optimizer",
        "init": "plan.initialize(model)",
        "parameters": "plan.prescriptions",
        "step": "plan.watch(model, optimizer) before training",
    }

    def __str__(self) -> str:
        return show.text(self, _columns())

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.title} for {self.optimizer}, {len(self.prescriptions)} parameters, "
            f"{len(self.multipliers)} multipliers; print it for the table>"
        )

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[Group | Text]":
        yield show.page(self, options.max_width)

    def _repr_html_(self) -> str:
        return show.html(self)

    def __len__(self) -> int:
        return len(self.prescriptions)

    def __iter__(self) -> Iterator[str]:
        return (prescription.name for prescription in self.prescriptions)

    def explain(self, name: str) -> str:
        """Explain a parameter's factors in words, or what the plan makes of a setting.

        Args:
            name: of the parameter, one of all its names if it is shared; or ``lr``,
                ``weight_decay``, ``eps`` or ``betas``.

        Returns:
            A few sentences.

        Raises:
            KeyError: the plan has no such parameter.
        """
        return explain.explain(self, name)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per parameter.

        Returns:
            Names, roles, ratios and factors.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return show.frame(self)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON.

        Args:
            path: of the file.
        """
        write_text(Path(path), self.to_json())

    def to_json(self) -> str:
        """The plan as JSON, as ``save`` writes it.

        Returns:
            The text; its numbers are exact.
        """
        return document.dumps(self)

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Read a plan that ``save`` wrote; refuses one that was changed since.

        Args:
            path: of the file.

        Returns:
            The plan, its exponents exact.

        Raises:
            PlanDocumentError: the file is no plan, was changed, or is of another version.
        """
        return Plan(**document.read(Path(path)))

    def initialize(self, model: nn.Module, *, force: bool = False) -> None:
        """Rescale the model's own initialization in place, and attach explicit multipliers.

        Args:
            model: the one that was planned, or a copy of it, before any training.
            force: initialize again, after the model's own initialization ran again.

        Raises:
            PlanMismatch: this is not the model of the plan.
            UnrecognizedInit: the model's own initialization depends on its size in no known way.
            RuntimeError: a plan has initialized the model before.
        """
        initialize.initialize(self, model, force=force)

    def attach(self, model: nn.Module) -> None:
        """Install the explicit multipliers (none if all are folded). Repeating it is harmless.

        Args:
            model: of the plan; built anew for every process that loads a checkpoint.

        Raises:
            PlanMismatch: this is not the model of the plan.
        """
        initialize.check(self, model)
        hooks.attach(model, self.multipliers)

    def detach(self, model: nn.Module) -> None:
        """Remove the explicit multipliers.

        Args:
            model: that ``attach`` or ``initialize`` was called for.
        """
        hooks.detach(model)

    def export(self, model: nn.Module) -> nn.Module:
        """A copy of the plain class that computes the same: explicit multipliers become weights.

        Tied weights come apart where one of their uses has a multiplier.

        Args:
            model: of the plan, trained.

        Returns:
            The copy; the model itself stays as it is.

        Raises:
            PlanMismatch: this is not the model of the plan.
        """
        initialize.check(self, model)
        return export.export(self, model)

    @keywords
    def overrides(
        self,
        format: str,
        *,
        lr: float | None = None,
        weight_decay: float = 0.0,
        eps: float | None = None,
        betas: tuple[float, float] | None = None,
        min_lr: float = 0.0,
        leave_out: str | Iterable[str] = (),
    ) -> str:
        """The plan as a trainer's configuration: a pattern of names a group, and its factors.

        Patterns match exactly the plan's names. Numbers are read back to the last bit.

        Args:
            format: ``"torchtitan"`` (``ParamGroupConfig``), ``"automodel"`` (NeMo's
                ``param_group_overrides``), ``"axolotl"`` (``lr_groups``), ``"megatron"``
                (``config_overrides``), or ``"json"``, which has every factor, also of initial
                scales and forward multipliers.
            lr, weight_decay, eps, betas: at the base, for formats that hold values.
            min_lr: Megatron's floor, at the base.
            leave_out: ``multipliers``, ``epsilon``, ``decay`` or ``betas``, to leave out where the
                format cannot hold them.

        Returns:
            Text in the format's own language.

        Raises:
            ValueError: the format cannot hold the plan; the message has the remedy.

        Example:
            >>> import torch, depthmup
            >>> from depthmup.models import ResidualMLP
            >>> def make(width, depth):
            ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=2)
            >>> plan = depthmup.plan(make(64, 8), make(16, 8), scheme="mup", own_init="fan_in",
            ...                      example_inputs=torch.zeros(4, 8))
            >>> text = plan.overrides("automodel", leave_out="epsilon")
            >>> print(text.splitlines()[-1].partition("$', ")[2])
            lr_mult: 0.25, wd_mult: 4.0}
        """
        values = overrides.Settings(
            lr=lr, weight_decay=weight_decay, eps=eps, betas=betas, min_lr=min_lr
        )
        return overrides.overrides(self, format, values, leave_out=leave_out)

    def param_groups(
        self,
        model: nn.Module,
        lr: float,
        *,
        adamw_lr: float | None = None,
        weight_decay: float = 0.0,
        vector_weight_decay: float | None = None,
        eps: float | tuple[float | None, float] | None = None,
        betas: tuple[float, float] | None = None,
        decoupled: bool | None = None,
        independent_decay: bool = False,
        **settings: Any,
    ) -> list[dict[str, Any]]:
        """Parameter groups for one optimizer, from the hyperparameters that are right at the base.

        Parameters with the same factors share a group. Each group has the settings (``lr``,
        ``weight_decay``, ``eps``), their values at the base (``lr_base``, ``weight_decay_base``,
        ``eps_base``), the names of its parameters (``param_names``) and its ``lr_factor``: a
        schedule that sets absolute rates multiplies by it. Frozen parameters are left out.

        Args:
            model: of the plan.
            lr: the learning rate at the base.
            adamw_lr: at the base, of all but hidden matrices, if ``lr`` is that of an optimizer of
                matrices (``PlanOptions.tuned_with``).
            weight_decay: at the base.
            vector_weight_decay: of gains and biases (usually 0), if it is another one.
            eps, betas: at the base. Adafactor's ``eps`` is a pair, as in torch.
            decoupled: whether ``lr * weight_decay * w`` is subtracted from the weight, for an
                optimizer that the library does not know by name.
            independent_decay: the optimizer subtracts ``weight_decay * w`` and not
                ``lr * weight_decay * w``.
            settings: of torch's optimizer (``momentum``, ``nesterov``, ...), copied into every
                group.

        Returns:
            Groups, each with the names of its parameters, its ``lr_factor`` and the base's values.

        Raises:
            TypeError: a setting that the plan's optimizer does not have.
            ValueError: decay that is coupled to an entrywise optimizer, which cannot transfer; an
                optimizer of matrices alone, which needs ``muon_groups``.
        """
        return groups.param_groups(
            self,
            model,
            lr=lr,
            adamw_lr=adamw_lr,
            weight_decay=weight_decay,
            vector_weight_decay=vector_weight_decay,
            eps=eps,
            betas=betas,
            decoupled=decoupled,
            independent_decay=independent_decay,
            **settings,
        )

    @keywords
    def muon_groups(
        self,
        model: nn.Module,
        *,
        lr: float,
        adamw_lr: float,
        weight_decay: float = 0.0,
        adamw_weight_decay: float | None = None,
        vector_weight_decay: float | None = None,
        eps: float = 1e-8,
        matrix_eps: float | None = None,
        betas: tuple[float, float] | None = None,
        independent_decay: bool = False,
    ) -> groups.MuonGroups:
        """Parameter groups for Muon (hidden matrices) and for AdamW (all the rest).

        With ``torch.optim.Muon`` the family ``"muon"`` is its default adjustment and ``"muon-rms"``
        is ``adjust_lr_fn="match_rms_adamw"``. Any other optimizer of matrices (Shampoo, SOAP,
        AdaMuon, MuonH) takes the place of Muon.

        Args:
            model: of the plan.
            lr: of the matrices' optimizer, at the base.
            adamw_lr: of AdamW, at the base.
            weight_decay: of the matrices' optimizer, at the base.
            adamw_weight_decay: of AdamW, at the base; the same unless given.
            vector_weight_decay: of gains and biases, if it is another one.
            eps, betas: of AdamW, at the base.
            matrix_eps: of an optimizer in the place of Muon, if it is to be scaled.
            independent_decay: as in ``param_groups``, for both.

        Returns:
            Groups for two optimizers; ``JoinedOptimizer`` makes them one.

        Raises:
            ValueError: the plan is for an optimizer of all parameters, or decay on a sphere.
        """
        return groups.muon_groups(
            self,
            model,
            lr=lr,
            adamw_lr=adamw_lr,
            weight_decay=weight_decay,
            adamw_weight_decay=adamw_weight_decay,
            vector_weight_decay=vector_weight_decay,
            eps=eps,
            matrix_eps=matrix_eps,
            betas=betas,
            independent_decay=independent_decay,
        )

    @keywords
    def rescale(
        self,
        model: nn.Module,
        optimizer: HasGroups | Iterable[Mapping[str, Any]],
        *,
        defaults: Mapping[str, Any] | None = None,
        independent_decay: bool = False,
        strict: bool = True,
        trust: bool = False,
    ) -> list[dict[str, Any]]:
        """Multiply learning rates, epsilons and decays of groups that exist by the factors.

        A group is split if its parameters have different factors; every other key is copied, and
        parameters outside the plan stay as they are. The groups have the base's rates.

        Args:
            model: the planned one; the groups hold its parameters.
            optimizer: one that was just built, or a wrapper of one, changed in place: its groups
                get the keys ``lr_factor``, ``lr_origin`` and the base's values (``lr_base``,
                ``weight_decay_base``, ``eps_base``). Call it again after adding a group: groups
                that were rescaled stay as they are. Or groups that one will be built from: they
                are copied, and get no new key, because some optimizers refuse keys unknown to them.
            defaults: ``lr``, ``weight_decay`` and ``eps`` of groups without their own.
            independent_decay: as in ``param_groups``.
            strict: ``False`` for a part of the model, such as a pipeline stage, and for a model
                with adapters (PEFT), whose own parameters keep their rates.
            trust: take the optimizer for what the plan is for, without trying it on small
                parameters: one that needs a closure of its own, second derivatives, or processes.

        Returns:
            The groups, which an optimizer already has.

        Raises:
            PlanMismatch: this is not the model of the plan, or none of its parameters is in a
                group.
            ValueError: the groups were rescaled before, have a scheduler already, lack a rate,
                belong to an optimizer of another family, or couple their decay.

        Example:
            >>> import torch, depthmup
            >>> from depthmup.models import ResidualMLP
            >>> def make(width, depth):
            ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=2)
            >>> model, x = make(64, 8), torch.zeros(4, 8)
            >>> plan = depthmup.plan(model, make(16, 8), scheme="mup", example_inputs=x,
            ...                      own_init="fan_in")
            >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            >>> groups = plan.rescale(model, optimizer)
            >>> sorted({group["lr"] for group in optimizer.param_groups})
            [0.0025, 0.01]
        """
        return rescale.rescale(
            self,
            model,
            optimizer,
            defaults=defaults,
            independent_decay=independent_decay,
            strict=strict,
            trust=trust,
        )

    def expand(self, optimizer: HasGroups, values: Sequence[Any]) -> list[Any]:
        """One value for each group, from one for each group that there was before ``rescale``.

        For schedules that take a list: ``LambdaLR(optimizer, plan.expand(optimizer, [f, g]))``,
        ``OneCycleLR(optimizer, max_lr=plan.expand(optimizer, [1e-3, 1e-4]), ...)``.

        Args:
            optimizer: that ``rescale`` has split.
            values: one for each of the groups that it had. Numbers are learning rates at the base,
                which are multiplied by each group's ``lr_factor``; functions are repeated.

        Returns:
            One value for each group that the optimizer has now.

        Raises:
            ValueError: groups that ``rescale`` has not split, or another number of values.

        Example:
            >>> import torch, depthmup
            >>> from depthmup.models import ResidualMLP
            >>> def make(width, depth):
            ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=2)
            >>> model, x = make(64, 8), torch.zeros(4, 8)
            >>> plan = depthmup.plan(model, make(16, 8), scheme="mup", example_inputs=x,
            ...                      own_init="fan_in")
            >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            >>> groups = plan.rescale(model, optimizer)
            >>> sorted(set(plan.expand(optimizer, [4.0])))
            [1.0, 4.0]
        """
        return rescale.expand(optimizer, values)

    @keywords
    def verify(
        self,
        model: nn.Module,
        optimizer: Optimizers,
        *,
        scheduler: "LRScheduler | None" = None,
        steps: int | None = None,
        initialized_by_plan: bool = True,
        independent_decay: bool = False,
        strict: bool = True,
        trust: bool = False,
    ) -> None:
        """Refuse an optimizer, a schedule or a model that does not follow this plan.

        Checks that every trained parameter of the plan is in one group with the plan's factor; that
        learning rates, decays and epsilons have the plan's ratios where groups came from one;
        that no two groups have come to one value, or changed places, or follow an absolute floor;
        that settings given to the optimizer outside the groups are not ignored; that explicit
        multipliers are attached; and that the plan initialized the model. Groups that are frozen
        (a rate of 0) or have a schedule of their own are as planned.

        Args:
            model: as it will be trained.
            optimizer: one, or all that train the model, wrapped or not.
            scheduler: of the optimizer: it is tried on a copy, step by step.
            steps: of the scheduler to try; by default all that it has left.
            initialized_by_plan: ``False`` where weights come from a checkpoint and ``initialize``
                was not called.
            independent_decay: as in ``param_groups``.
            strict: ``False`` for a part of the model, such as a pipeline stage, or one with
                adapters.
            trust: take the optimizer for what the plan is for, without trying it on small
                parameters: one that needs a closure of its own, second derivatives, or processes.

        Raises:
            PlanMismatch: with every problem, and what to do about each.
            ValueError: no optimizer, or a scheduler that does not say how long it is.
        """
        verify.verify(
            self,
            model,
            optimizer,
            scheduler=scheduler,
            steps=steps,
            initialized_by_plan=initialized_by_plan,
            independent_decay=independent_decay,
            strict=strict,
            trust=trust,
        )

    @keywords
    def watch(
        self,
        model: nn.Module,
        optimizer: Optimizers,
        *,
        at: Iterable[int] | None = None,
        independent_decay: bool = False,
        strict: bool = True,
        trust: bool = False,
    ) -> list[Any]:
        """Verify now, and the groups again before every step of the optimizer.

        Hooks of ``optimizer.step`` verify, so this works in any trainer, without a callback of its
        own; each compares a few numbers per group. Groups that a checkpoint brings or that are
        added are looked at as they come. Rates on a GPU are read before steps 1, 2, 10, 100, ...,
        because reading one waits for the GPU.

        Args:
            model: as it will be trained.
            optimizer: one, or all that train the model, wrapped or not.
            at: numbers of the steps before which to verify, the first being 1; all by default.
            independent_decay: as in ``param_groups``.
            strict: as in ``verify``.
            trust: take the optimizer for what the plan is for, without trying it on small
                parameters: one that needs a closure of its own, second derivatives, or processes.

        Returns:
            Handles; their ``remove()`` ends the watch.

        Raises:
            PlanMismatch: now, or from ``optimizer.step()``, before the step that would not be as
                planned.
        """
        return verify.watch(
            self,
            model,
            optimizer,
            at=at,
            independent_decay=independent_decay,
            strict=strict,
            trust=trust,
        )

    @keywords
    def clip_grad_norm_(
        self,
        model: nn.Module,
        max_norm: float,
        *,
        norm_type: float = 2.0,
        strict: bool = True,
        group: "ProcessGroup | None" = None,
    ) -> Tensor:
        """Clip gradients: the norm of the *unfolded* gradients is then at most ``max_norm``.

        With the multiplier A_i that each parameter carries,

            norm = (sum_i (A_i abs(g_i))^p)^(1/p),    g_i <- g_i min(1, max_norm / (norm + 1e-6)).

        Args:
            model: with gradients.
            max_norm: the largest norm.
            norm_type: p.
            strict: as in ``verify``.
            group: the processes that hold the other stages of a pipeline; the norm is over all of
                them.

        Returns:
            The norm before clipping, as ``torch.nn.utils.clip_grad_norm_`` does.

        Raises:
            PlanMismatch: this is not the model of the plan.
        """
        return clip.clip_grad_norm_(
            self, model, max_norm, norm_type=norm_type, strict=strict, group=group
        )

    @keywords
    def clip_grad_value_(self, model: nn.Module, clip_value: float, *, strict: bool = True) -> None:
        """Clip every entry of a gradient at ``clip_value`` times the plan's size of that gradient.

        With the size G_i of an entry of gradient i, as a multiple of the base's, and the multiplier
        A_i that the parameter carries,

            g_i <- clamp(g_i, -c, c),    c = clip_value G_i / A_i.

        One number for all clips small networks and leaves large ones alone: entries fall with size.

        Args:
            model: with gradients.
            clip_value: the largest entry at the base.
            strict: as in ``verify``.

        Raises:
            PlanMismatch: this is not the model of the plan.
            ValueError: ``clip_value`` is not positive.
        """
        clip.clip_grad_value_(self, model, clip_value, strict=strict)


def plan(
    model: nn.Module | Factory,
    base: nn.Module | Mapping[str, int],
    *,
    target: Mapping[str, int] | None = None,
    scheme: str | Scheme | None = None,
    optimizer: str | Family | type = "adamw",
    example_inputs: ExampleInputs | None = None,
    branches: BranchHints | None = None,
    roles: RoleHints | None = None,
    own_init: OwnInit | None = None,
    drawn: Draws | None = None,
    depth: float | None = None,
    folding: bool = True,
    options: PlanOptions | None = None,
    proof: str = "auto",
    loss: Loss | None = None,
) -> Plan:
    """Apply a width x depth parametrization to a model without changing its code.

    Args:
        model: a function that makes models, such as ``make(width, depth)``; or the model to train,
            on any device, ``meta`` included, wrapped or not.
        base: the tuned size, such as ``dict(width=64, depth=2)``; or the same architecture at that
            size, which may be on ``meta``.
        target: of a function that makes models, the size of the model to train.
        scheme: a name of ``depthmup.rules.CATALOGUE``, ``"alpha,gamma"``, or a ``Scheme``; by
            default Depth-muP where branches have one matrix, else CompleteP, with a note.
        optimizer: a name of ``depthmup.rules.OPTIMIZERS`` (or Trainer's, such as
            ``"adamw_torch_fused"``), its class or, for any other, its family
            (``depthmup.family_of`` measures it).
        example_inputs: arguments of one forward pass: a tensor, a tuple, or a dict of keywords.
            Only shapes and types matter.
        branches: where the residual branches are, if the dataflow does not show it.
        roles: what single parameters are, if their use does not show it.
        own_init: how the model's initialization depends on its size, if it cannot be measured:
            ``"fixed"``, ``"fan_in"``, a ``Power``, or one of these per pattern of names; all other
            parameters are measured.
        drawn: initial distributions of both models' parameters, from
            ``depthmup.planning.recorded``; they replace the measurement.
        depth: how many times as deep as the base the model is (r). By default residual additions
            along each stream are counted; the printed plan shows the count.
        folding: keep forward multipliers in parameters where that is exact (the model's forward
            pass stays as it is); ``False`` keeps all of them in hooks.
        options: less common settings (``PlanOptions``): batch size and duration in multiples of the
            base run's with a rule for them, other inputs of the base, a branch multiplier.
        proof: ``"auto"`` starts and trains copies of both models for three steps, where they have
            values and that takes seconds, and compares how what they give out grows with what the
            scheme expects; ``"off"`` does not.
        loss: what the proof trains, one number of what the model returns (``lambda out:
            out.loss``); by default the mean square distance of the outputs to random targets.

    Returns:
        The plan: factors for every parameter, and methods that apply them.

    Raises:
        UnrelatedModels, TraceError, NotUnderstood, UnrecognizedInit: the message has the remedy.
        Contradicted: the models do not start or train as the plan says.

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

    *Source:* the scheme's own, which ``plan.scheme.source`` names; factors are folded by Tensor
    Programs V (arXiv 2203.03466), Lemma J.1.
    """
    options = options or PlanOptions()
    if proof not in PROOF:
        raise ValueError(f"Expected proof to be 'auto' or 'off'; got {proof!r}.")

    def planned(roles: RoleHints) -> Plan:
        between = partial(
            _between,
            scheme=scheme,
            optimizer=optimizer,
            example_inputs=example_inputs,
            branches=branches,
            roles=roles,
            own_init=own_init,
            depth=depth,
            folding=folding,
            loss=loss,
        )
        if isinstance(model, nn.Module) and isinstance(base, nn.Module) and target is None:
            return between(model, base, drawn=drawn, options=options, proof=proof)
        if drawn is not None or options.facts != (None, None):
            raise ValueError(
                "Expected no drawn= and no facts beside a function that makes models: both are "
                "read from the models that it makes."
            )
        return of_factory(
            model, base, target, between, inputs=example_inputs, options=options, proof=proof
        )

    return with_remedy(planned, roles)


def _between(
    model: nn.Module,
    base: nn.Module,
    *,
    scheme: str | Scheme | None,
    optimizer: str | Family | type,
    example_inputs: ExampleInputs | None,
    branches: BranchHints | None,
    roles: RoleHints,
    own_init: OwnInit | None,
    drawn: Draws | None,
    depth: float | None,
    folding: bool,
    options: PlanOptions,
    proof: str,
    loss: Loss | None,
) -> Plan:
    """The plan of one model from another, as ``plan`` is asked for it."""
    given = None if scheme is None else scheme_named(scheme)
    name, family = named(optimizer)
    for compared_with in (options.tuned_with, name) if options.tuned_with else ():
        step_size(compared_with, (1, 1), norm=1.0)  # what is of no known size is refused here
    if depth is not None and not 0 < depth < math.inf:
        raise ValueError(f"Expected depth, the ratio of the depths, to be positive; got {depth}.")
    compared = anatomy(
        model,
        base,
        example_inputs=example_inputs,
        base_inputs=options.base_inputs,
        branches=branches,
        roles=roles,
        depth=depth,
        read_before=options.facts,
        numbers=numbers_of(drawn),
    )
    scheme, of_scheme = chosen_scheme(given, options.run, compared)
    run = Ratios(batch=options.batch, duration=options.duration)
    of_run = scheme.run_laws(scheme.run)
    heads = heads_apart(compared, options, family)
    prescriptions, multipliers = prescribe(
        compared,
        scheme,
        family,
        run=run,
        folding=folding,
        multiplier=options.multiplier,
        init_scale=options.init_scale,
        heads=heads,
    )
    prescriptions, of_decay = _with_counted_decay(prescriptions, options, model, base)
    own_laws, model_sizes, base_sizes, of_start = own_start(
        model,
        base,
        prescriptions,
        # A scheme without a theory of width leaves a model's own scales alone.
        gains=compared.temperatures if scheme.replaces_own else (),
        own_init=own_init,
        drawn=drawn,
    )
    caveat = (CAVEATS[name],) if name in CAVEATS else ()
    if options.tuned_with:
        prescriptions = tuned_with(prescriptions, options.tuned_with, name, base_sizes.measured)
    result = Plan(
        scheme=scheme.name,
        title=scheme.title,
        source=scheme.source,
        optimizer=name,
        family=family,
        prescriptions=prescriptions,
        multipliers=multipliers,
        notes=(
            *_smaller(model, base),
            *compared.notes,
            *of_scheme,
            *of_decay,
            *heads_note(heads),
            *no_matrices(name, family, prescriptions),
            *caveat,
            *of_start,
        ),
        one_minus_beta=of_run.one_minus_beta.at(run),
        log_beta2=of_run.log_beta2.at(run),
        own_init=None if own_init == {} else own_init,
        base_init=base_sizes.measured,
        base_default=base_sizes.defaults,
        model_init=model_sizes,
        own_laws=own_laws,
        depths=compared.depths,
        mixtures=compared.mixtures,
        tuned_with=options.tuned_with,
    )
    if proof == "off" or options.multiplier != 1 or options.init_scale != 1:
        return result
    said = prove(
        result,
        scheme,
        model,
        base,
        example_inputs=example_inputs,
        base_inputs=options.base_inputs,
        work=compared.work,
        loss=loss,
    )
    return replace(result, proof=said)


def _smaller(model: nn.Module, base: nn.Module) -> Iterator[str]:
    """A note if the model is smaller than its base, which is rarely meant."""
    count, base_count = (sum(p.numel() for p in m.parameters()) for m in (model, base))
    if count < base_count:
        yield (
            f"The model to train is smaller than its base: {count:,} parameters for "
            f"{base_count:,}. The base is the model that was tuned; swap the two unless this is "
            "meant."
        )


def _with_counted_decay(
    prescriptions: tuple[Prescription, ...], options: PlanOptions, model: nn.Module, base: nn.Module
) -> tuple[tuple[Prescription, ...], tuple[str, ...]]:
    """Prescriptions whose decay follows the number of parameters, where the run's rule says so.

    No law of a single parameter knows how many there are; a note says what stands beside it.
    """
    if options.run is None:
        return prescriptions, ()
    rule = run_rule(options.run)
    power = float(rule.laws.of_parameters)
    count, base_count = (sum(p.numel() for p in m.parameters()) for m in (model, base))
    if not power or count == base_count:
        return prescriptions, ()
    factor = (count / base_count) ** power
    note = (
        f"Weight decay has a further factor of {factor:.4g}: the rule {rule.key} lets it "
        f"follow the number of parameters, {count:,} for the base's {base_count:,}, to the power "
        f"{power:g}."
    )
    return tuple(replace(p, decay=p.decay * factor) for p in prescriptions), (note,)


def _columns() -> int | None:
    """The width of the terminal that is printed to, or of $COLUMNS; None where there is neither."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns
