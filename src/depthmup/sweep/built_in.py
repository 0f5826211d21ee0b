"""The built-in networks: residual MLPs on images, whose runs are described by cells."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from depthmup.model.command import INIT_SCALE
from depthmup.records import NUMERICS, RUN_AXES, Cell, Data, Network, Optimizer
from depthmup.records.codec import decode, encode
from depthmup.records.run import ORDERS, PRECISIONS, Order, Precision
from depthmup.records.search import Values
from depthmup.rules import (
    HIDDEN_IN_BRANCH,
    MAXIMAL_UPDATE,
    Family,
    Kind,
    Ratios,
    Role,
    RunLaws,
    family,
)
from depthmup.sweep.design import Design, Size, Variant, refuse
from depthmup.sweep.hyperparameters import (
    hyperparameters,
    ratios_at,
    settings_under,
)
from depthmup.training.native.library import ACTIVATIONS, OPTIMIZERS
from depthmup.training.schedules import schedule

READOUT = Role(kind=Kind.READOUT)

# (inputs, classes) of the data sets that networks are sized for.
DATA_SHAPES = {"digits": (64, 10), "mnist": (784, 10), "cifar10": (3072, 10)}
USUAL_RATE = 2.0**-3.5
"""In units of 1 / width for Adam and 1 for SGD: the optimum of networks with a = 1 lies there."""

SETTINGS: dict[str, Any] = {
    "betas": [0.9, 0.999],
    "eps": 1e-8,
    "momentum": 0.0,
    "schedule": "constant",
    "warmup": 0.0,
}
"""Optimizer settings that ``Design.settings`` may have, with their defaults. ``init_scale``, of
the initial weights inside branches, may stand beside them."""

TUNABLE = (
    *("lr", "weight_decay", "multiplier", INIT_SCALE, "one_minus_beta2", "eps", "warmup"),
    *("batch", "steps"),
)
"""What runs of these networks follow; the cooldown is refused in its own words."""


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """Residual MLPs on images, trained by a compiled kernel: a model that needs no code.

        x <- x + a multiplier(L) (phi(W x) - mean)

    At the base W has entries N(0, 1/width), U N(0, 1/inputs) and V N(0, 1/width^2); U and V are
    not trained. ``Design.settings`` may have ``betas``, ``eps``, ``momentum``, ``schedule``
    (constant, linear or cosine) and ``warmup``, the fraction of training before it.

    Args:
        activation: phi, one of abs, relu, identity, tanh, gelu, silu, softplus, erf, sin or cos.
        nonlinearity: where phi stands: post, phi(W x), or pre, W phi(x).
        block_depth: matrices in series in a branch.
        mean_subtraction: subtract the mean over features from every branch.
        layer_norm: normalize the input of every branch.
        batch_size: examples per step.
        order: how examples are drawn: replacement, independently, or epochs, every one once per
            epoch, in a new order each time.
        data: by default the digits; ``depthmup.training.find_data`` gives others.
        precision: precision of matrix products; tf32 needs cuda. Runs of different precision are
            stored separately.
        numerics: the version of the engines; an older one finds records of the past.

    Raises:
        ValueError: a setting is out of range.

    *Source:* TP6 (arXiv 2310.02244) Sections 6.3 and 10.2.

    Example:
        >>> BuiltIn(activation="relu").classes
        10
    """

    activation: str = "abs"
    nonlinearity: Literal["post", "pre"] = "post"
    block_depth: int = 1
    mean_subtraction: bool = True
    layer_norm: bool = False
    batch_size: int = 64
    order: Order = "replacement"
    data: Data = field(default_factory=Data)
    precision: Precision = "float32"
    numerics: int = NUMERICS

    def __post_init__(self) -> None:
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold; ``from_dict`` reads it back.

        Returns:
            The fields, and ``kind``, built-in.
        """
        return {"kind": "built-in", **encode(self)}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "BuiltIn":
        """The networks that ``to_dict`` described.

        Args:
            raw: as read from JSON.

        Returns:
            The networks.
        """
        return decode(BuiltIn, {k: v for k, v in raw.items() if k != "kind"}, "the networks")

    @property
    def classes(self) -> int:
        """Number of classes of the data."""
        return DATA_SHAPES[self.data.name][1]


def check_design(design: Design) -> None:
    """Refuse a design that these networks cannot be trained by."""
    check_axes(design.base)
    for name in design.optimizers or ():
        if name not in OPTIMIZERS:
            raise ValueError(
                f"Expected optimizer to be one of {', '.join(OPTIMIZERS)} for the "
                f"built-in networks; got {name!r}."
            )
    keys = [one.key for one in design.tuned]
    decays = any(design.weight_decays) or "weight_decay" in keys
    if unknown := [key for key in keys if key not in TUNABLE]:
        raise ValueError(
            f"Expected values of the built-in networks to tune, among {', '.join(TUNABLE)}; got "
            f"{', '.join(unknown)}. A command or a training function of your own takes others."
        )
    if "adam" in (design.optimizers or ()) and decays:
        raise ValueError(
            "Weight decay inside Adam's gradient cannot be made to transfer: its effect "
            "depends on the gradient's scale. Got weight decay with optimizer 'adam'; use "
            "'adamw', whose decay is decoupled."
        )
    _check_settings(design.settings)


