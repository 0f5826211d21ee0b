"""Published architectures, planned: which are right, which are refused and why, which are wrong.

    python -m studies.zoo                          # all packages that are installed
    python -m studies.zoo --packages timm diffusers
    python -m studies.zoo Llama GPT2

Every architecture is built with random weights in two sizes. It is planned under seven pairs of
scheme and optimizer; the folded form is trained beside the explicit one, which multiplies in the
forward pass and is what the theory states; and every factor is computed again from the role and the
ratios alone, by a second reading of the rules. Prints a Markdown table.
"""

import argparse
import logging
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from depthmup.planning import (
    NotUnderstood,
    Prescription,
    TraceError,
    UnrelatedModels,
    anatomy,
    recorded,
)
from depthmup.planning.anatomy import Anatomy
from depthmup.planning.prescribe import prescribe
from depthmup.planning.starts import numbers_of
from depthmup.rules import ONE, Family, Kind, Ratios, named
from depthmup.rules import scheme as scheme_named
from tests.zoo.architectures import PACKAGES, architectures, installed
from tests.zoo.case import Case

PAIRS = (
    ("depth-mup", "adamw"),
    ("depth-mup", "sgd"),
    ("depth-mup", "muon"),
    ("completep", "adamw"),
    ("complete-dp", "adamw"),
    ("mup", "adamw"),
    ("sp", "adamw"),
)
BASE, TARGET = (16, 2), (64, 6)
TRAINED = (32, 3)
LARGEST_TRAINED = 5_000_000
REFUSALS = (NotUnderstood, TraceError, UnrelatedModels)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What came of one architecture: ``right``, ``refused`` or ``wrong``, and why."""

    name: str
    status: str
    why: str = ""


def planned(architecture: Case) -> Iterator[tuple[str, str, tuple[Prescription, ...]]]:
    """Scheme, optimizer and prescriptions of every pair, on models without memory.

    Those that need values are built with memory, as a person would.
    """
    try:
        found = _anatomy(architecture, "meta")
    except (NotUnderstood, UnrelatedModels):
        raise
    except Exception:  # whatever a foreign constructor raises without values
        found = _anatomy(architecture, "cpu")
    for scheme, optimizer in PAIRS:
        family = named(optimizer)[1]
        made, _ = prescribe(found, scheme_named(scheme), family, run=Ratios(), folding=True)
        yield scheme, optimizer, made


def _anatomy(architecture: Case, device: str) -> Anatomy:
    with torch.device(device):
        (model, drawn), (base, base_drawn) = (
            recorded(lambda size=size: architecture.make(*size)) for size in (TARGET, BASE)
        )
    return anatomy(
        model,
        base,
        example_inputs=architecture.inputs,
        numbers=numbers_of((drawn, base_drawn)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Initial scale, learning rate, epsilon and decay, as multiples of the base's."""

    init: float
    lr: float
    epsilon: float
    decay: float


# (alpha, gamma), and whether an untied readout keeps its multiplier in the forward pass.
_READING = {
    "depth-mup": (0.5, 0.5, False),
    "completep": (1.0, 0.0, True),
    "complete-dp": (1.0, 0.0, False),
    "mup": (0.0, 0.0, True),
}


def recomputed(p: Prescription, scheme: str) -> Factors | None:
    """The factors of one parameter from its role and ratios alone: a second reading of the rules.

    None where this reading has nothing to say: SP, and Muon's matrices of which one side grows.
    """
    if scheme not in _READING:
        return None
    alpha, gamma, multiplier = _READING[scheme]
    into, out, r = p.ratios.fan_in, p.ratios.fan_out, p.ratios.depth
    raw, spectral = p.family is Family.RAW, p.family.matrices_only
    kind, forward = p.role.kind, multiplier or p.role.tied
    if spectral and (kind is not Kind.HIDDEN or into != out):
        return None
    # Initial scale, gradient and wanted update of each kind, as powers of the width.
    init, gradient, update = {
        Kind.INPUT: (1.0, 1 / out, 1.0),
        Kind.HIDDEN: (into ** (-1.0 if p.role.narrows else -0.5), 1 / out, 1 / into),
        Kind.READOUT: (1.0, 1 / into, 1.0) if forward else (1 / into, 1.0, 1 / into),
        Kind.VECTOR: (1.0, 1 / out, 1.0),
    }[kind]
    if spectral:
        update = 1.0
    if p.role.in_branch:
        gradient *= r**-alpha * (r if p.role.shared and alpha + gamma else 1.0)
        update *= r**-gamma
    lr = update / gradient if raw else update
    epsilon, decay = gradient, 1.0 if kind is Kind.VECTOR and not raw else 1 / lr
    if scheme == "completep" and not (raw or spectral):  # its table is AdamW's
        epsilon = gradient if p.role.in_branch else 1.0
        decay = into if kind is Kind.HIDDEN else 1.0
    # Where no forward pass is known to use a readout, its multiplier is moved into the weight.
    moved = kind is Kind.READOUT and forward and p.laws.forward == ONE
    carried = p.folded / into if moved else p.folded
    step = carried**2 if raw else carried
    if spectral:  # its epsilon stands beside the norm of the whole gradient
        epsilon = gradient * math.sqrt(into * out)
    return Factors(init=init * carried, lr=lr * step, epsilon=epsilon / carried, decay=decay / step)


