"""What is trained, at which depth and how: one value, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from depthmup.limits.averages import Particles, Sobol
from depthmup.limits.gaussian import Activation, resolve
from depthmup.limits.losses import Array, _matrix
from depthmup.limits.parametrization import Parametrization, check_depth, parametrization
from depthmup.limits.sgd import SGD, HeavyBall, Rate, heavy_ball, remaining, update_weights
from depthmup.limits.step import Step, check_steps
from depthmup.rules import Exponent


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch apart from its activation: ``a L^-alpha phi(W x)`` or ``a L^-alpha W2 phi(W1 x)``.

    ``multiplier`` is a. With two matrices ``width_ratio`` is rho, the hidden width over the width:
    W1 has rho n rows and entries of variance 1/n, W2 entries of variance 1/(rho n); and
    ``rms_norm`` normalizes x before W1; LayerNorm has the same limit.

    >>> Branch(width_ratio=4).multiplier
    1.0
    """

    multiplier: float = 1.0
    width_ratio: float = 1.0
    rms_norm: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width_ratio) and self.width_ratio > 0):
            raise ValueError(
                "width_ratio is the hidden width over the width, positive and finite; got "
                f"{self.width_ratio}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A network, what trains it and for how long; made and checked by ``limits.problem``.

    The ``steps`` train a network of ``depth`` residual branches with ``block_depth`` matrices each,
    1 or 2, an ``activation`` and a ``scaling`` with depth; ``width_ratio`` and ``rms_norm`` are
    those of ``limits.Branch``. Updates are ``optimizer``'s, or with ``sign`` the signs of every
    entry's gradient; ``rates`` are the optimizer's for every step. ``held_out`` inputs are
    evaluated, ``tol`` is the error asked for, and ``history`` keeps every covariance.

    Training vectors are numbered in time order: step t owns ``rows[t]``. ``hidden``, ``second``,
    ``input`` and ``readout`` are the weights of past updates of W (or W1), W2, U and V: entry
    [t, s] is how much of the gradient of training vector s the weights of step t carry, shape
    (steps + 1, N). ``remains`` and ``second_remains`` (steps + 1,) are the parts of the initial W1
    and W2 that decay leaves.
    """

    steps: tuple[Step, ...]
    rows: tuple[slice, ...]
    held_out: Float[Array, "rows d_in"] | None
    depth: float
    scaling: Parametrization
    activation: Activation
    block_depth: int
    width_ratio: float
    rms_norm: bool
    optimizer: SGD
    sign: bool
    rates: HeavyBall
    hidden: Float[Array, "times vectors"]
    second: Float[Array, "times vectors"]
    input: Float[Array, "times vectors"]
    readout: Float[Array, "times vectors"]
    remains: Float[Array, " times"]
    second_remains: Float[Array, " times"]
    tol: float
    history: bool

    @property
    def vectors(self) -> int:
        """N, the number of training vectors."""
        result: int = self.rows[-1].stop
        return result

    @property
    def d_in(self) -> int:
        result: int = self.steps[0].inputs.shape[1]
        return result

    @property
    def d_out(self) -> int:
        return self.steps[0].loss.shape[1]

    @property
    def layers(self) -> int:
        """The depth, where it is finite."""
        return int(self.depth)

    @property
    def infinite(self) -> bool:
        return self.depth == math.inf

    @property
    def linear(self) -> bool:
        return self.activation.name == "identity"

    @property
    def averages(self) -> type[Sobol] | type[Particles] | None:
        """What stands for the infinitely many neurons or entries of a limit that is not closed."""
        if self.sign:
            return Particles
        neurons_move = self.block_depth == 2 and self.scaling.alpha == 1
        if self.linear or (self.infinite and not neurons_move):
            return None
        return Particles if self.block_depth == 1 else Sobol

    def sampled(self, count: int | None = None) -> Sobol | Particles | None:
        """The averages of this limit, of ``count`` neurons or particles; by default enough."""
        if self.averages is None:
            return None
        if count is None:
            return self.averages()
        return Particles(count=count) if self.averages is Particles else Sobol(points=count)

    @property
    def updates(self) -> int:
        """How many steps' updates anyone sees: held-out inputs and the history see the last."""
        return len(self.steps) - (self.held_out is None and not self.history)

    @property
    def remembered(self) -> int:
        """How many training vectors have updates that anyone sees."""
        return self.rows[self.updates - 1].stop if self.updates else 0

    def queries(self) -> Iterator[tuple[int, slice, Array]]:
        """For each step, and for the end of training: (step, its rows, the inputs to sweep).

        The inputs are the minibatch followed by the held-out inputs, which see the same weights.
        """
        extra = np.zeros((0, self.d_in)) if self.held_out is None else self.held_out
        for t, (step, rows) in enumerate(zip(self.steps, self.rows, strict=True)):
            yield t, rows, np.concatenate([step.inputs, extra])
        if self.held_out is not None:
            yield len(self.steps), slice(self.vectors, self.vectors), extra


def problem(
    steps: Sequence[Step],
    *,
    depth: float,
    lr: Rate,
    activation: str | Activation = "identity",
    block_depth: int = 1,
    branch: Branch | None = None,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    optimizer: SGD | None = None,
    sign: bool = False,
    held_out: ArrayLike | None = None,
    tol: float | None = None,
    history: bool = False,
) -> Problem:
    """What ``limits.solve`` trains: a residual network of infinite width, minibatch by minibatch.

    ``x^0 = U xi``, ``x^l = x^{l-1} + a L^-alpha f(x^{l-1})`` and ``f = V^T x^L``, where f is
    ``phi(W x)`` less its mean over entries, or ``W2 phi(W1 x)``. Entries of U have variance 1,
    those of W one over its number of columns, those of V 1/n^2. With d = n dloss/dx, step t
    subtracts ``lr[t] a L^-gamma (1/n) e x^T`` from W (or W1) and
    ``lr_second[t] a L^-gamma (1/n) d phi(h)^T`` from W2, summed over the minibatch: plain SGD with
    learning rates ``lr L^(alpha-gamma)``.

    Args:
        steps: minibatches, with any loss.
        depth: a positive integer or ``math.inf``.
        lr: learning rate of the (first) matrix in blocks, one number or one per step.
        activation: a name (identity, erf, sin, cos, relu, abs, tanh, gelu, softplus) or a
            ``limits.smooth(phi, phi', phi'', phi''')``.
        block_depth: matrices per block, 1 or 2.
        branch: ``limits.Branch``: the multiplier a; with two matrices also the width ratio rho and
            a norm.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        optimizer: ``limits.SGD``: rates of W2, U and V, momentum, decay; plain SGD with U and V
            frozen unless given.
        sign: move every entry by the sign of its gradient, with one sample per step.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
        tol: the error asked for, of outputs: by default 1e-9 where nothing is sampled (1e-10 for
            linear networks with one matrix), 1e-3 for neurons and 5e-3 for particles.
        history: keep every covariance.

    Returns:
        The problem; its ``averages`` is what a solution samples: ``limits.Sobol`` (neurons),
        ``limits.Particles`` or nothing.

    Raises:
        ValueError: a depth that is no positive whole number, steps of several networks, rates that
            are not finite, a momentum or decay out of range, held-out inputs of another size.
        TypeError: steps that are no ``limits.Step``.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> deep = limits.problem(steps, depth=math.inf, lr=1.0, activation="tanh", block_depth=2)
        >>> deep.averages, deep.tol
        (None, 1e-09)

    *Source:* arXiv 2310.02244, Definition 6.1; blocks with two matrices: docs/studies/limits.md.
    """
    depth, phi = check_depth(depth), resolve(activation)
    branch, optimizer = branch or Branch(), optimizer or SGD()
    if block_depth not in (1, 2):
        raise ValueError(f"block_depth is 1 or 2 matrices per block; got {block_depth}.")
    if block_depth == 1 and (branch.rms_norm or branch.width_ratio != 1):
        raise ValueError(
            "width_ratio and rms_norm are of blocks with two matrices: leave them out, or pass "
            "block_depth=2."
        )
    checked = check_steps(steps)
    extra = None if held_out is None else _matrix(held_out, "held_out", "(batch, d_in)")
    if extra is not None and extra.shape[1] != checked[0].inputs.shape[1]:
        raise ValueError(
            f"held_out has d_in={extra.shape[1]} but the steps have "
            f"d_in={checked[0].inputs.shape[1]}."
        )
    count, sizes = len(checked), [len(step.inputs) for step in checked]
    ends = np.cumsum(sizes)
    scaling = parametrization(branch.multiplier, alpha, gamma)
    rates, decay = heavy_ball(count, lr, optimizer), optimizer.decay

    def weights(rate: Array, decay: float = 0.0) -> Array:
        """How much of every vector's gradient a matrix carries at every step, (steps + 1, N)."""
        return np.repeat(update_weights(rate, count, optimizer.momentum, decay), sizes, axis=1)

    # Decay is of the matrices in blocks: U and V have none.
    hidden = weights(rates.first, decay)
    asked = Problem(
        steps=checked,
        rows=tuple(slice(int(e) - n, int(e)) for e, n in zip(ends, sizes, strict=True)),
        held_out=extra,
        depth=depth,
        scaling=scaling,
        activation=phi,
        block_depth=block_depth,
        width_ratio=float(branch.width_ratio),
        rms_norm=branch.rms_norm,
        optimizer=optimizer,
        sign=sign,
        rates=rates,
        hidden=hidden,
        second=weights(rates.second, decay) if block_depth == 2 else np.zeros_like(hidden),
        input=weights(rates.input),
        readout=weights(rates.readout),
        remains=remaining(rates.first, count, decay),
        second_remains=remaining(rates.second, count, decay),
        tol=math.nan if tol is None else tol,
        history=history,
    )
    if tol is None:
        exact = 1e-10 if asked.linear and block_depth == 1 else 1e-9
        return replace(asked, tol={None: exact, Sobol: 1e-3, Particles: 5e-3}[asked.averages])
    check_tol(tol)
    return asked


def check_tol(tol: float) -> None:
    """Raise unless the tolerance is one that an error can meet."""
    if not tol > 0:
        raise ValueError(f"tol must be positive; got {tol}.")
