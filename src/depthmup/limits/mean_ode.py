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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from depthmup.limits.chebyshev import Rule, rule
from depthmup.limits.gaussian import Activation, resolve
from depthmup.limits.losses import Array
from depthmup.limits.momentum import SGD, Rate, rates
from depthmup.limits.neurons import Neurons, Quadratic, Sobol, combined
from depthmup.limits.problem import Branch, Problem, TwoMatrices, check_tol, two_matrices
from depthmup.limits.solution import Ledger, Solution, Status, exploded
from depthmup.limits.step import Step

_DEGREES = (8, 12, 16, 24, 36, 54)
# Newton's method doubles its digits: what takes longer than this has no solution nearby.
_MOST_ITERATIONS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class HeavyBall:
    """``SGD`` with rates per step of W1, W2, U and V; the momentum, W1's and W2's decay."""

    first: Float[Array, " steps"]
    second: Float[Array, " steps"]
    input: Float[Array, " steps"]
    readout: Float[Array, " steps"]
    momentum: float
    decay: float


def mean_ode(
    steps: Sequence[Step],
    *,
    activation: str | Activation,
    lr: Rate,
    branch: Branch | None = None,
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
    neurons: Neurons | None = None,
    tol: float = 1e-3,
) -> Solution:
    """Train an infinitely wide and deep network whose blocks have two matrices under CompleteP.

    ``x^l = x^{l-1} + (a/L) W2 phi(W1 x^{l-1})`` with SGD whose learning rates inside blocks are
    ``lr L``: alpha = 1, gamma = 0.

    Args:
        steps: minibatches, with any loss.
        activation: a name or a ``limits.smooth(...)``.
        lr: learning rate of W1, one number or one per step.
        branch: ``limits.Branch``: the multiplier a, the width ratio rho, a norm.
        optimizer: ``limits.SGD``: W2's own rate, those of U and V, momentum, decay.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
        neurons: ``limits.Sobol(...)`` (by default 4 scrambles of 4096 points) or, for smooth
            activations in few dimensions, ``limits.Hermite(...)``. Averages are over 2 D
            dimensions. The identity needs none: its averages are exact.
        tol: the error asked for, of outputs.

    Returns:
        A solution at Chebyshev points in depth. Its status is ``unresolved`` where the estimated
        error of points in depth or of neurons is above ``tol``.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> s = limits.mean_ode(steps, activation="identity", lr=1.0)
        >>> round(float(s.outputs[1][0, 0]), 9)  # -a^2 (lr + lr_second rho) xi_1 xi_0 chi_0
        1.0

    *Source:* see the head of this file; CompleteP: arXiv 2505.01618.
    """
    phi, branch, optimizer = resolve(activation), branch or Branch(), optimizer or SGD()
    check_tol(tol)
    matrices = two_matrices(
        steps, lr=lr, alpha=1, gamma=0, branch=branch, optimizer=optimizer, held_out=held_out
    )
    ball = heavy_ball(len(matrices.problem.steps), lr, optimizer)
    return solve_mean_ode(matrices, phi, ball, rms_norm=branch.rms_norm, neurons=neurons, tol=tol)


def heavy_ball(count: int, lr: Rate, optimizer: SGD) -> HeavyBall:
    """The rates of every step.

    Args:
        count: how many steps there are.
        lr: learning rate of W1.
        optimizer: the other rates, momentum and decay, which were checked.

    Example:
        >>> heavy_ball(2, 0.5, SGD(lr_second=0.1)).second
        array([0.1, 0.1])
    """
    return HeavyBall(
        first=rates(lr, count),
        second=rates(optimizer.second(lr), count, "lr_second"),
        input=rates(optimizer.lr_input, count, "lr_input"),
        readout=rates(optimizer.lr_readout, count, "lr_readout"),
        momentum=optimizer.momentum,
        decay=optimizer.decay,
    )


