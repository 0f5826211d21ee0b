"""The coordinate check: measured exponents of width and depth against those of the scheme.

Networks of every width and depth train for a few steps on one batch, under the plan that the
scheme gives from the smallest of them (``networks``). Of each observable (``rules.predictions``)
the exponents are fitted and judged (``verdicts``).
"""

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import index
from typing import Any

from depthmup.diagnostics.networks import (
    Broken,
    Measurement,
    Shape,
    TrainedNetwork,
    beside,
    check_finite,
    distinct,
    firsts,
    fresh,
    seeded,
    staircase,
    survey,
    train,
)
from depthmup.diagnostics.observations import Key, Points
from depthmup.diagnostics.preparation import Prepare, as_is, planned, prepared_by
from depthmup.diagnostics.verdicts import MARGIN, judge, outcome_of, summaries
from depthmup.model import Model, check_axes, resolved
from depthmup.planning import Plan, PlanOptions, plan, recorded
from depthmup.records import Check, NonFinite
from depthmup.rules import Family, Observable, Role, Scheme, named
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import CONFIDENCE
from depthmup.tracing import read

# Large enough for an update to stand out of rounding, small enough for the response to be linear.
RATES = {family: 1e-2 for family in Family if family.matrices_only} | {
    Family.RAW: 0.1,
    Family.ENTRYWISE: 1e-3,
    Family.RELATIVE: 1e-2,
    Family.NORM_BALL: 1e-2,
}


MOST_REPETITIONS = 10_000
"""Of seeds and of steps: a hundred times what an exponent needs."""


def check(
    model: Model,
    *,
    scheme: str | Scheme | None = None,
    optimizer: str | Family | type = "adamw",
    widths: Sequence[int] = (32, 64, 128, 256),
    depths: Sequence[int] = (4, 8, 16, 32),
    seeds: int = 3,
    steps: int = 5,
    lr: float | None = None,
    modules: str | None = None,
    plan_options: Mapping[str, Any] | None = None,
    prepare: Prepare = planned,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **along: Sequence[int],
) -> Check:
    """Check how a model's observables grow with width, depth and any other axis.

    Args:
        model: the factory and its data.
        scheme, optimizer: what is expected; as in ``depthmup.plan``, whose default of the scheme
            follows the depth of blocks.
        widths, depths: three sizes or more of each, or a single one to leave it out.
        seeds, steps: repetitions, and training steps before the second observation.
        lr: the learning rate at the smallest size.
        modules: judge only observables of modules whose pattern of names matches.
        plan_options: further arguments of ``depthmup.plan``, such as ``own_init`` or ``branches``.
        prepare: ``planned`` applies the plan; ``as_is`` leaves the model to its own code, which is
            expected to follow the scheme, with its own ``optimizers`` where it has them. Any other
            ``prepare(network, plan, lr)`` applies the plan in its own way and gives optimizers.
        progress: told how many networks of how many are done.
        along: sizes along further axes that the factory takes by name, such as
            ``experts=(4, 8, 16, 32)``: each is varied at the smallest width and depth, and what
            the network computes, and what training does to it, should not grow with it.

    Returns:
        Every exponent with its interval, its prediction and an outcome.

    Raises:
        ValueError: sizes from which no exponent follows; a factory that ignores one of them; a
            model without residual branches; data that are not finite.

    Example:
        >>> import torch
        >>> from depthmup.models import ResidualMLP
        >>> def make(width, depth):
        ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=4, block_depth=2,
        ...                        activation_name="relu", layer_norm=True)
        >>> def batch(generator):
        ...     return torch.randn(8, 8, generator=generator), torch.arange(8) % 4
        >>> result = check(Model(make, batch=batch), scheme="completep",
        ...                widths=(16, 32, 64), depths=(2, 4, 8), seeds=3, steps=2)
        >>> str(result.outcome)
        'pass'

    *Source:* the coordinate check of Tensor Programs V (arXiv 2203.03466), Appendix D.1; along
    depth, the exponents of TP6 (arXiv 2310.02244) and of the scheme's own paper. The statistics
    are this package's (docs/check.md).
    """
    experiment = Experiment(
        Setup(
            model=model,
            scheme=scheme,
            optimizer=optimizer,
            widths=tuple(widths),
            depths=tuple(depths),
            along={axis: _whole(axis, values) for axis, values in along.items()},
            seeds=seeds,
            steps=steps,
            lr=lr,
            modules=modules,
            plan_options=plan_options,
            prepare=prepare,
            progress=progress,
        )
    )
    for _ in experiment:
        pass
    return experiment.conclude()


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a check trains and what it expects, as the arguments of ``check`` say.

    Attributes:
        model, scheme, optimizer, widths, depths, seeds, steps, lr, modules: as there.
        plan_options, prepare, progress: as there.
        along: sizes by further axes.
    """

    model: Model
    scheme: str | Scheme | None = None
    optimizer: str | Family | type = "adamw"
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    along: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seeds: int = 3
    steps: int = 5
    lr: float | None = None
    modules: str | None = None
    plan_options: Mapping[str, Any] | None = None
    prepare: Prepare = planned
    progress: Callable[[int, int], None] = lambda done, total: None

    def __post_init__(self) -> None:
        for name in ("widths", "depths"):
            object.__setattr__(self, name, distinct(getattr(self, name), name))
        if twice := {"width", "depth", "batch", "steps", "tokens"} & self.along.keys():
            raise ValueError(
                f"Expected along to name axes of the factory other than width and depth; got "
                f"{min(twice)}. Give widths=..., depths=...; the batch and the steps of a check "
                "are the same at every size."
            )
        further = {axis: distinct(values, axis) for axis, values in self.along.items()}
        object.__setattr__(self, "along", further)
        if all(len(sizes) == 1 for sizes in (self.widths, self.depths, *further.values())):
            raise ValueError(
                "Expected three widths or three depths at least; got one of each. An exponent is a "
                "slope: give e.g. widths=(32, 64, 128)."
            )
        if self.seeds < 2 or self.steps < 1:
            raise ValueError(
                f"Expected at least 2 seeds, for an interval, and 1 step; got seeds={self.seeds}, "
                f"steps={self.steps}."
            )
        if max(self.seeds, self.steps) > MOST_REPETITIONS:
            raise ValueError(
                f"Expected at most {MOST_REPETITIONS:,} seeds and steps, as a few show how "
                "observables grow; got more."
            )
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise ValueError(f"Expected lr to be a positive number; got {self.lr!r}.")
        known = set(inspect.signature(plan).parameters) - {"model", "base", "scheme", "optimizer"}
        if unknown := sorted(set(self.plan_options or ()) - known):
            raise ValueError(
                f"Expected plan_options to be arguments of depthmup.plan; got {', '.join(unknown)}."
            )


ARGUMENTS = tuple(f.name for f in fields(Setup) if f.name not in ("model", "along"))
"""What cannot be the name of a further axis."""


def _whole(axis: str, values: Any) -> tuple[int, ...]:
    """The sizes along an axis; a misspelt argument of ``check`` seems to be one, too."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise ValueError(
            f"Expected the sizes along {axis} as whole numbers, such as (4, 8, 16); got "
            f"{values!r}. Other arguments of check: {', '.join(ARGUMENTS)}."
        ) from None


