"""The store: every finished run in one SQLite file, found again by its key."""

import json
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, overload

from depthmup.records import Measurement, Record, Run, Status, Task

MAIN_STORE = "results.sqlite"
"""The store of a folder; beside it there may be those of shards."""

SCHEMA = 2
APPLICATION_ID = 0x64706D75  # "dpmu", in the file's header

_TABLES = """
CREATE TABLE records (
    key TEXT PRIMARY KEY,
    cell TEXT NOT NULL,
    status TEXT NOT NULL,
    losses BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE sessions (id INTEGER PRIMARY KEY, about TEXT NOT NULL, seconds REAL NOT NULL);
"""
# Since schema 2; an older store gains it when it is opened.
_MEASUREMENTS = """
CREATE TABLE measurements (
    key TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    measured TEXT NOT NULL
) WITHOUT ROWID
"""

Asked = Run | Task
R = TypeVar("R", bound=Run)


class StoreError(RuntimeError):
    """The store cannot be used as asked; the message says what to do."""


class Store:
    """Records by cell key, one transaction each, safe for several writers and sudden death.

    Opening creates the file unless ``must_exist``. A record that is present is never replaced.

    Raises:
        StoreError: the file is no store, is damaged, or is of another schema version.

    Example:
        >>> import tempfile
        >>> with Store(Path(tempfile.mkdtemp()) / "results.sqlite") as store:
        ...     len(store)
        0
    """

    def __init__(self, path: str | Path, *, must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not self.path.exists():
            raise StoreError(
                f"Expected a store at {self.path}; there is none. Run `depthmup transfer --out "
                f"{self.path.parent}` first, or name the folder of an earlier run."
            )
        existed = self.path.exists()
        try:
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
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

    def _open(self, existed: bool) -> None:
        db = self._db
        if existed:
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise sqlite3.DatabaseError(damage)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("BEGIN IMMEDIATE")
        try:
            application = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            empty = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
            if empty and not application:
                for statement in (*_TABLES.strip().split(";\n"), _MEASUREMENTS):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                db.execute(f"PRAGMA user_version={SCHEMA}")
            elif application != APPLICATION_ID:
                raise StoreError(
                    f"{self.path} is an SQLite file of another program. Name another folder."
                )
            elif version == 1:
                db.execute(_MEASUREMENTS)
                db.execute(f"PRAGMA user_version={SCHEMA}")
            elif version != SCHEMA:
                raise StoreError(
                    f"Expected the store {self.path} to be of schema version {SCHEMA}; it is of "
                    f"version {version}. Use the depthmup version that wrote it, or name another "
                    "folder."
                )
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error):
                advice = "What was finished is kept: make room, then run the same command again."
            elif "readonly" in str(error):
                advice = "Make the file and its folder writable, or name another folder."
            else:
                advice = "What was finished is kept."
            raise StoreError(f"The store {self.path} failed: {error}. {advice}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path} is not a readable store ({error}): it is damaged, truncated, or "
                "something else. Move it away to start anew; nothing was changed."
            ) from error

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def __len__(self) -> int:
        with self._explained():
            count: int = self._db.execute(
                "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM measurements)"
            ).fetchone()[0]
        return count

    def add(self, result: Record | Measurement) -> None:
        """Keep a result, in a transaction of its own; one that is present stays."""
        if isinstance(result, Measurement):
            measured = json.dumps(dict(result.values))
            row: tuple[object, ...] = (result.task.key, result.task.to_json(), measured)
            statement = "INSERT OR IGNORE INTO measurements VALUES (?, ?, ?)"
        else:
            losses = _little_endian(result.losses).tobytes()
            row = (result.cell.key, result.cell.to_json(), result.status.value, losses)
            statement = "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?)"
        with self._explained():
            self._db.execute(statement, row)

    @overload
    def get(self, asked: Task) -> Measurement | None: ...  # type: ignore[overload-overlap]
    @overload
    def get(self, asked: R) -> Record[R] | None: ...

    def get(self, asked: Asked) -> Record | Measurement | None:
        """The record of a run, or the measurement of a task, or None.

        Raises:
            StoreError: another configuration is stored under this key.
        """
        if isinstance(asked, Task):
            query = "SELECT task, measured FROM measurements WHERE key = ?"
        else:
            query = "SELECT cell, status, losses FROM records WHERE key = ?"
        with self._explained():
            row = self._db.execute(query, (asked.key,)).fetchone()
        if row is None:
            return None
        text, *content = row
        if text != asked.to_json():
            raise StoreError(
                f"The store {self.path} holds another configuration under the key {asked.key}: "
                f"expected {asked.to_json()}, found {text}. It was edited or written by an "
                "incompatible version; name another folder."
            )
        if isinstance(asked, Task):
            return Measurement(task=asked, values=json.loads(content[0]))
        losses = array("f")
        losses.frombytes(content[1])
        return Record(cell=asked, status=Status(content[0]), losses=_little_endian(losses))

    def missing(self, asked: Iterable[Asked]) -> list[Any]:
        """What has no result yet, in the order given."""
        return [each for each in asked if self.get(each) is None]

    def records(self, asked: Iterable[R]) -> dict[R, Record[R]]:
        """The record of every run.

        Raises:
            StoreError: some are missing; how many, and that the work resumes.
        """
        found = {run: self.get(run) for run in asked}
        complete = {run: record for run, record in found.items() if record is not None}
        if len(complete) < len(found):
            raise StoreError(
                f"{len(found) - len(complete)} of {len(found)} runs are not in {self.path} yet. "
                "Ask for the same measurement again, with the same folder, to finish them."
            )
        return complete

    def open_session(self, about: Mapping[str, object]) -> int:
        """Note that work begins: what was asked for, when, on what. The session's number."""
        with self._explained():
            cursor = self._db.execute(
                "INSERT INTO sessions(about, seconds) VALUES (?, 0)", (json.dumps(dict(about)),)
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def update_session(self, session: int, seconds: float) -> None:
        """Note how long a session has worked so far."""
        with self._explained():
            self._db.execute("UPDATE sessions SET seconds = ? WHERE id = ?", (seconds, session))

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions that wrote to this store, in the order in which they started."""
        with self._explained():
            rows = self._db.execute("SELECT about, seconds FROM sessions ORDER BY id").fetchall()
        found = [{**json.loads(about), "seconds": seconds} for about, seconds in rows]
        return sorted(found, key=lambda session: session.get("started", 0.0))

    def absorb(self, others: Sequence["Store"]) -> int:
        """Take what other stores hold, all of it or nothing; the number of new results.

        Results of different grids live side by side, as each is found by its own key. Sessions
        come along, so that a page can be made; one that is known already is not counted twice.

        Raises:
            StoreError: two stores hold different results under one key. Nothing was changed.
        """
        before = len(self)
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for other in others:
                    for table, columns in (("records", 4), ("measurements", 3)):
                        self._take_results(other, table, columns)
                self._take_sessions(others)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        return len(self) - before

    def _take_results(self, other: "Store", table: str, columns: int) -> None:
        with other._explained():
            rows = other._db.execute(f"SELECT * FROM {table}").fetchall()
        for row in rows:
            known = self._db.execute(f"SELECT * FROM {table} WHERE key = ?", row[:1]).fetchone()
            if known is None:
                marks = ", ".join("?" * columns)
                self._db.execute(f"INSERT INTO {table} VALUES ({marks})", row)
            elif known != row:
                raise StoreError(
                    f"{other.path} conflicts with what comes from the other stores: both have "
                    f"{row[1]}, with different results. The same run is the same to the bit on "
                    "machines of one kind with one engine, so these were not alike. Leave one of "
                    "the stores out, and its runs are done anew. Nothing was changed."
                )

    def _take_sessions(self, others: Sequence["Store"]) -> None:
        found = []
        for other in others:
            with other._explained():
                found += other._db.execute("SELECT about, seconds FROM sessions").fetchall()
        for about, seconds in found:
            update = "UPDATE sessions SET seconds = max(seconds, ?) WHERE about = ?"
            if not self._db.execute(update, (seconds, about)).rowcount:
                insert = "INSERT INTO sessions(about, seconds) VALUES (?, ?)"
                self._db.execute(insert, (about, seconds))


def _little_endian(values: array) -> array:
    if sys.byteorder == "little":
        return values
    swapped = array("f", values)
    swapped.byteswap()
    return swapped
