"""Plans of models on CUDA devices, which ``simulated_cuda`` simulates: the CPU's numbers."""

from functools import partial

import own_models
import pytest
import torch
from pytest import approx
from simulated_cuda import machine, plain
from torch import nn
from torch.nn.functional import cross_entropy

import depthmup
from depthmup.planning import recorded

WIDE, BASE = (64, 8), (16, 2)


def small(size):
    torch.manual_seed(0)
    return own_models.make(*size)


def data():
    return own_models.batch(torch.Generator().manual_seed(0))


def planned(on="cpu", base="cpu", inputs="cpu", **options):
    network = small(WIDE).to(on)
    # The proof reads what it measures: it is of the models, and not of their weights.
    options = {"scheme": "completep", "own_init": "fan_in", "proof": "off", **options}
    x = data()[0].to(inputs)
    return network, depthmup.plan(network, base=small(BASE).to(base), example_inputs=x, **options)


def weights(network):
    return [plain(p.detach()) for p in network.parameters()]


def initialized(network, plan):
    plan.initialize(network)
    return weights(network)


@pytest.mark.long
@pytest.mark.parametrize("inputs", ["cpu", "cuda"])
@pytest.mark.parametrize("base", ["cpu", "cuda", "meta"])
@pytest.mark.parametrize("on", ["cuda", "cuda:1"])
def test_weights_have_the_bits_of_the_cpu(on, base, inputs):
    expected = initialized(*planned())
    with machine(gpus=2) as simulated:
        found = initialized(*planned(on, base, inputs))
    assert simulated.counts["to host"] == 0
    assert all(map(torch.equal, found, expected))


def test_a_model_planned_without_memory_is_made_on_a_gpu():
    expected = initialized(*planned())
    with machine():
        with torch.device("meta"):
            network, base = own_models.make(*WIDE), own_models.make(*BASE)
            inputs = torch.empty(32, 16)
        options = {"scheme": "completep", "own_init": "fan_in"}
        plan = depthmup.plan(network, base=base, example_inputs=inputs, **options)
        torch.manual_seed(0)
        network = network.to_empty(device="cuda")
        for module in network.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        found = initialized(network, plan)
    # Drawn by the GPU's own generator: the same spread, other numbers.
    for one, other in zip(found, expected, strict=True):
        assert one.std().item() == approx(other.std().item(), rel=4 / one.numel() ** 0.5)


def odd(width, depth):
    """A model that draws its weights in its own way, by tensors on its device."""
    network = own_models.make(width, depth)
    half, ramp = torch.tensor(0.5), torch.linspace(0.1, 1, width)
    with torch.no_grad():
        for block in network[1:-1]:
            block.branch.weight.normal_().mul_(half).mul_(width**-0.5)
        network[0].weight.copy_(ramp[:, None].expand(-1, 16)).mul_(2).add_(0.1)
        nn.init.trunc_normal_(network[-1].weight, std=0.02)
    return network


def test_what_a_factory_draws_on_a_gpu_is_recorded():
    x = data()[0]

    def stds():
        (network, drawn), (base, of_base) = (
            recorded(lambda size=size: odd(*size)) for size in (WIDE, BASE)
        )
        inputs = x.to(network[0].weight.device)
        plan = depthmup.plan(network, base=base, example_inputs=inputs, drawn=(drawn, of_base))
        return {p.name: p.init for p in plan.prescriptions}

    expected = stds()
    with machine(), torch.device("cuda"):
        assert stds() == expected


def trained(optimizer, on="cpu", *, watched=False, rescaled=False, waits=lambda: 0, **settings):
    """Losses and gradient norms of a few steps, and how often the optimizers waited."""
    network, plan = planned(on, optimizer=optimizer)
    plan.initialize(network)
    x, y = (tensor.to(on) for tensor in data())
    if optimizer == "muon":
        groups = plan.muon_groups(network, lr=0.01, adamw_lr=0.001)
        optimizers = [
            torch.optim.Muon(groups.muon, lr=0.01),
            torch.optim.AdamW(groups.adamw, lr=0.001, **settings),
        ]
    elif rescaled:
        optimizers = [torch.optim.AdamW(network.parameters(), lr=0.01, **settings)]
        plan.rescale(network, optimizers[0])
    else:
        optimizers = [torch.optim.AdamW(plan.param_groups(network, lr=0.01), lr=0.01, **settings)]
    plan.verify(network, optimizers)
    if watched:
        plan.watch(network, optimizers)
    losses, waited = [], 0
    for _ in range(4):
        loss = cross_entropy(network(x), y)
        network.zero_grad()
        loss.backward()
        before = waits()
        norm = plan.clip_grad_norm_(network, 1.0)
        for each in optimizers:
            each.step()
        waited += waits() - before
        losses += [plain(loss.detach()).item(), plain(norm).item()]
    return losses, waited


@pytest.mark.long
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("adamw", {"foreach": True, "watched": True}),
        ("adamw", {"fused": True, "watched": True}),
        ("adamw", {"foreach": True, "rescaled": True}),
        ("adamw", {"fused": True, "rescaled": True}),
        ("muon", {}),
        ("muon", {"fused": True}),
    ],
    ids=str,
)
def test_training_has_the_numbers_of_the_cpu_and_never_waits(optimizer, settings):
    expected, _ = trained(optimizer, **settings)
    with machine(gpus=2) as simulated:
        waits = partial(simulated.counts.__getitem__, "waits")
        found, waited = trained(optimizer, "cuda:1", waits=waits, **settings)
    assert found == approx(expected, rel=1e-5)
    assert simulated.touched == {1}
    assert waited == 0 or settings.get("watched")


def test_an_exported_model_stays_on_its_gpu_and_computes_the_same():
    with machine():
        network, plan = planned("cuda", "cpu", "cuda")
        plan.initialize(network)
        exported = plan.export(network)
        x = data()[0].cuda()
        assert torch.allclose(plain(exported(x)), plain(network(x)), rtol=1e-5)
        assert {str(p.device) for p in exported.parameters()} == {"cuda:0"}


def test_layers_on_two_gpus_are_clipped_by_one_norm():
    def clipped(places):
        network, plan = planned()
        for layer, place in zip(network, places, strict=True):
            layer.to(place)
        plan.initialize(network)
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        norm = plan.clip_grad_norm_(network, 1.0)
        return [plain(norm).item(), *(plain(p.grad).max().item() for p in network.parameters())]

    expected = clipped(["cpu"] * 10)
    with machine(gpus=2):
        assert clipped(["cuda:0"] * 5 + ["cuda:1"] * 5) == approx(expected, rel=1e-6)
