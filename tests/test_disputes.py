"""studies.disputes: copies of a stack train as PyTorch's own module and optimizer do."""

import pytest
import torch
from torch.nn import functional as F

from studies import disputes

STEPS, WIDTH, RATES = 4, 32, (2.0**-7, 2.0**-5)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(disputes, "LENGTHS", (2, STEPS))
    monkeypatch.setattr(disputes, "WARMUP", 3)
    monkeypatch.setattr(disputes, "HELD_OUT", 16)


def alone(scheme, decay, rate, seed):
    """One network by its plan's own groups and torch's optimizer, and its held-out loss."""
    network, plan = disputes.initialized(scheme, WIDTH, seed)
    given = disputes.DECAYS[decay]
    # One number of decay for all groups, as AdamW has where nobody plans.
    groups = plan.param_groups(network, lr=rate, eps=1e-10)
    groups = [{**group, "weight_decay": given.coupled} for group in groups]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=False)
    planned = [group["lr"] for group in optimizer.param_groups]
    text, generator = disputes._text(), torch.Generator().manual_seed(seed)
    cut = -len(text) // 10
    found = []

    def cost(drawn):
        logits = network(drawn[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), drawn[:, 1:].flatten())

    for step in range(STEPS):
        network.zero_grad()
        cost(disputes.windows(text[:cut], disputes.WINDOWS, generator)).backward()
        factor = min(1.0, (step + 1) / disputes.WARMUP)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(1 - given.independent * factor)
        for group, lr in zip(optimizer.param_groups, planned, strict=True):
            group["lr"] = lr * factor
        optimizer.step()
        if step + 1 in disputes.LENGTHS:
            generator_of = torch.Generator().manual_seed(0)
            found.append(cost(disputes.windows(text[cut:], disputes.HELD_OUT, generator_of)).item())
    return found


@pytest.mark.parametrize(
    ("variant", "decay"),
    [
        ("muP", "coupled"),
        ("muP's start, one rate", "independent"),
        ("standard start, muP's rates", "none"),
        ("standard practice", "coupled"),
    ],
)
def test_a_copy_of_a_stack_trains_as_it_would_alone(variant, decay):
    scheme = disputes.VARIANTS[variant]
    stack = disputes.trained(scheme, decay, WIDTH, RATES)
    for i, rate in enumerate(RATES):
        for seed in range(disputes.SEEDS):
            own = torch.tensor(alone(scheme, decay, rate, seed))
            torch.testing.assert_close(stack[i, seed], own, rtol=2e-5, atol=2e-5)


def test_variants_have_the_rates_and_starts_that_their_names_say():
    at = {}
    for name, scheme in disputes.VARIANTS.items():
        _, plan = disputes.initialized(scheme, 64, 0)
        hidden, readout, tokens = (
            next(p for p in plan.prescriptions if part in p.name)
            for part in ("qkv", "readout", "tokens")
        )
        at[name] = (hidden.lr, readout.lr, tokens.lr), readout.init
    # 64 is four times the base; a readout starts at 1/width under muP, at 1/sqrt(width) without.
    assert at == {
        "muP": ((0.25, 0.25, 1.0), 0.25),
        "muP's start, one rate": ((1.0, 1.0, 1.0), 0.25),
        "standard start, muP's rates": ((0.25, 0.25, 1.0), 0.5),
        "standard practice": ((1.0, 1.0, 1.0), 0.5),
    }
