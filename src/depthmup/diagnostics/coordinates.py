"""The coordinate check: measured exponents of width and depth against those of the scheme.

Networks of every width and depth train for a few steps on one batch, under the plan that the
scheme gives from the smallest of them (``visits``). Of each observable (``rules.predictions``) the
exponents are fitted and judged (``verdicts``).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from depthmup.diagnostics.observations import Key
from depthmup.diagnostics.preparation import Prepare, as_is, planned, prepared_by
from depthmup.diagnostics.verdicts import CONFIDENCE, MARGIN, judge, outcome_of, summaries
from depthmup.diagnostics.visits import (
    Look,
    Visit,
    check_finite,
    distinct,
    fresh,
    seeded,
    staircase,
    survey,
    visited,
)
from depthmup.model import Model, check_axes, resolved
from depthmup.planning import plan, recorded
from depthmup.records import Check, NonFinite
from depthmup.rules import Family, Observable, Role, Scheme, named
from depthmup.rules import scheme as scheme_named
from depthmup.tracing import read

# Large enough for an update to stand out of rounding, small enough for the response to be linear.
RATES = {family: 1e-2 for family in Family if family.matrices_only} | {
    Family.RAW: 0.1,
    Family.ENTRYWISE: 1e-3,
    Family.RELATIVE: 1e-2,
    Family.NORM_BALL: 1e-2,
}


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
) -> Check:
    """Check how a model's observables grow with width and depth.

    Args:
        model: the factory and its data.
        scheme, optimizer: what is expected; as in ``depthmup.plan``, whose default of the scheme
            follows the depth of blocks.
        widths, depths: three sizes or more of each, or a single one to leave it out.
        seeds, steps: repetitions, and training steps before the second look.
        lr: the learning rate at the smallest size.
        modules: judge only observables of modules whose pattern of names matches.
        plan_options: further arguments of ``depthmup.plan``, such as ``own_init`` or ``branches``.
        prepare: ``planned`` applies the plan; ``as_is`` leaves the model to its own code, which is
            expected to follow the scheme, with its own ``optimizers`` where it has them. Any other
            ``prepare(network, plan, lr)`` applies the plan in its own way and gives optimizers.
        progress: told how many networks of how many are done.

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
        >>> found = check(Model(make, batch=batch), scheme="completep",
        ...               widths=(16, 32, 64), depths=(2, 4, 8), seeds=3, steps=2)
        >>> str(found.outcome)
        'pass'
    """
    return checked(
        model,
        scheme=scheme,
        optimizer=optimizer,
        widths=widths,
        depths=depths,
        seeds=seeds,
        steps=steps,
        lr=lr,
        modules=modules,
        plan_options=plan_options,
        prepare=prepare,
        progress=progress,
    )


def checked(
    model: Model,
    *,
    scheme: str | Scheme | None,
    widths: Sequence[int],
    depths: Sequence[int],
    optimizer: str | Family | type = "adamw",
    seeds: int = 3,
    steps: int = 5,
    lr: float | None = None,
    modules: str | None = None,
    plan_options: Mapping[str, Any] | None = None,
    prepare: Prepare = planned,
    progress: Callable[[int, int], None] = lambda done, total: None,
    visit: Callable[[Visit], None] = lambda visit: None,
) -> Check:
    """``check``, with ``visit`` shown every network after training."""
    own, applied = resolved(model), prepare is not as_is
    ready = prepared_by(prepare, own)
    started = time.perf_counter()
    widths, depths = distinct(widths, "widths"), distinct(depths, "depths")
    if len(widths) == len(depths) == 1:
        raise ValueError(
            "Expected three widths or three depths at least; got one of each. An exponent is a "
            "slope: give e.g. widths=(32, 64, 128)."
        )
    if seeds < 2 or steps < 1:
        raise ValueError(
            f"Expected at least 2 seeds, for an interval, and 1 step; got {seeds=}, {steps=}."
        )
    if lr is not None and not 0 < lr < math.inf:
        raise ValueError(f"Expected lr to be a positive number; got {lr!r}.")
    check_axes(own, ("width", "depth"))
    inputs, _ = own.batch(seeded(0))
    check_finite(inputs)
    options = dict(plan_options or {})
    base, base_drawn = recorded(lambda: fresh(own.make, widths[0], depths[0], 0))
    sites = survey(own.make, widths, depths, base, inputs)
    grid = staircase(widths, depths)
    branches = {depth: sites[widths[0], depth].points.branches for depth in depths}
    base_facts = sites[widths[0], depths[0]].facts
    looks: list[Look] = []
    losses: dict[str, list[tuple[float, ...]]] = {}
    nonfinite: NonFinite | None = None
    notes: list[str] = []
    roles: dict[Key, Role] = {}
    done = 0
    family = None
    # The default follows the depth of blocks, which is that of every size.
    chosen = None if scheme is None else scheme_named(scheme)
    for width, depth in grid:
        network, drawn = recorded(partial(fresh, own.make, width, depth, 0))
        # Modules have the same names at every width.
        points = sites[widths[0], depth].points
        site = sites.get((width, depth))
        made = plan(
            network,
            base=base,
            scheme=chosen,
            optimizer=optimizer,
            example_inputs=inputs,
            drawn=(drawn, base_drawn),
            facts=(site.facts if site is not None else read(network, inputs), base_facts),
            **options,
        )
        chosen, family = chosen or scheme_named(made.scheme), made.family
        said = made.notes if applied else ()
        notes += [n for n in said if n not in notes]
        notes += [
            f"{name} is no input or output of a module and is not looked at."
            for name in points.hidden_from_view
            if f"{name} is no input or output of a module and is not looked at." not in notes
        ]
        for seed in range(seeds):
            if nonfinite is not None:
                break
            network = fresh(own.make, width, depth, seed)
            data = own.batch(seeded(seed))
            rate = RATES[made.family] if lr is None else lr
            seen, curve, where = visited(
                own.loss, ready, applied, network, made, points, data, rate, steps
            )
            if where is not None:
                nonfinite = NonFinite(
                    module=where[0], step=where[1], width=width, depth=depth, seed=seed
                )
                break
            losses.setdefault(f"{width} x {depth}", []).append(curve)
            first, second = seen
            visit(
                Visit(
                    model=network,
                    inputs=data[0],
                    width=width,
                    depth=depth,
                    seed=seed,
                    first=first,
                    second=second,
                )
            )
            for observation in seen:
                roles.update(observation.roles)
                looks += [
                    Look(
                        key=key,
                        width=width,
                        depth=depth,
                        branches=branches[depth],
                        seed=seed,
                        value=value,
                    )
                    for key, value in observation.values.items()
                ]
            done += 1
            progress(done, seeds * len(grid))
    assert family is not None
    assert chosen is not None
    last = sites[widths[-1], depths[0]].points
    heads = tuple(h for s in sites.values() for h in s.points.heads)
    exponents, more = judge(looks, chosen, family, roles, replace(last, heads=heads), modules)
    notes += more
    if not any(look.key.observable is Observable.DECAY for look in looks):
        notes.append("No optimizer has a weight decay here, so lr * decay is not looked at.")
    if len({branches[d] / d for d in depths}) > 1:
        notes.append(
            f"The stream has {', '.join(str(branches[d]) for d in depths)} branches at depths "
            f"{', '.join(map(str, depths))}; exponents of depth are those of their number."
        )
    if not chosen.follows_depth and len(depths) > 1:
        notes.append(f"{chosen.title} has no theory of depth; exponents of depth are its shape's.")
    return Check(
        title=model.name,
        scheme=chosen.title,
        optimizer=named(optimizer)[0],
        applied=applied,
        widths=widths,
        depths=depths,
        seeds=seeds,
        steps=steps,
        lr=RATES[family] if lr is None else lr,
        margin=MARGIN,
        confidence=CONFIDENCE,
        outcome=outcome_of(exponents, nonfinite),
        exponents=exponents,
        sizes=summaries(looks),
        nonfinite=nonfinite,
        losses={k: tuple(map(_mean, zip(*v, strict=True))) for k, v in losses.items()},
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