def solve_mean_ode(
    matrices: TwoMatrices,
    phi: Activation,
    optimizer: HeavyBall,
    *,
    rms_norm: bool,
    neurons: Neurons | None,
    tol: float,
) -> Solution:
    """Train once per sample of neurons, with as many points in depth as the tolerance needs.

    Args:
        matrices: the problem with both matrices' weights.
        phi: the activation.
        optimizer: rates of every step, momentum and decay.
        rms_norm: normalize x before every block.
        neurons: what averages over them are taken with; ``Sobol()``, exact for the identity.
        tol: the error asked for, of outputs.
    """
    todo, width_ratio = matrices.problem, matrices.width_ratio
    if neurons is None:
        neurons = Quadratic() if phi.name == "identity" else Sobol()
    coordinates = _coordinates(todo)
    dimension = coordinates.shape[1] + todo.d_out
    solutions, degrees = [], list(_DEGREES)
    for points, weights in neurons.samples(2 * dimension):
        while True:
            chebyshev = rule(degrees[0])
            network = Network(todo, phi, coordinates, width_ratio, rms_norm, chebyshev, tol)
            network.draw(points, weights)
            solution = network.train(optimizer)
            # Points in depth get a tenth of the tolerance: the rest is for the neurons.
            resolved = solution.error_estimate <= 0.1 * tol or not solution.status.ok
            if resolved or len(degrees) == 1:
                break
            degrees.pop(0)  # and stay there: all neurons need about the same
        if solution.status.ok and not solution.error_estimate <= tol:
            message = (
                f"{degrees[0] + 1} Chebyshev points leave an error of about "
                f"{solution.error_estimate:.1e} > tol={tol:.1e}. Pass a larger tol, a smaller "
                "learning rate or multiplier, or fewer steps."
            )
            solution = replace(solution, status=Status(kind="unresolved", message=message))
        solutions.append(solution)
        if solution.status.kind == "exploded":
            break
    return combined(solutions, neurons, tol, "Pass neurons with more points, or a larger tol.")


def _coordinates(todo: Problem) -> Array:
    """An orthonormal basis (d_in, rank) of what inputs span: U matters in these directions only."""
    rows = [step.inputs for step in todo.steps]
    if todo.held_out is not None:
        rows.append(todo.held_out)
    _, sizes, basis = np.linalg.svd(np.concatenate(rows), full_matrices=False)
    # A repeated input leaves a singular value of rounding, about 1e-16 of the largest.
    rank = int((sizes > 1e-13 * sizes.max(initial=1e-300)).sum())
    if rank == todo.d_in:
        # A full basis would only rotate U, and no rotation changes the law of a Gaussian matrix.
        return np.eye(todo.d_in)
    return np.ascontiguousarray(basis[: max(1, rank)].T)


