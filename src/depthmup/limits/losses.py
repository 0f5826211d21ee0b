"""What a training step minimizes: a value, its gradient, and the shape of the outputs it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

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
    y = _matrix(targets, "targets", "(batch, d_out)")

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
        # Shifted by the largest output, exp cannot overflow; in the likelihood the shift cancels.
        top = outputs.max(axis=1, keepdims=True)
        normalizer = np.log(np.exp(outputs - top).sum(axis=1)) + top[:, 0]
        return float(np.mean(normalizer - outputs[batch, given]))

    def gradient(outputs: Array) -> Array:
        weight = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        weight[batch, given] -= 1.0
        result: Array = weight / len(given)
        return result

    return Loss(value=value, gradient=gradient, shape=(len(given), classes))


def _matrix(values: ArrayLike, what: str, shape: str) -> Float[Array, "rows columns"]:
    """A finite two-dimensional float array, or an error that says what is wrong with it."""
    array = np.array(values, dtype=np.float64)
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
