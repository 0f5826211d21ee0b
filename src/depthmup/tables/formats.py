"""Formats: files of runs as frames, by pandas' and pyarrow's readers.

A frame of a file has NaN or None where a cell is empty (no result), and keeps what says that a run
diverged: the text "nan" of CSV, which pandas alone would take for an empty cell, and Parquet's NaN,
which is no null.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depthmup.records.packages import need, pip
from depthmup.records.printable import printable
from depthmup.records.reported import Wanted
from depthmup.tables.columns import checked_once, wide_columns
from depthmup.tables.names import is_metadata, pattern_of, with_settings
from depthmup.tables.trackers import address_of, runs_at

if TYPE_CHECKING:
    import pandas as pd

LARGEST_FILE = 2 * 2**30
"""Bytes. Ten million rows have about one tenth of it when written with the columns needed here."""

MOST_ROWS = 5_000_000
MOST_COLUMNS = 5_000
MOST_CELLS = 200_000_000
"""Of Parquet, in which a column of one value takes no room: a megabyte may hold billions."""

EMPTY_CELLS = 5_000_000
"""Cells of JSON that may be empty, as each line may have names of its own."""

LONGEST_LINE = 2**24
"""Characters of one JSON object, or of a header."""

LONGEST_NAME = 1_000
"""Characters: an inner object's name stands before each of its names."""

LARGEST_ARRAY = 2**28
"""Bytes of a file of JSON that is read as one value."""

EMPTIEST = 20
"""Most cells of a large table of JSON lines for each that is filled."""

CSV, JSON, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json"), (".parquet", ".pq")
EXCEL = (".xlsx", ".xls")

LARGEST_WITH_NAMES = 2**24
"""Bytes of a file in which names of runs are looked at before a column is asked for."""

# A number in a text may have a power of ten behind it, the letter of a size, or a sign of percent.
# Nobody groups the digits of a number with a power of ten.
_WITH_COMMA, _DOTTED, _GROUPED = (
    re.compile(rf"\s*[+-]?{digits}[kmbt%]?\s*", re.IGNORECASE)
    for digits in (
        r"\d+,\d*(e[+-]?\d+)?",
        r"\d*[.][\d.]*(,\d*)?(e[+-]?\d+)?",
        r"[1-9]\d{0,2}([.]\d{3})+(,\d*)?",
    )
)

EXAMPLE = "example"
"""The word for the table that ships with this package, where a path goes."""


def example() -> Path:
    """The table that ships with this package: 5 depths of residual MLPs under three schemes."""
    return Path(__file__).parent / "runs.csv"


@dataclass(frozen=True, eq=False)
class Source:
    """A frame, the file of a table, or ``TRACKER:ADDRESS`` with the metric that is the loss."""

    given: Any
    loss: str = ""
    wide: str = ""
    """The axis of a table with a column of losses for each size; empty for one row a run."""
    pattern: str = ""
    """Of the runs' names, where these hold settings."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns; ``1-NAME`` in place of an accuracy that is read as an error."""
        if (error := self._error) is None:
            return self._names
        return tuple(self.loss if n == error.name else n for n in self._names)

    @cached_property
    def _error(self) -> Wanted | None:
        wanted = Wanted.of(self.loss, self._names)
        there = wanted.less_than is not None and wanted.name in self._names
        return wanted if there else None

    @cached_property
    def _names(self) -> tuple[str, ...]:
        if self.wide or self.pattern:
            return tuple(self._whole.columns)
        if self._suffix in CSV:
            with self.explained():
                return tuple(_layout(self._path)[0])
        if self._suffix in PARQUET:
            return tuple(_parquet(self._path).schema_arrow.names)
        return tuple(self._whole.columns)

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """All rows, in the columns of ``names``."""
        frame, error = self._whole, self._error
        if error is None:
            return frame
        values = _less(error.less_than or 0.0, frame[error.name])
        return frame.assign(**{error.name: values}).rename(columns={error.name: self.loss})

    @cached_property
    def _whole(self) -> "pd.DataFrame":
        frame = with_settings(self._read(), self.pattern) if self.pattern else self._read()
        return _melted(frame, self.wide, self.loss) if self.wide else frame

    @cached_property
    def names_of_runs(self) -> str:
        """A pattern of the texts of the column that most likely names runs; empty without one."""
        if self.pattern or (self._suffix and self._path.stat().st_size > LARGEST_WITH_NAMES):
            return ""
        texts = (
            self._whole[name]
            for name in self._names
            if self._whole[name].map(lambda cell: isinstance(cell, str)).all()
        )
        several = (
            column
            for column in texts
            if column.nunique() > len(column) / 2 and not is_metadata(column)
        )
        return next((found for column in several if (found := pattern_of([*column]))), "")

    def _read(self) -> "pd.DataFrame":
        if tracker := address_of(self.given):
            return runs_at(*tracker, self.loss)
        if not self._suffix:
            frame = _with_index(self.given)
            return frame.set_axis(list(map(_flat, frame.columns)), axis=1)
        readers = {CSV: _csv, JSON: _json, PARQUET: _columns, EXCEL: _excel}
        with self.explained():
            frame = next(r for ends, r in readers.items() if self._suffix in ends)(self._path)
        if len(frame) > MOST_ROWS:
            raise _too_many(len(frame))
        return frame

    @cached_property
    def tells_missing(self) -> bool:
        """Whether NaN in its frame is an empty cell; of frames and JSON it may be a divergence."""
        return bool(address_of(self.given) or (self._suffix and self._suffix not in JSON))

    @property
    def title(self) -> str:
        """What messages call it."""
        if address_of(self.given):
            return str(self.given)
        return self._path.name if self._suffix else "the table"

    def explained(self) -> AbstractContextManager[None]:
        """While it is entered, what pandas says of a file that is no table names the file."""
        return _told(self._path) if self._suffix else nullcontext()

    @cached_property
    def _suffix(self) -> str:
        """Of a file; empty for a frame and for a tracker's runs."""
        of_file = not address_of(self.given) and not _is_frame(self.given)
        return self._path.suffix.lower() if of_file else ""

    @cached_property
    def _path(self) -> Path:
        return _checked(self.given)


