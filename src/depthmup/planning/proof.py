"""The proof of a plan: measured on the two models before the plan is given back.

Copies of both models start as the plan starts them, and are trained for three steps, by a person's
own loss or towards random targets. Every tensor that the model and its modules give out is measured
before and after, whatever roles its parameters have. With a width that grows m-fold (m^0 is what
maximal updates are)

    change of the outputs ~ m^0 r^0,    change of what modules give ~ m^0,    start <= m^0.

What embeddings and readouts learn hides what layers do. So a deeper model is trained once more, the
layers alone of which it has more: a rate or a multiplier that is wrong by r^a then changes the
outputs by r^a.

What differs by most of a power, in the same direction in every one of several draws of the initial
weights, contradicts the plan: ``Contradicted`` is raised. Half a power is within what chance and
small sizes do to two models; ``depthmup check`` measures that with more sizes and seeds.
"""

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from depthmup._isolated import isolated
from depthmup.measuring import (
    ADDED,
    Place,
    Seen,
    called,
    likely_cause,
    look,
    offsets,
    redraw,
    without,
)
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import initialize, initialized
from depthmup.planning.matching import Match
from depthmup.planning.own_init import UnrecognizedInit
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sharded import is_sharded
from depthmup.planning.sites import Where
from depthmup.rules import Family, Observable, Ratios, Scheme, predict
from depthmup.tracing import ExampleInputs, named_modules, parameters, unwrapped
from depthmup.tracing.recorder import tensors_of

PROOF = ("auto", "off")
"""Whether a plan is proven: where that takes seconds, or not at all."""

Loss: TypeAlias = Callable[[Any], Any]
"""One number to minimize, of what a model returns."""

STEPS = 3
"""Of training: a readout that starts at zero lets nothing else move at the first."""

DRAWS = 6
"""Draws of the initial weights that must all contradict; most plans take one."""

LARGEST_WORK = 2_000_000_000
"""Multiplications of a forward pass up to which models are run: seconds on one core."""

# How far an exponent of width may lie below and above; what small widths and crowded batches do
# was measured down to -0.75 at widths 16 to 64 on right plans, mistakes lie at 1 and more.
_BELOW, _ABOVE = 0.85, 0.7
# What sums over layers do to the exponent of depth of the outputs: where all parameters train, and
# where layers alone do (right plans were measured within LAYERS_SPREAD at depths of 2 and 8).
_OF_DEPTH, _OF_LAYERS = 0.6, 0.5
# Ratios nearer than this to the expected one are chance, however little grows.
_LEAST = math.log(1.6)
# Small, so that outputs respond in proportion.
_RATES = {family: 2e-3 for family in Family if family.matrices_only} | {
    Family.RAW: 1e-3,
    Family.ENTRYWISE: 1e-3,
}
_SPECTRAL = (Family.SPECTRAL, Family.SPECTRAL_RMS)


class Contradicted(NotUnderstood):
    """A plan that its own models contradict, as they start or as they train."""


class _NotRun(Exception):
    """A person's model that raises an error, its cause, when it runs."""


