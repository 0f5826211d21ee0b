"""How much better one variant is than another, and whether it stays so as networks grow."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthmup.records.finding import Estimate
from depthmup.records.packages import need

if TYPE_CHECKING:
    import pandas as pd


class GainVerdict(StrEnum):
    """What becomes of a gain between the base and the target."""

    HOLDS = "holds"  # at the target all of its interval lies above a share of the base's
    GROWS = "grows"  # that, and it grows with size
    FADES = "fades"  # at the target all of its interval lies below that share
    CROSSES = "crosses"  # at the target it has the other sign
    WORSE = "worse"  # there was none at the base, and there is none at the target
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeGain:
    """The gain at a size that was trained, in nats of the logarithm of the loss.

    Attributes:
        size: by axis.
        tuned: each variant at its own best value.
        as_trained: each at the value that it hands on from the base.
    """

    size: Mapping[str, float]
    tuned: Estimate
    as_trained: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """The gain of one variant over another: the other's log loss minus its own.

    Intervals at sizes that were trained hold 95%; at a target that was not, and of the slope, 90%.
    Of several candidates against one other they hold all at once, by Bonferroni's correction.

    Attributes:
        of, over: the variants' names.
        sizes: at every size of which both have an optimum.
        base: the size that the gain starts from.
        target: the size that the verdict is about; the largest trained one unless asked.
        trained: whether the target was trained.
        tuned, as_trained: at the target.
        slope: of the tuned gain, per doubling of the way from base to target.
        worth: by axis, how many times larger the other must be for the same loss at the target.
        share: of the base's gain, that is to be left.
        among: candidates that one was picked from.
        verdict, why: of the tuned gain.
        reservations: why it may not be what it seems.
    """

    of: str
    over: str
    sizes: tuple[SizeGain, ...]
    base: Mapping[str, float]
    target: Mapping[str, float]
    trained: bool
    tuned: Estimate
    as_trained: Estimate
    slope: Estimate
    worth: Mapping[str, Estimate]
    share: float
    among: int
    verdict: GainVerdict
    why: str
    reservations: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """Of the tuned gain at the target."""
        return self.tuned.value

    @property
    def low(self) -> float:
        return self.tuned.low

    @property
    def high(self) -> float:
        return self.tuned.high

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the gain against size.

        Args:
            path: of a file to write, which ends in .svg, .pdf, .png or .html.

        Returns:
            The chart, which a notebook shows.

        Raises:
            ValueError: another suffix, or a gain at one size.
        """
        need("A chart", "vl_convert")
        from depthmup.reports import save_chart
        from depthmup.reports.gain import gain_picture

        chart = gain_picture(self)
        if path is not None:
            save_chart(chart, Path(path))
        return chart

    def to_pandas(self) -> "pd.DataFrame":
        """Gains in nats, tuned and as trained.

        Returns:
            A row for each size that was trained, then one for the target, which has the verdict.
        """
        need("A table", "pandas")
        import pandas as pd

        from depthmup.reports.study_rows import rows_of_gain

        return pd.DataFrame(rows_of_gain(self))

    def at(self, size: Mapping[str, float]) -> SizeGain:
        """The gain at a size that was trained.

        Args:
            size: by axis.

        Returns:
            Tuned and as trained.

        Raises:
            KeyError: it was not trained, or one of both has no optimum there.
        """
        for each in self.sizes:
            if dict(each.size) == dict(size):
                return each
        raise KeyError(
            f"Expected one of the sizes {[dict(s.size) for s in self.sizes]}; got {size}."
        )
