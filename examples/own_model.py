"""Tune a small residual network, then train a wide and deep one with what was found.

    python examples/own_model.py
    depthmup plan --model examples/own_model.py:make --base 32x2 --target 128x16

Nothing in the model knows of any scaling rule. Four learning rates are tried at width 32, depth 2;
the best one is used as it is at width 128, depth 16, with a plan and without.
"""

import torch
from torch import nn
from torch.nn import functional as F

import depthmup

BASE, TARGET = (32, 2), (128, 16)
RATES = [2.0**-k for k in (4, 6, 8, 10)]


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.relu(self.up(self.norm(x))))


def make(width: int, depth: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, width),
        *(Block(width) for _ in range(depth)),
        nn.LayerNorm(width),
        nn.Linear(width, 4),
    )


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A classification task with a rule to learn: which pair of inputs has the largest product."""
    x = torch.randn(128, 16, generator=generator)
    return x, (x[:, :4] * x[:, 4:8]).argmax(-1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    """The mean loss of the last quarter of training."""
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        x, y = batch(generator)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-steps // 4 :]) / len(losses[-steps // 4 :])


def main(steps: int = 200) -> dict[str, float]:
    x, _ = batch(torch.Generator().manual_seed(0))

    found = {}
    for lr in RATES:
        torch.manual_seed(0)
        small = make(*BASE)
        found[lr] = train(small, torch.optim.AdamW(small.parameters(), lr=lr), steps)
        print(f"width {BASE[0]}, depth {BASE[1]}, lr {lr:.4f}: loss {found[lr]:.4f}")
    best = min(found, key=lambda rate: found[rate])

    torch.manual_seed(0)
    base, model = make(*BASE), make(*TARGET)
    plan = depthmup.plan(model, base=base, scheme="completep", optimizer="adamw", example_inputs=x)
    print(plan)
    print(plan.explain("3.down.weight"), "\n")
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=best), lr=best)
    planned = train(model, optimizer, steps)

    torch.manual_seed(0)
    plain = make(*TARGET)
    unplanned = train(plain, torch.optim.AdamW(plain.parameters(), lr=best), steps)
    print(f"width {TARGET[0]}, depth {TARGET[1]}, lr {best:.4f} with the plan: loss {planned:.4f}")
    print(f"the same without: loss {unplanned:.4f}")
    return {"small": found[best], "planned": planned, "plain": unplanned}


if __name__ == "__main__":
    main()
