"""The likelihood of all runs of a variant, as information on the minima of its sizes.

Damped Gauss-Newton finds minima and shape, levels eliminated, from three starts and for three
beliefs about how fast valleys turn. Around each mode the problem is linear: for every scale of
noise and misfit the shape is integrated out. That leaves a weight and, on the minima,

    log p(runs | k) = constant + b'k - k' Lambda k / 2.

*Source:* Levenberg (1944), Quarterly of Applied Mathematics 2:164-168; Laplace's method: MacKay
(1992), Neural Computation 4:415-447.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.errors import TAILS, CurvePoints
from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.law import Covariances, LawNode
from depthmup.posterior.seeds import SeedAverages, averages, seed_weights
from depthmup.posterior.valley import (
    BENDS,
    LEVELS,
    PER_AXIS,
    PLACE,
    POWERS,
    ROUND,
    SHARED,
    WALL,
    Rise,
    parameters,
    rise,
)

POWER, POWER_SPREAD = math.log(1.8), 0.22
"""Mean and deviation of log p: a kink has 1, a parabola 2."""

ROUNDING, ROUNDING_SPREAD = math.log(0.2), 0.8
"""Of log e, octaves."""

WALL_SLOPE, WALL_SLOPE_SPREAD = math.log(0.3 * 1.5**1.8), 2.5
WALL_PLACE, WALL_PLACE_SPREAD = 1.5, 0.7
"""Of b, a wall's slope over the side's, and of w, octaves above the minimum."""

STEEPNESS_SPREAD, BEND_SPREAD, GROWTH_SPREAD = 1.5, 0.3, 0.2
"""Of l about what the curves rise, of c, and of C per doubling."""

TURNS = (
    (0.005, 0.003, 0.003, 0.02, 0.30),
    (0.04, 0.02, 0.015, 0.06, 0.35),
    (0.15, 0.08, 0.05, 0.12, 0.35),
)
"""Deviations of T and D per doubling, of a size's own turn and steepness, and the weight.

*Source:* evidence on 136 arms of public tables.
"""

WALKING = 2.0
"""Octaves per doubling by which a wall comes nearer where valleys turn by one: W over T."""

MISFITS = ((0.005, 0.1), (0.02, 0.3), (0.05, 0.4), (0.15, 0.2))
"""rho: the misfit of a shape over its height, with weights; from the same arms."""

NOISES: Array = np.asarray(0.001 * 1.7 ** np.arange(10.0), float)
NOISE, NOISE_SPREAD = math.log(0.01), 1.3
"""sigma's nodes, and its prior's mean and deviation in the logarithm."""

STARTS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 3.0, -0.9), (0.5, 3.0, -0.9))
"""Spacings below the lowest rate from which minima are sought, and how much steeper and nearer than
usual a wall is: a kink beside a wall is a second mode."""

FIRST, SECOND = 14, 30
"""Steps of both fits."""

LARGEST_STEP, SETTLED = 1.0, 1e-6
STRAYS = 0.2
"""Of a size's points, the most that may weigh less than others."""

LOPSIDED, PHASE = 0.3, 0.05
"""Standard error of the place of all minima alike: over their mean distance from the centres of
parabolas, and over the spacing of the grid.

*Source:* seven shapes of valley at every phase (docs/studies/statistics.md).
"""

SAME, ALIKE = 0.02, 0.05
"""Octaves and nats within which two modes are one."""

MOST_NODES = 24
"""The nodes that are kept, the heaviest first."""

DIVERGED, DIVERGED_WIDTH = 0.1, 0.07
"""A minimum lies below the first rate that diverges: by so many octaves, give or take."""

