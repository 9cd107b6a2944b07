"""Sets the clocks of oracles back, that of a real Redis, too."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.services.cluster.redis_cpo import RedisCPO
from pravega_common.services.cluster.sqlite_cpo import SqliteCPO
from tests.contract.clock_set_back_contract import ClockSetBackContract
from tests.contract.control_plane_oracle_contract import Pair
from tests.support.fakes.clock import AheadClock
from tests.support.servers import RedisServer
from tests.support.settable_clocks import SettableClocks


class RedisOfAnotherTime(RedisServer):
    """A Redis whose clock can be set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._clocks = SettableClocks(folder)
        self._ahead_ms = 0

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self._clocks.environment}

    @property
    def ahead_ms(self) -> int:
        return self._ahead_ms

    @ahead_ms.setter
    def ahead_ms(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms
        self._clocks.set_ahead(self.pid, seconds=ahead_ms // 1000)


class TestSqliteCPO(ClockSetBackContract):
    @pytest.fixture
    def clock(self) -> AheadClock:
        return AheadClock()

    @pytest.fixture
    async def cpos(self, clock: AheadClock, tmp_path: Path) -> AsyncIterator[Pair]:
        one, two = (SqliteCPO(tmp_path / "oracle.db", clock) for _ in range(2))
        yield one, two
        await one.close()
        await two.close()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the library that sets clocks: install gcc")
class TestRedisCPO(ClockSetBackContract):
    @pytest.fixture
    async def clock(self, tmp_path: Path) -> AsyncIterator[RedisOfAnotherTime]:
        server = RedisOfAnotherTime(tmp_path / "redis")
        server.start()
        yield server
        server.kill()

    @pytest.fixture
    async def cpos(self, clock: RedisOfAnotherTime) -> AsyncIterator[Pair]:
        one, two = RedisCPO(clock.address), RedisCPO(clock.address)
        yield one, two
        await one.close()
        await two.close()
