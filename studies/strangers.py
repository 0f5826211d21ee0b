"""Twelve kinds of sweeps, written by somebody who had not seen the statistics that they judge.

    python -m studies.strangers                   # 432 sweeps a world and spacing; an hour
    python -m studies.strangers --sweeps 72 --world adam

    WORLDS["adam_transformer"].sample(rng, experiments, spacing, seeds, sizes, drift) -> list[Sweep]

Each world fixes a noise-free law loss(log2 rate, size), a design (which rates and seeds were run)
and a noise. Size i is i doublings from the base; the law moves its optimum by ``drift`` octaves a
doubling, to which a world may add scatter or a bend. ``Sweep.optimum`` is the fine numerical
minimum of the realized noise-free law. Noise is multiplicative with median one unless the world
says otherwise. Sweeps have 1 to 4 seeds, 4 to 6 sizes, drifts of 0, 0.1 and 0.2 of either sign, and
grids of half an octave and one.
"""

import argparse
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from depthmup.posterior import Curves, posterior
from studies.coverage import Told

CAP = 2.5
"""Log loss saturates this far above the valley's bottom."""


@dataclass
class Sweep:
    log2_lr: np.ndarray  # (sizes, rates), ascending; nan (last) where a size has fewer rates
    loss: np.ndarray  # (sizes, rates, seeds), positive; inf = diverged, nan = not run
    optimum: np.ndarray  # (sizes,), log2 rate of the noise-free law's minimum


@dataclass(frozen=True)
class World:
    name: str
    about: str
    draw: Callable  # (rng, spacing, seeds, sizes, drift) -> Sweep

    def sample(
        self,
        rng: np.random.Generator,
        experiments: int,
        spacing: float,
        seeds: int,
        sizes: int,
        drift: float,
    ) -> list[Sweep]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return [self.draw(rng, spacing, seeds, sizes, drift) for _ in range(experiments)]


WORLDS: dict[str, World] = {}


def world(draw):
    WORLDS[draw.__name__] = World(draw.__name__, " ".join(draw.__doc__.split()), draw)
    return draw


# ---------------------------------------------------------------- helpers: laws
def minimise(f, sizes, lo=-12.0, hi=8.0):
    """Global minimum of f: (sizes, n) -> (sizes, n) along its second axis, to about 1e-4
    octaves."""
    lo, hi = np.full(sizes, lo, float), np.full(sizes, hi, float)
    for n in (201, 61, 61):
        x = np.linspace(lo, hi, n, axis=1)
        best = x[np.arange(sizes), np.nanargmin(f(x), axis=1)]
        step = (hi - lo) / (n - 1)
        lo, hi = best - step, best + step
    return best


def path(rng, sizes, drift, lo, hi, scatter):
    """Optimum of each size: a base drawn in (lo, hi), the law's drift, and a scatter from size to
    size."""
    return rng.uniform(lo, hi) + drift * np.arange(sizes) + scatter * rng.standard_normal(sizes)


def levels(rng, sizes, floor, alpha=0.35):
    """Best loss of each size: an irreducible share `floor` of the base's, and a part falling as
    size^-alpha."""
    return rng.uniform(0.6, 3.5) * (floor + (1 - floor) * 2.0 ** (-alpha * np.arange(sizes)))


def place(shape, c, level, rise, log=True, sides=(-1.0, 1.0)):
    """Law with the minimum of `shape` (x -> excess, per size) put at c, rising by `rise` in log
    loss one octave off at the base size (mean of the finite `sides`); shape may change with size
    and be inf where it diverges."""
    c, level = c[:, None], level[:, None]
    x0 = minimise(shape, len(c))[:, None]
    e0 = shape(x0)
    side = (shape(x0 + np.array(sides)) - e0)[0]
    unit = side[np.isfinite(side)].mean()

    def law(u):
        ex = (shape(u - c + x0) - e0) / unit
        y = rise * ex if log else np.log1p(np.expm1(rise) * np.maximum(ex, 0))
        return np.where(np.isinf(ex), np.inf, level * np.exp(CAP * np.tanh(y / CAP)))

    return law


def linex(x, s):
    """Convex, minimum 0 at 0, steeper right for s > 0: exp on one side, straight on the other."""
    return 2 * (np.expm1(s * x) - s * x) / s**2


