"""Precision of the products with trained matrices; the rest of a step is in single precision.

``float32`` rounds to 24 bits. ``tf32`` (CUDA, compute capability 8.0 and newer) and ``bf16`` round
the operands to 11 and 8 bits and sum in single precision; the result of a ``bf16`` product is
rounded again. The stream, gradients' sums over layers, moments and weights keep 24 bits, so that
small updates are not lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from depthmup.records.run import Precision


def multiply(a: Tensor, b: Tensor, precision: Precision) -> Tensor:
    """The product of two matrices, both rounded."""
    if precision == "bf16":
        return (a.bfloat16() @ b.bfloat16()).float()
    if precision == "tf32":
        with _cuda_products("tf32"):
            return a @ b
    return a @ b


class _Rounded(torch.autograd.Function):
    """x W^T, whose gradients are rounded products too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, precision: Precision) -> Tensor:
        return multiply(x, weight.mT, precision)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, ctx.precision = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        of_weight = multiply(gradient.mT, x, ctx.precision)
        return multiply(gradient, weight, ctx.precision), of_weight, None


class RoundedLinear(nn.Module):
    """A matrix without bias whose products have a precision of their own; inputs are (B, n)."""

    def __init__(self, weight: nn.Parameter, precision: Precision) -> None:
        super().__init__()
        self.weight, self.precision = weight, precision

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Rounded.apply(x, self.weight, self.precision)
        return result


@contextmanager
def _cuda_products(precision: str) -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before


@contextmanager
def single_precision() -> Iterator[None]:
    """Inside, products are as exact as their dtype, whatever this process allows elsewhere."""
    matmul = torch.backends.cuda.matmul
    cpu = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    reduced, of_cpu = matmul.allow_bf16_reduced_precision_reduction, cpu.fp32_precision
    matmul.allow_bf16_reduced_precision_reduction = False
    cpu.fp32_precision = "ieee"
    try:
        with _cuda_products("ieee"):
            yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction = reduced
        cpu.fp32_precision = of_cpu
