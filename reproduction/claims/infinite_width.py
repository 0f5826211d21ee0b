"""The limit of infinite width at finite depth: Figure 8, Lemma 4.3 and Theorem 4.1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np

from depthmup import limits
from depthmup.records import Data
from depthmup.sweep import Store
from reproduction.claims.claim import Claim, Conclusion, Experiment, Setting
from reproduction.claims.panels import Axis, lines
from reproduction.claims.problems import IMAGES_LR, images, reference, vectors
from reproduction.claims.survey import Survey, survey
from reproduction.evidence import Accepted, Comparison, Picture
from reproduction.intervals import exact, standard_errors, surprising
from reproduction.theory.recursion import recursion

STEPS = 10
SHOWN = (1, 5, 10)
"""Training steps whose residual stream Figure 8 shows."""


def stream_of(
    *,
    width: int,
    depth: int,
    run: int,
    lr: float,
    alpha: str,
    gamma: str,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Train one linear network by SGD; its distances from the limit, and RMS of x along depth.

    Distances are mean squares over steps: of the outputs, and of the RMS of x over all layers.
    """
    from reproduction.probes.factored import Blocks, train_factored

    steps = images(Data(**data), count=STEPS)
    exact_outputs, exact_rms = _limit(Data(**data), depth)
    blocks = Blocks(lr=lr, alpha=alpha, gamma=gamma)
    trained = train_factored(steps, blocks, width=width, depth=depth, seed=run)
    layers = _quarters(depth)
    return {
        "outputs": float(np.mean((trained.outputs - exact_outputs) ** 2)),
        # (layers, steps)
        "rms": float(np.mean((trained.rms - exact_rms) ** 2)),
        "stream": {str(t): trained.rms[layers, t - 1].tolist() for t in SHOWN},
    }


