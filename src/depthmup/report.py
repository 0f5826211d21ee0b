"""The report of runs, trained or read from a table: verdicts, tables, charts and files."""

import reprlib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from depthmup import reports
from depthmup._drafts import draft_of
from depthmup._excluded import (
    EXCLUDED,
    JSON,
    PAGE,
    csv_of_excluded,
    excluded_rows,
    without_formulas,
)
from depthmup._meant import Meant
from depthmup.recipes import RecipeReport
from depthmup.records import (
    UNKNOWN,
    AcrossGroups,
    Axis,
    Cell,
    Certificate,
    Estimate,
    JointLaw,
    Judgement,
    Note,
    Record,
    Study,
    Transfer,
    Tuned,
    Verdict,
)
from depthmup.records.certificate import TargetProbe
from depthmup.records.codec import decode, parse
from depthmup.records.finding import verdict_of_all
from depthmup.records.gain import Gain
from depthmup.records.note import Excluded
from depthmup.records.packages import installed, need, pip
from depthmup.records.printable import printable
from depthmup.records.sizes import parse_size
from depthmup.records.text import begin, counted
from depthmup.reports.sentences import advice, at_base, headline
from depthmup.reports.study_rows import ROWS, prediction_rows
from depthmup.reports.tables import text
from depthmup.statistics.gain import SHARE, gain_of, level_of
from depthmup.statistics.groups import across_groups, comparable
from depthmup.statistics.recorded import runs_in
from depthmup.statistics.runs import Runs
from depthmup.sweep import (
    MAIN_STORE,
    Losses,
    MissingRuns,
    SearchState,
    Shard,
    Store,
    StoreError,
    Sweep,
    advance,
    certificate,
    certify,
    losses_over,
    snapshot,
    story,
    studies,
)
from depthmup.sweep.certify import TrainMissing
from depthmup.sweep.hyperparameters import hyperparameters, tuned_in
from depthmup.sweep.recipe import recipe_of_search
from depthmup.sweep.sessions import engines_of, environment_of
from depthmup.sweep.strategy import OUT_OF_BUDGET, with_all_stored
from depthmup.sweep.study import loss_over, runs_of

if TYPE_CHECKING:
    import pandas as pd

LISTED = 100_000
"""Runs that may be missing where a message counts them exactly, at a millisecond each."""

SHARDS = 8
"""Shards without a store that a message names."""

Kind = Literal[
    "points", "optima", "transfers", "runs", "trials", "rules", "laws", "notes", "gains",
    "ablations", "excluded", "predictions",
]  # fmt: skip

UNFINISHED = (
    "The search is not at its end: it asks for further runs ({count}), and verdicts may "
    "change with them. Repeat the measurement with the same folder to make them."
)