def cell_of(
    model: BuiltIn, design: Design, variant: Variant, size: Size, log2_value: Values, seed: int
) -> Cell:
    """The run that a variant prescribes at a size and a value of what is tuned at the base."""
    variant, log2_lr, own = hyperparameters(design, variant, log2_value)
    init_scale = own.pop(INIT_SCALE, 1.0)
    of_run, steps = design.run_size(size, log2_value)
    inputs, outputs = DATA_SHAPES[model.data.name]
    base_width = design.base["width"]
    square, laws = ratios_at(design, size), variant.run_laws
    optimizer, of_size = family(variant.optimizer), replace(variant.scheme, run=RunLaws())
    hidden, readout = of_size.laws(HIDDEN_IN_BRANCH, optimizer), of_size.laws(READOUT, optimizer)
    settings = settings_under(laws, square, variant.optimizer, {**SETTINGS, **own})
    # Rounded, so that rates that are equal in theory get equal keys and are trained once.
    lr, decay = (
        getattr(hidden, name).at(square) * getattr(laws, name).at(square)
        for name in ("lr", "decay")
    )
    exponent = round(log2_lr + math.log2(lr), 9)
    return Cell(
        network=Network(
            inputs=inputs,
            outputs=outputs,
            width=size["width"],
            depth=size["depth"],
            multiplier=variant.multiplier * variant.scheme.branch.at(square),
            input_std=inputs**-0.5,
            hidden_std=base_width**-0.5 * hidden.init.at(square) * init_scale,
            # V is not trained, so a multiplier of the logits can be a factor of its entries.
            readout_std=(readout.init * readout.forward).at(Ratios(fan_in=square.fan_in))
            / base_width,
            block_depth=model.block_depth,
            activation=model.activation,
            nonlinearity=model.nonlinearity,
            mean_subtraction=model.mean_subtraction,
            layer_norm=model.layer_norm,
        ),
        optimizer=Optimizer(
            name=variant.optimizer,
            lr=2.0**exponent,
            beta1=settings["betas"][0],
            beta2=settings["betas"][1],
            epsilon=settings["eps"] * hidden.epsilon.at(square),
            momentum=settings["momentum"],
            weight_decay=variant.weight_decay * decay,
            schedule=settings["schedule"],
            warmup=float(settings["warmup"]),
        ),
        data=model.data,
        steps=steps,
        batch_size=of_run.get("batch", model.batch_size),
        seed=seed,
        numerics=model.numerics,
        order=model.order,
        precision=model.precision,
    )


def rate_unit(optimizer: str, width: int) -> float:
    """muP's learning rate of a hidden matrix: 1 / width for Adam, 1 for SGD.

    In this unit the optimum does not depend on the width.

    Example:
        >>> rate_unit("adam", 64), rate_unit("sgd", 64)
        (0.015625, 1.0)
    """
    of: Family = family(optimizer)
    reference = MAXIMAL_UPDATE.hidden
    law = reference.update / reference.gradient**of.degree
    return float(law.at(Ratios(fan_in=width, fan_out=width)))


def usual_rate(base: Size, optimizer: str) -> float:
    """The learning rate from which the optimum of networks of the base's width is looked for."""
    return rate_unit(optimizer, base["width"]) * USUAL_RATE


def check_axes(base: Size) -> None:
    """Refuse axes that these networks do not have."""
    if not {"width", "depth"} <= set(base) <= {"width", "depth", *RUN_AXES}:
        raise ValueError(
            "Expected the axes width, depth, batch, and steps or tokens for the built-in "
            f"networks, the first two of them at least; got {', '.join(base)}. A model of your "
            "own may have others."
        )


def _check(model: BuiltIn) -> None:
    """Refuse settings that are out of range, before anything is run."""
    for name in ("batch_size", "block_depth"):
        if getattr(model, name) < 1:
            refuse(name, "at least 1", getattr(model, name))
    named = {"activation": ACTIVATIONS, "order": ORDERS, "precision": PRECISIONS}
    for name, known in named.items():
        if getattr(model, name) not in known:
            refuse(name, f"one of {', '.join(known)}", getattr(model, name))
    if model.nonlinearity not in ("post", "pre"):
        refuse("nonlinearity", "'post', phi(W x), or 'pre', W phi(x)", model.nonlinearity)
    if model.data.name not in DATA_SHAPES:
        refuse("data", f"one of {', '.join(DATA_SHAPES)}", model.data.name)
    if (model.data.name == "digits") == bool(model.data.digest):
        raise ValueError(
            "Expected a digest for all data but the digits, which come with the package; got "
            f"{model.data!r}. depthmup.training.find_data('mnist:FOLDER') computes it."
        )
    if not 0 <= model.data.label_noise <= 1:
        refuse("label_noise", "a fraction in [0, 1]", model.data.label_noise)


def _check_settings(settings: Mapping[str, Any]) -> None:
    known = (*SETTINGS, INIT_SCALE)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise ValueError(
            f"Expected settings of the built-in networks among {', '.join(known)}; got "
            f"{', '.join(unknown)}."
        )
    schedule(*(settings.get(name, SETTINGS[name]) for name in ("schedule", "warmup")))
    scale = settings.get(INIT_SCALE, 1.0)
    if not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise ValueError(f"Expected init_scale to be positive; got {scale!r}.")
    betas = settings.get("betas", SETTINGS["betas"])
    if not isinstance(betas, list | tuple) or len(betas) != 2:
        raise ValueError(f"Expected betas to be two numbers; got {betas!r}.")
    numbers = {"eps": settings.get("eps", 0.0), "momentum": settings.get("momentum", 0.0)}
    for name, value in (*numbers.items(), ("betas", betas[0]), ("betas", betas[1])):
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ValueError(f"Expected {name} to be finite and not negative; got {value!r}.")
        if name != "eps" and value >= 1:
            raise ValueError(f"Expected {name} to be in [0, 1); got {value!r}.")