@cache
def _limit(data: Data, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and RMS under Depth-muP; a network under another rule must be seen to differ."""
    s = limits.linear(images(data, count=STEPS), depth=depth, lr=IMAGES_LR)
    return np.concatenate(s.outputs), np.concatenate(s.rms, axis=1)


def _quarters(depth: int) -> list[int]:
    """The layers at 0, 1/4, ..., 1 of the depth."""
    return [depth * k // 4 for k in range(5)]


def _fig8(setting: Setting) -> Experiment:
    widths = setting.choose(
        laptop=(128, 256, 512, 1024),
        medium=(128, 256, 512, 1024, 2048),
        paper=tuple(2**k for k in range(7, 14)),
    )
    runs, depth = setting.choose(laptop=8, medium=8, paper=5), 64
    rule = setting.depth_mup

    networks = survey(
        "linear network against infinite width",
        stream_of,
        {
            (width, run): {
                "width": width,
                "depth": depth,
                "run": run,
                "lr": IMAGES_LR,
                "alpha": str(rule.alpha),
                "gamma": str(rule.gamma),
                "data": asdict(setting.images),
            }
            for width in widths
            for run in range(runs)
        },
        work=lambda key: 60.0 * key[0] * key[0] * depth,
    )

    def conclude(store: Store) -> Conclusion:
        rms, outputs = (networks.array(store, name) for name in ("rms", "outputs"))
        streams = {key: values["stream"] for key, values in networks.values(store).items()}
        return Conclusion(
            comparisons=(
                _approach(rms, widths, "RMS of x at all layers"),
                _approach(outputs, widths, "outputs"),
            ),
            pictures=(
                _errors({"RMS of x": rms, "outputs": outputs}, widths),
                *(_stream(streams, widths, depth, step, setting.images) for step in SHOWN),
            ),
        )

    return Experiment(
        measures=networks.measures,
        conclude=conclude,
        config={"widths": widths, "depth": depth, "runs": runs, "steps": STEPS},
    )


def _approach(squares: np.ndarray, widths: Sequence[int], words: str) -> Comparison:
    """The exponent at which mean squared distances, (widths, runs), fall with width."""
    from reproduction.probes.agreement import approach

    convergence = approach(widths, squares, expected=-0.5)
    return Comparison(
        what=f"exponent in width of the distance from the limit, {words}",
        paper="−1/2",
        ours=convergence.slope,
        # Sharp enough to exclude both no convergence and 1/n.
        accepted=Accepted(contains=-0.5, low=-0.9, high=-0.1),
    )


def _errors(squares: Mapping[str, np.ndarray], widths: Sequence[int]) -> Picture:
    """Distances from the limit against width, of mean squares (widths, runs)."""
    rows = [
        {"width": width, "error": float(np.sqrt(row.mean())), "of": words}
        for words, rows_of_width in squares.items()
        for width, row in zip(widths, rows_of_width, strict=True)
    ]
    top = rows[0]["error"]
    return lines(
        rows,
        name="error",
        caption="Distance of networks from the infinite-width recursion, root mean square over "
        "networks; dashed: slope −1/2.",
        x=Axis(field="width", title="width", log=True),
        y=Axis(field="error", title="distance", log=True),
        by="of",
        by_title="",
        references=[
            ("n^−1/2", [(w, top * (widths[0] / w) ** 0.5) for w in (widths[0], widths[-1])])
        ],
    )


def _stream(
    streams: Mapping[tuple[int, int], Any],
    widths: Sequence[int],
    depth: int,
    step: int,
    data: Data,
) -> Picture:
    """RMS of x along depth at one step; of networks, by (width, run) and step."""
    layers = _quarters(depth)
    _, exact_rms = _limit(data, depth)
    rows = [
        {
            "layer": layer,
            "rms": float(np.mean([s[str(step)][i] for (w, _), s in streams.items() if w == width])),
            "width": str(width),
        }
        for width in widths
        for i, layer in enumerate(layers)
    ]
    rows += [
        {"layer": layer, "rms": float(exact_rms[layer, step - 1]), "width": "∞"} for layer in layers
    ]
    return lines(
        rows,
        name=f"stream-{step}",
        caption=f"RMS of x along depth at step {step}: networks and the infinite-width recursion.",
        x=Axis(field="layer", title="layer"),
        y=Axis(field="rms", title="RMS of x"),
        by="width",
    )


def _lemma(setting: Setting) -> Experiment:
    depth = setting.choose(laptop=32, medium=64, paper=128)

    def conclude(store: Store) -> Conclusion:
        gaps = []
        for steps in (reference(), vectors()):
            by_layers = limits.linear(steps, depth=depth, lr=0.7)
            by_paper = recursion(limits.problem(steps, depth=depth, lr=0.7))
            gaps += [
                float(
                    np.abs(
                        np.concatenate(by_layers.outputs) - np.concatenate(by_paper.outputs)
                    ).max()
                ),
                float(np.abs(by_layers.kernel - by_paper.kernel).max()),
            ]
        before, after = reference()[:2]
        first = limits.linear([before, after], depth=depth, lr=1.0).outputs[1][0, 0]
        chi = before.loss.gradient(np.zeros((1, 1)))[0, 0]
        # a = 1. L blocks move; the signal of each passes the other L - 1.
        growth = (1 + 1 / depth) ** (depth - 1)
        closed = -growth * after.inputs[0, 0] * before.inputs[0, 0] * chi
        return Conclusion(
            comparisons=(
                Comparison(
                    what="the paper's Γ, C recursion against an independent algorithm, largest "
                    "difference of outputs and kernels",
                    paper="exact",
                    ours=exact(max(gaps)),
                    accepted=Accepted(low=0.0, high=1e-11),
                ),
                Comparison(
                    what="the first update's effect against its closed form "
                    "−ηa²(1 + a²/L)^(L−1) ξ₁·ξ₀ χ₀",
                    paper="equal",
                    ours=exact(float(abs(first - closed))),
                    accepted=Accepted(low=0.0, high=1e-13),
                ),
            ),
        )

    return Experiment(conclude=conclude, config={"depth": depth})


def kernel_of(*, width: int, depth: int, run: int, alpha: str, gamma: str) -> dict[str, Any]:
    """Squared RMS of x at the last layer and outputs of one trained network, by training step."""
    from reproduction.probes.factored import Blocks, train_factored

    blocks = Blocks(alpha=alpha, gamma=gamma)
    trained = train_factored(reference(), blocks, width=width, depth=depth, seed=run)
    return {
        "kernel": (trained.rms[-1] ** 2).tolist(),
        "below": (trained.rms[-2] ** 2).tolist(),
        "outputs": trained.outputs[:, 0].tolist(),
    }


def kernels(setting: Setting, *, depth: int) -> Survey[int]:
    """Networks of one large width on the reference problem, enough of them for a sharp mean."""
    width, runs = setting.choose(laptop=512, medium=1024, paper=2048), 24
    rule = setting.depth_mup
    return survey(
        "kernel of linear networks",
        kernel_of,
        {
            run: {
                "width": width,
                "depth": depth,
                "run": run,
                "alpha": str(rule.alpha),
                "gamma": str(rule.gamma),
            }
            for run in range(runs)
        },
        work=40.0 * width * width * depth,
    )


def deviation(
    store: Store, trained: Survey[int], name: str, expected: Sequence[float], *, words: str
) -> Comparison:
    """How far means over networks are from what is expected, in standard errors, at the worst step.

    Accepted up to what is surprising of all steps that scatter together. What is the same in every
    network has no error: it must be as expected, to the precision of single numbers.
    """
    values, limit = trained.array(store, name), np.array(expected)
    runs = len(values)
    # The test divides by the scatter over runs: a value that is equal in all of them, but for the
    # rounding of single precision, is compared by itself.
    scattered = np.ptp(values, axis=0) > 1e-6 * np.abs(values).max(axis=0)
    fixed = np.allclose(values[0, ~scattered], limit[~scattered], rtol=1e-5, atol=1e-7)
    ratios = standard_errors(values[:, scattered], limit[scattered])
    worst = float(ratios.max(initial=0.0)) if fixed else math.inf
    return Comparison(
        what=f"{words}: mean of {runs} networks minus the limit, in standard errors, worst step",
        paper="0",
        ours=exact(worst),
        accepted=Accepted(low=0.0, high=surprising(runs, tests=max(1, int(scattered.sum())))),
    )


def _theorem(setting: Setting) -> Experiment:
    depth = 32
    trained = kernels(setting, depth=depth)

    def conclude(store: Store) -> Conclusion:
        s = limits.linear(reference(), depth=depth, lr=1.0)
        outputs = [float(f[0, 0]) for f in s.outputs]
        kernel = np.diag(s.kernel).tolist()
        return Conclusion(
            comparisons=(
                deviation(store, trained, "outputs", outputs, words="outputs f_t"),
                deviation(store, trained, "kernel", kernel, words="kernel ⟨x_t|x_t⟩"),
            )
        )

    return Experiment(
        measures=trained.measures,
        conclude=conclude,
        config={"depth": depth, "width": trained.tasks[0].settings["width"]},
    )


CLAIMS = (
    Claim(
        name="fig8",
        title="Wide linear networks follow the infinite-width recursion",
        shows="Linear networks of depth 64 and growing width, ten steps of SGD. The RMS of x at "
        "every depth converges to the recursion's, with an error of n^-1/2.",
        source="TP6 Figure 8",
        experiment=_fig8,
    ),
    Claim(
        name="lemma4.3",
        title="The Γ, C recursion at finite depth",
        shows="The recursion for coefficients Γ and covariances C is exact at infinite width. An "
        "independent algorithm (invariant imbedding) and a closed form give the same numbers.",
        source="TP6 Lemma 4.3",
        experiment=_lemma,
        group="claims",
    ),
    Claim(
        name="thm4.1",
        title="Outputs and kernel have the computed limits",
        shows="The outputs and the kernel of trained linear networks converge to deterministic "
        "limits. Means over wide networks meet the computed values within their errors.",
        source="TP6 Theorem 4.1",
        experiment=_theorem,
        group="claims",
    ),
)
