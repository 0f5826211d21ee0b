"""One posterior of the joint minima of several tuned values, of all sizes.

As ``posterior.posterior``, of which it is the case of several coordinates: nodes of the likelihood
and laws of sizes give the stacked minima, size by size, a mixture of normal distributions. The law
holds for every value, with hyperparameters in common; where runs do not bound a direction, the
minima keep the width that they have before any run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.posterior.bowl import Bowl, heights, lowest
from depthmup.posterior.bowl_fit import (
    BowlNodes,
    BowlProblem,
    errors_of,
    fit,
    nodes_at,
    prior_of_shape,
    start,
    walls_of,
)
from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.likelihood import (
    ALIKE,
    FIRST,
    MIDDLE,
    MOST_NODES,
    SAME,
    SECOND,
    STRAYS,
    WINDOW,
)
from depthmup.posterior.minima import MinimaPosterior, blurred
from depthmup.posterior.priors import LOPSIDED, MISFITS, NOISES, PHASE, TAILS, TURNS
from depthmup.posterior.seeds import NODES, shared_errors
from depthmup.posterior.trials import Guess, Trials, best_quarter, first_guess, nearest


@dataclass(frozen=True, kw_only=True, eq=False)
class RecipePosterior:
    """The joint minima of all sizes of one variant, given all of its runs.

    Attributes:
        trials: the runs.
        minima: rows of (sizes * values) weights are answers.
        bowl: of the heaviest node; its minima are log2 values.
        shape_root: of the precision of its shape and angles.
        noise: standard deviation of a run's log loss there.
        misfit: of the shape, as a share of the height.
    """

    trials: Trials
    minima: MinimaPosterior
    bowl: Bowl
    shape_root: Array
    noise: float
    misfit: float

    @cached_property
    def middle(self) -> Array:
        """log2 of the joint minima, (sizes, values)."""
        every = np.eye(self.bowl.k.size)
        return self.minima.of_sizes(every).value.reshape(self.bowl.k.shape)

    @cached_property
    def covariance(self) -> Array:
        """Of the joint minima of every size, (sizes, values, values)."""
        values = self.trials.values
        rows, columns = np.triu_indices(values)
        result = np.zeros((self.trials.sizes, values, values))
        for i in range(self.trials.sizes):
            # The variance of k_a + k_b tells their covariance.
            asked = np.zeros((len(rows), self.trials.sizes, values))
            asked[:, i] = np.eye(values)[rows] + np.eye(values)[columns]
            variance = self.minima.of_sizes(asked.reshape(len(rows), -1)).variance
            own = variance[rows == columns] / 4
            both = (variance - own[rows] - own[columns]) / 2
            result[i, rows, columns] = result[i, columns, rows] = both
            result[i, np.arange(values), np.arange(values)] = own
        return result

    def rise(self, place: Array, away: Array) -> Array:
        """Log loss above the minimum at doublings (points, axes), so far from it in octaves."""
        return heights(self.bowl, away, np.broadcast_to(place, (len(away), place.shape[-1]))).height

    def drawn(
        self, place: Array, away: Array, rng: np.random.Generator, *, alone: Iterable[int] = ()
    ) -> Array:
        """Heights there where the shape is drawn anew; and, (values + 1, points), the least ones
        where each value ``alone`` lies so far from its minimum; zero of the others.
        """
        normal = rng.standard_normal((SHAPES, len(self.shape_root)))
        steps = np.linalg.solve(self.shape_root.T, normal.T).T
        still = np.zeros(self.bowl.k.size)
        result = np.zeros((away.shape[1] + 1, len(away)))
        # Few shapes, many points each: a shape costs as much as a hundred points.
        for step, part in zip(steps, np.array_split(np.arange(len(away)), SHAPES), strict=True):
            bowl = self.bowl.moved(np.concatenate([still, step]))
            places = np.broadcast_to(place, (len(part), place.shape[-1]))
            result[0, part] = heights(bowl, away[part], places).height
            for value in alone:
                result[value + 1, part] = lowest(bowl, (value,), away[part][:, [value]], places)
        return np.maximum(result, 0.0)


SHAPES = 24
"""Shapes of a valley that are drawn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Begun:
    """What the fits of one set of runs share."""

    trials: Trials
    runs: Trials
    guess: Guess
    origin: Array

    @cached_property
    def of_runs(self) -> BowlProblem:
        """Under the middle belief, every run with one weight."""
        mean, scale = prior_of_shape(self.guess, self.trials.s.shape[1], MIDDLE)
        rise = self.guess.rise(self.runs)  # of a parabola, whose sides are alike
        return BowlProblem(
            runs=self.runs,
            errors=errors_of(self.runs, self.guess.centre, rise, rise, self.guess.noise),
            walls=walls_of(self.trials, self.guess),
            mean=mean,
            scale=scale,
            own=(TURNS[MIDDLE][2], TURNS[MIDDLE][3]),
            weight=np.ones(len(self.runs.y)),
            origin=self.origin,
        )

    def under(self, belief: int, first: BowlProblem) -> BowlProblem:
        """The same under another belief, with the errors of a first fit."""
        mean, scale = prior_of_shape(self.guess, self.trials.s.shape[1], belief)
        own = (TURNS[belief][2], TURNS[belief][3])
        return replace(first, mean=mean, scale=scale, own=own)


