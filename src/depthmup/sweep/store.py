"""The store: every finished run in one SQLite file, by its key."""

import json
import re
import sqlite3
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, overload

from depthmup.records import Measurement, Record, Run, Status, Task
from depthmup.records.codec import digest
from depthmup.records.printable import printable
from depthmup.sweep.sessions import read_session
from depthmup.sweep.store_rows import (
    checksum,
    measurement_row,
    read_losses,
    read_values,
    record_row,
)

PATIENCE = 60.0
"""Seconds for which an answer of another process is waited for."""

MAIN_STORE = "results.sqlite"
"""The main store of a folder, which may also contain stores of shards."""

# Of the tables below; a store of another schema is refused.
SCHEMA = 4
APPLICATION_ID = 0x64706D75  # "dpmu", in the file's header

_TABLES = (
    """
    CREATE TABLE records (
        key TEXT PRIMARY KEY,
        cell TEXT NOT NULL,
        status TEXT NOT NULL,
        losses BLOB NOT NULL,
        place TEXT NOT NULL,
        checksum BLOB
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE measurements (
        key TEXT PRIMARY KEY,
        task TEXT NOT NULL,
        measured TEXT NOT NULL,
        checksum BLOB
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        about TEXT NOT NULL,
        seconds REAL NOT NULL,
        checksum BLOB
    )
    """,
)
# The columns that a row's checksum covers, in this order.
_COLUMNS = {
    "records": ("key", "cell", "status", "losses", "place"),
    "measurements": ("key", "task", "measured"),
    "sessions": ("about", "seconds"),
}
CHUNK = 500
"""Rows per query: every version of SQLite takes 999 parameters."""

LONGEST_PLACE = 300
"""Characters of a record's place that are read."""

SESSIONS = 1000
"""Most sessions that are read of a store, the last ones: of each a sweep is made."""

Asked = Run | Task
_Noted = tuple[tuple[Any, ...], dict[str, Any]]
R = TypeVar("R", bound=Run)


class StoreError(RuntimeError):
    """The store cannot be used as requested; the message says what to do."""


class MissingRuns(StoreError):
    """Runs that a measurement asks for are not in the store; ``said`` leaves out the remedy.

    ``several`` measurements are in the store, of which none has all of its runs.
    """

    def __init__(self, said: str, remedy: str, *, several: bool = False) -> None:
        super().__init__(f"{said} {remedy}")
        self.said, self.several = said, several


class StoreWarning(UserWarning):
    """Part of the store cannot be used and is ignored."""


