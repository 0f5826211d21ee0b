"""Is the posterior's approximation good? The same density by NUTS, on simulated tables.

    python -m studies.oracle                 # thirty tables, half an hour
    python -m studies.oracle --tables 3      # needs the extra `oracle` (numpyro)

Minima and shape are sampled together; noise, misfit, beliefs about turns, laws and seeds are summed
over, node by node. Averages over seeds and weights of points are the posterior's own; the valley is
written a second time here. What is compared is the 95% interval of the drift.

*Source:* Hoffman and Gelman (2014), Journal of Machine Learning Research 15:1593-1623.
"""

import argparse
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from depthmup.posterior import Curves, likelihood
from depthmup.posterior.intervals import Array
from depthmup.posterior.law import prior_of
from depthmup.posterior.posterior import Posterior, posteriors
from depthmup.posterior.priors import (
    DIVERGED,
    DIVERGED_WIDTH,
    MISFITS,
    NOISE,
    NOISE_SPREAD,
    NOISES,
    TURNS,
)
from depthmup.posterior.seeds import shared_errors
from studies.coverage import World

SHAPES = ("parabola", "lopsided", "V", "steep V", "wall", "quartic", "saturating", "logarithmic")
NOISY = ("like real", "loud", "as on tables", "cliff at 0.6")
WARMUP, SAMPLES, CHAINS = 500, 1000, 2


@dataclass(frozen=True, kw_only=True)
class Table:
    """A simulated sweep, and doublings of its sizes."""

    name: str
    curves: Curves
    s: Array

    @cached_property
    def posterior(self) -> Posterior:
        return posteriors(self.curves, self.s)[0]

    @cached_property
    def beliefs(self) -> tuple[Array, Array, Array]:
        """Every pair of a law and what seeds may have: log weights, laws, and both together."""
        prior = prior_of(self.s)
        errors = shared_errors(self.curves.seeds[0].astype(float), self.s.sum(-1))
        seeds = self.posterior.seeds
        kept = np.exp(seeds - seeds.max()) > 1e-4
        sizes = len(self.s)
        both = (prior.whole[:, None] + errors[kept][None]).reshape(-1, sizes, sizes)
        laws = np.repeat(prior.whole, int(kept.sum()), axis=0)
        return (prior.log_weight[:, None] + seeds[kept][None]).ravel(), laws, both


def tables(count: int) -> Iterator[Table]:
    """Shapes, noises, spacings, seeds and drifts in turn."""
    kinds = list(product(SHAPES, NOISY))
    for i in range(count):
        shape, noise = kinds[(7 * i) % len(kinds)]
        spacing, seeds, sizes = (0.5, 1.0)[i % 2], 1 + i % 4, 4 + i % 3
        world = World(shape=shape, noise=noise, spacing=spacing, seeds=seeds)
        rng = np.random.default_rng(zlib.crc32(f"{world} {i}".encode()))
        optimum = (0.0, 0.1, -0.2)[i % 3] * np.arange(sizes)
        s = np.arange(sizes, dtype=float)[:, None]
        name = f"{shape}, {noise}, {spacing:g}, {seeds} seeds, {sizes} sizes"
        yield Table(name=name, curves=world.curves(rng, optimum[None]), s=s)


def rise(u: Any, shape: Any, s: Any) -> Any:
    """The valley of ``posterior.valley``, along one axis, for arrays of jax."""
    import jax.numpy as jnp

    right = u > 0
    l0, l1, p0, p1, c0, c1, e, b, w, grow, turn, d0, d1, powers, walls = shape
    level = jnp.where(right, l1 + (grow + turn) * s, l0 + (grow - turn) * s)
    power = jnp.exp(jnp.where(right, p1, p0) + powers * s)
    bend = jnp.where(right, c1 + d1 * s, c0 + d0 * s)
    psi = jnp.sqrt(1 + u**2) - 1
    kink = jnp.exp(e)
    valley = jnp.exp(level + bend * psi) * ((u**2 + kink**2) ** (power / 2) - kink**power)
    begin, soft = w + walls * s, 0.15
    slope = jnp.exp(l1 + (grow + turn) * s + b)
    raised = (
        slope * soft * (jnp.logaddexp(0.0, (u - begin) / soft) - jnp.logaddexp(0.0, -begin / soft))
    )
    return valley + jnp.where(right, raised, 0.0)


