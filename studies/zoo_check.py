"""Published architectures, planned and checked with no flag: none may fail.

    python -m studies.zoo_check              # those of CHECKED: the table of docs/studies/zoo.md
    python -m studies.zoo_check Llama GPT2

Every observable of a model that is planned by CompleteP is measured at three widths and depths, and
its exponents are compared with what the scheme predicts. Random tokens and images, few enough that
the smallest width can tell them apart. Beside these, ``tests/zoo/plain.py`` checks twenty plain
models.
"""

import argparse
import logging
import time
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from depthmup.diagnostics import check
from depthmup.model import Model
from depthmup.records import Check, Outcome
from studies.plain import not_passed
from tests.zoo.architectures import PIXELS, VOCABULARY, architectures
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


def loss(outputs: Any, targets: Tensor) -> Tensor:
    """The cross-entropy of a model's logits, which transformers wraps."""
    logits = outputs if isinstance(outputs, Tensor) else outputs.logits
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def subject(architecture: Case) -> Model:
    """An architecture with random data of the kind that it takes."""

    def batch(generator: torch.Generator) -> tuple[Any, Tensor]:
        def tokens() -> Tensor:
            return torch.randint(3, VOCABULARY, (EXAMPLES, LENGTH), generator=generator)

        given = architecture.inputs
        if isinstance(given, dict) and "input_ids" in given:
            return {name: tokens() for name in given}, tokens()
        images = torch.randn(EXAMPLES, *PIXELS.shape[1:], generator=generator)
        labels = torch.randint(2, (EXAMPLES,), generator=generator)
        return ({"pixel_values": images} if isinstance(given, dict) else images), labels

    return Model(make=architecture.make, batch=batch, loss=loss)


def examine(architecture: Case, *, seeds: int = 3, steps: int = 2) -> Check:
    """The check of one architecture under CompleteP with AdamW."""
    return check(
        subject(architecture),
        scheme="completep",
        widths=WIDTHS,
        depths=DEPTHS,
        seeds=seeds,
        steps=steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="these architectures alone")
    names = parser.parse_args().names
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    started = time.process_time()
    counts = dict.fromkeys(Outcome, 0)
    print("| package | architecture | check | exponents not passed |", flush=True)
    print("| --- | --- | --- | --- |", flush=True)
    for architecture in architectures(tuple(CHECKED)):
        if architecture.name not in (names or CHECKED[architecture.package]):
            continue
        result = examine(architecture)
        counts[result.outcome] += 1
        words = not_passed(result, most=3)
        print(
            f"| {architecture.package} | {architecture.name} | {result.outcome} | {words} |",
            flush=True,
        )
    seconds = time.process_time() - started
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    print(f"\n{numbers}; {seconds:.0f} s of one core.")


if __name__ == "__main__":
    main()
