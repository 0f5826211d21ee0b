"""The one way from a problem to its solution: which equations hold for which network and depth.

    one matrix     linear       finite depth     ``methods.layers``             exact
                                infinite         ``methods.continuum``          to a tolerance
                   nonlinear    finite           ``methods.particles``          sampled
                                infinite         ``methods.nonlinear``          to a tolerance
    two matrices   linear       finite           ``methods.two_matrix_layers``  exact
                   nonlinear    finite           ``methods.blocks``             sampled
                   any          infinite         ``methods.mean_ode``           at alpha = 1
                   linear       infinite         ``methods.continuum``          below it
                   nonlinear    infinite         ``methods.nonlinear``          below it
    signSGD        any          finite           ``methods.particles``          sampled
                                infinite         ``methods.particles``          sampled

At infinite depth and alpha < 1 preactivations move by order L^-1/2, so that W1 is linearized. A
linear network with two matrices is then one with a single matrix and the learning rate
``lr + width_ratio lr_second``: its product W2 W1 moves by the sum of what both move, and the
product of the two updates vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from depthmup.limits.averages import Averages, Neurons, Particles, Quadratic, Sobol
from depthmup.limits.gaussian import uncentred
from depthmup.limits.methods.blocks import solve_blocks
from depthmup.limits.methods.continuum import solve_continuum
from depthmup.limits.methods.layers import solve_layers
from depthmup.limits.methods.mean_ode import solve_mean_ode
from depthmup.limits.methods.nonlinear import solve_nonlinear
from depthmup.limits.methods.particles import solve_extrapolated, solve_particles
from depthmup.limits.methods.two_matrix_layers import solve_two_matrix_layers
from depthmup.limits.problem import Problem, require_infinite_depth
from depthmup.limits.solution import Solution


def solve(problem: Problem, averages: Averages | None = None) -> Solution:
    """Train a network of infinite width by the equations that it has; no network is trained.

    ``limits.linear``, ``nonlinear``, ``two_matrix``, ``mean_ode`` and ``sign_sgd`` are this for one
    kind of network each, and state what it is.

    Args:
        problem: what ``limits.problem`` made of steps and settings.
        averages: ``limits.Particles`` or ``limits.Neurons``, whichever ``problem.averages`` says is
            sampled: by default 8 populations of 2^14 particles, or 4 scrambles of 4096 neurons.

    Returns:
        A solution; its status is ``unresolved`` where its error estimate is above the problem's
        ``tol``, and ``exploded`` where values overflow.

    Raises:
        ValueError: exponents without a limit of infinite depth, or an optimizer, a norm, a history
            or averages that this network's equations do not have.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]])), limits.Step([[-0.5]], limits.mse([[1.0]]))]
        >>> asked = limits.problem(steps, depth=float("inf"), lr=1.0, activation="erf")
        >>> round(float(limits.solve(asked).outputs[1][0, 0]), 6)
        -0.267186

    *Source:* arXiv 2310.02244 for networks with one matrix per block; the others are derived here,
    see docs/studies/limits.md.
    """  # noqa: E501
    if averages is not None and problem.averages is None:
        raise ValueError(
            "This limit has no averages over neurons, so there is nothing for `neurons` to do: "
            "leave it out. Nonlinear networks have them, at finite depth and at alpha=1."
        )
    if problem.sign:
        return solve_sign(problem, averages)
    if problem.block_depth == 2:
        return solve_two_matrices(problem, averages)
    return solve_linear(problem) if problem.linear else solve_one_matrix(problem, averages)


def solve_linear(problem: Problem, method: str | None = None) -> Solution:
    """A linear network with one matrix per block."""
    _require_derived(problem, ("momentum", "lr_input", "lr_readout"), "linear networks")
    # At finite depth the imbedding is exact and linear in depth, so nothing else is needed.
    chosen = method or ("continuum" if problem.infinite else "imbedding")
    if problem.infinite:
        require_infinite_depth(problem)
        if chosen != "continuum":
            raise ValueError(
                f"method={chosen!r} goes through every layer, so it needs a finite depth; "
                "leave method out for depth=math.inf."
            )
    if chosen == "continuum":
        return solve_continuum(problem)
    if chosen == "imbedding":
        return solve_layers(problem)
    raise ValueError(f"method must be 'imbedding' or 'continuum'; got {chosen!r}.")


def solve_one_matrix(problem: Problem, particles: Averages | None) -> Solution:
    """A network with one matrix per block and any activation."""
    _require_derived(problem, ("momentum",), "nonlinear networks with one matrix per block")
    if not problem.infinite:
        if problem.history:
            raise ValueError("history is for depth=math.inf: leave it out at a finite depth.")
        return solve_particles(problem, _particles(particles))
    return solve_nonlinear(problem)


def solve_two_matrices(problem: Problem, neurons: Averages | None) -> Solution:
    """A network with two matrices per block."""
    linear = problem.linear
    if problem.infinite:
        require_infinite_depth(problem)
        if problem.alpha < 1:
            return _linearized(problem)
        if problem.history:
            raise ValueError(
                "The mean ODE has no covariances to keep: leave history out, or use a finite depth."
            )
        return solve_mean_ode(problem, _neurons(problem, neurons))
    if linear and not problem.branch.rms_norm and not problem.optimizer.decay:
        return solve_two_matrix_layers(problem)
    return solve_blocks(problem, _neurons(problem, neurons))


def _linearized(problem: Problem) -> Solution:
    """1/2 <= alpha < 1, where W1's updates move preactivations by order L^-1/2 only."""
    linear = problem.linear
    refused = {
        "rms_norm": problem.branch.rms_norm,
        "decay": bool((problem.remains != 1).any() or (problem.second_remains != 1).any()),
        "lr_input": not linear and bool(problem.input.any()),
        "lr_readout": not linear and bool(problem.readout.any()),
    }
    if any(refused.values()):
        names = ", ".join(name for name, asked in refused.items() if asked)
        raise ValueError(
            f"The limit of infinite depth at alpha={problem.alpha} is not derived with "
            f"{names}. Use a finite depth (whose distance from it falls as 1/depth), or alpha=1."
        )
    if linear:
        both = problem.hidden + problem.branch.width_ratio * problem.second
        return solve_continuum(replace(problem, hidden=both))
    return solve_nonlinear(replace(problem, activation=uncentred(problem.activation)))