def col(values):
    return np.asarray(values, float)[:, None]


def sigma_for(rng, rise, lo=0.05, hi=0.22):
    """Noise between runs as a share of the valley's rise, kept within 0.1% and 3% of loss."""
    return float(np.clip(rise * rng.uniform(lo, hi), 0.001, 0.03))


# ---------------------------------------------------------------- helpers: designs and runs
def grid(lo, hi, spacing, outward=False):
    """Multiples of spacing within (lo, hi), or out to the first beyond hi."""
    top = np.ceil(hi / spacing) if outward else np.floor(hi / spacing)
    return np.arange(np.ceil(lo / spacing), top + 1) * spacing


def one_grid(rng, c, spacing, left, right, guess=0.3, outward=False):
    """The same rates at every size, meant to reach `left` and `right` octaves past the outermost
    optima."""
    miss = guess * rng.standard_normal()
    g = grid(c.min() - left + miss, c.max() + right + miss, spacing, outward)
    return np.tile(g, (len(c), 1))


def own_grids(rng, c, spacing, left, right, guess=0.3):
    """Each size's own stretch of one lattice, about a guess of its optimum."""
    g = c + guess * rng.standard_normal(len(c))
    return pad([grid(m - left, m + right, spacing) for m in g])


def pad(rows):
    out = np.full((len(rows), max(map(len, rows))), np.nan)
    for i, r in enumerate(rows):
        out[i, : len(r)] = np.sort(r)
    return out


def runs(rng, law, u, seeds, sd, z=None):
    """Losses of all runs: law times exp(sd z); sd a scalar or broadcastable to (sizes, rates,
    seeds)."""
    z = rng.standard_normal((*u.shape, seeds)) if z is None else z
    return law(u)[:, :, None] * np.exp(sd * z)


def finish(u, loss, law, c):
    """Drop rates that nobody ran, sort, and find the realized optimum."""
    u = np.where(np.isnan(loss).all(axis=2), np.nan, u)
    order = np.argsort(u, axis=1)  # nan last
    u = np.take_along_axis(u, order, 1)
    loss = np.take_along_axis(loss, order[:, :, None], 1)
    loss[np.isnan(u)] = np.nan
    used = ~np.isnan(u).all(axis=0)
    return Sweep(u[:, used], loss[:, used], minimise(law, len(c), c - 6, c + 6))


# ---------------------------------------------------------------- the worlds
@world
def noisy_quadratic(rng, spacing, seeds, sizes, drift):
    """SGD at a constant rate on a noisy quadratic with a power-law spectrum, size adding modes:
    slow modes make the left side, gradient noise the right, 2/lambda_max the wall. Met in kernel
    and linear regression, small convnets."""
    c = path(rng, sizes, drift, -5, 0, 0.0)
    rise, k = np.exp(rng.uniform(np.log(0.03), np.log(0.2))), np.arange(1, 31)
    lam, w = k ** -rng.uniform(0.8, 1.4), k ** -rng.uniform(1.2, 1.8)
    steps, noise = 2 ** rng.uniform(5, 8), 2 ** rng.uniform(-6, -3)
    active = np.clip((10 * 1.35 ** np.arange(sizes))[:, None] - k + 1, 0, 1)  # (sizes, modes)

    def shape(x):
        el = 2.0 ** x[:, :, None] * lam
        left = np.exp(2 * steps * np.log(np.abs(1 - el) + 1e-12))
        ex = (active[:, None] * (w * left + noise * el / (2 - el) * (1 - left))).sum(axis=2)
        return np.where(x < 1, ex, np.where(np.isnan(x), np.nan, np.inf))

    law = place(shape, c, levels(rng, sizes, 0.5), rise, log=False)
    u = one_grid(rng, c, spacing, 2.5, 2.0)
    sd = sigma_for(rng, rise) * np.clip(
        2.0 ** (0.3 * (u - c[:, None])), 0.5, 2
    )  # the last iterate shakes more
    return finish(u, runs(rng, law, u, seeds, np.minimum(sd, 0.03)[:, :, None]), law, c)


