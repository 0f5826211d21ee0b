"""The result of a coordinate check: measured exponents beside predicted ones."""

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from depthmup._meant import Meant
from depthmup.records.codec import strict
from depthmup.records.finding import Estimate
from depthmup.records.grammar import with_option
from depthmup.records.packages import need
from depthmup.records.text import aligned, counted, html_card

if TYPE_CHECKING:
    import pandas as pd


class Outcome(StrEnum):
    """Whether a measured exponent is the predicted one."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    SHOWN = "shown"  # theory predicts no power law here: nothing to judge


_ORDER = (Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS, Outcome.SHOWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exponent:
    """How one observable of one kind of module grows with one dimension.

    ``module`` is a pattern of names (repeated layers are measured together), ``axis`` is width,
    depth or a further one, ``expected`` the exact exponent as text, empty where none is predicted.
    ``cause`` is the likely reason of a failure.

    Attributes:
        observable: what is measured: the output of a branch, the change of the logits, an update,
            ...
        estimate: the measured exponent with its interval.
        outcome: pass, fail, undecided, or shown where nothing is predicted.
        why: the prediction in words.
    """

    observable: str
    module: str
    axis: str
    estimate: Estimate
    outcome: Outcome
    expected: str = ""
    why: str = ""
    cause: str = ""

    @property
    def is_off(self) -> bool:
        """Whether it failed, or nobody can tell."""
        return self.outcome in (Outcome.FAIL, Outcome.UNDECIDED)

    @property
    def interval(self) -> str:
        return f"[{self.estimate.low:+.2f}, {self.estimate.high:+.2f}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """An observable at one size: geometric mean over seeds, and its spread (log, one sigma).

    ``seeds`` are the values of single seeds, in their order.
    ``along`` are the values along further axes.

    Attributes:
        observable, module: as in ``Exponent``.
        width, depth: of the network.
        value: the geometric mean over seeds.
        spread: the standard deviation over seeds of its logarithm.
    """

    observable: str
    module: str
    width: int
    depth: int
    value: float
    spread: float
    seeds: tuple[float, ...]
    along: Mapping[str, int] = field(default_factory=dict)

    def at(self, axis: str) -> int:
        """The size along an axis."""
        return int({"width": self.width, "depth": self.depth, **self.along}[axis])


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFinite:
    """The first module and step at which a run produced NaN or infinity.

    Attributes:
        module: the first one, by its name.
        step: at which it was seen, from 0.
        width, depth, seed: of the network.
        along: its values along further axes.
    """

    module: str
    step: int
    width: int
    depth: int
    seed: int
    along: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Check(Meant):
    """The result of a coordinate check.

    ``margin`` is how far a measured exponent may lie from the predicted one; ``confidence`` is that
    of the intervals. ``losses`` are the mean losses before each step, by (width, depth) as text.
    ``along`` are the values along further axes, each varied at the smallest width and depth.

    Attributes:
        title: the model and the scheme in words.
        scheme: in words.
        optimizer: by its name.
        applied: whether a plan was applied, or the model checked as it is.
        widths, depths: of the networks that were trained.
        seeds, steps, lr: repetitions, steps of each run, and the learning rate at the base.
        outcome: fail if any exponent does; undecided if none does and one is.
        exponents: one for each observable, kind of module and axis.
        sizes: the observables at every size, from which exponents are fitted.
        nonfinite: where a run first produced NaN or infinity, if one did.
        notes: what a reader should know beyond the numbers.
        seconds: that the check took.
        command: words of the command line that made it; empty for a call from Python.
    """

    MEANT: ClassVar = {
        **dict.fromkeys(("table", "df", "to_df", "dataframe", "frame"), "check.to_pandas()"),
        **dict.fromkeys(("failed", "fails"), "check.failures"),
        "ok": "check.passed",
        "best_lr": "depthmup.transfer(model, design): a check trains a few steps only",
        "to_json": "check.save(folder)",
        "show": "print(check)",
    }

    title: str
    scheme: str
    optimizer: str
    applied: bool
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    seeds: int
    steps: int
    lr: float
    margin: float
    confidence: float
    outcome: Outcome
    exponents: tuple[Exponent, ...]
    sizes: tuple[Size, ...] = ()
    nonfinite: NonFinite | None = None
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    along: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every exponent that is predicted was measured as predicted; the truth value."""
        return self.outcome is Outcome.PASS

    @property
    def verdict(self) -> Outcome:
        """Pass, fail or undecided."""
        return self.outcome

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Check: {self.headline}>"

    def _repr_html_(self) -> str:
        causes = dict.fromkeys(e.cause for e in self.failures if e.cause)
        return html_card(self.title, str(self.outcome), [self.headline, *causes, *self.notes])

    @property
    def headline(self) -> str:
        """The verdict in one sentence.

        Example:
            >>> from depthmup.records import Check, Outcome
            >>> print(Check(title="mine", scheme="Depth-muP", optimizer="adamw", applied=True,
            ...     widths=(1,), depths=(2,), seeds=2, steps=1, lr=0.1, margin=0.25,
            ...     confidence=0.95, outcome=Outcome.UNDECIDED, exponents=()).headline)
            mine under Depth-muP with adamw: undecided. 0 of 0 exponents are as predicted.
        """
        judged = [e for e in self.exponents if e.outcome is not Outcome.SHOWN]
        good = sum(e.outcome is Outcome.PASS for e in judged)
        start = f"{self.title} under {self.scheme} with {self.optimizer}: {self.outcome}."
        if self.nonfinite is None:
            return f"{start} {good} of {len(judged)} exponents are as predicted."
        n = self.nonfinite
        further = "".join(f", {axis} {value}" for axis, value in n.along.items())
        return (
            f"{start} At width {n.width} and depth {n.depth}{further}, {n.module} stopped being "
            f"finite at step {n.step} (seed {n.seed})."
        )

    @property
    def ordered(self) -> list[Exponent]:
        """The exponents, those that are off first."""
        return sorted(
            self.exponents, key=lambda e: (_ORDER.index(e.outcome), e.axis, -abs(deviation(e)))
        )

    def summary(self, *, everything: bool = False, width: int | None = None) -> str:
        """The check as lines of text: failures and undecided exponents, with their causes.

        Args:
            everything: whether the other exponents are listed, too.
            width: of a terminal, in which names of modules are folded.
        """
        lines = [self.headline]
        shown = [e for e in self.ordered if everything or e.is_off]
        if shown:
            table = [("", "against", "measured", "interval", "expected", "module: observable")]
            for e in shown:
                measured = (f"{e.estimate.value:+.2f}", e.interval, e.expected or "-")
                table.append((str(e.outcome), e.axis, *measured, f"{e.module}: {e.observable}"))
            lines += ["", *aligned(_folded(table, width), left=range(len(table[0])))]
        if causes := dict.fromkeys(e.cause for e in self.failures if e.cause):
            lines += ["", "Likely, causes before consequences:", *(f"  - {c}" for c in causes)]
        if self.outcome is Outcome.UNDECIDED:
            lead, code = self.to_decide
            lines += ["", lead, f"    {code}"]
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    @property
    def to_decide(self) -> tuple[str, str]:
        """What an undecided check lacks with its price, and the command that adds it.

        An interval of half-width h from s seeds that passes at half-width g needs s (h / g)^2.
        """
        open_ones = [e for e in self.exponents if e.outcome is Outcome.UNDECIDED]
        if not open_ones:
            lead = (
                f"Undecided: {self.scheme} predicts no exponent of what was measured, so no number "
                "of seeds decides. See what was measured:"
            )
            shown = shlex.join(with_option(self.command, "--all"))
            return lead, shown if self.command else "print(check.summary(everything=True))"
        parts = [_half(e) / _room(e, self.margin) for e in open_ones]
        seeds = max(self.seeds + 1, math.ceil(self.seeds * min(max(parts), MOST_OF_SEEDS) ** 2))
        seconds = max(self.seconds * seeds / self.seeds, 1)
        lead = (
            f"Undecided: {counted(len(open_ones), 'interval')} also "
            f"{'contains' if len(open_ones) == 1 else 'contain'} a wrong exponent."
        )
        words = with_option(self.command, f"--seeds {seeds}")
        code = shlex.join(words) if self.command else f"depthmup.check(..., seeds={seeds})"
        return f"{lead} Decide it with {seeds} seeds (about {seconds:.0f} s):", code

    def to_pandas(self, name: str = "exponents") -> "pd.DataFrame":
        """A tidy table: a row for each exponent, or for each observable at each size.

        Args:
            name: ``exponents`` or ``sizes``.

        Raises:
            ValueError: another name.
        """
        need("A table", "pandas")
        import pandas as pd

        if name not in ("exponents", "sizes"):
            raise ValueError(f"Expected exponents or sizes; got {name!r}.")
        rows: list[dict[str, Any]] = [strict(row) for row in getattr(self, name)]
        return pd.json_normalize(rows)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw measured minus expected exponents, those that are off first.

        Args:
            path: of a file to write, which ends in .svg, .pdf, .png or .html.

        Returns:
            The chart, which a notebook shows.

        Raises:
            ValueError: another suffix, or a check in which nothing was measured.
        """
        need("A chart", "vl_convert")
        from depthmup.reports import save_chart  # which imports this package
        from depthmup.reports.chart import draw
        from depthmup.reports.check_page import deviations

        predicted = [e for e in self.ordered if e.expected]
        if not predicted:
            raise ValueError(f"Expected a check with exponents to draw; got: {self.headline}")
        chart = draw(deviations(self, predicted))
        if path is not None:
            save_chart(chart, Path(path))
        return chart

    def save(self, folder: str | Path) -> tuple[Path, ...]:
        """Write check.html and check.json into a folder, as ``depthmup check --out`` does.

        Args:
            folder: made where it is not there.

        Returns:
            The paths of the files.
        """
        need("The page", "vl_convert")
        from depthmup.reports.check_page import write_check  # which imports this package

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = (folder / "check.html", folder / "check.json")
        write_check(self, *paths)
        return paths

    @property
    def failures(self) -> tuple[Exponent, ...]:
        """Failed exponents: first single parameters and branches, then what follows from them."""
        failed = [e for e in self.exponents if e.outcome is Outcome.FAIL]
        return tuple(
            # False sorts first: observables of single parameters and branches.
            sorted(failed, key=lambda e: (e.observable in _CONSEQUENCES, -abs(deviation(e))))
        )


MOST_OF_SEEDS = 4.0
"""How many times narrower intervals may have to be where seeds are proposed for it."""


def _folded(rows: Sequence[tuple[str, ...]], width: int | None) -> list[tuple[str, ...]]:
    """Rows whose last cell goes on in rows of its own, where it does not fit a terminal."""
    if width is None:
        return list(rows)
    before = sum(max(map(len, cells)) + 2 for cells in list(zip(*rows, strict=True))[:-1])
    folded = []
    for *cells, last in rows:
        first, *more = textwrap.wrap(last, max(width - before, 16), subsequent_indent="  ") or [""]
        folded += [(*cells, first), *((*[""] * len(cells), line) for line in more)]
    return folded


def _half(e: Exponent) -> float:
    return (e.estimate.high - e.estimate.low) / 2


def _room(e: Exponent, margin: float) -> float:
    """The half-width at which an exponent passes (within a rival, twice the margin) or fails."""
    off = abs(deviation(e))
    return max(2 * margin - off, off - margin)


# These sum over many parameters: where a single one fails too, that is the reason.
_CONSEQUENCES = ("stream", "stream change", "branch change", "logits change", "logits")


def deviation(exponent: Exponent) -> float:
    """Measured minus predicted; 0 where nothing is predicted.

    Args:
        exponent: measured and predicted.

    Returns:
        The difference of the exponents.

    Example:
        >>> from depthmup.records import Estimate, Exponent, Outcome
        >>> deviation(Exponent(observable="stream", module="x", axis="depth", expected="1/2",
        ...     estimate=Estimate(value=0.75, low=0.7, high=0.8), outcome=Outcome.PASS))
        0.25
    """
    if not exponent.expected:
        return 0.0
    return exponent.estimate.value - float(Fraction(exponent.expected))
