"""Grids: schemes x depths x learning rates x seeds, resolved to cells."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from depthmup.records import NUMERICS, Axis, Cell, Data, Network, Optimizer
from depthmup.records.run import ORDERS, PRECISIONS, Order, Precision
from depthmup.rules import DEPTH_MUP, MAXIMAL_UPDATE, Kind, Ratios, Role, Scheme, family, scheme
from depthmup.sweep.bounds import check_octaves, check_runs
from depthmup.sweep.cost import work
from depthmup.sweep.design import LAST, STEPS, Records, Size, Variant

HIDDEN = Role(kind=Kind.HIDDEN, in_branch=True)
INPUT = Role(kind=Kind.INPUT)
READOUT = Role(kind=Kind.READOUT)

OPTIMIZER_NAMES = ("adam", "adamw", "sgd")
# (inputs, classes) of the data sets that networks are sized for.
DATA_SHAPES = {"digits": (64, 10), "mnist": (784, 10), "cifar10": (3072, 10)}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every setting of a transfer measurement.

    The learning rate axis is free of width: log2 rate k at the base stands for 2^k times the muP
    rate of a hidden matrix there, i.e. 2^k / base_width for entrywise optimizers and 2^k for SGD;
    schemes take it to other sizes. ``multiplier`` is the paper's a. At the base shape W has
    entries N(0, 1/width), U N(0, 1/inputs) and V N(0, 1/width^2); U and V are not trained.

    ``data`` other than the digits are made by ``depthmup.training.find_data``. ``order`` says how
    examples are drawn: "replacement", each by itself, or "epochs", all of them once per epoch.
    ``numerics`` is the version of the engines; an older one names records of the past.

    *Source:* TP6 (arXiv 2310.02244) Sections 6.3 and 10.2.
    """

    schemes: tuple[Scheme, ...] = (DEPTH_MUP,)
    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    base_depth: int = 8
    log2_lrs: tuple[float, ...] = (-7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0)
    seeds: int = 5
    width: int = 64
    base_width: int | None = None
    steps: int = 300
    batch_size: int = 64
    order: Order = "replacement"
    window: int = 60
    activation: str = "abs"
    nonlinearity: str = "post"
    block_depth: int = 1
    mean_subtraction: bool = True
    layer_norm: bool = False
    multiplier: float = 1.0
    optimizer: str = "adam"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0
    data: Data = field(default_factory=Data)
    precision: Precision = "float32"
    numerics: int = NUMERICS

    def __post_init__(self) -> None:
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold; ``Grid.from_dict`` reads it back."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **plain,
            "schemes": [each.name for each in self.schemes],
            "depths": list(self.depths),
            "log2_lrs": list(self.log2_lrs),
            "data": asdict(self.data),
        }

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Grid":
        values = dict(raw)
        values["schemes"] = tuple(scheme(name) for name in values["schemes"])
        values["depths"] = tuple(values["depths"])
        values["log2_lrs"] = tuple(values["log2_lrs"])
        values["data"] = Data(**values["data"])
        return Grid(**values)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The different runs, each once: schemes that agree somewhere share their cells there."""
        unique = {
            cell: None
            for scheme in self.schemes
            for depth in self.depths
            for log2_lr in self.log2_lrs
            for cell in self.curve(scheme, depth, log2_lr)
        }
        return tuple(unique)

    @property
    def runs(self) -> tuple[Cell, ...]:
        return self.cells

    @property
    def title(self) -> str:
        return "Learning-rate transfer across depth"

    @property
    def code(self) -> str:
        return ""

    @property
    def base_size(self) -> Size:
        return (self.width, self.base_depth)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return ("depth",)

    @property
    def all_sizes(self) -> tuple[Size, ...]:
        return self.sizes("depth")

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """One for each scheme."""
        return tuple(
            Variant(
                scheme=scheme,
                optimizer=self.optimizer,
                multiplier=self.multiplier,
                weight_decay=self.weight_decay,
                name=scheme.name,
                title=scheme.title,
            )
            for scheme in self.schemes
        )

    def sizes(self, axis: Axis) -> tuple[Size, ...]:
        return tuple((self.width, depth) for depth in self.depths)

    def shown_width(self, size: Size) -> int | None:
        return None  # one width for all: the configuration says it

    def chance(self, records: Records, variant: Variant) -> float:
        _, classes = DATA_SHAPES[self.data.name]
        return math.log(classes)

    def rate_unit(self, variant: Variant) -> float:
        return self.cell(variant.scheme, self.base_depth, 0.0, seed=0).optimizer.lr

    def probed(self, variant: Variant) -> "ProbedCells":
        return ProbedCells(grid=self, scheme=variant.scheme)

    def config(self) -> dict[str, Any]:
        return self.to_dict()

    def curve(self, scheme: Scheme, depth: int, log2_lr: float) -> Iterator[Cell]:
        """The cells of one point of a curve, one for each seed."""
        point = (scheme.name, depth, log2_lr)
        if point not in self._points:  # asked for once per window of training
            first = self.cell(scheme, depth, log2_lr, seed=0)
            self._points[point] = tuple(replace(first, seed=seed) for seed in range(self.seeds))
        yield from self._points[point]

    def points(self, variant: Variant, sizes: Iterable[Size]) -> list[list[tuple[Cell, ...]]]:
        """The cells of a variant by size, learning rate and seed."""
        return [
            [tuple(self.curve(variant.scheme, depth, log2_lr)) for log2_lr in self.log2_lrs]
            for _, depth in sizes
        ]

    @cached_property
    def _points(self) -> dict[tuple[str, int, float], tuple[Cell, ...]]:
        return {}

    def cell(self, scheme: Scheme, depth: int, log2_lr: float, seed: int) -> Cell:
        """The run that a scheme prescribes at this depth and base learning rate."""
        inputs, outputs = DATA_SHAPES[self.data.name]
        base_width = self.base_width or self.width
        m = self.width / base_width
        square = Ratios(fan_in=m, fan_out=m, depth=depth / self.base_depth)
        optimizer = family(self.optimizer)
        hidden = scheme.laws(HIDDEN, optimizer)
        readout = scheme.laws(READOUT, optimizer)
        # The axis counts octaves from muP's own rate at the base, whatever the scheme.
        reference = MAXIMAL_UPDATE.hidden
        unit = (reference.update / reference.gradient**optimizer.degree).at(
            Ratios(fan_in=base_width, fan_out=base_width)
        )
        # Rounded so that rates equal in theory are equal in bits, and are trained once.
        exponent = round(log2_lr + math.log2(unit * hidden.lr.at(square)), 9)
        return Cell(
            network=Network(
                inputs=inputs,
                outputs=outputs,
                width=self.width,
                depth=depth,
                multiplier=self.multiplier * scheme.branch.at(square),
                input_std=inputs**-0.5,
                hidden_std=base_width**-0.5 * hidden.init.at(square),
                # V is not trained, so a multiplier on the logits is a factor on its entries.
                readout_std=(readout.init * readout.forward).at(Ratios(fan_in=m)) / base_width,
                block_depth=self.block_depth,
                activation=self.activation,
                nonlinearity=self.nonlinearity,
                mean_subtraction=self.mean_subtraction,
                layer_norm=self.layer_norm,
            ),
            optimizer=Optimizer(
                name=self.optimizer,
                lr=2.0**exponent,
                beta1=self.beta1,
                beta2=self.beta2,
                epsilon=self.epsilon * hidden.epsilon.at(square),
                momentum=self.momentum,
                weight_decay=self.weight_decay * hidden.decay.at(square),
            ),
            data=self.data,
            steps=self.steps,
            batch_size=self.batch_size,
            seed=seed,
            numerics=self.numerics,
            order=self.order,
            precision=self.precision,
        )


@dataclass(frozen=True, kw_only=True)
class ProbedCells:
    """A scheme of a grid, at any depth, for a few steps."""

    grid: Grid
    scheme: Scheme

    @cached_property
    def short(self) -> Grid:
        """The grid with runs of a few steps."""
        return replace(self.grid, schemes=(self.scheme,), steps=STEPS, window=LAST)

    def run(self, size: Mapping[str, float], log2_lr: float, seed: int) -> Cell:
        return self.short.cell(self.scheme, int(size["depth"]), log2_lr, seed)

    def work(self, size: Mapping[str, float]) -> float:
        return work(self.run(size, 0.0, 0)) / STEPS

    @cached_property
    def sweep_work(self) -> float:
        return math.fsum(work(cell) for cell in self.grid.cells)


def _check(grid: Grid) -> None:
    """Refuse what cannot be run, before anything is."""

    def refuse(what: str, expected: str, got: object) -> None:
        raise ValueError(f"Expected {what} to be {expected}; got {got!r}.")

    if not grid.schemes:
        refuse("schemes", "at least one scheme, e.g. depth-mup", grid.schemes)
    names = [each.name for each in grid.schemes]
    if len(set(names)) != len(names):
        refuse("schemes", "different from each other", names)
    for name in ("depths", "log2_lrs"):
        values = getattr(grid, name)
        if not values:
            refuse(name, "a list of at least one value", values)
        if any(not math.isfinite(value) for value in values):
            refuse(name, "finite numbers", values)
        if any(later <= earlier for earlier, later in pairwise(values)):
            refuse(name, "strictly increasing (sort it and drop repetitions)", values)
    check_octaves(grid.log2_lrs)
    for name in ("width", "base_width", "base_depth", "seeds", "steps", "batch_size"):
        value = getattr(grid, name)
        if value is not None and value < 1:
            refuse(name, "at least 1", value)
    if grid.block_depth < 1:
        refuse("block_depth", "at least 1", grid.block_depth)
    check_runs(len(grid.schemes), len(grid.depths), len(grid.log2_lrs), grid.seeds)
    if min(grid.depths) < 1:
        refuse("depths", "at least 1 each", grid.depths)
    if grid.base_depth not in grid.depths:
        raise ValueError(
            f"Expected depths to contain the base depth {grid.base_depth}, where the schemes "
            f"agree; got {grid.depths}. Add it, or name another one of them as base_depth."
        )
    if not 1 <= grid.window <= grid.steps:
        refuse("window", f"between 1 and the number of steps ({grid.steps})", grid.window)
    for name in ("multiplier", "epsilon", "weight_decay", "momentum"):
        value = getattr(grid, name)
        if not math.isfinite(value) or value < 0:
            refuse(name, "finite and not negative", value)
    for name in ("beta1", "beta2", "momentum"):
        if not 0 <= getattr(grid, name) < 1:
            refuse(name, "in [0, 1)", getattr(grid, name))
    if grid.optimizer not in OPTIMIZER_NAMES:
        refuse("optimizer", f"one of {', '.join(OPTIMIZER_NAMES)}", grid.optimizer)
    if grid.optimizer == "adam" and grid.weight_decay:
        raise ValueError(
            "Weight decay inside Adam's gradient cannot be made to transfer: its effect depends "
            f"on the gradient's scale. Got weight_decay={grid.weight_decay!r} with optimizer "
            "'adam'; use optimizer='adamw', whose decay is decoupled."
        )
    if grid.activation not in ACTIVATION_NAMES:
        refuse("activation", f"one of {', '.join(ACTIVATION_NAMES)}", grid.activation)
    if grid.nonlinearity not in ("post", "pre"):
        refuse("nonlinearity", "'post', phi(W x), or 'pre', W phi(x)", grid.nonlinearity)
    if grid.data.name not in DATA_SHAPES:
        refuse("data", f"one of {', '.join(DATA_SHAPES)}", grid.data.name)
    if (grid.data.name == "digits") == bool(grid.data.digest):
        raise ValueError(
            "Expected the digits, which come with the package, to have no digest and other data to "
            f"have one; got {grid.data!r}. depthmup.training.find_data('mnist:FOLDER') makes it."
        )
    if grid.order not in ORDERS:
        refuse("order", f"one of {', '.join(ORDERS)}", grid.order)
    if grid.precision not in PRECISIONS:
        refuse("precision", f"one of {', '.join(PRECISIONS)}", grid.precision)
    if not 0 <= grid.data.label_noise <= 1:
        refuse("label_noise", "a fraction in [0, 1]", grid.data.label_noise)


# Known here by name, so that bad input is refused without loading PyTorch.
ACTIVATION_NAMES = (
    "abs",
    "relu",
    "identity",
    "tanh",
    "gelu",
    "silu",
    "softplus",
    "erf",
    "sin",
    "cos",
)
