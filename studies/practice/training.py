"""One stack of runs: copies of one network at many rates and seeds, trained as its recipe says."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import depthmup
from depthmup.rules import Kind
from studies.practice.network import Network, outputs, place_in_stack, stacked
from studies.practice.recipe import Recipe
from studies.practice.stacked import OPTIMIZERS, Place, Values, matrix, norms
from studies.practice.tasks import TASKS

STEPS, BATCH = 150, 32
BASE = {"width": 32, "depth": 4}


def trained(
    recipe: Recipe,
    size: Mapping[str, int],
    optimizer: str,
    rates: Sequence[float],
    seeds: Sequence[int],
) -> Tensor:
    """The losses of every step, (rates, seeds, steps); NaN from where a copy diverges."""
    plan = plan_of(recipe, size, optimizer)
    networks = []
    for seed in seeds:
        torch.manual_seed(seed)
        networks.append(Network(**size, recipe=recipe))
        plan.initialize(networks[-1])
    of_seeds = stacked(networks)
    _check_same(of_seeds, networks[0].eval(), recipe)
    values = {name: repeated(each, len(rates)).requires_grad_() for name, each in of_seeds.items()}
    places = places_of(networks[0], plan, recipe, optimizer)
    rate = torch.tensor(rates).repeat_interleave(len(seeds))
    step_of = OPTIMIZERS[optimizer](recipe, places, rate)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    count, steps = round(BATCH * recipe.batch), round(STEPS * recipe.steps)
    averaged, slow = ({name: each.detach().clone() for name, each in values.items()} for _ in "as")
    losses = []
    torch.manual_seed(seeds[0])
    for step in range(steps):
        drawn = [TASKS[recipe.task].batch(generator, count) for generator in generators]
        inputs, targets = (
            repeated(torch.stack(each), len(rates)) for each in zip(*drawn, strict=True)
        )
        loss, gradients = gradients_of(values, inputs, targets, recipe)
        if recipe.sam or recipe.planned_sam:
            moved = ascended(values, gradients, places, recipe)
            _, gradients = gradients_of(moved, inputs, targets, recipe)
        with torch.no_grad():
            gradients = changed(gradients, values, places, recipe)
            factor = max(scale_at(recipe, step / steps, steps), recipe.least_share)
            step_of(values, gradients, factor)
            for name, value in values.items():
                if recipe.independent and matrix(value):
                    value.mul_(1 - recipe.independent * factor)
                if recipe.lookahead and step % recipe.lookahead == recipe.lookahead - 1:
                    value.copy_(slow[name].lerp_(value, 0.5))
                if recipe.average:
                    averaged[name].lerp_(value, 1 - recipe.average)
            if recipe.average and step >= 0.8 * steps:
                loss = costs(averaged, inputs, targets, recipe)
        losses.append(loss.detach())
    return torch.stack(losses, 1).unflatten(0, (len(rates), len(seeds)))


def repeated(of_seeds: Tensor, rates: int) -> Tensor:
    """The same for every rate: copies are ordered by rate, then by seed."""
    return of_seeds.repeat(rates, *(1 for _ in of_seeds.shape[1:]))


def plan_of(recipe: Recipe, size: Mapping[str, int], optimizer: str) -> Any:
    """Depth-muP for the recipe's network."""
    inputs, _ = TASKS[recipe.task].batch(torch.Generator().manual_seed(0), 8)
    model, base = (Network(**shape, recipe=recipe).eval() for shape in (size, BASE))
    return depthmup.plan(
        model, base, scheme="depth-mup", optimizer=optimizer, example_inputs=inputs, proof="off"
    )


def _check_same(of_seeds: Values, network: Network, recipe: Recipe) -> None:
    """Refuse a stack that is another function than the planned module."""
    inputs, _ = TASKS[recipe.task].batch(torch.Generator().manual_seed(0), 8)
    with torch.no_grad():
        first = {name: value[:1] for name, value in of_seeds.items()}
        of_stack = outputs(first, inputs[None], recipe, training=False)[0]
        torch.testing.assert_close(of_stack, network(inputs), rtol=1e-3, atol=1e-4)


