"""Tables from files and frames, in bounded memory: numbers, labels, and what else may differ.

CSV is read as text, so that an empty cell (no result) and "nan" (a run that diverged) stay apart.
Only what is needed is kept: numbers as arrays, labels as codes, other columns as codes as long as
they have few values; a column of many values is an identity or a measurement, no setting.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depthmup.records.packages import need
from depthmup.records.printable import printable
from depthmup.statistics.intervals import Array, Flags, Index

if TYPE_CHECKING:
    import pandas as pd

LARGEST_FILE = 2 * 2**30
"""Bytes. Ten million rows have about one tenth of it when written with the columns needed here."""

MOST_ROWS = 5_000_000
MOST_COLUMNS = 5_000
CHUNK = 50_000
"""Rows that are in memory as text at once."""

LONGEST_LABEL = 200
"""Characters of a label that are shown."""

LONGEST_LINE = 2**24
"""Characters of one JSON object."""

FEW_VALUES = 64
"""Distinct values up to which an unnamed column may be a setting."""

CSV, JSON, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json"), (".parquet", ".pq")

_MISSING = frozenset({"", "na", "n/a", "none", "null", "-", "<na>"})
_DIVERGED = frozenset({"nan", "inf", "+inf", "infinity", "+infinity", "-nan"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of a table.

    Attributes:
        rows: numbers of the table's rows, from 1; a filter leaves gaps.
        numbers: by column; NaN where a cell is missing, infinite where it says nan or inf.
        unsaid: where a number is NaN without a word on whether it was missing or diverged, as in
            frames; by column.
        codes, names: labels by column: a number for every row, and the text of each number.
        others: unnamed columns of few values.
    """

    title: str
    rows: Index
    numbers: Mapping[str, Array]
    unsaid: Mapping[str, Flags]
    codes: Mapping[str, Index]
    names: Mapping[str, list[str]]
    others: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: Flags) -> "Table":
        """The rows that a flag keeps."""
        return Table(
            title=self.title,
            rows=self.rows[keep],
            numbers={name: values[keep] for name, values in self.numbers.items()},
            unsaid={name: values[keep] for name, values in self.unsaid.items()},
            codes={name: values[keep] for name, values in self.codes.items()},
            names=self.names,
            others=self.others,
        )


def names_of(source: Any) -> tuple[str, ...]:
    """The columns of a frame or a file.

    Raises:
        ValueError: no table, or one that is too large, empty, or cannot be read.
    """
    if _is_frame(source):
        return tuple(map(_flat, _with_index(source).columns))
    path = _path(source)
    if path.suffix.lower() in CSV:
        with _told(path):
            head = next(iter(_csv(path, rows=1)))
        return tuple(map(str, head.columns))
    if path.suffix.lower() in PARQUET:
        with _told(path):
            return tuple(_parquet(path).schema_arrow.names)
    names: dict[str, None] = {}
    for frame in _json_lines(path):
        names |= dict.fromkeys(map(str, frame.columns))
        _bounded(names)
    return tuple(names)


def read(
    source: Any, *, numbers: Sequence[str], labels: Sequence[str], empty: bool = False
) -> Table:
    """A table from a frame or a file.

    Args:
        source: a pandas DataFrame, or a path to CSV, JSON lines or Parquet.
        numbers: columns that hold numbers.
        labels: columns that hold names.
        empty: whether it may have no rows yet.

    Returns:
        The table; a frame is left as it is.

    Raises:
        ValueError: a cell of a column of numbers that is none, with its row; what ``names_of``
            raises.
    """
    if _is_frame(source):
        frame = _with_index(source)
        frame = frame.set_axis(list(map(_flat, frame.columns)), axis=1)
        return _collect([frame], numbers, labels, title="the table", empty=empty)
    path = _path(source)
    suffix = path.suffix.lower()
    if suffix in CSV:
        chunks: Iterable[pd.DataFrame] = _csv(path)
    elif suffix in PARQUET:
        chunks = _batches(path)
    else:
        chunks = _json_lines(path)
    with _told(path):
        return _collect(chunks, numbers, labels, title=path.name, empty=empty)


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