@world
def adam_transformer(rng, spacing, seeds, sizes, drift):
    """Language-model pretraining with warmed-up Adam: a gentle left side, a right side that
    steepens with width, divergence octaves away, one absolute grid for every width, rates written
    with two significant digits."""
    c = path(rng, sizes, drift, -11, -6, 0.05)
    i, rise = np.arange(sizes), rng.uniform(0.02, 0.12)
    p, q = rng.uniform(0.25, 0.8), rng.uniform(0.9, 2.0) * (1 + rng.uniform(0, 0.12) * i)
    wall = rng.uniform(2.2, 4.0) - rng.uniform(0, 0.15) * i

    def shape(x):
        ex = 2.0 ** (-p * x) / p + 2.0 ** (col(q) * x) / col(q)
        return np.where(x > col(wall), np.inf, ex)

    law = place(shape, c, levels(rng, sizes, 0.6, 0.25), rise, log=False)
    u = one_grid(rng, c, spacing, 2.2, 1.7, 0.4)
    u = np.vectorize(lambda v: np.log2(float(f"{2.0**v:.1e}")))(u)
    sd = sigma_for(rng, rise, 0.04, 0.18) * (1 + 0.6 * np.clip(u - c[:, None], 0, 3))
    return finish(u, runs(rng, law, u, seeds, np.minimum(sd, 0.03)[:, :, None]), law, c)


@world
def mup_shared_seeds(rng, spacing, seeds, sizes, drift):
    """A width-transfer check under muP: broad flat-bottomed valleys, and seeds whose luck
    (initialization, data order) is shared by all rates of a size; a quarter of the repeats was
    never run, so averages mix lucky seeds."""
    c = path(rng, sizes, drift, -10, -4, 0.06)
    i, rise, f, a = (
        np.arange(sizes),
        rng.uniform(0.04, 0.15),
        rng.uniform(0.35, 0.8),
        rng.uniform(-0.15, 0.3),
    )
    width = np.maximum(1 - rng.uniform(-0.04, 0.06) * i, 0.6)

    def shape(x):
        y = x / col(width) * (1 + a * np.tanh(x))
        return (f * y**2 + (1 - f) * y**4) / (1 + 0.3 * y**2)

    law, sd = place(shape, c, levels(rng, sizes, 0.5), rise), sigma_for(rng, rise, 0.04, 0.15)
    u = own_grids(rng, c, spacing, 2.5, 2.5)
    z = 1.5 * rng.standard_normal((sizes, 1, seeds)) + 0.8 * rng.standard_normal((*u.shape, seeds))
    loss = runs(rng, law, u, seeds, sd, z)
    gone = rng.random(loss.shape) < 0.25
    gone[:, :, 0] = False
    return finish(u, np.where(gone, np.nan, loss), law, c)


@world
def sgd_depth_cliff(rng, spacing, seeds, sizes, drift):
    """Deep nets under SGD with momentum and no warmup: loss falls all the way to just below the
    edge of stability, then runs blow up; the gap to the edge narrows with depth and each seed has
    an edge of its own."""
    c = path(rng, sizes, drift, -5, 0, 0.07)
    i, rise, p = np.arange(sizes), rng.uniform(0.05, 0.25), rng.uniform(0.4, 1.2)
    gap = np.maximum(rng.uniform(0.6, 1.3) - rng.uniform(0, 0.12) * i, 0.45)
    z0 = 2.0**-gap
    b = p * (1 - z0) ** 2 / z0  # the barrier's slope cancels the left side's at x = 0

    def shape(x):
        z = 2.0 ** (x - col(gap))
        return np.where(
            z < 1, 2.0 ** (-p * x) + col(b) * z / (1 - z), np.where(np.isnan(z), np.nan, np.inf)
        )

    law = place(shape, c, levels(rng, sizes, 0.4), rise, log=False, sides=(-1.0,))
    u = own_grids(rng, c, spacing, 3.0, 1.5)
    loss = runs(rng, law, u, seeds, sigma_for(rng, rise))
    early = np.clip(np.abs(0.1 * rng.standard_normal((sizes, 1, seeds))), 0, 0.3)
    over = (u - c[:, None])[:, :, None] > col(gap)[:, :, None] - early
    return finish(u, np.where(over, np.inf, loss), law, c)


