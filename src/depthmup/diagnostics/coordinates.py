"""The coordinate check: measured exponents of width and depth against those of the scheme.

Networks of every width and depth train for a few steps on one batch, under the plan that the
scheme gives from the smallest of them. Of each observable (``rules.predictions``) the exponents
are fitted and judged:

- an exponent *fails* if it is further from the prediction than ``MARGIN`` beyond chance, by Holm's
  procedure over all exponents of the check, so that a correct model is failed with at most 5%
  probability;
- otherwise it *passes* if its interval lies within ``RIVAL`` of the prediction;
- otherwise it is *undecided*.

The exponents of published rules are multiples of 1/2: the nearest rival of a prediction is 1/2
away, and what passes excludes it. Half of that, 1/4, is where both are equally far, and what lies
closer than that is corrections of small sizes, which shrink with size. Changes of the stream and
of the logits, sums over all layers whose parts are judged themselves, fail beyond ``RIVAL`` only.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthmup.diagnostics.causes import likely_cause
from depthmup.diagnostics.probes import (
    Key,
    Observation,
    Paths,
    Points,
    first_nonfinite,
    locate,
    logits_of,
    observe,
)
from depthmup.diagnostics.sharding import call
from depthmup.diagnostics.slopes import Slope, holm, log_slopes, moderated
from depthmup.planning import Plan, plan
from depthmup.planning.names import matches, parameters
from depthmup.records import Check, Exponent, NonFinite, Outcome, Size
from depthmup.rules import Family, Kind, Observable, Prediction, Role, Scheme, predict
from depthmup.rules import scheme as scheme_named
from depthmup.training.optimizers import optimizer_class, optimizers

RIVAL = 0.5
MARGIN = RIVAL / 2
CONFIDENCE = 0.95
# Large enough for an update to stand out of rounding, small enough for the response to be linear.
RATES = {
    Family.RAW: 0.1,
    Family.ENTRYWISE: 1e-3,
    Family.SPECTRAL: 1e-2,
    Family.SPECTRAL_RMS: 1e-2,
}

Make: TypeAlias = Callable[[int, int], nn.Module]
Batch: TypeAlias = Callable[[torch.Generator], tuple[Any, Any]]
Loss: TypeAlias = Callable[[Any, Any], Tensor]
Prepare: TypeAlias = Callable[[nn.Module, Plan, float], Sequence[torch.optim.Optimizer]]


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of logits whose last dimension counts the classes."""
    logits = logits_of(outputs)
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def planned(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """Initialize a model by its plan, and build the optimizers that the plan is for."""
    plan.initialize(model)
    return optimizers(plan, model, lr=lr)


def as_is(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """Leave a model as its own code makes it, with one learning rate for everything."""
    if plan.family.is_spectral:
        raise ValueError(
            f"A model that is checked as it is with {plan.optimizer} must say how its parameters "
            "are divided among optimizers: give optimizers(model, lr) beside the factory."
        )
    made_by = optimizer_class(plan.optimizer)
    return [made_by(list(model.parameters()), lr=lr, weight_decay=0.0)]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is checked: a factory of models, its data and its loss.

    ``make(width, depth)`` gives a model with its own initialization; ``batch(generator)`` gives
    inputs (a tensor, a tuple of arguments, or a dict of keywords) and targets; ``prepare(model,
    plan, lr)`` makes a model ready to train and gives its optimizers; ``applied`` says whether it
    applies the plan (then folded multipliers are allowed for).
    """

    make: Make
    batch: Batch
    loss: Loss = cross_entropy
    prepare: Prepare = planned
    applied: bool = True
    title: str = "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A trained network of a check, its inputs, and what was seen at first and after training."""

    model: nn.Module
    inputs: Any
    width: int
    depth: int
    seed: int
    first: Observation
    second: Observation


def check(
    subject: Subject,
    *,
    scheme: str | Scheme = "depth-mup",
    optimizer: str | Family = "adamw",
    widths: Sequence[int] = (32, 64, 128, 256),
    depths: Sequence[int] = (4, 8, 16, 32),
    seeds: int = 3,
    steps: int = 5,
    lr: float | None = None,
    modules: str | None = None,
    plan_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    visit: Callable[[Visit], None] = lambda visit: None,
) -> Check:
    """Check how a model's observables grow with width and depth.

    Args:
        subject: the factory, its data, and whether the plan is applied (``prepare=planned``, the
            default) or the model's own code is expected to follow the scheme (``prepare=as_is,
            applied=False``).
        scheme, optimizer: what is expected; as in ``depthmup.plan``.
        widths, depths: three sizes or more of each, or a single one to leave it out.
        seeds, steps: repetitions, and training steps before the second look.
        lr: the learning rate at the smallest size.
        modules: judge only observables of modules whose pattern of names matches.
        plan_options: further arguments of ``depthmup.plan``, such as ``own_init`` or ``branches``.
        progress: told how many networks of how many are done.
        visit: shown every network after training, for what else is to be measured on it.

    Raises:
        ValueError: sizes from which no exponent follows; a factory that ignores one of them; a
            model without residual branches; data that are not finite.

    Example:
        >>> from depthmup.models import ResidualMLP
        >>> def make(width, depth):
        ...     return ResidualMLP(inputs=8, width=width, depth=depth, outputs=4, block_depth=2,
        ...                        activation_name="relu", layer_norm=True)
        >>> def batch(generator):
        ...     return torch.randn(8, 8, generator=generator), torch.arange(8) % 4
        >>> found = check(Subject(make=make, batch=batch), scheme="completep",
        ...               widths=(16, 32, 64), depths=(2, 4, 8), seeds=2, steps=2)
        >>> str(found.outcome)
        'pass'
    """
    started = time.perf_counter()
    scheme = scheme_named(scheme)
    widths, depths = _sizes(widths, "widths"), _sizes(depths, "depths")
    if len(widths) == len(depths) == 1:
        raise ValueError(
            "Expected three widths or three depths at least; got one of each. An exponent is a "
            "slope: give e.g. widths=(32, 64, 128)."
        )
    if seeds < 2 or steps < 1:
        raise ValueError(
            f"Expected at least 2 seeds, for an interval, and 1 step; got {seeds=}, {steps=}."
        )
    inputs, _ = subject.batch(_generator(0))
    _check_finite(inputs)
    options = dict(plan_options or {})
    base = _made(subject.make, widths[0], depths[0], 0)
    sites = _survey(subject.make, widths, depths, base, inputs)
    grid = list(product(widths, depths))
    looks: list[_Look] = []
    losses: dict[str, list[tuple[float, ...]]] = {}
    nonfinite: NonFinite | None = None
    notes: list[str] = []
    roles: dict[Key, Role] = {}
    done = 0
    family = None
    for width, depth in grid:
        model = _made(subject.make, width, depth, 0)
        points = sites.get((width, depth)) or locate(model, inputs)
        made = plan(
            model,
            base=base,
            scheme=scheme,
            optimizer=optimizer,
            example_inputs=_example(inputs),
            **options,
        )
        family = made.family
        said = made.notes if subject.applied else ()
        notes += [n for n in said if n not in notes]
        notes += [
            f"{name} is no input or output of a module and is not looked at."
            for name in points.hidden_from_view
            if f"{name} is no input or output of a module and is not looked at." not in notes
        ]
        for seed in range(seeds):
            if nonfinite is not None:
                break
            model = _made(subject.make, width, depth, seed)
            data = subject.batch(_generator(seed))
            rate = RATES[made.family] if lr is None else lr
            seen, curve, where = _run(subject, model, made, points, data, rate, steps)
            if where is not None:
                nonfinite = NonFinite(
                    module=where[0], step=where[1], width=width, depth=depth, seed=seed
                )
                break
            losses.setdefault(f"{width} x {depth}", []).append(curve)
            first, second = seen
            visit(
                Visit(
                    model=model,
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
                    _Look(key=key, width=width, depth=depth, seed=seed, value=value)
                    for key, value in observation.values.items()
                ]
            done += 1
            progress(done, seeds * len(grid))
    assert family is not None
    last = sites[widths[-1], depths[0]]
    heads = tuple(h for p in sites.values() for h in p.heads)
    exponents, more = _judge(looks, scheme, family, roles, replace(last, heads=heads), modules)
    notes += more
    if not scheme.follows_depth and len(depths) > 1:
        notes.append(f"{scheme.title} has no theory of depth; exponents of depth are its shape's.")
    return Check(
        title=subject.title,
        scheme=scheme.title,
        optimizer=str(optimizer),
        applied=subject.applied,
        widths=widths,
        depths=depths,
        seeds=seeds,
        steps=steps,
        lr=RATES[family] if lr is None else lr,
        margin=MARGIN,
        confidence=CONFIDENCE,
        outcome=_outcome(exponents, nonfinite),
        exponents=exponents,
        sizes=_summaries(looks),
        nonfinite=nonfinite,
        losses={k: tuple(map(_mean, zip(*v, strict=True))) for k, v in losses.items()},
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Look:
    key: Key
    width: int
    depth: int
    seed: int
    value: float


def _run(
    subject: Subject,
    model: nn.Module,
    made: Plan,
    points: Points,
    data: tuple[Any, Any],
    lr: float,
    steps: int,
) -> tuple[tuple[Observation, ...], tuple[float, ...], tuple[str, int] | None]:
    """Look, train, look again; or where and when a value stopped being finite."""
    inputs, targets = data
    applied = subject.applied
    optimizers = subject.prepare(model, made, lr)
    bad = first_nonfinite(model, inputs)
    if bad is not None:
        return (), (), (bad, 0)
    first = observe(model, inputs, points, made, applied=applied)
    weights = {name: p.detach().clone() for name, p in parameters(model).items()}
    paths, curve = Paths(model), []
    for step in range(1, steps + 1):
        loss = subject.loss(call(model, inputs), targets)
        if not torch.isfinite(loss):  # before a step spreads it to every weight
            return (), (), (first_nonfinite(model, inputs) or "loss", step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        paths.step()
        curve.append(float(loss.detach()))
    bad = first_nonfinite(model, inputs)
    if bad is not None:
        return (), (), (bad, steps)
    second = observe(
        model,
        inputs,
        points,
        made,
        applied=applied,
        initial=first,
        weights=weights,
        paths=paths.lengths,
    )
    return (first, second), tuple(curve), None


def _judge(
    looks: Sequence[_Look],
    scheme: Scheme,
    family: Family,
    roles: Mapping[Key, Role],
    points: Points,
    modules: str | None,
) -> tuple[tuple[Exponent, ...], list[str]]:
    by_key: dict[Key, list[_Look]] = {}
    for look in looks:
        by_key.setdefault(look.key, []).append(look)
    if modules is not None and not any(_matches(modules, k.module) for k in by_key):
        raise ValueError(
            f"No module matches {modules!r}. There are "
            f"{', '.join(sorted({k.module for k in by_key}))}."
        )
    readout = next((r for r in roles.values() if r.kind is Kind.READOUT), None)
    covered = {k.module for k in by_key if k.observable in _EFFECTS}
    fitted: list[tuple[Key, str, Slope, Prediction, bool]] = []
    notes = []
    for key, found in by_key.items():
        if all(look.value == 0 for look in found):
            notes.append(f"{key} is zero at every size.")
            continue
        positive = [look for look in found if 0 < look.value < float("inf")]
        varied = [
            axis for axis in ("width", "depth") if len({getattr(p, axis) for p in positive}) > 2
        ]
        if not varied:
            continue
        role = roles.get(key) or (readout if key.observable is Observable.LOGITS else None)
        prediction = predict(
            scheme, family, key.observable, role=role, head_grows=len(set(points.heads)) > 1
        )
        # Effects on outputs say what weights alone would say, and more sharply.
        shown = _only_shown(key, role, family, covered, points)
        slopes = log_slopes(
            [tuple(float(getattr(p, axis)) for axis in varied) for p in positive],
            [p.value for p in positive],
            [p.seed for p in positive],
        )
        fitted += [
            (key, axis, slope, prediction, shown)
            for axis, slope in zip(varied, slopes, strict=True)
        ]
    # All slopes say how seeds scatter, also those that are not asked for.
    better = moderated([slope for _, _, slope, _, _ in fitted])
    fitted = [
        (key, axis, slope, prediction, shown)
        for (key, axis, _, prediction, shown), slope in zip(fitted, better, strict=True)
        if modules is None or _matches(modules, key.module)
    ]
    p_values = {
        (key, axis): slope.p_outside(float(expected), RIVAL if key.observable in _SUMS else MARGIN)
        for key, axis, slope, prediction, shown in fitted
        if (expected := getattr(prediction, axis)) is not None and not shown
    }
    rejected = holm(p_values, level=1 - CONFIDENCE)
    result = []
    for key, axis, slope, prediction, shown in fitted:
        expected = getattr(prediction, axis)
        estimate = slope.estimate(CONFIDENCE)
        if expected is None or shown:
            outcome = Outcome.SHOWN
        elif (key, axis) in rejected:
            outcome = Outcome.FAIL
        elif estimate.inside(float(expected) - RIVAL, float(expected) + RIVAL):
            outcome = Outcome.PASS
        else:
            outcome = Outcome.UNDECIDED
        cause = ""
        if outcome is Outcome.FAIL:
            cause = likely_cause(
                key.observable,
                axis,
                estimate.value - float(expected),
                scheme=scheme,
                family=family,
                role=roles.get(key),
            )
        result.append(
            Exponent(
                observable=str(key.observable),
                module=key.module,
                axis=axis,
                estimate=estimate,
                outcome=outcome,
                expected="" if expected is None else str(expected),
                why=prediction.why,
                cause=cause,
            )
        )
    return tuple(result), notes


# What follows from all layers together. Each layer is judged on its own as well; the sum carries
# corrections of relative order L^-1/2 besides, and where a small embedding meets pre-norm blocks
# its slope was measured 0.4 too high from 4 to 16 branches. So only a rival exponent fails it.
_SUMS = (Observable.STREAM_CHANGE, Observable.LOGITS_CHANGE, Observable.BRANCH_CHANGE)
_EFFECTS = (Observable.UPDATE, Observable.READOUT_UPDATE)
_WEIGHTS = (Observable.SPECTRAL_UPDATE, Observable.ENTRY_UPDATE)


def _only_shown(
    key: Key, role: Role | None, family: Family, covered: set[str], points: Points
) -> bool:
    """Whether an observable is measured without being judged, whatever theory predicts of it."""
    if key.observable is Observable.LOGITS:
        return True  # too few numbers; the readout is judged on random inputs
    if key.observable in _WEIGHTS:
        # Effects on outputs say what weights alone would say, and more sharply.
        if key.module in covered or (role is not None and role.kind is Kind.READOUT):
            return True
        if key.observable is Observable.ENTRY_UPDATE and role is not None:
            return role.kind is Kind.HIDDEN
    if key.module in points.keys_biases:
        return True  # softmax ignores them: their gradient is zero but for rounding
    # Where heads grow, a fresh query and its key are not aligned and their gradients are smaller
    # by n^-1/2 until training has aligned them; what Adam makes of them does not depend on it.
    return (
        key.module in points.queries_and_keys
        and len(set(points.heads)) > 1
        and (family is Family.RAW)
    )


def _matches(pattern: str, module: str) -> bool:
    return matches(pattern, module) is not None or module.startswith(f"{pattern}.")


def _outcome(exponents: Sequence[Exponent], nonfinite: NonFinite | None) -> Outcome:
    outcomes = {e.outcome for e in exponents}
    if nonfinite is not None or Outcome.FAIL in outcomes:
        return Outcome.FAIL
    if Outcome.UNDECIDED in outcomes or Outcome.PASS not in outcomes:
        return Outcome.UNDECIDED
    return Outcome.PASS


def _summaries(looks: Sequence[_Look]) -> tuple[Size, ...]:
    cells: dict[tuple[Key, int, int], list[float]] = {}
    for look in looks:
        if look.value > 0:
            cells.setdefault((look.key, look.width, look.depth), []).append(look.value)
    result = []
    for (key, width, depth), values in cells.items():
        logs = torch.tensor(values, dtype=torch.float64).log()
        result.append(
            Size(
                observable=str(key.observable),
                module=key.module,
                width=width,
                depth=depth,
                value=float(logs.mean().exp()),
                spread=float(logs.std()) if len(values) > 1 else 0.0,
            )
        )
    return tuple(result)


def _survey(
    make: Make, widths: Sequence[int], depths: Sequence[int], base: nn.Module, inputs: Any
) -> dict[tuple[int, int], Points]:
    """Look at the corners of the grid; refuse a factory that ignores a size."""
    shapes = {name: tuple(p.shape) for name, p in parameters(base).items()}
    found = {(widths[0], depths[0]): locate(base, inputs)}
    branches = found[widths[0], depths[0]].branches
    if branches == 0:
        raise ValueError(
            "No residual branch was found in the model's forward pass, so there is no depth to "
            "check. Check a model whose blocks compute x + f(x), or the width alone of a model "
            "with one block."
        )
    for width in widths[1:]:
        wider = _made(make, width, depths[0], 0)
        if {n: tuple(p.shape) for n, p in parameters(wider).items()} == shapes:
            raise ValueError(
                f"The factory ignores width: at {widths[0]} and {width} every parameter has the "
                "same shape. Expected factory(width, depth) to pass width on to the model."
            )
        found[width, depths[0]] = locate(wider, inputs)
    for depth in depths[1:]:
        deeper = _made(make, widths[0], depth, 0)
        found[widths[0], depth] = locate(deeper, inputs)
        ratio = found[widths[0], depth].branches / branches
        if abs(ratio - depth / depths[0]) > 1e-9:
            how = "ignores depth" if ratio == 1 else "does not follow depth"
            raise ValueError(
                f"The factory {how}: at {depths[0]} and {depth} the residual stream has {branches} "
                f"and {found[widths[0], depth].branches} branches. Expected their number to be "
                "proportional to depth; exponents refer to it."
            )
    return found


def _sizes(sizes: Sequence[int], name: str) -> tuple[int, ...]:
    found = tuple(sorted(sizes))
    if not found or found[0] < 1:
        raise ValueError(f"Expected {name} to be positive; got {list(sizes)}.")
    if len(set(found)) < len(found):
        raise ValueError(
            f"Expected {name} to differ, as a slope needs ratios other than 1; got {list(sizes)}."
        )
    if len(found) == 2:
        raise ValueError(
            f"Expected at least 3 {name}, as two points lie on every line; got {list(sizes)}. "
            "Give one size only to leave this dimension out."
        )
    return found


def _made(make: Make, width: int, depth: int, seed: int) -> nn.Module:
    # The factory draws from torch's global generator; which numbers it gets is part of the seed.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(10_007 * seed + 101 * width + depth)
        return make(width, depth)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _example(inputs: Any) -> Any:
    return inputs


def _check_finite(inputs: Any) -> None:
    from torch.utils._pytree import tree_flatten

    for leaf in tree_flatten(inputs)[0]:
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not leaf.isfinite().all():
            raise ValueError(
                "batch(generator) gave inputs that are not finite. Expected finite inputs."
            )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