def recipe_posterior(trials: Trials) -> RecipePosterior:
    """That of the runs of some sizes, whatever their order."""
    guess = first_guess(trials)
    runs = nearest(trials.finite, guess)
    begun = _Begun(trials=trials, runs=runs, guess=guess, origin=np.median(guess.centre, 0))
    first, problem = [], begun.of_runs
    sigma = float(np.clip(guess.noise, NOISES[0], NOISES[-1]))
    for centre in (guess.centre, best_quarter(runs)):
        bowl = start(guess, centre, problem.mean, trials.s.shape[1])
        bowl = fit(problem, bowl, sigma, MISFITS[2][0], FIRST)
        first.append(nodes_at(problem, bowl, NOISES[::2]))
    first = _apart(sorted(first, key=lambda found: -found.log.max()))
    best = first[0]
    at = int(best.log.argmax())
    sigma, rho = float(best.sigma[at]), float(best.rho[at])
    fitted = _with_errors(problem, best.bowl, sigma, rho)
    found: list[tuple[float, BowlNodes]] = []
    for belief, row in enumerate(TURNS):
        modes = []
        for begin in first:
            own = begun.under(belief, fitted)
            bowl = fit(own, begin.bowl, sigma, rho, SECOND)
            modes.append(nodes_at(own, bowl, _around(sigma)))
        found += [(float(np.log(row[-1])), mode) for mode in _apart(modes)]
    return _mixed(begun, found)


def _around(sigma: float) -> Array:
    """The noises near one."""
    at = int(np.abs(np.log(NOISES) - np.log(sigma)).argmin())
    low = int(np.clip(at - WINDOW, 0, len(NOISES) - 2 * WINDOW - 1))
    return np.asarray(NOISES[low : low + 2 * WINDOW + 1], float)


def _apart(modes: list[BowlNodes]) -> list[BowlNodes]:
    """Modes that several starts reached count once."""
    kept: list[BowlNodes] = []
    for mode in modes:
        same = (
            np.abs(mode.bowl.k - other.bowl.k).max() < SAME
            and abs(mode.log.max() - other.log.max()) < ALIKE
            for other in kept
        )
        if not any(same):
            kept.append(mode)
    return kept


def _with_errors(problem: BowlProblem, bowl: Bowl, sigma: float, rho: float) -> BowlProblem:
    """The problem with the heights of a first fit, and runs' weights under Student's t.

    Weights as in ``likelihood.robust_weights``: small for what neither valley nor misfit explains.
    """
    runs, residual = problem.runs, problem.at(bowl)[0]
    across = heights(bowl, bowl.k[runs.size] - runs.x, runs.s[runs.size]).height
    errors = errors_of(runs, bowl.k, runs.y - residual, across, sigma)
    problem = replace(problem, errors=errors)
    weight = np.ones(len(residual))
    shares = zip(problem.members, problem.levels, problem.spectrum(rho), strict=True)
    for own, levels, (values, turned, _) in shares:
        if not len(own):
            continue
        inverse = turned.T @ (turned / (sigma**2 + values)[:, None])
        told = inverse @ levels
        inverse = inverse - told @ np.linalg.solve(levels.T @ told, told.T)
        noise = sigma**2 * inverse @ residual[own]
        left = sigma**2 - sigma**4 * np.diag(inverse)
        standard = (noise**2 + np.maximum(left, 0.0)) / sigma**2
        weighed = np.minimum((TAILS + 1) / (TAILS + standard), 1.0)
        few = np.sort(weighed)[max(1, round(STRAYS * len(own))) - 1]
        weight[own] = np.where(weighed <= few, weighed, 1.0)
    return replace(problem, weight=weight)