def _melted(frame: "pd.DataFrame", axis: str, loss: str) -> "pd.DataFrame":
    """A row for each size of a table with a column of losses for each."""
    columns = wide_columns(list(frame.columns))
    if not columns:
        raise ValueError(
            f"Expected columns whose names differ in a number, the {printable(axis)} of their "
            f"losses; got {printable(', '.join(map(repr, frame.columns)))}."
        )
    others = [name for name in frame.columns if name not in columns]
    long = frame.melt(others, list(columns), var_name=axis, value_name=loss)
    return long.assign(**{axis: long[axis].map(columns)})


def _less(number: float, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """A number less each cell; what is no number stays."""
    if column.dtype.kind in "iuf":
        return number - column.astype(float)

    def less(cell: Any) -> Any:
        try:
            return number - float(cell)
        except (TypeError, ValueError):
            return cell

    return column.map(less)


def _is_frame(source: Any) -> bool:
    need("A table of results", "pandas")
    import pandas as pd

    return isinstance(source, pd.DataFrame)


def _with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A frame whose index, where its levels have names, is columns as those others are."""
    named = all(name is not None for name in frame.index.names)
    return frame.reset_index() if named else frame


def _flat(name: Any) -> str:
    """A column's name; levels of a nested one are joined as trackers do."""
    if isinstance(name, tuple):
        return ".".join(str(part) for part in name if str(part))
    return str(name)


def _checked(source: Any) -> Path:
    if not isinstance(source, str | Path):
        raise ValueError(
            "Expected a pandas DataFrame, or the path of a CSV, JSON lines, Parquet or Excel file; "
            f"got {type(source).__name__}."
        )
    path = Path(source)
    try:
        if path.is_dir():
            raise ValueError(
                f"Expected a file, or the folder of a measurement; {printable(str(path))} is a "
                "folder without runs. depthmup.load reads the report that a fit saved; --runs "
                "reads a folder of logs."
            )
        if not path.is_file():
            where = "" if path.is_absolute() else f" (looked in {printable(str(Path.cwd()))})"
            raise ValueError(f"There is no file {printable(str(path))}{where}.")
        size = path.stat().st_size
    except OSError as error:
        raise ValueError(
            f"{printable(str(path)[:200])} cannot be read: {error.strerror}."
        ) from None
    if path.suffix.lower() not in CSV + JSON + PARQUET + EXCEL:
        raise ValueError(
            f"Expected a file that ends in {', '.join(CSV + JSON + PARQUET + EXCEL)}; got "
            f"{printable(path.name)!r}."
        )
    if size == 0:
        raise ValueError(f"Expected a table; {printable(path.name)} is empty.")
    if size > LARGEST_FILE:
        raise ValueError(
            f"Expected a file of at most {LARGEST_FILE / 2**30:.0f} GB; {printable(path.name)} has "
            f"{size / 2**30:.1f} GB. Export one row for each run, not one for each step."
        )
    return path


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What pandas says of a file that is no table becomes one message with the file's name."""
    import pandas as pd

    try:
        yield
    except Exception as error:
        # Errors of pandas are ValueErrors too; those of this package say "Expected" already.
        explained = isinstance(error, ValueError) and str(error).startswith("Expected")
        if isinstance(error, UnicodeDecodeError):
            said = "it is not UTF-8 text"
        elif isinstance(error, pd.errors.ParserError | pd.errors.EmptyDataError | OSError) or (
            # Of pyarrow's own errors some are ValueErrors, others errors of memory or of keys.
            (isinstance(error, ValueError) or type(error).__module__.startswith("pyarrow"))
            and not explained
        ):
            said = printable(str(error).splitlines()[0][:200]) if str(error) else "no columns"
        else:
            raise
        raise ValueError(f"Expected {printable(path.name)} to be a table; {said}.") from None


def _csv(path: Path) -> "pd.DataFrame":
    """Columns as pandas infers them, but for "nan", which stays text."""
    import pandas as pd

    names, options, width = _layout(path)
    # Where the first row is longer than the header, pandas would drop the ends of all rows and so
    # give columns the values of their neighbours; longer ones below it raise an error of their own.
    beyond = [f"\0{i}" for i in range(width - len(names))]
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
        options["float_precision"] = "round_trip"  # which later versions have by themselves
    frame = pd.read_csv(
        path,
        names=[*names, *beyond],
        header=0,
        index_col=False,
        keep_default_na=False,
        na_values=[""],
        low_memory=False,  # else a column's type may change on the way
        nrows=MOST_ROWS + 1,
        **options,
    )
    for column in beyond:
        filled = frame.pop(column).notna()
        if filled.any():
            raise ValueError(
                f"Expected as many cells in each row of {printable(path.name)} as the header has; "
                f"row {int(filled.argmax()) + 1:,} has more. Write decimals with points (0.5, not "
                "0,5), texts that have commas in quotes, and give each column a name."
            )
    return frame.apply(_with_points) if options.get("decimal") == "," else frame


def _with_points(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """The numbers of a column that pandas leaves as texts, as where one run has the loss NaN.

    Where commas are decimal 1.000 is a thousand, unless a point of the column groups no digits.
    """
    if column.dtype.kind in "iufb":
        return column
    dotted = (cell for cell in column if isinstance(cell, str) and _DOTTED.fullmatch(cell))
    thousands = all(map(_GROUPED.fullmatch, dotted))

    def with_point(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        if thousands and _GROUPED.fullmatch(cell):
            cell = cell.replace(".", "")
        return cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell

    return column.map(with_point)


def _layout(path: Path) -> tuple[list[str], dict[str, Any], int]:
    """The names of a text file, how it is separated, and how many cells its first row has."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = (line for line in iter(lambda: file.readline(LONGEST_LINE), "") if line.strip())
        head = list(islice(lines, 20))
    counts = {sign: head[0].count(sign) for sign in ("\t", ",", ";")} if head else {",": 0}
    separator = "\t" if path.suffix.lower() == ".tsv" else max(counts, key=lambda s: counts[s])
    separator = separator if counts.get(separator) else ","
    options: dict[str, Any] = {"sep": separator, "encoding": "utf-8-sig", "skipinitialspace": True}
    if separator == ";" and any(re.search(r"(^|;)\s*-?\d+,\d+\s*(;|$)", row) for row in head[1:]):
        options["decimal"] = ","
    try:
        rows = list(islice(csv.reader(head, delimiter=separator, skipinitialspace=True), 2))
    except csv.Error as error:
        raise ValueError(
            f"Expected a header and rows of short cells in {printable(path.name)}; {error}."
        ) from None
    for row in rows:
        _bounded(row)
    # Read here: pandas would rename columns that stand twice.
    names = [name.strip() for name in rows[0]] if rows else []
    checked_once(names)
    return names, options, max(map(len, rows), default=0)


def _excel(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        frame = pd.read_excel(path, keep_default_na=False, na_values=[""], nrows=MOST_ROWS + 1)
    except ImportError as error:
        raise ValueError(f"Expected a package that reads Excel; {error}") from None
    return frame.set_axis(list(map(_flat, frame.columns)), axis=1)


def _columns(path: Path) -> "pd.DataFrame":
    """A Parquet file, its indices as columns; a NaN that is no null is infinite: it diverged."""
    import pandas as pd

    table = _parquet(path).read()
    cells = {}
    for name in table.column_names:
        column, values = table.column(name), table.column(name).to_pandas()
        if values.dtype.kind == "f" and column.null_count < int(values.isna().sum()):
            known = np.asarray(column.is_valid())
            values = values.where(~(values.isna().to_numpy() & known), np.inf)
        cells[name] = values
    return pd.DataFrame(cells)


def _parquet(path: Path) -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(
            f"Expected pyarrow, to read Parquet: {pip()} install 'depthmup[parquet]'. CSV and JSON "
            "lines need nothing."
        ) from None
    try:
        file = parquet.ParquetFile(path)
        # A text that stands a million times is one text then, as it is in the file.
        texts = [f.name for f in file.schema_arrow if str(f.type).endswith(("string", "binary"))]
        file = parquet.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        said = printable(str(error).splitlines()[0][:200])
        raise ValueError(f"Expected {printable(path.name)} to be Parquet; {said}.") from None
    if file.metadata.num_rows > MOST_ROWS:
        raise _too_many(file.metadata.num_rows)
    _bounded(file.schema_arrow.names)
    if (cells := file.metadata.num_rows * len(file.schema_arrow.names)) > MOST_CELLS:
        raise ValueError(
            f"Expected at most {MOST_CELLS:,} cells; {printable(path.name)} has {cells:,}. Write "
            "one row for each run, and the columns needed."
        )
    return file


def _json(path: Path) -> "pd.DataFrame":
    """One object for each line, or an array of them; inner objects are flattened with dots.

    Every name is a column, whose cells are empty where an object has none of the name: a table with
    much fewer names in an object than columns is no table of runs, and would fill memory.
    """
    import pandas as pd

    records: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    filled = 0
    for value in _objects(path):
        record = _flattened(value)
        names |= dict.fromkeys(record)
        _bounded(names)
        records.append(record)
        filled += len(record)
        if len(records) * len(names) > EMPTY_CELLS + EMPTIEST * filled:
            share = filled / len(records) / len(names)
            raise ValueError(
                f"Expected lines that have most names of {printable(path.name)}; its "
                f"{len(names):,} names are on {share:.1%} of the first {len(records):,} lines. "
                "Keep one line for each run, and the columns needed."
            )
        if len(records) > MOST_ROWS:
            raise _too_many(len(records))
    if not records:
        raise ValueError(f"Expected a table; {printable(path.name)} has no rows.")
    return pd.DataFrame(records, columns=list(names), dtype=object)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix.lower() == ".json" and path.stat().st_size <= LARGEST_ARRAY:
        with suppress(ValueError, RecursionError):
            whole = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_once)
            yield from _named(whole)
            return
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), 1):
            if not line.strip():
                continue
            try:
                if len(line) == LONGEST_LINE:
                    raise ValueError("a line that long is no run")
                value = json.loads(line, object_pairs_hook=_once)
            except (ValueError, RecursionError):
                raise ValueError(
                    f"Expected one JSON object on each line of {printable(path.name)} (or, in a "
                    f".json file, an array of them), each of its names once; line {number} is none."
                ) from None
            if not isinstance(value, dict):
                raise ValueError(
                    f"Expected one JSON object on each line of {printable(path.name)}; line "
                    f"{number} is a {type(value).__name__}."
                )
            yield value


def _named(whole: Any) -> list[dict[str, Any]]:
    """The runs of an array of objects, of an object of objects, or of an object of columns."""
    values = list(whole.values()) if isinstance(whole, dict) else whole
    if isinstance(values, list) and values and all(isinstance(v, dict) for v in values):
        names = whole if isinstance(whole, dict) else [None] * len(values)
        return [({} if n is None else {"name": n}) | v for n, v in zip(names, values, strict=True)]
    if isinstance(whole, dict) and values and all(isinstance(v, list) for v in values):
        return [dict(zip(whole, row, strict=True)) for row in zip(*values, strict=True)]
    lists = [v for v in values if isinstance(v, list) and v and all(isinstance(r, dict) for r in v)]
    if isinstance(whole, dict) and len(lists) == 1:  # the runs of a sweep, with what is said of it
        return list(lists[0])
    raise ValueError("neither rows nor columns")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no name stands twice."""
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return value


def _flattened(value: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if len(prefix) + len(key) > LONGEST_NAME:
            raise ValueError(
                f"Expected names of at most {LONGEST_NAME:,} characters; got "
                f"{printable((prefix + key)[:40])}..."
            )
        if isinstance(inner, dict) and depth < 4:
            flat |= _flattened(inner, f"{prefix}{key}.", depth + 1)
        else:
            flat[f"{prefix}{key}"] = inner
        _bounded(flat)
    return flat


def _bounded(names: Any) -> None:
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"Expected at most {MOST_COLUMNS:,} columns; got {len(names):,}.")


def _too_many(rows: int) -> ValueError:
    return ValueError(
        f"Expected at most {MOST_ROWS:,} rows, one for each run; got {rows:,} or more. Keep the "
        "last row of every run."
    )
