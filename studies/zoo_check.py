"""Published architectures, planned and checked with no flag: none may fail.

    python -m studies.zoo_check              # those of CHECKED: the table of docs/studies/zoo.md
    python -m studies.zoo_check Llama GPT2
    python -m studies.zoo_check --along-width   # those of ALONG_WIDTH, at one depth

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
ALONG_WIDTH = (
    "T5Gemma", "Afmoe", "post norm", "rtdl ResNet", "DLA", "Res2Net", "SHViT", "FastViT",
)  # fmt: skip


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
        if isinstance(given, tuple) and given[0].shape != PIXELS.shape:
            return _like(given[0], generator)
        if isinstance(given, dict) and "input_ids" in given:
            return {name: tokens() for name in given}, tokens()
        images = torch.randn(EXAMPLES, *PIXELS.shape[1:], generator=generator)
        labels = torch.randint(2, (EXAMPLES,), generator=generator)
        return ({"pixel_values": images} if isinstance(given, dict) else images), labels

    return Model(make=architecture.make, batch=batch, loss=loss)


def _like(given: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs of another kind or size than those of most, and labels."""
    shape = (EXAMPLES, *given.shape[1:])
    if given.is_floating_point():
        labels = torch.randint(2, (EXAMPLES,), generator=generator)
        return torch.randn(shape, generator=generator), labels
    tokens, labels = (torch.randint(3, VOCABULARY, shape, generator=generator) for _ in range(2))
    return tokens, labels


def examine(
    architecture: Case, *, depths: tuple[int, ...] = DEPTHS, seeds: int = 3, steps: int = 2
) -> Check:
    """The check of one architecture under CompleteP with AdamW."""
    return check(
        subject(architecture),
        scheme="completep",
        widths=WIDTHS,
        depths=depths,
        seeds=seeds,
        steps=steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="these architectures alone")
    parser.add_argument("--along-width", action="store_true", help="at one depth")
    options = parser.parse_args()
    chosen = {"further": ALONG_WIDTH} if options.along_width else CHECKED
    depths = DEPTHS[:1] if options.along_width else DEPTHS
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    started = time.process_time()
    counts = dict.fromkeys(Outcome, 0)
    print("| package | architecture | check | exponents not passed |", flush=True)
    print("| --- | --- | --- | --- |", flush=True)
    for package, architecture in ((p, a) for p in chosen for a in architectures((p,))):
        if architecture.name not in (options.names or chosen[package]):
            continue
        result = examine(architecture, depths=depths)
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
