"""The likelihood of all runs of a variant, as information on the minima of its sizes.

Minima and shape are sought from several starts (``posterior.newton``), and the two best modes under
each belief about how fast valleys turn. For every scale of noise and misfit (``posterior.nodes``)
a mode has a weight and, on the minima, b and Lambda:

    log p(runs | k) = constant + b'k - k' Lambda k / 2.
"""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.errors import CurvePoints
from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.law import Covariances, LawNode
from depthmup.posterior.levels import Levels, levels_of
from depthmup.posterior.newton import Fit, Regression, newton
from depthmup.posterior.nodes import Nodes, Scales, nodes_of
from depthmup.posterior.priors import (
    BEND_SPREAD,
    GROWTH_SPREAD,
    LOPSIDED,
    MISFITS,
    NOISE,
    NOISES,
    PHASE,
    POWER,
    POWER_SPREAD,
    ROUNDING,
    ROUNDING_SPREAD,
    STEEPNESS_SPREAD,
    TAILS,
    TURNS,
    WALKING,
    WALL_PLACE,
    WALL_PLACE_SPREAD,
    WALL_SLOPE,
    WALL_SLOPE_SPREAD,
)
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
    parameters,
)

STARTS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 3.0, -0.9), (0.5, 3.0, -0.9))
"""Spacings below the lowest rate from which minima are sought, and how much steeper and nearer than
usual a wall is: a kink beside a wall is a second mode."""

FIRST, SECOND = 14, 30
"""Steps from the starts, under the middle belief; and from the two best modes, under each."""

MIDDLE = 1
"""Of ``TURNS``."""

WINDOW = 3
"""Nodes of noise on either side of the likeliest, a factor of five, that the second fits weigh."""

STRAYS = 0.2
"""Of a size's points, the most that may weigh less than others."""

SAME, ALIKE = 0.02, 0.05
"""Octaves and nats within which two modes are one."""

MOST_NODES = 24
"""The nodes that are kept, the heaviest first."""

