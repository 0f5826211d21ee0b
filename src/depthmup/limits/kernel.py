"""The tangent kernel of an infinitely wide residual network at initialization, at any depth.

With c the multiplier of a branch and k matrices in it, inputs xi, xi' and r the learning rates
per unit rate at the base,

    C^0 = xi.xi',        C^l = C^{l-1} + c^2 S_k(C^{l-1})           <x|x'> of the stream
    Pi^L = 1,            Pi^{l-1} = Pi^l (1 + c^2 J^l)              <d|d'> of the gradients
    Theta = r c^2 sum_l Pi^l sum_i J_i^l S_{i-1}^l                  entrywise products throughout

S_i is the covariance after the branch's i-th matrix and what follows it, J_i the product of
E phi' phi' over the activations above the i-th matrix, and J that over all of them. One update
by full-batch gradient descent on B examples with a learning rate lr moves the outputs by
``-lr Theta chi``, chi = dloss/df: for the squared error it is stable while
``lr lambda_max(Theta) / B < 2``.

*Source:* standard (Jacot et al. 2018, arXiv 1806.07572, for the kernel; arXiv 2310.02244,
Definition 6.1, for the scaling); nothing here is new but the form of the branches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike

from depthmup.limits.gaussian import Activation, pairs_among, resolve
from depthmup.limits.step import Array, matrix, require_norms

TOLERANCE = 1e-9
"""Of interpolated expectations, relative to the largest."""

EQUAL = 1e-6
"""Variances that differ by no more, relative, count as equal; moments then err by as little."""

# Doubled, as a quadrature at every point costs far more than the interpolation.
DEGREES = (16, 32, 64, 128)

Nonlinearity = Literal["post", "pre", "between"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """What a residual branch computes: ``block_depth`` matrices W_i and an activation phi.

    ``nonlinearity`` says where phi stands: "post" u <- phi(W_i u), "pre" u <- W_i phi(u), or
    "between" W_k phi(... phi(W_1 u)), the network of ``limits``; by default "post" for one matrix
    and "between" for more. ``mean_subtraction`` takes the mean over features from the branch;
    ``layer_norm`` normalizes what enters it. ``rates`` are learning rates of the matrices relative
    to each other, 1 each unless given; a hidden width of rho n multiplies all but the first by rho.

    Attributes:
        activation: by its name, or its expectations.
        phi: the expectations of the activation.

    >>> Block(activation="relu", block_depth=2).layers
    ('matrix', 'phi', 'matrix')

    *Source:* blocks of one matrix: TP6 (arXiv 2310.02244) Definition 6.1 and Figure 2; the others
    are derived here.
    """

    activation: str | Activation = "identity"
    block_depth: int = 1
    nonlinearity: Nonlinearity | None = None
    mean_subtraction: bool = True
    layer_norm: bool = False
    rates: tuple[float, ...] = ()
    phi: Activation = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.block_depth < 1:
            raise ValueError(
                f"A branch has at least one matrix; got block_depth={self.block_depth}."
            )
        if self.nonlinearity not in (None, "post", "pre", "between"):
            raise ValueError(
                "Expected nonlinearity to be 'post', phi(W u), 'pre', W phi(u), or 'between', "
                f"W phi(W u); got {self.nonlinearity!r}."
            )
        if self.rates and len(self.rates) != self.block_depth:
            raise ValueError(
                f"Expected one of `rates` for each of {self.block_depth} matrices; got "
                f"{len(self.rates)}."
            )
        if not all(0 <= rate < math.inf for rate in self.rates):
            raise ValueError(f"Expected rates to be finite and not negative; got {self.rates}.")
        object.__setattr__(self, "phi", resolve(self.activation))

    @property
    def layers(self) -> tuple[str, ...]:
        """The branch from below to above, as "matrix" and "phi"."""
        form = self.nonlinearity or ("post" if self.block_depth == 1 else "between")
        if form == "between":
            return ("matrix", *("phi", "matrix") * (self.block_depth - 1))
        pair = ("matrix", "phi") if form == "post" else ("phi", "matrix")
        return pair * self.block_depth


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel:
    """The tangent kernel of N inputs at initialization.

    ``tangent`` (N, N): Theta per unit learning rate, the same for every output. ``stream`` (N, N):
    <x^L|x^L>, the covariance of the readout's inputs.

    *Source:* Jacot et al. 2018 (arXiv 1806.07572).
    """

    tangent: Float[Array, "inputs inputs"]
    stream: Float[Array, "inputs inputs"]

    @property
    def largest(self) -> float:
        """lambda_max(Theta) / N: the curvature of half the mean squared error, per unit rate.

        Infinite where entries overflow.
        """
        if not np.isfinite(self.tangent).all():
            return math.inf
        return float(np.linalg.eigvalsh(self.tangent)[-1]) / len(self.tangent)


MOST_BRANCHES = 10_000_000
"""A step for each is computed, so that more would take hours."""


def kernel(
    inputs: ArrayLike,
    *,
    depth: int,
    block: Block | None = None,
    branch: float,
    lr: float = 1.0,
    lr_input: float = 0.0,
    lr_readout: float = 0.0,
) -> Kernel:
    """The tangent kernel of a network of ``depth`` branches, each multiplied by ``branch``.

    ``x^0 = U xi``, ``x^l = x^{l-1} + branch * f(x^{l-1})`` and ``f = V^T x^L``, entries of U of
    variance 1, of matrices in branches one over their number of columns, of V 1/n^2, as n goes to
    infinity.

    Args:
        inputs: xi, (N, d_in).
        depth: number of residual branches.
        block: what a branch computes; one matrix without activation unless given.
        branch: the multiplier of every branch, c.
        lr: the factor of the learning rate inside branches, r.
        lr_input, lr_readout: those of U and V, frozen unless given, in the units of
            ``limits.linear``.

    Returns:
        Theta, and the covariance of the stream.

    Raises:
        ValueError: inputs that are no finite matrix, or zero where they are normalized; a depth
            below 1; a multiplier or rates that are not finite.

    Example:
        >>> linear = kernel([[1.0]], depth=4, branch=0.5)  # 4 c^2 (1 + c^2)^3
        >>> round(float(linear.tangent[0, 0]), 12)
        1.953125

    *Source:* Jacot et al. 2018 (arXiv 1806.07572) for the kernel; TP6 (arXiv 2310.02244)
    Definition 6.1 for the scaling.
    """
    xi = matrix(inputs, "inputs", "(N, d_in)")
    block = block or Block()
    rates = lr, lr_input, lr_readout
    if not (math.isfinite(branch) and all(0 <= rate < math.inf for rate in rates)):
        raise ValueError(
            "Expected branch, lr, lr_input and lr_readout to be finite, and the rates not "
            f"negative; got {branch}, {lr}, {lr_input} and {lr_readout}."
        )
    if block.layer_norm:
        require_norms(xi)
    stream = xi @ xi.T
    mean = np.zeros(len(xi))  # of the stream's entries: not 0 where a branch keeps its own
    tangent, above = np.zeros_like(stream), np.ones_like(stream)
    for _ in range(checked_depth(depth)):
        covariance, own_mean, jacobian, own = _branch(block, stream, mean)
        # A branch above multiplies what all below it add to Theta.
        jacobian = 1 + branch**2 * jacobian
        tangent, above = tangent * jacobian + own, above * jacobian
        cross = branch * np.outer(mean, own_mean)
        stream = stream + branch**2 * covariance + cross + cross.T
        mean = mean + branch * own_mean
    tangent *= lr * branch**2
    tangent += lr_input * above * (xi @ xi.T) + lr_readout * stream
    return Kernel(tangent=tangent, stream=stream)


def checked_depth(depth: int) -> int:
    """A number of residual branches; NumPy's integers are some, too."""
    if isinstance(depth, bool) or not isinstance(depth, Integral) or depth < 1:
        raise ValueError(f"Expected depths to be positive integers; got {depth!r}.")
    if depth > MOST_BRANCHES:
        raise ValueError(f"Expected depths to be at most {MOST_BRANCHES:,}; got {depth:,}.")
    return int(depth)


