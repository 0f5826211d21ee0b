"""How much was done, counted: the same on every machine, whatever else runs on it."""

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def calls(work: Callable[[], T]) -> tuple[T, int]:
    """The result of some work, and how many functions it called, those of C included.

    What a loop does for every row, layer or file shows in it. What one call does to a whole array
    does not: ``python -m benchmarks`` times that.
    """
    count = 0

    def hear(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return result, count
