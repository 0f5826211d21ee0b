"""The limit of infinite depth: Figure 9, Proposition 4.4, Theorem C.3 and Claim E.1."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from depthmup import limits
from depthmup.records import Estimate
from depthmup.sweep import Store
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.panels import Axis, lines
from reproduction.claims.problems import IMAGES_LR, images, reference, vectors
from reproduction.claims.survey import Survey, survey
from reproduction.evidence import Accepted, Comparison, Picture
from reproduction.intervals import exact, jackknife, slope_weights
from reproduction.theory.propagators import proposition_residual

DEPTHS = (16, 32, 64, 128, 256, 512)

FIRST_ORDER = Accepted(low=-1.05, high=-0.95)


def order(depths: Sequence[int], errors: Sequence[float]) -> Estimate:
    """The order at which exact errors fall with depth, each depth twice the one before.

    An error C/L + D/L^2 + ... has local slopes -1 - (D/C)/L + ..., so 2 s(2L) - s(L) loses the
    first correction. There is no noise: what is left is bounded by how much this extrapolation
    still moves from one depth to the next.

    Example:
        >>> first = order((8, 16, 32, 64), [1 / n + 1 / n**2 for n in (8, 16, 32, 64)])
        >>> round(first.value, 2), first.low < -1 < first.high
        (-1.0, True)
    """
    if len(depths) < 4 or any(b != 2 * a for a, b in pairwise(depths)):
        raise ValueError(f"Expected at least four doubling depths; got {list(depths)}.")
    local = np.diff(np.log2(np.asarray(errors, float)))
    extrapolated = 2 * local[1:] - local[:-1]
    value, moved = float(extrapolated[-1]), abs(float(extrapolated[-1] - extrapolated[-2]))
    return Estimate(value=value, low=value - moved, high=value + moved)


def _fall(depths: Sequence[int], errors: Sequence[float], words: str) -> Comparison:
    return Comparison(
        what=f"exponent in depth of {words}",
        paper="−1",
        ours=order(depths, errors),
        accepted=FIRST_ORDER,
    )


def _picture(
    depths: Sequence[int], errors: dict[str, list[float]], *, caption: str, title: str
) -> Picture:
    rows = [
        {"depth": depth, "error": error, "of": words}
        for words, distances in errors.items()
        for depth, error in zip(depths, distances, strict=True)
    ]
    top = max(distances[0] for distances in errors.values())
    return lines(
        rows,
        name="error",
        caption=caption,
        x=Axis(field="depth", title="depth", log=True),
        y=Axis(field="error", title=title, log=True),
        by="of",
        by_title="",
        references=[("1/L", [(d, top * depths[0] / d) for d in (depths[0], depths[-1])])],
    )


def _fig9(setting: Setting) -> Experiment:
    depths, rule, count = DEPTHS, setting.depth_mup, 10

    def conclude(store: Store) -> Conclusion:
        steps = images(setting.images, count=count)
        limit = limits.linear(steps, depth=math.inf, lr=IMAGES_LR)
        errors: dict[str, list[float]] = {"outputs": [], "RMS of x at depths 0, 1/4, ..., 1": []}
        quarters = np.linspace(0, 1, 5)
        for depth in depths:
            s = limits.linear(steps, depth=depth, lr=IMAGES_LR, alpha=rule.alpha, gamma=rule.gamma)
            gap = np.concatenate(s.outputs) - np.concatenate(limit.outputs)
            errors["outputs"].append(float(np.sqrt(np.mean(gap**2))))
            rms = [
                np.interp(quarters, s.positions, now[:, 0])
                # The limit is a polynomial through its Chebyshev points, evaluated as one: chords
                # between so few points would be farther from it than 1/L.
                - np.polynomial.chebyshev.Chebyshev.fit(
                    limit.positions, then[:, 0], len(limit.positions) - 1
                )(quarters)
                for now, then in zip(s.rms, limit.rms, strict=True)
            ]
            errors["RMS of x at depths 0, 1/4, ..., 1"].append(
                float(np.sqrt(np.mean(np.square(rms))))
            )
        return Conclusion(
            comparisons=tuple(
                _fall(depths, distances, f"the distance from infinite depth, {words}")
                for words, distances in errors.items()
            ),
            pictures=(
                _picture(
                    depths,
                    errors,
                    caption="Distance of infinitely wide networks from infinite depth; dashed: "
                    "1/L.",
                    title="distance",
                ),
            ),
        )

    return Experiment(conclude=conclude, config={"depths": depths, "steps": count})


def _proposition(setting: Setting) -> Experiment:
    def conclude(store: Store) -> Conclusion:
        s = limits.linear(
            vectors(), depth=math.inf, lr=0.6, multiplier=0.7, history=True, tol=1e-13
        )
        # The second rate is 1 % off: a control that must fail.
        right, wrong = (proposition_residual(s, lr=lr, multiplier=0.7) for lr in (0.6, 0.606))
        return Conclusion(
            comparisons=(
                *(
                    Comparison(
                        what=f"residual of the equation for {name}",
                        paper="0",
                        ours=exact(value),
                        accepted=Accepted(low=0.0, high=1e-12),
                    )
                    for name, value in right.items()
                ),
                Comparison(
                    what="control: the largest residual with a learning rate that is off by 1%",
                    paper="not 0",
                    ours=exact(max(wrong.values())),
                    accepted=Accepted(low=1e-4),
                ),
            )
        )

    return Experiment(conclude=conclude, config={"steps": 3, "batch": 2})


def _cauchy(setting: Setting) -> Experiment:
    depths, rule = DEPTHS, setting.depth_mup

    def conclude(store: Store) -> Conclusion:
        steps = reference()
        solved = {
            depth: limits.linear(
                steps, depth=depth, lr=1.0, alpha=rule.alpha, gamma=rule.gamma, history=True
            )
            for depth in (*depths, 2 * depths[-1])
        }
        errors: dict[str, list[float]] = {"C_0 = ⟨x|x⟩": [], "C_1 = ⟨d|d⟩": []}
        for depth in depths:
            shallow, deep = solved[depth].history, solved[2 * depth].history
            assert shallow is not None
            assert deep is not None
            for words, one, other in (
                ("C_0 = ⟨x|x⟩", shallow.x, deep.x),
                ("C_1 = ⟨d|d⟩", shallow.d, deep.d),
            ):
                # Every second layer of the deeper network is as deep as one of the other.
                errors[words].append(float(np.abs(one - other[::2]).max()))
        return Conclusion(
            comparisons=tuple(
                _fall(depths, changes, f"the largest change of {words} when depth doubles")
                for words, changes in errors.items()
            ),
            pictures=(
                _picture(
                    depths,
                    errors,
                    caption="Largest change over all layers and steps when depth doubles; dashed: "
                    "1/L.",
                    title="change",
                ),
            ),
        )

    return Experiment(conclude=conclude, config={"depths": depths})


_NONLINEAR: dict[str, dict[str, float]] = {
    # Problems whose limit is far from initialization, so that a deviation can be seen.
    "relu": {"seed": 6, "lr": 1.0, "multiplier": 1.0},
    "abs": {"seed": 18, "lr": 1.5, "multiplier": 1.3},
    "cos": {"seed": 12, "lr": 1.5, "multiplier": 1.3},
}


def nonlinear_problem(activation: str) -> tuple[list[limits.Step], dict[str, Any]]:
    """Four steps on one two-dimensional example each, with learning rate and multiplier."""
    how = dict(_NONLINEAR[activation])
    rng = np.random.default_rng(int(how.pop("seed")))
    steps = [
        limits.Step(rng.normal(size=(1, 2)) / np.sqrt(2), limits.mse(rng.normal(size=(1, 1))))
        for _ in range(4)
    ]
    return steps, how


def nonlinear_outputs(
    *, activation: str, width: int, depth: int, run: int, alpha: str, gamma: str
) -> dict[str, Any]:
    """Outputs, by step, of one trained network with mean subtraction."""
    from reproduction.probes.factored import Blocks, train_factored

    steps, options = nonlinear_problem(activation)
    blocks = Blocks(alpha=alpha, gamma=gamma, activation=activation, **options)
    trained = train_factored(steps, blocks, width=width, depth=depth, seed=run)
    return {"outputs": trained.outputs[:, 0].tolist()}


def nonlinear_networks(
    setting: Setting, activation: str, depths: Sequence[int]
) -> Survey[tuple[int, int]]:
    """Trained networks of one activation by (depth, run)."""
    width = setting.choose(laptop=512, medium=1024, paper=2048)
    runs = setting.choose(laptop=24, medium=48, paper=48)
    rule = setting.depth_mup
    return survey(
        "nonlinear network against its limit",
        nonlinear_outputs,
        {
            (depth, run): {
                "activation": activation,
                "width": width,
                "depth": depth,
                "run": run,
                "alpha": str(rule.alpha),
                "gamma": str(rule.gamma),
            }
            for depth in depths
            for run in range(runs)
        },
        work=lambda key: 40.0 * width * width * key[0],
    )


def _nonlinear(setting: Setting) -> Experiment:
    depths = setting.choose(laptop=(4, 8, 16, 32), medium=(4, 8, 16, 32, 64), paper=(4, 16, 64))
    networks = {name: nonlinear_networks(setting, name, depths) for name in _NONLINEAR}

    def conclude(store: Store) -> Conclusion:
        comparisons, rows = [], []
        for name, trained in networks.items():
            steps, options = nonlinear_problem(name)
            s = limits.nonlinear(steps, activation=name, **options)
            limit = np.concatenate(s.outputs)[:, 0]
            gaps = trained.array(store, "outputs") - limit  # (depths, runs, steps)
            rows += [
                {"depth": d, "distance": float(np.linalg.norm(g.mean(axis=0))), "activation": name}
                for d, g in zip(depths, gaps, strict=True)
            ]
            comparisons.append(
                Comparison(
                    what=f"{name}: exponent in depth of mean outputs' distance from the limit",
                    paper="converges",
                    ours=_distance_slope(depths, gaps),
                    accepted=Accepted(high=0.0),
                )
            )
        return Conclusion(
            comparisons=tuple(comparisons),
            pictures=(
                lines(
                    rows,
                    name="distance",
                    caption="Distance of mean outputs from the corrected limit of Definition E.1.",
                    x=Axis(field="depth", title="depth", log=True),
                    y=Axis(field="distance", title="distance", log=True),
                    by="activation",
                ),
            ),
            notes=(
                "The limit is that of the corrected Definition E.1; the printed one is among the "
                "errata.",
            ),
        )

    return Experiment(
        measures=tuple(m for trained in networks.values() for m in trained.measures),
        conclude=conclude,
        config={"depths": depths, "activations": list(_NONLINEAR)},
    )


def _distance_slope(depths: Sequence[int], gaps: np.ndarray) -> Estimate:
    """The exponent of |mean over runs of the deviation|, by the jackknife over runs.

    ``gaps`` are (depths, runs, steps). Runs of one number share nothing between depths.
    """
    pull = slope_weights(np.log(depths))

    def slope(some: np.ndarray) -> float:
        return float(pull @ np.log(np.linalg.norm(some.mean(axis=-1), axis=-1)))

    return jackknife(slope, np.swapaxes(gaps, 1, 2))  # it leaves out entries of the last axis


CLAIMS = (
    Claim(
        name="fig9",
        title="The infinite-width recursion converges in depth",
        shows="The recursion at depths 2^4 to 2^9, by ten numbers of one training run. Its "
        "distance from the limit of infinite depth falls as 1/L.",
        source="TP6 Figure 9",
        experiment=_fig9,
    ),
    Claim(
        name="prop4.4",
        title="The five equations of the infinite-depth limit",
        shows="Γ and C of an infinitely deep linear network solve five integral equations. A "
        "solution found by another route, spectral collocation of responses, satisfies all of "
        "them.",
        source="TP6 Proposition 4.4",
        experiment=_proposition,
        group="claims",
    ),
    Claim(
        name="thmC.3",
        title="The recursion is Cauchy in depth",
        shows="Covariances at depth L and 2L differ by O(1/L), at every layer and step. So the "
        "limit of infinite depth exists.",
        source="TP6 Theorem C.3",
        experiment=_cauchy,
        group="claims",
    ),
    Claim(
        name="claimE.1",
        title="The nonlinear limit",
        shows="Nonlinear networks with mean subtraction have a limit of infinite width and depth. "
        "Means over trained networks approach it as they get deeper.",
        source="TP6 Claim E.1",
        experiment=_nonlinear,
        group="claims",
    ),
)
