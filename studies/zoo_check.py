"""Published architectures, planned and checked with no flag: none may fail.

    python -m studies.zoo_check              # those of CHECKED: the table of docs/studies/zoo.md
    python -m studies.zoo_check Llama GPT2
    python -m studies.zoo_check --along-width   # those of ALONG_WIDTH, at one depth
    python -m studies.zoo_check --packages later   # all of a list that are planned
    python -m studies.zoo_check RetNet --lr 1e-2 --packages thirty

Every observable of a model that is planned by CompleteP is measured at three widths and depths, and
its exponents are compared with what the scheme predicts. Random inputs, few enough that the
smallest width can tell them apart. Beside these, ``tests/zoo/plain.py`` checks twenty plain models.
"""

import argparse
import logging
import time
import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from depthmup.diagnostics import check
from depthmup.model import Model
from depthmup.records import Check
from studies.plain import not_passed
from studies.zoo import REFUSALS, built, first_tensor
from tests.zoo.architectures import PACKAGES, architectures
from tests.zoo.case import Case

WIDTHS, DEPTHS = (32, 64, 128), (2, 4, 8)
EXAMPLES, LENGTH = 4, 8
CHECKED = {
    "transformers": (
        "Llama", "Qwen3", "GPT2", "GPTNeoX", "Gemma2", "Olmo2", "Mixtral", "Mamba",
        "Bert", "ModernBert", "T5", "ViT", "Dinov2", "ResNet",
    ),
    "timm": ("ViT", "ConvNeXt", "MLP-Mixer"),
}  # fmt: skip
ALONG_WIDTH = (
    "T5Gemma", "Afmoe", "post norm", "rtdl ResNet", "DLA", "Res2Net", "SHViT", "FastViT",
)  # fmt: skip


def _outputs(architecture: Case, width: int) -> Tensor:
    """What a small model of an architecture returns for the case's own inputs."""
    model, inputs = architecture.make(width, DEPTHS[0]).eval(), architecture.inputs
    with torch.no_grad():
        return first_tensor(model(**inputs) if isinstance(inputs, dict) else model(*inputs))


def subject(architecture: Case) -> Model:
    """An architecture with random inputs and labels; numbers that are no logits get targets."""
    shapes = [_outputs(architecture, width).shape for width in WIDTHS[:2]]
    *places, classes = shapes[0][1:] or (1,)
    numbers = shapes[0] != shapes[1] or len(shapes[0]) == 1

    def drawn(given: Any, generator: torch.Generator) -> Any:
        if not isinstance(given, Tensor) or given.dtype is torch.bool:
            return given
        shape = (EXAMPLES, *given.shape[1:])
        if given.is_floating_point() and torch.equal(given, given.round()):  # labels, a mask
            return given[torch.arange(EXAMPLES) % len(given)]
        if given.is_floating_point():
            return torch.randn(shape, generator=generator)
        least, most = int(given.min()), int(given.max())
        return torch.randint(least, most + 1, shape, generator=generator)

    def batch(generator: torch.Generator) -> tuple[Any, Tensor]:
        inputs = tree_map(lambda given: drawn(given, generator), architecture.inputs)
        if isinstance(inputs, tuple) and len(inputs) == 1:
            (inputs,) = inputs
        return inputs, torch.randint(classes, (EXAMPLES, *places), generator=generator)

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        found = first_tensor(outputs)
        if numbers:  # no readout, or one number for each example: each has a target of its own
            wanted = torch.Generator().manual_seed(int(targets.sum()))
            return F.mse_loss(found, torch.randn(found.shape, generator=wanted))
        return F.cross_entropy(found.flatten(0, -2), targets.flatten())

    return Model(make=architecture.make, batch=batch, loss=loss)


def examine(architecture: Case, **options: Any) -> Check:
    """The check of one architecture under CompleteP with AdamW."""
    return check(
        subject(architecture),
        scheme="completep",
        **{"widths": WIDTHS, "depths": DEPTHS, "seeds": 3, "steps": 2, **options},
    )


def row(architecture: Case, **options: Any) -> tuple[str, str]:
    """The outcome of one architecture, and the exponents that did not pass or why there is none."""
    if not built(architecture):
        return "not built", ""
    try:
        result = examine(architecture, **options)
    except (*REFUSALS, ValueError) as problem:  # of the plan; of the check: there is no depth
        return "refused", f"{type(problem).__name__}: {str(problem).split('. ')[0]}"
    if (broken := result.nonfinite) is not None:
        return str(result.outcome), f"{broken.module} is not finite at step {broken.step}"
    return str(result.outcome), not_passed(result, most=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="these architectures alone")
    parser.add_argument("--along-width", action="store_true", help="at one depth")
    parser.add_argument("--packages", nargs="*", choices=list(PACKAGES), help="whole lists")
    parser.add_argument("--lr", type=float, help="the learning rate at the smallest size")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--depths", type=int, nargs="*")
    options = parser.parse_args()
    chosen: dict[str, tuple[str, ...] | None] = {**CHECKED}
    if options.along_width:
        chosen = {"further": ALONG_WIDTH}
    if options.packages:
        chosen = dict.fromkeys(options.packages)
    depths = tuple(options.depths or (DEPTHS[:1] if options.along_width else DEPTHS))
    given = {"widths": tuple(options.widths), "lr": options.lr, "seeds": options.seeds}
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    started, counts = time.process_time(), Counter[str]()
    print("| package | architecture | check | exponents not passed |", flush=True)
    print("| --- | --- | --- | --- |", flush=True)
    for package, architecture in ((p, a) for p in chosen for a in architectures((p,))):
        names = options.names or chosen[package]
        if names and architecture.name not in names:
            continue
        outcome, words = row(architecture, depths=depths, **given)
        counts[outcome] += 1
        print(f"| {architecture.package} | {architecture.name} | {outcome} | {words} |", flush=True)
    seconds = time.process_time() - started
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    print(f"\n{numbers}; {seconds:.0f} s of one core.")


if __name__ == "__main__":
    main()
