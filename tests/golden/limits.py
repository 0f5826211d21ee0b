"""Training at infinite width, on small problems, by all functions of ``depthmup.limits``."""

import math
from functools import partial

import numpy as np

from depthmup import limits

# Numbers written out, so that no generator of random numbers stands between two versions.
INPUTS = [[0.9, -0.4], [0.1, 0.7], [-0.6, 0.5], [0.3, 0.8], [-0.2, -1.0]]
TARGETS = [[0.5, -0.2], [1.0, 0.3], [-0.75, 0.1], [0.25, -0.6], [0.4, 0.9]]
ONE = [
    limits.Step([[xi]], limits.mse([[y]]))
    for xi, y in zip((1.0, -0.5, 0.8), (0.5, 1.0, -0.75), strict=True)
]
SAME = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
TWO = [
    limits.Step(INPUTS[:2], limits.mse(TARGETS[:2])),
    limits.Step(INPUTS[2:4], limits.cross_entropy([1, 0], classes=2)),
    limits.Step(INPUTS[1:3], limits.mse(TARGETS[1:3])),
]
HELD_OUT = {"held_out": INPUTS[4:]}
FEW = {"neurons": limits.Sobol(points=128, scrambles=2)}
PARTICLES = {"particles": limits.Particles(count=256, populations=2)}
CUBE = limits.smooth(
    lambda z: z**3 / 6, lambda z: z**2 / 2, lambda z: z, lambda z: 1 + 0 * z, name="cube"
)

EXPLODED = 1e3
"""A loss beyond which the digits of a run are those of a processor."""


def _solution(solution):
    status = {"ok": solution.status.ok, "step": solution.status.step}
    if np.max(solution.losses) > EXPLODED:  # What follows magnifies the rounding of one processor.
        losses = solution.losses[: int(np.argmax(solution.losses > EXPLODED))]
        return {"losses": losses, "status": status}
    kept = ("outputs", "losses", "rms", "positions", "kernel", "held_out", "error_estimate")
    values = {name: getattr(solution, name) for name in kept}
    history = solution.history
    if history is not None:
        kept = ("x", "d", "xd", "p", "q", "m", "n", "chi")
        values |= {f"history {name}": getattr(history, name)[::16] for name in kept}
    return {**values, "status": status, "activation": solution.activation}


def _linear(solve=limits.linear):
    for depth in (1, 5, math.inf):
        yield f"depth {depth}", partial(solve, ONE, depth=depth, lr=1.0)
    yield "batches", partial(solve, TWO, depth=math.inf, lr=0.5, **HELD_OUT)
    yield "batches, depth 8", partial(solve, TWO, depth=8, lr=0.5, **HELD_OUT)
    sgd = limits.SGD(momentum=0.5, lr_input=0.3, lr_readout=0.2)
    yield "momentum", partial(solve, TWO, depth=math.inf, lr=0.3, optimizer=sgd)
    yield "rates", partial(solve, TWO, depth=6, lr=[0.3, 0.2, 0.1], optimizer=sgd)
    yield "exponents", partial(solve, TWO, depth=64, lr=0.5, alpha="3/4", gamma="1/4")
    yield "ode", partial(solve, TWO, depth=math.inf, lr=0.5, alpha=1, gamma=0)
    yield "exploded", partial(solve, ONE * 4, depth=math.inf, lr=1e4)
    yield "history", partial(solve, ONE, depth=math.inf, lr=1.0, history=True)


def _nonlinear():
    solve = limits.nonlinear
    for activation in ("identity", "erf", "sin", "cos", "relu", "abs", "tanh", "gelu", "softplus"):
        yield activation, partial(solve, ONE, activation=activation, lr=0.7)
    yield "smooth", partial(solve, ONE, activation=CUBE, lr=0.2)
    yield "batches", partial(solve, TWO, activation="tanh", lr=0.5, multiplier=1.3, **HELD_OUT)
    yield "exponents", partial(solve, TWO, activation="tanh", lr=0.5, alpha=1, gamma=0)
    sgd = limits.SGD(momentum=0.5)
    yield "momentum", partial(solve, ONE, activation="erf", lr=0.5, optimizer=sgd)
    yield "history", partial(solve, ONE, activation="sin", lr=0.5, history=True)
    yield "depth 6", partial(solve, ONE, activation="relu", depth=6, lr=0.5, **PARTICLES)
    yield "depth 4, tanh", partial(solve, TWO, activation="tanh", depth=4, lr=0.5, **PARTICLES)


def _two_matrix():
    solve = limits.two_matrix
    yield from _linear(solve)
    wide = limits.Branch(multiplier=0.7, width_ratio=4)
    normed = limits.Branch(rms_norm=True)
    sgd = limits.SGD(lr_second=0.2, momentum=0.3, lr_input=0.1, lr_readout=0.1)
    ode = {"alpha": 1, "gamma": 0}
    yield "branch", partial(solve, TWO, depth=6, lr=0.3, branch=wide, optimizer=sgd)
    yield "decay", partial(solve, ONE, depth=6, lr=0.3, optimizer=limits.SGD(decay=0.1))
    yield "tanh", partial(solve, ONE, depth=math.inf, lr=0.5, activation="tanh")
    yield "tanh, ode", partial(solve, ONE, depth=math.inf, lr=0.5, activation="tanh", **ode, **FEW)
    yield "tanh, depth 4", partial(solve, ONE, depth=4, lr=0.5, activation="tanh", **FEW)
    normed = {"branch": normed, "activation": "relu"}
    yield "rms norm", partial(solve, ONE, depth=4, lr=0.5, **normed, **FEW)