WIDE = LawNode(slope=0.5, forgotten=((0.2, 1.0),), scatter=0.3, products=0.07, weight=1.0)
"""The law under which minima are sought."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mode:
    """A fit: minima from the origin, (batch, sizes), the shape, and the scales.

    ``belief`` is the row of ``TURNS``.
    """

    k: Array
    shape: Array
    sigma: Array
    rho: Array
    belief: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Information:
    """What all runs say of the minima, (batch, nodes, ...); rates count from ``origin``.

    Attributes:
        origin: log2 rate from which k counts, (batch,).
        constant: log weight of each node.
        linear: b, (batch, nodes, sizes).
        precision: Lambda, (batch, nodes, sizes, sizes).
        seeds: log weights of what seeds may have of their own (``posterior.seeds.NODES``).
        mode: the heaviest node.
        shape_covariance: of the heaviest node's shape.
        level: log losses at the minima there, (batch, sizes), with their covariance.
        place: standard error of the place of all minima alike, (batch,).
    """

    origin: Array
    constant: Array
    linear: Array
    precision: Array
    seeds: Array
    mode: "Mode"
    shape_covariance: Array
    level: Array
    level_covariance: Array
    place: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """One batch of fits: points, sizes, and the priors of shape and minima."""

    points: CurvePoints
    s: Array
    mean: Array
    scale: Array
    own: tuple[Array, Array]
    law: Array
    wall: Array

    def part(self, index: Index) -> "_Problem":
        points = CurvePoints(
            x=self.points.x[index], y=self.points.y[index], count=self.points.count[index]
        )
        own = self.own[0][index], self.own[1][index]
        return replace(
            self,
            points=points,
            mean=self.mean[index],
            scale=self.scale[index],
            own=own,
            wall=self.wall[index],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    k: Array
    shape: Array


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.inv(matrix), float)


def _steepness(points: CurvePoints, spacing: Array) -> Array:
    """log of how steep the gentler sides are at an octave, the median over the sizes, (batch,)."""
    values = []
    for side in (-1, 1):
        there = points.there & (points.side == side) & (points.height > 0)
        away = (
            np.abs(points.x - np.nan_to_num(points.lowest)[..., None]) + 0.25 * spacing[..., None]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(points.height) - math.exp(POWER) * np.log(away)
        near = there & (away <= np.maximum(3.0, 2.6 * spacing)[..., None])
        values.append(np.where(near, logs, np.nan))
    both = np.concatenate(values, -1).reshape(len(points.x), -1)
    known = np.isfinite(both).any(-1)
    result = np.full(len(both), math.log(0.07))
    result[known] = np.nanmedian(both[known], -1)
    return result


def _step(problem: _Problem, state: _State, inverse: Array) -> tuple[Array, Rise, Array]:
    """Objective, heights and residuals at a state."""
    points = problem.points
    high = rise(points.x - state.k[..., None], state.shape, problem.s)
    residual = np.where(points.there, points.y - high.height, 0.0)
    value = np.einsum("bir,birq,biq->b", residual, inverse, residual)
    off = (state.shape - problem.mean) / problem.scale
    value = value + (off**2).sum(-1) + np.einsum("bi,ij,bj->b", state.k, problem.law, state.k)
    over = np.maximum(state.k - problem.wall + DIVERGED, 0.0) / DIVERGED_WIDTH
    return value + (over**2).sum(-1), high, residual


def _newton(problem: _Problem, state: _State, inverse: Array, steps: int) -> _State:
    """Levenberg's damped steps, each fit with its own damping."""
    sizes = problem.s.shape[0]
    value, high, residual = _step(problem, state, inverse)
    damping = np.full(len(value), 1e-2)
    diagonal = np.arange(sizes)
    for _ in range(steps):
        slope = np.where(problem.points.there, -high.slope, 0.0)
        by_shape = np.where(problem.points.there[..., None], high.by_shape, 0.0)
        weighted = inverse @ by_shape
        along = (inverse @ slope[..., None])[..., 0]
        count = sizes + by_shape.shape[-1]
        normal = np.zeros((len(value), count, count))
        over = problem.wall - DIVERGED < state.k
        normal[:, :sizes, :sizes] = problem.law
        normal[:, diagonal, diagonal] += (slope * along).sum(-1) + over / DIVERGED_WIDTH**2
        cross = np.einsum("bir,birp->bip", slope, weighted)
        normal[:, :sizes, sizes:] = cross
        normal[:, sizes:, :sizes] = np.swapaxes(cross, 1, 2)
        normal[:, sizes:, sizes:] = (np.swapaxes(by_shape, -1, -2) @ weighted).sum(1)
        index = np.arange(sizes, count)
        normal[:, index, index] += problem.scale**-2.0
        push = np.where(over, (state.k - problem.wall + DIVERGED) / DIVERGED_WIDTH**2, 0.0)
        gradient = np.concatenate(
            [
                (along * residual).sum(-1) - state.k @ problem.law - push,
                np.einsum("birp,bir->bp", weighted, residual)
                - (state.shape - problem.mean) / problem.scale**2,
            ],
            -1,
        )
        every = np.arange(count)
        damped = normal.copy()
        damped[:, every, every] *= 1 + damping[:, None]
        step = np.linalg.solve(damped, gradient[..., None])[..., 0]
        step = np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        tried = _State(k=state.k + step[:, :sizes], shape=state.shape + step[:, sizes:])
        new, new_high, new_residual = _step(problem, tried, inverse)
        better = (new <= value) & np.isfinite(new)
        state = _State(
            k=np.where(better[:, None], tried.k, state.k),
            shape=np.where(better[:, None], tried.shape, state.shape),
        )
        settled = bool(
            (np.abs(np.where(better[:, None], step, 0.0)).max() < SETTLED) and better.all()
        )
        value = np.where(better, new, value)
        pick = better[:, None, None]
        high = Rise(
            height=np.where(pick, new_high.height, high.height),
            slope=np.where(pick, new_high.slope, high.slope),
            by_shape=np.where(pick[..., None], new_high.by_shape, high.by_shape),
        )
        residual = np.where(pick, new_residual, residual)
        damping = np.where(better, np.maximum(damping / 5, 1e-6), np.minimum(damping * 8, 1e6))
        if settled:
            break
    return state