@world
def chance_plateau(rng, spacing, seeds, sizes, drift):
    """Classifiers with clipped gradients: too high a rate does not return inf but sits at or above
    chance, with wild noise there, some seeds falling and some not near the edge; far left the net
    has hardly left chance either."""
    c = path(rng, sizes, drift, -10, -3, 0.05)
    i, rise, s = np.arange(sizes), rng.uniform(0.06, 0.25), rng.uniform(0.4, 1.0)
    best = levels(rng, sizes, 0.5)
    valley = place(lambda x: linex(x, col(s * (1 + 0.08 * i))), c, best, rise)
    chance = best[0] * rng.uniform(2.0, 4.0)

    def law(u):
        return (valley(u) ** -6 + chance**-6) ** (
            -1 / 6
        )  # monotone in the valley: the optimum stays

    u = one_grid(rng, c, spacing, 2.5, 2.5)
    loss, edge = runs(rng, law, u, seeds, sigma_for(rng, rise)), rng.uniform(1.3, 2.0)
    fail = rng.random(loss.shape) < 1 / (1 + np.exp(-((u - c[:, None])[:, :, None] - edge) / 0.12))
    stuck = chance * np.exp(
        0.02 * rng.standard_normal(loss.shape) + rng.exponential(0.1, loss.shape)
    )
    return finish(u, np.where(fail, stuck, loss), law, c)


@world
def heavy_tails(rng, spacing, seeds, sizes, drift):
    """Reinforcement learning, GANs, low-precision training: Student-t noise between runs and a few
    per cent of runs spoilt outright at any rate (loss spike, bad initialization), some of which
    never return."""
    c = path(rng, sizes, drift, -11, -5, 0.08)
    rise, s, t = rng.uniform(0.06, 0.3), rng.uniform(-0.5, 1.2), rng.uniform(-0.1, 0.1)
    skew = s + t * np.arange(sizes)
    skew[np.abs(skew) < 0.02] = 0.02
    law = place(lambda x: linex(x, col(skew)), c, levels(rng, sizes, 0.4), rise)
    u = own_grids(rng, c, spacing, 2.5, 2.5)
    z = np.clip(rng.standard_t(rng.uniform(2.2, 4.0), (*u.shape, seeds)), -15, 15)
    loss = runs(rng, law, u, seeds, sigma_for(rng, rise, 0.03, 0.12), z)
    bad = rng.random(loss.shape) < rng.uniform(0.02, 0.07)
    loss = np.where(bad, loss * np.exp(rng.exponential(0.15, loss.shape)), loss)
    return finish(u, np.where(bad & (rng.random(loss.shape) < 0.2), np.inf, loss), law, c)


@world
def adaptive_search(rng, spacing, seeds, sizes, drift):
    """One person tuning by hand: three coarse rates, extended until the best is inside, refined
    about the best, with repeats only there; the next size starts from the last one's best. Ragged
    grids that follow the noise."""
    c = path(rng, sizes, drift, -11, -4, 0.08)
    rise, s, v = rng.uniform(0.03, 0.2), rng.uniform(0.1, 1.0), rng.uniform(0.3, 1.0)
    law = place(
        lambda x: v * linex(x, s) + (1 - v) * (np.sqrt(1 + 4 * x**2) - 1),
        c,
        levels(rng, sizes, 0.5),
        rise,
    )
    u = np.tile(grid(c.min() - 9, c.max() + 9, spacing), (sizes, 1))
    full = runs(rng, law, u, seeds, sigma_for(rng, rise))  # what any run would have given
    full[(u - c[:, None]) > rng.uniform(2.0, 4.0)] = np.inf
    ran = np.zeros(full.shape, bool)
    at = int(np.argmin(np.abs(u[0] - c[0] - np.clip(1.2 * rng.standard_normal(), -3, 3))))
    for i in range(sizes):
        ran[i, [at - 2, at, at + 2], 0] = True
        for _ in range(8):
            tried = np.flatnonzero(ran[i, :, 0])
            at = tried[np.argmin(full[i, tried, 0])]
            if tried[0] < at < tried[-1]:
                break
            ran[i, np.clip(at - 2 if at == tried[0] else at + 2, 3, u.shape[1] - 4), 0] = True
        ran[i, [at - 1, at + 1], 0] = True
        tried = np.flatnonzero(ran[i, :, 0])
        at = int(np.clip(tried[np.argmin(full[i, tried, 0])], 3, u.shape[1] - 4))
        ran[i, at - 1 : at + 2] = True
    return finish(u, np.where(ran, full, np.nan), law, c)