def _path(source: Any) -> Path:
    if not isinstance(source, str | Path):
        raise ValueError(
            "Expected a pandas DataFrame, or the path of a CSV, JSON lines or Parquet file; got "
            f"{type(source).__name__}."
        )
    path = Path(source)
    try:
        if path.is_dir():
            raise ValueError(f"Expected a file; {printable(str(path))} is a folder.")
        if not path.is_file():
            raise ValueError(f"Expected a table; there is no file {printable(str(path))}.")
        size = path.stat().st_size
    except OSError as error:
        raise ValueError(
            f"{printable(str(path)[:200])} cannot be read: {error.strerror}."
        ) from None
    if path.suffix.lower() not in CSV + JSON + PARQUET:
        raise ValueError(
            f"Expected a file that ends in {', '.join(CSV + JSON + PARQUET)}; got "
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


class _told:
    """What pandas says of a file that is no table becomes one message with the file's name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import pandas as pd

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
            return
        raise ValueError(f"Expected {printable(self._path.name)} to be a table; {said}.") from None


def _csv(path: Path, rows: int | None = None) -> Iterator["pd.DataFrame"]:
    """Chunks of text; names of columns as they stand, twice if they do."""
    import pandas as pd

    options: dict[str, Any] = {
        "sep": "\t" if path.suffix.lower() == ".tsv" else ",",
        "dtype": str,
        "keep_default_na": False,
        "na_filter": False,
        "encoding": "utf-8-sig",
        "skipinitialspace": True,
    }
    # The header is read by itself: pandas would rename columns that stand twice.
    head = pd.read_csv(path, nrows=1, header=None, **options)
    names = [str(name).strip() for name in head.iloc[0]]
    _bounded(names)
    if len(names) == 1 and ";" in names[0]:
        raise ValueError(
            f"Expected commas between the columns of {printable(path.name)}; its header has "
            "semicolons. Write it with commas, and decimals with points."
        )
    if len(set(names)) < len(names):
        from depthmup.fitting.columns import checked_once

        checked_once(names)
    if rows is not None:
        yield pd.DataFrame(columns=names)
        return
    # Where the first row is longer than the header, pandas would drop the ends of all rows and so
    # give columns the values of their neighbours; longer ones below it raise an error of their own.
    index = pd.read_csv(path, nrows=1, header=0, **options).index
    beyond = [] if isinstance(index, pd.RangeIndex) else [f"\0{i}" for i in range(index.nlevels)]
    options |= {"names": [*names, *beyond], "header": 0, "index_col": False}
    above = 0
    with pd.read_csv(path, chunksize=CHUNK, **options) as reader:
        for chunk in reader:
            for column in beyond:
                _nothing_in(chunk.pop(column), above, path)
            above += len(chunk)
            yield chunk


def _nothing_in(cells: "pd.Series[str]", above: int, path: Path) -> None:
    """Refuse cells beyond the header, but for the empty ones after a comma at a line's end."""
    filled = cells.str.strip() != ""
    if filled.any():
        raise ValueError(
            f"Expected as many cells in each row of {printable(path.name)} as the header has; row "
            f"{above + int(filled.argmax()) + 1:,} has more. Write decimals with points (0.5, not "
            "0,5), texts that have commas in quotes, and give each column a name."
        )


def _batches(path: Path) -> Iterator["pd.DataFrame"]:
    """Chunks of a Parquet file, indices as columns."""
    for batch in _parquet(path).iter_batches(batch_size=CHUNK):
        yield batch.to_pandas(ignore_metadata=True)


def _parquet(path: Path) -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(
            "Expected pyarrow, to read Parquet: pip install 'depthmup[parquet]'. CSV and JSON "
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
    return file


def _json_lines(path: Path) -> Iterator["pd.DataFrame"]:
    """Chunks of one object for each line; inner objects are flattened with dots."""
    import pandas as pd

    records: list[dict[str, Any]] = []
    empty = True
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
                    f"Expected one JSON object on each line of {printable(path.name)}, each of its "
                    f"names once; line {number} is none."
                ) from None
            if not isinstance(value, dict):
                raise ValueError(
                    f"Expected one JSON object on each line of {printable(path.name)}; line "
                    f"{number} is a {type(value).__name__}."
                )
            empty = False
            records.append(_flattened(value))
            if len(records) == CHUNK:
                yield pd.DataFrame(records, dtype=object)
                records = []
    if empty:
        raise ValueError(f"Expected a table; {printable(path.name)} has no rows.")
    if records:
        yield pd.DataFrame(records, dtype=object)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no name stands twice."""
    if len(value := dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return value


def _flattened(value: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict) and depth < 4:
            flat |= _flattened(inner, f"{prefix}{key}.", depth + 1)
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def _bounded(names: Any) -> None:
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"Expected at most {MOST_COLUMNS:,} columns; got {len(names):,}.")


def _too_many(rows: int) -> ValueError:
    return ValueError(
        f"Expected at most {MOST_ROWS:,} rows, one for each run; got {rows:,} or more. Keep the "
        "last row of every run."
    )


def _collect(
    chunks: Iterable["pd.DataFrame"],
    numbers: Sequence[str],
    labels: Sequence[str],
    *,
    title: str,
    empty: bool,
) -> Table:
    """One table from chunks; what is not needed is dropped chunk by chunk."""
    values: dict[str, list[Array]] = {name: [] for name in numbers}
    unsaid: dict[str, list[Flags]] = {name: [] for name in numbers}
    codes: dict[str, list[Index]] = {name: [] for name in labels}
    names: dict[str, dict[str, int]] = {name: {} for name in labels}
    dropped: set[str] = set()
    rows = 0
    for chunk in chunks:
        for name in numbers:
            if name not in chunk:
                column, blank = np.full(len(chunk), math.nan), np.zeros(len(chunk), bool)
            else:
                column, blank = to_numbers(chunk[name], name, first_row=rows + 1)
            values[name].append(column)
            unsaid[name].append(blank)
        wanted = [*labels, *(str(c) for c in chunk.columns if c not in {*numbers, *labels})]
        for name in dict.fromkeys(wanted):
            if name in dropped:
                continue
            if name not in names:  # a column that appears late was empty before
                names[name], codes[name] = {"": 0}, [np.zeros(rows, np.int64)]
            codes[name].append(_codes(chunk, name, names[name]))
            # A setting has few values; what has more is a measurement, and would fill memory.
            if name not in labels and len(names[name]) > FEW_VALUES:
                dropped.add(name)
                del names[name], codes[name]
        rows += len(chunk)
        if rows > MOST_ROWS:
            raise _too_many(rows)
    if not rows and not empty:
        raise ValueError(f"Expected a table with rows; {printable(title)} has none.")
    none = np.zeros(0)
    whole = {n: np.concatenate([*parts, none.astype(np.int64)]) for n, parts in codes.items()}
    return Table(
        title=title,
        rows=np.arange(1, rows + 1),
        numbers={n: np.concatenate([*parts, none]) for n, parts in values.items()},
        unsaid={n: np.concatenate([*parts, none.astype(bool)]) for n, parts in unsaid.items()},
        codes={n: np.pad(v, (0, rows - len(v))) for n, v in whole.items()},
        names={n: list(known) for n, known in names.items()},
        others=tuple(n for n in names if n not in labels),
    )


def _codes(chunk: "pd.DataFrame", name: str, known: dict[str, int]) -> Index:
    """Numbers of a column's texts, counted on from those that are known."""
    import pandas as pd

    if name not in chunk:
        return np.full(len(chunk), known.setdefault("", len(known)), np.int64)
    column = chunk[name]
    try:
        number, distinct = pd.factorize(column, use_na_sentinel=True)
    except TypeError:  # lists and other values without an identity
        number, distinct = pd.factorize(column.map(str), use_na_sentinel=True)
    table = [known.setdefault(_label(text), len(known)) for text in distinct]
    missing = known.setdefault("", len(known)) if (number < 0).any() else 0
    return np.asarray(np.append(np.array(table, np.int64), missing)[number], np.int64)


def _label(value: Any) -> str:
    """A label's text; whole numbers as such, whatever their type."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    if len(text) <= LONGEST_LABEL:
        return text
    # Two long texts that begin alike stay two.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:LONGEST_LABEL]}... {digest[:8]}"


def to_numbers(column: Any, name: str, *, first_row: int = 1) -> tuple[Array, Flags]:
    """A column's numbers, and where NaN does not say whether it is missing or diverged.

    Args:
        column: a pandas Series.
        name: of the column, for errors.
        first_row: number of its first row in the table, for errors.

    Raises:
        ValueError: a cell that is no number, with its row.

    Example:
        >>> import pandas as pd
        >>> to_numbers(pd.Series(["0.5", "", "nan"]), "loss")[0].tolist()
        [0.5, nan, inf]
    """
    import pandas as pd

    if pd.api.types.is_object_dtype(column) or pd.api.types.is_bool_dtype(column):
        for i, cell in enumerate(column):
            if isinstance(cell, bool | np.bool_ | complex):
                raise ValueError(_no_number(name, first_row + i, cell))
    if pd.api.types.is_complex_dtype(column) or column.dtype.kind in "mM":  # dates and durations
        raise ValueError(_no_number(name, first_row, column.iloc[0]))
    if pd.api.types.is_numeric_dtype(column):
        values = np.array(column.to_numpy(dtype=float, na_value=math.nan), float)
        return values, np.isnan(values)
    try:
        converted = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # a whole number beyond double precision, in JSON
        huge = (i for i, cell in enumerate(column) if isinstance(cell, int) and _is_beyond(cell))
        row = next(huge, 0)
        raise ValueError(_no_number(name, first_row + row, column.iloc[row])) from None
    values = np.array(converted.to_numpy(dtype=float, na_value=math.nan), float)
    unsaid = np.zeros(len(values), bool)
    for i in map(int, np.flatnonzero(np.isnan(values))):
        cell = column.iloc[i]
        text = "" if cell is None else str(cell).strip().lower()
        if isinstance(cell, float):
            unsaid[i] = True
        elif text in _DIVERGED:
            values[i] = math.inf
        elif text not in _MISSING:
            raise ValueError(_no_number(name, first_row + i, cell))
    return values, unsaid


def _is_beyond(cell: int) -> bool:
    try:
        float(cell)
    except OverflowError:
        return True
    return False


def _no_number(name: str, row: int, cell: Any) -> str:
    hint = ""
    text = str(cell).strip()
    if text[:-1].replace(".", "", 1).isdigit() and text[-1:].lower() in "kmbt%":
        hint = " Write it out: 1.3B is 1.3e9, 5% is 0.05."
    elif "," in text and text.replace(",", "").replace(".", "", 1).isdigit():
        hint = " Write it without commas."
    return (
        f"Expected numbers in the column {printable(repr(name[:60]))}; row {row:,} has "
        f"{printable(repr(text[:60]))}.{hint}"
    )
