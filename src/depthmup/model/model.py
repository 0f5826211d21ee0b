"""A custom model: its factory, data and loss, and how other processes import them."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from depthmup.model.batch import check_batch
from depthmup.model.command import Command, code_of, parsed
from depthmup.model.load import find_function, load_functions

Function: TypeAlias = Callable[..., Any]

CROSS_ENTROPY = "depthmup.model.loss:cross_entropy"


@dataclass(frozen=True, slots=True)
class Model:
    """A custom model: its factory, its data and its loss.

    Pass each function itself, or a reference to it: ``module:function`` or
    ``path/to/file.py:function``. Other processes import it by that reference.

    Args:
        make: ``make(width, depth)`` returns the model, with its own initialization; whatever other
            axes it names, such as ``experts``, can be varied, too.
        batch: ``batch(generator)`` returns ``(inputs, targets)``, drawn from a torch generator.
            Inputs are a tensor, a sequence of arguments or a mapping of keyword arguments.
            ``batch(generator, batch)`` gets the number of examples, and may name other axes.
        loss: ``loss(outputs, targets)`` returns one number, never negative; by default the
            cross-entropy of logits.
        train: instead of these, ``train(trial)`` does the whole training of a ``Trial`` (``width``,
            ``depth``, ``size``, ``ratio(axis)``, ``lr``, ``seed``, ``scheme``, ``optimizer``,
            ``steps``, ...) and returns the loss of every step, NaN where it diverged. Losses are
            compared by their logarithms: to one that falls below zero at some size, add its lower
            bound, or the search stops at that size. A function that knows its final loss alone
            returns it for every step.
        command: instead of these, a command that trains one run, such as ``"python train.py --lr
            {lr} --layers {depth} --seed {seed} --out {out}"``. Names in braces are filled in: every
            axis of the base, ``lr``, ``seed``, ``steps``, ``scheme``, ``optimizer``,
            ``weight_decay``, ``multiplier``, settings of the design, and ``out``, a folder of the
            run's own. ``loss`` is then where its loss is read: ``"{out}/log.csv:val_loss"``, a
            column of a CSV or JSON lines file; ``"{out}/loss.txt"``, a file with one number; or
            ``"re:PATTERN"``, a regular expression with one group, matched to its output.
        plan: ``plan(model, base, trial)`` returns a plan, if yours takes more arguments than the
            scheme, such as ``branches`` or ``roles``.
        optimizers: ``optimizers(model, lr)`` returns a list of optimizers; ``check`` needs it for a
            model that follows a scheme in its own code.
        cost: ``cost(size)`` returns the cost of a run, in your units, such as GPU hours. A search
            spends them on the most informative runs, and ``Auto(work=...)`` is a budget in them.
            By default parameters times steps.
        version: the version of your code. By default its source is hashed: stored runs of other
            code are never reused.

    Raises:
        ValueError: none of a factory with its data, ``train`` and ``command`` is given, or several
            are; a command or its loss cannot be read.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> def make(width, depth):
        ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
        >>> def batch(generator):
        ...     x = torch.randn(64, 8, generator=generator)
        ...     return x, x[:, :4].argmax(-1)
        >>> Model(make, batch=batch, version="1").name
        'make'
    """

    make: Function | str | None = None
    _: KW_ONLY
    batch: Function | str | None = None
    loss: Function | str = CROSS_ENTROPY
    train: Function | str | None = None
    command: str | None = None
    plan: Function | str | None = None
    optimizers: Function | str | None = None
    cost: Function | str | None = None
    version: str = ""

    def __post_init__(self) -> None:
        _check_complete(self)

    @staticmethod
    def load(model: str, *, batch: str = "batch", loss: str = "", version: str = "") -> "Model":
        """The model that ``module:factory`` or ``path/to/file.py:factory`` names.

        The other functions are found beside the factory by their names: ``batch``, and if they
        exist ``loss`` and ``optimizers``.

        Args:
            model: the factory.
            batch: the name of the function that returns a batch, or ``module:function``.
            loss: the name of the loss; by default the module's ``loss``, or cross-entropy.
            version: of the code, instead of a hash of its source.

        Returns:
            The model, its functions by reference.

        Raises:
            ValueError: something named does not exist; says what the convention is.
        """
        return Model(**load_functions(model, batch=batch, loss=loss), version=version)

    @property
    def functions(self) -> dict[str, Function | str]:
        """The given functions, by their names."""
        # Hashed in this order since the first version, or stored runs would get other keys. The
        # optimizers do not affect runs of ``transfer``, which are trained by the plan's.
        if self.command is not None:
            return {}
        names = ("plan", "train") if self.train is not None else ("make", "batch", "loss", "plan")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def name(self) -> str:
        """The name of the function that makes or trains it, or of the command's script."""
        own = resolved(self)
        if own.command is not None:
            return own.command.name
        function = own.make or own.train
        return getattr(function, "__name__", type(function).__name__)

    @property
    def code(self) -> str:
        """Its version, or the fingerprint of its source code."""
        if self.version:
            return f"version {self.version}"
        own = resolved(self)
        if own.command is not None:
            return f"command {code_of(own.command)}"
        from depthmup.model.fingerprint import fingerprint  # which loads torch

        return fingerprint(getattr(own, name) for name in self.functions)

    @property
    def sources(self) -> dict[str, str]:
        """A hash of each of the person's own files that its code is in; of functions alone."""
        if not self.functions:
            return {}
        from depthmup.model.fingerprint import files_of  # which loads torch
        from depthmup.model.source_files import contents

        own = resolved(self)
        return contents(files_of(getattr(own, name) for name in self.functions))

    def example_inputs(self, seed: int = 0) -> Any:
        """The inputs of one batch.

        Args:
            seed: of the generator that draws the batch.

        Returns:
            What the model is called with.

        Raises:
            TypeError: batch(generator) returns something else than inputs and targets.
        """
        import torch

        from depthmup._isolated import isolated

        own, generator = with_factory(self), torch.Generator().manual_seed(seed)
        with isolated():
            return check_batch(own.batch(generator))[0]