@world
def random_search(rng, spacing, seeds, sizes, drift):
    """Log-uniform random search, one run a trial, different rates at each size and fewer trials for
    bigger models; other hyperparameters are drawn too, which adds a one-sided nuisance. Met in
    public benchmark and sweep logs."""
    c = path(rng, sizes, drift, -11, -4, 0.05)
    i, rise, s = np.arange(sizes), rng.uniform(0.06, 0.25), rng.uniform(0.1, 1.2)
    law = place(lambda x: linex(x, s), c, levels(rng, sizes, 0.5), rise)
    trials = np.maximum(np.round((5.5 / spacing + 2 * seeds) * 0.85**i), 6).astype(
        int
    )  # repeats go to new rates
    miss = 0.4 * rng.standard_normal()
    u = pad([m + miss + rng.uniform(-2.8, 2.4, n) for m, n in zip(c, trials, strict=True)])
    z = rng.standard_normal((*u.shape, seeds)) + 0.5 * rng.chisquare(1, (*u.shape, seeds))
    loss = runs(rng, law, u, seeds, sigma_for(rng, 0.8 * rise, 0.04, 0.15), z)
    loss[:, :, 1:] = np.nan
    loss[(u - c[:, None]) > rng.uniform(1.8, 3.5)] = np.where(np.arange(seeds) == 0, np.inf, np.nan)
    return finish(u, loss, law, c)


@world
def shrinking_budget(rng, spacing, seeds, sizes, drift):
    """A scaling study on a fixed budget: each doubling gets fewer rates and fewer seeds, on a grid
    of its own phase about an extrapolated guess, with the odd job lost to the cluster; seed noise
    shrinks as models grow."""
    c = path(rng, sizes, drift, -11, -6, 0.06)
    i, rise = np.arange(sizes), rng.uniform(0.03, 0.2)
    p, q = rng.uniform(0.4, 1.0), rng.uniform(0.8, 1.8)
    sharp = 2.0 ** (rng.uniform(-0.1, 0.15) * i)
    law = place(
        lambda x: 2.0 ** (-p * x * col(sharp)) / p + 2.0 ** (q * x * col(sharp)) / q,
        c,
        levels(rng, sizes, 0.55),
        rise,
        log=False,
    )
    n = np.maximum(np.round((4.5 - 0.6 * i) / spacing) + 1, 6 if spacing < 0.75 else 4).astype(int)
    guess = c + 0.35 * rng.standard_normal(sizes)
    u = pad(
        [
            g + (np.arange(k) - (k - 1) / 2 + rng.uniform(-0.5, 0.5)) * spacing
            for g, k in zip(guess, n, strict=True)
        ]
    )
    loss = runs(rng, law, u, seeds, (sigma_for(rng, rise) * 2.0 ** (-0.2 * i))[:, None, None])
    for j in range(sizes):
        loss[j, :, max(1, seeds - j) :] = np.nan
        if rng.random() < 0.35 and n[j] > 4:
            loss[j, rng.integers(n[j])] = np.nan
    return finish(u, loss, law, c)


@world
def bent_path(rng, spacing, seeds, sizes, drift):
    """V-shaped valleys that sharpen with size and an optimum whose drift itself bends (a horizon or
    a batch size tied to model size, a width at which another layer takes over): any straight line
    is only roughly true."""
    i = np.arange(sizes)
    c = (
        path(rng, sizes, drift, -11, -3, 0.08)
        + np.clip(0.07 * rng.standard_normal(), -0.15, 0.15) * i * (i - 1) / 2
    )
    rise, tilt = rng.uniform(0.05, 0.22), rng.uniform(-0.2, 0.45)
    w = rng.uniform(0.4, 1.0) * 2.0 ** (-rng.uniform(0, 0.12) * i)
    law = place(
        lambda x: np.sqrt(1 + (x / col(w)) ** 2) + tilt * x / col(w),
        c,
        levels(rng, sizes, 0.3),
        rise,
    )
    u = own_grids(rng, c, spacing, 2.0, 2.0)
    return finish(
        u,
        runs(rng, law, u, seeds, (sigma_for(rng, rise) * 2.0 ** (-0.25 * i))[:, None, None]),
        law,
        c,
    )