@dataclass(frozen=True, kw_only=True, eq=False)
class _Nodes:
    """Every scale of noise and misfit at the modes: constants, b and Lambda, (fits, nodes, ...)."""

    constant: Array
    linear: Array
    precision: Array


def _grid(noises: Array) -> tuple[Array, Array, Array]:
    """sigma, rho and the log prior of the nodes."""
    sigma = np.repeat(noises, len(MISFITS))
    rho = np.tile([value for value, _ in MISFITS], len(noises))
    prior = -0.5 * ((np.log(sigma) - NOISE) / NOISE_SPREAD) ** 2
    return sigma, rho, prior + np.tile(np.log([weight for _, weight in MISFITS]), len(noises))


def _nodes(
    problem: _Problem,
    state: _State,
    weight: Array,
    of_seeds: tuple[Array, Array],
    grid: tuple[Array, Array, Array],
) -> _Nodes:
    """Evidence and information of every node, linear about the modes."""
    points = problem.points
    sigma, rho, prior = grid
    square, freedom = of_seeds
    _, high, residual = _step(problem, state, np.zeros((*points.x.shape, points.x.shape[-1])))
    slope = np.where(points.there, -high.slope, 0.0)
    by_shape = np.where(points.there[..., None], high.by_shape, 0.0)
    ones = points.there[..., None].astype(float)
    jacobian = np.concatenate([slope[..., None], by_shape, residual[..., None], ones], -1)
    sizes = problem.s.shape[0]
    off = (state.shape - problem.mean) / problem.scale**2
    quadratic = ((state.shape - problem.mean) ** 2 / problem.scale**2).sum(-1)
    over = problem.wall - DIVERGED < state.k
    push = np.where(over, (state.k - problem.wall + DIVERGED) / DIVERGED_WIDTH**2, 0.0)
    diagonal = np.arange(sizes)
    missing = (~points.there).sum(-1)
    found: dict[int, tuple[Array, Array, Array]] = {}
    for r in np.unique(rho):
        values, turned, logs = points.spectrum(np.full(len(points.x), r), *problem.own, weight)
        columns = turned @ jacobian
        for number in np.flatnonzero(rho == r):
            s = float(sigma[number])
            scaled = columns / (s**2 + values)[..., None]
            gram = np.swapaxes(columns, -1, -2) @ scaled
            level = np.maximum(gram[..., -1, -1], 1e-300)
            determinant = np.log(s**2 + values).sum(-1) - 2 * missing * math.log(s) + logs
            determinant = np.where(points.there.any(-1), determinant + np.log(level), 0.0)
            ones = gram[..., :-1, -1]
            gram = (
                gram[..., :-1, :-1]
                - ones[..., :, None] * ones[..., None, :] / level[..., None, None]
            )
            shape_part = gram[..., 1:-1, 1:-1].sum(1)
            index = np.arange(shape_part.shape[-1])
            shape_part[:, index, index] += problem.scale**-2.0
            cross = gram[..., 0, 1:-1]
            gradient = gram[..., 1:-1, -1].sum(1) - off
            root = np.linalg.cholesky(shape_part)
            both = np.concatenate([cross, gradient[:, None]], 1)
            halves = np.linalg.solve(root, np.swapaxes(both, -1, -2))
            product = np.swapaxes(halves, -1, -2) @ halves
            lambda_ = -product[:, :-1, :-1]
            lambda_[:, diagonal, diagonal] += gram[..., 0, 0] + over / DIVERGED_WIDTH**2
            g = gram[..., 0, -1] - push - product[:, :-1, -1]
            at_mode = -0.5 * (
                gram[..., -1, -1].sum(-1)
                + determinant.sum(-1)
                + quadratic
                - product[:, -1, -1]
                + 2 * np.log(np.einsum("bpp->bp", root)).sum(-1)
                + 2 * np.log(problem.scale).sum(-1)
            )
            at_mode = at_mode + prior[number] - 0.5 * (2 * freedom * math.log(s) + square / s**2)
            linear = g + np.einsum("bij,bj->bi", lambda_, state.k)
            # p(runs | k) at the mode, moved to the origin of k.
            constant = (
                at_mode
                - (g * state.k).sum(-1)
                - 0.5 * np.einsum("bi,bij,bj->b", state.k, lambda_, state.k)
            )
            found[int(number)] = constant, linear, lambda_
    ordered = [found[number] for number in range(len(sigma))]
    constant, linear, precision = (np.stack(part, 1) for part in zip(*ordered, strict=True))
    return _Nodes(constant=constant, linear=linear, precision=precision)


