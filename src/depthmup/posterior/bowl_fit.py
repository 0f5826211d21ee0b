"""Minima and shape of a valley in several coordinates that fit all runs best, and their evidence.

The covariance of the log losses of one size is that of ``posterior.errors`` in several coordinates:

    sigma^2 / q + rho^2 H H' exp(-|x - x'|) (1 + c) / 2
      + (zeta_T^2 c + zeta_C^2) h h',
    H = h (1 + (h/g)^2)^(1/2) (1 + (h/0.3)^2) (1 + (d/2)^2),

h the rise above the minimum by an earlier fit, g that on the other side at the same distance, d the
octaves from the middle, c the cosine between the directions in which two runs lie from there: on
one line 1 on one side and -1 across.

A run that diverged is one more observation: the minimum lies before it, on the way from the best
runs, unless a good run lies behind it; and before all runs beyond a value diverge.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from depthmup.posterior.bowl import Bowl, free, heights, planes
from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.law import Covariances
from depthmup.posterior.likelihood import WIDE
from depthmup.posterior.newton import LARGEST_STEP, SETTLED
from depthmup.posterior.nodes import Nodes
from depthmup.posterior.priors import (
    BEND_SPREAD,
    DIVERGED,
    DIVERGED_WIDTH,
    FLAT,
    GROWTH_SPREAD,
    LOW,
    MISFITS,
    NEAR,
    NOISE,
    NOISE_SPREAD,
    POWER,
    POWER_SPREAD,
    ROUNDING,
    ROUNDING_SPREAD,
    STEEPNESS_SPREAD,
    TURNS,
)
from depthmup.posterior.trials import Guess, Trials, best_quarter
from depthmup.posterior.valley import BENDS, LEVELS, POWERS, ROUND, SHARED

FAR = 1.5
"""Octaves at which a rise begins as steep as the first guess's."""

TURNED = 1.0
"""Radians by which principal directions may lie from the first guess's."""

WALL = 6.0
"""Deviations of noise, beyond twice what a fit has, from which a run lies on a wall."""

SWINGS = 0.05
"""Radians per doubling by which they turn."""

BENT = 0.1
"""Per octave: at two octaves along a ridge its middle lies a fifth of an octave aside."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Errors:
    """The parts of the covariance of one size's runs, each of unit scale."""

    misfit: Array
    turned: Array
    steeper: Array

    def structured(self, rho: float, own: tuple[float, float]) -> Array:
        """All but noise."""
        turn, steep = own
        return np.asarray(rho**2 * self.misfit + turn**2 * self.turned + steep**2 * self.steeper)


def errors_of(
    runs: Trials, centre: Array, rise: Array, mirrored: Array, noise: float
) -> list[Errors]:
    """Of every size; ``rise`` is that of each run by an earlier fit, ``mirrored`` that across the
    minimum from it, ``noise`` the deviation.

    Not the heights of the runs themselves: where sizes have many, the turn of one would explain
    the noise in them. Walls that the fit missed count as high as they were measured.
    """
    result = []
    walls = runs.height > 2 * rise + WALL * noise
    for i in range(runs.sizes):
        own = runs.size == i
        away, h = runs.x[own] - centre[i], rise[own]
        distance = np.linalg.norm(away, axis=1)
        way = away / np.maximum(distance, 1e-9)[:, None]
        alike = way @ way.T
        high = np.where(walls[own], runs.height[own], h)
        across = np.maximum(mirrored[own], FLAT * high + 1e-12)
        far = (1 + (high / LOW) ** 2) * (1 + (distance / NEAR) ** 2)
        high = high * np.sqrt(1 + (high / across) ** 2) * far
        apart = np.linalg.norm(away[:, None] - away[None], axis=-1)
        both = np.outer(h, h)
        result.append(
            Errors(
                misfit=np.outer(high, high) * np.exp(-apart) * (1 + alike) / 2,
                turned=both * alike,
                steeper=both,
            )
        )
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Walls:
    """Half-spaces in which minima lie: ``way @ k[size] <= end``."""

    size: Index
    way: Array
    end: Array

    def over(self, k: Array) -> Array:
        """By how many octaves minima lie too far, (walls,)."""
        return np.asarray(np.maximum((self.way * k[self.size]).sum(-1) - self.end + DIVERGED, 0.0))