@world
def lazy_rich_shoulder(rng, spacing, seeds, sizes, drift):
    """Multilayer nets between lazy and feature learning: the valley of the rich regime has a
    shoulder or a second, shallower dip two octaves lower, which grows or fades with width. Jittered
    grid (rates typed by hand)."""
    c = path(rng, sizes, drift, -8, -1, 0.05)
    i, rise = np.arange(sizes), rng.uniform(0.05, 0.15)
    dip = np.clip(rng.uniform(0.5, 1.9) + rng.uniform(-0.3, 0.3) * i, 0.2, 2.1)
    where, right = rng.uniform(-2.6, -2.0), rng.uniform(0.8, 2.0)

    def shape(x):
        bowl = np.where(x > 0, right, 1.0) * x**2 / (1 + 0.15 * x**2)
        return bowl - col(dip) * np.exp(-(((x - where) / 0.7) ** 2))

    law = place(shape, c, levels(rng, sizes, 0.3), rise)
    u = own_grids(rng, c, spacing, 3.5, 2.0)
    u = u + np.clip(0.08 * rng.standard_normal(u.shape[1]), -0.2, 0.2) * spacing
    return finish(u, runs(rng, law, u, seeds, sigma_for(rng, rise)), law, c)


@world
def floor_best_checkpoint(rng, spacing, seeds, sizes, drift):
    """Fine-tuning over a high loss floor: shallow valleys, the best of five checkpoints reported
    (noise skewed down), an evaluation error common to a seed, three decimals logged, and hardly a
    rate tried above the optimum."""
    c = path(rng, sizes, drift, -17, -12, 0.05)
    i, rise = np.arange(sizes), rng.uniform(0.02, 0.05)
    p, q = rng.uniform(0.3, 0.9), rng.uniform(0.7, 1.8) * (1 + 0.05 * i)
    law = place(
        lambda x: 2.0 ** (-p * x) / p + 2.0 ** (col(q) * x) / col(q),
        c,
        levels(rng, sizes, 0.9),
        rise,
        log=False,
    )
    u = one_grid(rng, c, spacing, 3.0, rng.uniform(0.3, 0.7), 0.0, outward=True)
    z = rng.standard_normal((*u.shape, seeds, 5)).min(axis=-1) + rng.standard_normal(
        (sizes, 1, seeds)
    )
    return finish(
        u, np.round(runs(rng, law, u, seeds, sigma_for(rng, rise, 0.04, 0.15), z), 3), law, c
    )


def told(name: str, spacing: float, sweeps: int) -> Told:
    """Drifts of one world's sweeps beside the truth of these sizes."""
    rows = []
    for i in range(sweeps):
        rng = np.random.default_rng(zlib.crc32(f"{name}{spacing}{i}".encode()))
        seeds, sizes = 1 + i % 4, 4 + (i // 4) % 3
        drift = (0.0, 0.1, 0.2)[(i // 12) % 3] * (1 if i % 2 else -1)
        [sweep] = WORLDS[name].sample(rng, 1, spacing, seeds, sizes, drift)
        x = np.arange(sizes) - (sizes - 1) / 2
        row = x / (x @ x)
        curves = Curves(log2_lrs=sweep.log2_lr, losses=sweep.loss)
        found = posterior(curves, np.arange(sizes, dtype=float)[:, None]).estimate(row)
        rows.append((row @ sweep.optimum, found.value, found.low, found.high))
    truth, value, low, high = np.array(rows).T
    return Told(truth=truth, value=value, low=low, high=high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=432)
    parser.add_argument("--world", default="", help="a part of the names")
    options = parser.parse_args()
    for spacing in (0.5, 1.0):
        print(f"\n### Grids of {spacing:g} octave, {options.sweeps} sweeps a world\n")
        print("| | coverage | half-width | / needed | decided | false |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        every = []
        for name in WORLDS:
            if options.world in name:
                every.append(told(name, spacing, options.sweeps))
                print(every[-1].row(name.replace("_", " ")), flush=True)
        print(Told.all(every).row("**all**"), flush=True)


if __name__ == "__main__":
    main()
