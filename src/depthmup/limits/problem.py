"""What is trained, at which depth and how: one value, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from depthmup.limits.averages import Particles, Sobol
from depthmup.limits.gaussian import Activation, resolve
from depthmup.limits.sgd import SGD, Rate, rates, remaining, update_weights
from depthmup.limits.step import Array, Step, check_steps, matrix, require_norms
from depthmup.rules import Exponent, exponent

_MOST_DIGITS = 100
"""Of a branch's factor and an update's: squares of both, and products, still are numbers."""


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
        if not math.isfinite(self.multiplier):
            raise ValueError(f"The branch multiplier must be finite; got {self.multiplier}.")
        if not (math.isfinite(self.width_ratio) and self.width_ratio > 0):
            raise ValueError(
                "width_ratio is the hidden width over the width, positive and finite; got "
                f"{self.width_ratio}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A network and its training; made and checked by ``limits.problem``.

    The ``steps`` train a network of ``depth`` residual branches with ``block_depth`` matrices each,
    1 or 2, and an ``activation``. With a, the multiplier of ``branch``, a branch is multiplied by
    a L^-``alpha``, and a weight in it moves by a L^-``gamma`` per unit of its learning rate.
    Updates are ``optimizer``'s, or with ``sign`` the signs of every entry's gradient; ``rates`` are
    the learning rates of W (or W1), W2, U and V. ``held_out`` inputs are evaluated, ``tol`` is the
    error asked for, and ``history`` keeps every covariance.

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
    alpha: Fraction
    gamma: Fraction
    activation: Activation
    block_depth: int
    branch: Branch
    optimizer: SGD
    sign: bool
    rates: Float[Array, "4 steps"]
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
        return int(self.rows[-1].stop)

    @property
    def d_in(self) -> int:
        return int(self.steps[0].inputs.shape[1])

    @property
    def d_out(self) -> int:
        return self.steps[0].loss.shape[1]

    @property
    def inputs(self) -> Float[Array, "_ d_in"]:
        """Of all training vectors, then those held out."""
        held_out = () if self.held_out is None else (self.held_out,)
        return np.concatenate([*(step.inputs for step in self.steps), *held_out])

    @property
    def layers(self) -> int:
        """The depth, where it is finite."""
        return int(self.depth)

    @property
    def positions(self) -> Float[Array, " depths"]:
        """l/L of every layer, from 0 for the input."""
        return np.arange(self.layers + 1) / self.layers

    @property
    def infinite(self) -> bool:
        return self.depth == math.inf

    @property
    def linear(self) -> bool:
        return self.activation.name == "identity"

    @property
    def factor(self) -> float:
        """``c = a L^-alpha``, in front of every branch."""
        return float(self.branch.multiplier * self.depth ** -float(self.alpha))

    @property
    def kick(self) -> float:
        """``a L^-gamma``, the size of an update of W per unit of learning rate."""
        return float(self.branch.multiplier * self.depth ** -float(self.gamma))

    # At infinite depth both rates are 0, a^2 or infinite, as their exponents are exact.

    @property
    def noise_rate(self) -> float:
        """``a^2 L^(1-2 alpha)``: how fast the random initial weights move x, per unit depth."""
        return float(self.branch.multiplier**2 * self.depth ** float(1 - 2 * self.alpha))

    @property
    def drift_rate(self) -> float:
        """``a^2 L^(1-alpha-gamma)``: how fast updates move x, per unit depth and learning rate."""
        return float(self.branch.multiplier**2 * self.depth ** float(1 - self.alpha - self.gamma))

    @property
    def averages(self) -> type[Sobol] | type[Particles] | None:
        """What stands for the infinitely many neurons or entries of a limit that is not closed."""
        if self.sign:
            return Particles
        neurons_move = self.block_depth == 2 and self.alpha == 1
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
    depth, phi = _checked_depth(depth), resolve(activation)
    branch, optimizer = branch or Branch(), optimizer or SGD()
    if block_depth not in (1, 2):
        raise ValueError(f"block_depth is 1 or 2 matrices per block; got {block_depth}.")
    if block_depth == 1 and (branch.rms_norm or branch.width_ratio != 1):
        raise ValueError(
            "width_ratio and rms_norm are of blocks with two matrices: leave them out, or pass "
            "block_depth=2."
        )
    checked = check_steps(steps)
    extra = None if held_out is None else matrix(held_out, "held_out", "(batch, d_in)")
    if extra is not None and extra.shape[1] != checked[0].inputs.shape[1]:
        raise ValueError(
            f"held_out has d_in={extra.shape[1]} but the steps have "
            f"d_in={checked[0].inputs.shape[1]}."
        )
    count, sizes = len(checked), [len(step.inputs) for step in checked]
    ends = np.cumsum(sizes)
    decay, first = optimizer.decay, rates(lr, count)
    second = rates(optimizer.second(lr), count, "lr_second")
    lr_input = rates(optimizer.lr_input, count, "lr_input")
    lr_readout = rates(optimizer.lr_readout, count, "lr_readout")

    def weights(rate: Array, decay: float = 0.0) -> Array:
        """How much of every vector's gradient a matrix carries at every step, (steps + 1, N)."""
        return np.repeat(update_weights(rate, optimizer.momentum, decay), sizes, axis=1)

    # Decay is of the matrices in blocks: U and V have none.
    hidden = weights(first, decay)
    a, g = exponent(alpha, name="alpha"), exponent(gamma, name="gamma")
    _require_scales(branch.multiplier, depth, a, g)
    asked = Problem(
        steps=checked,
        rows=tuple(slice(int(e) - n, int(e)) for e, n in zip(ends, sizes, strict=True)),
        held_out=extra,
        depth=depth,
        alpha=a,
        gamma=g,
        activation=phi,
        block_depth=block_depth,
        branch=branch,
        optimizer=optimizer,
        sign=sign,
        rates=np.stack([first, second, lr_input, lr_readout]),
        hidden=hidden,
        second=weights(second, decay) if block_depth == 2 else np.zeros_like(hidden),
        input=weights(lr_input),
        readout=weights(lr_readout),
        remains=remaining(first, decay),
        second_remains=remaining(second, decay),
        tol=math.nan if tol is None else tol,
        history=history,
    )
    if branch.rms_norm:
        require_norms(asked.inputs)
    if tol is None:
        exact = 1e-10 if asked.linear and block_depth == 1 else 1e-9
        return replace(asked, tol={None: exact, Sobol: 1e-3, Particles: 5e-3}[asked.averages])
    if not tol > 0:
        raise ValueError(f"tol must be positive; got {tol}.")
    return asked


