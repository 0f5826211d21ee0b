"""Results beyond the paper: two matrices per block, CompleteP, nonlinear finite depth, signSGD.

The paper's limits are those of blocks with one matrix under SGD. These are of what ``limits`` adds;
``paper`` is what was derived, and a result is confirmed if networks, closed forms or independent
computations agree with it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from depthmup import limits
from depthmup.sweep import Store
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.infinite_depth import FIRST_ORDER, order
from reproduction.claims.problems import reference, vectors
from reproduction.claims.survey import Survey, survey
from reproduction.evidence import Accepted, Comparison
from reproduction.intervals import exact, standard_errors, surprising

COMPLETEP = {"alpha": "1", "gamma": "0"}
DEPTH_MUP = {"alpha": "1/2", "gamma": "1/2"}
UNEQUAL: dict[str, Any] = {"lr": 0.5, "lr_second": 0.8, "width_ratio": 2.0}
DEPTH, RUNS = 8, 24

NEURONS = limits.Sobol(points=2**13, scrambles=6)
SCALAR = ((0.5, 0.5), (-0.25, 1.0), (0.4, -0.75))
"""Inputs and targets of three samples: five Gaussian fields, few enough for a product rule."""


def scalar() -> list[limits.Step]:
    return [limits.Step([[x]], limits.mse([[y]])) for x, y in SCALAR]


def _two_matrix(steps: Sequence[limits.Step], **settings: Any) -> limits.Solution:
    """``limits.two_matrix`` by the flat settings that networks are trained with."""
    rest: dict[str, Any] = dict(settings)
    groups: dict[str, Any] = {"optimizer": limits.SGD, "branch": limits.Branch}
    for name, group in groups.items():
        known = {field.name for field in fields(group)} & rest.keys()
        rest[name] = group(**{key: rest.pop(key) for key in known})
    return limits.two_matrix(steps, **rest)


def network_of(*, width: int, depth: int, run: int, **settings: Any) -> dict[str, Any]:
    """The outputs of one trained network, by training step."""
    from reproduction.probes.factored import Blocks, train_factored

    trained = train_factored(reference(), Blocks(**settings), width=width, depth=depth, seed=run)
    return {"outputs": trained.outputs[:, 0].tolist()}


def networks(setting: Setting, **settings: Any) -> Survey[int]:
    """Enough networks of one width, on the reference problem, for a sharp mean; by run."""
    width = setting.choose(laptop=256, medium=512, paper=1024)
    return survey(
        "network beyond the paper",
        network_of,
        {run: {"width": width, "depth": DEPTH, "run": run} | settings for run in range(RUNS)},
        work=80.0 * width * width * DEPTH,
    )


def _deviation(
    store: Store, trained: Survey[int], solution: limits.Solution, words: str
) -> Comparison:
    """How far the mean over networks is from a limit, in standard errors, at the worst step.

    That mean is off by order 1/width, as its error is 1/sqrt(width runs): with few runs and the
    smaller scatter of nonlinear networks the former is the smaller.
    """
    outputs = trained.array(store, "outputs")  # (runs, steps)
    worst = float(standard_errors(outputs, np.ravel(solution.outputs)).max())
    accepted = Accepted(low=0.0, high=surprising(len(outputs), tests=outputs.shape[1]))
    return Comparison(
        what=f"{words}: mean of {len(outputs)} networks minus the limit, in standard errors, "
        "worst step",
        paper="0",
        ours=exact(worst),
        accepted=accepted,
    )


def _control(
    store: Store, trained: Survey[int], solution: limits.Solution, words: str
) -> Comparison:
    """The same comparison with a limit that is wrong: it must be told from the networks."""
    return replace(
        _deviation(store, trained, solution, words),
        what=f"control: the same against the limit {words}",
        paper="not 0",
        accepted=Accepted(low=5.0),
    )


def _order(
    depths: Sequence[int],
    limit: limits.Solution,
    at: Callable[[int], limits.Solution],
    words: str,
) -> Comparison:
    exact_outputs = np.concatenate(limit.outputs)
    errors = [float(np.abs(np.concatenate(at(d).outputs) - exact_outputs).max()) for d in depths]
    return Comparison(
        what=f"exponent in depth of the distance from infinite depth, {words}",
        paper="−1",
        ours=order(depths, errors),
        accepted=FIRST_ORDER,
    )


def _linear(setting: Setting) -> Experiment:
    depths = (32, 64, 128, 256, 512)

    def conclude(store: Store) -> Conclusion:
        steps, depth = reference(), 16
        first = _two_matrix(steps[:2], depth=depth, **UNEQUAL).outputs[1][0, 0]
        chi = float(steps[0].loss.gradient(np.zeros((1, 1)))[0, 0])
        overlap = steps[1].inputs[0, 0] * steps[0].inputs[0, 0]
        # UNEQUAL's rates at a = 1; each of the L - 1 other blocks multiplies a change by 1 + 1/L.
        closed = -((1 + 1 / depth) ** (depth - 1)) * (0.5 + 2.0 * 0.8) * overlap * chi
        comparisons = [
            Comparison(
                what="the first update's effect against its closed form "
                "−a²(1 + a²/L)^(L−1) (η₁ + ρη₂) ξ₁·ξ₀ χ₀",
                paper="equal",
                ours=exact(float(abs(first - closed))),
                accepted=Accepted(low=0.0, high=1e-13),
            )
        ]
        options: dict[str, Any] = {"lr": 0.4, "lr_second": 0.3, "width_ratio": 1.5}
        for name, exponents in (("Depth-muP", DEPTH_MUP), ("CompleteP", COMPLETEP)):
            settings: dict[str, Any] = options | exponents
            comparisons.append(
                _order(
                    depths,
                    _two_matrix(vectors(), depth=math.inf, **settings),
                    lambda d, settings=settings: _two_matrix(  # type: ignore[misc]
                        vectors(), depth=d, **settings
                    ),
                    f"linear, {name}",
                )
            )
        return Conclusion(comparisons=tuple(comparisons))

    return Experiment(conclude=conclude, config={"depths": depths})


_CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "tanh, Depth-muP": ("tanh", {"lr": 1.0} | DEPTH_MUP),
    "relu, Depth-muP, ρ = 2": ("relu", UNEQUAL | DEPTH_MUP),
    "tanh, CompleteP": ("tanh", {"lr": 1.0} | COMPLETEP),
    "relu, CompleteP, ρ = 2": ("relu", UNEQUAL | COMPLETEP),
}


def _finite_depth(setting: Setting) -> Experiment:
    trained = {
        words: networks(setting, activation=activation, block_depth=2, **options)
        for words, (activation, options) in _CASES.items()
    }

    def conclude(store: Store) -> Conclusion:
        comparisons = []
        for words, (activation, options) in _CASES.items():
            common: dict[str, Any] = {"activation": activation, "depth": DEPTH, "neurons": NEURONS}
            s = _two_matrix(reference(), **common, **options)
            comparisons.append(_deviation(store, trained[words], s, words))
        wrong = _two_matrix(reference(), activation="tanh", depth=DEPTH, lr=1.5, neurons=NEURONS)
        first = trained["tanh, Depth-muP"]
        comparisons.append(_control(store, first, wrong, "at 1.5 times the learning rate"))
        return Conclusion(comparisons=tuple(comparisons))

    return Experiment(
        measures=tuple(m for group in trained.values() for m in group.measures),
        conclude=conclude,
        config={"depth": DEPTH, "runs": RUNS},
    )


def _product_rule(depth: int, **options: Any) -> limits.Solution:
    """Three scalar samples and the sine: no noise at finite depth."""
    # Nine points in each of five dimensions, 59049 neurons: a rule whose error falls geometrically
    # for the sine, where sampling noise would hide the 1/L that is fitted.
    neurons = limits.Hermite(order=9)
    return _two_matrix(scalar(), activation="sin", depth=depth, neurons=neurons, **options)


def _infinite_depth(setting: Setting) -> Experiment:
    depths = (8, 16, 32, 64)

    def conclude(store: Store) -> Conclusion:
        options: dict[str, Any] = {"lr": 0.5, "lr_second": 0.4, "width_ratio": 1.5}
        limit = _two_matrix(scalar(), activation="sin", depth=math.inf, **options)
        two = _two_matrix(vectors(), depth=math.inf, **options)
        one = limits.linear(vectors(), depth=math.inf, lr=0.5 + 1.5 * 0.4)
        gap = np.abs(np.concatenate(two.outputs) - np.concatenate(one.outputs)).max()
        return Conclusion(
            comparisons=(
                _order(depths, limit, lambda d: _product_rule(d, **options), "sine, two matrices"),
                Comparison(
                    what="linear networks: difference to one matrix with learning rate η₁ + ρη₂",
                    paper="0",
                    ours=exact(float(gap)),
                    accepted=Accepted(low=0.0, high=1e-12),
                ),
            )
        )

    return Experiment(conclude=conclude, config={"depths": depths})


def _completep(setting: Setting) -> Experiment:
    depths = (8, 16, 32, 64)
    features: dict[str, dict[str, Any]] = {
        "plain": {"lr": 0.6},
        "decay and momentum": {"lr": 0.5, "decay": 0.3, "momentum": 0.4},
        "trained U and V": {"lr": 0.4, "lr_input": 0.3, "lr_readout": 0.4},
    }

    def conclude(store: Store) -> Conclusion:
        comparisons = []
        for name, feature in features.items():
            options: dict[str, Any] = feature | COMPLETEP
            limit = _two_matrix(
                scalar(),
                activation="sin",
                depth=math.inf,
                neurons=limits.Hermite(order=16),
                tol=1e-5,
                **options,
            )
            comparisons.append(
                _order(
                    depths,
                    limit,
                    lambda d, options=options: _product_rule(d, **options),  # type: ignore[misc]
                    f"CompleteP, sine, {name}",
                )
            )
        linear = limits.mean_ode(reference(), activation="identity", lr=1.0, tol=1e-11)
        comparisons.append(
            Comparison(
                what="linear networks: the first update's effect, minus −a²(η₁ + ρη₂) ξ₁·ξ₀ χ₀",
                paper="0",
                # Both rates are 1, xi_1 xi_0 = -1/2 and chi_0 = -1/2.
                ours=exact(float(abs(linear.outputs[1][0, 0] + 0.5))),
                accepted=Accepted(low=0.0, high=1e-11),
            )
        )
        return Conclusion(comparisons=tuple(comparisons))

    return Experiment(conclude=conclude, config={"depths": depths})


def _one_matrix(setting: Setting) -> Experiment:
    trained = networks(setting, activation="tanh", lr=1.0, **DEPTH_MUP)
    particles = limits.Particles(count=2**14, populations=8)

    def conclude(store: Store) -> Conclusion:
        common: dict[str, Any] = {"depth": DEPTH, "particles": particles}
        s = limits.nonlinear(reference(), activation="tanh", lr=1.0, **common)
        wrong = limits.nonlinear(reference(), activation="tanh", lr=2.0, tol=1.0, **common)
        known = limits.linear(reference(), depth=DEPTH, lr=1.0)
        same = limits.nonlinear(reference(), activation="identity", lr=1.0, **common)
        gap = np.abs(np.ravel(same.outputs) - np.ravel(known.outputs)).max()
        return Conclusion(
            comparisons=(
                _deviation(store, trained, s, "tanh, one matrix"),
                _control(store, trained, wrong, "at twice the learning rate"),
                Comparison(
                    what="linear networks by particles, against their exact limit",
                    paper="0",
                    ours=exact(float(gap)),
                    accepted=Accepted(low=0.0, high=1e-11),
                ),
            )
        )

    return Experiment(
        measures=trained.measures, conclude=conclude, config={"depth": DEPTH, "runs": RUNS}
    )


def _sign(setting: Setting) -> Experiment:
    cases: dict[str, dict[str, Any]] = {
        "two matrices, CompleteP": {"block_depth": 2} | COMPLETEP,
        "two matrices, Depth-muP": {"block_depth": 2} | DEPTH_MUP,
        "one matrix, Depth-muP": {"block_depth": 1} | DEPTH_MUP,
    }
    trained = {
        words: networks(setting, activation="tanh", lr=0.5, sign=True, **options)
        for words, options in cases.items()
    }

    def conclude(store: Store) -> Conclusion:
        comparisons = []
        for words, options in cases.items():
            s = limits.sign_sgd(reference(), activation="tanh", lr=0.5, depth=DEPTH, **options)
            comparisons.append(_deviation(store, trained[words], s, f"signSGD, {words}"))
        few = limits.Particles(count=2**13, populations=8)
        common: dict[str, Any] = {"activation": "tanh", "lr": 0.5, "particles": few} | COMPLETEP
        limit = np.ravel(limits.sign_sgd(reference(), depth=math.inf, **common).outputs)
        gaps = [
            float(
                np.abs(
                    np.ravel(limits.sign_sgd(reference(), depth=d, **common).outputs) - limit
                ).max()
            )
            for d in (2, 4, 8)
        ]
        ratio = max(b / a for a, b in pairwise(gaps))
        comparisons.append(
            Comparison(
                what="distance from infinite depth, CompleteP: the largest factor from one depth "
                "to its double, of 2, 4, 8",
                paper="1/2",
                ours=exact(ratio),
                accepted=Accepted(low=0.35, high=0.65),
            )
        )
        return Conclusion(comparisons=tuple(comparisons))

    return Experiment(
        measures=tuple(m for group in trained.values() for m in group.measures),
        conclude=conclude,
        config={"depth": DEPTH, "runs": RUNS},
    )


def _tail(matrix: np.ndarray, rank: int) -> float:
    """Relative Frobenius error of the best approximation of this rank."""
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    # Eckart and Young: the best approximation leaves out the smallest singular values.
    return float(np.sqrt(squares[rank:].sum() / squares.sum()))


def _adam(setting: Setting) -> Experiment:
    size = 512

    def conclude(store: Store) -> Conclusion:
        rng = np.random.default_rng(0)
        # Entries of d and x are independent Gaussians in wide networks at initialization.
        d, x = rng.normal(size=(2, 5, 8, size))

        def gradient(step: int, samples: int) -> np.ndarray:
            return np.asarray(d[step, :samples].T @ x[step, :samples])

        mean, square = np.zeros((2, size, size))
        for step in range(5):
            now = gradient(step, 4)
            mean, square = 0.9 * mean + 0.1 * now, 0.95 * square + 0.05 * now**2
        updates = {
            "sign, 1 sample": (np.sign(gradient(0, 1)), Accepted(low=0.0, high=1e-6)),
            "sign, 4 samples": (np.sign(gradient(0, 4)), Accepted(low=0.3)),
            "sign, 8 samples": (np.sign(gradient(0, 8)), Accepted(low=0.3)),
            "Adam (0.9, 0.95) after 5 steps of 4 samples": (
                # Adam's correction of both averages for their start at 0.
                mean / (1 - 0.9**5) / np.sqrt(square / (1 - 0.95**5)),
                Accepted(low=0.3),
            ),
        }
        return Conclusion(
            comparisons=tuple(
                Comparison(
                    what=f"{words}: relative error of the best approximation of rank 16",
                    paper="0" if "1 sample" in words and "Adam" not in words else "large",
                    ours=exact(_tail(update, 16)),
                    accepted=accepted,
                )
                for words, (update, accepted) in updates.items()
            ),
            notes=(
                "A negative result: no exact limit of Adam with minibatches follows from low rank.",
            ),
        )

    return Experiment(conclude=conclude, config={"size": size})


def _claim(name: str, title: str, shows: str, experiment: Callable[[Setting], Experiment]) -> Claim:
    return Claim(
        name=name,
        title=title,
        shows=shows,
        source="docs/studies/limits.md",
        experiment=experiment,
        group="beyond",
    )


CLAIMS = (
    _claim(
        "beyond1",
        "Linear networks with two matrices per block are exact at any depth and exponent",
        "The imbedding extends to blocks W2 W1 with two learning rates and a hidden width. Its "
        "first update has a closed form, and infinite depth is approached as 1/L.",
        _linear,
    ),
    _claim(
        "beyond2",
        "Nonlinear networks with two matrices have an exact limit of infinite width",
        "One neuron per block, averaged over its Gaussian fields, closes the equations at finite "
        "depth for any activation and exponent. Means over networks meet it within their errors.",
        _finite_depth,
    ),
    _claim(
        "beyond3",
        "Depth-muP with two matrices at infinite depth",
        "Four coefficients of the one-matrix equations change; for linear networks only the "
        "learning rate does. Finite depth approaches it as 1/L.",
        _infinite_depth,
    ),
    _claim(
        "beyond4",
        "CompleteP at infinite depth is a mean ODE in d_in + d_out dimensions",
        "Training the wide and deep network is training a residual network of a small embedding "
        "dimension with infinitely many neurons. The finite-depth equations, which share nothing "
        "with it, approach it as 1/L.",
        _completep,
    ),
    _claim(
        "beyond5",
        "Nonlinear networks with one matrix, at finite depth, by particles",
        "The law of one entry of the stream, carried by particles, is the limit of infinite width. "
        "Means over networks meet it within their errors.",
        _one_matrix,
    ),
    _claim(
        "beyond6",
        "signSGD with one sample per step has a limit",
        "Updates of rank one leave the law of one entry closed. Means over networks meet it for "
        "one and two matrices per block.",
        _sign,
    ),
    _claim(
        "beyond7",
        "Signs of minibatches, and Adam, have no update of low rank",
        "What closes signSGD with one sample does not close it with more, nor Adam. The best "
        "approximation of rank 16 of such an update is off by a third or more.",
        _adam,
    ),
)
