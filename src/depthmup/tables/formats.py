"""Formats: frames and files of runs as chunks of columns, in bounded memory.

CSV is read as text, so that an empty cell (no result) and "nan" (a run that diverged) stay apart.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthmup.records.packages import need
from depthmup.records.printable import printable
from depthmup.tables.columns import checked_once

if TYPE_CHECKING:
    import pandas as pd

LARGEST_FILE = 2 * 2**30
"""Bytes. Ten million rows have about one tenth of it when written with the columns needed here."""

MOST_ROWS = 5_000_000
MOST_COLUMNS = 5_000
MOST_CELLS = 200_000_000
"""Of Parquet, in which a column of one value takes no room: a megabyte may hold billions."""
CHUNK = 50_000
"""Rows that are in memory as text at once."""

CELLS = 100 * CHUNK
"""Cells that are in memory as text at once: lines of JSON may each have names of their own."""

LONGEST_LINE = 2**24
"""Characters of one JSON object, or of a header."""

LONGEST_NAME = 1_000
"""Characters: an inner object's name stands before each of its names."""

EMPTIEST = 20
"""Most cells of a large table of JSON lines for each that is filled."""

CSV, JSON, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json"), (".parquet", ".pq")


EXAMPLE = "example"
"""The word for the table that ships with this package, where a path goes."""


def example() -> Path:
    """The table that ships with this package: 5 depths of residual MLPs under three schemes."""
    return Path(__file__).parent / "runs.csv"


def names_of(source: Any) -> tuple[str, ...]:
    """The columns of a frame or a file."""
    if _is_frame(source):
        return tuple(map(_flat, _with_index(source).columns))
    path = _path(source)
    with _told(path):
        if path.suffix.lower() in CSV:
            return tuple(next(_csv(path, rows=1)).columns)
        if path.suffix.lower() in PARQUET:
            return tuple(_parquet(path).schema_arrow.names)
        return tuple(dict.fromkeys(name for record in _records(path) for name in record))


def title_of(source: Any) -> str:
    """What messages call a table."""
    return "the table" if _is_frame(source) else _path(source).name


def chunks_of(source: Any) -> Iterator["pd.DataFrame"]:
    """The rows of a table, some at a time, in the columns that ``names_of`` says."""
    if _is_frame(source):
        frame = _with_index(source)
        yield frame.set_axis(list(map(_flat, frame.columns)), axis=1)
        return
    path = _path(source)
    suffix = path.suffix.lower()
    reader = _csv if suffix in CSV else _batches if suffix in PARQUET else _json_lines
    yield from reader(path)


def explained(source: Any) -> AbstractContextManager[None]:
    """While it is entered, what pandas says of a file that is no table names the file."""
    return nullcontext() if _is_frame(source) else _told(_path(source))


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
            raise ValueError(
                f"Expected a file, or the folder of a measurement; {printable(str(path))} is a "
                "folder without runs. depthmup.load reads the report that a fit saved."
            )
        if not path.is_file():
            where = "" if path.is_absolute() else f" (looked in {printable(str(Path.cwd()))})"
            raise ValueError(f"There is no file {printable(str(path))}{where}.")
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
    _check_widths(path, options["sep"])
    # The header is read by itself: pandas would rename columns that stand twice.
    head = pd.read_csv(path, nrows=1, header=None, **options)
    names = [str(name).strip() for name in head.iloc[0]]
    _bounded(names)
    if len(names) == 1 and ";" in names[0]:
        raise ValueError(
            f"Expected commas between the columns of {printable(path.name)}; its header has "
            "semicolons. Write it with commas, and decimals with points."
        )
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


def _check_widths(path: Path, separator: str) -> None:
    """Refuse a header, or a first row, of more columns than pandas holds in bounded memory."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = iter(lambda: file.readline(LONGEST_LINE), "")
        rows = csv.reader(filter(str.strip, lines), delimiter=separator, skipinitialspace=True)
        try:
            for row in islice(rows, 2):
                _bounded(row)
        except csv.Error as error:
            raise ValueError(
                f"Expected a header and rows of short cells in {printable(path.name)}; {error}."
            ) from None


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
        raise too_many(file.metadata.num_rows)
    _bounded(file.schema_arrow.names)
    if (cells := file.metadata.num_rows * len(file.schema_arrow.names)) > MOST_CELLS:
        raise ValueError(
            f"Expected at most {MOST_CELLS:,} cells; {printable(path.name)} has {cells:,}. Write "
            "one row for each run, and the columns needed."
        )
    return file


def _json_lines(path: Path) -> Iterator["pd.DataFrame"]:
    """Chunks of one object for each line; inner objects are flattened with dots."""
    import pandas as pd

    records: list[dict[str, Any]] = []
    names: set[str] = set()
    for record in _records(path):
        records.append(record)
        names |= record.keys()
        if len(records) == CHUNK or len(records) * len(names) > CELLS:
            yield pd.DataFrame(records, dtype=object)
            records, names = [], set()
    if records:
        yield pd.DataFrame(records, dtype=object)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, flattened; their names and cells are counted before a frame has them.

    Every name is a column, whose cells are empty where a line has none of the name: a table with
    much fewer names in a line than columns is no table of runs, and would fill memory.
    """
    names: set[str] = set()
    rows = filled = 0
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
            record = _flattened(value)
            names |= record.keys()
            _bounded(names)
            rows += 1
            filled += len(record)
            if rows * len(names) > CELLS + EMPTIEST * filled:
                raise ValueError(
                    f"Expected lines that have most names of {printable(path.name)}; its "
                    f"{len(names):,} names are on {filled / rows / len(names):.1%} of the first "
                    f"{rows:,} lines. Keep one line for each run, and the columns needed."
                )
            yield record
    if not rows:
        raise ValueError(f"Expected a table; {printable(path.name)} has no rows.")


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


def too_many(rows: int) -> ValueError:
    """What is said of a table of more than ``MOST_ROWS`` rows."""
    return ValueError(
        f"Expected at most {MOST_ROWS:,} rows, one for each run; got {rows:,} or more. Keep the "
        "last row of every run."
    )
