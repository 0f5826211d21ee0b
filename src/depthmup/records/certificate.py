"""A certificate: the best learning rate of a large size predicted from small ones, or a refusal."""

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from depthmup._meant import Meant
from depthmup.records.codec import decode, encode, parse
from depthmup.records.finding import UNKNOWN, Estimate, Optimum, Verdict, ranged
from depthmup.records.packages import need
from depthmup.records.printable import printable
from depthmup.records.sizes import size_number, size_text
from depthmup.records.text import counted, html_card
from depthmup.records.tuned import LEARNING_RATE, Tuned

SCHEMA = 3
"""Version of the file's layout."""


class Lack(StrEnum):
    """What is missing or wrong in the evidence, so that nothing is certified."""

    BUDGET = "the budget was spent"
    SIZES = "too few sizes"
    SEEDS = "one seed"
    DIRECTION = "the target lies in a direction that was not measured"
    CORNER = "axes were measured apart, and the target grows along several"
    BREAKS = "training breaks down at the target"
    EDGE = "optimum at the edge of the grid"
    WALL = "optimum next to divergence"
    FAILED = "nothing trains"
    NOISE = "noise above the effect"
    SEARCH = "learning rates too far apart for a prediction"
    WINDOWS = "early and late windows disagree"
    SMALL = "sizes too small"
    WORSE = "larger sizes train worse"
    FAR = "target too far"
    UNCERTAIN = "prediction too uncertain"
    CONTRADICTED = "the nearest size contradicts the law"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """One reason not to certify, in a sentence, and what to measure instead.

    Attributes:
        lack: which kind of evidence is missing, from a fixed list.
        reason: what was measured, in a sentence.
        advice: what to measure instead.
    """

    lack: Lack
    reason: str
    advice: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisSlope:
    """How a quantity changes per doubling of one axis, on average from base to target.

    Axes that grew ``together`` with it have no slopes of their own: it is that of all of them.
    """

    axis: str
    estimate: Estimate
    together: tuple[str, ...] = ()

    @property
    def along(self) -> str:
        """Of which doublings it is, in words."""
        others = f" with {' and '.join(self.together)}" if self.together else ""
        return f"per doubling of {self.axis}{others}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BandPoint:
    """A point of a curve with its band.

    ``at`` is the fraction of the way from base to target, or a log2 learning rate.
    """

    at: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """Three numbers by which rules of transfer are compared.

    ``fit_error``: root mean square residual of the law in octaves, over the fit's degrees of
    freedom. ``robustness``: log2 of the curvature per doubling of each axis; where it is negative,
    a wrong learning rate costs less as the model grows. ``horizon_penalty``: expected excess loss,
    as a fraction of the best loss, at 16 times the largest size measured, with the base's learning
    rate.

    *Source:* the three questions are those of arXiv 2605.21486 (fit quality, robustness to
    extrapolation error, asymptotic loss penalty); the formulas are this package's own.
    """

    fit_error: float
    robustness: tuple[AxisSlope, ...]
    horizon_penalty: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetProbe:
    """A probe of the target: losses there over those at sizes that were measured.

    ``size`` is what was built: the target, or where that is too large, its depth with the other
    axes at the base. ``initial`` is the loss before training, divided by the base's.
    ``first_steps`` is the loss after ``steps`` steps with the predicted learning rate, divided by
    that of the largest measured size after as many steps; NaN where that was not tried.
    """

    size: Mapping[str, float]
    initial: float
    first_steps: float = math.nan
    steps: int = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Prescribed:
    """The value that a published rule prescribes at the target, from the best one at the base."""

    rule: str
    rate: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate(Meant):
    """The best learning rate predicted for a size that was not trained, and the evidence for it.

    Sizes are given by their axes. Learning rates are those at the base, to be scaled by the scheme:
    ``rate_unit * 2**log2_lr``. ``predicted`` is the best log2 learning rate at the target.
    ``penalty`` is its excess loss there as a fraction of the best loss, ``base_regret`` that of the
    base's own best learning rate. Intervals hold 90%. A refused certificate has ``refusals`` and
    predicts nothing. Where ``tuned`` is another hyperparameter, all of this is about its values.

    Attributes:
        target: the size that is predicted for, a value for every axis.
        base: the size that rates and factors refer to.
        optima: what was measured at each size.
        log2_lrs: the grid of values that were trained.
        seeds: repetitions of each run.
        title, scheme: the scheme in words, and by its name.
        slopes: of the optimum along each axis, or set of axes in step: ``log2_lr`` per doubling.
        best_loss: the loss expected at the target with the predicted value.
        metrics: three numbers to compare rules by; None for a refusal.
        probe: what building the target and a few steps there showed, where that was done.
        verdict: whether the optimum stays from base to target.
        law: the law of the optimum from base to target, with its band.
        penalty_curve: excess loss at the target against the log2 value that it is trained with.
        confidence: of every interval.
        measure: what is minimized, in words.
        code: fingerprint of the model's code and version of the engines, by name.
        config: the design that was measured.
        environment: versions and hardware.
        schema: version of this file's layout.
        rules: what published rules prescribe at the target.
        data: a hash of the runs that it rests on, whatever their order.
        date: on which this forecast was first written to a file; empty before.
    """

    MEANT: ClassVar = {
        "lr": "certificate.learning_rate",
        "passed": "certificate.issued, and certificate.verdict",
        "save": "report.save(folder), which dates the forecast, or certificate.to_json()",
        "to_pandas": 'report.to_pandas("predictions")',
    }

    target: Mapping[str, float]
    base: Mapping[str, float]
    optima: tuple[Optimum, ...]
    log2_lrs: tuple[float, ...]
    seeds: int
    title: str = ""
    scheme: str = ""
    rate_unit: float = 1.0
    refusals: tuple[Refusal, ...] = ()
    slopes: tuple[AxisSlope, ...] = ()
    predicted: Estimate = UNKNOWN
    penalty: Estimate = UNKNOWN
    base_regret: Estimate = UNKNOWN
    best_loss: Estimate = UNKNOWN
    metrics: Metrics | None = None
    probe: TargetProbe | None = None
    verdict: Verdict = Verdict.UNDECIDED
    law: tuple[BandPoint, ...] = ()
    penalty_curve: tuple[BandPoint, ...] = ()
    confidence: float = 0.9
    measure: str = "training loss"
    code: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA
    tuned: Tuned = LEARNING_RATE
    rules: tuple[Prescribed, ...] = ()
    data: str = ""
    date: str = ""

    def __repr__(self) -> str:
        where = ", ".join(f"{axis} {size_number(size)}" for axis, size in self.target.items())
        # Names of axes and of what is tuned may come from a person's table.
        return printable(f"<Certificate for {where}: {self._answer}>")

    def _repr_html_(self) -> str:
        where = f"{self.title or self.scheme} for {size_text(self.target)}"
        reasons = (f"{r.reason} {r.advice}" for r in self.refusals)
        return html_card(
            where, "certified" if self.issued else "refused", [f"{self._answer}.", *reasons]
        )

    @property
    def _answer(self) -> str:
        if not self.issued:
            return f"refused, {counted(len(self.refusals), 'reason')}"
        best = self.value
        return f"{self.tuned.name} {ranged(best)} at {self.confidence:.0%}, {self.verdict}"

    @property
    def issued(self) -> bool:
        return not self.refusals

    @property
    def learning_rate(self) -> Estimate:
        """The learning rate to train the target with.

        Raises:
            AttributeError: something else was tuned; ``value`` has it.
        """
        if not self.tuned.is_learning_rate:
            raise AttributeError(
                f"This certificate is for {self.tuned.the}: read its value. The learning rate "
                "was held; its config has it."
            )
        return self.value

    @property
    def best_lr(self) -> Estimate:
        """The learning rate to train the target with, by the name that reports use."""
        return self.learning_rate

    @property
    def value(self) -> Estimate:
        """The value of what is tuned to train the target with, in units of the base."""
        return self.predicted.exp2(self.rate_unit)

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """The certificate as text: the answer, its reasons, and the optima behind it."""
        from depthmup.reports import certificate_text  # which imports this package

        return certificate_text(self)

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the optima, their law and the prediction at the target.

        Args:
            path: of a file to write, which ends in .svg, .pdf, .png or .html.

        Returns:
            The chart, which a notebook shows.

        Raises:
            ValueError: another suffix.
        """
        need("A chart", "vl_convert")
        from depthmup.reports import save_chart
        from depthmup.reports.certificate import certificate_picture

        chart = certificate_picture(self)
        if path is not None:
            save_chart(chart, Path(path))
        return chart

    @property
    def doublings_beyond(self) -> dict[str, float]:
        """From the largest size measured to the target, along each axis; 0 if it is no larger."""
        sizes = {a: [o.size[a] for o in self.optima if a in o.size] for a in self.target}
        return {
            axis: max(math.log2(self.target[axis] / max(values)), 0.0)
            for axis, values in sizes.items()
            if values
        }

    def to_json(self) -> str:
        """Strict JSON; NaN is null, infinities are text. ``from_json`` reads it back."""
        # A NaN that encode missed raises here and does not become invalid JSON.
        raw = {**encode(self), "doublings_beyond": self.doublings_beyond}
        return json.dumps(raw, indent=2, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "Certificate":
        """The certificate that ``to_json`` wrote.

        Raises:
            ValueError: not a certificate, or one of another schema version; names the field.
        """
        raw = parse(text, "a certificate")
        if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
            version = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
            if isinstance(raw, dict) and "recipe" in raw:
                raise ValueError(
                    "Expected the certificate of one tuned value; this one predicts a recipe of "
                    "several. Fit runs at its target with all of them, `depthmup fit --lr A,B`, "
                    "and compare the optima."
                )
            raise ValueError(
                f"Expected a certificate of schema version {SCHEMA}; got {reprlib.repr(version)}. "
                "Read it with the depthmup version that wrote it, or calibrate again."
            )
        names = {f.name for f in fields(Certificate)}
        if lacking := names - raw.keys():
            raise ValueError(f"Expected a certificate; it lacks {', '.join(sorted(lacking))}.")
        known = {name: raw[name] for name in raw if name in names}
        return decode(Certificate, known, "the certificate")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Two certificates for one target: the second minus the first.

    ``octaves``: of the predicted best learning rate. ``loss``: log ratio of the predicted best
    losses, its interval widened as if the two were independent. ``questions``: what either one says
    of batch and duration and the other does not (what is held, which rule moves the rest); where
    there is anything, the change is one of the question, too.
    """

    octaves: float
    loss: Estimate
    questions: tuple[str, ...] = ()


