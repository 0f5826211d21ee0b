"""Prescriptions: what a scheme says about each parameter and each multiplier of one model."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cache
from types import MappingProxyType

from depthmup.planning.anatomy import Anatomy
from depthmup.planning.parameters import ParameterPlace
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sites import Multiplier, Where
from depthmup.rules import (
    ONE,
    Family,
    Kind,
    Laws,
    Power,
    Ratios,
    Role,
    Scheme,
    fold,
)
from depthmup.tracing import pattern_of, patterns_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Prescription(ParameterPlace):
    """A parameter and its factors, each on the value that is right at the base model.

    ``init`` is on the base's standard deviation, ``lr``, ``epsilon`` and ``decay`` on what the user
    gives the optimizer. They contain ``folded``, the multiplier that the parameter carries in place
    of the forward pass. ``laws`` are the laws before folding; ``family`` is the optimizer family
    that trains this parameter. ``ratios`` are those of the run, too. ``lr`` contains ``converted``,
    and ``decay`` its inverse: from the rate of the optimizer that it was tuned with.
    """

    family: Family
    laws: Laws
    folded: float
    init: float
    lr: float
    epsilon: float
    decay: float
    converted: float = 1.0


def served_by(family: Family, parameter: ParameterPlace) -> Family:
    """Matrix optimizers train hidden matrices stored as matrices; the rest goes beside them."""
    if family.matrices_only and len(parameter.shape) != 2:
        return Family.ENTRYWISE
    return family.serving(parameter.role.kind)


def no_matrices(
    optimizer: str, family: Family, prescriptions: Sequence[Prescription]
) -> Iterator[str]:
    """A note on hidden weights that an optimizer of matrices does not train."""
    hidden = [p for p in prescriptions if p.role.kind is Kind.HIDDEN]
    beside = [p.name for p in hidden if not p.family.matrices_only]
    if family.matrices_only and beside:
        nothing = " Nothing is left for it: plan for AdamW." if len(beside) == len(hidden) else ""
        yield (
            f"{optimizer} trains weights of two dimensions, and {patterns_of(beside, most=3)} have "
            "another number (kernels of convolutions, stacks of matrices): AdamW trains them, at "
            "adamw_lr. No rule covers implementations that flatten kernels." + nothing
        )


# A model's own numbers may be held in single precision.
_SINGLE = 1e-6
# Their factors are those of the longer side of a matrix, which no power of the ratios knows.
_BY_LONGER_SIDE = (Family.SPECTRAL, Family.SPECTRAL_RMS)
_IN, _OUT = Power(fan_in=Fraction(1)), Power(fan_out=Fraction(1))
_HALF = Fraction(1, 2)
_NORMS: Mapping[Family, tuple[tuple[int, int], tuple[int, int]]] = MappingProxyType(
    {
        Family.SPECTRAL: ((0, 0), (1, -1)),
        Family.SPECTRAL_RMS: ((0, 1), (1, 0)),
        Family.SPECTRAL_RATIO: ((1, -1), (1, -1)),
        Family.SPECTRAL_UNIT: ((0, 0), (0, 0)),
        Family.SHAMPOO: ((0, 0), (0, 0)),
    }
)
"""An update's norm as powers of rows^1/2 and columns^1/2: of matrices with no more rows than
columns, and of those with more."""

BY_HEADS = frozenset(_NORMS)
"""Families whose updates are a multiple of U V^T, of a matrix or of each head's rows."""


