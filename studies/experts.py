"""Mixtures of experts, measured: the coordinate check along the number of experts, and transfer.

    python -m studies.experts check         # the first table of docs/studies/experts.md
    python -m studies.experts transfer OUT  # the second: what OUT does not hold yet is trained

Transfer is measured on bytes of Python's standard library, of which the next one is predicted from
the last eight by two layers of experts, and on sums of products of random numbers.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import depthmup
from depthmup.diagnostics import check, planned
from depthmup.model import Model
from depthmup.planning import Plan
from depthmup.records import Check, Transfer, environment
from reproduction.claims.decoders import python_text

SHOWN = ("stream change", "branch change", "logits change", "update effect", "entry update")


class Experts(nn.Module):
    """x + the weighted mean of K of E experts, all in two tensors; each runs on everything."""

    def __init__(self, width: int, experts: int, active: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        chances = self.router(y).softmax(-1)
        largest, which = chances.topk(self.active, -1)
        weights = torch.zeros_like(chances).scatter(-1, which, largest / largest.sum(-1, True))
        hidden = torch.einsum("bn,enm->ebm", y, self.up).relu()
        return x + torch.einsum("be,ebm,emn->bn", weights, hidden, self.down)


def make(width: int, depth: int, experts: int, share: int, expert_width: int) -> nn.Module:
    """``share`` of every 8 experts are active."""
    active = experts * share // 8
    layers = (Experts(width, experts, active, expert_width) for _ in range(depth))
    return nn.Sequential(nn.Linear(16, width), *layers, nn.LayerNorm(width), nn.Linear(width, 8))


def batch(generator: torch.Generator, batch: int = 64) -> tuple[Tensor, Tensor]:
    """Which of 8 sums of two products of inputs is the largest."""
    x = torch.randn(batch, 16, generator=generator)
    pairs = x * x.roll(1, -1)
    return x, (pairs[:, :8] + pairs[:, 8:]).argmax(-1)


def too_fast(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """A planted mistake: routers and experts learn E times as fast."""
    (mixture,) = plan.mixtures
    optimizers = planned(model, plan, lr)
    names = {id(p): name for name, p in model.named_parameters()}
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if any(plan[names[id(p)]].role.part for p in group["params"]):
            group["lr"] *= mixture.experts / mixture.base_experts
    return optimizers


def small(width: int, depth: int, experts: int) -> nn.Module:
    return make(width, depth, experts, 4, width)


def decoder(kind: str) -> Callable[[int, int, int], nn.Module]:
    """A decoder of transformers, of whose experts one half is active."""
    import transformers

    transformers.logging.set_verbosity_error()

    def build(width: int, depth: int, experts: int) -> nn.Module:
        number, inner = {
            "Mixtral": ("num_local_experts", "intermediate_size"),
            "Qwen3Moe": ("num_experts", "moe_intermediate_size"),
        }[kind]
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=64, use_cache=False, hidden_size=width, num_hidden_layers=depth,
            num_attention_heads=width // 8, num_key_value_heads=width // 16, head_dim=8,
            num_experts_per_tok=experts // 2, bos_token_id=0, eos_token_id=0,
            **{number: experts, inner: width},
        )  # fmt: skip
        model: nn.Module = getattr(transformers, f"{kind}ForCausalLM")(config)
        return model

    return build


def text(generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    ids = torch.randint(0, 64, (4, 16), generator=generator)
    return {"input_ids": ids}, ids


def next_token(output: Any, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def checked(model: Model, **options: Any) -> Check:
    return check(
        model, scheme="completep+moe", widths=(32,), depths=(2,),
        experts=(4, 8, 16, 32), seeds=3, steps=4, **options,
    )  # fmt: skip


def checks() -> None:
    print("| model | plan | " + " | ".join(SHOWN) + " | outcome |")
    print("| --- " * (len(SHOWN) + 3) + "|")
    own = Model(small, batch=batch, version="1")
    cases: list[tuple[str, str, Model, dict[str, Any]]] = [
        ("experts in tensors", "applied", own, {}),
        ("experts in tensors", "rates times E", own, {"prepare": too_fast}),
    ]
    for kind in ("Mixtral", "Qwen3Moe"):
        model = Model(decoder(kind), batch=text, loss=next_token, version="1")
        cases.append((kind, "applied", model, {}))
        cases.append((kind, "rates times E", model, {"prepare": too_fast}))
    for title, plan, model, options in cases:
        result = checked(model, **options)
        print(f"| {title} | {plan} | {' | '.join(map(result_of(result), SHOWN))} "
              f"| {result.outcome} |")  # fmt: skip


def result_of(result: Check) -> Callable[[str], str]:
    """The exponents of one observable that are judged: the smallest and the largest."""

    def cell(observable: str) -> str:
        judged = [
            e.estimate.value
            for e in result.exponents
            if e.observable == observable and e.outcome != "shown"
        ]
        if not judged:
            return ""
        low, high = min(judged), max(judged)
        return f"{low:+.2f}" if low == high else f"{low:+.2f} to {high:+.2f}"

    return cell


CONTEXT, BYTES = 8, 256
STACKED = depthmup.Execution(executor="in-process", workers=1, engine="stacked")


class Bytes(nn.Module):
    """A table for each of the last bytes, layers of experts, and a readout."""

    def __init__(self, width: int, depth: int, experts: int, share: int, expert_width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CONTEXT * BYTES, width)
        active = experts * share // 8
        self.layers = nn.Sequential(
            *(Experts(width, experts, active, expert_width) for _ in range(depth))
        )
        self.norm, self.readout = nn.LayerNorm(width), nn.Linear(width, BYTES, bias=False)
        # Every byte of the context adds one row.
        nn.init.normal_(self.embedding.weight, std=CONTEXT**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.readout(self.norm(self.layers(self.embedding(x).sum(-2))))
        return logits


def following(generator: torch.Generator, batch: int = 64) -> tuple[Tensor, Tensor]:
    """Eight bytes of Python, each in the table of its position, and the one behind them."""
    read, ahead = python_text().batch(generator, batch, CONTEXT)
    return read + BYTES * torch.arange(CONTEXT), ahead[:, -1]


def alike(depth: int, scale: int) -> nn.Module:
    """Network, experts and their number grow alike."""
    return Bytes(16 * scale, depth, 8 * scale, 4, 16 * scale)


def narrow(depth: int, scale: int) -> nn.Module:
    """Network and number of experts grow alike, each expert is as narrow as it was."""
    return Bytes(16 * scale, depth, 8 * scale, 4, 16)


SIZES = {"width": 32, "depth": 2, "experts": 8, "share": 4, "expert_width": 32}
FOUND = depthmup.Auto(start=2.0**-7)
GRID = tuple(2.0 ** (-k / 2) for k in range(13, 5, -1))


@dataclass(frozen=True, kw_only=True)
class Question:
    """What grows, from which base, and the schemes that are judged: ``sp`` has no factor for
    anything. ``completep`` knows no factor for active experts, and refuses more experts.

    Where all of them grow alike, ``moe`` and ``mssp`` differ in the router's start alone, so that
    one of them is trained.
    """

    title: str
    axis: str
    sizes: tuple[int, ...]
    schemes: tuple[str, ...]
    factory: Callable[..., nn.Module] = Bytes
    base: Mapping[str, int] = field(default_factory=SIZES.copy)
    rates: depthmup.Auto | tuple[float, ...] = FOUND

    @property
    def design(self) -> depthmup.Design:
        return depthmup.Design(
            base={**self.base, self.axis: self.sizes[0]}, arms={self.axis: self.sizes},
            schemes=self.schemes, optimizers="adamw", seeds=6, steps=300, lrs=self.rates,
            settings={"schedule": "linear", "warmup": 0.1},
        )  # fmt: skip


QUESTIONS = (
    # Every rate under every seed, over a factor of eight, tells a drift from a tolerance of 0.15.
    Question(title="expert width (a grid)", axis="expert_width", sizes=(16, 32, 64, 128),
             schemes=("completep+moe", "completep"), rates=GRID),
    Question(title="experts, half of them active", axis="experts", sizes=(8, 16, 32),
             schemes=("completep+moe", "sp")),
    Question(title="experts, half of them active; sums of products", axis="experts",
             sizes=(8, 16, 32), factory=make, schemes=("completep+moe", "sp")),
    Question(title="expert width", axis="expert_width", sizes=(32, 64, 128),
             schemes=("completep+moe", "completep", "sp")),
    Question(title="active experts of 8", axis="share", sizes=(1, 2, 4), schemes=("completep",)),
    Question(title="width, expert width and experts alike", axis="scale", sizes=(1, 2, 4),
             factory=alike, base={"depth": 2}, schemes=("completep+mssp", "sp")),
    Question(title="width and experts alike, narrow experts", axis="scale", sizes=(1, 2, 4),
             factory=narrow, base={"depth": 2}, schemes=("completep+mssp-small", "sp")),
)  # fmt: skip


def transfers(out: Path) -> None:
    """A row for each question and scheme; values of most are found as the sweep goes."""
    version = f"bytes 1, {python_text().digest[:16]}"
    print("| what grows | scheme | best log2 learning rate | drift (95%) | excess loss | verdict |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for question in QUESTIONS:
        start = time.process_time()
        data = batch if question.factory is make else following
        model = Model(question.factory, batch=data, version=version)
        words = [question.factory.__name__, question.axis]
        folder = out / "-".join(words if question.rates is FOUND else [*words, "grid"])
        report = depthmup.transfer(model, question.design, out=folder, on=STACKED)
        for scheme in question.schemes:
            print(_row(question.title, scheme, report.finding(scheme)), flush=True)
        print(f"<!-- {len(report.records)} runs, {time.process_time() - start:.0f} s -->")


def _row(title: str, scheme: str, transfer: Transfer) -> str:
    optima = " ".join(f"{o.log2_lr.value:.1f}" for o in transfer.optima)
    drift, excess = transfer.drift, transfer.regret
    numbers = (
        optima,
        f"{drift.value:+.2f} [{drift.low:+.2f}, {drift.high:+.2f}]",
        f"{excess.value:.3f} [{excess.low:.3f}, {excess.high:.3f}]",
    )
    cells = (title, f"`{scheme}`", *(n.replace("-", "−") for n in numbers), transfer.verdict.value)
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("check", "transfer"))
    parser.add_argument("out", nargs="?", type=Path, default=Path("runs/experts"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.what == "check":
        checks()
    else:
        transfers(options.out)
    print(environment())


if __name__ == "__main__":
    main()