class Experiment:
    """The networks of a check: planned, trained and observed one by one.

    Iterating trains them and gives each with what was observed; ``conclude`` fits and judges.
    """

    def __init__(self, setup: Setup) -> None:
        self._started = time.perf_counter()
        self.setup, self.functions = setup, resolved(setup.model)
        self.applied = setup.prepare is not as_is
        widths, depths = setup.widths, setup.depths
        self._smallest = Shape(width=widths[0], depth=depths[0], along=firsts(setup.along))
        check_axes(self.functions, tuple(self._smallest.size))
        self._inputs, _ = self.functions.batch(seeded(0))
        check_finite(self._inputs)
        own = self.functions
        self._base, self._base_draws = recorded(lambda: fresh(own, self._smallest, 0))
        self._sites = survey(own, widths, depths, setup.along, self._base, self._inputs)
        self._measurements: list[Measurement] = []
        self._losses: dict[str, list[tuple[float, ...]]] = {}
        self._nonfinite: NonFinite | None = None
        self._notes: list[str] = []
        self._roles: dict[Key, Role] = {}
        self._family = Family.RAW
        # The default follows the depth of blocks, which is that of every size.
        self._scheme = None if setup.scheme is None else scheme_named(setup.scheme)

    def __iter__(self) -> Iterator[TrainedNetwork]:
        setup, done = self.setup, 0
        grid = [
            replace(self._smallest, width=width, depth=depth)
            for width, depth in staircase(setup.widths, setup.depths)
        ]
        grid += beside(self._smallest, setup.along)
        for shape in grid:
            size_plan = self._plan(shape)
            for seed in range(setup.seeds):
                if self._nonfinite is not None:  # the other sizes are planned, for their notes
                    break
                network = self._trained(size_plan, shape, seed)
                if network is None:
                    break
                yield network
                done += 1
                setup.progress(done, setup.seeds * len(grid))

    def _points(self, shape: Shape) -> Points:
        """Where to observe; modules have the same names at every width."""
        return self._sites[replace(shape, width=self.setup.widths[0])].points

    def _plan(self, shape: Shape) -> Plan:
        """The plan of one size, from the smallest; its notes are those of the check."""
        setup, site = self.setup, self._sites.get(shape)
        network, draws = recorded(partial(fresh, self.functions, shape, 0))
        base_facts = self._sites[self._smallest].facts
        further = dict(setup.plan_options or {})
        options = further.pop("options", PlanOptions())
        facts = site.facts if site is not None else read(network, self._inputs)
        size_plan = plan(
            network,
            base=self._base,
            scheme=self._scheme,
            optimizer=setup.optimizer,
            example_inputs=self._inputs,
            drawn=(draws, self._base_draws),
            options=replace(options, facts=(facts, base_facts)),
            **further,
        )
        self._scheme = self._scheme or scheme_named(size_plan.scheme)
        self._family = size_plan.family
        said = list(size_plan.notes) if self.applied else []
        said += [
            f"{name} is no input or output of a module and is not looked at."
            for name in self._points(shape).hidden_from_view
        ]
        self._notes += [note for note in dict.fromkeys(said) if note not in self._notes]
        return size_plan

    def _trained(self, size_plan: Plan, shape: Shape, seed: int) -> TrainedNetwork | None:
        """Train one network and keep what was observed; None if it produced NaN or infinity."""
        setup, own = self.setup, self.functions
        network = fresh(own, shape, seed)
        run = train(
            network,
            own.batch(seeded(seed)),
            size_plan,
            self._points(shape),
            loss_of=own.loss,
            prepare=prepared_by(setup.prepare, own),
            applied=self.applied,
            lr=RATES[size_plan.family] if setup.lr is None else setup.lr,
            steps=setup.steps,
        )
        if isinstance(run, Broken):
            self._nonfinite = NonFinite(
                module=run.module,
                step=run.step,
                width=shape.width,
                depth=shape.depth,
                seed=seed,
                along=dict(shape.along),
            )
            return None
        further = "".join(f", {axis} {value}" for axis, value in shape.along)
        self._losses.setdefault(f"{shape.width} x {shape.depth}{further}", []).append(run.losses)
        branches = self._points(shape).branches
        for observation in (run.first, run.second):
            self._roles.update(observation.roles)
            self._measurements += [
                Measurement(key=key, shape=shape, branches=branches, seed=seed, value=value)
                for key, value in observation.values.items()
            ]
        return TrainedNetwork(
            model=network,
            inputs=run.inputs,
            width=shape.width,
            depth=shape.depth,
            seed=seed,
            first=run.first,
            second=run.second,
            along=dict(shape.along),
        )

    def conclude(self) -> Check:
        """Fit every exponent to what was observed, and judge it."""
        setup, scheme = self.setup, self._scheme
        assert scheme is not None
        heads = tuple(head for site in self._sites.values() for head in site.points.heads)
        widest = self._sites[replace(self._smallest, width=setup.widths[-1])].points
        exponents, notes = judge(
            self._measurements,
            scheme,
            self._family,
            self._roles,
            replace(widest, heads=heads),
            setup.modules,
        )
        return Check(
            title=setup.model.name,
            scheme=scheme.title,
            optimizer=named(setup.optimizer)[0],
            applied=self.applied,
            widths=setup.widths,
            depths=setup.depths,
            along=setup.along,
            seeds=setup.seeds,
            steps=setup.steps,
            lr=RATES[self._family] if setup.lr is None else setup.lr,
            margin=MARGIN,
            confidence=CONFIDENCE,
            outcome=outcome_of(exponents, self._nonfinite),
            exponents=exponents,
            sizes=summaries(self._measurements),
            nonfinite=self._nonfinite,
            losses={k: tuple(map(_mean, zip(*v, strict=True))) for k, v in self._losses.items()},
            notes=(*self._notes, *notes, *self._limits_of(scheme)),
            seconds=time.perf_counter() - self._started,
        )

    def _limits_of(self, scheme: Scheme) -> Iterator[str]:
        """Notes on what these exponents do not say."""
        depths = self.setup.depths
        shapes = [replace(self._smallest, depth=depth) for depth in depths]
        branches = [self._points(shape).branches for shape in shapes]
        if not any(m.key.observable is Observable.DECAY for m in self._measurements):
            yield "No optimizer has a weight decay here, so lr * decay is not looked at."
        if len({count / depth for count, depth in zip(branches, depths, strict=True)}) > 1:
            yield (
                f"The stream has {', '.join(map(str, branches))} branches at depths "
                f"{', '.join(map(str, depths))}; exponents of depth are those of their number."
            )
        if not scheme.follows_depth and len(depths) > 1:
            yield f"{scheme.title} has no theory of depth; exponents of depth are its shape's."


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