WIDE = LawNode(slope=0.5, forgotten=((0.2, 1.0),), scatter=0.6, products=0.07, weight=1.0)
"""The law under which minima are sought."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mode:
    """The heaviest fit of every experiment, its scales, and its row of ``TURNS``."""

    fit: Fit
    sigma: Array
    rho: Array
    belief: Index

    def part(self, index: Index) -> "Mode":
        return Mode(
            fit=self.fit.part(index),
            sigma=self.sigma[index],
            rho=self.rho[index],
            belief=self.belief[index],
        )

    def reordered(self, sizes: Index) -> "Mode":
        """With its sizes in another order."""
        return replace(self, fit=replace(self.fit, k=self.fit.k[:, sizes]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Information:
    """What all runs say of the minima, of a batch of experiments; rates count from ``origin``.

    Attributes:
        origin: log2 rate from which k counts, (batch,).
        nodes: the heaviest, (batch, nodes, ...).
        seeds: log weights of what seeds may have of their own (``posterior.seeds.NODES``).
        mode, levels: of the heaviest node.
        place: standard error of the place of all minima alike, (batch,).
    """

    origin: Array
    nodes: Nodes
    seeds: Array
    mode: Mode
    levels: Levels
    place: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiments:
    """Seed-averaged curves of a batch, about their origin.

    Attributes:
        points: what is fitted.
        of_seeds: averages, with the noise that replicates show.
        origin: log2 rate from which rates count, (batch,).
        wall: the first rate that diverges, (batch, sizes).
        s: doublings of the sizes, (sizes, axes).
    """

    points: CurvePoints
    of_seeds: SeedAverages
    origin: Array
    wall: Array
    s: Array

    @staticmethod
    def of(curves: Curves, s: Array, origin: Array | None = None) -> "Experiments":
        of_seeds = averages(curves)
        there = np.isfinite(of_seeds.y) & ~np.isnan(curves.log2_lrs)
        points = CurvePoints(
            x=np.nan_to_num(curves.log2_lrs),
            y=np.where(there, of_seeds.y, 0.0),
            count=np.where(there, of_seeds.count, 0.0),
        )
        if origin is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of sizes without any finite loss
                origin = np.nan_to_num(np.nanmedian(points.lowest, -1))
        points = points.moved(origin)
        lowest = np.where(np.isnan(points.lowest), -np.inf, points.lowest)
        diverged = np.isposinf(of_seeds.y) & (points.x > lowest[..., None])
        wall = np.where(diverged, points.x, np.inf).min(-1)
        return Experiments(points=points.inner(), of_seeds=of_seeds, origin=origin, wall=wall, s=s)

    @cached_property
    def covariance(self) -> Array:
        return Covariances(s=self.s).whole(WIDE)

    @cached_property
    def _law(self) -> Array:
        return np.asarray(np.linalg.inv(self.covariance), float)

    @cached_property
    def mean(self) -> Array:
        """The shape's mean, (batch, parameters)."""
        mean = np.zeros((len(self.origin), parameters(self.s.shape[1])))
        mean[:, LEVELS] = self._steepness[:, None]
        mean[:, POWERS] = POWER
        mean[:, ROUND] = ROUNDING
        mean[:, WALL], mean[:, PLACE] = WALL_SLOPE, WALL_PLACE
        return mean

    @cached_property
    def scales(self) -> Array:
        """The shape's deviations under each belief about turns, (beliefs, parameters)."""
        axes = self.s.shape[1]
        scale = np.ones((len(TURNS), parameters(axes)))
        scale[:, LEVELS], scale[:, POWERS] = STEEPNESS_SPREAD, POWER_SPREAD
        scale[:, BENDS], scale[:, ROUND] = BEND_SPREAD, ROUNDING_SPREAD
        scale[:, WALL], scale[:, PLACE] = WALL_SLOPE_SPREAD, WALL_PLACE_SPREAD
        for row, (turn, bend, *_) in zip(scale, TURNS, strict=True):
            by_axis = np.repeat([GROWTH_SPREAD, turn, bend, bend, bend, WALKING * turn], axes)
            row[SHARED : SHARED + PER_AXIS * axes] = by_axis
        return scale

    @cached_property
    def _steepness(self) -> Array:
        """log of how steep the gentler sides are at an octave, the median over sizes, (batch,)."""
        points, spacing = self.points, self.points.spacing[..., None]
        away = np.abs(points.x - np.nan_to_num(points.lowest)[..., None]) + 0.25 * spacing
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(points.height) - math.exp(POWER) * np.log(away)
        near = points.there & (points.height > 0) & (away <= np.maximum(3.0, 2.6 * spacing))
        both = np.where(near, logs, np.nan).reshape(len(self.origin), -1)
        known = np.isfinite(both).any(-1)
        result = np.full(len(both), math.log(0.07))
        result[known] = np.nanmedian(both[known], -1)
        return result

    def problem(self, of: Index, belief: Index) -> Regression:
        """Experiments, each under a belief about turns."""
        own = np.array(TURNS)[belief]
        _, first, again = np.unique(
            of * len(TURNS) + belief, return_index=True, return_inverse=True
        )
        return Regression(
            points=self.points.part(of),
            s=self.s,
            mean=self.mean[of],
            scale=self.scales[belief],
            own=(own[:, 2], own[:, 3]),
            law=self._law,
            wall=self.wall[of],
            alike=(first, again),
        )

    def replicates(self, of: Index) -> tuple[Array, Array]:
        return self.of_seeds.square[of], self.of_seeds.freedom[of]

    def place(self, k: Array) -> Array:
        """What the family of valleys misses of the place of all minima alike, (batch,).

        All sizes share it, so that it moves no drift: a kink's rounding, where a wall begins.
        """
        points = self.points
        known = points.there.any(-1)
        count = np.maximum(known.sum(-1), 1)
        aside = np.where(known, k - points.centre, 0.0).sum(-1) / count
        spacing = np.where(known, points.spacing, 0.0).sum(-1) / count
        return np.asarray(np.hypot(LOPSIDED * aside, PHASE * spacing), float)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Solved:
    """Fits, their nodes with log weights, and the scales of the heaviest."""

    fit: Fit
    nodes: Nodes
    log: Array
    sigma: Array
    rho: Array

    @property
    def total(self) -> Array:
        return np.asarray(self.log.max(-1))


