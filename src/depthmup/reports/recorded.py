"""Small measurements that come with the package, for a first look at pages, charts and tables."""

import json
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from depthmup.records import Check, Prediction, Study
from depthmup.records.certificate import Certificate
from depthmup.records.codec import decode

T = TypeVar("T")


def example_study() -> Study:
    """A measured study: Depth-muP and SP on residual MLPs of 8 to 128 layers, handwritten digits.

    Its ``config`` and ``environment`` show how it was run; ``depthmup transfer --preset small
    --schemes depth-mup,sp --target depth=256`` measures it again in a minute.

    Returns:
        The study.

    Example:
        >>> for transfer in example_study().headline.transfers:
        ...     print(transfer.title, transfer.verdict.value)
        Depth-muP transfers
        SP drifts
    """
    return _recorded("study", Study)


def example_certificate() -> Certificate:
    """The certificate of ``example_study``'s Depth-muP for depth 256, twice the largest measured.

    Returns:
        The certificate.

    Example:
        >>> certificate = example_certificate()
        >>> certificate.issued, certificate.target
        (True, {'width': 64, 'depth': 256})
    """
    return _recorded("certificate", Certificate)


def example_check() -> Check:
    """A coordinate check of residual networks of one matrix per block, x + tanh(W x), by Depth-muP.

    Returns:
        The check.

    Example:
        >>> check = example_check()
        >>> check.outcome.value, check.widths, check.depths
        ('pass', (64, 128, 256), (4, 8, 16))
    """
    return _recorded("check", Check)


def example_prediction() -> Prediction:
    """Where the best learning rate of SGD moves with depth, predicted for those networks.

    Returns:
        The prediction.

    Example:
        >>> example_prediction().base
        {'width': 64, 'depth': 4}
    """
    return _recorded("prediction", Prediction)


def _recorded(name: str, kind: type[T]) -> T:
    return decode(kind, _file()[name], f"the recorded {name}")


@cache
def _file() -> dict[str, Any]:
    # Written by ``python -m studies.record_examples``.
    text = (Path(__file__).parent / "examples.json").read_text(encoding="utf-8")
    recorded: dict[str, Any] = json.loads(text)
    return recorded