def walls_of(trials: Trials, guess: Guess) -> Walls:
    """From runs that diverged; directions are those of the steepest rise from the best runs.

    Not from the guess's centre, which may lie behind them.
    """
    size, way, end = [], [], []
    middle = best_quarter(trials.finite)
    for at in np.flatnonzero(~trials.ended):
        i = int(trials.size[at])
        normal = guess.curvature @ (trials.x[at] - middle[i])
        normal /= max(float(np.linalg.norm(normal)), 1e-12)
        own = (trials.size == i) & trials.ended
        good = trials.x[own][trials.y[own] <= np.median(trials.y[own])] if own.any() else ()
        if len(good) and (good @ normal).max() < trials.x[at] @ normal:
            size.append(i)
            way.append(normal)
            end.append(float(trials.x[at] @ normal))
    for i, value, sign in product(range(trials.sizes), range(trials.values), (1.0, -1.0)):
        own = trials.size == i
        x = sign * trials.x[own, value]
        ended = trials.ended[own]
        beyond = x[~ended & (x > x[ended].max(initial=-np.inf))]
        # Few lie beyond all others by chance.
        if len(beyond) > trials.values:
            size.append(i)
            way.append(sign * np.eye(trials.values)[value])
            end.append(float(beyond.min()))
    return Walls(
        size=np.array(size, np.int64),
        way=np.array(way, float).reshape(-1, trials.values),
        end=np.array(end, float),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class BowlProblem:
    """Everything but the fit.

    Attributes:
        runs: those that ended.
        mean, scale: prior of shape and angles, under one belief about turns.
        own: deviations of a size's own turn and steepness.
        weight: of every run, by Student's t.
        origin: about which minima have the wide law.
    """

    runs: Trials
    errors: list[Errors]
    walls: Walls
    mean: Array
    scale: Array
    own: tuple[float, float]
    weight: Array
    origin: Array

    @cached_property
    def covariance(self) -> Array:
        """Of minima, before any run."""
        law = Covariances(s=self.runs.s).whole(WIDE)
        return np.asarray(np.kron(law, np.eye(self.runs.values)), float)

    @cached_property
    def law(self) -> Array:
        return np.asarray(np.linalg.inv(self.covariance), float)

    @cached_property
    def members(self) -> list[Index]:
        return [np.flatnonzero(self.runs.size == i) for i in range(self.runs.sizes)]

    @cached_property
    def levels(self) -> list[Array]:
        """Of every size: which of its runs share a level."""
        every = (self.runs.levels[own] for own in self.members)
        return [levels[:, levels.any(0)] for levels in every]

    def at(self, bowl: Bowl) -> tuple[Array, Array]:
        """Residuals, and derivatives of the model by the bowl's vector."""
        runs = self.runs
        found = heights(bowl, runs.x - bowl.k[runs.size], runs.s[runs.size])
        by_k = np.zeros((len(runs.y), runs.sizes, runs.values))
        by_k[np.arange(len(runs.y)), runs.size] = -found.slope
        jacobian = np.concatenate([by_k.reshape(len(runs.y), -1), found.by_shape], 1)
        return runs.y - found.height, jacobian

    def off(self, bowl: Bowl) -> Array:
        """Shape and angles from their mean, in deviations."""
        return np.asarray((bowl.vector[bowl.k.size :] - self.mean) / self.scale)

    def pushed(self, bowl: Bowl) -> tuple[float, Array, Array]:
        """Divergences' part of the objective, their force on minima, and its precision."""
        over, walls = self.walls.over(bowl.k), self.walls
        by_k = np.zeros((len(over), *bowl.k.shape))
        by_k[np.arange(len(over)), walls.size] = walls.way
        by_k = by_k.reshape(len(over), bowl.k.size)[over > 0] / DIVERGED_WIDTH
        scaled = over[over > 0] / DIVERGED_WIDTH
        return float((scaled**2).sum()), by_k.T @ scaled, by_k.T @ by_k

    def spectrum(self, rho: float) -> list[tuple[Array, Array, float]]:
        """Of every size: eigenvalues where noise is the unit, what turns its runs into these
        coordinates, and the weights' part of the log determinant.
        """
        result = []
        for own, errors in zip(self.members, self.errors, strict=True):
            root = np.sqrt(self.weight[own])
            scaled = errors.structured(rho, self.own) * np.outer(root, root)
            values, vectors = np.linalg.eigh(scaled)
            result.append(
                (np.maximum(values, 0.0), vectors.T * root, float(-2 * np.log(root).sum()))
            )
        return result


def prior_of_shape(guess: Guess, axes: int, belief: int) -> tuple[Array, Array]:
    """Mean and deviation of shape and angles under one row of ``TURNS``."""
    turn, bend, *_ = TURNS[belief]
    curvature = guess.directions[0]
    count, at = len(curvature), SHARED
    mean, scale = np.zeros((2, count, at + 6 * axes))
    begins = np.log(curvature / 2) + (2 - np.exp(POWER)) * np.log(FAR)
    mean[:, LEVELS], mean[:, POWERS], mean[:, ROUND] = begins[:, None], POWER, ROUNDING
    scale[:, LEVELS], scale[:, POWERS] = STEEPNESS_SPREAD, POWER_SPREAD
    scale[:, BENDS], scale[:, ROUND] = BEND_SPREAD, ROUNDING_SPREAD
    scale[:, at : at + 5 * axes] = np.repeat([GROWTH_SPREAD, turn, bend, bend, bend], axes)
    kept = free(axes)
    of_angles = np.tile(np.r_[TURNED, np.full(axes, SWINGS)], len(planes(count)))
    of_bends = np.full(count * (count - 1), BENT)
    return (
        np.concatenate([mean[:, kept].ravel(), np.zeros(len(of_angles) + len(of_bends))]),
        np.concatenate([scale[:, kept].ravel(), of_angles, of_bends]),
    )


def start(guess: Guess, centre: Array, mean: Array, axes: int) -> Bowl:
    """A bowl at its prior's mean, with some minima."""
    values = len(guess.curvature)
    shapes = values * len(free(axes))
    return Bowl(
        k=centre,
        shape=mean[:shapes].reshape(values, -1),
        angles=np.zeros((len(planes(values)), 1 + axes)),
        first=guess.directions[1],
        bends=np.zeros((values, values - 1)),
    )


def fit(problem: BowlProblem, bowl: Bowl, sigma: float, rho: float, steps: int) -> Bowl:
    """Levenberg's damped steps."""
    whiten: list[Array] = []
    for of_size, (values, turned, _) in zip(problem.levels, problem.spectrum(rho), strict=True):
        white = np.asarray(turned / np.sqrt(sigma**2 + values)[:, None], float)
        levels, _ = np.linalg.qr(white @ of_size)
        whiten.append(white - levels @ (levels.T @ white))
    minima = bowl.k.size

    def whitened(rows: Array) -> Array:
        parts = zip(whiten, problem.members, strict=True)
        return np.concatenate([white @ rows[own] for white, own in parts])

    def look(at: Bowl) -> tuple[float, Array, Array]:
        residual, jacobian = problem.at(at)
        white, k = whitened(residual), (at.k - problem.origin).ravel()
        value = float(white @ white + (problem.off(at) ** 2).sum() + k @ problem.law @ k)
        return value + problem.pushed(at)[0], white, jacobian

    value, white, jacobian = look(bowl)
    damping = 1e-2
    for _ in range(steps):
        turned = whitened(jacobian)
        normal = turned.T @ turned
        _, push, felt = problem.pushed(bowl)
        normal[:minima, :minima] += problem.law + felt
        every = np.arange(len(normal))
        normal[every[minima:], every[minima:]] += problem.scale**-2.0
        gradient = turned.T @ white
        gradient[:minima] -= problem.law @ (bowl.k - problem.origin).ravel() + push
        gradient[minima:] -= problem.off(bowl) / problem.scale
        normal[every, every] *= 1 + damping
        step = np.clip(np.linalg.solve(normal, gradient), -LARGEST_STEP, LARGEST_STEP)
        tried = bowl.moved(step)
        new, *seen = look(tried)
        better = bool(np.isfinite(new) and new <= value)
        damping = max(damping / 5, 1e-6) if better else min(damping * 8, 1e6)
        if better:
            bowl, value, (white, jacobian) = tried, new, seen
            if np.abs(step).max() < SETTLED:
                break
        elif damping >= 1e6:
            break
    return bowl


@dataclass(frozen=True, kw_only=True, eq=False)
class BowlNodes:
    """Every scale at one fit: its nodes, noises and misfits, and the shape's covariance of each."""

    bowl: Bowl
    nodes: Nodes
    sigma: Array
    rho: Array
    log: Array
    shape: list[Array]


def nodes_at(problem: BowlProblem, bowl: Bowl, noises: Array) -> BowlNodes:
    """Evidence and information of every noise and misfit, linear about the fit.

    As in ``posterior.nodes``, minima being vectors.
    """
    residual, jacobian = problem.at(bowl)
    columns = np.concatenate([jacobian, residual[:, None]], 1)
    minima, off = bowl.k.size, problem.off(bowl)
    square, push, felt = problem.pushed(bowl)
    k = (bowl.k - problem.origin).ravel()
    found, scales, shapes = [], [], []
    for rho, share in MISFITS:
        parts = [
            (values, turned @ columns[own], turned @ levels, logs)
            for own, levels, (values, turned, logs) in zip(
                problem.members, problem.levels, problem.spectrum(rho), strict=True
            )
        ]
        for sigma in noises:
            gram = np.zeros((columns.shape[1],) * 2)
            determinant = 0.0
            for values, white, levels, logs in parts:
                variance = sigma**2 + values
                scaled = white / variance[:, None]
                root = np.linalg.cholesky(levels.T @ (levels / variance[:, None]))
                cross = np.linalg.solve(root, levels.T @ scaled)
                gram += white.T @ scaled - cross.T @ cross
                determinant += float(np.log(variance).sum()) + logs
                determinant += 2 * float(np.log(np.diag(root)).sum())
            shape = gram[minima:-1, minima:-1] + np.diag(problem.scale**-2.0)
            gradient = gram[minima:-1, -1] - off / problem.scale
            root_of_shape = np.asarray(np.linalg.cholesky(shape), float)
            halves = np.linalg.solve(
                root_of_shape, np.column_stack([gram[minima:-1, :minima], gradient])
            )
            product = halves.T @ halves
            precision = gram[:minima, :minima] + felt - product[:-1, :-1]
            pull = gram[:minima, -1] - push - product[:-1, -1]
            prior = np.log(share) - 0.5 * ((np.log(sigma) - NOISE) / NOISE_SPREAD) ** 2
            at_fit = prior - 0.5 * (
                gram[-1, -1]
                + determinant
                + (off**2).sum()
                + square
                - product[-1, -1]
                + 2 * np.log(np.diag(root_of_shape)).sum()
                + 2 * np.log(problem.scale).sum()
            )
            linear = pull + precision @ k
            found.append((at_fit - pull @ k - 0.5 * k @ precision @ k, linear, precision))
            scales.append((sigma, rho))
            shapes.append(root_of_shape)
    constant, linear, precision = (np.stack(part)[None] for part in zip(*found, strict=True))
    nodes = Nodes(constant=constant, linear=linear, precision=precision)
    sigma, rho = np.array(scales).T
    return BowlNodes(
        bowl=bowl,
        nodes=nodes,
        sigma=sigma,
        rho=rho,
        log=nodes.evidence(problem.covariance)[0],
        shape=shapes,
    )