def _short(error: BaseException | None) -> str:
    said = str(error).strip().splitlines()[:1] or [""]
    return f"{type(error).__name__}: {said[0][:120]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """One place in both models: the logarithms of how its start and its change grow."""

    start: float
    change: float
    grown: float
    outputs: bool
    weights: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Deviation:
    """A place that grows as no right plan lets it, and by how much."""

    place: Place
    what: str
    growth: float


def prove(
    plan: PlanContent,
    scheme: Scheme,
    model: nn.Module,
    base: nn.Module,
    *,
    example_inputs: ExampleInputs | None,
    base_inputs: ExampleInputs | None,
    work: int | None = None,
    loss: Loss | None = None,
) -> str:
    """What was measured of a plan, in a sentence; why nothing was, where it cannot be.

    A plan under which something grows or shrinks by most of a power is ``Contradicted``. ``work``
    is how many multiplications a forward pass of the model takes, if that is known; ``loss`` is
    what is trained, of what the model returns, in place of the distance to random targets.
    """
    model, base = unwrapped(model), unwrapped(base)
    width, depth = _ratios(plan)
    if problem := _unproven(plan, scheme, model, base, example_inputs, width, depth, work):
        return f"Not proven: {problem}"
    inputs = example_inputs, example_inputs if base_inputs is None else base_inputs
    try:
        sides = [
            _Side(plan, (model, base), _drawn(of), loss, is_base=is_base)
            for of, is_base in zip(inputs, (False, True), strict=True)
        ]
        first, growths = _tried(sides, width, depth)
        layers, alone = _repeated(plan), dict[Place, _Compared]()
        if layers and not growths:
            alone, growths = _tried_alone([side.training(layers) for side in sides], width, depth)
    except _NotRun as error:
        # Whatever a person's model does when it runs is no reason to refuse a plan of it.
        return f"Not proven: the models could not be run ({_short(error.__cause__)})."
    except UnrecognizedInit as error:
        # A loaded checkpoint starts as no law says, and needs no initialization.
        return f"Not proven: {error}"
    except Exception as error:
        return f"Not proven: the proof itself failed ({_short(error)}). Please report it."
    if growths:
        raise Contradicted(_contradiction(plan, scheme, growths, width, depth, bool(alone)))
    step = plan.family in _RATES and _moves(first)
    return _proven(first, alone, width, depth, step=step)


_Tried: TypeAlias = tuple[dict[Place, "_Compared"], dict[tuple[Place, str], list[float]]]
"""What the first draw shows, and what deviates in all of them, or in their mean."""


def _tried(sides: Sequence["_Side"], width: float, depth: float) -> _Tried:
    """All parameters train."""
    first = _compare(sides, 0)
    growths: dict[tuple[Place, str], list[float]] = {
        (d.place, d.what): [d.growth] for d in _deviations(first, width, depth)
    }
    for draw in range(1, DRAWS):
        if not growths:
            break
        found = {
            (d.place, d.what): d.growth for d in _deviations(_compare(sides, draw), width, depth)
        }
        growths = {
            key: [*of, found[key]]
            for key, of in growths.items()
            if key in found and found[key] * of[0] > 0
        }
    return first, growths


def _tried_alone(sides: Sequence["_Side"], width: float, depth: float) -> _Tried:
    """Repeated layers train alone: what deviates in the mean of all draws, by more than chance."""
    wide, deep = abs(math.log(width)), abs(math.log(depth))
    low, high = (max(b * wide + _OF_LAYERS * deep, _LEAST) for b in (_BELOW, _ABOVE))

    def changes(compared: Mapping[Place, _Compared]) -> dict[Place, float]:
        outputs = {place: at for place, at in compared.items() if at.outputs}
        return {
            # As much more as the outputs themselves are larger is the model's own doing.
            place: at.change - min(max(at.start, 0.0), max(at.change, 0.0))
            for place, at in outputs.items()
            if not math.isnan(at.change)
        }

    first = _compare(sides, 0)
    if all(-low <= change <= high for change in changes(first).values()):
        return first, {}
    drawn = [changes(first), *(changes(_compare(sides, draw)) for draw in range(1, DRAWS))]
    growths = {}
    for place in drawn[0]:
        of = [found[place] for found in drawn if place in found]
        chance = 2 * stdev(of) / math.sqrt(len(of)) if len(of) > 1 else math.inf
        if not -low - chance <= fmean(of) <= high + chance:
            growths[place, "change"] = of
    return first, growths


def _repeated(plan: PlanContent) -> frozenset[str]:
    """The parameters of layers that the model has more of than the base, by their base's name.

    None where what they change says little.
    """
    # Steps of SGD are as large as gradients, which scatter with depth: right plans were seen 1 off.
    if plan.family is not Family.ENTRYWISE:
        return frozenset()
    copies = Counter(p.base_name for p in plan.prescriptions)
    return frozenset(name for name, n in copies.items() if n > 1)


def _ratios(plan: PlanContent) -> tuple[float, float]:
    """By how much sizes of parameters and numbers of layers grow, from shapes alone."""
    grown = [
        n / before
        for p in plan.prescriptions
        for n, before in zip(p.shape, p.base_shape, strict=True)
        if n != before and before
    ]
    depths = [stream.ratio for stream in plan.depths if stream.ratio != 1]
    return median(grown) if grown else 1.0, max(depths, default=1.0)


def _unproven(
    plan: PlanContent,
    scheme: Scheme,
    model: nn.Module,
    base: nn.Module,
    inputs: ExampleInputs | None,
    width: float,
    depth: float,
    work: int | None,
) -> str:
    """Why nothing can be measured; empty if it can."""
    tensors = [*parameters(model).values(), *parameters(base).values()]
    expected = predict(scheme, plan.family, Observable.LOGITS_CHANGE)
    if inputs is None:
        return "there are no example_inputs to run the models with."
    if any(p.is_meta for p in tensors):
        return "models on the meta device have no values."
    if any(map(is_sharded, tensors)) or initialized(model) or initialized(base):
        return "the model is sharded, or a plan has initialized it before."
    if width == 1 and depth == 1:
        return "nothing grows between these two models."
    if (width != 1 and expected.width is None) or (depth != 1 and expected.depth is None):
        return f"{scheme.title} predicts no power of the size for what training changes."
    if work is None:
        work = sum(p.numel() for p in tensors) * _rows(inputs)
    if work > LARGEST_WORK:
        return "the models are too large to be run here; prove smaller ones of the same code."
    return ""


def _rows(inputs: ExampleInputs) -> int:
    """How many vectors a forward pass takes, about."""
    tensors = [t for t in tensors_of(inputs) if t.numel()]
    return max((_vectors(t) for t in tensors), default=1)


def _vectors(t: Tensor) -> int:
    if not t.is_floating_point() or t.ndim < 2:
        return t.numel()
    return t.numel() // max(t.shape[-1] if t.ndim < 4 else t.shape[1], 1)


def _drawn(inputs: Any) -> Any:
    """Inputs whose values matter: numbers that are all alike stand for any."""
    generator = torch.Generator().manual_seed(0)

    def drawn(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: drawn(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return tuple(map(drawn, value))
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            return value
        alike = value.is_meta or bool((value == value.reshape(-1)[0]).all())
        if not alike and bool(value.isfinite().all()):
            return value
        return torch.randn(value.shape, generator=generator, device="cpu").to(value.dtype)

    return drawn(inputs)


class _Distance:
    """The mean square distance of all outputs to random targets; 0 without any."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator, self.targets = generator, list[Tensor]()

    def __call__(self, outputs: Any) -> Tensor | int:
        given = [
            t.float()
            for t in tensors_of(outputs)
            if t.is_floating_point() and t.requires_grad and t.ndim
        ]
        self.targets = self.targets or [
            torch.randn(t.shape, generator=self.generator, device="cpu").to(t.device) for t in given
        ]
        return sum((t - y).square().mean() for t, y in zip(given, self.targets, strict=True))


