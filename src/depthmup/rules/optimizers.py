"""Optimizers by name or class: which family they belong to, and what must be known of some."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from depthmup.rules.atlas import Entry, entries
from depthmup.rules.family import Family


class Decay(StrEnum):
    """How an optimizer applies weight_decay.

    Example:
        >>> DECAYS["adamw"]
        <Decay.DECOUPLED: 'decoupled'>
    """

    DECOUPLED = "decoupled"  # subtracted from the weight, times the learning rate
    COUPLED = "coupled"  # added to the gradient
    EITHER = "either"  # as decoupled_weight_decay says


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What is known of an optimizer: its family, torch.optim's defaults, how it decays, the root
    mean square of its steps' entries at learning rate 1, and what plans show as a note.
    """

    family: Family
    epsilon: float | None = None
    betas: tuple[float, float] | None = None
    decay: Decay | None = None
    step: float | None = None
    caveat: str = ""


_USUAL = (0.9, 0.999)
_OF_ADAM = 0.2
_DRIFTS = (
    "arXiv 2512.05620 measured the best learning rate to rise with width under this rule, as the "
    "stable rank of the update grows"
)

_ADAM = _Known(
    family=Family.ENTRYWISE, epsilon=1e-8, betas=_USUAL, decay=Decay.EITHER, step=_OF_ADAM
)
_ADAMW = replace(_ADAM, decay=Decay.DECOUPLED)
_LIKE_ADAMW = _Known(family=Family.ENTRYWISE, decay=Decay.DECOUPLED)
_SIGN = _Known(family=Family.ENTRYWISE, decay=Decay.COUPLED, step=1.0)
_SGD = _Known(family=Family.RAW)

_KNOWN: Mapping[str, _Known] = {
    "sgd": _SGD,
    "asgd": _SGD,
    "lomo": _SGD,
    "schedule-free-sgd": _SGD,
    "adam": _ADAM,
    "adamw": _ADAMW,
    "nadam": _ADAM,
    "radam": _ADAM,
    "adamax": replace(_ADAM, decay=Decay.COUPLED, step=None),
    "adagrad": _Known(family=Family.ENTRYWISE, epsilon=1e-10, decay=Decay.COUPLED),
    "rmsprop": _Known(family=Family.ENTRYWISE, epsilon=1e-8, decay=Decay.COUPLED),
    "lion": replace(_SIGN, decay=Decay.DECOUPLED),
    "sign": _SIGN,
    "signum": _SIGN,
    "sophia": _LIKE_ADAMW,
    "ademamix": _LIKE_ADAMW,
    "adam-atan2": _LIKE_ADAMW,
    "stable-adamw": _LIKE_ADAMW,
    "grokadamw": _LIKE_ADAMW,
    "adan": _LIKE_ADAMW,
    "schedule-free-adamw": replace(_LIKE_ADAMW, step=_OF_ADAM),
    "schedule-free-radam": _LIKE_ADAMW,
    "lamb": _Known(
        family=Family.RELATIVE,
        epsilon=1e-6,
        betas=_USUAL,
        caveat=(
            "LAMB steps in proportion to each tensor's norm, and by Adam's own size where that is "
            "0: tensors that start at zero get a first step that no factor here makes right."
        ),
    ),
    "lars": _Known(
        family=Family.RELATIVE,
        caveat=(
            "LARS steps in proportion to each tensor's norm, and by the gradient where that norm "
            "is 0: tensors that start at zero get a first step that no factor here makes right."
        ),
    ),
    # Epsilon and betas of optimizers of matrices are those of the AdamW beside them.
    "muon": _Known(family=Family.SPECTRAL, epsilon=1e-8, betas=_USUAL),
    "muon-rms": _Known(family=Family.SPECTRAL_RMS, epsilon=1e-8, betas=_USUAL),
    "dion": _Known(family=Family.SPECTRAL_RATIO),
    "shampoo": _Known(family=Family.SHAMPOO),
    "shampoo2": _Known(family=Family.SPECTRAL_INVERSE),
    "shampoo-blocks": _Known(family=Family.SHAMPOO_BLOCKS),
    "soap": _Known(
        family=Family.SPECTRAL_UNIT,
        caveat=(
            "SOAP with one block per matrix: its projected gradients are dense at finite width, so "
            "this rule was measured to fail from the first step on (arXiv 2512.05620). Blocks of "
            "a fixed size repair it: max_precond_dim or block_size 128, optimizer='soap-blocks'."
        ),
    ),
    "soap-blocks": _Known(family=Family.MATRIX_ENTRYWISE),
    "adamuon": _Known(family=Family.ADAMUON, caveat=f"AdaMuon: {_DRIFTS}; measure it."),
    "scion": _Known(
        family=Family.NORM_BALL,
        decay=Decay.DECOUPLED,
        caveat=(
            "Scion: hidden matrices under the spectral norm, the first layer under its column norm "
            "or sign, the readout under the sign divided by its fan-in, biases under RMS. Its "
            "radii are the base's; a readout tied to the embedding must take the readout's norm."
        ),
    ),
    "muonh": _Known(family=Family.SPHERE),
    "adamh": _Known(
        family=Family.SPHERE,
        caveat=(
            "AdamH: that no width factor is needed holds for updates whose singular values are "
            "alike (arXiv 2603.28743, Theorem 2); another group measured width^-0.15. Measure it."
        ),
    ),
}