class Network:
    """The network of dimension D: weights of J neurons at every Chebyshev point, E and R.

    ``w1`` and ``w2`` (points, J, D), ``input`` E (D, d_in'), ``readout`` R (D, d_out); their
    ``speed`` is momentum's. ``share`` (J,) are the neurons' weights in averages, times a rho.
    """

    def __init__(
        self,
        todo: Problem,
        phi: Activation,
        coordinates: Array,
        width_ratio: float,
        rms_norm: bool,
        points: Rule,
        tol: float,
    ) -> None:
        self.todo, self.phi, self.rms_norm, self.rule = todo, phi, rms_norm, points
        # Newton's error is about the square of its last change: this is plenty, and above rounding.
        self.precision = min(max(1e-13, 1e-4 * tol), 1e-6)
        self.coordinates, self.ratio = coordinates, width_ratio
        rank = coordinates.shape[1]
        eye = np.eye(rank + todo.d_out)
        self.input, self.readout = eye[:, :rank].copy(), eye[:, rank:].copy()
        self.tail = 0.0

    def draw(self, points: Array, weights: Array) -> None:
        """Standard Gaussians (J, 2 D) become every depth's initial weights.

        Args:
            points: standard Gaussians, (J, 2 D).
            weights: of the points in averages, (J,).
        """
        dimension, shape = len(self.input), (len(self.rule.points), 1, 1)
        self.w1 = np.tile(points[:, :dimension], shape)
        self.w2 = np.tile(points[:, dimension:] / math.sqrt(self.ratio), shape)
        self.share = self.todo.scaling.multiplier * self.ratio * weights
        parameters = self.w1, self.w2, self.input, self.readout
        self.speed = [np.zeros_like(w) for w in parameters]

    def train(self, optimizer: HeavyBall) -> Solution:
        todo, ledger = self.todo, Ledger(problem=self.todo, positions=self.rule.points)
        status, tops = Status(), np.zeros((0, len(self.input)))
        updates = len(todo.steps) - (todo.held_out is None)
        with np.errstate(all="ignore"):
            for t, rows, inputs in todo.queries():
                batch, xi = rows.stop - rows.start, inputs @ self.coordinates
                try:
                    x, jacobian, settled = self.up(xi)
                except np.linalg.LinAlgError:
                    x, settled = np.full((1, len(xi), len(self.input)), np.nan), True
                outputs = x[-1] @ self.readout
                if not np.isfinite(x).all():
                    status = exploded(t, todo, math.inf)
                    break
                if not settled:
                    message = (
                        f"Newton's method did not settle at step {t}. Pass a smaller learning rate "
                        "or multiplier."
                    )
                    status = Status(kind="unresolved", step=t, message=message)
                # |x|^2 / n is |X|^2, as the columns of U and nV are orthonormal at infinite width.
                f = ledger.query(t, batch, outputs, np.square(x).sum(axis=2))
                tops = np.concatenate([tops, x[-1, :batch]])
                if t < updates:
                    chi = todo.steps[t].gradient(f)
                    y = self.down(chi, jacobian[:, :batch])
                    self.update(t, xi[:batch], chi, x[:, :batch], y, optimizer)
        largest = max((float(np.abs(f).max()) for f in ledger.outputs), default=0.0)
        return ledger.close(
            kernel=tops @ tops.T,
            status=status,
            error_estimate=self.tail * max(1.0, largest),
            activation=self.phi.name,
        )

    def up(
        self, xi: Float[Array, "rows rank"]
    ) -> tuple[Float[Array, "points rows dim"], Float[Array, "points rows dim dim"], bool]:
        """X (points, rows, D), dX'/dX (points, rows, D, D), and whether Newton's method settled."""
        start = xi @ self.input.T
        x = np.repeat(start[None], len(self.rule.points), axis=0)
        for _ in range(_MOST_ITERATIONS):
            rate, jacobian = self.flow(x)
            residual = start + _along(self.rule.integral, rate) - x
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
        if self.rms_norm:
            # Times the norm's own Jacobian, (I - z z^T) / |X|, with z = X / |X|.
            along = (jacobian @ z[..., None]) * z[..., None, :]
            jacobian = (jacobian - along) / size[..., None, None]
        return rate, jacobian

    def normalized(self, x: Array) -> tuple[Array, Array]:
        """What the blocks see of X, and |X| (1 without a norm)."""
        if not self.rms_norm:
            return x, np.ones(x.shape[:2])
        size = np.sqrt(np.square(x).sum(axis=2))
        return x / size[..., None], size

    def down(self, chi: Array, jacobian: Array) -> Array:
        """Y (points, rows, D), which goes down by the transpose of what X's changes go up by.

        Args:
            chi: the loss's gradients, (rows, d_out).
            jacobian: dX'/dX at every point, (points, rows, D, D).
        """
        start = chi @ self.readout.T
        rising = self.rule.integral
        falling = rising[-1] - rising
        y = np.repeat(start[None], len(rising), axis=0)
        y = self.solve(falling, jacobian.swapaxes(2, 3), y)
        self.judge(y)
        return y

    def solve(self, operator: Array, matrices: Array, target: Array) -> Array:
        """s with ``s - operator (matrices s) = target``, for every row: (points, rows, D).

        Args:
            operator: integrates over depth, (points, points).
            matrices: at every point, (points, rows, D, D).
            target: the right-hand side, (points, rows, D).
        """
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

    def update(
        self, t: int, xi: Array, chi: Array, x: Array, y: Array, optimizer: HeavyBall
    ) -> None:
        """One step of SGD: every neuron at every depth, E and R.

        Args:
            t: number of the step.
            xi: inputs in the coordinates of U.
            chi: the loss's gradients.
            x: X at every point, (points, rows, D).
            y: Y there.
            optimizer: rates of every step, momentum and decay.
        """
        a, (z, _) = self.todo.scaling.multiplier, self.normalized(x)
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
        first, second = optimizer.first[t], optimizer.second[t]
        self.w1 *= 1.0 - first * optimizer.decay
        self.w2 *= 1.0 - second * optimizer.decay
        moves = (
            (self.w1, first),
            (self.w2, second),
            (self.input, optimizer.input[t]),
            (self.readout, optimizer.readout[t]),
        )
        for (weights, rate), speed in zip(moves, self.speed, strict=True):
            weights -= rate * speed


def _along(integral: Array, rate: Array) -> Array:
    """The integral over depth of (points, ...)."""
    return (integral @ rate.reshape(len(rate), -1)).reshape(rate.shape)