def density(table: Table) -> tuple[Callable[[Any], Any], Array, Array]:
    """log p of minima and shape, given all runs; the scale of every coordinate; where to begin."""
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    runs = likelihood.Experiments.of(table.curves, table.s)
    first, two = likelihood.first_modes(runs)
    best = two[:, 0]
    weight = likelihood.robust_weights(
        runs, first.fit.part(best), first.sigma[best], first.rho[best]
    )
    points, s = runs.points, table.s[:, 0]
    x, y, there = (jnp.asarray(a[0]) for a in (points.x, points.y, points.there))
    square, freedom = (float(a[0]) for a in runs.replicates(np.array([0])))
    sizes = len(s)
    # Every belief about turns and every misfit: the errors' spectrum, where noise is the unit.
    spectra = []
    for row, (_, _, own_turn, own_steep, turn_weight) in enumerate(TURNS):
        for rho, rho_weight in MISFITS:
            values, turned, logs = points.spectrum(
                np.array([rho]), np.array([own_turn]), np.array([own_steep]), weight
            )
            prior = math.log(turn_weight) + math.log(rho_weight)
            spectra.append((row, values[0], turned[0], logs[0], prior))
    beliefs = jnp.array([row for row, *_ in spectra])
    values, turned, logs = (jnp.asarray(np.stack([e[i] for e in spectra])) for i in (1, 2, 3))
    node_prior = jnp.array([prior for *_, prior in spectra])
    missing = jnp.asarray((~points.there[0]).sum(-1))
    some = there.any(-1)
    ones = jnp.einsum("nirq,iq->nir", turned, there.astype(float))
    # The law of the minima, blurred by what seeds have of their own.
    weight_of_pairs, _, both = table.beliefs
    _, dets = np.linalg.slogdet(both)
    precision = jnp.asarray(np.linalg.inv(both))
    log_law = jnp.asarray(weight_of_pairs - 0.5 * dets)
    mean, scales = jnp.asarray(runs.mean[0]), jnp.asarray(runs.scales)
    wall = jnp.asarray(runs.wall[0])
    noises = jnp.asarray(NOISES)
    noise_prior = -0.5 * ((jnp.log(noises) - NOISE) / NOISE_SPREAD) ** 2
    noise_prior = noise_prior - freedom * jnp.log(noises) - square / (2 * noises**2)
    start = np.concatenate([first.fit.k[best[0]], np.zeros(runs.mean.shape[1])])
    spread = np.concatenate([np.full(sizes, 0.2), runs.scales[-1]])

    def log_density(point: Any) -> Any:
        k, shape = point[:sizes], mean + point[sizes:]
        high = rise(x - k[:, None], shape, jnp.asarray(s)[:, None])
        residual = jnp.where(there, y - high, 0.0)
        r = jnp.einsum("nirq,iq->nir", turned, residual)
        scale = noises[None, :, None, None] ** 2 + values[:, None]
        rr = (r[:, None] ** 2 / scale).sum(-1)
        ro = (r[:, None] * ones[:, None] / scale).sum(-1)
        oo = jnp.maximum((ones[:, None] ** 2 / scale).sum(-1), 1e-300)
        logdet = jnp.log(scale).sum(-1) - 2 * missing * jnp.log(noises)[None, :, None]
        logdet = logdet + logs[:, None] + jnp.log(oo)
        of_sizes = jnp.where(some, rr - ro**2 / oo + logdet, 0.0).sum(-1)
        off = (shape - mean) / scales
        of_shape = -0.5 * (off**2).sum(-1) - jnp.log(scales).sum(-1)
        nodes = node_prior[:, None] + noise_prior[None] + of_shape[beliefs][:, None]
        likelihood_ = logsumexp(nodes - 0.5 * of_sizes)
        law = logsumexp(log_law - 0.5 * jnp.einsum("i,lij,j->l", k, precision, k))
        over = jnp.maximum(k - wall + DIVERGED, 0.0) / DIVERGED_WIDTH
        return likelihood_ + law - 0.5 * (over**2).sum()

    return log_density, start, spread


