"""Two disputes, decided where two cores can: is it decay, or muP, or the embedding's rate alone?

    python -m studies.disputes --out runs/disputes            # trains; hours; resumes
    python -m studies.disputes --out runs/disputes --table    # of what is there

arXiv 2510.19093 says that after the start it is weight decay, and not muP, that makes rates
transfer; arXiv 2605.21486 that nearly all of muP's advantage under AdamW is the embedding's rate.
A transformer of two blocks reads Python's own modules, 3,000 steps of AdamW at a constant rate
after 50 of warm-up. It has no biases and no gains: only embeddings, hidden matrices and a readout
train, and muP is a start and a rate. So four variants tell one from the other: muP; its start and
one rate for all; its rates and the start of standard practice; standard practice. Decay is absent,
or *coupled* (one number times every group's rate, as in ``torch.optim.AdamW``), or *independent*
(a share of every matrix in each step, whatever the rate).

Expected, before any run: without decay one rate drifts by -0.7 to -1 octaves per doubling at every
length, muP's not. Independent decay takes one rate's drift from -0.7 at 100 steps to nearly 0 at
3,000, as relative updates settle by decay alone. Coupled decay falls with muP's rates, so that
muP's optimum moves up in long training. At width 128 muP's rates on the standard start have 90% of
muP's advantage over standard practice, each at its best rate.
"""

import argparse
import math
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F

import depthmup

WIDTHS, BLOCKS, HEAD = (16, 32, 128), 2, 16
WINDOWS, CONTEXT, HELD_OUT = 8, 16, 256
LENGTHS, WARMUP = (100, 300, 1000, 3000), 50
OCTAVES, SEEDS, LOWEST, MOST = 6, 2, -9, 3
"""Rates, an octave apart, and seeds of a stack; log2 of a first stack's lowest; stacks at most."""

RATES = "hidden.lr+readout.lr"
"""All that muP changes of rates here: beside them stands the embeddings' own."""

VARIANTS = {
    "muP": "depth-mup",
    "muP's start, one rate": f"depth-mup-without-{RATES}",
    "standard start, muP's rates": f"depth-mup-only-{RATES}",
    "standard practice": "sp",
}
ONE_RATE = (VARIANTS["muP's start, one rate"], VARIANTS["standard practice"])


@dataclass(frozen=True, kw_only=True)
class Decay:
    """A share of the rate, or of the weight, that every step takes off."""

    coupled: float = 0.0
    independent: float = 0.0


DECAYS = {
    "none": Decay(),
    "coupled": Decay(coupled=0.1),
    "independent": Decay(independent=1e-3),
}


class Block(nn.Module):
    """Attention, and a network of one hidden layer, behind norms without gains."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.heads, HEAD)
        each = self.qkv(_normed(x)).chunk(3, -1)
        q, k, v = (part.reshape(shape).transpose(-2, -3) for part in each)
        later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
        scores = (_normed(q) @ _normed(k).mT * HEAD**-0.5).masked_fill(later, -math.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2))
        result: Tensor = x + self.down(self.up(_normed(x)).relu())
        return result


def _normed(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])


class Transformer(nn.Module):
    """Bytes and places in, logits of the next byte out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(BLOCKS)))
        self.readout = nn.Linear(width, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[-1]))
        result: Tensor = self.readout(_normed(self.blocks(h)))
        return result


@cache
def _text() -> Tensor:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    whole = bytearray().join(file.read_bytes() for file in files)
    return torch.frombuffer(whole, dtype=torch.uint8)