def costs(values: Values, inputs: Tensor, targets: Tensor, recipe: Recipe) -> Tensor:
    """The loss of every copy."""
    out = outputs(values, inputs, recipe)
    if not TASKS[recipe.task].classes:
        return F.mse_loss(out, targets, reduction="none").mean((1, 2))
    if recipe.squared:
        hot = F.one_hot(targets, out.shape[-1]).float()
        return F.mse_loss(out, hot, reduction="none").mean((1, 2))
    each = F.cross_entropy(
        out.flatten(0, 1), targets.flatten(), reduction="none", label_smoothing=recipe.smoothing
    )
    loss = each.view(targets.shape).mean(1)
    return loss + recipe.z_loss * out.logsumexp(-1).square().mean(1) if recipe.z_loss else loss


def gradients_of(
    values: Values, inputs: Tensor, targets: Tensor, recipe: Recipe
) -> tuple[Tensor, Values]:
    """The losses, and the gradient of each copy by its own values."""
    loss = costs(values, inputs, targets, recipe)
    gradients = torch.autograd.grad(loss.sum(), list(values.values()))
    return loss, dict(zip(values, gradients, strict=True))


def places_of(network: Network, plan: Any, recipe: Recipe, optimizer: str) -> dict[str, Place]:
    """What the plan gives each parameter, as the recipe changes it."""
    names = {parameter: name for name, parameter in network.named_parameters()}
    given: dict[str, Any] = {"lr": 1.0, "weight_decay": recipe.decay + recipe.coupled}
    muon: set[Tensor] = set()
    if optimizer == "sgd":
        groups = plan.param_groups(network, **given)
    elif optimizer == "muon":
        both = plan.muon_groups(network, adamw_lr=0.25, eps=recipe.eps, **given)
        groups, muon = [*both.muon, *both.adamw], {p for g in both.muon for p in g["params"]}
    else:
        groups = plan.param_groups(network, eps=recipe.eps, **given)
    planned = {p.name: p for p in plan.prescriptions}
    # Adam's epsilon is compared with gradients: its factor is their size.
    size = {"width": network.readout.in_features, "depth": len(network.blocks)}
    gradients = {p.name: p.epsilon for p in plan_of(recipe, size, "adam").prescriptions}
    numbers: dict[str, dict[int, tuple[float, ...]]] = {}
    orthogonal: dict[str, bool] = {}
    depth = len(network.blocks)
    for group in groups:
        for parameter in group["params"]:
            name, layer = place_in_stack(names[parameter])
            share = group["lr"] if recipe.planned_rates else 1.0
            share = max(share, recipe.floor) * rate_of(name, depth - 1 - layer, depth, recipe)
            decays = parameter.ndim > 1 or recipe.decayed == "all"
            of_plan = planned[names[parameter]]
            decay = (group if recipe.planned_decay else given)["weight_decay"] if decays else 0.0
            if recipe.planned_coupled:  # as large a share of the gradient at every size
                decay = recipe.coupled * gradients[of_plan.name] / of_plan.init
            numbers.setdefault(name, {})[layer] = (
                share,
                group.get("eps", recipe.eps) if recipe.planned_eps else recipe.eps,
                decay,
                of_plan.folded,
                gradients[of_plan.name],
                of_plan.init,
                radius_of(of_plan),
            )
            orthogonal[name] = parameter in muon
    places = {}
    for name, of_layers in numbers.items():
        dims = network.get_parameter(name.replace("blocks.", "blocks.0.")).ndim
        each = torch.tensor([of_layers[layer] for layer in sorted(of_layers)]).unbind(1)
        shaped = (one.view(1, -1, *(1 for _ in range(dims))) for one in each)
        keys = ("rate", "eps", "decay", "unit", "gradient", "weight", "radius")
        shares = dict(zip(keys, shaped, strict=True))
        places[name] = Place(**shares, orthogonal=orthogonal[name])
    return places