def require_infinite_depth(problem: Problem) -> None:
    """Raise unless training has a stable, nontrivial, faithful limit as depth goes to infinity.

    *Source:* arXiv 2310.02244, Claims 7.1 to 7.4.
    """
    alpha, gamma = problem.alpha, problem.gamma
    # A branch multiplies |x|^2 by 1 + a^2 L^(-2 alpha): L of them by exp(a^2 L^(1 - 2 alpha)).
    if alpha < Fraction(1, 2):
        raise ValueError(
            f"alpha={alpha} < 1/2 has no infinite-depth limit: at initialization |x|^2 explodes "
            f"like exp(a^2 L^({1 - 2 * alpha})). Use alpha >= 1/2, or a finite depth."
        )
    # L branches, each moved by L^-alpha L^-gamma in one direction: they add up.
    growth = 1 - alpha - gamma
    if growth > 0:
        raise ValueError(
            f"alpha+gamma={alpha + gamma} < 1 has no infinite-depth limit: the first update moves "
            f"the output by L^({growth}), which is divergent. Use gamma={1 - alpha}, or a "
            "finite depth."
        )
    if growth < 0:
        raise ValueError(
            f"alpha+gamma={alpha + gamma} > 1 makes the infinite-depth limit trivial: every update "
            f"moves the output by L^({growth}), so the network stays as initialized. "
            f"Use gamma={1 - alpha}, or a finite depth."
        )
    if alpha > 1:
        raise ValueError(
            f"alpha={alpha} > 1 is unfaithful: preactivations grow like L^({-gamma}), so only "
            "alpha in [1/2, 1] has an infinite-depth limit. Use a finite depth."
        )


def _require_scales(multiplier: float, depth: float, alpha: Fraction, gamma: Fraction) -> None:
    """Refuse factors of branches and updates whose products overflow before any training."""
    digits = math.log10(abs(multiplier) or 1.0)
    if depth != math.inf:
        digits += float(max(-alpha, -gamma)) * math.log10(depth)
    if digits > _MOST_DIGITS:
        raise ValueError(
            f"Expected a L^-alpha and a L^-gamma to be below 1e{_MOST_DIGITS}; got "
            f"multiplier={float(multiplier):g}, depth={depth}, alpha={alpha}, gamma={gamma}. Take "
            "a smaller multiplier or larger exponents."
        )


def _checked_depth(depth: float) -> int | float:
    """A positive whole number of layers, or infinity."""
    # A bool is a number to Python: depth=True would be one layer.
    if isinstance(depth, bool) or not isinstance(depth, Real):
        raise TypeError(
            f"depth must be a positive integer or math.inf; got {type(depth).__name__}."
        )
    if depth == math.inf:
        return math.inf
    if not (depth >= 1 and float(depth).is_integer()):
        raise ValueError(
            f"depth counts residual branches: a positive integer or math.inf; got {depth}."
        )
    return int(depth)