def evidence(nodes: _Nodes, covariance: Array) -> Array:
    """log p(runs) of every node, where minima have a covariance about the origin."""
    root = np.linalg.cholesky(covariance)
    inner = np.swapaxes(root, -1, -2) @ nodes.precision @ root
    inner = inner + np.eye(inner.shape[-1])
    right = nodes.linear @ root
    solved = np.linalg.solve(inner, right[..., None])[..., 0]
    _, logs = np.linalg.slogdet(inner)
    return np.asarray(nodes.constant - 0.5 * logs + 0.5 * (right * solved).sum(-1))


def _student(problem: _Problem, state: _State, sigma: Array, rho: Array, weight: Array) -> Array:
    """Weights of points under Student's t: small for what neither valley nor misfit explains."""
    points = problem.points
    there = points.there
    inverse = points.precision(sigma, rho, *problem.own, weight)
    _, _, residual = _step(problem, state, inverse)
    variance = sigma[:, None, None] ** 2 / np.maximum(points.count * weight, 1e-9)
    pull = np.einsum("birq,biq->bir", inverse, residual)
    noise = variance * pull
    left = variance - variance**2 * np.einsum("birr->bir", inverse)
    standard = (noise**2 + np.maximum(left, 0.0)) / variance
    found = np.where(there, (TAILS + 1) / (TAILS + standard), 1.0)
    # Of several seeds replicates show what is noise; and strays are few: a fit that many points
    # contradict is a wrong fit.
    found = np.where(points.count > 1.5, 1.0, np.minimum(found, 1.0))
    few = np.sort(found, -1)[..., : max(1, round(STRAYS * found.shape[-1]))].max(-1, keepdims=True)
    return np.where(found <= few, found, 1.0)


def _prepared(
    curves: Curves, of_seeds: SeedAverages, origin: Array | None = None
) -> tuple[CurvePoints, Array, Array]:
    """Points about their origin, the origin, and the first rates that diverge."""
    x = np.nan_to_num(curves.log2_lrs)
    there = np.isfinite(of_seeds.y) & ~np.isnan(curves.log2_lrs)
    points = CurvePoints(
        x=x, y=np.where(there, of_seeds.y, 0.0), count=np.where(there, of_seeds.count, 0.0)
    )
    if origin is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of sizes without any finite loss
            origin = np.nan_to_num(np.nanmedian(points.lowest, -1))
    points = replace(points, x=x - origin[:, None, None])
    lowest = np.where(np.isnan(points.lowest), -np.inf, points.lowest)
    diverged = np.isposinf(of_seeds.y) & (points.x > lowest[..., None])
    return points.inner(), origin, np.where(diverged, points.x, np.inf).min(-1)