_BY_CLASS: Mapping[str, _Known] = {
    "adafactor": _Known(
        family=Family.RELATIVE,
        decay=Decay.DECOUPLED,
        caveat=(
            "torch.optim.Adafactor caps every group's rate at 1/sqrt(step): beyond 1/lr^2 steps of "
            "the group with the largest rate, the cap and not the plan sets the rates."
        ),
    )
}
"""Optimizers whose name alone does not say which they are."""

OPTIMIZERS: Mapping[str, Family] = MappingProxyType({n: k.family for n, k in _KNOWN.items()})
"""Optimizers by name.

``shampoo``: exponents 1/4 and 1/4, or one side alone with 1/2; ``shampoo2``: 1/2 and 1/2;
``-blocks``: in blocks of one fixed size (128), the same in model and base. *Source:* see
``RESPONSES``; Signum, Sophia, AdEMAMix, atan2: normalized entry by entry, as Adam.
"""


class _Told(Mapping[str, Any]):
    """What is known of optimizers, by their names, where it is.

    "optimi.adam", a class of another package by a name of torch's, has what the name has; but for
    its decay, in which packages differ.
    """

    def __init__(self, name: str) -> None:
        every = {**_KNOWN, **_BY_CLASS}
        self._known = {n: value for n, k in every.items() if (value := getattr(k, name))}
        self._of_packages = name != "decay"

    def __getitem__(self, name: str) -> Any:
        return self._known[name.rpartition(".")[2] if self._of_packages else name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


EPSILON: Mapping[str, float] = _Told("epsilon")
"""The epsilon of torch.optim where none is given (of Muon, that of the AdamW beside it). Families
named directly have none known."""

BETAS: Mapping[str, tuple[float, float]] = _Told("betas")
"""The decay rates of both averages where none are given, likewise."""

DECAYS: Mapping[str, Decay] = _Told("decay")
"""How optimizers apply weight_decay, where that is known."""

STEPS: Mapping[str, float] = _Told("step")
"""Root mean square of a step's entries at learning rate 1, of optimizers that step entry by entry.

*Source:* Liu et al. 2025 (arXiv 2502.16982, Section 2.2) for Adam's 0.2. Where the gradient is
noise alone it is ((1 - beta1) / (1 + beta1))^1/2 = 0.23 at beta1 = 0.9.
"""

CAVEATS: Mapping[str, str] = _Told("caveat")
"""What a person should know before trusting a rule, by optimizer; plans show it as a note."""

_ONE_RATE = (
    "{name} estimates one learning rate for all parameters, and its implementations refuse "
    "groups with different ones; a width x depth rule needs them to differ. Let it find the "
    "rate of the base, then train with AdamW under a plan."
)
_LOW_RANK = (
    "{name} projects gradients to a low rank, and no scaling rule is known for how its "
    "steps depend on width at a fixed rank. Use AdamW or Muon."
)
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "adafactor": (
            "Adafactor has two kinds of steps. torch.optim.Adafactor, and transformers' with "
            "scale_parameter=True, step in proportion to the weight: optimizer='relative'. With "
            "scale_parameter=False and relative_step=False, as transformers' Trainer sets it, "
            "every entry steps alike: optimizer='entrywise'. Say which, or pass the class "
            "torch.optim.Adafactor."
        ),
        "prodigy": _ONE_RATE,
        "dadaptadam": _ONE_RATE,
        "dadaptsgd": _ONE_RATE,
        "dadaptlion": _ONE_RATE,
        "dadaptadagrad": _ONE_RATE,
        "dadaptation": _ONE_RATE,
        "adadelta": (
            "Adadelta sets the size of its steps from the size of earlier ones, and no scaling "
            "rule is known for that. Use AdamW, or transfer nothing."
        ),
        "rprop": (
            "{name} reads its learning rate once, and then sizes its steps by the signs of earlier "
            "gradients between absolute bounds: no factor on the rate stays in them. Use AdamW, or "
            "a sign method such as Lion."
        ),
        "lbfgs": (
            "L-BFGS takes one step for all parameters together, so learning rates cannot differ "
            "between them. Use SGD or AdamW."
        ),
        "adalomo": (
            "AdaLomo factors its second moments and steps in proportion to the weight: "
            "optimizer='relative' if yours does, 'entrywise' if its scaling by the weight is off."
        ),
        "galore": _LOW_RANK,
        "apollo": _LOW_RANK,
    }
)
# What says how an optimizer is computed and not what it computes, in Trainer's names and in
# classes': adamw_torch_fused, paged_lion_8bit, AdamW8bit, DeepSpeedCPUAdam.
_IMPLEMENTATION = re.compile(
    r"torch|hf|fused|foreach|bnb|apex|npu|xla|paged|anyprecision|torchao|deepspeed|cpu|\d+bit"
)
_SYNONYMS = {
    "adamwschedulefree": "schedule-free-adamw",
    "sgdschedulefree": "schedule-free-sgd",
    "radamschedulefree": "schedule-free-radam",
    "stableadamw": "stable-adamw",
    "sophiag": "sophia",
    "adamatan2": "adam-atan2",
    "signsgd": "sign",
    "lion-pytorch": "lion",
}