def _solved(
    runs: Experiments,
    of: Index,
    belief: Index,
    begin: tuple[Fit, Array, Array],
    weight: Array,
    steps: int,
    noises: Array,
) -> _Solved:
    """Fits of experiments under beliefs that begin at shapes, noises and misfits."""
    problem = runs.problem(of, belief)
    start, sigma, rho = begin
    inverse = problem.points.precision(sigma, rho, *problem.own, weight)
    fit = newton(problem, start, inverse, steps)
    scales = Scales.grid(noises)
    nodes = nodes_of(problem, fit, weight, scales, runs.replicates(of))
    log = nodes.evidence(runs.covariance)
    best = log.argmax(-1)
    sigma = np.take_along_axis(scales.sigma, best[:, None], -1)[:, 0]
    return _Solved(fit=fit, nodes=nodes, log=log, sigma=sigma, rho=scales.rho[best])


def _around(sigma: Array) -> Array:
    """The noises near one of each fit, (fits, noises)."""
    at = np.abs(np.log(NOISES) - np.log(sigma)[:, None]).argmin(-1)
    low = np.clip(at - WINDOW, 0, max(len(NOISES) - 2 * WINDOW - 1, 0))
    return np.asarray(NOISES[low[:, None] + np.arange(min(2 * WINDOW + 1, len(NOISES)))], float)


def first_modes(runs: Experiments) -> tuple[_Solved, Index]:
    """Every start under the middle belief, and the two best modes of each experiment."""
    count, sizes = runs.wall.shape
    of = np.repeat(np.arange(count), len(STARTS))
    below, steeper, nearer = np.tile(np.array(STARTS), (count, 1)).T
    lowest = np.nan_to_num(runs.points.lowest)
    shape = runs.mean[of]
    shape[:, WALL] += steeper
    shape[:, PLACE] += nearer
    square, freedom = runs.replicates(of)
    shown = np.sqrt(square / np.maximum(freedom, 1))
    sigma = np.clip(np.where(freedom > 0, shown, math.exp(NOISE)), NOISES[0], NOISES[-1])
    start = Fit(k=lowest[of] - below[:, None] * runs.points.spacing[of], shape=shape)
    found = _solved(
        runs,
        of,
        np.full(len(of), MIDDLE),
        (start, sigma, np.full(len(of), MISFITS[2][0])),
        np.ones(runs.points.x[of].shape),
        FIRST,
        np.tile(NOISES[::2], (len(of), 1)),
    )
    total, k = found.total.reshape(count, -1), found.fit.k.reshape(count, -1, sizes)
    rows = np.arange(count)
    best = total.argmax(-1)
    apart = np.abs(k - k[rows, best][:, None]).max(-1) >= SAME
    other = np.where(apart.any(-1), np.where(apart, total, -np.inf).argmax(-1), best)
    return found, np.stack([best, other], -1) + len(STARTS) * rows[:, None]


def robust_weights(runs: Experiments, fit: Fit, sigma: Array, rho: Array) -> Array:
    """Weights of points under Student's t: small for what neither valley nor misfit explains.

    All fits of an experiment weigh its points alike, so that their evidence compares.
    """
    every = np.arange(len(runs.origin))
    problem = runs.problem(every, np.full(len(every), MIDDLE))
    points = runs.points
    inverse = points.precision(sigma, rho, *problem.own, np.ones(points.x.shape))
    residual, *_ = problem.at(fit)
    variance = sigma[:, None, None] ** 2 / np.maximum(points.count, 1e-9)
    noise = variance * np.einsum("birq,biq->bir", inverse, residual)
    left = variance - variance**2 * np.einsum("birr->bir", inverse)
    standard = (noise**2 + np.maximum(left, 0.0)) / variance
    found = np.where(points.there, (TAILS + 1) / (TAILS + standard), 1.0)
    # Of several seeds replicates show what is noise; and strays are few: a fit that many points
    # contradict is a wrong fit.
    found = np.where(points.count > 1.5, 1.0, np.minimum(found, 1.0))
    few = np.sort(found, -1)[..., : max(1, round(STRAYS * found.shape[-1]))].max(-1, keepdims=True)
    return np.where(found <= few, found, 1.0)


