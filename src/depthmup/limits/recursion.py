"""Linear networks of finite depth by the paper's recursion: the readable reference.

Every vector of the infinitely wide network is a linear combination of independent Gaussian
vectors: the columns of U and nV, and, for each layer m and training vector s, the images
``F_s^m`` of x_s^{m-1} under W_0^m and ``B_s^m`` of d_s^m under its transpose, with covariances
``<F_r^m|F_s^m> = <x_r^{m-1}|x_s^{m-1}>`` and ``<B_r^m|B_s^m> = <d_r^m|d_s^m>``. The recursion
carries the coefficients (the paper's Gamma) of all x^l and d^l, layer by layer and step by step:

    x_r^l     = x_r^{l-1} + c F_r^l + sum_s c (dx_r^{l-1}/dB_s^l - w_rs a L^-gamma <x_r^{l-1}|x_s^{l-1}>) d_s^l
    d_r^{l-1} = d_r^l     + c B_r^l + sum_s c (dd_r^l/dF_s^l     - w_rs a L^-gamma <d_r^l|d_s^l>) x_s^{l-1}

over earlier s, with c = a L^-alpha and w_rs the learning rates that step r's weights carry from s.

Cost: O(N^3 L^2) time and O(N^2 L^2) memory for N training vectors. ``imbedding`` gets the same
numbers in O(N^3 L) and O(N^2 L).

*Source:* arXiv 2310.02244, Lemma 4.3, C.1 and Appendix D.3, with multiplier, learning rate,
minibatches, vector inputs and outputs restored and any (alpha, gamma). The paper's Gamma carries
a further factor sqrt(L) on the F and B coefficients.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depthmup.limits.losses import Array
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Ledger, Solution, Status, exploded


@dataclass(frozen=True)
class _Coefficients:
    """Coefficients of one family (all x^l, or all d^l) on the Gaussian basis.

    ``u`` (L+1, N, d_in) on U; ``v`` (L+1, N, d_out) on nV; ``f`` and ``b`` (L+1, N, L, N): entry
    [l, r, m-1, s] multiplies F_s^m resp. B_s^m in vector r at layer l.
    """

    u: Array
    v: Array
    f: Array
    b: Array

    def combine(self, weights: Array, layer: int) -> tuple[Array, Array, Array, Array]:
        """Coefficients of ``sum_s weights[r, s] vector_s^layer`` over the first columns."""
        n = weights.shape[1]
        family = (self.u, self.v, self.f, self.b)
        return tuple(np.tensordot(weights, c[layer, :n], axes=1) for c in family)  # type: ignore[return-value]


def _coefficients(depth: int, n: int, d_in: int, d_out: int) -> _Coefficients:
    shape = (depth + 1, n)
    return _Coefficients(
        u=np.zeros((*shape, d_in)),
        v=np.zeros((*shape, d_out)),
        f=np.zeros((*shape, depth, n)),
        b=np.zeros((*shape, depth, n)),
    )


def solve_recursion(problem: Problem, depth: int) -> Solution:
    """Train by the Gamma, C recursion. Covariances are rebuilt from coefficients at every layer."""
    extra = 0 if problem.held_out is None else len(problem.held_out)
    size = problem.vectors + extra
    x = _coefficients(depth, size, problem.d_in, problem.d_out)
    d = _coefficients(depth, size, problem.d_in, problem.d_out)
    cov_x = np.zeros((depth + 1, size, size))  # <x^l|x^l>, known rows only
    cov_d = np.zeros((depth + 1, size, size))
    branch, kick = problem.scaling.branch(depth), problem.scaling.kick(depth)
    xi, chi = np.zeros((size, problem.d_in)), np.zeros((size, problem.d_out))
    ledger = Ledger(problem=problem, positions=np.arange(depth + 1) / depth)

    def inner(left: _Coefficients, right: _Coefficients, layer: int, r: slice, q: slice) -> Array:
        """<left_r|right_q> at one layer, from the definition."""
        total = left.u[layer, r] @ right.u[layer, q].T + left.v[layer, r] @ right.v[layer, q].T
        for m in range(depth):
            total += left.f[layer, r, m] @ cov_x[m] @ right.f[layer, q, m].T
            total += left.b[layer, r, m] @ cov_d[m + 1] @ right.b[layer, q, m].T
        return total

    def put(into: _Coefficients, layer: int, r: slice, *families: tuple[Array, ...]) -> None:
        for name, parts in zip("uvfb", zip(*families, strict=True), strict=True):
            getattr(into, name)[layer, r] = sum(parts)

    with np.errstate(all="ignore"):
        for t, rows, inputs in problem.queries():
            old, batch = slice(0, rows.start), rows.stop - rows.start
            r = slice(rows.start, rows.start + len(inputs))  # held-out rows are overwritten later
            known = slice(0, r.stop)
            w = problem.hidden[t, : rows.start]
            for family in (x, d):
                for array in (family.u, family.v, family.f, family.b):
                    array[:, r] = 0.0
            xi[r] = inputs
            put(x, 0, r, d.combine(-problem.input[t, old] * (xi[r] @ xi[old].T), 0))
            x.u[0, r] += xi[r]
            for layer in range(depth + 1):
                if layer > 0:
                    onto_b = x.b[layer - 1, r, layer - 1, old]
                    moved = branch * (onto_b - kick * w * cov_x[layer - 1, r, old])
                    same = (
                        x.u[layer - 1, r],
                        x.v[layer - 1, r],
                        x.f[layer - 1, r],
                        x.b[layer - 1, r],
                    )
                    put(x, layer, r, same, d.combine(moved, layer))
                    x.f[layer, r, layer - 1, r] += branch * np.eye(len(inputs))
                cov_x[layer, r, known] = inner(x, x, layer, r, known)
                cov_x[layer, known, r] = cov_x[layer, r, known].T
            read = problem.readout[t, old] * cov_x[depth, r, old]
            outputs = x.v[depth, r] - read @ chi[old]
            if not (np.isfinite(outputs).all() and np.isfinite(cov_x[:, r, known]).all()):
                n = rows.start
                return ledger.close(
                    kernel=cov_x[depth, :n, :n],
                    status=exploded(t, problem, depth),
                    error_estimate=np.nan,
                )
            squares = np.einsum("lrr->lr", cov_x[:, r, r])
            outputs = ledger.query(t, batch, outputs, squares)
            if t == len(problem.steps):
                break
            r, known = rows, slice(0, rows.stop)
            chi[r] = problem.steps[t].gradient(outputs)
            put(d, depth, r, x.combine(-problem.readout[t, old] * (chi[r] @ chi[old].T), depth))
            d.v[depth, r] += chi[r]
            for layer in range(depth, -1, -1):
                if layer < depth:
                    onto_f = d.f[layer + 1, r, layer, old]
                    moved = branch * (onto_f - kick * w * cov_d[layer + 1, r, old])
                    same = (
                        d.u[layer + 1, r],
                        d.v[layer + 1, r],
                        d.f[layer + 1, r],
                        d.b[layer + 1, r],
                    )
                    put(d, layer, r, same, x.combine(moved, layer))
                    d.b[layer, r, layer, r] += branch * np.eye(batch)
                cov_d[layer, r, known] = inner(d, d, layer, r, known)
                cov_d[layer, known, r] = cov_d[layer, r, known].T
    n = problem.vectors
    return ledger.close(
        kernel=cov_x[depth, :n, :n].copy(), status=Status(), error_estimate=_rounding(ledger)
    )


def _rounding(ledger: Ledger) -> float:
    """Rounding errors of a finite recursion, in units of the largest output."""
    largest = max(float(np.abs(f).max()) for f in ledger.outputs)
    return float(np.finfo(np.float64).eps * len(ledger.positions) * max(1.0, largest))