class Store:
    """Records by cell key, one transaction each, safe for several writers and sudden death.

    Opening creates the file; ``snapshot`` opens a store that is there, to read it. A stored record
    is never replaced unless it is damaged: every row has a checksum, and a row that does not match
    its own counts as missing, with a warning that names it, so that the run is repeated.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._in_memory = str(path) == ":memory:"
        self._damaged: set[str] = set()
        existed = not self._in_memory and self.path.exists()
        try:
            # An absolute path, as SQLite may take one that begins with "file:" for a URI.
            name = ":memory:" if self._in_memory else self.path.absolute()
            self._db = sqlite3.connect(name, timeout=PATIENCE, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"The store {self.path} could not be opened: {error}. Check that its folder "
                "exists and may be written."
            ) from error
        try:
            with self._explained():
                self._open(existed)
        except BaseException:
            self._db.close()
            raise
        self._file = self._identity()

    def _open(self, existed: bool) -> None:
        db = self._db
        db.execute("PRAGMA trusted_schema=OFF")
        db.create_function("checksum", -1, checksum, deterministic=True)
        if existed:
            self._check_schema()  # before a row is read, which may compute or call something
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError(damage)
        self._share()
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("BEGIN IMMEDIATE")
        try:
            if self._is_blank():
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                for table in _TABLES:
                    db.execute(table)
                db.execute(f"PRAGMA user_version={SCHEMA}")
            self._check_schema()
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _share(self) -> None:
        """Readers beside a writer. Of several that make a file at once SQLite lets none wait."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _is_blank(self) -> bool:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        return not application and not _schema(self._db)

    def _check_schema(self) -> None:
        """Refuse files of other programs, other schemas, and all that no version has written."""
        db = self._db
        if self._is_blank():
            return
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is an SQLite file of another program. Name another folder."
            )
        if version != SCHEMA:
            raise StoreError(
                f"Expected the store {self.path} to be of schema version {SCHEMA}; it is of "
                f"version {version}. Use the depthmup version that wrote it, or name another "
                "folder."
            )
        if _schema(db) != _own_schema():
            raise StoreError(
                f"Expected the store {self.path} to contain the tables that depthmup writes, and "
                "nothing else; it contains others, or triggers, views, indexes or computed "
                "columns, which may run code. Do not use it."
            )

    def _identity(self) -> tuple[int, int] | None:
        """The open file's device and inode numbers; None in memory."""
        if self._in_memory:
            return None
        try:
            status = self.path.stat()
        except OSError:
            return (-1, -1)
        return status.st_dev, status.st_ino

    def check_present(self) -> None:
        """Stop if the file is gone: what is added to a deleted file is lost."""
        if self._identity() != self._file:
            raise StoreError(
                f"The store {self.path} was deleted, moved or replaced while it was written to. "
                "Runs finished since then are lost; repeat the command."
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error):
                advice = "Finished runs are stored: free some space, then repeat the command."
            elif "I/O" in str(error):
                advice = "Finished runs are stored: see whether the disk is full, then repeat."
            elif "readonly" in str(error):
                advice = "Make the file and its folder writable, or name another folder."
            else:
                advice = "Finished runs are stored."
            said = _quoted(error)
            raise StoreError(f"The store {self.path} failed: {said}. {advice}") from error
        except (sqlite3.Error, UnicodeError) as error:
            said = _quoted(error)
            raise StoreError(
                f"{self.path} is not a readable store ({said}): it is damaged, truncated, or "
                "another file. Move it away to start from scratch; nothing was changed."
            ) from error

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def __len__(self) -> int:
        with self._explained():
            count: int = self._db.execute(
                "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM measurements)"
            ).fetchone()[0]
        return count

    def add(self, result: Record[Any] | Measurement) -> str:
        """Store a result in its own transaction, unless an undamaged one is stored; its key."""
        if isinstance(result, Measurement):
            return self._insert("measurements", measurement_row(result))
        return self._insert("records", record_row(result))

    def _insert(self, table: str, row: tuple[Any, ...]) -> str:
        marks = ", ".join("?" * (len(row) + 1))
        policy = "REPLACE" if row[0] in self._damaged else "IGNORE"
        with self._explained():
            self._db.execute(
                f"INSERT OR {policy} INTO {table} VALUES ({marks})", (*row, checksum(*row))
            )
        key: str = row[0]
        self._damaged.discard(key)
        return key

    @overload
    def get(self, asked: Task) -> Measurement | None: ...  # type: ignore[overload-overlap]
    @overload
    def get(self, asked: R) -> Record[R] | None: ...

    def get(self, asked: Asked) -> Record[Any] | Measurement | None:
        """The record of a run or the measurement of a task; None if it is missing or damaged."""
        result: Record[Any] | Measurement | None
        [(_, result)] = self._results([asked])
        return result

    def _results(self, asked: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Everything asked for with its result or None, many rows per query."""
        rest = iter(asked)
        while chunk := list(islice(rest, CHUNK)):
            texts = [item.to_json() for item in chunk]
            keys = [digest(text) for text in texts]
            tasks = [isinstance(item, Task) for item in chunk]
            rows: dict[str, tuple[Any, ...]] = {}
            for table, is_task in (("records", False), ("measurements", True)):
                here = [key for key, task in zip(keys, tasks, strict=True) if task is is_task]
                rows |= self._rows(table, here)
            for item, text, key in zip(chunk, texts, keys, strict=True):
                yield item, self._read(item, text, key, rows[key]) if key in rows else None

    def _rows(self, table: str, keys: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        if not keys:
            return {}
        marks = ", ".join("?" * len(keys))
        columns = ", ".join(_COLUMNS[table])
        query = f"SELECT {columns}, checksum FROM {table} WHERE key IN ({marks})"
        with self._explained():
            return {row[0]: row for row in self._db.execute(query, keys)}

    def _read(self, asked: Asked, text: str, key: str, row: tuple[Any, ...]) -> Any:
        if checksum(*row[:-1]) != row[-1]:
            return self._lost(key, text, "its checksum does not match")
        if row[1] != text:
            raise StoreError(
                f"The store {self.path} holds another configuration under the key {key}: "
                f"expected {text}, got {row[1]}. It was edited or written by an "
                "incompatible version; name another folder."
            )
        try:
            if isinstance(asked, Task):
                return read_values(asked, row[2])
            status, losses = read_losses(row[2], row[3])
        except ValueError as damage:
            return self._lost(key, text, str(damage))
        return Record(cell=asked, status=status, losses=losses, place=_place(row))

    def _lost(self, key: str, text: str, why: str) -> None:
        """Mark a row as damaged, so that its run is repeated and the row replaced."""
        if key not in self._damaged:
            self._damaged.add(key)
            _warn(
                f"A result in {self.path} is damaged ({why}) and counts as missing; repeating the "
                f"command trains it again. It belongs to {text}."
            )

    def missing(self, asked: Iterable[Asked]) -> list[Any]:
        """The runs or tasks without an undamaged result, in the given order."""
        return [item for item, result in self._results(asked) if result is None]

    def records(self, asked: Iterable[R]) -> dict[R, Record[R]]:
        """The record of every run."""
        results = list(self._results(asked))
        complete = {run: record for run, record in results if record is not None}
        if lacking := sum(record is None for _, record in results):
            raise MissingRuns(
                f"{lacking} of {len(results)} runs are not in {self.path} yet.",
                "Repeat the measurement with the same folder to finish them.",
            )
        return complete

    def open_session(self, about: Mapping[str, object]) -> int:
        """Store a new session (what was asked for, when, on what) and return its number."""
        row = (json.dumps(dict(about)), 0.0)
        with self._explained():
            cursor = self._db.execute(_ADD_SESSION, (*row, checksum(*row)))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def update_session(self, session: int, seconds: float) -> None:
        """Store how long a session has worked so far."""
        with self._explained():
            self._db.execute(_UPDATE_SESSION, (float(seconds), float(seconds), session))

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions that wrote to this store, in the order in which they were stored.

        It is not that of their times: machines that share a folder differ in their clocks. One that
        cannot be read is left out with a warning; its results are still used.
        """
        return [session for _, session in self._readable_sessions("left out")]

    def _readable_sessions(self, otherwise: str) -> list[_Noted]:
        """Rows of sessions with their contents, in the order in which they were stored; a warning
        names what happens to the others.
        """
        with self._explained():
            query = f"""
                SELECT about, seconds, checksum FROM sessions ORDER BY id DESC LIMIT {SESSIONS + 1}
            """
            rows = self._db.execute(query).fetchall()
        if len(rows) > SESSIONS:
            _warn(
                f"{self.path} notes more than {SESSIONS} sessions; the first ones are {otherwise}."
            )
        readable: list[_Noted] = []
        checked: dict[str, str] = {}
        for row in rows[:SESSIONS]:
            session, problem = read_session(row[0], row[1], checked)
            if checksum(*row[:2]) != row[2]:
                problem = "its checksum does not match"
            if problem:
                _warn(f"A session noted in {self.path} is {otherwise}: {problem}.")
            else:
                readable.append((row, session))
        return readable[::-1]

    def absorb(self, others: Sequence["Store"]) -> int:
        """Copy the contents of other stores, all of them or none; return the number of new results.

        Results of one run may differ by rounding where a GPU made one of them: the first is kept,
        with a warning. A session that is known already is not counted twice. What is damaged or
        cannot be read is skipped with a warning.
        """
        before, rounded = len(self), list[tuple[float, str]]()
        noted = [other._readable_sessions("skipped") for other in others]
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for other in others:
                    for table in ("records", "measurements"):
                        rounded += self._take_results(other, table)
                # Only clocks order the stores of several machines; within one, what was stored
                # later comes later.
                for sessions in sorted(noted, key=lambda each: _last_start(each[-1:])):
                    for row, _ in sessions:
                        self._take_session(*row)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        if rounded:
            places = " and on ".join(sorted({place for _, place in rounded}))
            _warn(
                f"{len(rounded)} runs have several results, which differ by rounding: by at most "
                f"{max(deviation for deviation, _ in rounded):.0e} of a loss. They were trained on "
                f"{places}, where bits may differ. The first result of each is kept."
            )
        return len(self) - before

    def _take_results(self, other: "Store", table: str) -> list[tuple[float, str]]:
        """Copy results; of those that differ by rounding from results here, how far and where."""
        rounded = []
        with other._explained():
            rows = other._db.execute(f"SELECT * FROM {table}").fetchall()
        for row in rows:
            known = self._db.execute(f"SELECT * FROM {table} WHERE key = ?", row[:1]).fetchone()
            if known == row:
                continue
            if problem := _problem(row):
                _warn(f"A result in {other.path} is damaged ({problem}) and is skipped: {row[1]}")
            elif known is None or _problem(known):
                marks = ", ".join("?" * len(row))
                self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
            elif table == "records" and known[:4] == row[:4]:
                continue  # the same bits, elsewhere
            elif (deviation := _deviation(known, row)) is not None:
                rounded.append((deviation, _place(known) or _place(row)))
            else:
                raise StoreError(
                    f"{other.path} conflicts with the other stores: both have {row[1]}, with "
                    "different results. A run has the same bits on machines of one kind with one "
                    "engine, so these machines or engines differed. Leave one of the stores out; "
                    "its runs will be repeated. Nothing was changed."
                )
        return rounded

    def _take_session(self, about: str, seconds: float, guard: bytes) -> None:
        known = self._db.execute(
            "SELECT id, seconds FROM sessions WHERE about = ?", (about,)
        ).fetchone()
        if known is None:
            self._db.execute(_ADD_SESSION, (about, seconds, guard))
        elif known[1] < seconds:
            self._db.execute(_UPDATE_SESSION, (seconds, seconds, known[0]))


_ADD_SESSION = "INSERT INTO sessions(about, seconds, checksum) VALUES (?, ?, ?)"
_UPDATE_SESSION = "UPDATE sessions SET seconds = ?, checksum = checksum(about, ?) WHERE id = ?"


def _problem(row: tuple[Any, ...]) -> str | None:
    """What is wrong with a row of results, checked without the run that it belongs to."""
    if checksum(*row[:-1]) != row[-1]:
        return "its checksum does not match"
    if digest(row[1]) != row[0]:
        return "its key is that of another run"
    try:
        if len(row) == len(_COLUMNS["records"]) + 1:
            read_losses(row[2], row[3])
    except ValueError as damage:
        return str(damage)
    return None


def _place(row: tuple[Any, ...]) -> str:
    return printable(str(row[4])[:LONGEST_PLACE])


FIRST, LATER = 1e-3, 0.1
"""Largest difference of two results of one run, as fractions of a loss: of the first loss, which
both compute from the same weights, and of the others, in which training amplifies rounding."""


def _deviation(known: tuple[Any, ...], row: tuple[Any, ...]) -> float | None:
    """The largest difference of two rows of one run as a fraction; None if it is no rounding."""
    # Without a place both were trained on CPUs, where a run has the same bits on all.
    if len(row) != len(_COLUMNS["records"]) + 1 or not (_place(known) or _place(row)):
        return None
    (status, here), (ended, there) = read_losses(*known[2:4]), read_losses(*row[2:4])
    if status is not ended:
        return None
    apart = [abs(a - b) / max(a, b, sys.float_info.min) for a, b in zip(here, there)]  # noqa: B905
    if status is Status.DIVERGED:  # which amplifies rounding without limit
        apart = apart[:1]
    elif len(here) != len(there):
        return None
    if not apart or apart[0] > FIRST or max(apart) > LATER:
        return None
    return max(apart)


def _last_start(last: Sequence[_Noted]) -> float:
    starts = [session.get("started") for _, session in last]
    return max((start for start in starts if isinstance(start, int | float)), default=0.0)


def _schema(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Kind, name, table and text of all that a file defines, without the text's white space."""
    # Not more of it is read than differs from our own.
    rows = db.execute(
        "SELECT type, name, tbl_name, substr(sql, 1, 1000) FROM sqlite_master ORDER BY name "
        f"LIMIT {len(_TABLES) + 1}"
    )
    spaces = re.compile(r"\s*([(),])\s*|\s+")
    return [
        (*map(str, row[:3]), spaces.sub(lambda found: found[1] or " ", str(row[3])).strip())
        for row in rows
    ]


@cache
def _own_schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as db:
        for table in _TABLES:
            db.execute(table)
        return _schema(db)


def _warn(text: str) -> None:
    warnings.warn(text, StoreWarning, stacklevel=4)


def _quoted(error: Exception) -> str:
    """SQLite's message in ASCII: it quotes what it could not read."""
    return str(error)[:200].encode("unicode_escape").decode()
