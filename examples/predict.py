"""Predict where the best learning rate of SGD moves with depth, then train a little and look.

    python examples/predict.py
    depthmup predict --model examples/predict.py:make --base 128x4 --depths 8 16 --scheme 1/2,0

The scheme (1/2, 0) forgets to lower the learning rate with depth, Depth-muP does not. Both are
predicted from the sharpness at initialization; a few steps at a few learning rates check it.
"""

import torch
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.model import Model

BASE, DEPTHS = (128, 4), (4, 8, 16)
OWN_INIT = "fan_in"


class Branch(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x).relu()
        return y - y.mean(-1, keepdim=True)


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.branch = Branch(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(x)


def make(width: int, depth: int) -> nn.Module:
    first, last = nn.Linear(16, width, bias=False), nn.Linear(width, 4, bias=False)
    for frozen in (first, last):
        frozen.requires_grad_(False)
    return nn.Sequential(first, *(Block(width) for _ in range(depth)), last)


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of four inputs is the largest."""
    x = torch.randn(64, 16, generator=generator)
    return x, x[:, :4].argmax(-1)


def measured(depth: int, scheme: str, log2_lrs: list[float], steps: int = 20) -> float:
    """The log2 of the learning rate, at the base's size, that is best after a few steps."""
    losses = {}
    for rate in log2_lrs:
        generator = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        base, model = make(*BASE), make(BASE[0], depth)
        plan = depthmup.plan(
            model, base=base, scheme=scheme, optimizer="sgd", own_init=OWN_INIT,
            example_inputs=torch.zeros(1, 16),
        )  # fmt: skip
        plan.initialize(model)
        optimizer = torch.optim.SGD(plan.param_groups(model, lr=2.0**rate))
        for _ in range(steps):
            x, y = batch(generator)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[rate] = loss.item() if torch.isfinite(loss) else float("inf")
    return min(losses, key=lambda rate: losses[rate])


def main(log2_lrs: list[float] | None = None) -> dict[str, float]:
    drifts = {}
    for scheme in ("depth-mup", "1/2,0"):
        prediction = depthmup.predict(
            Model(make=make, batch=batch), base=BASE, depths=DEPTHS, scheme=scheme,
            plan_options={"own_init": OWN_INIT},
        )  # fmt: skip
        drift = prediction.drift("depth")
        drifts[scheme] = drift.value
        print(f"{prediction.scheme}: predicted {drift.value:+.2f} octaves per doubling of depth")
        grid = log2_lrs or [k / 2 for k in range(-12, 5)]
        best = {depth: measured(depth, scheme, grid) for depth in (DEPTHS[0], DEPTHS[-1])}
        moved = (best[DEPTHS[-1]] - best[DEPTHS[0]]) / 2
        print(f"    after 20 steps, to half an octave: {moved:+.2f}")
    return drifts


if __name__ == "__main__":
    main()
