"""Small networks with experts, as people write them: modules in a list, or one tensor."""

from math import sqrt

import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(self.up(x).relu())


class Layer(nn.Module):
    """Experts as modules, each run on everything and weighted by what the router gives it.

    ``weighted``: its outputs, its inputs, what lies between its matrices, or inputs and outputs.
    """

    def __init__(
        self, width, experts, active, hidden, *,
        weights="softmax", shared=True, weighted="outputs", noisy=False,
    ):  # fmt: skip
        super().__init__()
        self.weighted_at = weighted
        self.noise = nn.Linear(width, experts) if noisy else None
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))
        self.shared = Expert(width, hidden) if shared else None
        self.active, self.weights = active, weights

    def weighted(self, logits):
        squashed = logits.softmax(-1) if self.weights == "softmax" else logits.sigmoid()
        if self.active == len(self.experts):
            return squashed
        largest, which = squashed.topk(self.active, -1)
        if self.weights == "softmax":
            largest = largest / largest.sum(-1, keepdim=True)
        return torch.zeros_like(squashed).scatter(-1, which, largest)

    def of_one(self, expert, weight, x):
        match self.weighted_at:
            case "outputs":
                return weight * expert(x)
            case "inputs":
                return expert(weight * x)
            case "hidden":
                return expert.down(weight * expert.up(x).relu())
        return weight * expert(weight * x)

    def forward(self, x):
        y = self.norm(x)
        logits = self.router(y)
        if self.noise is not None:
            logits = logits + torch.randn_like(logits) * nn.functional.softplus(self.noise(y))
        weights = self.weighted(logits).unsqueeze(-1).unbind(-2)
        outputs = [self.of_one(*pair, y) for pair in zip(self.experts, weights, strict=True)]
        total = sum(outputs[1:], outputs[0])
        if self.weights == "mean of sigmoids":
            total = total / self.active
        return x + (total if self.shared is None else total + self.shared(y))


class Stacked(nn.Module):
    """Experts in one tensor, all of them active, weighted by a product over their number."""

    def __init__(self, width, experts, hidden, *, weighted="outputs"):
        super().__init__()
        self.weighted = weighted
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / sqrt(hidden))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        if self.weighted == "inputs":
            inputs = weights.T[..., None] * x
            return x + torch.bmm(torch.bmm(inputs, self.up).relu(), self.down).sum(0)
        hidden = torch.einsum("bn,enm->ebm", x, self.up).relu()
        if self.weighted == "hidden":
            return x + torch.einsum("be,ebm,emn->bn", weights, hidden, self.down)
        outputs = torch.einsum("ebm,emn->ebn", hidden, self.down)
        return x + torch.einsum("be,ebn->bn", weights, outputs)


def custom(n, L, E=4, K=2, N=16, **options):
    return nn.Sequential(
        nn.Linear(8, n), *(Layer(n, E, K, N, **options) for _ in range(L)), nn.Linear(n, 4)
    )


def stacked(n, L, E=4, K=4, N=16, **options):
    layers = (Stacked(n, E, N, **options) for _ in range(L))
    return nn.Sequential(nn.Linear(8, n), *layers, nn.Linear(n, 4))
