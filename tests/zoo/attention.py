"""Attention by every weighting that people write, in a model of two blocks."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 32
HEADS = 2


def relu_squared(logits):
    return F.relu(logits).square()


def by_hand(logits):
    weights = (logits - logits.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


def plus_one(logits):
    return logits.exp() / (1 + logits.exp().sum(-1, keepdim=True))


def with_a_sink(logits):
    sink = logits.new_zeros(*logits.shape[:-1], 1)
    return torch.cat([logits, sink], -1).softmax(-1)[..., :-1]


WEIGHTINGS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, -1).exp(),
    "sigmoid": torch.sigmoid,
    "relu squared": relu_squared,
    "linear": lambda x: x,
    "exp by hand": by_hand,
    "softmax plus one": plus_one,
    "sink": with_a_sink,
}


class Attention(nn.Module):
    def __init__(self, width, weighting, *, cosine=None, scale=None):
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.weighting, self.cosine = WEIGHTINGS[weighting], cosine
        self.scale = (width // HEADS) ** -0.5 if scale is None else scale(width)
        if cosine == "learned":
            self.temperature = nn.Parameter(torch.tensor(10.0))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            linear(x).view(batch, length, HEADS, -1).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        if self.cosine:
            q, k = F.normalize(q, dim=-1), k / k.norm(dim=-1, keepdim=True)
        logits = q @ k.transpose(-1, -2)
        if self.cosine == "learned":
            logits = logits * self.temperature
        elif not self.cosine:
            logits = logits * self.scale
        y = self.weighting(logits) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class LinearAttention(Attention):
    """Weights of positive features, which sum to one: what multiplies queries cancels."""

    def __init__(self, width):
        super().__init__(width, "linear")

    def forward(self, x):
        q, k, v = (
            linear(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        q, k = F.elu(q) + 1, F.elu(k) + 1
        over = torch.einsum("bhtd,bhd->bht", q, k.sum(2)) + 1e-6
        y = torch.einsum("bhtd,bhde->bhte", q, k.mT @ v) * (1 / over)[..., None]
        return x + self.out(y.transpose(1, 2).flatten(2))


class Language(nn.Module):
    """Embedding, two blocks, readout."""

    def __init__(self, width, make):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(make(width) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