def _branch(block: Block, stream: Array, mean: Array) -> tuple[Array, Array, Array, Array]:
    """One branch, without its multiplier, from the stream that it reads.

    Its output's covariance (N, N), uncentred, and mean (N,); J (N, N); and the sum over its
    matrices of J_i S_{i-1} (N, N), per unit <d|d'>.
    """
    one = np.ones_like(stream)
    covariance, jacobian = stream, one
    if block.layer_norm:
        covariance = covariance - np.outer(mean, mean)
        size = np.sqrt(np.diag(covariance))
        # What a norm takes from the gradient is its part along x, which starts at 0.
        jacobian = 1 / np.outer(size, size)
        covariance = covariance * jacobian
    entering: list[Array] = []  # S_{i-1} of every matrix
    above: list[Array] = []  # J_i of every matrix
    last = len(block.layers) - 1
    mean = np.zeros(len(stream))
    for i, layer in enumerate(block.layers):
        if layer == "matrix":
            entering.append(covariance)
            above.append(one)
            mean = np.zeros(len(stream))  # W has mean 0, whatever it is applied to
            continue
        covariance, slope, of_phi = moments(block.phi, covariance)
        jacobian = jacobian * slope
        above = [factor * slope for factor in above]
        if not (i == last and block.mean_subtraction):
            mean = of_phi
            covariance = covariance + np.outer(mean, mean)
    rates = block.rates or (1.0,) * block.block_depth
    tangent = np.zeros_like(stream)
    for rate, factor, below in zip(rates, above, entering, strict=True):
        tangent += rate * factor * below
    return covariance, mean, jacobian, tangent