def _check_complete(model: Model) -> None:
    if model.loss is None:
        raise TypeError(
            "Expected loss to be a function of outputs and targets; got None. Leave it out for "
            "cross-entropy."
        )
    names = ("make", "batch", "train", "command", "plan")
    given = [name for name in names if getattr(model, name)]
    if model.command is not None:
        if len(given) > 1:
            raise ValueError(
                "Expected either a command, which does the whole training, or functions; got "
                f"{', '.join(given)}."
            )
        parsed(model.command, None if model.loss == CROSS_ENTROPY else model.loss)
        return
    if model.train is not None and len(given) > 1:
        raise ValueError(
            "Expected either train(trial), which does the whole training, or make(width, depth) "
            f"with batch(generator); got {', '.join(given)}."
        )
    if model.train is None and not {"make", "batch"} <= set(given):
        raise ValueError(
            "Expected make(width, depth) and batch(generator), train(trial) or a command; got "
            f"{' and '.join(given) + ' alone' if given else 'none of them'}."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Functions:
    """A model's functions themselves, None for those that were not given, or its command."""

    make: Any = None
    batch: Any = None
    loss: Any = None
    train: Any = None
    plan: Any = None
    optimizers: Any = None
    cost: Any = None
    command: Command | None = None

    @property
    def whole(self) -> bool:
        return self.train is not None or self.command is not None


@lru_cache(maxsize=16)
def resolved(model: Model) -> Functions:
    """The functions of a model; references are imported once per process."""
    if not isinstance(model, Model):
        raise TypeError(
            f"Expected a depthmup.Model(make, batch=batch); got {type(model).__name__}."
        )

    def function(name: str) -> Any:
        value = getattr(model, name)
        return find_function(value) if isinstance(value, str) else value

    if model.command is not None:
        return Functions(cost=function("cost"), command=parsed(model.command, model.loss))
    names = [f.name for f in fields(Functions) if f.name != "command"]
    return Functions(**{name: function(name) for name in names})


def with_factory(model: Model) -> Functions:
    """The functions of a model of which networks can be built."""
    own = resolved(model)
    if own.whole:
        raise ValueError(
            "Expected a factory, make(width, depth), to build networks; this model is a command or "
            "a training function, which only depthmup.transfer can use."
        )
    return own


def by_reference(model: Model) -> Model:
    """The model with references instead of functions, which can be sent to other processes."""
    references: dict[str, Any] = {
        name: value if isinstance(value, str) else _reference(value)
        for name, value in model.functions.items()
    }
    # Workers call neither: a run's optimizers are its plan's, and costs are asked where jobs are
    # chosen.
    return replace(model, optimizers=None, cost=None, **references)


def _reference(function: Function) -> str:
    name = getattr(function, "__qualname__", "")
    module = inspect.getmodule(function)
    if not name.isidentifier():
        raise ValueError(
            f"{name or function!r} is not at the top of a module, so other processes cannot import "
            "it"
        )
    if module is None or module.__name__ == "__main__":
        raise ValueError(
            f"{name} is defined in the session that is running (__main__), which other processes "
            "cannot import"
        )
    if getattr(module, name, None) is not function:
        raise ValueError(
            f"{module.__name__}.{name} is another function now, so other processes would import "
            "that one"
        )
    file = getattr(module, "__file__", None)
    # A package, and the standard library, have to be imported by name.
    by_name = hasattr(module, "__path__") or module.__name__ in sys.stdlib_module_names
    if file and file.endswith(".py") and "." not in module.__name__ and not by_name:
        return f"{Path(file).resolve()}:{name}"
    return f"{module.__name__}:{name}"
