"""The report of a measurement of transfer: verdicts, tables, charts and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from depthmup import reports
from depthmup.records import Axis, Estimate, Record, Study, Transfer, Tuned, Verdict
from depthmup.records.certificate import Certificate, Probe
from depthmup.records.packages import installed, need
from depthmup.sweep import (
    Losses,
    SearchState,
    Size,
    Store,
    StoreError,
    Sweep,
    advance,
    begin,
    certificate,
    certify,
    losses_over,
    story,
    studies,
)
from depthmup.sweep.losses import loss_over
from depthmup.sweep.sessions import engines_of, environment_of, sweep_of
from depthmup.sweep.target_probe import Train
from depthmup.sweep.tuning import tuned_in

if TYPE_CHECKING:
    import pandas as pd

LISTED = 100_000
"""Runs that may be missing where a message counts them exactly, at a millisecond each."""

Kind = Literal["points", "optima", "transfers", "trials"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The findings, the curves behind them, and the losses of every run.

    Methods that take a scheme or an axis use the first scheme, and depth if it was measured, where
    none is given.

    Attributes:
        sweep: what was measured.
        records: every run, by its description.
        studies: one for each axis and variant.
        certificates: the predictions at the target, if there is one.
    """

    sweep: Sweep
    records: Mapping[Any, Record[Any]] = field(repr=False)
    studies: tuple[Study, ...] = field(repr=False)
    certificates: tuple[Certificate, ...] = ()

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
        )

    def finding(self, scheme: str | None = None, axis: Axis | None = None) -> Transfer:
        """The verdict on a scheme along an axis, with its optima and drift.

        Args:
            scheme: name of the variant; by default the first.
            axis: by default depth if it was measured.

        Returns:
            The finding of the last window.
        """
        name = self.sweep.design.variant(scheme).name
        return next(t for t in self.study(axis).headline.transfers if t.scheme == name)

    @property
    def verdict(self) -> Verdict:
        """The first scheme's: transfers if it does along every axis, drifts if along any."""
        verdicts = {self.finding(axis=axis).verdict for axis in self.sweep.design.axes}
        for verdict in (Verdict.DRIFTS, Verdict.UNDECIDED):
            if verdict in verdicts:
                return verdict
        return Verdict.TRANSFERS

    @property
    def drift(self) -> Estimate:
        """The first scheme's drift, in octaves per doubling."""
        return self.finding().drift

    @property
    def regret(self) -> Estimate:
        """The first scheme's excess loss at the largest size with the base's best value."""
        return self.finding().regret

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
        """
        sizes = self.sweep.design.all_sizes
        if axis is not None:
            sizes = self.sweep.design.sizes_along(self.study(axis).axis)
        variant = self.sweep.design.variant(scheme)
        sizes = tuple(size for size in sizes if self.sweep.rates(variant, size))
        steps = self._judged[0].windows[window]
        return losses_over(
            self.sweep,
            self.records,
            variant,
            sizes,
            slice(steps.start, steps.stop),
        )

    def certificate(
        self,
        target: Size,
        *,
        scheme: str | None = None,
        probe: Probe | None = None,
    ) -> Certificate:
        """The best value of what is tuned predicted for another size, or why none can be.

        Args:
            target: the size; axes that it does not name are those of the base.
            scheme: name of the variant; by default the first.
            probe: of the target, if one was trained.

        Returns:
            A certificate, which may be a refusal with its reasons.

        Example:
            ``report.certificate(target={"width": 4096, "depth": 64}).value``
        """
        study = self._judged[0]
        return certificate(
            self.sweep,
            self.records,
            self.sweep.design.variant(scheme),
            {**self.sweep.design.base, **target},
            probe=probe,
            tolerance=study.tolerance,
            config=study.config,
            environment=study.environment,
        )

    @property
    def table(self) -> str:
        """The result as text."""
        return "\n\n".join(reports.plain_table(study) for study in self._judged)

    @cached_property
    def page(self) -> str:
        """The result as one HTML page that opens offline."""
        return reports.page(*self._judged, certificates=self.certificates)

    @property
    def summary(self) -> dict[str, Any]:
        """The result as values of strict JSON."""
        return reports.summary(*self._judged)

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
                learning rate; ``loss``, the best loss against size; ``drift``, the drifts.
            kind: ``paper``, 3.25 inches wide with type of 8 points, or ``slide``, 5.5 with 9.
            axis: by default depth if it was measured.

        Returns:
            The chart and its caption; ``save`` writes both.

        Example:
            ``report.figure("transfer").save("transfer.pdf")`` writes transfer.txt, too.
        """
        return reports.study_figure(self.study(axis), name, kind=kind)

    def frame(self, kind: Kind = "points") -> "pd.DataFrame":
        """A tidy table.

        ``points``: loss by scheme, size and learning rate. ``optima``: the best learning rates.
        ``transfers``: drift, excess loss (column ``regret``) and verdict. ``trials``: every run
        with its last loss.

        Args:
            kind: which table.

        Returns:
            A row for each.
        """
        need("A table", "pandas")
        import pandas as pd

        if kind == "trials":
            return pd.DataFrame(self._run_rows())
        frames = [getattr(reports.to_pandas(study), kind) for study in self._judged]
        return pd.concat(frames, ignore_index=True)

    def _run_rows(self) -> list[dict[str, Any]]:
        window = self.sweep.design.windows[-1]
        return [
            {
                **run.row,
                **tuned_in(run, self.sweep.design.tune),
                "status": record.status.value,
                "steps": len(record.losses),
                "planned_steps": run.steps,
                "loss": loss_over(run, record, window, steps=self.sweep.design.steps),
                "last_finite_loss": record.last_finite_loss,
                "key": run.key,
            }
            for run, record in self.records.items()
        ]

    def to_csv(self, path: str | Path, kind: Kind = "points") -> None:
        """Write a table as CSV.

        Args:
            path: of the file.
            kind: which table, as in ``frame``.
        """
        self.frame(kind).to_csv(path, index=False)

    def to_parquet(self, path: str | Path, kind: Kind = "points") -> None:
        """Write a table as Parquet.

        Args:
            path: of the file.
            kind: which table, as in ``frame``.

        Raises:
            ValueError: pyarrow is not installed.
        """
        try:
            import pyarrow  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            raise ValueError(
                "Writing Parquet needs pyarrow: pip install 'depthmup[parquet]'. to_csv works "
                "without it."
            ) from None
        self.frame(kind).to_parquet(path, index=False)

    def save(self, folder: str | Path) -> None:
        """Write report.html and summary.json into a folder.

        Args:
            folder: that is there.
        """
        reports.write_result(self._judged, Path(folder), certificates=self.certificates)

    def __str__(self) -> str:
        return self.table if self.studies else f"A shard: {len(self.records)} runs"

    def _repr_html_(self) -> str | None:
        if not installed("altair", "vl_convert"):
            return None  # a notebook shows the text
        if not self.studies:
            return f"<pre>A shard: {len(self.records)} runs, to be joined with the others.</pre>"
        return reports.notebook(*self.studies)