def radius_of(planned: Any) -> float:
    """By how much less of its norm a parameter may move along one direction than at the base.

    A step of rank one has its whole norm in one direction, where a hidden matrix of n rows has one
    part in root n. What L branches change adds up, and their multipliers are of 1 / root L.
    """
    within = planned.ratios.depth**-0.5 if planned.role.in_branch else 1.0
    hidden = planned.role.kind is Kind.HIDDEN
    return float(within * (planned.ratios.fan_in**-0.5 if hidden else 1.0))


def rate_of(name: str, above: int, depth: int, recipe: Recipe) -> float:
    """What the recipe multiplies a rate with, so many blocks below the last."""
    place = name.partition(".")[0]
    if place == recipe.frozen:
        return 0.0
    if place == "blocks":
        if recipe.post and ".norm." in name:
            return float((depth / BASE["depth"]) ** recipe.post_rate)
        return float(recipe.layer_decay**above * recipe.relative_decay ** (above / depth))
    if place == "input":
        return float(recipe.layer_decay**depth * recipe.relative_decay * recipe.input_rate)
    return 1.0


def scale_at(recipe: Recipe, at: float, steps: int) -> float:
    """The schedule, ``at`` a share of training."""
    if at < recipe.warmup:
        return (at + 1 / steps) / recipe.warmup
    left = (1 - at) / (1 - recipe.warmup)
    return {
        "linear": left,
        "cosine": (1 - math.cos(math.pi * left)) / 2,
        "constant": 1.0,
        "root": math.sqrt(max(recipe.warmup, 1 / steps) / max(at, 1 / steps)),
        "cooldown": min(1.0, 5 * left),
    }[recipe.schedule]


def ascended(
    values: Values, gradients: Values, places: Mapping[str, Place], recipe: Recipe
) -> Values:
    """The weights moved along the gradient, by a radius or by a share of each one's own norm."""
    each = torch.cat([norms(g).flatten(1) for g in gradients.values()], 1)
    whole = each.norm(dim=1).clamp_min(1e-12)
    moved = {}
    for name, value in values.items():
        at, gradient = value.detach(), gradients[name]
        if recipe.planned_sam:
            radius = places[name].radius if recipe.sam_by_size else 1.0
            far = recipe.planned_sam * radius * norms(at) / norms(gradient).clamp_min(1e-12)
        else:
            far = recipe.sam / whole.view(-1, *(1 for _ in at.shape[1:]))
        moved[name] = (at + far * gradient).requires_grad_()
    return moved


def changed(
    gradients: Values, values: Values, places: Mapping[str, Place], recipe: Recipe
) -> Values:
    """Gradients clipped, disturbed or centred."""
    result = dict(gradients)
    for name, gradient in result.items():
        if recipe.noise:
            size = recipe.noise * norms(gradient) / math.sqrt(gradient[0, 0].numel())
            gradient = gradient + size * torch.randn_like(gradient)
        if recipe.centered and matrix(gradient):
            gradient = gradient - gradient.mean(-1, keepdim=True)
        if recipe.clip_update and matrix(gradient):
            most = recipe.clip_update * norms(values[name])
            if recipe.planned_entries:
                most = most * places[name].gradient / places[name].weight
            gradient = gradient * (most / norms(gradient).clamp_min(1e-12)).clamp_max(1.0)
        if recipe.clip_value:
            most = torch.tensor(recipe.clip_value)
            if recipe.planned_entries:
                most = most * places[name].gradient
            gradient = gradient.clamp(-most, most)
        result[name] = gradient
    if recipe.clip_norm or recipe.planned_clip:
        units = {name: place.unit if recipe.planned_clip else 1.0 for name, place in places.items()}
        each = [(norms(gradient) * units[name]).flatten(1) for name, gradient in result.items()]
        factor = (recipe.clip_norm + recipe.planned_clip) / torch.cat(each, 1).norm(dim=1)
        for name, gradient in result.items():
            shape = (-1, *(1 for _ in gradient.shape[1:]))
            result[name] = gradient * factor.clamp_max(1.0).view(shape)
    return result
