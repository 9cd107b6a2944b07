"""Keeps the control plane oracle in one file (SQLite), for processes of one machine.

Every change is one transaction that is on disk before the answer (``synchronous = FULL``). Leases run by the clock of
the machine. A wait for an assignment looks at the file from time to time: there is nobody to wake it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from pravega_common.errors import (
    ConfigurationError,
    DataCorruption,
    Fenced,
    Unavailable,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.deadline import Deadline
from pravega_common.services.cluster.codec import (
    checked_name,
    checked_ttl_ms,
    checked_value,
    cluster_from_json,
    cluster_to_json,
    payload_to_json,
    replaced_cluster,
)
from pravega_common.services.cluster.cpo import Assignment, PersistenceCluster
from pravega_common.services.settings import lease_ms_max

T = TypeVar("T")

format_version: Final = 1
"""``user_version`` of the database; "PCPO" is its ``application_id``."""
_APPLICATION: Final = 0x5043504F
lock_time_max_s: Final = 5.0
"""Time that a call waits for the transactions of other processes."""
connect_pause_max_s: Final = 0.02
"""Longest pause between two tries to open a file that another process opens for the first time."""
assignment_look_s: Final = 0.1
"""Pause between two looks at the assignment while somebody waits for a change."""
lease_kept_ms: Final = 3_600_000
"""Leases that ran out longer ago, or end later than any can, are removed when another one of their kind is renewed."""

_RUNS: Final = "ends_ms > ? AND ends_ms <= ?"
_SCHEMA: Final = """
CREATE TABLE record (kind TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE lease (kind TEXT, name TEXT, value TEXT NOT NULL, ends_ms INTEGER NOT NULL, PRIMARY KEY (kind, name))
  WITHOUT ROWID;
CREATE TABLE owner (container INTEGER PRIMARY KEY, store TEXT NOT NULL);
CREATE TABLE task (member TEXT, task TEXT, payload TEXT NOT NULL, PRIMARY KEY (member, task)) WITHOUT ROWID;
"""


class SqliteCPO:
    """``ControlPlaneOracle`` in the file ``path``, which is made if it is missing."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-cpo")
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)

    # Constants of the cluster

    async def set_once(self, key: str, value: str) -> str:
        name, text = checked_name("key", key), checked_value(value)

        def work(database: sqlite3.Connection) -> str:
            database.execute("INSERT OR IGNORE INTO record VALUES ('constant', ?, ?)", (name, text))
            return _record(database, "constant", name) or text

        return await self._transaction(work)

    async def get_constant(self, key: str) -> str | None:
        return await self._transaction(lambda database: _record(database, "constant", key))

    async def replace_constant(self, key: str, expected: str | None, value: str) -> None:
        name, text = checked_name("key", key), checked_value(value)

        def work(database: sqlite3.Connection) -> None:
            current = _record(database, "constant", name)
            if current not in (expected, text):
                raise VersionConflict(f"constant {name} is {current or 'not set'}, not {expected}")
            _put_record(database, "constant", name, text)

        await self._transaction(work)

    # Persistence clusters

    async def put_persistence_cluster(self, cluster: PersistenceCluster) -> PersistenceCluster:
        cluster_to_json(cluster)  # refuses what cannot be stored, before anything is read

        def work(database: sqlite3.Connection) -> PersistenceCluster:
            text = _record(database, "cluster", cluster.name)
            replaced = replaced_cluster(None if text is None else cluster_from_json(text), cluster)
            _put_record(database, "cluster", cluster.name, cluster_to_json(replaced))
            return replaced

        return await self._transaction(work)

    async def get_persistence_cluster(self, name: str) -> PersistenceCluster | None:
        text = await self._transaction(lambda database: _record(database, "cluster", name))
        return None if text is None else cluster_from_json(text)

    # Containers

    async def take_epoch(self, container_id: int, owner: str, at_least: int = 1) -> int:
        def work(database: sqlite3.Connection) -> int:
            if int(_record(database, "assignment", "") or 0) > 0:
                row = database.execute("SELECT store FROM owner WHERE container = ?", (container_id,)).fetchone()
                if row is None or row[0] != owner:
                    assigned = "no store" if row is None else row[0]
                    raise Fenced(f"container {container_id} is assigned to {assigned}, not to {owner}")
            epoch = max(int(_record(database, "epoch", str(container_id)) or 0) + 1, at_least)
            _put_record(database, "epoch", str(container_id), str(epoch))
            return epoch

        return await self._transaction(work)

    async def current_epoch(self, container_id: int) -> int:
        return int(await self._transaction(lambda database: _record(database, "epoch", str(container_id))) or 0)

    async def raise_epoch(self, container_id: int, at_least: int) -> int:
        def work(database: sqlite3.Connection) -> int:
            epoch = max(int(_record(database, "epoch", str(container_id)) or 0), at_least)
            _put_record(database, "epoch", str(container_id), str(epoch))
            return epoch

        return await self._transaction(work)

    async def get_metadata_plog(self, container_id: int) -> str | None:
        return await self._transaction(lambda database: _record(database, "metadata plog", str(container_id)))

    async def put_metadata_plog(self, container_id: int, epoch: int, expected: str | None, plog_id: str) -> None:
        name, plog_id = str(container_id), checked_name("plog id", plog_id)

        def work(database: sqlite3.Connection) -> None:
            current_epoch = int(_record(database, "epoch", name) or 0)
            if epoch != current_epoch:
                raise Fenced(f"container {container_id}: epoch {epoch} was superseded by {current_epoch}")
            current = _record(database, "metadata plog", name)
            if current not in (plog_id, expected):
                raise VersionConflict(f"container {container_id}: metadata plog is {current}, not {expected}")
            _put_record(database, "metadata plog", name, plog_id)

        await self._transaction(work)

    # Membership

    async def time_of_day_ms(self) -> int:
        return await self._transaction(lambda database: self._clock.wall_ms())

    async def renew_lease(self, kind: str, member_id: str, payload: dict[str, Any], ttl_ms: int) -> int:
        row = (f"member/{checked_name('kind', kind)}", checked_name("member", member_id), payload_to_json(payload))
        ttl_ms = checked_ttl_ms(ttl_ms)

        def work(database: sqlite3.Connection) -> int:
            now_ms = self._clock.wall_ms()
            over = "DELETE FROM lease WHERE kind = ? AND (ends_ms < ? OR ends_ms > ?)"
            database.execute(over, (row[0], now_ms - lease_kept_ms, now_ms + lease_ms_max))
            database.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", (*row, now_ms + ttl_ms))
            return now_ms

        return await self._transaction(work)

    async def release_lease(self, kind: str, member_id: str) -> None:
        await self._transaction(
            lambda database: database.execute(
                "DELETE FROM lease WHERE kind = ? AND name = ?", (f"member/{kind}", member_id)
            )
        )

    async def members(self, kind: str) -> dict[str, dict[str, Any]]:
        query = f"SELECT name, value FROM lease WHERE kind = ? AND {_RUNS}"
        rows = await self._transaction(
            lambda database: database.execute(query, (f"member/{kind}", *self._running())).fetchall()
        )
        return {name: json.loads(value) for name, value in rows}

    # Elections and locks

    async def try_lead(self, role: str, member_id: str, ttl_ms: int) -> bool:
        return await self._try_hold("leader", role, member_id, ttl_ms)

    async def resign(self, role: str, member_id: str) -> None:
        await self._give_up("leader", role, member_id)

    async def leader(self, role: str) -> str | None:
        return await self._transaction(lambda database: self._holder(database, "leader", role))

    async def try_lock(self, name: str, holder: str, ttl_ms: int) -> bool:
        return await self._try_hold("lock", name, holder, ttl_ms)

    async def unlock(self, name: str, holder: str) -> None:
        await self._give_up("lock", name, holder)

    # Assignment of containers

    async def get_assignment(self) -> Assignment:
        def work(database: sqlite3.Connection) -> Assignment:
            version = int(_record(database, "assignment", "") or 0)
            rows = database.execute("SELECT container, store FROM owner").fetchall()
            return Assignment(version, MappingProxyType(dict(rows)))

        return await self._transaction(work)

    async def put_assignment(self, expected_version: int, owners: Mapping[int, str]) -> int:
        rows = list(owners.items())

        def work(database: sqlite3.Connection) -> int:
            version = int(_record(database, "assignment", "") or 0)
            if version != expected_version:
                raise VersionConflict(f"assignment is at version {version}, not at {expected_version}")
            database.execute("DELETE FROM owner")
            database.executemany("INSERT INTO owner VALUES (?, ?)", rows)
            _put_record(database, "assignment", "", str(version + 1))
            return version + 1

        return await self._transaction(work)

    async def wait_assignment(self, after_version: int, timeout_s: float) -> Assignment:
        deadline = Deadline.after(self._clock, timeout_s)
        while True:
            version = int(await self._transaction(lambda database: _record(database, "assignment", "")) or 0)
            if version > after_version or deadline.expired:
                return await self.get_assignment()
            await self._clock.sleep(min(assignment_look_s, deadline.remaining_s))

    # Index of running tasks

    async def add_task(self, member_id: str, task_id: str, payload: dict[str, Any]) -> None:
        row = (checked_name("member", member_id), checked_name("task", task_id), payload_to_json(payload))
        await self._transaction(lambda database: database.execute("INSERT OR REPLACE INTO task VALUES (?, ?, ?)", row))

    async def remove_task(self, member_id: str, task_id: str) -> None:
        query = "DELETE FROM task WHERE member = ? AND task = ?"
        await self._transaction(lambda database: database.execute(query, (member_id, task_id)))

    async def move_task(self, task_id: str, from_member: str, to_member: str) -> bool:
        query = "UPDATE OR REPLACE task SET member = ? WHERE member = ? AND task = ?"
        row = (checked_name("member", to_member), from_member, task_id)
        return bool(await self._transaction(lambda database: database.execute(query, row).rowcount))

    async def tasks(self) -> dict[str, dict[str, dict[str, Any]]]:
        rows = await self._transaction(lambda database: database.execute("SELECT * FROM task").fetchall())
        result: dict[str, dict[str, dict[str, Any]]] = {}
        for member_id, task_id, payload in rows:
            result.setdefault(member_id, {})[task_id] = json.loads(payload)
        return result

    # Inside

    async def _try_hold(self, what: str, name: str, holder: str, ttl_ms: int) -> bool:
        row = (what, checked_name(what, name), checked_name("holder", holder))
        ttl_ms = checked_ttl_ms(ttl_ms)

        def work(database: sqlite3.Connection) -> bool:
            if self._holder(database, what, name) not in (None, holder):
                return False
            database.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", (*row, self._clock.wall_ms() + ttl_ms))
            return True

        return await self._transaction(work)

    async def _give_up(self, what: str, name: str, holder: str) -> None:
        query = "DELETE FROM lease WHERE kind = ? AND name = ? AND value = ?"
        await self._transaction(lambda database: database.execute(query, (what, name, holder)))

    def _holder(self, database: sqlite3.Connection, what: str, name: str) -> str | None:
        query = f"SELECT value FROM lease WHERE kind = ? AND name = ? AND {_RUNS}"
        row = database.execute(query, (what, name, *self._running())).fetchone()
        return None if row is None else str(row[0])

    def _running(self) -> tuple[int, int]:
        """The values for ``_RUNS``. No lease ends later: one that seems to is of the time before the clock went back,
        as after a power cut on a machine without a battery clock, and its holder may be gone."""
        now_ms = self._clock.wall_ms()
        return now_ms, now_ms + lease_ms_max

    async def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in one transaction, all or nothing: ``Unavailable`` if the file could not take it."""
        if self._is_closed:
            raise Unavailable(f"the control plane oracle in {self._path} was closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._connect()
            with _immediate(self._connection):
                return work(self._connection)
        except sqlite3.DatabaseError as error:
            self._disconnect()
            if getattr(error, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
                raise DataCorruption(f"the control plane oracle in {self._path} is damaged: {error}") from error
            raise Unavailable(f"the control plane oracle in {self._path} cannot be used: {error}") from error
        except UnknownOutcome:
            self._disconnect()
            raise

    def _connect(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{self._path.parent} cannot be made: {error.strerror}") from error
        # SQLite does not wait, as it does for all other locks, while another process changes the file's journal.
        tries = Retrying(
            retry=retry_if_exception(_is_locked),
            stop=stop_after_delay(lock_time_max_s),
            wait=wait_random(max=connect_pause_max_s),
            reraise=True,
        )
        return tries(self._open_file)

    def _open_file(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=lock_time_max_s, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")  # one sync for each change; readers hold up no writer
            connection.execute("PRAGMA synchronous = FULL")
            with _immediate(connection):
                application = connection.execute("PRAGMA application_id").fetchone()[0]
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if (application, version) == (0, 0):
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {format_version}")
                elif (application, version) != (_APPLICATION, format_version):
                    raise ConfigurationError(
                        f"{self._path} is no control plane oracle of format {format_version} (application "
                        f"{application:#x}, format {version}): name another file, or upgrade pravega-spark"
                    )
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction, which has the right to write from its beginning."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    try:
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        raise UnknownOutcome(f"a change of the control plane oracle may not have reached the disk: {error}") from error


def _record(database: sqlite3.Connection, kind: str, name: str) -> str | None:
    row = database.execute("SELECT value FROM record WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    return None if row is None else str(row[0])


def _put_record(database: sqlite3.Connection, kind: str, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", (kind, name, value))
