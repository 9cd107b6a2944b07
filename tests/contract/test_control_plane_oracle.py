"""Runs the contract of ``ControlPlaneOracle`` on the fake, on a file and on a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, Unavailable
from pravega_common.services.cluster import redis_cpo
from pravega_common.services.cluster.redis_cpo import RedisCPO
from pravega_common.services.cluster.sqlite_cpo import SqliteCPO
from tests.contract.control_plane_oracle_contract import ControlPlaneOracleContract, LetExpire, Pair
from tests.support.eventually import eventually
from tests.support.fakes.clock import AheadClock, ManualClock
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.server_fixtures import redis_server as redis_server
from tests.support.servers import RedisServer

_numbers = itertools.count()


class TestInMemoryCPO(ControlPlaneOracleContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def cpos(self, clock: ManualClock) -> Pair:
        cpo = InMemoryCPO(clock)
        return cpo, cpo

    @pytest.fixture
    def let_expire(self, clock: ManualClock) -> LetExpire:
        return lambda ttl_ms: clock.advance(ttl_ms / 1000)


class TestSqliteCPO(ControlPlaneOracleContract):
    @pytest.fixture
    def clock(self) -> AheadClock:
        return AheadClock()

    @pytest.fixture
    async def cpos(self, clock: AheadClock, tmp_path: Path) -> AsyncIterator[Pair]:
        one, two = (SqliteCPO(tmp_path / "cpo" / "oracle.db", clock) for _ in range(2))
        yield one, two
        await one.close()
        await two.close()
        await two.close()

    @pytest.fixture
    def let_expire(self, clock: AheadClock) -> LetExpire:
        async def expire(ttl_ms: int) -> None:
            clock.ahead_ms += ttl_ms

        return expire

    async def test_processes_that_come_at_the_same_time_all_get_in(self, tmp_path: Path) -> None:
        """SQLite does not wait for a lock while a file changes its journal, so the first calls could be refused."""
        for round_number in range(60):
            cpos = [SqliteCPO(tmp_path / f"oracle-{round_number}.db") for _ in range(8)]
            epochs = await asyncio.gather(*(cpo.take_epoch(0, "x") for cpo in cpos))
            assert sorted(epochs) == list(range(1, 9))
            for cpo in cpos:
                await cpo.close()

    async def test_all_is_there_after_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "oracle.db"
        first = SqliteCPO(path)
        await first.take_epoch(3, "a")
        await first.put_assignment(0, {3: "a"})
        await first.close()
        with pytest.raises(Unavailable, match="was closed"):
            await first.current_epoch(3)
        second = SqliteCPO(path)
        assert await second.current_epoch(3) == 1
        assert dict((await second.get_assignment()).owners) == {3: "a"}
        await second.close()

    async def test_other_files_and_formats_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "oracle.db"
        path.write_bytes(b"this is no database, but long enough to be taken for one" * 20)
        with pytest.raises(DataCorruption, match="is damaged"):
            await closing(SqliteCPO(path))
        path.unlink()
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA user_version = 2")
        with pytest.raises(ConfigurationError, match="no control plane oracle of format 1"):
            await closing(SqliteCPO(path))

    async def test_a_file_locked_by_another_program_is_unavailable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pravega_common.services.cluster.sqlite_cpo.lock_time_max_s", 0.1)
        path = tmp_path / "oracle.db"
        await closing(SqliteCPO(path))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="locked"):
                await closing(SqliteCPO(path))
            other.execute("ROLLBACK")
        await closing(SqliteCPO(path))


async def closing(cpo: SqliteCPO) -> None:
    """Uses the oracle once."""
    try:
        await cpo.get_assignment()
    finally:
        await cpo.close()


class TestRedisCPO(ControlPlaneOracleContract):
    @pytest.fixture
    async def cpos(self, redis_server: RedisServer) -> AsyncIterator[Pair]:
        prefix = f"test{next(_numbers)}:"
        one, two = (RedisCPO(redis_server.address, prefix=prefix) for _ in range(2))
        yield one, two
        await one.close()
        await two.close()

    @pytest.fixture
    def let_expire(self) -> LetExpire:
        async def expire(ttl_ms: int) -> None:
            # A lease in a real Redis runs by the clock of its server, which no test can move.
            await asyncio.sleep(ttl_ms / 1000 + 0.02)

        return expire

    async def test_a_call_waits_for_others_for_a_limited_time(
        self, cpos: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_cpo, "turn_max_s", 0.3)
        one, two = cpos
        waiting = [asyncio.create_task(one.wait_assignment(0, 60)) for _ in range(redis_cpo.connections_max)]
        await eventually(lambda: one._turns.locked())  # type: ignore[attr-defined]
        with pytest.raises(Unavailable, match=r"16 calls are under way, and none ended within 0 s"):
            for _ in range(1_000):  # some of the others may still be about to read
                await one.current_epoch(1)
        await two.put_assignment(0, {0: "a"})
        assert {(await task).version for task in waiting} == {1}
