"""The sharpness of a loss at a network's weights, in the units of an optimizer's steps.

With G = J^T H J the Gauss-Newton matrix (J: outputs by weights, H: Hessian of the loss by outputs)
and D the diagonal matrix of every parameter's learning rate over the base's, gradient descent
``w <- w - lr D g`` on the linearized network is stable while

    lr lambda_max(D^1/2 G D^1/2) < 2.

The eigenvalue by Lanczos: a product with G is two backward passes through a graph that is made
once, and memory is three copies of the weights.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from depthmup.diagnostics.probes import logits_of
from depthmup.measuring import called
from depthmup.tracing import parameters, plain_name, unwrapped
from depthmup.training.loop import check_gradient

# Lanczos without reorthogonalization is good for some dozens; what is left, the error says.
MOST_PRODUCTS = 30
TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharpness:
    """``value``: lambda_max(D^1/2 G D^1/2); ``error``: how far an eigenvalue lies at most from it,
    relative; ``products`` with G that it took; ``loss`` at these weights."""

    value: float
    error: float
    products: int
    loss: float


@torch.inference_mode(False)
def sharpness(
    model: nn.Module,
    batches: Sequence[tuple[Any, Any]],
    *,
    loss: Callable[[Any, Any], Tensor],
    rates: Mapping[str, float | Tensor] | None = None,
    tolerance: float = TOLERANCE,
    generator: torch.Generator | None = None,
) -> Sharpness:
    """The largest eigenvalue of the Gauss-Newton matrix of batches' mean loss, preconditioned.

    Frozen parameters take no part. The model is taken as it is: in training mode dropout
    draws once.

    Args:
        model: at the weights in question.
        batches: of inputs and targets, as ``batch(generator)`` of ``depthmup.check`` gives them;
            each holds a graph in memory.
        loss: ``loss(outputs, targets)``, one number, convex in the model's first output.
        rates: D by name of the parameter, a number or a tensor of its shape; 1 unless given. Names
            are those without wrappers, such as of ``torch.compile``.
        tolerance: relative error of the eigenvalue asked for.
        generator: of the first vector; by default one of seed 0.

    Returns:
        The eigenvalue and how well it is known.

    Raises:
        ValueError: no batch, nothing to train, rates of no parameter, a loss that is not finite,
            or one that does not depend on the first output.

    Example:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> sharp = sharpness(net, [(x, torch.zeros(2, 1))],
        ...                   loss=lambda f, y: 0.5 * ((f - y) ** 2).mean())
        >>> round(sharp.value, 4)  # lambda_max(x^T x) / 2
        4.5

    *Source:* Lanczos' method on Gauss-Newton products as in Schraudolph (2002); forward derivatives
    as backward passes through a backward pass, so that every operation with two derivatives will
    do.
    """
    if not batches:
        raise ValueError("Expected at least one batch of data; got none.")
    for batch in batches:
        if not isinstance(batch, Sequence) or len(batch) != 2:
            raise ValueError(
                f"Expected batches to be pairs of inputs and targets; got {type(batch).__name__}"
                f"{f' of {len(batch)}' if isinstance(batch, Sequence) else ''}."
            )
    every = unwrapped(model).named_parameters(remove_duplicate=False)
    named = {plain_name(name) for name, _ in every}
    if unknown := sorted((rates or {}).keys() - named):
        raise ValueError(
            f"Expected rates by names of the model's parameters; got {', '.join(unknown)}."
        )
    products = [GaussNewton.of(model, *batch, loss) for batch in batches]
    # A batch may use weights that another does not: routed experts.
    like = {name: p.detach() for product in products for name, p in product.parameters.items()}
    scale = {
        name: torch.as_tensor((rates or {}).get(name, 1.0), device=p.device, dtype=p.dtype).sqrt()
        for name, p in like.items()
    }

    def preconditioned(vector: Vector) -> Vector:
        scaled = _times(scale, vector)
        images = [product(scaled) for product in products]
        mean = {
            name: sum(image[name] for image in images if name in image) / len(images)
            for name in like
        }
        return _times(scale, mean)  # type: ignore[arg-type]

    value, error, count = lanczos(
        preconditioned,
        like,
        tolerance=tolerance,
        generator=generator or torch.Generator().manual_seed(0),
    )
    losses = [float(product.value) for product in products]
    return Sharpness(value=value, error=error, products=count, loss=sum(losses) / len(losses))


Vector = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussNewton:
    """Products with G = J^T H J, of one batch at fixed weights.

    Attributes:
        parameters: by name.
        outputs: f of the batch.
        value: of the loss.
        by_outputs: dloss/df, with its graph.
        dummy: u, of which J^T u is a linear function.
        pulled: J^T u, with its graph.

    *Source:* Schraudolph (2002), Neural Computation 14:1723-1738, for products with G that
    never form it.
    """

    parameters: dict[str, nn.Parameter]
    outputs: Tensor
    value: Tensor
    by_outputs: Tensor
    dummy: Tensor
    pulled: tuple[Tensor, ...]

    @staticmethod
    def of(
        model: nn.Module, inputs: Any, targets: Any, loss: Callable[[Any, Any], Tensor]
    ) -> "GaussNewton":
        """One forward pass of a batch, ready for products at the weights that the model has now.

        Args:
            model: whose parameters with ``requires_grad`` count.
            inputs: of the batch, as the model is called with them.
            targets: of the batch.
            loss: of outputs and targets.

        Raises:
            ValueError: nothing is trained, the loss is not finite, or it does not bend with the
                model's first output.
        """
        trained = {n: p for n, p in parameters(model).items() if p.requires_grad}
        if not trained:
            raise ValueError(
                "Expected a model with parameters to train; all of them have requires_grad=False."
            )
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # others have one derivative only
            given = called(model, inputs)
            outputs = logits_of(given)
            value = loss(given, targets)
        check_gradient(value)
        if not torch.isfinite(value):
            raise ValueError(
                f"Expected a finite loss at these weights; got {float(value.detach())}. Sharpness "
                "is that of a network that could be trained: initialize it first."
            )
        (by_outputs,) = torch.autograd.grad(value, outputs, create_graph=True, allow_unused=True)
        if by_outputs is None or not by_outputs.requires_grad:
            raise ValueError(
                "Expected a curved loss of the model's first output (or its .logits); this one "
                "does not depend on it, or is linear in it. Let the model return what the loss "
                "is computed from."
            )
        dummy = torch.zeros_like(outputs, requires_grad=True)
        pulled = torch.autograd.grad(
            outputs, list(trained.values()), dummy, create_graph=True, allow_unused=True
        )
        used = {n: p for (n, p), g in zip(trained.items(), pulled, strict=True) if g is not None}
        return GaussNewton(
            parameters=used,
            outputs=outputs,
            value=value.detach(),
            by_outputs=by_outputs,
            dummy=dummy,
            pulled=tuple(g for g in pulled if g is not None),
        )

    def gradient(self) -> Vector:
        """The gradient of the loss."""
        return self._pull(self.by_outputs.detach())

    def forward(self, vector: Vector) -> Tensor:
        """J v: the derivative of <J^T u, v> by u."""
        (pushed,) = torch.autograd.grad(
            self.pulled, self.dummy, [vector[n] for n in self.parameters], retain_graph=True
        )
        return pushed

    def __call__(self, vector: Vector) -> Vector:
        """G v."""
        (curved,) = torch.autograd.grad(
            self.by_outputs, self.outputs, self.forward(vector), retain_graph=True
        )
        return self._pull(curved)

    def _pull(self, at_outputs: Tensor) -> Vector:
        gradients = torch.autograd.grad(
            self.outputs, list(self.parameters.values()), at_outputs, retain_graph=True
        )
        # Of tables with sparse gradients these are no sums with others.
        return {n: g.to_dense() for n, g in zip(self.parameters, gradients, strict=True)}


def lanczos(
    product: Callable[[Vector], Vector],
    like: Vector,
    *,
    tolerance: float,
    generator: torch.Generator,
) -> tuple[float, float, int]:
    """The largest eigenvalue of a symmetric matrix, its relative error, and the products it took.

    Without orthogonalization: what rounding brings back are copies of eigenvalues that are there,
    which move no largest one. Where the residual r of the Ritz vector is known, an eigenvalue lies
    within r of the Ritz value.
    """
    now = {
        name: torch.randn(t.shape, generator=generator, dtype=t.dtype).to(t.device)
        for name, t in like.items()
    }
    now = _scaled(now, 1 / _norm(now))
    before: Vector | None = None
    diagonal: list[float] = []
    beside: list[float] = []
    value, error = math.nan, math.inf
    for count in range(1, MOST_PRODUCTS + 1):
        image = product(now)
        diagonal.append(_dot(image, now))
        for name, t in image.items():
            t.sub_(now[name], alpha=diagonal[-1])
            if before is not None:
                t.sub_(before[name], alpha=beside[-1])
        rest = _norm(image)
        values, vectors = np.linalg.eigh(
            np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        )
        value = float(values[-1])
        error = rest * abs(float(vectors[-1, -1])) / max(abs(value), 1e-300)
        if error <= tolerance or rest <= 1e-12 * abs(value):
            return value, error, count
        beside.append(rest)
        before, now = now, _scaled(image, 1 / rest)
    return value, error, MOST_PRODUCTS


def _times(scale: Vector, vector: Vector) -> Vector:
    return {name: scale[name] * t for name, t in vector.items()}


def _scaled(vector: Vector, factor: float) -> Vector:
    return {name: t * factor for name, t in vector.items()}


def _dot(one: Vector, other: Vector) -> float:
    return math.fsum(float(torch.sum(one[n].double() * other[n].double())) for n in one)


def _norm(vector: Vector) -> float:
    return math.sqrt(_dot(vector, vector))