def expected(
    mode: Mode, origin: Array, curves: Curves, doublings: Array, sigma: Array
) -> tuple[Array, Array]:
    """b and Lambda at a fit that stays as it is, for curves of which some runs are planned.

    Planned runs have the losses that the fit foretells (``foretold``), and its noise.
    """
    s = np.asarray(doublings, float)
    of_seeds = averages(curves)
    points, _, wall = _prepared(curves, of_seeds, origin)
    spacing = points.spacing
    mean, scale = _shape_prior(points, spacing, s)
    problem = _Problem(
        points=points,
        s=s,
        mean=mean,
        scale=np.stack(scale)[mode.belief],
        own=(np.array(TURNS)[mode.belief, 2], np.array(TURNS)[mode.belief, 3]),
        law=_inverse(Covariances(s=s).whole(WIDE)),
        wall=wall,
    )
    grid = sigma, mode.rho, np.zeros(1)
    nothing = np.zeros(1)
    nodes = _nodes(
        problem,
        _State(k=mode.k, shape=mode.shape),
        np.ones(points.x.shape),
        (nothing, nothing),
        grid,
    )
    return nodes.linear[:, 0], nodes.precision[:, 0]


def information(curves: Curves, doublings: Array) -> Information:
    """What the runs of some sizes say of their minima, of a batch of experiments."""
    s = np.asarray(doublings, float)
    of_seeds = averages(curves)
    points, origin, wall = _prepared(curves, of_seeds)
    spacing = points.spacing
    mean, scale = _shape_prior(points, spacing, s)
    batch, sizes = spacing.shape
    start = np.where(np.isfinite(points.lowest), points.lowest, 0.0)

    law = _inverse(covariance := Covariances(s=s).whole(WIDE))

    def problem_of(of: Index, belief: Index) -> _Problem:
        """Experiments, each under a belief about turns."""
        return _Problem(
            points=CurvePoints(x=points.x[of], y=points.y[of], count=points.count[of]),
            s=s,
            mean=mean[of],
            scale=np.stack(scale)[belief],
            own=(np.array(TURNS)[belief, 2], np.array(TURNS)[belief, 3]),
            law=law,
            wall=wall[of],
        )

    def solved(
        problem: _Problem,
        state: _State,
        sigma: Array,
        rho: Array,
        weight: Array,
        steps: int,
        noises: Array,
        seen: tuple[Array, Array],
        prior: Array,
    ) -> tuple[_State, _Nodes, Array, Array, Array]:
        inverse = problem.points.precision(sigma, rho, *problem.own, weight)
        state = _newton(problem, state, inverse, steps)
        grid = _grid(noises)
        nodes = _nodes(problem, state, weight, seen, grid)
        log = evidence(nodes, covariance) + prior[:, None]
        best = log.argmax(-1)
        return state, nodes, log, grid[0][best], grid[1][best]

    # First every start, under the middle belief.
    of = np.repeat(np.arange(batch), len(STARTS))
    below, steeper, nearer = np.tile(np.array(STARTS), (batch, 1)).T
    shape = mean[of].copy()
    shape[:, WALL] += steeper
    shape[:, PLACE] += nearer
    guess = np.where(
        of_seeds.freedom > 0,
        np.sqrt(of_seeds.square / np.maximum(of_seeds.freedom, 1)),
        math.exp(NOISE),
    )
    state, _, log, sigma, rho = solved(
        problem_of(of, np.full(len(of), 1)),
        _State(k=start[of] - below[:, None] * spacing[of], shape=shape),
        np.clip(guess, NOISES[0], NOISES[-1])[of],
        np.full(len(of), MISFITS[2][0]),
        np.ones(points.x[of].shape),
        FIRST,
        NOISES[::2],
        (of_seeds.square[of], of_seeds.freedom[of]),
        np.zeros(len(of)),
    )
    total = log.max(-1).reshape(batch, -1)
    two = _two_modes(total, state.k.reshape(batch, -1, sizes))
    first = two + len(STARTS) * np.arange(batch)[:, None]
    # All fits of an experiment weigh its points alike, so that their evidence compares.
    winner = first[:, 0]
    weight = _student(
        problem_of(np.arange(batch), np.full(batch, 1)),
        _State(k=state.k[winner], shape=state.shape[winner]),
        sigma[winner],
        rho[winner],
        np.ones(points.x.shape),
    )
    # Then two modes under every belief.
    beliefs, fits = len(TURNS), 2 * len(TURNS)
    of = np.repeat(np.arange(batch), fits)
    belief = np.tile(np.repeat(np.arange(beliefs), 2), batch)
    begun = np.tile(first[:, None], (1, beliefs, 1)).reshape(-1)
    problem = problem_of(of, belief)
    prior_of_turns = np.log([row[-1] for row in TURNS])[belief]
    state, nodes, log, sigma, rho = solved(
        problem,
        _State(k=state.k[begun], shape=state.shape[begun]),
        sigma[begun],
        rho[begun],
        weight[of],
        SECOND,
        NOISES,
        (of_seeds.square[of], of_seeds.freedom[of]),
        prior_of_turns,
    )
    weight = weight[of]
    log = log.reshape(batch, fits, -1)
    log = _one_of_each(log, state.k.reshape(batch, fits, sizes), belief[:fits])
    flat = log.reshape(batch, -1)
    kept = min(MOST_NODES, flat.shape[1])
    order = np.argsort(-flat, -1)[:, :kept]
    rows = np.arange(batch)[:, None]

    def pick(values: Array) -> Array:
        return np.asarray(values.reshape(batch, flat.shape[1], *values.shape[2:])[rows, order])

    lost = ~np.isfinite(np.take_along_axis(flat, order, -1))
    constant = np.where(
        lost, -np.inf, pick(nodes.constant) + np.repeat(prior_of_turns[:fits], log.shape[-1])[order]
    )
    top = order[:, 0] // log.shape[-1] + fits * np.arange(batch)
    final = _State(k=state.k[top], shape=state.shape[top])
    heaviest = problem.part(top)
    level, level_covariance, shape_covariance, slope = _levels(
        heaviest, final, sigma[top], rho[top], weight[top]
    )
    seeds = seed_weights(curves, of_seeds, slope, sigma[top], s.sum(-1))
    return Information(
        origin=origin,
        constant=constant,
        linear=pick(nodes.linear),
        precision=pick(nodes.precision),
        seeds=seeds,
        mode=Mode(k=final.k, shape=final.shape, sigma=sigma[top], rho=rho[top], belief=belief[top]),
        shape_covariance=shape_covariance,
        level=level,
        level_covariance=level_covariance + _of_seeds(of_seeds),
        place=_place(points, final.k),
    )