def sampled(table: Table, seed: int) -> tuple[Array, float]:
    """Curves' minima from the origin, (samples, sizes), and the largest split R-hat."""
    import jax
    import jax.numpy as jnp
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    log_density, start, spread = density(table)

    def potential(z: Any) -> Any:
        return -log_density(jnp.asarray(start) + jnp.asarray(spread) * z)

    kernel = NUTS(potential_fn=potential, dense_mass=True, target_accept_prob=0.9)
    run = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=SAMPLES,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    rng = np.random.default_rng(seed)
    begin = jnp.asarray(0.1 * rng.standard_normal((CHAINS, len(start))))
    run.run(jax.random.PRNGKey(seed), init_params=begin)
    found = np.asarray(run.get_samples(group_by_chain=True))
    sizes = len(table.s)
    k = start[:sizes] + spread[:sizes] * found[..., :sizes]
    return k.reshape(-1, sizes), float(np.max(split_gelman_rubin(k)))


def without_seeds(table: Table, k: Array, rng: np.random.Generator) -> Array:
    """Minima of the law's sizes, given where the curves' own lie, one draw for each."""
    log_weight, laws, both = table.beliefs
    inverse, (_, dets) = np.linalg.inv(both), np.linalg.slogdet(both)
    prior = log_weight - 0.5 * dets
    result = np.empty_like(k)
    for i, row in enumerate(k):
        log = prior - 0.5 * np.einsum("i,lij,j->l", row, inverse, row)
        weight = np.exp(log - log.max())
        pick = int(rng.choice(len(both), p=weight / weight.sum()))
        law = laws[pick]
        gain = law @ inverse[pick]
        left = law - gain @ law
        values, vectors = np.linalg.eigh(left)
        deviations = np.sqrt(np.maximum(values, 0.0))
        result[i] = gain @ row + vectors @ (deviations * rng.standard_normal(len(row)))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=30)
    options = parser.parse_args()
    import jax

    jax.config.update("jax_enable_x64", True)
    print("| table | drift | 95% interval | by NUTS | its width over NUTS' | R-hat |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    ratios = []
    for number, table in enumerate(tables(options.tables)):
        t = table.s[:, 0] - table.s[:, 0].mean()
        row = t / (t @ t)
        ours = table.posterior.estimate(row)
        k, r_hat = sampled(table, number)
        drift = without_seeds(table, k, np.random.default_rng(number)) @ row
        low, middle, high = np.quantile(drift, [0.025, 0.5, 0.975])
        ratio = (ours.high - ours.low) / (high - low)
        ratios.append(ratio)
        print(
            f"| {table.name} | {ours.value:+.3f} | {ours.low:+.3f} to {ours.high:+.3f} | "
            f"{middle:+.3f}; {low:+.3f} to {high:+.3f} | {ratio:.2f} | {r_hat:.2f} |",
            flush=True,
        )
    logs = np.log(ratios)
    print(
        f"\nWidth over NUTS': {math.exp(float(logs.mean())):.2f} on average, "
        f"{min(ratios):.2f} to {max(ratios):.2f}; "
        f"{(np.abs(logs) < math.log(1.1)).mean():.0%} within 10%."
    )


if __name__ == "__main__":
    main()
