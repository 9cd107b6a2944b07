"""An operator replaces a server of a group of three for good, while the log goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, Unavailable
from pravega_common.runtime import failpoints
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.cluster.cpo import ControlPlaneOracle, PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.contracts.data_log import Replication
from segment_service.maintenance import server_replacement
from segment_service.maintenance.server_replacement import ServerReplacement
from segment_service.plog import log_stream, metadata_manager, registered_servers, repair
from segment_service.plog.cluster_registration import ask_redis, register_groups, server_identity_key, successor_key
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.eventually import eventually
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, check_history, recover, write_frames
from tests.support.server_fixtures import own_redis_group as own_redis_group
from tests.support.servers import RedisServer, running_redis

Servers = tuple[RedisServer, ...]
SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0, reply_timeout_s=2.0)
FRAME = 100_000
replaced_max_s = 60.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "look_s", 0.1)
    monkeypatch.setattr(registered_servers, "registration_look_s", 0.1)
    monkeypatch.setattr(server_replacement, "look_s", 0.1)
    monkeypatch.setattr(log_stream, "rejoin_pause_s", 0.1)
    monkeypatch.setattr(metadata_manager, "rejoin_pause_s", 0.1)


@pytest.fixture
def new(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path / "new") as server:
        yield server


def group_of(servers: Servers) -> PersistenceGroup:
    return PersistenceGroup("g0", tuple(server.address for server in servers))


async def started(servers: Servers, cpo: ControlPlaneOracle) -> tuple[RedisDataLog, WriterHistory]:
    """The log of container 1 with a few sealed plogs on all three servers."""
    await cpo.set_once(CONTAINER_COUNT_KEY, "2")
    await cpo.put_persistence_cluster(PersistenceCluster("test", (group_of(servers),)))
    log = RedisDataLog(1, "store", cpo, "test", SETTINGS)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 50, sizes=(FRAME,))
    return log, history


def replacement(cpo: ControlPlaneOracle, old: RedisServer, new: RedisServer) -> ServerReplacement:
    return ServerReplacement(cpo, ask_redis, SystemClock(), "test", "g0", old.address, new.address)


async def complete(replacing: ServerReplacement) -> None:
    async with asyncio.timeout(replaced_max_s):
        async for _ in replacing.follow():
            pass


async def check_recovered(cpo: InMemoryCPO, histories: list[WriterHistory]) -> None:
    log, entries = await recover(cpo, SETTINGS)
    check_history(entries, histories)
    await log.close()


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("retired_alive", [True, False])
async def test_a_server_is_replaced_under_load_and_another_may_be_lost(
    own_redis_group: Servers, new: RedisServer, place: int, *, retired_alive: bool
) -> None:
    cpo = InMemoryCPO()
    log, history = await started(own_redis_group, cpo)
    old, next_lost = own_redis_group[place], own_redis_group[(place + 1) % 3]
    if not retired_alive:
        old.kill()
    writing = asyncio.create_task(write_frames(log, history, 200, sizes=(FRAME,)))
    await history.until_acked(80)
    replacing = replacement(cpo, old, new)
    await replacing.register()
    await complete(replacing)
    await writing
    await eventually(lambda: log.replication == Replication(), "all copies are whole", replaced_max_s)
    old.kill()
    next_lost.kill()
    await write_frames(log, history, 30, sizes=(FRAME,))
    assert (history.error, len(history.acked), log.epoch) == (None, 280, 1)
    await log.close()
    await check_recovered(cpo, [history])


async def test_the_old_server_is_never_written_again(own_redis_group: Servers, new: RedisServer) -> None:
    cpo = InMemoryCPO()
    log, history = await started(own_redis_group, cpo)
    old = own_redis_group[1]
    replacing = replacement(cpo, old, new)
    await replacing.register()
    await complete(replacing)
    before = old.call("SMEMBERS", "pravega:plog:index:1")
    await write_frames(log, history, 60, sizes=(FRAME,))
    assert old.call("SMEMBERS", "pravega:plog:index:1") == before
    assert b" cmd=xadd" not in old.call("CLIENT", "LIST")
    await log.close()
    await check_recovered(cpo, [history])


async def test_a_log_leaves_the_old_server_only_while_the_others_are_a_majority_of_every_plog(
    own_redis_group: Servers, new: RedisServer
) -> None:
    """Another server goes just as the new one is registered: the old one stays in use until that one is whole."""
    cpo = InMemoryCPO()
    log, history = await started(own_redis_group, cpo)
    old, behind = own_redis_group[0], own_redis_group[1]
    _, after = await replacement(cpo, old, new).plan()
    behind.kill()
    await write_frames(log, history, 50, sizes=(FRAME,))
    await cpo.replace_constant(successor_key("test", "g0", old.address), None, new.address)
    await cpo.put_persistence_cluster(after)
    await eventually(
        lambda: "is not left for" in log.replication.servers_out.get(old.address, ""), "the new one is seen", 30.0
    )
    await write_frames(log, history, 50, sizes=(FRAME,))
    assert history.error is None
    assert new.call("SMEMBERS", "pravega:plog:index:1") == b"*0"
    await asyncio.to_thread(behind.start)
    await complete(replacement(cpo, old, new))
    await eventually(lambda: log.replication == Replication(), "all copies are whole", replaced_max_s)
    old.kill()
    behind.kill()
    await write_frames(log, history, 10, sizes=(FRAME,))
    assert (history.error, len(history.acked)) == (None, 160)
    await log.close()
    await check_recovered(cpo, [history])


STEPS = [
    server_replacement.SUCCESSOR_RECORDED,
    server_replacement.SERVER_REGISTERED,
    server_replacement.IDENTITY_SHARED,
]


@pytest.mark.parametrize("step", STEPS)
async def test_an_interrupted_command_is_repeated(own_redis_group: Servers, new: RedisServer, step: str) -> None:
    cpo = InMemoryCPO()
    log, history = await started(own_redis_group, cpo)
    old = own_redis_group[2]
    old.kill()
    failpoints.arm(step, failpoints.raise_on_hit(step))
    try:
        with pytest.raises(Exception, match=step):
            await replacement(cpo, old, new).register()
            await complete(replacement(cpo, old, new))
    finally:
        failpoints.disarm_all()
    await replacement(cpo, old, new).register()
    await complete(replacement(cpo, old, new))
    await complete(replacement(cpo, old, new))
    own_redis_group[0].kill()
    await write_frames(log, history, 10, sizes=(FRAME,))
    assert (history.error, len(history.acked)) == (None, 60)
    await log.close()
    await check_recovered(cpo, [history])


OWNER_STEPS = [repair.SERVER_MOVED, repair.COPY_REPAIRED, repair.PLOGS_COPIED, repair.SERVER_ADMITTED]


@pytest.mark.parametrize("step", OWNER_STEPS)
async def test_the_next_owner_takes_the_new_server_in(own_redis_group: Servers, new: RedisServer, step: str) -> None:
    """The owner's repair ends at a failpoint, as if its process had died there."""
    cpo = InMemoryCPO()
    log, history = await started(own_redis_group, cpo)
    old = own_redis_group[0]
    old.kill()
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        raise asyncio.CancelledError

    failpoints.arm(step, stop)
    try:
        await replacement(cpo, old, new).register()
        await asyncio.wait_for(stopped.wait(), replaced_max_s)
    finally:
        failpoints.disarm_all()
    await write_frames(log, history, 10, sizes=(FRAME,))
    assert history.error is None
    await log.close()
    following, entries = await recover(cpo, SETTINGS)
    check_history(entries, [history])
    await complete(replacement(cpo, old, new))
    await eventually(lambda: following.replication == Replication(), "all copies are whole", replaced_max_s)
    own_redis_group[1].kill()
    after = WriterHistory(1)
    await write_frames(following, after, 10, sizes=(FRAME,))
    assert after.error is None
    await following.close()
    await check_recovered(cpo, [history, after])