def solve_sign(problem: Problem, particles: Averages | None) -> Solution:
    """signSGD: with one sample per step, the sign of a gradient is a product of signs."""
    blocks, optimizer = problem.block_depth, problem.optimizer
    if blocks == 1 and optimizer.lr_second is not None:
        raise ValueError("lr_second and width_ratio are of blocks with two matrices.")
    others = [name for name in optimizer.used if name != "lr_second"]
    others += ["rms_norm"] * problem.branch.rms_norm + ["history"] * problem.history
    if others:
        raise ValueError(
            f"The limit of signSGD is not derived with {', '.join(others)}: leave "
            f"{'it' if len(others) == 1 else 'them'} out."
        )
    sizes = [len(step.inputs) for step in problem.steps]
    if max(sizes) > 1:
        raise ValueError(
            f"steps[{int(np.argmax(sizes))}] has {max(sizes)} samples: the sign of a sum is not a "
            "product of signs, and no limit of it is known. Use one sample per step, or SGD."
        )
    if not problem.infinite:
        return solve_particles(problem, _particles(particles))
    if (blocks, problem.alpha, problem.gamma) != (2, Fraction(1), Fraction(0)):
        raise ValueError(
            "The limit of infinite depth of signSGD is derived for two matrices per block at "
            f"alpha=1, gamma=0 alone; got block_depth={blocks}, alpha={problem.alpha}, "
            f"gamma={problem.gamma}. Use several finite depths and extrapolate in 1/depth."
        )
    return solve_extrapolated(problem, _particles(particles))


def _require_derived(problem: Problem, derived: Sequence[str], network: str) -> None:
    """Raise where the optimizer has settings that the equations of a network lack."""
    if others := [name for name in problem.optimizer.used if name not in derived]:
        raise ValueError(
            f"The limit of {network} is not derived with {', '.join(others)}: leave "
            f"{'it' if len(others) == 1 else 'them'} out of limits.SGD, or use blocks with two "
            "matrices (limits.two_matrix)."
        )


def _particles(given: Averages | None) -> Particles:
    if given is None:
        return Particles()
    if isinstance(given, Particles):
        return given
    raise _of_another_kind("Particles", given)


def _neurons(problem: Problem, given: Averages | None) -> Neurons:
    if given is None:
        return Quadratic() if problem.linear else Sobol()  # of linear neurons exact
    if isinstance(given, Neurons):
        return given
    raise _of_another_kind("Neurons", given)


def _of_another_kind(wanted: str, given: Averages) -> TypeError:
    return TypeError(
        f"Expected this limit's averages to be limits.{wanted}; got {type(given).__name__}."
    )