def trajectory(architecture: Case, *, folding: bool, steps: int = 3) -> Tensor:
    """Outputs along a few steps of AdamW in double precision, from the same weights in each form.

    Shape [steps, entries of the output].
    """
    plan = architecture.plan("completep", target=TRAINED, base=BASE, folding=folding)
    model, _ = architecture.built(TRAINED)
    model.double()
    plan.initialize(model)
    model.eval()  # no dropout
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-3, eps=1e-3, weight_decay=0.1))
    outputs = []
    for _ in range(steps):
        logits = _output(model, architecture.inputs)
        outputs.append(logits.detach())
        optimizer.zero_grad()
        (logits - torch.linspace(-1, 1, len(logits))).square().sum().backward()
        optimizer.step()
    return torch.stack(outputs)


def _output(model: nn.Module, inputs: object, dtype: torch.dtype = torch.float64) -> Tensor:
    """The first tensor of floating point that a model returns for inputs of this precision."""
    leaves, spec = tree_flatten(inputs)
    cast = [x.to(dtype) if x.is_floating_point() else x for x in leaves]
    given = spec.unflatten(cast)
    output = model(**given) if isinstance(given, dict) else model(*given)
    return first_tensor(output).flatten()


def first_tensor(output: object) -> Tensor:
    """The first tensor of floating point in what a model returns."""
    tensors = [x for x in tree_flatten(output)[0] if isinstance(x, Tensor)]
    if not tensors:  # an output of diffusers that is no tree
        tensors = [next(v for v in vars(output).values() if isinstance(v, Tensor))]
    return next(x for x in tensors if x.is_floating_point())


def verdict(architecture: Case) -> tuple[Verdict, int]:
    """Plan one architecture under all pairs, and check what can be; also counts the factors."""
    count, name = 0, architecture.name
    try:
        for scheme, optimizer, prescriptions in planned(architecture):
            for p in prescriptions:
                expected = recomputed(p, scheme)
                for factor in ("init", "lr", "epsilon", "decay") if expected else ():
                    count += 1
                    if not math.isclose(getattr(p, factor), getattr(expected, factor)):
                        why = f"{factor} of {p.name} under {scheme} with {optimizer}"
                        return Verdict(name=name, status="wrong", why=why), count
    except REFUSALS as problem:
        why = f"{type(problem).__name__}: {str(problem).split('. ')[0]}"
        return Verdict(name=name, status="refused", why=why), count
    size = sum(p.numel() for p in architecture.make(*TRAINED).parameters())
    if size > LARGEST_TRAINED:
        why = f"by its factors alone: {size / 1e6:.0f} million parameters"
        return Verdict(name=name, status="right", why=why), count
    try:
        folded, explicit = (trajectory(architecture, folding=f) for f in (True, False))
    except Exception as problem:  # a kernel without double precision, an own init to be declared
        why = f"by its factors alone: {(str(problem) or '?').splitlines()[0][:90]}"
        return Verdict(name=name, status="right", why=why), count
    if not explicit.isfinite().all():
        why = "by its factors alone: the model is not finite in double precision"
        return Verdict(name=name, status="right", why=why), count
    # Double precision, three steps: rounding is 1e-12; what computes in single precision, 1e-6.
    error = float((folded - explicit).abs().max() / explicit.square().mean().sqrt())
    status = "right" if error < 1e-5 else "wrong"
    why = f"folded and explicit outputs differ by {error:.0e}"
    return Verdict(name=name, status=status, why=why), count


def built(architecture: Case) -> bool:
    """Whether its package builds an architecture from these settings, and it runs."""
    try:
        with torch.no_grad():
            _output(architecture.make(*BASE).eval(), architecture.inputs, torch.float32)
    except Exception:  # whatever a foreign constructor or forward raises
        return False
    return True


def table(names: Sequence[str] = (), packages: Sequence[str] = tuple(PACKAGES)) -> list[str]:
    """The zoo as Markdown: one line for each architecture, and the counts."""
    lines = [
        "| package | architecture | planned | why, or how exactly |",
        "| --- | --- | --- | --- |",
    ]
    statuses: dict[str, Counter[str]] = {}
    total, started = 0, time.process_time()
    chosen = ((package, one) for package in packages for one in architectures((package,)))
    for package, architecture in chosen:
        if names and architecture.name not in names:
            continue
        of_package = statuses.setdefault(package, Counter())
        if not built(architecture):
            of_package["not built"] += 1
            continue
        result, count = verdict(architecture)
        of_package[result.status] += 1
        total += count
        why = result.why.replace("|", "/")
        lines.append(f"| {architecture.package} | {result.name} | {result.status} | {why} |")
        print(lines[-1], file=sys.stderr, flush=True)
    kinds = ("right", "refused", "wrong", "not built")
    lines += ["", f"| package | {' | '.join(kinds)} |", f"| --- |{' --- |' * len(kinds)}"]
    for package in packages:
        counts = statuses.get(package, Counter())
        row = " | ".join(str(counts[kind]) for kind in kinds)
        lines.append(f"| {package} | {row if installed(package) else 'not installed | | |'} |")
    seconds = time.process_time() - started
    return [*lines, "", f"{total} factors computed again; {seconds:.0f} s of one core."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="these architectures alone")
    parser.add_argument("--packages", nargs="*", default=list(PACKAGES), choices=list(PACKAGES))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print("\n".join(table(options.names, options.packages)))


if __name__ == "__main__":
    main()
