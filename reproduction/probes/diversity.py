"""Feature diversity: how much nearby layers differ, in their features and in their gradients.

d(eps) = RMS over features and examples of x^{(lambda + eps) L} - x^{lambda L} grows as
eps^(1 - kappa): a random walk in depth has slope 1/2, and so the largest diversity, kappa = 1/2;
a smooth flow has slope 1 and kappa = 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from depthmup.records import Estimate
from depthmup.rules import Exponent, exponent
from depthmup.statistics import Array, local_slopes, mean
from depthmup.tracing import matches


def feature_distances(
    model: nn.Module,
    inputs: Any,
    blocks: str,
    *,
    eps: Sequence[float] = (1 / 32, 1 / 16, 1 / 8),
    at: Sequence[float] = (0.25, 0.5),
) -> Array:
    """d(eps) from every start: the stream's change over eps * L blocks, (starts, eps).

    Only the stream at the starts is kept: one tensor per start, and a number per distance.

    Example:
        >>> from depthmup.models import ResidualMLP
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch...>
        >>> net = ResidualMLP(inputs=4, width=64, depth=64, outputs=2, multiplier=1 / 8)
        >>> d = feature_distances(net, torch.randn(16, 4), "branches.*", eps=(1/8, 1/4), at=(0.5,))
        >>> d.shape
        (1, 2)

    *Source:* TP6 (arXiv 2310.02244) Definition 7.6, Figures 17 to 19.
    """
    modules = _layers(model, blocks)
    depth = len(modules)
    starts = _whole(at, depth, "at", least=0)
    spans = _whole(eps, depth, "eps", least=1)
    if max(starts) + max(spans) >= depth:
        raise ValueError(
            f"Expected at + eps below 1, as the stream is seen where blocks read it; got "
            f"{max(at):g} + {max(eps):g}."
        )
    streams: dict[int, Tensor] = {}
    distances = np.full((len(starts), len(spans)), np.nan)

    def at_layer(layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            x = args[0].detach()
            if layer in starts:
                streams[layer] = x.clone()
            for i, start in enumerate(starts):
                if layer - start in spans:
                    rms = (x - streams[start]).double().square().mean().sqrt()
                    distances[i, spans.index(layer - start)] = float(rms)

        return hook

    handles = [m.register_forward_pre_hook(at_layer(i)) for i, m in enumerate(modules)]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return distances


@dataclass(frozen=True, kw_only=True, slots=True)
class Diversity:
    """Local slopes of log d in log eps between consecutive eps, and kappa from the largest eps.

    At finite depth the noise of initialization, a random walk, dominates small eps: slopes there
    are 1/2 whatever training did. So kappa is 1 minus the slope at the *largest* eps. Once training
    has moved features by more than their size, slopes at large eps also see how they grow along
    depth, and pass 1.

    Attributes:
        eps: distances along depth, as fractions of it.
        distances: between the features at two depths that far apart.
        slopes: one between each two eps.
        kappa: the feature diversity exponent.
    """

    eps: tuple[float, ...]
    distances: tuple[float, ...]
    slopes: tuple[Estimate, ...]
    kappa: Estimate


def diversity(distances: Sequence[Array], eps: Sequence[float]) -> Diversity:
    """Kappa with Student's interval over runs, from ``feature_distances`` of each run.

    Starts within a run are averaged (root mean square), as they share weights.

    Example:
        >>> runs = [np.array([[0.1, 0.2, 0.4]]), np.array([[0.11, 0.22, 0.44]])]
        >>> abs(round(diversity(runs, (1/16, 1/8, 1/4)).kappa.value, 6))
        0.0

    *Source:* TP6 (arXiv 2310.02244) Definition 7.4; Student (1908), Biometrika 6:1-25.
    """
    if len(distances) < 2 or len(eps) < 2:
        raise ValueError(
            f"Expected at least two runs and two distances; got {len(distances)} and {len(eps)}."
        )
    means = np.array([np.sqrt(np.square(d).mean(axis=0)) for d in distances])
    slopes = np.array([local_slopes(list(eps), list(d)) for d in means])
    estimates = tuple(mean(column) for column in slopes.T)
    last = estimates[-1]
    return Diversity(
        eps=tuple(eps),
        distances=tuple(float(v) for v in np.exp(np.log(means).mean(axis=0))),
        slopes=estimates,
        kappa=Estimate(value=1 - last.value, low=1 - last.high, high=1 - last.low),
    )


def diversity_at_infinite_depth(
    depths: Sequence[int],
    distances: Sequence[Sequence[Array]],
    eps: Sequence[float],
    *,
    alpha: Exponent = 1,
) -> Diversity:
    """Distances, slopes and kappa extrapolated to infinite depth, as the definition of kappa asks.

    ``distances[i]`` are the runs at ``depths[i]``, each as ``feature_distances`` gives them. The
    noise of initialization and the flow add in quadrature, and the noise is weaker by L^-alpha per
    layer, so at fixed eps

        d(eps)^2 = flow(eps)^2 + c(eps) L^(1 - 2 alpha),        (L^-1 at alpha = 1/2 and 1)

    and the intercept is found by least squares (relative, as all are known about as well). At
    alpha = 1/2 the noise stays, and what is taken off is that layers are finitely many. Intervals
    are Student's over runs, one of each depth making one extrapolation.

    Example:
        >>> eps, depths = np.array([1/16, 1/8, 1/4]), (64, 256, 1024)
        >>> runs = [[np.sqrt(0.1 * eps[None]**2 + eps[None] / depth)] * 2 for depth in depths]
        >>> found = diversity_at_infinite_depth(depths, runs, eps)
        >>> abs(round(found.kappa.value, 6)), 1 - found.slopes[-1].value < 1e-6
        (0.0, True)

    *Source:* the order of the limits: TP6 (arXiv 2310.02244) Definition 7.4.
    """
    counts = {len(runs) for runs in distances}
    if len(set(depths)) < 3 or len(distances) != len(depths) or len(counts) != 1:
        raise ValueError(
            "Expected at least three depths, and the same number of runs at each; got depths "
            f"{list(depths)} with {[len(runs) for runs in distances]} runs."
        )
    if min(depths) < 1:
        raise ValueError(f"Expected depths of at least 1; got {list(depths)}.")
    power = float(exponent(alpha, name="alpha"))
    x = np.array([d ** (-1.0 if power == 0.5 else 1 - 2 * power) for d in depths])
    squares = np.array([[np.square(d).mean(axis=0) for d in runs] for runs in distances])
    weights = 1 / squares.mean(axis=1)  # (depths, eps)
    limits = np.empty(squares.shape[1:])  # (runs, eps)
    for j in range(squares.shape[2]):
        w = weights[:, j]
        design = np.stack([np.ones_like(x), x], axis=1) * w[:, None]
        limits[:, j] = np.linalg.lstsq(design, squares[:, :, j] * w[:, None], rcond=None)[0][0]
    if limits.min() <= 0:
        raise ValueError(
            f"At eps = {eps[int(limits.min(axis=0).argmin())]:g} distances extrapolate to nothing: "
            f"depths up to {max(depths)} show only noise there. Take deeper networks, larger eps, "
            "or train them further."
        )
    return diversity([np.sqrt(run)[None] for run in limits], eps)


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientDiversity:
    """Cosines of neighbouring blocks' gradients, and what unrelated blocks would give.

    ``raw`` is the mean cosine; ``centred`` the same after the mean gradient over blocks is taken
    off; ``null`` the standard deviation of the cosine of two random directions of as many
    entries, 1/sqrt(entries), and ``shuffled`` the mean centred cosine of blocks far apart.

    Attributes:
        pairs: of blocks that were compared.
    """

    raw: float
    centred: float
    shuffled: float
    null: float
    pairs: int


def gradient_diversity(model: nn.Module, parameters: str) -> GradientDiversity:
    """How alike the present gradients of neighbouring blocks are.

    ``parameters`` is a pattern of names that matches one parameter per block, in order; gradients
    must have been computed. Neighbours in a network that is linear, or whose nonlinearity comes
    before the matrix, are alike; relu decorrelates them and abs entirely.

    Example:
        >>> net = nn.Sequential(*(nn.Linear(3, 3, bias=False) for _ in range(6)))
        >>> for layer in net:
        ...     layer.weight.grad = torch.ones(3, 3)
        >>> round(gradient_diversity(net, "*.weight").raw, 6)
        1.0

    *Source:* TP6 (arXiv 2310.02244) Section 8.1.
    """
    matching = [p for name, p in model.named_parameters() if matches(parameters, name)]
    gradients = [p.grad.double().flatten() for p in matching if p.grad is not None]
    if len(gradients) < 4 or len(gradients) < len(matching):
        raise ValueError(
            f"Expected the gradients of at least four blocks; {parameters!r} matches "
            f"{len(matching)} parameters, of which {len(gradients)} have a gradient. Call "
            "backward first."
        )
    if len({len(g) for g in gradients}) > 1:
        raise ValueError(f"Expected one parameter per block; {parameters!r} matches several.")
    stack = torch.stack(gradients)
    centred = stack - stack.mean(0)
    far = len(stack) // 2

    def mean_cosine(a: Tensor, b: Tensor) -> float:
        return float(nn.functional.cosine_similarity(a, b, dim=1, eps=1e-300).mean())

    return GradientDiversity(
        raw=mean_cosine(stack[:-1], stack[1:]),
        centred=mean_cosine(centred[:-1], centred[1:]),
        shuffled=mean_cosine(centred[:-far], centred[far:]),
        null=stack.shape[1] ** -0.5,
        pairs=len(stack) - 1,
    )


def _layers(model: nn.Module, pattern: str) -> list[nn.Module]:
    layers = [m for n, m in model.named_modules() if n and matches(pattern, n)]
    if len(layers) < 2:
        names = [n for n, _ in model.named_modules() if n]
        raise ValueError(
            f"Expected {pattern!r} to match every block; it matches {len(layers)} modules. There "
            f"are {', '.join(names[:8])}, ..."
        )
    return layers


def _whole(fractions: Sequence[float], depth: int, name: str, *, least: int) -> list[int]:
    layers = [round(f * depth) for f in fractions]
    wrong = [f for f, n in zip(fractions, layers, strict=True) if abs(f * depth - n) > 1e-9]
    if wrong or min(layers) < least:
        raise ValueError(
            f"Expected {name} to be multiples of 1/{depth}, whole numbers of layers, at least "
            f"{least}; got {list(fractions)}."
        )
    return layers
