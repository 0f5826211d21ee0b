"""Multiplications of a forward pass, beside torch's own count."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from depthmup.tracing import multiplications, trace


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (t.view(2, 5, 4, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(2, 5, 16))


class ByHand(nn.Module):
    def forward(self, x):
        return x @ x.mT @ x


MODELS = {
    "linear": (nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)), (7, 6)),
    "convolution": (nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 9, 9)),
    "grouped": (nn.Conv1d(8, 16, 3, groups=4), (2, 8, 11)),
    "transposed": (nn.ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 5, 5)),
    "products of activations": (ByHand(), (3, 4, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_they_are_half_of_torchs_flops(name):
    model, shape = MODELS[name]
    x = torch.randn(shape)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert multiplications(trace(model, x)) == counter.get_total_flops() // 2 > 0


def test_fused_attention_takes_two_products():
    """Torch's own count leaves it out on the CPU: 2 examples, 4 heads of 4, 5 places."""
    linear, product = 2 * 5 * 16 * 64, 2 * 4 * 5 * 5 * 4
    assert multiplications(trace(Attention(), torch.randn(2, 5, 16))) == linear + 2 * product
