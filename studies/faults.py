"""How many seeded mistakes the coordinate check catches, and how many correct models it fails.

    python -m studies.faults             # everything; writes the tables of docs/studies/check.md
    python -m studies.faults --only mlp      # the models whose name contains "mlp"

Every fault is one mistake that people make, planted in a model that is otherwise planned correctly;
it is *caught* if the check fails, and *named* if one of the exponents that failed is the mistake's
own: its observable, its dimension, its module.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from depthmup.diagnostics import check, planned
from depthmup.model import Model
from depthmup.models import ResidualMLP
from depthmup.planning import Plan, plan
from depthmup.planning.hooks import Multiply
from depthmup.planning.prescribe import Prescription
from depthmup.records import Check, Outcome
from depthmup.rules import Kind
from depthmup.tracing import Hook, parameters

CLASSES, WORDS, LENGTH = 8, 32, 8


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.relu(self.up(self.norm(x))))


class TwoMatrices(nn.Module):
    """Pre-norm blocks of two matrices."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.input = nn.Linear(6, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.input(x))))


def one_matrix(width: int, depth: int) -> nn.Module:
    """The paper's network: blocks of one matrix, no norm."""
    return ResidualMLP(
        inputs=6, width=width, depth=depth, outputs=CLASSES, multiplier=0.5, activation_name="abs"
    )


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            f(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Pre-norm, with as many heads of size 8 as fit, or with 4 heads that grow."""

    def __init__(
        self, width: int, depth: int, *, heads: int | None = None, tied: bool = False
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(*(Layer(width, heads or width // 8) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.tokens(tokens))))


def growing_heads(width: int, depth: int) -> nn.Module:
    return Transformer(width, depth, heads=4)


class Gated(nn.Module):
    """SwiGLU with a learned gain at the end of the branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.gain = nn.Parameter(0.5 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.gain * self.down(F.silu(self.gate(y)) * self.up(y))


class Functional(nn.Module):
    """Bare parameters, read by functions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(2 * width, width) / width**0.5)
        self.second = nn.Parameter(torch.randn(width, 2 * width) / (2 * width) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:])
        return x + F.linear(F.gelu(F.linear(y, self.first)), self.second)


def of_blocks(block: Callable[[int], nn.Module]) -> Callable[[int, int], nn.Module]:
    def make(width: int, depth: int) -> nn.Module:
        model = TwoMatrices(width, depth)
        model.blocks = nn.Sequential(*(block(width) for _ in range(depth)))
        model.head = nn.Linear(width, CLASSES)
        return model

    return make


class Bare(nn.Module):
    """A readout and a table of vectors of every layer that are no modules: (h * v).sum(-1)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.input = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.table = nn.Parameter(torch.zeros(depth, width))
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Parameter(torch.randn(CLASSES, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        for vector, block in zip(self.table, self.blocks, strict=True):
            x = x + block.down(F.relu(block.up(block.norm(x) + vector)))
        return (self.norm(x)[:, None] * self.readout).sum(-1)


def tied(width: int, depth: int) -> nn.Module:
    return Transformer(width, depth, tied=True)


def vectors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(32, 6, generator=generator), torch.randint(
        CLASSES, (32,), generator=generator
    )


def tokens(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    shape = (8, LENGTH)
    return tuple(torch.randint(WORDS, shape, generator=generator) for _ in range(2))  # type: ignore


@dataclass(frozen=True, kw_only=True)
class Architecture:
    make: Callable[[int, int], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    depths: tuple[int, ...]


ARCHITECTURES = {
    "mlp, 1 matrix": Architecture(make=one_matrix, batch=vectors, depths=(4, 8, 16)),
    "mlp, 2 matrices": Architecture(make=TwoMatrices, batch=vectors, depths=(4, 8, 16)),
    "transformer": Architecture(make=growing_heads, batch=tokens, depths=(2, 4, 8)),
    "tied transformer": Architecture(make=tied, batch=tokens, depths=(2, 4, 8)),
    "gated mlp, layer scale": Architecture(make=of_blocks(Gated), batch=vectors, depths=(4, 8, 16)),
    "functional mlp": Architecture(make=of_blocks(Functional), batch=vectors, depths=(4, 8, 16)),
    "bare readout and tables": Architecture(make=Bare, batch=vectors, depths=(4, 8, 16)),
}
WIDTHS = (32, 64, 128)

Optimizers = Sequence[torch.optim.Optimizer]
Spoil = Callable[[nn.Module, Plan, Optimizers], None]


def initial(where: Callable[[Prescription], float]) -> Spoil:
    """Multiply initial weights by a factor."""

    def spoil(model: nn.Module, made: Plan, optimizers: Optimizers) -> None:
        found = parameters(model)
        with torch.no_grad():
            for p in made.prescriptions:
                found[p.name].mul_(where(p))

    return spoil


def rate(where: Callable[[Prescription], float]) -> Spoil:
    """Multiply learning rates by a factor, parameter by parameter."""

    def spoil(model: nn.Module, made: Plan, optimizers: Optimizers) -> None:
        prescriptions = {p.name: p for p in made.prescriptions}
        names = {id(p): name for name, p in parameters(model).items()}
        for optimizer in optimizers:
            groups = []
            for group in optimizer.param_groups:
                rest = {k: v for k, v in group.items() if k not in ("params", "param_names")}
                for p in group["params"]:
                    factor = where(prescriptions[names[id(p)]])
                    groups.append({**rest, "params": [p], "lr": group["lr"] * factor})
            optimizer.param_groups[:] = groups

    return spoil


def epsilon(value: float) -> Spoil:
    """One epsilon for every parameter, at every size."""

    def spoil(model: nn.Module, made: Plan, optimizers: Optimizers) -> None:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["eps"] = value

    return spoil


def decay(factor: Callable[[Prescription], float]) -> Spoil:
    """A weight decay of 0.01, parameter by parameter times a factor."""

    def spoil(model: nn.Module, made: Plan, optimizers: Optimizers) -> None:
        prescriptions = {p.name: p for p in made.prescriptions}
        names = {id(p): name for name, p in parameters(model).items()}
        for optimizer in optimizers:
            groups = []
            for group in optimizer.param_groups:
                rest = {k: v for k, v in group.items() if k not in ("params", "param_names")}
                for p in group["params"]:
                    value = 0.01 * factor(prescriptions[names[id(p)]])
                    groups.append({**rest, "params": [p], "weight_decay": value})
            optimizer.param_groups[:] = groups

    return spoil


def right_decay(p: Prescription) -> float:
    return p.decay


def twice(model: nn.Module, made: Plan, optimizers: Optimizers) -> None:
    """Multiply the readout's input by 1/width once more."""
    ratio = made["tokens.weight"].ratios
    factor = 1 / max(ratio.fan_in, ratio.fan_out)
    hook = Hook(module="head", side="input")
    multiply = Multiply(factor=factor, hook=hook, holder=model.head)
    model.head.register_forward_pre_hook(multiply.input, with_kwargs=True)


def width_of(p: Prescription) -> float:
    return max(p.ratios.fan_in, p.ratios.fan_out)


def only(test: Callable[[Prescription], bool], factor: Callable[[Prescription], float]) -> Any:
    return lambda p: factor(p) if test(p) else 1.0


def root_depth(p: Prescription) -> float:
    return p.ratios.depth**0.5


def hidden(p: Prescription) -> bool:
    return p.role.kind is Kind.HIDDEN


def readout(p: Prescription) -> bool:
    return p.role.kind is Kind.READOUT


def last(p: Prescription) -> bool:
    return p.role.last


def gain(p: Prescription) -> bool:
    return "norm" in p.name and p.role.in_branch


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mistake in one architecture, and the exponent that shows it."""

    name: str
    architecture: str
    spoil: Spoil | None = None
    instead: str | None = None  # another scheme than the one that is checked
    scheme: str = "depth-mup"
    optimizer: str = "adamw"
    observable: str = "update effect"
    axis: str = "width"
    module: str = ""


def _faults() -> tuple[Fault, ...]:
    one, two, net, table, gated, bare, vector = ARCHITECTURES
    return (
        Fault(
            name="branch multiplier 1/L where 1/sqrt(L) is meant", architecture=one, instead="1,0",
            observable="branch output", axis="depth",
        ),
        Fault(
            name="no branch multiplier", architecture=one, spoil=initial(only(last, root_depth)),
            observable="branch output", axis="depth",
        ),
        Fault(
            name="hidden learning rate not scaled with width", architecture=one,
            spoil=rate(only(hidden, width_of)), module="branches",
        ),
        Fault(
            name="hidden learning rate not scaled with depth", architecture=one,
            spoil=rate(only(hidden, root_depth)), axis="depth", module="branches",
        ),
        Fault(
            name="readout at standard initialization", architecture=one,
            spoil=initial(only(readout, lambda p: width_of(p) ** 0.5)), observable="readout",
        ),
        Fault(
            name="epsilon large and not scaled", architecture=one, spoil=epsilon(1e-2),
            module="branches",
        ),
        Fault(
            name="SGD: readout learning rate not scaled with width", architecture=one,
            optimizer="sgd", spoil=rate(only(readout, width_of)), observable="readout update",
        ),
        Fault(
            name="input learning rate scaled like a hidden one", architecture=one,
            spoil=rate(only(lambda p: p.role.kind is Kind.INPUT, lambda p: 1 / width_of(p))),
            module="input",
        ),
        Fault(
            name="GPT-2's 1/sqrt(2L) kept", architecture=two,
            spoil=initial(only(last, lambda p: 1 / root_depth(p))), observable="branch output",
            axis="depth",
        ),
        Fault(
            name="norm gains and biases without their depth factor", architecture=two,
            spoil=rate(only(gain, root_depth)), axis="depth", module="norm",
        ),
        Fault(
            name="CompleteP's rates on Depth-muP's multipliers", architecture=two,
            spoil=rate(only(lambda p: p.role.in_branch, root_depth)), axis="depth",
            module="blocks",
        ),
        Fault(
            name="last matrix's learning rate not scaled with width", architecture=two,
            spoil=rate(only(lambda p: last(p) and hidden(p), width_of)), module="down",
        ),
        Fault(
            name="inner matrix initialized without its fan-in", architecture=two,
            spoil=initial(only(lambda p: "up.weight" in p.name, lambda p: width_of(p) ** 0.5)),
            observable="pre-activation", module="up",
        ),
        Fault(
            name="SGD: vectors without their width factor", architecture=two, optimizer="sgd",
            spoil=rate(only(lambda p: p.role.kind is Kind.VECTOR, lambda p: 1 / width_of(p))),
            module="blocks",
        ),
        Fault(
            name="epsilon large and not scaled", architecture=two, spoil=epsilon(1e-2),
            module="blocks",
        ),
        Fault(
            name="attention scale 1/sqrt(head) while the head grows", architecture=net,
            spoil=initial(only(lambda p: ".q." in p.name, lambda p: width_of(p) ** 0.5)),
            observable="attention logits",
        ),
        Fault(
            name="GPT-2's 1/sqrt(2L) kept", architecture=net, scheme="completep",
            spoil=initial(only(last, lambda p: 1 / root_depth(p))), observable="branch output",
            axis="depth",
        ),
        Fault(
            name="branch multiplier 1/sqrt(L) where 1/L is meant", architecture=net,
            scheme="completep", instead="1/2,1/2", observable="branch output", axis="depth",
        ),
        Fault(
            name="attention's learning rates not scaled with width", architecture=net,
            scheme="completep", module="attention",
            spoil=rate(only(lambda p: "attention" in p.name and hidden(p), width_of)),
        ),
        Fault(
            name="norm gains without their depth factor", architecture=net,
            spoil=rate(only(gain, root_depth)), axis="depth", module="norm",
        ),
        Fault(
            name="readout at standard initialization", architecture=net, scheme="completep",
            spoil=initial(only(readout, lambda p: width_of(p) ** 0.5)), observable="readout",
        ),
        Fault(
            name="tied embedding scaled twice", architecture=table, spoil=twice,
            observable="readout",
        ),
        Fault(
            name="tied embedding's learning rate scaled like a hidden one", architecture=table,
            spoil=rate(only(readout, lambda p: 1 / width_of(p))), module="tokens",
        ),
        Fault(
            name="no branch multiplier", architecture=gated, scheme="completep",
            spoil=initial(only(last, lambda p: p.ratios.depth)), observable="branch output",
            axis="depth",
        ),
        Fault(
            name="gains at the end of branches without their depth factor", architecture=gated,
            spoil=rate(only(lambda p: "gain" in p.name, root_depth)), axis="depth", module="gain",
            observable="entry update",
        ),
        Fault(
            name="decay not divided by the learning rate's factor", architecture=gated,
            spoil=decay(lambda p: 1.0), observable="decay",
        ),
        Fault(
            name="Muon: decay grows with width, as AdamW's", architecture=bare, optimizer="muon",
            scheme="completep", observable="decay",
            spoil=decay(lambda p: p.decay * (width_of(p) if hidden(p) else 1.0)),
        ),
        Fault(
            name="hidden learning rate not scaled with width", architecture=bare,
            spoil=rate(only(hidden, width_of)), observable="spectral update", module="blocks",
        ),
        Fault(
            name="no branch multiplier", architecture=bare, scheme="completep",
            spoil=initial(only(last, lambda p: p.ratios.depth)), observable="branch output",
            axis="depth",
        ),
        Fault(
            name="readout at standard initialization", architecture=vector,
            spoil=initial(only(readout, lambda p: width_of(p) ** 0.5)), observable="readout",
        ),
        Fault(
            name="readout's learning rate not scaled with width", architecture=vector,
            spoil=rate(only(readout, width_of)), observable="readout update",
        ),
        Fault(
            name="tables of each layer without their depth factor", architecture=vector,
            spoil=rate(only(lambda p: p.name == "table", root_depth)), observable="entry update",
            axis="depth", module="table",
        ),
        Fault(
            name="tables of each layer scaled like a hidden matrix", architecture=vector,
            spoil=rate(only(lambda p: p.name == "table", lambda p: 1 / width_of(p))),
            observable="entry update", module="table",
        ),
    )  # fmt: skip


FAULTS = _faults()
CORRECT = tuple(
    (architecture, scheme, optimizer)
    for architecture in ARCHITECTURES
    for scheme, optimizer in (
        ("depth-mup", "adamw"),
        ("completep", "adamw"),
        ("3/4,1/4", "adamw"),
        ("depth-mup", "sgd"),
        ("depth-mup", "muon"),
    )
)


def run(
    architecture: str,
    *,
    scheme: str,
    optimizer: str,
    spoil: Spoil | None = None,
    instead: str | None = None,
    seeds: int = 3,
    steps: int = 3,
) -> Check:
    """Check one architecture, with or without a mistake."""
    a = ARCHITECTURES[architecture]

    def prepare(model: nn.Module, made: Plan, lr: float) -> Optimizers:
        if instead is not None:
            other = plan(
                model,
                base=a.make(WIDTHS[0], a.depths[0]),
                scheme=instead,
                optimizer=optimizer,
                example_inputs=a.batch(torch.Generator())[0],
            )
            # What draws the parameters is known from the right plan.
            made = replace(other, model_init=made.model_init, base_init=made.base_init)
        optimizers = planned(model, made, lr)
        if optimizer != "sgd":
            decay(right_decay)(model, made, optimizers)
        if spoil is not None:
            spoil(model, made, optimizers)
        return optimizers

    return check(
        Model(make=a.make, batch=a.batch),
        prepare=prepare,
        scheme=scheme,
        optimizer=optimizer,
        widths=WIDTHS,
        depths=a.depths,
        seeds=seeds,
        steps=steps,
    )


def examine(fault: Fault, **options: Any) -> tuple[Check, bool]:
    """The check of a fault, and whether it names the mistake."""
    found = run(
        fault.architecture,
        scheme=fault.scheme,
        optimizer=fault.optimizer,
        spoil=fault.spoil,
        instead=fault.instead,
        **options,
    )
    named = any(
        e.observable == fault.observable and e.axis == fault.axis and fault.module in e.module
        for e in found.failures
    )
    return found, named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="architectures whose name contains this")
    only_these = parser.parse_args().only
    torch.set_num_threads(1)
    started = time.perf_counter()
    caught = named = failed = undecided = 0
    faults = [f for f in FAULTS if only_these in f.architecture]
    print("| model | mistake | verdict | named |\n| --- | --- | --- | --- |", flush=True)
    for fault in faults:
        found, right = examine(fault)
        caught += found.outcome is Outcome.FAIL
        named += right
        print(
            f"| {fault.architecture} | {fault.name} ({fault.scheme}, {fault.optimizer}) | "
            f"{found.outcome} | {'yes' if right else 'no'} |",
            flush=True,
        )
    correct = [c for c in CORRECT if only_these in c[0]]
    print("\n| model | scheme | optimizer | verdict | exponents not passed |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for architecture, scheme, optimizer in correct:
        found = run(architecture, scheme=scheme, optimizer=optimizer)
        failed += found.outcome is Outcome.FAIL
        undecided += found.outcome is Outcome.UNDECIDED
        open_ones = [
            f"{e.module} {e.observable} ({e.axis}): {e.estimate.value:+.2f}, not {e.expected}"
            for e in found.exponents
            if e.outcome in (Outcome.FAIL, Outcome.UNDECIDED)
        ]
        print(
            f"| {architecture} | {scheme} | {optimizer} | {found.outcome} | "
            f"{'; '.join(open_ones)} |",
            flush=True,
        )
    print(
        f"\n{caught} of {len(faults)} mistakes caught, {named} named. {failed} of {len(correct)} "
        f"correct models failed, {undecided} undecided. "
        f"{time.perf_counter() - started:.0f} s on one core."
    )


if __name__ == "__main__":
    main()
