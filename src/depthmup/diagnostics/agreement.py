"""Do finite networks approach the limits? Trained networks of growing size against the theory.

A network of width n differs from its infinite-width limit by order n^-1/2, and one of depth L from
its infinite-depth limit by order 1/L. Both are measured here: networks are trained by plain SGD
with weights that are drawn and multiplied like any other, by code that shares nothing with
``limits``.

Width 8192 at depth 64 has 4e9 weights, but T steps of SGD move each matrix by rank T B only:
``W_t = W_0 - sum_s w_ts a L^-gamma (1/n) d_s x_s^T``. So the gradients' factors are stored, W_0 is
drawn again from its seed whenever it is needed, and as many layers as fit are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from depthmup import limits
from depthmup.records.finding import Estimate
from depthmup.rules import Exponent, exponent
from depthmup.statistics import slope_weights, student

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "relu": torch.relu,
    "abs": torch.abs,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "softplus": torch.nn.functional.softplus,
}


@dataclass(frozen=True, kw_only=True)
class Approach:
    """Distances from a limit at growing sizes.

    ``errors`` (sizes,) root mean square over runs and entries; ``slope`` that of log error against
    log size with a 95 % interval; ``expected`` what the theory says it is.
    """

    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    slope: Estimate
    expected: float

    @property
    def agrees(self) -> bool:
        """Whether the expected slope lies in the measured interval, and errors do fall."""
        return self.slope.low <= self.expected <= self.slope.high and self.slope.high < 0


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How networks approach a limit: their outputs, and the RMS of x at every layer."""

    outputs: Approach
    rms: Approach


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One trained network: ``outputs`` (N, d_out) of every training vector at its own step, and
    ``rms`` (depth + 1, N) of x at every layer."""

    outputs: np.ndarray
    rms: np.ndarray


def agreement_with_width(
    steps: Sequence[limits.Step],
    *,
    widths: Sequence[int],
    depth: int,
    runs: int = 8,
    lr: float = 1.0,
    multiplier: float = 1.0,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    seed: int = 0,
    memory: int = 4 * 2**30,
    device: str | torch.device = "cpu",
) -> Agreement:
    """Linear networks of growing width against the exact infinite-width limit at their depth.

    *Source:* the theory's side of arXiv 2310.02244, Figure 8; expected slope -1/2 (a central limit
    theorem over the n entries).
    """
    options = {"lr": lr, "multiplier": multiplier, "alpha": alpha, "gamma": gamma}
    solution = limits.linear(steps, depth=depth, **options)  # type: ignore[arg-type]
    exact = np.concatenate(solution.outputs), np.concatenate(solution.rms, axis=1)
    gaps = [
        [
            _gap(
                train(
                    steps,
                    width=width,
                    depth=depth,
                    seed=seed + run,
                    memory=memory,
                    device=device,
                    **options,  # type: ignore[arg-type]
                ),
                exact,
            )
            for run in range(runs)
        ]
        for width in widths
    ]
    squares = np.array(gaps)  # (widths, runs, 2)
    return Agreement(
        outputs=approach(widths, squares[..., 0], expected=-0.5),
        rms=approach(widths, squares[..., 1], expected=-0.5),
    )


def agreement_with_depth(
    steps: Sequence[limits.Step],
    *,
    depths: Sequence[int],
    width: int | None = None,
    activation: str = "identity",
    runs: int = 8,
    lr: float = 1.0,
    multiplier: float = 1.0,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Approach:
    """Networks of growing depth against the infinite-depth limit at Depth-muP.

    ``width=None`` takes linear networks of infinite width, with no noise at all. Otherwise networks
    of that width are trained and their outputs averaged over runs, so that what is left is the
    distance in depth and an error of order (n runs)^-1/2, which must be the smaller.

    *Source:* the theory's side of arXiv 2310.02244, Figure 9; expected slope -1.
    """
    options = {"lr": lr, "multiplier": multiplier}
    if activation == "identity":
        limit = limits.linear(steps, depth=math.inf, **options)  # type: ignore[arg-type]
    else:
        limit = limits.nonlinear(steps, activation=activation, **options)  # type: ignore[arg-type]
    exact = np.concatenate(limit.outputs)
    if width is None:
        if activation != "identity":
            raise ValueError(
                f"At finite depth the infinite-width limit is known for linear networks only; got "
                f"activation={activation!r}. Pass a width to train networks instead."
            )
        found = [np.concatenate(limits.linear(steps, depth=d, **options).outputs) for d in depths]  # type: ignore[arg-type]
        values = np.array([[f - exact] for f in found])
    else:
        values = np.array(
            [
                [
                    train(
                        steps,
                        width=width,
                        depth=depth,
                        seed=seed + run,
                        activation=activation,
                        device=device,
                        **options,  # type: ignore[arg-type]
                    ).outputs
                    - exact
                    for run in range(runs)
                ]
                for depth in depths
            ]
        )
    return _approach_of_means(depths, values, expected=-1.0)


def train(
    steps: Sequence[limits.Step],
    *,
    width: int,
    depth: int,
    seed: int,
    lr: float,
    multiplier: float = 1.0,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    activation: str = "identity",
    memory: int = 4 * 2**30,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Trained:
    """Train one network by SGD; weights are random matrices, updates are kept as factors.

    ``x^0 = U xi, x^l = x^{l-1} + a L^-alpha MS(phi(W^l x^{l-1})), f = V^T x^L``; U, V frozen. With
    the identity there is no MS. ``memory`` bytes may hold initial weights; the others are drawn
    again from their seeds, once per pass.
    """
    if activation != "identity" and activation not in _ACTIVATIONS:
        raise ValueError(
            f"activation must be identity or one of {', '.join(_ACTIVATIONS)}; got {activation!r}."
        )
    branch = multiplier * depth ** -float(exponent(alpha, name="alpha"))
    kick = lr * multiplier * depth ** -float(exponent(gamma, name="gamma")) / width
    place = torch.device(device)
    d_in, d_out = steps[0].inputs.shape[1], steps[0].loss.shape[1]

    def draw(stream: int, *shape: int) -> Tensor:
        generator = torch.Generator(device=place).manual_seed(seed * 100_003 + stream)
        return torch.randn(*shape, generator=generator, device=place, dtype=dtype)

    u, v = draw(0, width, d_in), draw(1, width, d_out)  # v is n V
    fit = int(memory // (width * width * u.element_size()))
    kept = {layer: draw(2 + layer, width, width) for layer in range(min(fit, depth))}
    # Factors of the updates of each layer: rows of x^{l-1} and of the gradient with respect to h.
    below: list[list[Tensor]] = [[] for _ in range(depth)]
    above: list[list[Tensor]] = [[] for _ in range(depth)]

    def weight(layer: int) -> Tensor:
        """W_0 times sqrt(n)."""
        return kept[layer] if layer in kept else draw(2 + layer, width, width)

    outputs, rms = [], []
    for step in steps:
        x = torch.tensor(step.inputs, device=place, dtype=dtype) @ u.T
        stream, slopes = [x], []
        for layer in range(depth):
            h = x @ weight(layer).T / math.sqrt(width)
            if below[layer]:
                h -= kick * (x @ torch.cat(below[layer]).T) @ torch.cat(above[layer])
            branch_out, slope = _activate(activation, h)
            x = x + branch * branch_out
            stream.append(x)
            slopes.append(slope)
        f = (x @ v / width).double().cpu().numpy()
        outputs.append(f)
        rms.append(torch.stack([s.double().square().mean(1).sqrt() for s in stream]).cpu().numpy())
        chi = torch.tensor(step.loss.gradient(f), device=place, dtype=dtype)
        d = chi @ v.T
        if step is steps[-1]:
            break
        for layer in range(depth - 1, -1, -1):
            g = slopes[layer](d)
            before = g @ weight(layer) / math.sqrt(width)
            if below[layer]:
                before -= kick * (g @ torch.cat(above[layer]).T) @ torch.cat(below[layer])
            d = d + branch * before
            below[layer].append(stream[layer])
            above[layer].append(g)
    return Trained(outputs=np.concatenate(outputs), rms=np.concatenate(rms, axis=1))


def _activate(name: str, h: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """MS(phi(h)), and what takes gradients back through it."""
    if name == "identity":
        return h, lambda d: d
    with torch.enable_grad():
        leaf = h.detach().requires_grad_()
        out = _ACTIVATIONS[name](leaf)
        centered = out - out.mean(1, keepdim=True)

    def back(d: Tensor) -> Tensor:
        return torch.autograd.grad(centered, leaf, d)[0]

    return centered.detach(), back


def approach(sizes: Sequence[int], squares: np.ndarray, *, expected: float) -> Approach:
    """The slope of log RMS error, with a bootstrap over runs; ``squares`` (sizes, runs)."""
    rng, pull = np.random.default_rng(0), slope_weights(np.log(sizes))
    runs = squares.shape[1]
    if runs < 2:
        raise ValueError(f"An interval needs at least two runs per size; got {runs}.")
    picks = rng.integers(0, runs, size=(2000, *squares.shape))
    resampled = np.take_along_axis(squares[None], picks, axis=2).mean(axis=2)
    value = float(0.5 * np.log(squares.mean(axis=1)) @ pull)
    margin = _margin(0.5 * np.log(resampled) @ pull, runs)
    return Approach(
        sizes=tuple(int(s) for s in sizes),
        errors=tuple(float(e) for e in np.sqrt(squares.mean(axis=1))),
        slope=Estimate(value=value, low=value - margin, high=value + margin),
        expected=expected,
    )


def _approach_of_means(sizes: Sequence[int], values: np.ndarray, *, expected: float) -> Approach:
    """The slope of log |mean over runs|; ``values`` (sizes, runs, N, d_out) are deviations.

    Interval: bootstrap over runs, and, for one run without noise, the corrections of the next order
    in 1/size, bounded by how far local slopes are from each other.
    """
    rng, pull = np.random.default_rng(0), slope_weights(np.log(sizes))

    def errors(part: np.ndarray) -> np.ndarray:
        return np.sqrt(np.square(part.mean(axis=1)).mean(axis=(1, 2)))

    logs = np.log(errors(values))
    value, runs = float(logs @ pull), values.shape[1]
    if runs == 1:
        local = np.diff(logs) / np.diff(np.log(np.asarray(sizes, dtype=float)))
        margin = float(local.max() - local.min()) + 1e-9
    else:
        picks = rng.integers(0, runs, size=(2000, len(logs), runs))
        resampled = [
            float(
                np.log(errors(np.stack([v[p] for v, p in zip(values, pick, strict=True)]))) @ pull
            )
            for pick in picks
        ]
        margin = _margin(np.array(resampled), runs)
    return Approach(
        sizes=tuple(int(s) for s in sizes),
        errors=tuple(float(e) for e in errors(values)),
        slope=Estimate(value=value, low=value - margin, high=value + margin),
        expected=expected,
    )


def _margin(resampled: np.ndarray, runs: int) -> float:
    """Half a 95 % interval: the bootstrap's standard deviation, with Student's t for few runs."""
    deviation = float(resampled.std(ddof=1)) * math.sqrt(runs / (runs - 1))
    return deviation * float(student(runs - 1))


def _gap(found: Trained, exact: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Mean squared distances of outputs and of RMS."""
    return (
        float(np.mean((found.outputs - exact[0]) ** 2)),
        float(np.mean((found.rms - exact[1]) ** 2)),
    )
