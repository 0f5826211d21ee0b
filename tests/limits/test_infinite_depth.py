"""Linear networks of infinite depth: known digits, spectral convergence, approach from finite L."""

import itertools
import math
from fractions import Fraction

import flat
import numpy as np
import pytest

from depthmup import limits
from depthmup.limits.methods.continuum import Continuum
from depthmup.limits.numerics.chebyshev import rule
from depthmup.limits.numerics.volterra import solve_volterra
from depthmup.limits.training import train

# Values of an independent implementation, to all digits printed.
F_INF = [0, -0.6795704571148, -0.2179262044953, -0.3065446416231, 0.3367908883078]
RMS_INF = [1.6487212707, 1.20385372897, 0.694948893623, 0.653770207358, 0.9945679006]
F_ODE = [0, -0.25, -0.0812698594259, -0.2839226703326, 0.2641465386159]


def outputs(solution):
    return np.concatenate([f.ravel() for f in solution.outputs])


def test_known_digits(reference):
    s = flat.linear(reference, depth=math.inf, lr=1.0)
    assert np.abs(outputs(s) - F_INF).max() < 0.6e-13
    assert np.abs(np.array([r[-1, 0] for r in s.rms]) - RMS_INF).max() < 0.6e-11
    assert s.outputs[1][0, 0] == pytest.approx(-math.e / 4, abs=1e-13)
    assert s.rms[0][-1, 0] == pytest.approx(math.sqrt(math.e), abs=1e-13)
    assert s.status.ok


def test_known_digits_of_the_ode_limit(reference):
    s = flat.linear(reference, depth=math.inf, lr=1.0, alpha=1, gamma=0)
    assert np.abs(outputs(s) - F_ODE).max() < 0.6e-13
    # One limit for all of (1/2, 1].
    same = flat.linear(reference, depth=math.inf, lr=1.0, alpha="3/4", gamma="1/4")
    assert np.array_equal(outputs(same), outputs(s))
    finite = flat.linear(reference, depth=64, lr=1.0, alpha=1, gamma=0)
    assert finite.outputs[1][0, 0] == pytest.approx(-0.2538744618, abs=0.6e-10)


def test_the_ode_by_an_ode_solver(reference):
    """x_t' = -lr sum <x_s|x_t> d_s, -d_t' = -lr sum <d_s|d_t> x_s as coefficients on U and V."""
    from scipy.integrate import solve_bvp

    def run(count):
        chi = []
        for t in range(count):

            def field(p, z, t=t, chi=tuple(chi)):
                x, d = z.reshape(2, t + 1, 2, -1)  # (vector, coefficient on U and V, points)
                dx, dd = np.zeros_like(x), np.zeros_like(d)
                for r in range(t + 1):
                    for s in range(r):
                        dx[r] -= (x[r] * x[s]).sum(0) * d[s]
                        dd[r] += (d[r] * d[s]).sum(0) * x[s]
                return np.concatenate([dx.ravel(), dd.ravel()]).reshape(z.shape)

            def ends(left, right, t=t, chi=tuple(chi)):
                x, d = left.reshape(2, t + 1, 2)[0], right.reshape(2, t + 1, 2)[1]
                xi = np.array([step.inputs[0, 0] for step in reference[: t + 1]])
                top = np.append(chi, 0.0)
                return np.concatenate([x[:, 0] - xi, x[:, 1], d[:, 0], d[:, 1] - top])

            grid = np.linspace(0, 1, 21)
            found = solve_bvp(field, ends, grid, np.ones((4 * (t + 1), 21)) * 0.1, tol=1e-10)
            assert found.success
            f = found.sol(1.0).reshape(2, t + 1, 2)[0, t, 1]
            chi.append(float(reference[t].loss.gradient(np.array([[f]]))[0, 0]))
            yield f

    s = flat.linear(reference, depth=math.inf, lr=1.0, alpha=1, gamma=0)
    assert np.abs(np.array(list(run(4))) - outputs(s)[:4]).max() < 1e-8