def prescribe(
    anatomy: Anatomy,
    scheme: Scheme,
    family: Family,
    *,
    run: Ratios,
    folding: bool,
    multiplier: float = 1.0,
    init_scale: float = 1.0,
    heads: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> tuple[tuple[Prescription, ...], tuple[Multiplier, ...]]:
    """One prescription for every parameter, and the multipliers other than 1.

    ``multiplier`` is that of every branch at the base and ``init_scale`` that of initial weights of
    matrices inside branches, both beside the model's own. ``heads`` has the rows of one head, in
    the model and in the base, of matrices that the optimizer orthogonalizes head by head.
    """
    # Here once more: the scheme's own cache hashes all of the scheme for each parameter.
    known = cache(scheme.laws)
    roles = {
        parameter.name: _laws(parameter, scheme, family, known, heads.get(parameter.name))
        for parameter in anatomy.places
    }
    located = {site.label for site in anatomy.sites if site.where is Where.READOUT}
    for parameter in anatomy.places:
        if (
            parameter.name not in located
            and roles[parameter.name].forward.at(parameter.ratios) != 1.0
        ):
            embeds = parameter.name in anatomy.embeddings or parameter.role.tied
            roles[parameter.name] = _without_multiplier(
                parameter, roles[parameter.name], family, embeds=embeds
            )
    multipliers = []
    carried: dict[str, float] = {}
    unfolded = _explicit(anatomy.sites, folding)
    for index, site in enumerate(anatomy.sites):
        factor = _multiplier(site, scheme, roles, multiplier, folding=index not in unfolded)
        if factor is None:
            continue
        multipliers.append(factor)
        for name in factor.folds:
            carried[name] = carried.get(name, 1.0) * factor.value
    prescriptions = tuple(
        _prescription(
            parameter, roles[parameter.name], family, run, carried.get(parameter.name, 1.0)
        )
        for parameter in anatomy.places
    )
    if init_scale != 1.0:
        prescriptions = _rescaled(prescriptions, init_scale)
    return prescriptions, tuple(multipliers)


def _rescaled(
    prescriptions: tuple[Prescription, ...], init_scale: float
) -> tuple[Prescription, ...]:
    """Prescriptions in which matrices inside branches start from so many times their scale.

    Gains and biases keep theirs: a gain of one and a bias of zero are no random weights. Which
    dimensions grow plays no part, so that sweeps of depth alone scale the same weights.
    """
    concerned = [p.role.in_branch and len(p.shape) > 1 for p in prescriptions]
    if not any(concerned):
        raise NotUnderstood(
            "The initial scale is that of matrices inside residual branches, and none was found. "
            "Tune something else, or declare the branches."
        )
    return tuple(
        replace(p, init=p.init * init_scale) if inside else p
        for p, inside in zip(prescriptions, concerned, strict=True)
    )


def _laws(
    parameter: ParameterPlace,
    scheme: Scheme,
    family: Family,
    known: Callable[[Role, Family], Laws],
    head: tuple[int, int] | None,
) -> Laws:
    """The scheme's laws, with what Muon's own factor lacks where only one side of a matrix grows.

    An update of spectral norm sqrt(out/in) is what maximal updates are. Muon's has the norm
    sqrt(max(1, rows/columns)), or 0.2 sqrt(max(rows, columns)): the same only if both sides grow
    alike, or if there are more rows than columns. A head that is orthogonalized by itself is such a
    matrix: what all heads add to one input would else grow as the root of their number.
    """
    served = served_by(family, parameter)
    laws, ratios = known(parameter.role, served), parameter.ratios
    out = scheme.sized(_OUT, parameter.role)
    concerned = served in _BY_LONGER_SIDE and ratios.fan_in != out.at(ratios)
    follows = scheme.follows_width and f"{parameter.role.kind}.lr" not in scheme.left_out
    if not follows or not (concerned or head):
        return laws
    (rows, columns), (rows_before, columns_before) = parameter.shape, parameter.base_shape
    of_block = out
    if head:
        rows, rows_before = head
        of_block = out if rows != rows_before else ONE
    grow = [of_block, _IN]
    if rows != rows_before * of_block.at(ratios):  # stored as (in, out)
        grow.reverse()
    wide = rows <= columns and rows_before <= columns_before
    if not wide and (rows < columns or rows_before < columns_before):
        raise NotUnderstood(
            f"{'A head of ' if head else ''}{parameter.name} has more rows than columns in one of "
            f"the two models and fewer in the other ({[rows_before, columns_before]} in the base, "
            f"{[rows, columns]} in the model): Muon's updates differ. Use a base in which it is "
            "the same way, or AdamW."
        )
    of_rows, of_columns = _NORMS[served][0 if wide else 1]
    own = grow[0] ** (of_rows * _HALF) * grow[1] ** (of_columns * _HALF)
    # What the laws took the update's norm to be: of entries ``size`` as one of rank one has.
    size = scheme.update_size(parameter.role, served.response)
    taken = size * (of_block * _IN) ** _HALF
    lacking = taken / own
    return replace(
        laws,
        lr=laws.lr * lacking,
        decay=laws.decay / lacking,
        epsilon=laws.epsilon * (of_block / out) ** _HALF,
    )


def _without_multiplier(
    parameter: ParameterPlace, laws: Laws, family: Family, *, embeds: bool
) -> Laws:
    """The laws of a readout whose forward multiplier A has no known place: A moves into the weight.

    Exact for every family, as ``rules.fold`` is. A weight that is also an embedding cannot carry A.
    """
    if embeds:
        raise NotUnderstood(
            f"What {' = '.join(parameter.names)} gives as a readout must be multiplied by "
            f"{laws.forward.at(parameter.ratios):.6g}, which the weight cannot carry as it is also "
            "an embedding, and without a trace of the forward pass the place is unknown. Pass "
            "example_inputs that can be followed, untie the two, or use the same width in the base."
        )
    response = served_by(family, parameter).response
    step = laws.forward ** (1 + response.gradient - response.weight)
    return Laws(
        init=laws.init * laws.forward,
        forward=ONE,
        lr=laws.lr * step,
        epsilon=laws.epsilon / laws.forward**response.epsilon_degree,
        decay=laws.decay / step,
    )


GROUPS = MappingProxyType(
    {
        Where.BRANCH: "branch.multiplier",
        Where.LOGITS: "attention.multiplier",
        Where.READOUT: "readout.multiplier",
    }
)
"""The factor that a multiplier is, without which a model's own constant there stays."""


def _explicit(sites: Sequence[Multiplier], folding: bool) -> set[int]:
    """The sites whose multipliers stay in the forward pass.

    Where one hook serves several sites (one dropout for two branches) all of them are explicit as
    soon as one is.
    """
    explicit = {
        i
        for i, site in enumerate(sites)
        if not site.folds or (not folding and site.where is not Where.CONSTANT)
    }
    while True:
        hooked = {hook for i in explicit for hook in sites[i].hooks}
        more = {i for i, site in enumerate(sites) if hooked & set(site.hooks)}
        if more <= explicit:
            return explicit
        explicit |= more


def _multiplier(
    site: Multiplier, scheme: Scheme, laws: Mapping[str, Laws], of_branches: float, *, folding: bool
) -> Multiplier | None:
    replaced = GROUPS.get(site.where) not in scheme.left_out
    own, base = site.own if scheme.replaces_own and replaced else 1.0, 1.0
    if site.where is Where.BRANCH:
        law, base = scheme.branch, of_branches
        # A scheme that leaves depth alone leaves the model's own rule for depth alone, too.
        of_depth = scheme.follows_depth and replaced and not scheme.added
        follows = of_depth or (site.ratios.depth == 1 and scheme.replaces_own)
        own = site.own if follows else 1.0
    elif site.where is Where.LOGITS:
        law = scheme.attention_logits
    elif site.where is Where.READOUT:
        law = laws[site.label].forward
    elif site.where is Where.EXPERTS:
        law = ONE if scheme.experts is None else Power(active=Fraction(-1))
    else:  # the tied embedding's forward law is the readout's, not the lookup's
        law = ONE
    value = (base * law.at(site.ratios) / own) ** (1 / site.times)
    if math.isclose(value, 1.0, rel_tol=_SINGLE):
        return None
    folds = site.folds if folding else ()
    if not folds and not site.hooks:
        raise NotUnderstood(_no_place(site, value))
    return replace(
        site,
        value=value,
        law=law,
        own=own,
        base=base,
        folds=folds,
        hooks=() if folds else site.hooks,
    )


def _no_place(site: Multiplier, value: float) -> str:
    at = pattern_of(site.label) or "the top level of the model"
    what = f"{site.where} at {at}"
    if site.where is Where.LOGITS:
        what = f"product of two activations (attention logits, scores) at {at}"
    start = (
        f"The {what} must be multiplied by {value:.6g}, but no parameter can "
        "carry it exactly (something nonlinear, a norm, or another reader stands between, or the "
        "weight is used elsewhere) and it is not the output of a module. "
    )
    if site.where is Where.BRANCH:
        return start + (
            "Give the branch a module: x + self.branch(f(x)) with self.branch = depthmup.Branch(), "
            "which has no parameters. If loops of different lengths run the same block, declare "
            "every branch, so that blocks are counted: "
            f"branches={{{pattern_of(site.label)!r}: (), ...}}."
        )
    if site.where is Where.LOGITS:
        return start + (
            "Give one of the two a module of its own: self.query = depthmup.Branch(), which has "
            "no parameters, and self.query(q) in place of q in the product. Or grow the number of "
            "heads instead of their size."
        )
    return start + "Compute it with a module (nn.Linear, nn.Embedding) of its own."


def _prescription(
    parameter: ParameterPlace, laws: Laws, family: Family, run: Ratios, folded: float
) -> Prescription:
    served = served_by(family, parameter)
    ratios = replace(parameter.ratios, batch=run.batch, duration=run.duration)
    moved = fold(folded, served)
    return Prescription(
        **{f.name: getattr(parameter, f.name) for f in fields(parameter)} | {"ratios": ratios},
        family=served,
        laws=laws,
        folded=folded,
        init=laws.init.at(ratios) * moved.init,
        lr=laws.lr.at(ratios) * moved.lr,
        epsilon=laws.epsilon.at(ratios) * moved.epsilon,
        decay=laws.decay.at(ratios) * moved.decay,
    )