class _Side:
    """One of the two models, run and trained on copies."""

    def __init__(
        self,
        plan: PlanContent,
        both: tuple[nn.Module, nn.Module],
        inputs: Any,
        loss: Loss | None,
        *,
        is_base: bool,
    ) -> None:
        self.plan, self.model, self.inputs, self.is_base = plan, both[is_base], inputs, is_base
        self.loss, self.layers = loss, frozenset[str]()
        # In both models alike, or one of them would have them alone.
        of_model, of_base = offsets(both[0]), offsets(both[1])
        found = [p for p in plan.prescriptions if {p.name} & of_model or {p.base_name} & of_base]
        self.offsets = {p.base_name if is_base else p.name for p in found}

    def training(self, layers: frozenset[str]) -> "_Side":
        """The same, of which these layers (by their names in the base) train alone."""
        side = copy.copy(self)
        side.layers = layers
        return side

    def seen(self, draw: int) -> tuple[dict[Place, Seen], dict[Place, Seen]]:
        """What all modules give before training, and after."""
        network = copy.deepcopy(self.model)
        if any(p.dtype in (torch.bfloat16, torch.float16) for p in network.parameters()):
            network = network.float()
        if draw:
            redraw(network, torch.Generator().manual_seed(2 * draw + self.is_base))
        if not self.is_base:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                initialize(self.plan, network)
        if draw:
            without(network, self.offsets)
        network.eval()
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()  # by the batch, as it trains
                module.track_running_stats = False
        device = next((p.device for p in network.parameters()), torch.device("cpu"))
        # Where it is the default anyway, to name the device would only slow every call down.
        named = nullcontext() if device == torch.get_default_device() else torch.device(device)
        inputs = _on(self.inputs, device)
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            isolated(),
            named,
        ):
            optimizers = self._optimizers(network)
            try:
                torch.default_generator.manual_seed(draw)
                first = look(network, inputs)
                self._train(network, optimizers, inputs, draw)
                torch.default_generator.manual_seed(draw)
                return first, look(network, inputs)
            except Exception as error:
                raise _NotRun from error

    def _train(
        self,
        network: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        inputs: Any,
        draw: int,
    ) -> None:
        """A few steps, each parameter at the plan's rate."""
        loss = self.loss or _Distance(torch.Generator().manual_seed(100 + draw))
        for _ in range(STEPS if optimizers else 0):
            torch.default_generator.manual_seed(draw)
            value = loss(called(network, inputs))
            if not isinstance(value, Tensor):
                return
            for optimizer in optimizers:
                optimizer.zero_grad()
            value.backward()
            for optimizer in optimizers:
                optimizer.step()

    def _optimizers(self, network: nn.Module) -> list[torch.optim.Optimizer]:
        """Torch's, of the plan's family; none where torch has none."""
        tensors = parameters(network)
        run = Ratios(
            batch=self.plan.prescriptions[0].ratios.batch,
            duration=self.plan.prescriptions[0].ratios.duration,
        )
        groups: dict[Family, dict[str, dict[str, Any]]] = {}
        for p in self.plan.prescriptions:
            name = p.base_name if self.is_base else p.name
            if name not in tensors or not tensors[name].requires_grad:
                continue
            if self.layers and p.base_name not in self.layers:
                continue
            of_run = p.laws.lr.at(run)
            rate = 1.0 if self.is_base else p.lr / p.converted / of_run
            group = {"params": [tensors[name]], "lr": _RATES.get(p.family, 0.0) * rate}
            groups.setdefault(p.family, {})[name] = group
        if not groups or any(f not in (*_SPECTRAL, Family.RAW, Family.ENTRYWISE) for f in groups):
            return []
        return [_optimizer(family, [*of.values()]) for family, of in groups.items()]


