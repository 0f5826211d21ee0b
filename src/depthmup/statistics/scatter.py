"""How the optima of sizes scatter about their law: learned from residuals, with priors from tables.

Residuals of a law with the hat matrix H, M = 1 - H, are taken as normal, of the covariance

    M (K + tau^2 R + beta^2 b b') M',

K what is known of the optima's errors, R = ``ALIKE``^d by which near sizes scatter alike, and b the
column along which the law may bend: a smooth bend is no scatter. Along M b lies one number; the
squares of the others have g degrees of freedom, g = trace(M R M')^2 / trace((M R M')^2).

Few sizes hardly show tau. Its prior was set on 178 laws of four public tables and of networks
trained here: in half of them sizes scatter, by about 0.12 octaves, and now and then by far more. So
an interval is that of a mixture of normal ones, one for each tau.

*Source:* informative priors of heterogeneity: Rhodes, Turner and Higgins (2015), Journal of
Clinical Epidemiology 68:52-60; degrees of freedom: Satterthwaite (1946), Biometrics Bulletin
2:110-114.
"""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.statistics.intervals import Array, student

ALIKE = 0.5
"""Correlation of two sizes' scatter about a law, a doubling apart.

On 70 arms of two public tables, by 26 nats likelier than none where the law bends, 74 where it is
straight.
"""

SCATTERED, USUAL, SPREAD, TAILS = 0.5, 0.12, 0.6, 3.0
"""Prior of tau, in octaves: the share of laws whose sizes scatter, and their median tau about a
line; of its logarithm the scale and degrees of freedom of Student's t, as a size may be octaves
off."""

FREE = 0.04
"""The same median about a law whose axes have any curve of their own, as in ``statistics.law``."""

BEND = 0.08
"""Scale of beta's half-normal prior, in octaves per doubling squared."""

_REACH = np.linspace(-4.0, 8.0, 25)
_TAUS = np.concatenate([[0.0], np.exp(SPREAD * _REACH)])
_BETAS = BEND * np.linspace(0.0625, 2.4375, 20)

HALVINGS = 30
"""Of the width in which a quantile is looked for."""


def _prior(standard: Array) -> Array:
    """Weights of Student's t."""
    weight = (1 + standard**2 / TAILS) ** (-(TAILS + 1) / 2)
    return np.asarray(weight / weight.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Scatter:
    """The posterior of tau: values, (taus,), and their weights, (..., taus)."""

    taus: Array
    weights: Array

    def half(self, others: Array, spread: Array, confidence: float) -> Array:
        """Half-width with what ``others`` leave, for a combination of variance tau^2 ``spread``."""
        from scipy.special import ndtr

        z = student(math.inf, confidence)
        finite = np.isfinite(others)
        own = (np.where(finite, others, 0.0) / z)[..., None] ** 2
        deviation = np.sqrt(own + self.taus**2 * np.asarray(spread)[..., None])
        deviation = np.maximum(deviation, 1e-12)
        low, high = z * deviation[..., 0], z * deviation[..., -1]
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            beyond = 2 * (self.weights * ndtr(-middle[..., None] / deviation)).sum(-1)
            wider = beyond > 1 - confidence
            low, high = np.where(wider, middle, low), np.where(wider, high, middle)
        return np.where(finite, high, math.inf)


def scatter_of(
    residuals: Array, apart: Array, known: Array, alike: Array, bend: Array | None, usual: float
) -> Scatter:
    """The posterior of tau from residuals, (..., sizes), of a law with ``apart`` = 1 - H.

    ``known`` (..., sizes, sizes) is the covariance of the optima's errors, ``alike`` that of their
    scatter for unit tau, ``usual`` the median of tau where sizes scatter.
    """
    taus = usual * _TAUS
    left, own = (apart @ of @ np.swapaxes(apart, -1, -2) for of in (alike, known))
    prior = np.concatenate([[1 - SCATTERED], SCATTERED * _prior(_REACH)])
    log = np.broadcast_to(np.log(prior), (*residuals.shape[:-1], len(taus)))
    if bend is not None:
        column = apart @ bend
        square = (column**2).sum(-1)
        there = square > 1e-9 * (bend**2).sum()
        unit = column / np.sqrt(np.where(there, square, 1.0))[..., None]
        along = np.where(there, (unit * residuals).sum(-1), 0.0)
        of_known, of_left = (_of(unit, of) for of in (own, left))
        variance = _mixed(taus, of_known, of_left)[..., None] + _BETAS**2 * square[..., None, None]
        log_density = -(along[..., None, None] ** 2 / variance + np.log(variance)) / 2
        most = log_density.max(-1, keepdims=True)
        density = np.exp(log_density - most) * np.exp(-((_BETAS / BEND) ** 2) / 2)
        told = np.log(density.sum(-1)) + most[..., 0]
        log = log + np.where(there[..., None], told, 0.0)
        residuals = residuals - along[..., None] * unit
        off = np.eye(len(bend)) - np.where(there, 1.0, 0.0)[..., None, None] * (
            unit[..., :, None] * unit[..., None, :]
        )
        left, own = off @ left @ off, off @ own @ off
    trace, of_square, of_known = (
        np.trace(of, axis1=-2, axis2=-1) for of in (left, left @ left, own)
    )
    freedom = np.where(trace > 1e-9, trace**2 / np.where(trace > 1e-9, of_square, 1.0), 0.0)
    variance = np.maximum(_mixed(taus, of_known, trace), 1e-30)
    square = (residuals**2).sum(-1)[..., None]
    log = log - freedom[..., None] / 2 * (np.log(variance) + square / variance)
    weights = np.exp(log - log.max(-1, keepdims=True))
    return Scatter(taus=taus, weights=weights / weights.sum(-1, keepdims=True))


def _mixed(taus: Array, known: Array, left: Array) -> Array:
    """A variance for each tau, (..., taus)."""
    return np.asarray(known[..., None] + taus**2 * np.asarray(left)[..., None])


def _of(unit: Array, covariance: Array) -> Array:
    return np.asarray(np.einsum("...i,...ij,...j->...", unit, covariance, unit))
