"""A training script of its own that takes a scheme: it plans itself, and depthmup runs it.

    depthmup transfer --command 'python examples/planned_script.py --lr {lr} --width {width}
        --depth {depth} --base-width {base_width} --base-depth {base_depth} --scheme {scheme}
        --seed {seed} --out {out}' --loss '{out}/log.csv:loss' --base 32x2 --depths 2,4,8
        --schemes sp completep --out runs/planned
"""

import argparse
import csv

import torch
from torch.nn import functional as F

import depthmup
from own_model import batch, make  # beside this file; stands for your own code


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (("lr", float), ("seed", int), ("scheme", str), ("out", str)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    for name in ("width", "depth", "base-width", "base-depth"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    base, model = make(args.base_width, args.base_depth), make(args.width, args.depth)
    x, _ = batch(torch.Generator().manual_seed(0))
    plan = depthmup.plan(
        model, base=base, scheme=args.scheme, optimizer="adamw", example_inputs=x
    )
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=args.lr), lr=args.lr)

    generator = torch.Generator().manual_seed(args.seed)
    with open(f"{args.out}/log.csv", "w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["step", "loss"])
        for step in range(1, 101):
            x, y = batch(generator)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.writerow([step, loss.item()])


if __name__ == "__main__":
    main()
