"""Another user of the machine does not reach the standalone's Redis, and one that is weakened ends acknowledgements."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import redis

from pravega_common.errors import ConfigurationError
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO, audit_period_s
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from segment_service import tier1_settings_watch
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.tier1_settings_watch import Tier1SettingsWatch
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually, eventually_blocking
from tests.support.fakes.clock import ManualClock
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer, running_redis

store_end_max_s = 60.0
WEAKENED = [("appendfsync", "everysec"), ("appendonly", "no"), ("maxmemory-policy", "allkeys-lru")]


@pytest.mark.parametrize(("name", "value"), WEAKENED)
async def test_a_server_that_is_weakened_later_is_noticed(own_redis: RedisServer, name: str, value: str) -> None:
    clock, pressure = ManualClock(), StoreBackPressure()
    groups = ChoiceByUse([PersistenceGroup("group", (own_redis.address,))])
    watch = Tier1SettingsWatch(groups, pressure, set, clock, is_off=False)
    failures: list[BaseException] = []
    watch.on_failure(failures.append)
    await watch.start()

    async def looked() -> bool:
        await clock.advance(tier1_settings_watch.period_s)
        return bool(failures)

    for _ in range(3):
        assert not await looked()
    assert pressure.is_open
    own_redis.call("CONFIG", "SET", name, value)
    await eventually(looked, "the end of the watch")
    assert isinstance(failures[0], ConfigurationError) and name in str(failures[0])
    assert not pressure.is_open, "nothing more is acknowledged"


async def test_a_server_that_is_away_is_left_to_the_logs(own_redis: RedisServer) -> None:
    clock, pressure = ManualClock(), StoreBackPressure()
    groups = ChoiceByUse([PersistenceGroup("group", (own_redis.address,))])
    watch = Tier1SettingsWatch(groups, pressure, set, clock, is_off=False)
    await watch.start()
    own_redis.kill()
    for _ in range(3):
        await clock.advance(tier1_settings_watch.period_s)
    own_redis.start()
    for _ in range(3):
        await clock.advance(tier1_settings_watch.period_s)
    assert watch.failure is None and pressure.is_open
    await watch.stop()


async def test_a_server_of_a_drained_group_is_looked_at_while_plogs_are_there(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    """A group stays registered for good, and its servers may serve somebody else one day."""
    with running_redis(tmp_path / "drained") as drained:
        clock, pressure, used = ManualClock(), StoreBackPressure(), set[str]()
        kept, left = (PersistenceGroup(name, (one.address,)) for name, one in (("a", own_redis), ("b", drained)))
        groups = ChoiceByUse([kept])
        groups.saw(PersistenceCluster("test", (kept, left)))
        watch = Tier1SettingsWatch(groups, pressure, lambda: used, clock, is_off=False)
        failures: list[BaseException] = []
        watch.on_failure(failures.append)
        drained.call("CONFIG", "SET", "appendfsync", "everysec")
        await watch.start()
        for _ in range(3):
            await eventually(lambda: not watch._asked, "the answers of both servers")
            await clock.advance(tier1_settings_watch.period_s)
        assert not failures and pressure.is_open
        used.add("b")
        await clock.advance(tier1_settings_watch.period_s)
        await eventually(lambda: bool(failures), "the end of the watch")
        assert drained.address in str(failures[0])


async def test_a_control_plane_that_is_weakened_later_is_refused(own_redis: RedisServer) -> None:
    clock = ManualClock()
    cpo = RedisCPO(own_redis.address, clock=clock)
    assert await cpo.get_constant("key") is None
    own_redis.call("CONFIG", "SET", "appendfsync", "no")
    assert await cpo.get_constant("key") is None
    await clock.advance(audit_period_s)
    with pytest.raises(ConfigurationError, match="appendfsync is no"):
        await cpo.get_constant("key")
    own_redis.call("CONFIG", "SET", "appendfsync", "always")
    assert await cpo.get_constant("key") is None
    await cpo.close()


def others_may_use(folder: Path) -> list[Path]:
    """What users other than its owner may use in a folder, itself among it."""
    return [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]


@pytest.mark.parametrize("redis_servers", [1, 3])
def test_nobody_else_reaches_what_a_standalone_keeps(tmp_path: Path, redis_servers: int) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        with running_cluster(tmp_path, redis_servers=redis_servers) as own:
            servers = {name: text for name, text in own.ready().items() if name.startswith("redis")}
            assert len(servers) == (1 if redis_servers == 1 else 4)
            for address in servers.values():
                socket = Path(address.removeprefix("unix:"))
                assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
                assert stat.S_IMODE(socket.stat().st_mode) == 0o700
                with redis.Redis(unix_socket_path=str(socket)) as connection:
                    assert connection.info("server")["tcp_port"] == 0
            assert others_may_use(data) == []
    finally:
        os.umask(before)


def test_a_standalone_acknowledges_nothing_while_its_redis_is_weakened(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as own, StreamClient(own.controller_uri) as client:
        client.controller.create_scope("s")
        client.controller.create_stream("s", "t")
        with EventWriter(client, "s", "t") as writer:
            writer.write(b"before", "k")
        log = tmp_path / "data" / "logs" / "segment-store-0.log"
        refusal = "may lose acknowledged data: appendfsync is everysec"
        address, store = own.ready()["redis"], own.pid("segment-store-0")
        with redis.Redis(unix_socket_path=address.removeprefix("unix:")) as connection:
            connection.config_set("appendfsync", "everysec")
            eventually_blocking(lambda: refusal in log.read_text(), "the store's end", store_end_max_s)
            connection.config_set("appendfsync", "always")
        own.wait_restarted("segment-store-0", store)
        with EventWriter(client, "s", "t") as writer:
            writer.write(b"after", "k")
        assert [event.data for event in read_events(client, "s", "t")] == [b"before", b"after"]