def family(name: "str | Family | type") -> Family:
    """The family of an optimizer: by its name, its class, or the family's own name.

    ``"adam#shampoo"`` is grafting: the size of Adam's steps in the direction of Shampoo's.

    Args:
        name: of an optimizer, of a family, or a class.

    Returns:
        The family.

    Raises:
        ValueError: neither a known optimizer nor a family, or one for which no rule is known.

    Example:
        >>> family("AdamW"), family("paged_adamw_8bit")
        (<Family.ENTRYWISE: 'entrywise'>, <Family.ENTRYWISE: 'entrywise'>)
    """
    return named(name)[1]


def named(optimizer: "str | Family | type") -> tuple[str, Family]:
    """The plain name and the family of an optimizer.

    Args:
        optimizer: a name (Trainer's too), a class, or a family.

    Returns:
        The name, and the family.

    Raises:
        ValueError: neither a known optimizer nor a family, or one for which no rule is known.

    Example:
        >>> named("adamw_torch_fused")
        ('adamw', <Family.ENTRYWISE: 'entrywise'>)
    """
    if isinstance(optimizer, type):
        return _of_class(optimizer)
    if isinstance(optimizer, str):
        key = str(optimizer).strip().lower()
        if key in set(Family):
            return key, Family(key)
        if key.count("#") == 1:  # grafting: the first gives the size, the second the direction
            size, direction = (named(part)[1] for part in key.split("#"))
            return key, _grafted(size, direction)
        plain = _plain(key)
        if plain in OPTIMIZERS:
            return plain, OPTIMIZERS[plain]
        _refuse(plain, optimizer)
    if near := difflib.get_close_matches(str(optimizer).lower(), (*OPTIMIZERS, *Family), n=3):
        raise ValueError(
            f"Expected an optimizer by its name or class, or a family; got {optimizer!r}. "
            f"Did you mean {' or '.join(near)}? For another optimizer, name its family."
        )
    raise ValueError(
        f"Expected an optimizer ({', '.join(OPTIMIZERS)}) by its name or class, or a family "
        f"({', '.join(Family)}); got {optimizer!r}. For another optimizer, name its family: "
        "raw if its update is proportional to the gradient, entrywise if every entry of the "
        "update has the same size whatever the gradient's scale, relative if the update is "
        "proportional to the weight's size, spectral if it is an orthogonalized matrix. "
        "depthmup.family_of(optimizer) measures which."
    )