def _optimizer(family: Family, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if family is Family.RAW:
        return torch.optim.SGD(groups)
    if family is Family.ENTRYWISE:
        # A smaller epsilon than any gradient: a plan scales it, and ``verify`` sees to that.
        return torch.optim.Adam(groups, eps=1e-15)
    adjust = "match_rms_adamw" if family is Family.SPECTRAL_RMS else "original"
    return torch.optim.Muon(groups, weight_decay=0.0, adjust_lr_fn=adjust)


def _on(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.to(device) if not inputs.is_meta else torch.zeros_like(inputs, device=device)
    if isinstance(inputs, Mapping):
        return {key: _on(value, device) for key, value in inputs.items()}
    if isinstance(inputs, list | tuple):
        return tuple(_on(value, device) for value in inputs)
    return inputs


def _compare(sides: Sequence[_Side], draw: int) -> dict[Place, _Compared]:
    """What both models give in the same places, by the base's."""
    (first, after), (base_first, base_after) = (side.seen(draw) for side in sides)
    match = Match(sides[0].model, sides[1].model).modules
    carrying = _carrying(sides[0].plan, sides[0].model)
    carried = {seen.same for (name, _, _), seen in first.items() if name in carrying}
    pooled: dict[Place, list[Place]] = {}
    for name, call, index in first:
        if name in match and first[name, call, index].same not in carried:
            pooled.setdefault((match[name], call, index), []).append((name, call, index))
    result = {}
    for place, members in pooled.items():
        if place not in base_first or place not in base_after:
            continue
        there, here = base_first[place], [first[m] for m in members]
        if any(m not in after for m in members) or len(there.shape) != len(here[0].shape):
            continue
        result[place] = _Compared(
            start=_log_ratio(fmean(one.square for one in here), there.square),
            change=_log_ratio(
                fmean(_moved(first[m], after[m]) for m in members),
                _moved(there, base_after[place]),
            ),
            grown=math.prod(here[0].shape) / math.prod(there.shape),
            outputs=not place[0],
            weights=there.weights or any(one.weights for one in here),
        )
    return result


def _carrying(plan: PlanContent, model: nn.Module) -> set[str]:
    """Modules that give out something else than they are for, as they carry another's factor.

    The gain of a last norm has the factor of a tied readout, queries have that of the logits. What
    the modules around them add to a stream is seen, and so is what the model itself gives.
    """
    own = (
        Where.READOUT
    )  # a readout's factor is its own, and what it gives is as small as it must be
    folded = {n for m in plan.multipliers for n in m.folds if (m.where, m.label) != (own, n)}
    hooked = {hook.module for m in plan.multipliers for hook in m.hooks}
    names = {id(p): name for name, p in parameters(model).items()}
    carrying = {
        name
        for name, module in named_modules(model).items()
        if any(names.get(id(p)) in folded for p in module.parameters(recurse=False))
    }
    return (hooked | carrying) - {""}


def _log_ratio(square: float, base: float) -> float:
    """Of root mean squares; nan where there is nothing to compare."""
    if not (square > 0 and base > 0 and math.isfinite(square) and math.isfinite(base)):
        return math.nan
    return math.log(square / base) / 2


def _moved(before: Seen, after: Seen) -> float:
    if before.entries.shape != after.entries.shape:
        return math.nan
    change = float((after.entries - before.entries).square().mean())
    # What is left of rounding where nothing moved.
    return change if change > 1e-12 * before.square else 0.0


def _deviations(
    compared: Mapping[Place, _Compared],
    width: float,
    depth: float,
) -> Iterator[_Deviation]:
    """Places where something grows by most of a power more, or less, than it may."""
    wide, deep = abs(math.log(width)), abs(math.log(depth))
    sign = 1 if width >= 1 else -1
    low, high = max(_BELOW * wide, _LEAST), max(_ABOVE * wide, _LEAST)
    for place, at in compared.items():
        if at.outputs:
            # A deeper model whose outputs are larger by its own doing may change as much more.
            own = max(at.start, 0.0) if deep and not math.isnan(at.start) else 0.0
            lower, upper = -low - _OF_DEPTH * deep, high + _OF_DEPTH * deep + own
        elif deep or at.weights or at.grown > max(width, 1 / width) ** 1.5:
            # Of modules in blocks depth alone says more than theory can; shares of one and
            # matrices that are computed are smaller, the more numbers they are.
            continue
        else:
            lower, upper = -low, high
        if not lower <= sign * at.change <= upper and not math.isnan(at.change):
            yield _Deviation(place=place, what="change", growth=at.change)
        if not deep and sign * at.start > upper:
            yield _Deviation(place=place, what="start", growth=at.start)


def _moves(compared: Mapping[Place, _Compared]) -> bool:
    return any(at.outputs and not math.isnan(at.change) for at in compared.values())


def _contradiction(
    plan: PlanContent,
    scheme: Scheme,
    growths: Mapping[tuple[Place, str], list[float]],
    width: float,
    depth: float,
    layers: bool,
) -> str:
    """What contradicts, with its exponent, the expected one, and the likely cause."""
    inner = [key for key in growths if key[0][0]]
    # The deepest module says most of where it is; the outputs stand for all that feeds them.
    (place, what), of = max(
        ((key, growths[key]) for key in inner or growths),
        key=lambda found: (abs(fmean(found[1])), found[0][0][0].count(".")),
    )
    name = place[0] or "the model"
    axis, log = ("width", math.log(width)) if width != 1 else ("depth", math.log(depth))
    growth = fmean(of)
    exponent = growth / log
    observable = {
        (True, "change"): Observable.STREAM_CHANGE,
        (False, "change"): Observable.LOGITS_CHANGE,
        (True, "start"): Observable.STREAM,
        (False, "start"): Observable.LOGITS,
    }[bool(place[0]), what]
    cause = likely_cause(observable, axis, exponent, scheme=scheme, family=plan.family)
    does = "adds to its input" if place[2] == ADDED else "gives"
    verb = f"changes in {STEPS} steps" if what == "change" else "starts"
    verb += " of the repeated layers alone" if layers else ""
    draws = f"on average of {len(of)}" if layers else f"in {len(of)} of {len(of)}"
    return (
        f"The plan was tried on these two models and does not hold: what {name} {does} {verb} "
        f"{math.exp(growth):.3g} times as much as in the base, {axis}^{exponent:+.2f} at "
        f"{axis} x {math.exp(log):.4g}, where {axis}^0 is expected ({draws} "
        f"draws of the initial weights). Likely: {cause}. Look at what {name} computes from its "
        "inputs, declare the parameters there with roles= if their use was misread, or pass "
        "proof='off' to plan without this."
    )


def _proven(
    compared: Mapping[Place, _Compared],
    of_layers: Mapping[Place, _Compared],
    width: float,
    depth: float,
    *,
    step: bool,
) -> str:
    """What was measured and fits, and what two sizes cannot tell."""
    sizes = [f"width x {width:.4g}"] * (width != 1) + [f"depth x {depth:.4g}"] * (depth != 1)
    modules = sum(not at.outputs for at in compared.values()) if depth == 1 else 0
    times, of_these = (_times(found) for found in (compared, of_layers))
    of = f" and what {modules} modules give" if modules else ""
    if not step or not times:
        return (
            f"Proven in part, at {', '.join(sizes)}: the outputs{of} start no larger than they "
            "may. What training changes was not measured."
        )
    alone = f" ({of_these} times where the repeated layers alone train)" if of_these else ""
    return (
        f"Proven to within most of a power, at {', '.join(sizes)}: {STEPS} steps change the "
        f"outputs {times} times as much as in the base{alone}"
        f"{of and ', and' + of[4:] + ' fits too'}. "
        "Half powers, and single layers of deeper models, need `depthmup check`."
    )


def _times(compared: Mapping[Place, _Compared]) -> str:
    """How many times as much as in the base the outputs change; empty where none was measured."""
    changes = [at.change for at in compared.values() if at.outputs and not math.isnan(at.change)]
    ends = [f"{math.exp(end(changes)):.2g}" for end in (min, max)] if changes else []
    return " to ".join(ends if len(changes) > 1 else ends[:1])
