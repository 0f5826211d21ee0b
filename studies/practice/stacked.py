"""Optimizers of a stack: PyTorch's own steps, with a rate for every copy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from studies.practice.recipe import Recipe

Values: TypeAlias = dict[str, Tensor]
"""The parameters by their names, (copies, layers, ...) each."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the plan and the recipe give the layers of one tensor.

    Attributes:
        rate: shares of the base's rate, (1, layers, 1, ...), as are all but the last:
        eps, decay: numbers.
        unit: the multiplier that a parameter carries.
        gradient, weight: by the plan, sizes of entries in units of the base's.
        radius: of one direction that moves the stream as much as at the base, as a share of the
            parameter's norm.
        orthogonal: whether Muon trains it.
    """

    rate: Tensor
    eps: Tensor
    decay: Tensor
    unit: Tensor
    gradient: Tensor
    weight: Tensor
    radius: Tensor
    orthogonal: bool


def norms(values: Tensor) -> Tensor:
    """Of every copy and layer, in the shape in which it multiplies all."""
    return values.flatten(2).norm(dim=2).view(*values.shape[:2], *(1 for _ in values.shape[2:]))


def matrix(values: Tensor) -> bool:
    """Whether it holds matrices, not vectors."""
    return values.ndim > 3


class Optimizer:
    """What the optimizers share: rates by copy and place, and weight decay."""

    def __init__(self, recipe: Recipe, places: Mapping[str, Place], rates: Tensor) -> None:
        self.recipe, self.places, self.rates, self.steps = recipe, places, rates, 0
        self.state: dict[str, tuple[Tensor, ...]] = {}

    def __call__(self, values: Values, gradients: Values, factor: float) -> None:
        """One step."""
        self.steps += 1
        for name, value in values.items():
            place, gradient = self.places[name], gradients[name]
            rate = self.rates.view(-1, *(1 for _ in value.shape[1:])) * place.rate
            trains, rate = rate > 0, rate * factor
            if self.recipe.least_rate:
                rate = rate.clamp_min(self.recipe.least_rate) * trains
            if self.recipe.coupled:
                gradient = gradient + place.decay * value
            elif self.recipe.decay:
                value.mul_(1 - rate * place.decay)
            value.addcmul_(rate, self.update(name, value, gradient), value=-1)

    def update(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        """The direction and size of a step at rate 1."""
        raise NotImplementedError


class Adam(Optimizer):
    """``torch.optim.AdamW``; ``Adam`` where the decay is coupled."""

    def update(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        first, second = self.recipe.betas
        if name not in self.state:
            self.state[name] = tuple(torch.zeros_like(value) for _ in range(3))
        mean, square, most = self.state[name]
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        if self.recipe.amsgrad:
            square = torch.maximum(most, square, out=most)
        root = square.mul(1 / (1 - second**self.steps)).sqrt_().add_(self.places[name].eps)
        return mean.div(root).mul_(1 / (1 - first**self.steps))


class SGD(Optimizer):
    """``torch.optim.SGD`` with momentum."""

    def update(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        if name not in self.state:
            self.state[name] = (torch.zeros_like(value),)
        (mean,) = self.state[name]
        mean.mul_(self.recipe.momentum).add_(gradient)
        return gradient + self.recipe.momentum * mean if self.recipe.nesterov else mean


class Muon(Adam):
    """``torch.optim.Muon`` for the matrices that the plan gives it, AdamW for the rest."""

    def update(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        if not self.places[name].orthogonal:
            return super().update(name, value, gradient)
        if name not in self.state:
            self.state[name] = (torch.zeros_like(value),)
        (mean,) = self.state[name]
        mean.lerp_(gradient, 0.05)
        rows, columns = value.shape[-2:]
        return orthogonal(gradient.lerp(mean, 0.95)) * max(1.0, rows / columns) ** 0.5


def orthogonal(matrices: Tensor) -> Tensor:
    """Nearly the orthogonal factors, by five steps of Newton and Schulz with Muon's numbers."""
    a, b, c = 3.4445, -4.775, 2.0315
    x = matrices / norms(matrices).clamp_min(1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": Adam, "sgd": SGD, "muon": Muon}