async def test_without_a_majority_nothing_is_registered(own_redis_group: Servers, new: RedisServer) -> None:
    cpo = InMemoryCPO()
    log, _ = await started(own_redis_group, cpo)
    before = await cpo.get_persistence_cluster("test")
    own_redis_group[1].kill()
    with pytest.raises(Unavailable):
        await replacement(cpo, own_redis_group[0], new).register()
    await asyncio.to_thread(own_redis_group[1].start)
    await cpo.set_once(f"{server_identity_key('test', 'g0', 1)}/1", "of another server")
    with pytest.raises(ConfigurationError, match="there would be no majority"):
        await replacement(cpo, own_redis_group[0], new).register()
    with pytest.raises(ConfigurationError, match="is a server of group g0"):
        await replacement(cpo, own_redis_group[0], own_redis_group[1]).register()
    assert await cpo.get_persistence_cluster("test") == before
    await log.close()


async def test_the_command_replaces_and_stores_start_with_their_old_settings(
    own_redis_group: Servers, new: RedisServer, tmp_path: Path
) -> None:
    with running_redis(tmp_path / "oracle") as oracle:
        cpo = RedisCPO(oracle.address)
        log, history = await started(own_redis_group, cpo)
        old = own_redis_group[1]
        old.kill()
        settings = tmp_path / "store.toml"
        servers = ", ".join(f'"{server.address}"' for server in own_redis_group)
        settings.write_text(
            f'[store]\ncontainers = 2\n[cluster]\nname = "test"\ncpo = "{oracle.address}"\n'
            f'[tier1]\ngroups = {{ g0 = [{servers}] }}\n[tier2]\nurl = "file://{tmp_path}/tier2"\n'
        )
        command = (
            *(sys.executable, "-m", "pravega_spark", "cluster", "replace-server", "--config", str(settings)),
            *("--group", "g0", "--old", old.address, "--new", new.address),
        )
        for arguments, text in ((("--dry-run",), "dry run"), ((), "took the place of"), ((), "took the place of")):
            process = await asyncio.create_subprocess_exec(
                *command, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output, _ = await asyncio.wait_for(process.communicate(), replaced_max_s)
            assert process.returncode == 0 and text in output.decode(), output.decode()
        registered = await register_groups(cpo, "test", [group_of(own_redis_group)], ask_redis)
        assert registered.groups[0].servers[1] == new.address
        own_redis_group[0].kill()
        await write_frames(log, history, 10, sizes=(FRAME,))
        assert (history.error, len(history.acked)) == (None, 60)
        await log.close()
        await cpo.close()