def _levels(
    problem: _Problem, state: _State, sigma: Array, rho: Array, weight: Array
) -> tuple[Array, Array, Array, Array]:
    """Log losses at the minima and their covariance, that of the shape, and the valleys' slopes."""
    points, sizes = problem.points, problem.s.shape[0]
    there = points.there
    inverse = points.inverse(sigma, rho, *problem.own, weight)
    high = rise(points.x - state.k[..., None], state.shape, problem.s)
    residual = np.where(there, points.y - high.height, 0.0)
    columns = np.concatenate(
        [
            there[..., None].astype(float),
            np.where(there, -high.slope, 0.0)[..., None],
            np.where(there[..., None], high.by_shape, 0.0),
        ],
        -1,
    )
    gram = np.swapaxes(columns, -1, -2) @ (inverse @ columns)
    count = 2 * sizes + gram.shape[-1] - 2
    normal = np.zeros((len(sigma), count, count))
    own = np.arange(sizes)
    normal[:, sizes : 2 * sizes, sizes : 2 * sizes] = problem.law
    for one, other in ((0, 0), (0, 1), (1, 0), (1, 1)):
        normal[:, one * sizes + own, other * sizes + own] += gram[..., one, other]
    shared = slice(2 * sizes, None)
    for number in (0, 1):
        rows = slice(number * sizes, (number + 1) * sizes)
        normal[:, rows, shared] = gram[..., number, 2:]
        normal[:, shared, rows] = np.swapaxes(gram[..., number, 2:], -1, -2)
    normal[:, shared, shared] = gram[..., 2:, 2:].sum(1)
    index = np.arange(2 * sizes, count)
    normal[:, index, index] += problem.scale**-2.0
    # A size without runs has a level that nothing bounds.
    normal[:, own, own] += 1e-9
    errors = np.linalg.inv(normal)
    ones = inverse.sum(-1)
    level = (ones * residual).sum(-1) / np.maximum(ones.sum(-1), 1e-300)
    return (
        level,
        errors[:, :sizes, :sizes],
        errors[:, shared, shared],
        np.where(there, high.slope, 0.0),
    )