@dataclass(frozen=True, kw_only=True)
class Report(Meant):
    """The findings, the curves behind them, and the losses of every run.

    Methods that take a scheme or an axis use the first scheme, and the first axis (depth, if a
    sweep measured it), where none is given. Groups of a table are its schemes.

    Attributes:
        studies: one for each axis.
        certificates: the predictions at the target, if there is one.
        sweep: the design and the model; none for a table.
        records: every run that was trained, by its description.
        table_runs: the runs of a table, by group.
        excluded: rows of a table that were left out, with their reasons.
        cells: what those rows hold, by column.
    """

    MEANT: ClassVar = {
        **dict.fromkeys(("runs", "trials"), 'report.to_pandas("runs")'),
        **dict.fromkeys(("table", "df", "to_df", "dataframe", "frame"), "report.to_pandas()"),
        **dict.fromkeys(("lr", "learning_rate", "best"), "report.best_lr"),
        "optima": 'report.to_pandas("optima")',
        "to_json": "report.to_dict() or report.save(folder)",
        "show": "print(report)",
    }

    studies: tuple[Study, ...]
    certificates: tuple[Certificate, ...] = ()
    sweep: Sweep | None = None
    records: Mapping[Any, Record[Any]] = field(default_factory=dict)
    table_runs: tuple[Runs, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    cells: Mapping[str, list[Any]] = field(default_factory=dict)

    @property
    def _judged(self) -> tuple[Study, ...]:
        if not self.studies:
            raise ValueError(
                "A shard alone has no findings: join all of them with `depthmup merge FOLDER`."
            )
        return self.studies

    def study(self, axis: Axis | None = None) -> Study:
        """The curves along an axis.

        Args:
            axis: by default the first that was measured.

        Returns:
            The study.

        Raises:
            ValueError: the axis was not measured.
        """
        for study in self._judged:
            if axis in (None, study.axis):
                return study
        raise ValueError(
            f"Expected one of the axes that were measured, "
            f"{', '.join(study.axis for study in self.studies)}; got {axis!r}."
            + "".join(
                f" It grew in step with {study.axis}, whose study is of all that did."
                for study in self.studies
                if any(axis in transfer.together for transfer in study.headline.transfers)
            )
        )

    @property
    def schemes(self) -> tuple[str, ...]:
        """The names of the variants, or of a table's groups; not of those that lack a rule."""
        if self.sweep is not None:
            return tuple(variant.name for variant in self.sweep.design.judged)
        names = (t.scheme for study in self._judged for t in study.headline.transfers)
        return tuple(dict.fromkeys(names))

    def scheme(self, name: str | None = None) -> str:
        """The name of a variant; without one the first that could be fitted.

        Args:
            name: of the variant.

        Returns:
            The name.

        Raises:
            ValueError: there is no such variant.
        """
        if self.sweep is not None:
            return self.sweep.design.variant(name).name
        fitted = (s for s in self.schemes if any(t.optima or t.drift.known for t in self._of(s)))
        if not name and name not in self.schemes:
            return next(fitted, self.schemes[0])
        if name in self.schemes:
            return str(name)
        names = ", ".join(map(repr, self.schemes))
        raise ValueError(f"Expected one of the groups {names}; got {name!r}.")

    def _of(self, scheme: str) -> Iterator[Transfer]:
        for study in self._judged:
            yield from (t for t in study.headline.transfers if t.scheme == scheme)

    def finding(self, scheme: str | None = None, axis: Axis | None = None) -> Transfer:
        """The verdict on a scheme along an axis, with its optima and drift.

        Args:
            scheme: name of the variant; by default the first.
            axis: by default depth if it was measured.

        Returns:
            The finding of the last window.

        Raises:
            ValueError: no such scheme, or it does not vary along the axis.
        """
        name, study = self.scheme(scheme), self.study(axis)
        for transfer in study.headline.transfers:
            if transfer.scheme == name:
                return transfer
        raise ValueError(f"Expected a scheme that varies along {study.axis}; got {name!r}.")

    def exponent(self, axis: Axis, group: str | None = None) -> Estimate:
        """How the best value moves along an axis, ``best ~ size**exponent``: the drift.

        Args:
            axis: one that was measured.
            group: name of the variant; by default the first.

        Returns:
            The estimate with its 95% interval.

        Raises:
            ValueError: the axis was not measured.
        """
        return self.finding(group, axis).drift

    def across_groups(self, axis: Axis | None = None) -> AcrossGroups:
        """The drift of all variants together, such as the groups of a table, by random effects.

        Where the axis varies alone in some groups, those in which others change with it are left
        out: their drifts answer another question.

        Args:
            axis: by default the first that was measured.

        Returns:
            The mean with its interval, how groups scatter, and where a new group's drift would lie;
            unknown with fewer than three.

        Example:
            ``depthmup.fit("runs.csv", axes=["rank"], lr="lr", loss="loss",
            by="model").across_groups()``
        """
        study = self.study(axis)
        return across_groups(comparable(study.headline.transfers), tolerance=study.tolerance)

    @property
    def verdict(self) -> Verdict:
        """The first scheme's: transfers if it does along every axis, drifts if along any."""
        return self.verdicts[self.scheme()]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """By scheme: transfers if it does along every axis, drifts if along any."""
        return {
            name: verdict_of_all(transfer.verdict for transfer in self._of(name))
            for name in self.schemes
        }

    @property
    def drift(self) -> Estimate:
        """The first scheme's drift, in octaves per doubling."""
        return self.finding().drift

    @property
    def regret(self) -> Estimate:
        """The first scheme's excess loss at the largest size with the base's best value."""
        return self.finding().regret

    def rules(self, scheme: str | None = None, axis: Axis | None = None) -> tuple[Judgement, ...]:
        """Published rules for these axes, and whether they hold.

        Args:
            scheme: name of the variant; by default the first.
            axis: by default all.

        Returns:
            A judgement for each.
        """
        name = self.scheme(scheme)
        judged = [rule for study in self._judged for rule in study.rules]
        return tuple(r for r in judged if r.scheme == name and axis in (None, r.axis))

    def law(self, scheme: str | None = None) -> JointLaw | None:
        """The joint law of all axes, where the runs of a table show one.

        Args:
            scheme: name of the variant; by default the first.

        Returns:
            The law, or none.
        """
        name = self.scheme(scheme)
        laws = (law for study in self._judged for law in study.laws)
        return next((law for law in laws if law.scheme == name), None)

    def notes(self, scheme: str | None = None) -> tuple[Note, ...]:
        """What a reader must know of the runs.

        Args:
            scheme: name of the variant; by default all.

        Returns:
            Notes on this variant, and on all.
        """
        notes = [note for study in self._judged for note in study.notes]
        unique = dict.fromkeys(notes)
        return tuple(n for n in unique if scheme is None or n.scheme in ("", scheme))

    def _swept(self, what: str) -> Sweep:
        if self.sweep is None:
            raise ValueError(f"Expected a report of runs that were trained here for {what}.")
        return self.sweep

    def losses(
        self, scheme: str | None = None, axis: Axis | None = None, *, window: int = -1
    ) -> Losses:
        """Mean losses over a window of training, (sizes, learning rates, seeds).

        Args:
            scheme: name of the variant; by default the first.
            axis: sizes along this axis; by default all sizes.
            window: index of the window; by default the last.

        Returns:
            The losses with their sizes and values; infinite where a run diverged.

        Raises:
            ValueError: the report is of a table.
        """
        sweep = self._swept("losses by window: to_pandas('points') has those of a table")
        sizes = sweep.design.all_sizes
        if axis is not None:
            sizes = sweep.design.sizes_along(self.study(axis).axis)
        variant = sweep.design.variant(scheme)
        sizes = tuple(size for size in sizes if sweep.rates(variant, size))
        steps = self._judged[0].windows[window]
        return losses_over(sweep, self.records, variant, sizes, slice(steps.start, steps.stop))

    def certificate(
        self,
        target: Mapping[str, float] | str,
        *,
        scheme: str | None = None,
        probe: TargetProbe | None = None,
    ) -> Certificate:
        """Predict the best value of the tuned hyperparameter for another size, or refuse to.

        Args:
            target: the size, also as text; missing axes take the base's value. A table has no base
                and needs all of them.
            scheme: name of the variant; by default the first.
            probe: of the target, if one was trained.

        Returns:
            A certificate, which may be a refusal with its reasons.

        Raises:
            ValueError: the report was read from a file, or no size of a table has an optimum.

        Example:
            ``report.certificate(target={"width": 4096, "depth": 64}).value``
        """
        study = self._judged[0]
        if isinstance(target, str):
            target = parse_size(target, option="target")
        if self.sweep is None:
            from depthmup.tables.predict import predicted  # readers load when a table is read

            name = self.scheme(scheme)
            runs = next((r for r in self.table_runs if r.name == name), None)
            return predicted(runs, target, study)
        return certificate(
            self.sweep,
            self.records,
            self.sweep.design.variant(scheme),
            {**self.sweep.design.base, **{axis: int(n) for axis, n in target.items()}},
            probe=probe,
            tolerance=study.tolerance,
            config=study.config,
            environment=study.environment,
        )

    @cached_property
    def variants(self) -> dict[str, Runs]:
        """The runs of every variant, by its name."""
        runs: Sequence[Runs] = self.table_runs or runs_in(self._judged)
        if self.sweep is not None:
            last = self._judged[0].headline
            steps = slice(last.start, last.stop)
            runs = [
                runs_of(self.sweep, self.records, variant, steps)
                for variant in self.sweep.design.variants
            ]
        return {each.name: each for each in runs}

    def _runs(self, name: str) -> Runs:
        found = self.variants.get(name)
        if found is None:  # a group of a table is called "arch new", and its title "new"
            alike = [v for v in self.variants.values() if name in (v.title, *v.name.split(" "))]
            found = alike[0] if len(alike) == 1 else None
        if found is None or found.problem or not found.sizes:
            raise ValueError(
                f"Expected a variant with runs, one of {', '.join(map(repr, self.variants))}; got "
                f"{name!r}."
            )
        return found

    def gain(
        self,
        of: str,
        over: str | None = None,
        *,
        target: Mapping[str, float] | str | None = None,
        share: float = SHARE,
    ) -> Gain:
        """How much lower the loss of one variant is than another's, and what becomes of it.

        The gain is ``log loss of over - log loss of of`` at one size, positive where ``of`` is
        better: *tuned*, each at its own best value, and *as trained*, each at the value that its
        base hands on. At sizes that were trained intervals hold 95%, at a target 90%. Of several
        candidates the intervals of ``report.study().gains`` hold for all at once; this one is of
        the pair alone.

        Args:
            of: the candidate.
            over: the baseline; by default the first other variant.
            target: the size that the verdict is about; by default the largest that was trained.
                Missing axes take the base's values.
            share: of the base's gain, that is to be left at the target for it to hold.

        Returns:
            The gain: ``value``, ``low``, ``high``, ``verdict``, ``why``, ``at(size)``, ``worth``.

        Raises:
            ValueError: no such variant, or no size at which both have an optimum.

        Example:
            ``report.gain("muon", over="adamw", target={"width": 4096}).verdict``

        *Source:* the law of gains is that of two power laws (``posterior.level_law``).
        """
        if isinstance(target, str):
            target = parse_size(target, option="target")
        new = self._runs(of)
        others = (name for name in self.variants if name != new.name)
        base = self._runs(over or next(others, of))
        if base.name == new.name:
            raise ValueError(f"Expected two variants for a gain; got {new.name!r} twice.")
        return gain_of(new, base, target=target, share=share)

    def level(self, name: str, target: Mapping[str, float] | str) -> Estimate:
        """The tuned loss of a variant at a target, with its 90% interval.

        Args:
            name: of the variant.
            target: the size; missing axes take the base's values.

        Returns:
            The loss.

        Raises:
            ValueError: no such variant, or it has no optimum inside its grid.
        """
        if isinstance(target, str):
            target = parse_size(target, option="target")
        return level_of(self._runs(name), target)

    @property
    def best_lr(self) -> Estimate:
        """The best learning rate at the base, under the first scheme; unknown where none trains.

        Raises:
            AttributeError: something else was tuned; ``to_pandas("optima")`` has its best values.
        """
        study = self.study()
        if not study.tuned.is_learning_rate:
            raise AttributeError(
                f"{begin(study.tuned.the)} was tuned, and the learning rate was held: "
                "read to_pandas('optima')."
            )
        at = at_base(study, self.finding())
        return UNKNOWN if at is None else at.exp2()

    def summary(self) -> str:
        """The result as text.

        Returns:
            What to do, the best values, verdicts with their reasons, and notes.
        """
        return text(*self._judged, certificates=self.certificates)

    @cached_property
    def page(self) -> str:
        """The result as one HTML page that opens offline."""
        return reports.page(*self._judged, certificates=self.certificates)

    def to_dict(self) -> dict[str, Any]:
        """The result for other programs.

        Returns:
            Values of strict JSON, as in summary.json.
        """
        return reports.summary(
            *self._judged, certificates=self.certificates, whole=self.sweep is None
        )

    def figure(
        self,
        name: "reports.FigureName" = "transfer",
        *,
        kind: "reports.FigureKind" = "paper",
        axis: Axis | None = None,
    ) -> "reports.Figure":
        """A figure for a paper or a slide, without a title, and its caption.

        Args:
            name: ``transfer``, the best learning rate against size; ``rates``, the loss against
                learning rate; ``loss``, the best loss against size; ``drift``, the drifts;
                ``training``, the loss over training; ``search``, how the interval narrowed.
            kind: ``paper``, 3.25 inches wide with type of 8 points, or ``slide``, 5.5 with 9.
            axis: by default depth if it was measured.

        Returns:
            The chart and its caption; ``save`` writes both.

        Example:
            ``report.figure("transfer").save("transfer.pdf")`` writes transfer.txt, too.
        """
        return reports.study_figure(self.study(axis), name, kind=kind)

    def plot(
        self, path: str | Path | None = None, *, axis: Axis | None = None
    ) -> "reports.Picture":
        """Draw the best values against size.

        Args:
            path: of a file to write, which ends in .svg, .pdf, .png or .html.
            axis: by default the first that was measured.

        Returns:
            The chart, which a notebook shows.

        Raises:
            ValueError: another suffix.
        """
        chart = reports.optimum_against_size(self.study(axis))
        if path is not None:
            reports.save_chart(chart, Path(path))
        return chart

    def to_pandas(self, name: Kind = "points") -> "pd.DataFrame":
        """A tidy table.

        ``points``: loss by scheme, size and learning rate. ``optima``: the best learning rates.
        ``transfers``: drift, excess loss (column ``regret``) and verdict by axis. ``runs``: every
        run of every variant, with its values at the base and its last loss; ``depthmup.fit`` reads
        it. ``rules``, ``laws``, ``notes``, ``predictions``: what else the report has. ``excluded``:
        the rows of a table that were left out.

        Args:
            name: of the table.

        Returns:
            A row for each.

        Raises:
            ValueError: another name.
        """
        need("A table", "pandas")
        import pandas as pd

        if name in ("runs", "trials"):
            return pd.DataFrame(self._run_rows())
        if name == "excluded":
            return pd.DataFrame(excluded_rows(self.excluded, self.cells))
        if name == "predictions":
            return pd.DataFrame(prediction_rows(self.certificates))
        if name not in ROWS:
            names = ", ".join([*ROWS, "runs", "excluded", "predictions"])
            raise ValueError(f"Expected one of {names}; got {name!r}.")
        return pd.DataFrame([row for study in self._judged for row in ROWS[name](study)])

    def _run_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each run of each variant: schemes that agree at the base share runs there."""
        sweep = self._swept("its runs")
        design, auto = sweep.design, sweep.design.auto
        rates = "grid" if auto is None else "search" if auto.precision is None else "precision"
        window, base = design.windows[-1], {f"base_{a}": n for a, n in design.base.items()}
        for variant in design.variants:
            chance = sweep.chance(self.records, variant) if self.studies else float("inf")
            for size in design.all_sizes:
                for log2 in sweep.rates(variant, size):
                    chosen, log2_lr, _ = hyperparameters(design, variant, log2)
                    for seed, run in enumerate(sweep.curve(variant, size, log2)):
                        record = self.records.get(run)
                        if record is None:  # of another shard
                            continue
                        here = {"lr_at_size": run.optimizer.lr} if isinstance(run, Cell) else {}
                        yield {
                            "scheme": variant.name,
                            "title": variant.title,
                            **size,
                            **base,
                            "optimizer": variant.optimizer,
                            "lr": 2.0 ** round(log2_lr, 9),
                            "multiplier": chosen.multiplier,
                            "weight_decay": chosen.weight_decay,
                            design.tune.key: 2.0**log2,
                            design.tune.column: log2,
                            **tuned_in(run, design.tune),
                            "seed": seed,
                            "status": record.status.value,
                            "steps": run.steps,
                            "steps_taken": len(record.losses),
                            "loss": loss_over(run, record, window, steps=design.steps),
                            "last_finite_loss": record.last_finite_loss,
                            "rates": rates,
                            "chance": chance,
                            **here,
                            "key": run.key,
                        }

    @property
    def excluded_csv(self) -> str:
        """The rows that were left out as CSV, each with its reason; no cell is a formula."""
        return csv_of_excluded(self.excluded, self.cells)

    def to_csv(self, path: str | Path, name: Kind = "points") -> None:
        """Write a table as CSV. A text that a spreadsheet would run as a formula gets a quote mark.

        Args:
            path: of the file.
            name: which table, as in ``to_pandas``.
        """
        with draft_of(Path(path)) as draft:
            without_formulas(self.to_pandas(name)).to_csv(draft, index=False)

    def to_parquet(self, path: str | Path, name: Kind = "points") -> None:
        """Write a table as Parquet.

        Args:
            path: of the file.
            name: which table, as in ``to_pandas``.

        Raises:
            ValueError: pyarrow is not installed.
        """
        try:
            import pyarrow  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            raise ValueError(
                f"Writing Parquet needs pyarrow: {pip()} install 'depthmup[parquet]'. to_csv works "
                "without it."
            ) from None
        with draft_of(Path(path)) as draft:
            self.to_pandas(name).to_parquet(draft, index=False)

    def save(self, folder: str | Path, *, formats: Collection[str] = ()) -> tuple[Path, ...]:
        """Write report.html and summary.json into a folder; of a table excluded.csv, too.

        Args:
            folder: made where it is not there.
            formats: of chart files, such as "svg", in its folder charts.

        Returns:
            The paths of the files, but for those of charts.
        """
        folder, more = Path(folder), dict[str, str]()
        # A report that was loaded leaves the rows beside it as they are.
        if self.table_runs and "table" in self._judged[0].config:
            more[EXCLUDED] = self.excluded_csv
        reports.write_result(
            self._judged,
            folder,
            certificates=self.certificates,
            formats=formats,
            whole=self.sweep is None,  # of a table no store is beside it
            more=more,
        )
        return tuple(folder / name for name in (PAGE, JSON, *more))

    def __str__(self) -> str:
        return self.summary() if self.studies else f"A shard: {len(self.records)} runs"

    def __repr__(self) -> str:
        found = str(self)
        if self.studies:
            found = advice(*self.studies) or headline(self.studies[0])
        return printable(f"<Report: {found.rstrip('.')}; print it for the table>")

    def _repr_html_(self) -> str | None:
        if not installed("vl_convert"):
            return None  # a notebook shows the text
        if not self.studies:
            runs = counted(len(self.records), "run")
            return f"<pre>A shard: {runs}, to be joined with the others.</pre>"
        return reports.notebook(*self.studies)


FitReport = Report
"""What ``depthmup.fit`` returns: the one report, of runs that a table has."""


def read_report(file: Path) -> Report:
    """The report of a table, from the file that ``save`` wrote; its excluded rows are beside it."""
    if not file.is_file():
        raise StoreError(
            f"Expected a folder of `depthmup transfer` or `depthmup fit`, with {MAIN_STORE} or "
            f"{JSON} in it; {file.parent} has neither."
        )
    try:
        raw = parse(file.read_text(encoding="utf-8"), "a report")
        if not isinstance(raw, dict) or not {"schema", "studies", "certificates"} <= raw.keys():
            raise ValueError("Expected the summary of a table, with its studies.")
        if raw["schema"] != reports.SCHEMA:
            raise ValueError(
                f"Expected schema {reports.SCHEMA}; got {reprlib.repr(raw['schema'])}. Read it "
                "with the depthmup version that wrote it, or fit the table again."
            )
        report = Report(
            studies=decode(tuple[Study, ...], raw["studies"], "studies"),
            certificates=decode(tuple[Certificate, ...], raw["certificates"], "certificates"),
        )
        # Each value may be of its type and all of them contradict each other: curves of a scheme
        # without a verdict. The table and the rows need everything.
        _ = report.summary(), [rows(study) for study in report.studies for rows in ROWS.values()]
        if not report.studies:
            raise ValueError("Expected a study; it has none.")
    # A text that is no UTF-8 is a ValueError too.
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = printable(str(error)[:500])
        raise StoreError(f"{file} cannot be read as a report: {said}") from error
    return report


def load_report(
    store: Store,
    sweep: Sweep | None = None,
    *,
    state: SearchState | None = None,
    train: TrainMissing | None = None,
    partial: bool = False,
    measurement: int | None = None,
) -> Report | RecipeReport:
    """The report of a sweep from the runs in a store; of its only measurement, or one of several.

    A search is replayed, unless its ``state`` is given. If the report may be ``partial``, a search
    that asks for further runs is reported as far as it went, with a note.
    """
    if sweep is None:
        return _chosen(store, measurement, partial=partial)
    sessions = [s for s in store.sessions() if s.get("sweep") == sweep.to_dict()]
    if not sessions:
        raise StoreError(
            f"This measurement was not started in {store.path}. Run `depthmup transfer` with this "
            "--out."
        )
    last = sessions[-1]
    search, notes = None, list[Note]()
    if sweep.design.auto:
        state = state or advance(_begun(sweep, last), store)
        if not state.done:
            state, notes = _cut_short(state, store, partial=partial)
            if partial and len(store) > len(state.records):
                state = with_all_stored(state, store)
        if sweep.design.beside:
            return _recipes(
                state,
                last,
                own=sessions,
                notes=notes,
                command=_of_folder(last.get("command", ()), store),
            )
        sweep, search = state.sweep.with_shared_runs(), story(state)
    else:
        _check_size(sweep, store)
    records = store.records(sweep.runs)
    command = {"command": _of_folder(last["command"], store)} if "command" in last else {}
    own = [session for session in sessions if session["sweep"] == last["sweep"]]
    about: dict[str, Any] = {
        "tolerance": last["tolerance"],
        "config": {**sweep.config, "tolerance": last["tolerance"], **command},
        "environment": environment_of(own),
    }
    if len(engines := engines_of(own)) > 1:
        mixed = (
            f"Runs of {len(engines)} engines are mixed here, which agree to rounding and not to "
            "the bit: where the verdict is close, train all runs by one of them."
        )
        notes.append(Note(text=mixed))
    judged = studies(
        sweep,
        records,
        title=last.get("title", ""),
        search=search,
        notes=notes,
        over=last.get("over", ""),
        target=last.get("target"),
        **about,
    )
    certificates: tuple[Certificate, ...] = ()
    if target := last.get("target"):
        ended = {} if search is None else search.ended
        spent = [name for name, why in ended.items() if why.startswith(OUT_OF_BUDGET)]
        certificates = certify(sweep, store, records, target, train=train, spent=spent, **about)
    return Report(sweep=sweep, records=records, studies=judged, certificates=certificates)


def _recipes(
    state: SearchState,
    last: Mapping[str, Any],
    *,
    own: Sequence[Mapping[str, Any]],
    notes: Sequence[Note],
    command: Sequence[str],
) -> RecipeReport:
    """The report of several values that were tuned together."""
    sweep, found = state.sweep, recipe_of_search(state)
    (variant,) = sweep.design.variants
    same = [session for session in own if session["sweep"] == last["sweep"]]
    return RecipeReport(
        recipes=() if found.recipe is None else (found.recipe,),
        problems=() if found.recipe else ((variant.title, found.why),),
        title=last.get("title", "") or sweep.title,
        command=command,
        search=story(state),
        target=last.get("target"),
        refusals=found.refusals,
        config={**sweep.config, "tolerance": last["tolerance"]},
        environment=environment_of(same),
        notes=tuple(note.text for note in notes),
    )


def of_one_value(report: Report | RecipeReport, what: str) -> Report:
    """A report of one tuned value; one of several is refused where it has no answer."""
    if isinstance(report, RecipeReport):
        raise ValueError(
            f"Expected a measurement of one tuned value for {what}; this one tunes "
            f"{report.tuned_names} together. Its tables are report.to_pandas()."
        )
    return report


def measurements(store: Store) -> dict[int, Sweep]:
    """The sweeps of a store by their numbers, the one that was asked for last at the end."""
    by_start: dict[str, tuple[int, Sweep]] = {}
    for session in store.sessions():
        if "sweep" in session:
            content = repr(session["sweep"])
            begun, _ = by_start.pop(content, (len(by_start) + 1, None))
            by_start[content] = (begun, Sweep.from_dict(session["sweep"]))
    return dict(by_start.values())


def _chosen(store: Store, number: int | None, *, partial: bool) -> Report | RecipeReport:
    """The report of one measurement of a store: by its number, or the last that has its runs.

    A store has several where a folder was used again with another design, or a shard of another
    sweep was joined. The others are named in a note.
    """
    found = measurements(store)
    if not found:
        raise StoreError(
            f"No measurement was started in {store.path}. Run `depthmup transfer` with this --out."
        )
    if number is not None and number not in found:
        raise ValueError(
            f"Expected a measurement of 1 to {len(found)}, which {store.path} has; got {number}."
        )
    last_first = [*reversed(found)] if number is None else [number]
    if len(last_first) == 1:
        chosen = last_first[0]
        report = load_report(store, found[chosen], partial=partial)
    else:
        report, chosen = _finished(store, found, last_first, partial=partial)
    named = _told_apart(found)
    others = [f"{i} is {named[i]}" for i in sorted({*found} - {chosen})]
    if not others:
        return report
    text = (
        f"This folder has {len(found)} measurements. This is number {chosen}, "
        f"{named[chosen]}. {begin('; '.join(others))}. Show another: `depthmup report "
        f"{shlex.quote(str(store.path.parent))} --measurement {min({*found} - {chosen})}`."
    )
    if isinstance(report, RecipeReport):
        return replace(report, notes=(*report.notes, text))
    studies = (replace(s, notes=(*s.notes, Note(text=text))) for s in report.studies)
    return replace(report, studies=tuple(studies))


def _finished(
    store: Store, found: Mapping[int, Sweep], order: Sequence[int], *, partial: bool
) -> tuple[Report | RecipeReport, int]:
    """The first that has all of its runs, with its number; without one, the first."""
    lacking: dict[int, str] = {}
    for i in order:
        try:
            return load_report(store, found[i]), i
        except MissingRuns as error:
            lacking[i] = error.said
    if partial:
        return load_report(store, found[order[0]], partial=True), order[0]
    named = _told_apart(found)
    each = (
        f"Number {i} is {named[i]}: {lacking[i].removesuffix('.')}{_not_joined(store, found[i])}."
        for i in sorted(lacking)
    )
    raise MissingRuns(
        f"Expected a measurement that has all of its runs; {store.path} has {len(found)} that lack "
        f"some. {' '.join(each)}",
        "Finish one: repeat its command with this folder, and with the shards that are missing.",
        several=True,
    )


def _not_joined(store: Store, sweep: Sweep) -> str:
    """The shards of a measurement that are not in a store, by the commands that are."""
    commands = (s.get("command", ()) for s in store.sessions() if s.get("sweep") == sweep.to_dict())
    joined = {
        Shard.parse(word)
        for command in commands
        for option, word in pairwise(part for given in command for part in given.split("=", 1))
        if option == "--shard"
    }
    counts = sorted({shard.count for shard in joined})
    absent = [
        f"{i}/{k}" for k in counts for i in range(1, k + 1) if Shard(index=i, count=k) not in joined
    ]
    if not absent:
        return ""
    more = f" and {len(absent) - SHARDS} more" if len(absent) > SHARDS else ""
    listed = ", ".join(absent[:SHARDS]) + more
    return f", and no store of its shard {listed} was joined"


def _told_apart(found: Mapping[int, Sweep]) -> dict[int, str]:
    """Measurements in a few words; those of one description by what else differs between them."""
    words = {i: _described(sweep) for i, sweep in found.items()}
    for described in {*words.values()}:
        alike = [i for i in found if words[i] == described]
        settings = {
            i: {**found[i].to_dict()["model"], **found[i].to_dict()["design"]} for i in alike
        }
        names = dict.fromkeys(name for each in settings.values() for name in each)
        differ = [
            name for name in names if len({repr(each.get(name)) for each in settings.values()}) > 1
        ]
        for i in alike:
            apart = (f"{name} {_shortly(settings[i].get(name))}" for name in differ)
            words[i] = ", ".join([described, *apart])
    return words


def _shortly(value: Any) -> str:
    """A setting in a few letters: of a list its length and ends."""
    if isinstance(value, list) and len(value) > 2:
        return f"{value[0]:.3g} to {value[-1]:.3g} ({len(value)})"
    return reprlib.repr(value).strip("'")


def _described(sweep: Sweep) -> str:
    """A measurement in a few words: its arms and its schemes."""
    design = sweep.design
    arms = "; ".join(f"{axis} {', '.join(map(str, design.arm(axis)))}" for axis in design.axes)
    return f"{arms} under {', '.join(v.name for v in design.variants)}"


def load(folder: str | Path, *, measurement: int | None = None) -> Report | RecipeReport:
    """The report of a folder that ``depthmup.transfer`` or ``depthmup.fit`` has written.

    Args:
        folder: the ``out`` of the measurement, or its store (``results.sqlite``).
        measurement: which one, counted from 1 in the order in which they began, where the folder
            has several; by default the last that has all of its runs.

    Returns:
        The report of the measurement, or of the fitted table. Rows that a fit left out are in its
        excluded.csv, and are not part of it here. A search that asks for further runs is reported
        as far as it went, with a note; so are other measurements of the folder.

    Raises:
        StoreError: there is no such folder, nothing of the two kinds in it, a summary.json
            that is none, or runs are missing.

    Example:
        >>> report = depthmup.load("runs/demo")  # doctest: +SKIP
        >>> report.figure("transfer").save("transfer.pdf")  # doctest: +SKIP
    """
    path = Path(folder)
    store = path if path.suffix == ".sqlite" else path / MAIN_STORE
    if store.is_file():
        with snapshot(store) as opened:
            last = opened.sessions()[-1:]
            if any("claims" in session for session in last):
                raise StoreError(
                    f"{store} holds claims of the paper, of which there is a page and no report: "
                    f"`depthmup report {path}`."
                )
            return load_report(opened, partial=True, measurement=measurement)
    return read_report(path / JSON)


def next_of(store: Store) -> tuple[Sequence[Any], str, tuple[Tuned, ...]]:
    """The runs that the last measurement on a store needs next, why, or why there are none, and
    what it tunes.
    """
    sessions = [session for session in store.sessions() if "sweep" in session]
    if not sessions:
        raise StoreError(f"No measurement was started in {store.path}.")
    last = sessions[-1]
    sweep = Sweep.from_dict(last["sweep"])
    if sweep.design.auto is None:
        missing = store.missing(sweep.runs)
        why = f"{len(missing)} of the grid's {len(sweep.runs)} runs are missing."
        if not missing:
            why = (
                f"The grid's {len(sweep.runs)} runs are all there. `depthmup report "
                f"{shlex.quote(str(store.path.parent))}` ends with the command that asks for more."
            )
        return missing, why, sweep.design.tuned
    state = advance(_begun(sweep, last), store)
    if state.pending:
        number = max((r.number for r in state.rounds), default=0) + 1
        return state.pending, f"Round {number}.", sweep.design.tuned
    why = " ".join(f"{name}: {why}" for name, why in state.ended.items())
    return (), why, sweep.design.tuned


def _of_folder(command: Sequence[str], store: Store) -> list[str]:
    """A command that goes on in a store's folder, with all runs: shards may have had others."""
    before = ["", *command]
    words = [
        word
        for last, word in zip(before, command, strict=False)
        if last != "--shard" and word.partition("=")[0] != "--shard"
    ]
    if "--out" in words and (at := words.index("--out") + 1) < len(words):
        here = store.path.parent
        if Path(words[at]).resolve() != here.resolve():
            words[at] = str(here)
    return words


def _begun(sweep: Sweep, session: Mapping[str, Any]) -> SearchState:
    return SearchState(
        sweep=sweep,
        tolerance=session["tolerance"],
        target=session.get("target"),
        over=session.get("over", ""),
    )


def _cut_short(
    state: SearchState, store: Store, *, partial: bool
) -> tuple[SearchState, list[Note]]:
    """A search that asks for further runs as one that ended here, and a note of them."""
    auto, count = state.sweep.design.auto, len(state.pending)
    notes = []
    if auto is not None and auto.seconds is not None:
        over = f"{OUT_OF_BUDGET}: after {auto.seconds:g} seconds no more runs were begun"
    elif partial and state.records:
        over = f"it still needs {counted(count, 'run')}"
        notes.append(Note(text=UNFINISHED.format(count=count)))
    else:
        raise MissingRuns(
            f"The runs to be trained next ({count}) are not in {store.path} yet.",
            "Repeat the measurement with the same folder to go on; with shards, all of them.",
        )
    names = [variant.name for variant in state.sweep.design.variants]
    ended = {**dict.fromkeys(names, over), **state.ended}
    return replace(state, pending=(), ended=ended), notes


def _check_size(sweep: Sweep, store: Store) -> None:
    """Refuse a grid most of which a store cannot hold, without listing its runs: a text of a
    kilobyte may describe ten million.
    """
    design = sweep.design
    of_variant = len(design.all_sizes) * len(design.log2_values) * design.seeds
    if (lacking := of_variant - len(store)) >= LISTED:
        raise MissingRuns(
            f"At least {lacking:,} runs are not in {store.path} yet.",
            "Repeat the measurement with the same folder to finish them.",
        )