def _of_class(cls: type) -> tuple[str, Family]:
    in_torch = cls.__module__.split(".")[:2] == ["torch", "optim"]
    if in_torch and cls.__name__ == "Adafactor":
        return "adafactor", Family.RELATIVE
    # "PagedLion8bit" is "Paged-Lion-8bit", of which two parts say how it is computed.
    plain = _plain(
        re.sub(r"(?<=[A-Za-z])(?=\d+bit)|(?<=Paged)|(?<=Fused)|(?<=CPU)", "-", cls.__name__)
    )
    if cls.__name__ in ("FusedAdam", "DeepSpeedCPUAdam", "CPUAdamBuilder"):
        plain = "adamw"  # their adam_w_mode is on unless switched off
    if not in_torch and (rows := entries(cls)):
        return _as_measured(cls, plain, rows)
    # Classes of one name differ in how they scale an orthogonalized update: of these torch's alone
    # is known.
    known = OPTIMIZERS.get(plain)
    if known is not None and (in_torch or not known.matrices_only):
        of_torch_alone = not in_torch and DECAYS.get(plain) is Decay.EITHER
        return (_of_package(cls, plain) if of_torch_alone else plain), known
    _refuse(plain, cls.__name__)
    raise ValueError(
        f"{cls.__module__}.{cls.__name__} is not an optimizer whose update is known here: classes "
        f"of one name differ in how they scale it. {_measure(cls)}"
    )


def _as_measured(cls: type, plain: str, rows: Sequence[Entry]) -> tuple[str, Family]:
    """The name and the family of a class that the atlas has."""
    named_so = f"{cls.__module__.partition('.')[0]}.{cls.__name__} {rows[0].version}"
    found = {row.family: row for row in rows if row.family}
    if len(found) > 1:
        of = [f"{family!r} ({row.settings or 'by default'})" for family, row in found.items()]
        raise ValueError(
            f"{named_so} is of another family by its settings: {', '.join(of)}. Name the family "
            f"that yours is of: optimizer={rows[0].family!r}. {_measure(cls)}"
        )
    if not any(row.verdict == "right" for row in rows):
        raise ValueError(f"{named_so} has no rule: {rows[0].why}. {_measure(cls)}")
    family = Family(rows[0].family)
    if family.matrices_only or OPTIMIZERS.get(plain) is not family:
        return str(family), family
    decouples = all(row.decay == "decoupled" for row in rows)
    told = DECAYS.get(plain) in (Decay.DECOUPLED, Decay.EITHER)
    as_named = DECAYS.get(plain) is Decay.DECOUPLED if decouples else not told
    return plain if as_named else _of_package(cls, plain), family


def _of_package(cls: type, plain: str) -> str:
    return f"{cls.__module__.partition('.')[0]}.{plain}".lower()


def _measure(cls: type) -> str:
    return (
        f"Measure yours, depthmup.family_of(lambda parameters: {cls.__name__}(parameters, lr=...)),"
        " and plan with the family it names."
    )


def no_rule(cls: type) -> str | None:
    """Why no optimizer of this name has a rule, whatever its settings; None if one may have."""
    plain = _plain(cls.__name__)
    reason = (
        None if plain in _BY_SETTINGS else _REFUSED.get(plain) or _REFUSED.get(plain.split("-")[0])
    )
    return None if reason is None else reason.format(name=cls.__name__)


_BY_SETTINGS = frozenset({"adafactor", "adalomo"})
"""Names whose family is decided by settings: a name alone is refused, an optimizer measured."""


def _grafted(size: Family, direction: Family) -> Family:
    """The family of grafting: the first one's size, for the matrices that the second one trains."""
    if size is Family.ENTRYWISE and direction.matrices_only:
        return Family.MATRIX_ENTRYWISE
    return size


def _plain(key: str) -> str:
    parts = [part for part in re.split(r"[-_\s]+", key.lower()) if part]
    plain = "-".join(part for part in parts if not _IMPLEMENTATION.fullmatch(part))
    return _SYNONYMS.get(plain, plain)


def _refuse(plain: str, given: object) -> None:
    start = plain.split("-")[0]
    reason = _REFUSED.get(plain) or _REFUSED.get(start)
    if reason is not None:
        raise ValueError(reason.format(name=given))