def test_chebyshev_error_falls_spectrally(reference):
    asked = limits.problem(reference, depth=math.inf, lr=1.0)
    degrees = [4, 6, 8, 10, 12]
    errors = [np.abs(outputs(train(Continuum(asked, rule(n)))) - F_INF).max() for n in degrees]
    # Measured elsewhere: 1.5e-4, 4.7e-7, 5.9e-9, 4.2e-11, 2.1e-12: a factor of 80 per two nodes.
    assert np.allclose(
        np.log10(errors), np.log10([1.5e-4, 4.7e-7, 5.9e-9, 4.2e-11, 2.1e-12]), atol=0.1
    )
    assert np.polyfit(degrees, np.log(errors), 1)[0] < -math.log(80) / 2


@pytest.mark.parametrize("seed", range(6))
def test_the_error_estimate_bounds_the_error(make_steps, seed):
    rng = np.random.default_rng(seed)
    options = {
        "branch": limits.Branch(multiplier=rng.uniform(0.5, 1.6)),
        "lr": rng.uniform(0.2, 1.0),
        "alpha": "1/2" if seed % 2 else "3/4",
        "gamma": "1/2" if seed % 2 else "1/4",
    }
    steps = make_steps(seed, count=5, batch=2)
    asked = limits.problem(steps, depth=math.inf, **options)
    exact = outputs(train(Continuum(asked, rule(60))))
    for degree in (6, 10, 14):
        coarse = train(Continuum(asked, rule(degree)))
        error = np.abs(outputs(coarse) - exact).max()
        if coarse.error_estimate > 0.1:  # nothing is resolved, and it says so
            continue
        assert error <= coarse.error_estimate + 1e-12
        # And it is worth something: within a factor of 10^4 where there is an error to speak of.
        assert coarse.error_estimate < 1e4 * error + 1e-11


def test_points_are_added_until_the_tolerance_is_met(make_steps):
    steps = make_steps(3, count=6, batch=2)
    loose, tight = (flat.linear(steps, depth=math.inf, lr=0.8, tol=t) for t in (1e-2, 1e-11))
    assert loose.status.ok
    assert tight.status.ok
    assert tight.error_estimate <= 1e-11
    assert len(tight.positions) > len(loose.positions)
    assert np.abs(outputs(tight) - outputs(loose)).max() <= 1e-2


def test_what_cannot_be_resolved_has_a_status(make_steps):
    s = flat.linear(make_steps(1), depth=math.inf, lr=1.0, tol=1e-30)
    assert s.status.kind == "unresolved"
    assert "tol" in s.status.message
    assert np.isfinite(outputs(s)).all()
    blown = flat.linear(make_steps(1, count=8), depth=math.inf, lr=1e70)
    assert blown.status.kind == "exploded"
    assert blown.status.step is not None


def _errors(reference, depths, limit, **options):
    limit = outputs(limit)
    return [
        np.abs(outputs(flat.linear(reference, depth=d, lr=1.0, **options)) - limit).max()
        for d in depths
    ]


