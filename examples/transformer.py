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
from torch import nn
from torch.nn import functional as F

import depthmup

# The bytes of Python's own modules: 256 tokens, of which the last tenth is held out.
MODULES = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
TEXT = torch.frombuffer(bytearray().join(path.read_bytes() for path in MODULES), dtype=torch.uint8)
TRAIN, HELD_OUT = TEXT[: -len(TEXT) // 10], TEXT[-len(TEXT) // 10 :]
BASE, TARGET, RATE = (32, 2), (128, 8), 2.0**-6


class Layer(nn.Module):
    """x <- x + attention(norm(x));  x <- x + swiglu(norm(x))."""

    def __init__(self, width: int, head: int = 16) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.query_norm, self.key_norm = nn.RMSNorm(head), nn.RMSNorm(head)
        self.up, self.gate = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.head = head  # wider networks have more heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.attention_norm(x)
        # (B, T, n) -> (B, heads, T, head)
        q, k, v = (
            made(u).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for made in (self.query, self.key, self.value)
        )
        q, k = rotated(self.query_norm(q)), rotated(self.key_norm(k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).flatten(-2))
        u = self.mlp_norm(x)
        done: torch.Tensor = x + self.down(F.silu(self.gate(u)) * self.up(u))
        return done


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Positions as rotations: the pairs (i, i + head/2) of (B, heads, T, head) turn with T."""
    first, second = x.chunk(2, -1)
    pairs = torch.arange(first.shape[-1], device=x.device)
    frequencies = 10_000.0 ** (-pairs / len(pairs))
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Transformer(nn.Module):
    """x = embed(tokens);  the layers;  logits = readout(norm(x))."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)))
        self.norm, self.readout = nn.RMSNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.readout(self.norm(self.layers(self.tokens(tokens))))
        return logits


def make(width: int, depth: int) -> Transformer:
    return Transformer(width, depth)


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