def compare(first: Certificate, second: Certificate) -> Change:
    """The change from one certificate to another of the same code and target."""
    if dict(first.code) != dict(second.code):
        differ = sorted(
            k for k in {*first.code, *second.code} if first.code.get(k) != second.code.get(k)
        )
        pairs = [f"{k}: {first.code.get(k)!r} and {second.code.get(k)!r}" for k in differ]
        raise ValueError(
            f"Expected two certificates of the same code; they differ in {', '.join(pairs)}. "
            "Changes of the code cannot be separated from changes of training: calibrate both "
            "again."
        )
    if first.tuned != second.tuned:
        raise ValueError(
            f"Expected two certificates of one hyperparameter; got {first.tuned.the} and "
            f"{second.tuned.the}."
        )
    for name in ("target", "base", "measure"):
        if getattr(first, name) != getattr(second, name):
            raise ValueError(
                f"Expected two certificates with the same {name}; got {getattr(first, name)} and "
                f"{getattr(second, name)}. Calibrate both for one."
            )
    for certificate in (first, second):
        if not certificate.issued:
            raise ValueError(
                f"Expected two certificates that were issued; "
                f"{certificate.title or certificate.scheme!r} was refused: "
                f"{certificate.refusals[0].reason} {certificate.refusals[0].advice}"
            )
    # In logarithms the ratio of two losses is a difference, and its error a sum of squares.
    a, b = first.best_loss, second.best_loss
    ratio = math.log(b.value / a.value)
    half = math.hypot(math.log(a.high / a.value), math.log(b.high / b.value))
    asked = [
        [str(sentence) for sentence in certificate.config.get("question", ())]
        for certificate in (first, second)
    ]
    return Change(
        octaves=second.predicted.value - first.predicted.value,
        loss=Estimate(value=ratio, low=ratio - half, high=ratio + half, unit="log loss"),
        questions=(
            *(f"The first: {one}" for one in asked[0] if one not in asked[1]),
            *(f"The second: {one}" for one in asked[1] if one not in asked[0]),
        ),
    )