def _one_of_each(log: Array, k: Array, belief: Index) -> Array:
    """Modes that several starts reached count once; (experiments, fits, ...)."""
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


def information(curves: Curves, doublings: Array) -> Information:
    """What the runs of some sizes say of their minima, of a batch of experiments."""
    runs = Experiments.of(curves, np.asarray(doublings, float))
    count, sizes = runs.wall.shape
    first, two = first_modes(runs)
    best = two[:, 0]
    weight = robust_weights(runs, first.fit.part(best), first.sigma[best], first.rho[best])
    # Two modes under every belief.
    fits = 2 * len(TURNS)
    of = np.repeat(np.arange(count), fits)
    beliefs = np.repeat(np.arange(len(TURNS)), 2)
    begun = np.tile(two, (1, len(TURNS))).reshape(-1)
    belief = np.tile(beliefs, count)
    begin = first.fit.part(begun), first.sigma[begun], first.rho[begun]
    found = _solved(runs, of, belief, begin, weight[of], SECOND, _around(begin[1]))
    log_turns = np.log([row[-1] for row in TURNS])[beliefs]
    log = found.log.reshape(count, fits, -1) + log_turns[:, None]
    log = _one_of_each(log, found.fit.k.reshape(count, fits, sizes), beliefs)
    # The heaviest nodes of all fits.
    of_fit = log.shape[-1]
    log = log.reshape(count, -1)
    order = np.argsort(-log, -1)[:, :MOST_NODES]
    top = order[:, 0] // of_fit + fits * np.arange(count)

    def kept(values: Array) -> Array:
        flat = values.reshape(count, fits * of_fit, *values.shape[2:])
        return np.asarray(flat[np.arange(count)[:, None], order])

    prior = np.repeat(log_turns, of_fit)[order]
    lost = ~np.isfinite(np.take_along_axis(log, order, -1))
    nodes = Nodes(
        constant=np.where(lost, -np.inf, kept(found.nodes.constant) + prior),
        linear=kept(found.nodes.linear),
        precision=kept(found.nodes.precision),
    )
    mode = Mode(
        fit=found.fit.part(top), sigma=found.sigma[top], rho=found.rho[top], belief=belief[top]
    )
    heaviest = runs.problem(np.arange(count), mode.belief)
    _, slope, _ = heaviest.at(mode.fit)
    return Information(
        origin=runs.origin,
        nodes=nodes,
        seeds=seed_weights(curves, runs.of_seeds, -slope, mode.sigma, runs.s.sum(-1)),
        mode=mode,
        levels=levels_of(heaviest, mode.fit, mode.sigma, mode.rho, weight, runs.of_seeds),
        place=runs.place(mode.fit.k),
    )


def expected(
    mode: Mode, origin: Array, curves: Curves, doublings: Array, quieter: float
) -> tuple[Array, Array]:
    """b and Lambda at a fit that stays as it is, for curves of which some runs are planned.

    Planned runs have the losses that the fit foretells (``Posterior.foretold``), and its noise.
    """
    runs = Experiments.of(curves, np.asarray(doublings, float), origin)
    problem = runs.problem(np.zeros(1, int), mode.belief)
    scales = Scales.known(mode.sigma * quieter, mode.rho)
    nodes = nodes_of(problem, mode.fit, np.ones(runs.points.x.shape), scales)
    return nodes.linear[:, 0], nodes.precision[:, 0]
