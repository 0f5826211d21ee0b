"""Precision of the products with trained matrices; the rest of a step is in single precision.

``float32`` rounds to 24 bits. ``tf32`` (CUDA, compute capability 8.0 and newer) and ``bf16`` round
the operands to 11 and 8 bits and sum in single precision; the result of a ``bf16`` product is
rounded again. The stream, gradients' sums over layers, moments and weights keep 24 bits, so that
small updates are not lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from depthmup.records.run import Precision


def multiply(a: Tensor, b: Tensor, *, out: Tensor, precision: Precision) -> Tensor:
    """The batched product of (E, p, q) and (E, q, r), both rounded, into ``out``, (E, p, r)."""
    if precision == "bf16":
        return out.copy_(torch.bmm(a.bfloat16(), b.bfloat16()))
    if precision == "tf32":
        with _cuda_products("tf32"):
            return torch.bmm(a, b, out=out)
    return torch.bmm(a, b, out=out)


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