def _mixed(begun: _Begun, found: list[tuple[float, BowlNodes]]) -> RecipePosterior:
    """The posterior of all nodes."""
    log = np.concatenate([mode.log + share for share, mode in found])
    order = np.argsort(-log)[:MOST_NODES]
    of_mode = np.concatenate([np.full(len(mode.log), i) for i, (_, mode) in enumerate(found)])
    own = np.concatenate([np.arange(len(mode.log)) for _, mode in found])
    mode, at = found[of_mode[order[0]]][1], int(own[order[0]])
    nodes = [mode.nodes for _, mode in found]
    constant = np.concatenate(
        [n.constant[0] + share for n, (share, _) in zip(nodes, found, strict=True)]
    )
    linear = np.concatenate([n.linear[0] for n in nodes])[order]
    precision = np.concatenate([n.precision[0] for n in nodes])[order]
    trials, sigma = begun.trials, float(mode.sigma[at])
    t, each = trials.s.sum(-1), np.eye(trials.values)
    errors = shared_errors(trials.there, t)
    errors = np.stack([np.kron(error, each) for error in errors])
    seeds = _seed_weights(begun.of_runs, mode.bowl, sigma, t)
    constant, linear, precision = blurred(constant[order], linear, precision, seeds, errors)
    minima = MinimaPosterior(
        s=trials.s,
        origin=begun.origin,
        constant=constant,
        linear=linear,
        precision=precision,
        directions=mode.bowl.rotations(trials.s.mean(0)[None])[0][0],
        place=_place(begun, mode.bowl),
    )
    return RecipePosterior(
        trials=trials,
        minima=minima,
        bowl=mode.bowl,
        shape_root=mode.shape[at],
        noise=sigma,
        misfit=float(mode.rho[at]),
    )


def _place(begun: _Begun, bowl: Bowl) -> Array:
    """Root of the covariance of the place of all minima alike, as ``Experiments.place``."""
    aside = LOPSIDED * (bowl.k - begun.guess.centre).mean(0)
    spacing = np.zeros(begun.trials.values)
    for value, column in enumerate(begun.trials.x.T):
        apart = np.diff(np.unique(np.round(column, 6)))
        spacing[value] = min(float(np.median(apart)), 4.0) if len(apart) else 0.0
    covariance = np.outer(aside, aside) + np.diag((PHASE * spacing) ** 2)
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _seed_weights(problem: BowlProblem, bowl: Bowl, sigma: float, t: Array) -> Array:
    """Log weights of what seeds have of their own (``seeds.NODES``), after what each seed shows.

    A seed's runs pull its minima by g along the slopes of the valley, with precision G: its shift
    has the covariance a^2 1 1' + d^2 t t' + w^2 I of the node, for every value.
    """
    log = np.log([weight for *_, weight in NODES])
    runs, values = problem.runs, problem.runs.values
    seeds = np.unique(runs.seed)
    if len(seeds) < 2:
        return np.asarray(log)
    residual, jacobian = problem.at(bowl)
    slopes = jacobian[:, : bowl.k.size]
    t, share = t - t.mean(), 1 - 1 / len(seeds)
    own: list[tuple[Array, Array]] = []
    for seed in seeds:
        precision = np.zeros((bowl.k.size,) * 2)
        pull = np.zeros(bowl.k.size)
        for i in range(runs.sizes):
            at: Index = np.flatnonzero((runs.seed == seed) & (runs.size == i))
            if len(at) > values + 1:
                slope = slopes[at] - slopes[at].mean(0)
                precision += slope.T @ slope / sigma**2
                pull += slope.T @ residual[at] / sigma**2
        own.append((pull, precision))
    for number, (a, w, d, _) in enumerate(NODES):
        shared = a**2 + d**2 * np.outer(t, t) + w**2 * np.eye(len(t))
        covariance = share * np.kron(shared, np.eye(values))
        for pull, precision in own:
            inner = np.eye(len(pull)) + precision @ covariance
            _, logs = np.linalg.slogdet(inner)
            solved = covariance @ np.linalg.solve(inner, pull)
            log[number] += share * 0.5 * (float(pull @ solved) - logs)
    return np.asarray(log)
