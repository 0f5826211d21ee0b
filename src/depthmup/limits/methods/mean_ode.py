"""CompleteP's limit (alpha = 1, gamma = 0): training a wide and deep network is a mean ODE.

Width, then depth to infinity, blocks ``x + (a/L) W2 phi(W1 x)``. As noise and feedback are of order
1/L, x and its gradient d never leave the span of U and V: with coefficients X(p), Y(p) in R^D,
D = d_in + d_out,

    X' = a rho E[w2 phi(w1 . X)]                X(0) = E xi     E = (I; 0) initially
   -Y' = a rho E[w1 phi'(w1 . X) (w2 . Y)]      Y(1) = R chi    R = (0; I) initially
    f = R^T X(1)

over neurons (w1, w2), initially independent Gaussians of covariance I and I / rho (rho is the
hidden width over the width) at every depth p. It is a residual network of embedding dimension D
with infinitely many neurons per block, and training it is training the wide one. A step moves every
neuron at every depth, and E and R where U and V are trained, each sum over the minibatch:

    w1 -= a lr   sum phi'(w1 . X) (w2 . Y) X      E -= lr_input   sum Y(0) xi^T
    w2 -= a lr_2 sum phi(w1 . X) Y                R -= lr_readout sum X(1) chi^T

RMSNorm before a block, or LayerNorm (means over entries are zero), replaces X by X / |X|.

X and Y live on Chebyshev points of p, where weights live too, and neurons on points of a Gaussian.
Up, collocation is solved by Newton's method; its matrix is the transpose of what goes down.

*Source:* the reduction is derived here, not proved. A mean ODE for a fixed embedding dimension:
Chizat, arXiv 2509.10167.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from depthmup.limits.averages import Neurons
from depthmup.limits.numerics.chebyshev import Rule, rule
from depthmup.limits.numerics.memory import require_memory
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Solution, SolveStatus
from depthmup.limits.step import Array
from depthmup.limits.training import Method, combined, require_finite, train, unresolved

_DEGREES = (8, 12, 16, 24, 36, 54)
# Newton's method doubles its digits: what takes longer than this has no solution nearby.
_MOST_ITERATIONS = 40


def solve_mean_ode(problem: Problem, neurons: Neurons) -> Solution:
    """Train once per sample of neurons, with as many points in depth as the tolerance needs."""
    coordinates = _coordinates(problem)
    dimension, tol = coordinates.shape[1] + problem.d_out, problem.tol
    solutions, degrees = [], list(_DEGREES)
    for points, weights in neurons.samples(2 * dimension):
        while True:
            network = MeanField(problem, coordinates, rule(degrees[0]), points, weights)
            solution = train(network)
            # Points in depth get a tenth of the tolerance: the rest is for the neurons.
            resolved = solution.error_estimate <= 0.1 * tol or not solution.status.ok
            if resolved or len(degrees) == 1:
                break
            degrees.pop(0)  # and stay there: all neurons need about the same
        if solution.status.ok and not solution.error_estimate <= tol:
            advice = "Pass a larger tol, a smaller learning rate or multiplier, or fewer steps."
            solution = unresolved(solution, f"{degrees[0] + 1} Chebyshev points", advice)
        solutions.append(solution)
        if solution.status.kind == "exploded":
            break
    return combined(solutions, neurons, "Pass neurons with more points, or a larger tol.")


def _coordinates(problem: Problem) -> Array:
    """An orthonormal basis (d_in, rank) of what inputs span: U matters in these directions only."""
    _, sizes, basis = np.linalg.svd(problem.inputs, full_matrices=False)
    # A repeated input leaves a singular value of rounding, about 1e-16 of the largest.
    rank = int((sizes > 1e-13 * sizes.max(initial=1e-300)).sum())
    if rank == problem.d_in:
        # A full basis would only rotate U, and no rotation changes the law of a Gaussian matrix.
        return np.eye(problem.d_in)
    return np.ascontiguousarray(basis[: max(1, rank)].T)


class MeanField(Method):
    """The network of dimension D: weights of J neurons at every Chebyshev point, E and R.

    ``w1`` and ``w2`` (points, J, D), ``input`` E (D, d_in'), ``readout`` R (D, d_out); their
    ``speed`` is momentum's. ``share`` (J,) are the neurons' weights in averages, times a rho.
    ``coordinates`` (d_in, d_in') is a basis of what inputs span.
    """

    def __init__(
        self,
        problem: Problem,
        coordinates: Float[Array, "d_in rank"],
        depths: Rule,
        points: Float[Array, "count _"],
        weights: Float[Array, " count"],
    ) -> None:
        super().__init__(problem, depths.points)
        self.phi, self.rule, self.coordinates = problem.activation, depths, coordinates
        # Newton's error is about the square of its last change: this is plenty, and above rounding.
        self.precision = min(max(1e-13, 1e-4 * problem.tol), 1e-6)
        rank = coordinates.shape[1]
        eye = np.eye(rank + problem.d_out)
        self.input, self.readout = eye[:, :rank].copy(), eye[:, rank:].copy()
        # Two weights of every neuron at every point in depth, and their speeds.
        require_memory(
            32.0 * len(depths.points) * len(points) * len(eye),
            "Pass neurons with fewer points, or a problem of fewer dimensions.",
        )
        # Standard Gaussians become every depth's initial weights.
        dimension, ratio, shape = len(eye), problem.branch.width_ratio, (len(depths.points), 1, 1)
        self.w1 = np.tile(points[:, :dimension], shape)
        self.w2 = np.tile(points[:, dimension:] / math.sqrt(ratio), shape)
        self.share = problem.branch.multiplier * ratio * weights
        self.speed = [np.zeros_like(w) for w in (self.w1, self.w2, self.input, self.readout)]
        self.tops, self.tail = np.zeros((0, dimension)), 0.0

    def up(self, t: int, rows: slice, inputs: Array) -> tuple[Array, Array]:
        batch, xi = rows.stop - rows.start, inputs @ self.coordinates
        x, jacobian, settled = self.rise(xi)
        require_finite(x)
        if not settled:
            message = (
                f"Newton's method did not settle at step {t}. Pass a smaller learning rate "
                "or multiplier."
            )
            self.status = SolveStatus(kind="unresolved", step=t, message=message)
        self.tops = np.concatenate([self.tops, x[-1, :batch]])
        self.passed = xi[:batch], x[:, :batch], jacobian[:, :batch]
        # |x|^2 / n is |X|^2, as the columns of U and nV are orthonormal at infinite width.
        return x[-1] @ self.readout, np.square(x).sum(axis=2)

    def down(self, t: int, rows: slice, chi: Array) -> None:
        xi, x, jacobian = self.passed
        self.update(t, xi, chi, x, self.fall(chi, jacobian))

    def kernel(self) -> Array:
        tops = self.tops[: self.done]
        return tops @ tops.T

    def error(self) -> float:
        return self.tail * self.scale

    def rise(
        self, xi: Float[Array, "rows rank"]
    ) -> tuple[Float[Array, "points rows dim"], Float[Array, "points rows dim dim"], bool]:
        """X (points, rows, D), dX'/dX (points, rows, D, D), and whether Newton's method settled."""
        start = xi @ self.input.T
        x = np.repeat(start[None], len(self.rule.points), axis=0)
        for _ in range(_MOST_ITERATIONS):
            rate, jacobian = self.flow(x)
            residual = start + np.tensordot(self.rule.integral, rate, 1) - x
            change = self.solve(self.rule.integral, jacobian, residual)
            x = x + change
            size = float(np.abs(x).max(initial=1.0))
            largest = float(np.abs(change).max(initial=0.0))
            if not np.isfinite(largest):
                return x, jacobian, False
            # The next change would be about the square of this one; the matrix is off by this one.
            if largest <= self.precision * size:
                self.judge(x)
                return x, jacobian, True
        return x, jacobian, False

    def flow(
        self, x: Float[Array, "points rows dim"]
    ) -> tuple[Float[Array, "points rows dim"], Float[Array, "points rows dim dim"]]:
        """X' and its derivative: (points, rows, D) and (points, rows, D, D)."""
        z, size = self.normalized(x)
        rate, jacobian = np.empty_like(x), np.empty((*x.shape, x.shape[2]))
        for i, (w1, w2) in enumerate(zip(self.w1, self.w2, strict=True)):
            h = z[i] @ w1.T
            rate[i] = (self.phi.function(h) * self.share) @ w2
            slope = self.phi.slope(h) * self.share
            jacobian[i] = (w2.T * slope[:, None, :]) @ w1
        if self.problem.branch.rms_norm:
            # Times the norm's own Jacobian, (I - z z^T) / |X|, with z = X / |X|.
            along = (jacobian @ z[..., None]) * z[..., None, :]
            jacobian = (jacobian - along) / size[..., None, None]
        return rate, jacobian

    def normalized(self, x: Array) -> tuple[Array, Array]:
        """What the blocks see of X, and |X| (1 without a norm)."""
        if not self.problem.branch.rms_norm:
            return x, np.ones(x.shape[:2])
        size = np.sqrt(np.square(x).sum(axis=2))
        return x / size[..., None], size

    def fall(self, chi: Array, jacobian: Array) -> Array:
        """Y (points, rows, D), which goes down by the transpose of what X's changes go up by."""
        start = chi @ self.readout.T
        rising = self.rule.integral
        falling = rising[-1] - rising
        y = np.repeat(start[None], len(rising), axis=0)
        y = self.solve(falling, jacobian.swapaxes(2, 3), y)
        self.judge(y)
        return y

    def solve(self, operator: Array, matrices: Array, target: Array) -> Array:
        """s with ``s - operator (matrices s) = target``, for every row: (points, rows, D)."""
        points, rows, size = target.shape
        out = np.empty_like(target)
        for row in range(rows):
            # (points, D) by (points, D): few enough unknowns for dense elimination.
            system = operator[:, None, :, None] * matrices[None, :, row].transpose(0, 2, 1, 3)
            flat = np.eye(points * size) - system.reshape(points * size, points * size)
            out[:, row] = np.linalg.solve(flat, target[:, row].ravel()).reshape(points, size)
        return out

    def judge(self, states: Array) -> None:
        """Update the estimate of the Chebyshev coefficients not kept, relative to the largest."""
        size = float(np.abs(states).max(initial=0.0))
        if size > 0:
            neglected = self.rule.neglected(states[:, :, None])
            self.tail = max(self.tail, float(neglected.max()) / size)

    def update(self, t: int, xi: Array, chi: Array, x: Array, y: Array) -> None:
        """One step of SGD: every neuron at every depth, E and R."""
        optimizer, rates = self.problem.optimizer, self.problem.rates[:, t]
        a, (z, _) = self.problem.branch.multiplier, self.normalized(x)
        for i, (w1, w2) in enumerate(zip(self.w1, self.w2, strict=True)):
            h = z[i] @ w1.T
            back = self.phi.slope(h) * (y[i] @ w2.T)
            for speed, gradient in (
                (self.speed[0][i], back.T @ z[i]),
                (self.speed[1][i], self.phi.function(h).T @ y[i]),
            ):
                speed *= optimizer.momentum
                speed += a * gradient
        for speed, gradient in ((self.speed[2], y[0].T @ xi), (self.speed[3], x[-1].T @ chi)):
            speed *= optimizer.momentum
            speed += gradient
        self.w1 *= 1.0 - rates[0] * optimizer.decay
        self.w2 *= 1.0 - rates[1] * optimizer.decay
        moved = self.w1, self.w2, self.input, self.readout
        for weights, rate, speed in zip(moved, rates, self.speed, strict=True):
            weights -= rate * speed