def windows(text: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Windows of bytes with the one that follows."""
    first = torch.randint(len(text) - CONTEXT, (count, 1), generator=generator)
    return text[first + torch.arange(CONTEXT + 1)].long()


def trained(scheme: str, decay: str, width: int, rates: Sequence[float]) -> Tensor:
    """Held-out losses at all lengths, (rates, seeds, lengths), of copies trained as one stack."""
    text = _text()
    first, last = text[: -len(text) // 10], text[-len(text) // 10 :]
    seeds = range(SEEDS)
    networks, plans = zip(*(initialized(scheme, width, seed) for seed in seeds), strict=True)
    of_seeds, _ = stack_module_state(list(networks))
    values = {name: _copies(each, len(rates)).requires_grad_() for name, each in of_seeds.items()}
    given = DECAYS[decay]
    optimizer = optimizer_of(values, plans[0], given, rates)

    def cost(copy: dict[str, Tensor], drawn: Tensor) -> Tensor:
        logits = functional_call(networks[0], copy, (drawn[:, :-1],))
        return F.cross_entropy(logits.flatten(0, 1), drawn[:, 1:].flatten())

    costs = torch.vmap(cost)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    held_out = windows(last, HELD_OUT, torch.Generator().manual_seed(0))
    found = []
    for step in range(max(LENGTHS)):
        drawn = torch.stack([windows(first, WINDOWS, generator) for generator in generators])
        losses = costs(values, drawn.repeat(len(rates), 1, 1))
        gradients = torch.autograd.grad(losses.sum(), list(values.values()))
        factor = min(1.0, (step + 1) / WARMUP)
        with torch.no_grad():
            if given.independent:
                for value in values.values():
                    value.mul_(1 - given.independent * factor)
            step_of(optimizer, gradients, factor)
            if step + 1 in LENGTHS:
                copies = (len(rates) * SEEDS, -1, -1)
                each = [costs(values, part.expand(copies)) for part in held_out.split(16)]
                found.append(torch.stack(each).mean(0).view(len(rates), SEEDS))
    return torch.stack(found, -1)


def initialized(scheme: str, width: int, seed: int) -> tuple[Transformer, Any]:
    """A network as its plan starts it."""
    torch.manual_seed(seed)
    network, base = Transformer(width), Transformer(WIDTHS[0])
    plan = depthmup.plan(
        network,
        base,
        scheme=scheme,
        optimizer="adamw",
        example_inputs=torch.zeros(1, CONTEXT, dtype=torch.long),
        proof="off",
    )
    plan.initialize(network)
    return network, plan


def _copies(of_seeds: Tensor, rates: int) -> Tensor:
    return of_seeds.detach().repeat(rates, *(1 for _ in of_seeds.shape[1:]))


def optimizer_of(
    values: Mapping[str, Tensor], plan: Any, given: Decay, rates: Sequence[float]
) -> torch.optim.AdamW:
    """AdamW with a group for each parameter of each copy, whose rate is the plan's."""
    planned = {p.name: p for p in plan.prescriptions}
    groups = [
        {
            "params": [copy],
            "lr": rate * planned[name].lr,
            "eps": 1e-10 * planned[name].epsilon,
            "weight_decay": given.coupled,
        }
        for name, value in values.items()
        for copy, rate in zip(value.detach(), np.repeat(rates, SEEDS).tolist(), strict=True)
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def step_of(optimizer: torch.optim.AdamW, gradients: Sequence[Tensor], factor: float) -> None:
    """One step of all copies, at a factor on every rate."""
    of_copies = [copy for gradient in gradients for copy in gradient]
    for group, gradient in zip(optimizer.param_groups, of_copies, strict=True):
        group["params"][0].grad = gradient.contiguous()  # fused steps read memory in order
        group["lr"] = factor * group.setdefault("planned_lr", group["lr"])
    optimizer.step()


def measured(out: Path, scheme: str, decay: str, width: int) -> pd.DataFrame:
    """The runs of one size, of as many stacks as bracket the best rate at every length."""
    low = LOWEST - (math.ceil(math.log2(width / WIDTHS[0]) / 2) if scheme in ONE_RATE else 0)
    frame = _stack(out, scheme, decay, width, low)
    for _ in range(MOST - 1):
        means = frame.groupby(["steps", "lr"])["loss"].mean().unstack().fillna(math.inf)
        best, ends = means.idxmin(axis=1), (frame["lr"].min(), frame["lr"].max())
        below, above = (bool((best == end).any()) for end in ends)
        if not below and not above:
            break
        low = round(math.log2(ends[0])) - OCTAVES if below else round(math.log2(ends[1])) + 1
        frame = pd.concat([frame, _stack(out, scheme, decay, width, low)])
    return frame


def _stack(out: Path, scheme: str, decay: str, width: int, low: int) -> pd.DataFrame:
    """One stack's runs, trained where the folder has none."""
    path = out / f"{scheme}-{decay}-{width}-{low}.csv"
    if not path.exists():
        begun = time.monotonic()
        rates = [2.0 ** (low + octave) for octave in range(OCTAVES)]
        losses = trained(scheme, decay, width, rates)
        rows = [
            {"width": width, "lr": rate, "seed": seed, "steps": length, "loss": loss}
            for rate, of_seeds in zip(rates, losses.tolist(), strict=True)
            for seed, of_lengths in enumerate(of_seeds)
            for length, loss in zip(LENGTHS, of_lengths, strict=True)
        ]
        out.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        pd.DataFrame(rows).to_csv(draft, index=False)
        draft.replace(path)
        print(f"{path.stem}: {time.monotonic() - begun:.0f} s", flush=True)
    return pd.read_csv(path)


def runs(out: Path, decay: str, variant: str) -> pd.DataFrame:
    """What the folder has of a variant; at the base of muP, as all are one network there."""
    frames = []
    for width in WIDTHS:
        scheme = VARIANTS["muP" if width == WIDTHS[0] else variant]
        paths = sorted(out.glob(f"{scheme}-{decay}-{width}-*.csv"))
        frames += [pd.read_csv(path) for path in paths]
    whole = frames and frames[-1]["width"].iloc[0] == WIDTHS[-1]
    return pd.concat(frames).assign(variant=variant) if whole else pd.DataFrame()


def drift(frame: pd.DataFrame) -> str:
    """Of the best rate along width, in octaves per doubling."""
    found = depthmup.fit(frame, axes=["width"], lr="lr", loss="loss", seed="seed").drift
    return f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def gain(frame: pd.DataFrame, over: pd.DataFrame) -> str:
    """Of the largest network's loss, each at its own best rate, in percent of ``over``'s."""
    both = pd.concat([frame, over])
    report = depthmup.fit(
        both,
        axes=["width"],
        lr="lr",
        loss="loss",
        seed="seed",
        by="variant",
        over=over["variant"].iloc[0],
    )
    last = report.to_pandas("gains").iloc[-1]
    # The gain is the better one's over the other.
    sign = 1 if frame["variant"].iloc[0] in last["of"] else -1
    ends = sorted(sign * last[name] for name in ("tuned_low", "tuned_high"))
    return f"{sign * last['tuned']:+.1%} ({ends[0]:+.1%} to {ends[1]:+.1%})"


def tables(out: Path) -> str:
    """Drifts along width; and gains over standard practice at the largest."""
    names = list(VARIANTS)
    plain = names[-1]
    drifts = [_line("decay", "steps", *names), "| --- | ---: |" + " ---: |" * len(names)]
    gains = [_line("decay", "steps", *names[:-1]), "| --- | ---: |" + " ---: |" * len(names[:-1])]
    for decay in DECAYS:
        frames = {name: runs(out, decay, name) for name in names}
        for length in LENGTHS:
            of = {
                name: frame[frame["steps"] == length].drop(columns="steps")
                for name, frame in frames.items()
                if len(frame)
            }
            cells = (drift(of[name]) if name in of else "" for name in names)
            drifts.append(_line(decay, length, *cells))
            both = {name: frame for name, frame in of.items() if plain in of}
            cells = (gain(both[name], of[plain]) if name in both else "" for name in names[:-1])
            gains.append(_line(decay, length, *cells))
    return "\n".join([*drifts, "", *gains])


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Train what is missing, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--decays", nargs="+", choices=DECAYS, default=list(DECAYS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--table", action="store_true", help="print what was found")
    options = parser.parse_args()
    if options.table:
        print(tables(options.out))
        return
    for decay in options.decays:
        for variant in options.variants:
            for width in WIDTHS:
                at = VARIANTS["muP" if width == WIDTHS[0] else variant]
                measured(options.out, at, decay, width)


if __name__ == "__main__":
    main()