def _mean_ode():
    solve = partial(limits.mean_ode, lr=0.5)
    yield "identity", partial(solve, ONE, activation="identity")
    yield "tanh", partial(solve, ONE, activation="tanh", **FEW)
    yield "relu", partial(solve, SAME, activation="relu", neurons=limits.Hermite(order=6))
    sgd = limits.SGD(momentum=0.5)
    yield "momentum", partial(solve, ONE, activation="erf", optimizer=sgd, **FEW)


def _sign_sgd():
    solve = partial(limits.sign_sgd, lr=0.3, **PARTICLES)
    yield "identity", partial(solve, ONE, activation="identity", depth=4)
    yield "tanh", partial(solve, ONE, activation="tanh", depth=4, lr_second=0.1)
    yield "one matrix", partial(solve, ONE, activation="relu", depth=4, block_depth=1)
    yield "ode", partial(solve, ONE, activation="tanh", depth=math.inf, alpha=1, gamma=0)


def _solved():
    yield from ((f"linear: {name}", solve) for name, solve in _linear())
    yield from ((f"nonlinear: {name}", solve) for name, solve in _nonlinear())
    yield from ((f"two_matrix: {name}", solve) for name, solve in _two_matrix())
    yield from ((f"mean_ode: {name}", solve) for name, solve in _mean_ode())
    yield from ((f"sign_sgd: {name}", solve) for name, solve in _sign_sgd())


def _answer(solve):
    try:
        return _solution(solve())
    except (ValueError, NotImplementedError) as error:
        return {"refused": type(error).__name__}


def _kernel(**settings):
    block = limits.Block(**settings)
    found = limits.kernel(INPUTS, depth=6, block=block, branch=0.4, lr_input=0.1, lr_readout=0.2)
    return {"tangent": found.tangent, "stream": found.stream, "largest": found.largest}


def _rates(scheme, **settings):
    block = limits.Block(**settings)
    found = limits.optimal_rate(
        INPUTS, depths=(4, 8, 32), base_depth=4, scheme=scheme, block=block, multiplier=0.8
    )
    kept = ("curvatures", "factors", "octaves", "edges", "drift", "base_curvature")
    return {name: getattr(found, name) for name in kept}


def _smooth():
    single = CUBE.single(np.array([0.3, 1.0, 2.5]))
    pair = CUBE.pair(np.array([1.0]), np.array([0.4]), np.array([0.8]))
    return {"single": _fields(single), "pair": _fields(pair)}


def _losses():
    outputs = np.array([[0.3, -0.2], [1.1, 0.4]])
    squares, entropy = limits.mse(TARGETS[:2]), limits.cross_entropy([1, 0], classes=2)
    return {
        name: [loss.value(outputs), loss.gradient(outputs)]
        for name, loss in (("mse", squares), ("cross-entropy", entropy))
    }


def _fields(value):
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def values():
    yield "smooth", _smooth
    yield "losses", _losses
    for name, solve in _solved():
        yield name, partial(_answer, solve)
    blocks = (
        {}, {"activation": "relu"}, {"activation": "relu", "block_depth": 2},
        {"activation": "tanh", "block_depth": 2},
    )  # fmt: skip
    for block in blocks:
        yield f"kernel: {block}", partial(_kernel, **block)
        for scheme in ("depth-mup", "completep", "1/2,0"):
            yield f"optimal_rate: {scheme} {block}", partial(_rates, scheme, **block)


def of_the_paper():
    """What the paper's figures compute beside the library."""
    from reproduction.theory.diversity import feature_diversity
    from reproduction.theory.linearization import linearization
    from reproduction.theory.printed import printed_nonlinear
    from reproduction.theory.propagators import propagators, proposition_residual
    from reproduction.theory.regimes import depth_exponents

    deep = partial(limits.linear, lr=1.0, history=True, depth=math.inf)
    flat = partial(limits.nonlinear, lr=0.5, activation="tanh", history=True)
    both = partial(limits.two_matrix, lr=0.5, activation="tanh", history=True, depth=math.inf)
    eps = (0.01, 0.04, 0.16)
    yield "diversity, linear", lambda: feature_diversity(deep(SAME), eps)
    yield "diversity, tanh", lambda: feature_diversity(flat(ONE), eps, at=0.5)
    yield "linearization", lambda: linearization(both(SAME), 64)
    yield "proposition", lambda: max(proposition_residual(deep(ONE), lr=1.0).values()) < 1e-9
    yield "propagators", lambda: propagators(deep(SAME)).above[:, :, ::8, ::8]
    yield "printed", lambda: _solution(printed_nonlinear(ONE, activation="sin", lr=1.0))
    exponents = partial(depth_exponents, depths=(64, 128, 256, 512))
    for pair in (("1/2", "1/2"), (1, 0), ("3/4", 0), (0, 0)):
        yield f"exponents {pair}", lambda p=pair: _fields(exponents(*p))