def load_report(store: Store, sweep: Sweep | None = None, *, train: Train | None = None) -> Report:
    """The report of a sweep from the runs in a store.

    Args:
        store: of finished runs.
        sweep: which measurement; by default the one that was stored last.
        train: trains the few steps at the target that certificates need; without it, those in the
            store are used.

    Raises:
        StoreError: no such measurement was started, or runs are missing.
    """
    sessions = [s for s in store.sessions() if "sweep" in s]
    if sweep is not None:
        sessions = [s for s in sessions if s["sweep"] == sweep.to_dict()]
    if not sessions:
        raise StoreError(
            f"No measurement was started in {store.path}. Run `depthmup transfer` with this --out."
        )
    last = sessions[-1]
    sweep = sweep or sweep_of(last)
    search = None
    if sweep.design.auto:
        state = _replayed(sweep, store, last)
        sweep, search = state.sweep, story(state)
    else:
        _check_size(sweep, store)
    records = store.records(sweep.runs)
    command = {"command": last["command"]} if "command" in last else {}
    own = [session for session in sessions if session["sweep"] == last["sweep"]]
    about: dict[str, Any] = {
        "tolerance": last["tolerance"],
        "config": {**sweep.config, "tolerance": last["tolerance"], **command},
        "environment": environment_of(own),
    }
    judged = studies(sweep, records, title=last.get("title", ""), search=search, **about)
    if len(engines := engines_of(own)) > 1:
        note = (
            f" Runs of {len(engines)} engines are mixed here, which agree to rounding and not to "
            "the bit: where the verdict is close, train all runs by one of them."
        )
        judged = tuple(_with_note(study, note) for study in judged)
    certificates: tuple[Certificate, ...] = ()
    if target := last.get("target"):
        certificates = certify(sweep, store, records, target, train=train, **about)
    return Report(sweep=sweep, records=records, studies=judged, certificates=certificates)


