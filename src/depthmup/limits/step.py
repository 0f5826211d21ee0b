"""Steps of training: minibatches of inputs, and the losses of their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A differentiable loss of one minibatch's outputs.

    ``value(outputs)`` is a float and ``gradient(outputs)`` its exact gradient, both for outputs
    of ``shape`` (batch, d_out). A mean over the batch belongs into both. The functions must be
    pure: a solver that adds nodes until it is accurate calls them again.

    >>> absolute = Loss(value=lambda f: float(abs(f).sum()), gradient=np.sign, shape=(1, 1))
    >>> absolute.value(np.array([[-2.0]]))
    2.0
    """

    value: Callable[[Array], float]
    gradient: Callable[[Array], Array]
    shape: tuple[int, int]


def mse(targets: ArrayLike) -> Loss:
    """Half the squared error, summed over outputs and averaged over the batch.

    ``1/(2B) sum_b |f_b - y_b|^2``; ``targets`` has shape (batch, d_out).

    Args:
        targets: (batch, d_out).

    Returns:
        The loss, with its gradient.

    >>> mse([[1.0]]).gradient(np.array([[0.25]]))
    array([[-0.75]])
    """
    y = matrix(targets, "targets", "(batch, d_out)")

    def value(outputs: Array) -> float:
        return float(0.5 * np.sum((outputs - y) ** 2) / len(y))

    def gradient(outputs: Array) -> Array:
        return (outputs - y) / len(y)

    return Loss(value=value, gradient=gradient, shape=(y.shape[0], y.shape[1]))


def cross_entropy(labels: ArrayLike, *, classes: int) -> Loss:
    """Negative log-likelihood of the labels under a softmax, averaged over the batch.

    ``1/B sum_b (log sum_k exp f_bk - f_b,label_b)``; ``labels`` are integers (batch,) in
    ``range(classes)``, and d_out = classes.

    Args:
        labels: class of each sample, (batch,).
        classes: how many there are.

    Returns:
        The loss, with its gradient.

    Raises:
        ValueError: labels that are no integers in ``range(classes)``.

    >>> round(cross_entropy([1], classes=2).value(np.zeros((1, 2))), 6)
    0.693147
    """
    given = np.asarray(labels)
    if given.ndim != 1 or given.size == 0 or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(
            f"cross_entropy takes integer labels of shape (batch,); got dtype {given.dtype} and "
            f"shape {given.shape}. For one-hot or soft targets write a limits.Loss."
        )
    if given.min() < 0 or given.max() >= classes:
        raise ValueError(
            f"Labels must lie in range({classes}); got {given.min()}..{given.max()}. "
            "Pass classes = number of outputs."
        )
    batch = np.arange(len(given))

    def value(outputs: Array) -> float:
        return float(np.mean(special.logsumexp(outputs, axis=1) - outputs[batch, given]))

    def gradient(outputs: Array) -> Array:
        weight = special.softmax(outputs, axis=1)
        weight[batch, given] -= 1.0
        return np.asarray(weight / len(given))

    return Loss(value=value, gradient=gradient, shape=(len(given), classes))


@dataclass(frozen=True, eq=False)
class Step:
    """A minibatch: ``inputs`` (batch, d_in) and the ``loss`` of their outputs (batch, d_out).

    >>> from depthmup import limits
    >>> limits.Step([[1.0, 0.5]], limits.mse([[0.3]])).inputs.shape
    (1, 2)
    """

    inputs: Float[Array, "batch d_in"]
    loss: Loss

    def __init__(self, inputs: ArrayLike, loss: Loss) -> None:
        rows = matrix(inputs, "inputs", "(batch, d_in)")
        missing = [
            name for name in ("value", "gradient") if not callable(getattr(loss, name, None))
        ]
        if missing or not hasattr(loss, "shape"):
            raise TypeError(
                "A loss needs callables `value` and `gradient` and the `shape` (batch, d_out) of "
                f"the outputs; {type(loss).__name__} lacks {', '.join(missing) or 'shape'}. "
                "Use limits.mse, limits.cross_entropy, or limits.Loss(value=..., gradient=..., "
                "shape=...)."
            )
        if loss.shape[0] != len(rows):
            raise ValueError(
                f"The inputs have {len(rows)} rows but the loss is for {loss.shape[0]}: "
                "one row of targets per row of inputs."
            )
        object.__setattr__(self, "inputs", rows)
        object.__setattr__(self, "loss", loss)

    def value(self, outputs: Float[Array, "batch d_out"]) -> float:
        """The loss at these outputs, once it is known to be one number."""
        value = np.asarray(self.loss.value(outputs), dtype=np.float64)
        if value.ndim:
            raise ValueError(
                f"Expected a loss's value to be one number; got shape {value.shape}. Sum it, or "
                "average it, over samples and outputs."
            )
        return float(value)

    def gradient(self, outputs: Float[Array, "batch d_out"]) -> Float[Array, "batch d_out"]:
        """The loss's gradient at these outputs, once it is known to be one: (batch, d_out)."""
        gradient = np.asarray(self.loss.gradient(outputs), dtype=np.float64)
        if gradient.shape != outputs.shape:
            raise ValueError(
                f"A loss's gradient has the shape of the outputs, {outputs.shape}; got "
                f"{gradient.shape}. Return one derivative per sample and output."
            )
        return gradient


def check_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps as a tuple, once they are known to belong to one network."""
    if not isinstance(steps, Iterable):
        raise TypeError(
            f"Expected steps as a list of limits.Step, one for each training step, such as "
            f"[limits.Step(x, limits.mse(y)) for x, y in batches]; got {steps!r}."
        )
    steps = tuple(steps)
    if not steps:
        raise ValueError("Training needs at least one step; got none.")
    for number, step in enumerate(steps):
        if not isinstance(step, Step):
            raise TypeError(f"steps[{number}] is a {type(step).__name__}, not a limits.Step.")
        for what, first, here in (
            ("d_in", steps[0].inputs.shape[1], step.inputs.shape[1]),
            ("d_out", steps[0].loss.shape[1], step.loss.shape[1]),
        ):
            if here != first:
                raise ValueError(
                    f"All steps train one network, but steps[0] has {what}={first} and "
                    f"steps[{number}] has {what}={here}."
                )
    return steps


def matrix(values: ArrayLike, what: str, shape: str) -> Float[Array, "rows columns"]:
    """A finite two-dimensional float array; raises with the reason where it is none."""
    try:
        given = np.asarray(values)
        if np.iscomplexobj(given):
            raise TypeError("complex numbers")
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: tensors with a gradient
        raise ValueError(
            f"Expected {what} to be real numbers of shape {shape}; got {error}."
        ) from None
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{what} must have shape {shape}, neither empty; got shape {array.shape}. "
            "A single vector is array[None, :], scalars are array[:, None]."
        )
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"{what} must be finite; got {array[where]} at index {where}. "
            "Drop or impute such rows before computing a limit."
        )
    # np.array has copied, so the caller's own array stays writable.
    array.flags.writeable = False
    return array


def require_norms(rows: Float[Array, "rows d_in"]) -> None:
    """Refuse inputs that a norm in every block cannot divide by their size."""
    if not (sizes := np.abs(rows).max(axis=1)).all():
        raise ValueError(
            f"Input {int(np.argmin(sizes))} is zero, and LayerNorm and RMSNorm of zero are "
            "undefined at infinite width: leave it out."
        )