def _of_seeds(of_seeds: SeedAverages) -> Array:
    """Covariance of levels by what seeds have of their own, (batch, sizes, sizes)."""
    level = of_seeds.level
    there = ~np.isnan(level)
    count = there.sum(-1)
    mean = np.where(there, level, 0.0).sum(-1, keepdims=True) / np.maximum(count, 1)[..., None]
    centred = np.where(there, level - mean, 0.0)
    freedom = np.maximum(count - 1, 0).sum(-1)
    variance = (centred**2).sum((-2, -1)) / np.maximum(freedom, 1)
    own = np.eye(level.shape[1])
    return np.asarray(variance[:, None, None] / np.maximum(count, 1)[..., None] * own, float)


def _place(points: CurvePoints, k: Array) -> Array:
    """What the family of valleys misses of the place of all minima alike, (batch,).

    All sizes share it, so that it moves no drift: a kink's rounding, where a wall begins.
    """
    known = points.there.any(-1)
    aside = np.where(known, k - points.centre, 0.0).sum(-1) / np.maximum(known.sum(-1), 1)
    spacing = np.where(known, points.spacing, 0.0).sum(-1) / np.maximum(known.sum(-1), 1)
    return np.asarray(np.hypot(LOPSIDED * aside, PHASE * spacing), float)


def _two_modes(total: Array, k: Array) -> Array:
    """Indices of the best mode and of the best other one, (experiments, 2)."""
    rows = np.arange(len(total))
    best = total.argmax(-1)
    apart = np.abs(k - k[rows, best][:, None]).max(-1) >= SAME
    other = np.where(apart, total, -np.inf).argmax(-1)
    other = np.where(apart.any(-1), other, best)
    return np.stack([best, other], -1)


def _one_of_each(log: Array, k: Array, belief: Index) -> Array:
    """Modes that several starts reached count once."""
    log = log.copy()
    total = log.max(-1)
    for one in range(len(belief)):
        for other in range(one):
            if belief[one] != belief[other]:
                continue
            same = (np.abs(k[:, one] - k[:, other]).max(-1) < SAME) & (
                np.abs(total[:, one] - total[:, other]) < ALIKE
            )
            log[same, one] = -np.inf
    return log


def _shape_prior(points: CurvePoints, spacing: Array, s: Array) -> tuple[Array, Sequence[Array]]:
    """The shape's mean, (batch, parameters), and its deviations under each belief about turns."""
    axes = s.shape[1]
    mean = np.zeros((len(points.x), parameters(axes)))
    mean[:, LEVELS] = _steepness(points, spacing)[:, None]
    mean[:, POWERS] = POWER
    mean[:, ROUND] = ROUNDING
    mean[:, WALL], mean[:, PLACE] = WALL_SLOPE, WALL_PLACE
    scales = []
    for turn, bend, *_ in TURNS:
        scale = np.ones(parameters(axes))
        scale[LEVELS], scale[POWERS] = STEEPNESS_SPREAD, POWER_SPREAD
        scale[BENDS], scale[ROUND] = BEND_SPREAD, ROUNDING_SPREAD
        scale[WALL], scale[PLACE] = WALL_SLOPE_SPREAD, WALL_PLACE_SPREAD
        by_axis = np.repeat([GROWTH_SPREAD, turn, bend, bend, bend, WALKING * turn], axes)
        scale[SHARED : SHARED + PER_AXIS * axes] = by_axis
        scales.append(scale)
    return mean, scales