def next_of(store: Store) -> tuple[Sequence[Any], str, Tuned]:
    """The runs that the last measurement on a store needs next, why, or why there are none, and
    what it tunes.

    Raises:
        StoreError: no measurement was started.
    """
    sessions = [session for session in store.sessions() if "sweep" in session]
    if not sessions:
        raise StoreError(f"No measurement was started in {store.path}.")
    last = sessions[-1]
    sweep = sweep_of(last)
    if sweep.design.auto is None:
        missing = store.missing(sweep.runs)
        why = f"{len(missing)} of the grid's {len(sweep.runs)} runs are missing."
        return missing, why, sweep.design.tune
    state = advance(_begun(sweep, last), store)
    if state.pending:
        number = max((r.number for r in state.rounds), default=0) + 1
        return state.pending, f"Round {number}.", sweep.design.tune
    why = " ".join(f"{name}: {why}" for name, why in state.ended.items())
    return (), why, sweep.design.tune


def _begun(sweep: Sweep, session: Mapping[str, Any]) -> SearchState:
    complete = session.get("target") is not None
    return begin(sweep, tolerance=session["tolerance"], complete=complete)


def _replayed(sweep: Sweep, store: Store, session: Mapping[str, Any]) -> SearchState:
    """The rounds of a sweep whose learning rates were found as it went.

    Raises:
        StoreError: the next round is not trained yet, and no budget of seconds ended the search.
    """
    state = advance(_begun(sweep, session), store)
    if state.done:
        return state
    auto = sweep.design.auto
    if auto is None or auto.seconds is None:
        raise StoreError(
            f"{len(state.pending)} runs are to be trained next that are not in {store.path} yet. "
            "Repeat the measurement with the same folder to go on; with shards, all of them."
        )
    over = f"after {auto.seconds:g} seconds no more runs were begun"
    names = [variant.name for variant in sweep.design.variants]
    ended = {**dict.fromkeys(names, over), **state.ended}
    return replace(state, pending=(), ended=ended)


def _check_size(sweep: Sweep, store: Store) -> None:
    """Refuse a grid most of which a store cannot hold, without listing its runs: a text of a
    kilobyte may describe ten million.

    Raises:
        StoreError: at least ``LISTED`` runs are missing.
    """
    design = sweep.design
    of_variant = len(design.all_sizes) * len(design.log2_values) * design.seeds
    if (lacking := of_variant - len(store)) >= LISTED:
        raise StoreError(
            f"At least {lacking:,} runs are not in {store.path} yet. "
            "Repeat the measurement with the same folder to finish them."
        )


def _with_note(study: Study, note: str) -> Study:
    """The study, every verdict's reasons followed by a note."""
    windows = tuple(
        replace(
            window,
            transfers=tuple(
                replace(transfer, why=transfer.why + note) for transfer in window.transfers
            ),
        )
        for window in study.windows
    )
    return replace(study, windows=windows)