@pytest.mark.parametrize("extra", [{}, {"lr_input": 0.1, "lr_readout": 0.2, "momentum": 0.3}])
def test_finite_depth_approaches_it_as_one_over_depth(reference, extra):
    depths = 2 ** np.arange(7, 12)
    limit = flat.linear(reference, depth=math.inf, lr=1.0, **extra)
    errors = _errors(reference, depths, limit, **extra)
    # Corrections are of relative order 1/L: at most 1e-2 in a local slope at L >= 128.
    assert np.allclose(np.diff(np.log2(errors)), -1.0, atol=0.03)
    if not extra:
        assert errors[-1] * depths[-1] == pytest.approx(1.08, abs=0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    ("alpha", "slope"), [("3/5", -0.2), ("3/4", -0.5), ("9/10", -0.8), (1, -1)]
)
def test_the_ode_limit_is_approached_slower_near_one_half(reference, alpha, slope):
    """The distance at depth L is of order L^-min(1, 2 alpha - 1), the noise that is left."""
    powers = {"alpha": alpha, "gamma": 1 - Fraction(alpha)}
    depths = 2 ** np.arange(9, 14)
    limit = flat.linear(reference[:3], depth=math.inf, lr=1.0, **powers)
    errors = _errors(reference[:3], depths, limit, **powers)
    local = np.diff(np.log2(errors))
    # Corrections are of relative order L^slope; halved exponents at alpha = 3/5 are the slowest.
    assert abs(local[-1] - slope) < max(0.02, 0.6 * 4096.0**slope)
    assert abs(local[-1] - slope) <= abs(local[0] - slope) + 1e-3
    # With the noise kept, the continuum is off by order 1/L for each of them, or less: near
    # alpha = 1/2 the leading term is the noise's own, of order L^-2 alpha.
    gaps = [
        np.abs(
            outputs(flat.linear(reference[:3], depth=int(d), lr=1.0, **powers))
            - outputs(
                flat.linear(reference[:3], depth=int(d), lr=1.0, method="continuum", **powers)
            )
        ).max()
        for d in depths
    ]
    assert (np.diff(np.log2(gaps)) < -0.97).all()


@pytest.mark.parametrize(("alpha", "power"), [("2/5", -0.6), ("1/2", -1.0), ("1", -3.0)])
def test_the_continuum_of_initialization(reference, alpha, power):
    """log |x_0|^2 is L log(1 + c^2) in layers and L c^2 in the continuum: L^(1 - 4 alpha)/2 apart.

    Below alpha = 1/2 that is more than 1/L.
    """
    for depth in (64, 256, 1024):
        layers, continuum = (
            flat.linear(reference[:1], depth=depth, lr=1.0, alpha=alpha, gamma="1/2", method=m)
            for m in ("imbedding", "continuum")
        )
        gap = 2 * np.log(continuum.rms[0][-1, 0] / layers.rms[0][-1, 0])
        c2 = depth ** (-2 * float(Fraction(alpha)))  # the next order, relatively
        assert gap == pytest.approx(0.5 * depth**power, rel=c2, abs=1e-13)


def test_held_out_and_kernel(make_steps):
    steps, held_out = make_steps(7, count=3), np.random.default_rng(0).normal(size=(3, 3))
    s = flat.linear(steps, depth=math.inf, lr=0.7, held_out=held_out)
    # Richardson's extrapolation from finite depth: errors are a series in 1/L.
    values = {}
    for depth in (64, 128, 256, 512, 1024, 2048):
        f = flat.linear(steps, depth=depth, lr=0.7, held_out=held_out)
        values[depth] = np.concatenate([f.held_out.ravel(), f.kernel.ravel(), outputs(f)])
    column = list(values.values())
    for order in range(1, 6):
        column = [(2**order * b - a) / (2**order - 1) for a, b in itertools.pairwise(column)]
    exact = np.concatenate([s.held_out.ravel(), s.kernel.ravel(), outputs(s)])
    assert np.abs(column[0] - exact).max() < 1e-11


def test_volterra_solver_against_a_matrix_exponential():
    from scipy.linalg import expm

    rng = np.random.default_rng(0)
    points, a = rule(30), 2 * rng.normal(size=(6, 6))
    start = rng.normal(size=(4, 6))
    s = solve_volterra(points.integral, lambda s: s @ a, start)
    exact = np.array([start @ expm(p * a) for p in points.points])
    assert np.abs(s - exact).max() < 1e-12 * np.abs(exact).max()


def test_chebyshev_rule():
    points = rule(12)
    p = points.points
    assert np.allclose(points.integral @ p**5, p**6 / 6, rtol=0, atol=1e-15)
    assert np.allclose(points.derivative @ p**5, 5 * p**4, rtol=0, atol=1e-12)
    assert np.allclose(
        points.evaluate(np.exp(p), np.array([0.1, 0.77])), np.exp([0.1, 0.77]), atol=1e-13
    )
