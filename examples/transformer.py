r"""A transformer that reads Python: real text from this machine, no download.

    python examples/transformer.py
    depthmup plan --model examples/transformer.py:make --base 64x2 --target 256x16
    depthmup check --model examples/transformer.py:make --scheme completep \
        --widths 32 64 128 --depths 2 4 8

A network of width 128 and 8 layers is trained with a learning rate that suits width 32 and two
layers, with a plan and without.
"""

import sysconfig
from pathlib import Path

import torch
from torch.nn import functional as F

import depthmup
from depthmup.models import Transformer, TransformerConfig

# The bytes of Python's own modules: 256 tokens, of which the last tenth is held out.
MODULES = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
TEXT = torch.frombuffer(bytearray().join(path.read_bytes() for path in MODULES), dtype=torch.uint8)
TRAIN, HELD_OUT = TEXT[: -len(TEXT) // 10], TEXT[-len(TEXT) // 10 :]
BASE, TARGET, RATE = (32, 2), (128, 8), 2.0**-6


def make(width: int, depth: int) -> Transformer:
    return Transformer(
        TransformerConfig(
            vocabulary=256,
            width=width,
            depth=depth,
            head_size=16,  # wider networks have more heads
            norm="rms",
            qk_norm=True,
            positions="rotary",
            mlp="swiglu",
            expansion=3,
        )
    )


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return windows(TRAIN, 16, generator)


def windows(
    text: torch.Tensor, count: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of 64 bytes, and the same windows one byte later."""
    first = torch.randint(len(text) - 64, (count, 1), generator=generator)
    drawn = text[first + torch.arange(65)].long()
    return drawn[:, :-1], drawn[:, 1:]


def cost(model: Transformer, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Nats per byte."""
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def train(model: Transformer, optimizer: torch.optim.Optimizer, steps: int) -> float:
    """The validation loss after training."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        loss = cost(model, *batch(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held_out = windows(HELD_OUT, 256, torch.Generator().manual_seed(2))
        return cost(model, *held_out).item()


def main(steps: int = 100) -> dict[str, float]:
    torch.manual_seed(0)
    base, model, plain = make(*BASE), make(*TARGET), make(*TARGET)
    inputs, _ = batch(torch.Generator().manual_seed(0))
    plan = depthmup.plan(
        model, base=base, scheme="completep", optimizer="adamw", example_inputs=inputs
    )
    plan.initialize(model)
    done = {
        "small": train(base, torch.optim.AdamW(base.parameters(), lr=RATE), steps),
        "planned": train(model, torch.optim.AdamW(plan.param_groups(model, lr=RATE)), steps),
        "plain": train(plain, torch.optim.AdamW(plain.parameters(), lr=RATE), steps),
    }
    for name, loss in done.items():
        print(f"{name:8} validation loss {loss:.3f} nats per byte")
    return done


if __name__ == "__main__":
    main()
