"""The network that is trained: residual blocks of one matrix, and what a recipe changes of them.

``Network`` is the module that is planned and initialized. ``outputs`` is the same function of a
stack: copies of all its parameters, of blocks those of all layers in one tensor.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studies.practice.recipe import Recipe
from studies.practice.stacked import Values
from studies.practice.tasks import TASKS


class Block(nn.Module):
    """x + W act(norm(x)), with what the recipe puts into the branch."""

    def __init__(self, width: int, recipe: Recipe) -> None:
        super().__init__()
        self.recipe, self.norm = recipe, norm_of(recipe.norm, width)
        self.linear = nn.Linear(width, width, bias=recipe.bias)
        if recipe.layer_scale:
            self.scale = nn.Parameter(torch.full((width,), recipe.layer_scale))
        if recipe.zero_branches:
            nn.init.zeros_(self.linear.weight)
        elif recipe.start != 1.0:
            nn.init.normal_(self.linear.weight, std=recipe.start * width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        recipe = self.recipe
        h = x if recipe.post else self.norm(x)
        h = self.linear(F.dropout(getattr(F, recipe.activation)(h), recipe.dropout, self.training))
        if recipe.layer_scale:
            h = self.scale * h
        return self.norm(x + h) if recipe.post else x + h


class Network(nn.Module):
    """Inputs, blocks, a last norm and a readout."""

    def __init__(self, width: int, depth: int, recipe: Recipe) -> None:
        super().__init__()
        task = TASKS[recipe.task]
        if task.tokens:
            self.input: nn.Module = nn.Embedding(task.tokens, width)
        else:
            self.input = nn.Linear(task.inputs, width, bias=recipe.bias)
        self.tokens = bool(task.tokens)
        self.blocks = nn.ModuleList(Block(width, recipe) for _ in range(depth))
        self.norm = norm_of(recipe.norm, width)
        self.readout = nn.Linear(width, task.outputs, bias=recipe.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        if self.tokens:
            x = x.mean(1)
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.readout(self.norm(x))
        return result


def norm_of(name: str, width: int) -> nn.Module:
    """A layer's norm by its name in a recipe."""
    kinds: dict[str, Any] = {
        "layer": nn.LayerNorm,
        "rms": nn.RMSNorm,
        "batch": partial(nn.BatchNorm1d, track_running_stats=False),
        "none": lambda _: nn.Identity(),
    }
    module: nn.Module = kinds[name](width)
    return module


def place_in_stack(name: str) -> tuple[str, int]:
    """The tensor of a stack that a parameter lies in, and its layer there.

    >>> place_in_stack("blocks.3.linear.weight"), place_in_stack("readout.bias")
    (('blocks.linear.weight', 3), ('readout.bias', 0))
    """
    if not name.startswith("blocks."):
        return name, 0
    _, layer, rest = name.split(".", 2)
    return f"blocks.{rest}", int(layer)


def stacked(networks: list[Network]) -> Values:
    """The parameters of networks of one shape, (copies, layers, ...) each."""
    of_names: dict[str, list[Tensor]] = {}
    for name, _ in networks[0].named_parameters():
        copies = torch.stack([network.get_parameter(name).detach() for network in networks])
        of_names.setdefault(place_in_stack(name)[0], []).append(copies)
    return {name: torch.stack(layers, 1) for name, layers in of_names.items()}


def outputs(values: Values, x: Tensor, recipe: Recipe, *, training: bool = True) -> Tensor:
    """What every copy makes of its batch, (copies, examples, outputs)."""
    if TASKS[recipe.task].tokens:
        copies = torch.arange(len(x)).view(-1, 1, 1)
        x = values["input.weight"][:, 0][copies, x].mean(2)
    else:
        x = _linear(x, *_at(values, "input."))
    per_layer = {
        name.removeprefix("blocks."): value.unbind(1)
        for name, value in values.items()
        if name.startswith("blocks.")
    }
    layers = len(per_layer["linear.weight"])
    for layer in range(layers):
        of = {name: each[layer] for name, each in per_layer.items()}
        norm = of.get("norm.weight"), of.get("norm.bias")
        h = x if recipe.post else _normed(x, *norm, recipe.norm)
        h = getattr(F, recipe.activation)(h)
        if recipe.dropout:
            h = F.dropout(h, recipe.dropout, training)
        h = _linear(h, of["linear.weight"], of.get("linear.bias"))
        if recipe.layer_scale:
            h = of["scale"][:, None] * h
        if recipe.drop_path and training:
            # Deeper branches are left out more often, as is usual.
            share = recipe.drop_path * (layer + 1) / layers
            h = h * (torch.rand(*h.shape[:2], 1) >= share) / (1 - share)
        x = _normed(x + h, *norm, recipe.norm) if recipe.post else x + h
    return _linear(_normed(x, *_at(values, "norm."), recipe.norm), *_at(values, "readout."))


def _at(values: Values, prefix: str) -> tuple[Tensor | None, Tensor | None]:
    of = {part: values.get(prefix + part) for part in ("weight", "bias")}
    weight, bias = (None if value is None else value[:, 0] for value in of.values())
    return weight, bias


def _linear(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is None:
        raise ValueError("Expected a weight; got none.")
    return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)


def _normed(x: Tensor, weight: Tensor | None, bias: Tensor | None, kind: str) -> Tensor:
    if kind == "none":
        return x
    if kind == "layer":
        x = F.layer_norm(x, x.shape[-1:])
    elif kind == "rms":
        x = F.rms_norm(x, x.shape[-1:])
    else:
        centred = x - x.mean(1, keepdim=True)
        x = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    if weight is None:
        return x
    return x * weight[:, None] if bias is None else torch.addcmul(bias[:, None], x, weight[:, None])