def moments(phi: Activation, covariance: Array) -> tuple[Array, Array, Array]:
    """Cov(phi, phi') and E phi' phi' (N, N), and E phi (N,), of entries of covariance (N, N).

    Where phi is known by quadrature and all variances are equal, to the rounding of data in single
    precision, the moments are functions of one correlation, which are interpolated: a hundred
    inputs then cost a few dozen quadratures.
    """
    single, own = phi.single(np.diag(covariance)), np.arange(len(covariance))
    of_one_correlation = _interpolated(phi, covariance) if phi.sampled else None
    if of_one_correlation is None:
        return *pairs_among(phi, covariance), single.mean
    of_one_correlation[:, own, own] = single.variance, single.v1
    return of_one_correlation[0], of_one_correlation[1], single.mean


def _interpolated(phi: Activation, covariance: Array) -> Array | None:
    """Cov(phi, phi') and E phi' phi' at equal variances, by Chebyshev polynomials in rho.

    As power series in rho their coefficients are squares of Hermite coefficients, so both are
    smooth up to rho = 1; a polynomial is good when its last coefficients are below ``TOLERANCE``.
    None where variances differ, or no degree is enough: a steep phi at a large variance is nearly a
    step.
    """
    variances = np.diag(covariance)
    if not np.ptp(variances) <= EQUAL * variances.max():  # also where one is nan
        return None
    variance = float(variances.mean())

    def at(rho: Array) -> Array:
        a = np.full_like(rho, variance)
        pair = phi.pair(a, variance * rho, a)
        return np.stack([pair.k0, pair.v1], axis=-1)

    # Rounding can put a correlation above 1, where Chebyshev polynomials grow fast.
    rho = np.clip(covariance / (variance or 1.0), -1.0, 1.0)  # inputs may all be 0
    for degree in DEGREES:
        coefficients = chebyshev.chebinterpolate(at, degree)  # type: ignore[type-var]
        # The last two, as every other coefficient of an odd or even function is zero.
        if np.abs(coefficients[-2:]).max() <= TOLERANCE * np.abs(coefficients).max():
            return np.asarray(chebyshev.chebval(rho, coefficients), dtype=np.float64)
    return None
