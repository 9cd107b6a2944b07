"""Containers whose plog servers lost everything start from Tier 2 alone, on real Redis servers and a directory."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, FailedError, Unavailable
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.cpo import PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.data_log import DurableDataLog
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.folder import FileLogFolder
from segment_service.maintenance import log_restart
from segment_service.maintenance.file_log_reading import FileLogSource
from segment_service.maintenance.log_restart import FileLogRestart, RedisLogRestart
from segment_service.maintenance.redis_log_reading import RedisLogSource
from segment_service.maintenance.store_restore import ContainerOutcome, StoreRestore
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.plog.cluster_registration import ask_redis, register_groups
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.redis_log import RedisDataLog
from segment_service.store import check_container_count
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.log_history import WriterHistory, write_frames
from tests.support.redis_kit import SETTINGS, RedisKit
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer, running_redis

CONTAINERS = 2


def content(container_id: int) -> bytes:
    return b"".join(b"%d-%06d" % (container_id, number) * 2_000 for number in range(100))


class World(RedisKit):
    """Two containers; the CPO is on a Redis of its own, which survives."""

    def __init__(self, plogs: RedisServer, oracle: RedisServer, folder: Path) -> None:
        super().__init__(plogs, folder)
        self.config = replace(self.config, metadata_table=MetadataTableConfig(flush_age_s=0.05))
        self.oracle = oracle
        self.cpo = RedisCPO(oracle.address)
        self.groups = (PersistenceGroup("group", (plogs.address,)),)

    async def register(self) -> None:
        await register_groups(self.cpo, "test", self.groups, ask_redis)
        await check_container_count(self.cpo, self.tier2, CONTAINERS, "incarnation")

    def make_log(self, container_id: int) -> DurableDataLog:
        return RedisDataLog(container_id, "store", self.cpo, "test", SETTINGS, choice=ChoiceByUse(self.groups))

    async def write_everything(self) -> None:
        for container_id in range(CONTAINERS):
            container = await self.open(container_id)
            await container.create_segment("s")
            data = content(container_id)
            for start in range(0, len(data), 100_000):
                await container.append("s", [data[start : start + 100_000]])
            await in_tier2(container)
            await container.stop()

    def maintenance(self) -> StoreRestore:
        source = RedisLogSource(self.groups, CONTAINERS, SETTINGS)
        restart = RedisLogRestart(self.cpo, "test", self.groups, CONTAINERS, SETTINGS, self.clock, ask_redis)
        return StoreRestore(self.cpo, self.tier2, source, restart, self.clock)

    async def restore_all(self) -> list[ContainerOutcome]:
        outcomes = await self.maintenance().plan(CONTAINERS)
        for one in outcomes:
            if one.plan is not None:
                await self.maintenance().carry_out(one.plan)
        return outcomes

    async def check_everything(self) -> None:
        for container_id in range(CONTAINERS):
            container = await self.open(container_id)
            data = await read_all(container, "s")
            assert data[: len(content(container_id))] == content(container_id)
            assert data.count(b"more") * 4 == len(data) - len(content(container_id))
            await container.append("s", [b"more"])
            await in_tier2(container)
            await container.stop()

    async def lose_cpo(self) -> None:
        await self.cpo.close()
        self.oracle.kill()
        shutil.rmtree(self.oracle.folder)
        self.oracle.folder.mkdir()
        self.oracle.start()


async def in_tier2(container: SegmentContainer) -> None:
    """All bytes, and the table with them."""
    await eventually(
        lambda: all(one.storage_length == one.length for one in container.metadata.segments.values()), "a flush"
    )
    await container.table.flush()


@pytest.fixture
async def world(own_redis: RedisServer, tmp_path: Path) -> AsyncIterator[World]:
    with running_redis(tmp_path / "oracle") as oracle:
        world = World(own_redis, oracle, tmp_path / "tier2")
        await world.start()
        yield world
        await world.close()


@pytest.mark.parametrize("with_cpo", [False, True], ids=["plogs-lost", "plogs-and-cpo-lost"])
async def test_servers_that_lost_everything(world: World, with_cpo: bool) -> None:
    await world.write_everything()
    await asyncio.to_thread(world.restore, None)
    if with_cpo:
        await world.lose_cpo()
        await world.register()
    for container_id in range(CONTAINERS):
        with pytest.raises(DataCorruption, match="run pravega-spark store restore"):
            await world.open(container_id)
    outcomes = await world.restore_all()
    assert [one.plan.length for one in outcomes if one.plan] == [len(content(0)), len(content(1))]
    await world.check_everything()
    await world.check_everything()
    assert [one.plan for one in await world.maintenance().plan(CONTAINERS)] == [None, None]  # nothing is left to do


async def test_an_older_append_only_file(world: World, tmp_path: Path) -> None:
    await world.write_everything()
    await asyncio.to_thread(world.back_up, tmp_path / "backup")
    await world.check_everything()
    await asyncio.to_thread(world.restore, tmp_path / "backup")
    with pytest.raises(DataCorruption, match="run pravega-spark store restore"):
        await world.open(0)
    outcomes = await world.restore_all()
    assert all(one.plan is not None for one in outcomes)
    await world.check_everything()


@pytest.mark.parametrize("step", [log_restart.IDENTITY_PUT, log_restart.LOG_DISCARDED])
async def test_an_interrupted_restore_is_made_again(world: World, step: str) -> None:
    await world.write_everything()
    await asyncio.to_thread(world.restore, None)
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(FailedError):
        await world.restore_all()
    failpoints.disarm_all()
    for container_id in range(CONTAINERS):
        with pytest.raises(DataCorruption):
            await world.open(container_id)
    await world.restore_all()
    await world.check_everything()


async def test_one_container_at_a_time(world: World) -> None:
    await world.write_everything()
    await asyncio.to_thread(world.restore, None)
    (outcome,) = await world.maintenance().plan(CONTAINERS, [1])
    assert outcome.plan is not None
    await world.maintenance().carry_out(outcome.plan)
    with pytest.raises(DataCorruption):
        await world.open(0)
    container = await world.open(1)
    assert await read_all(container, "s") == content(1)
    await container.stop()
    outcomes = await world.restore_all()
    assert [one.plan is None for one in outcomes] == [False, True]
    await world.check_everything()


async def test_what_must_not_be_restored_is_refused(world: World) -> None:
    await world.write_everything()
    outcomes = await world.restore_all()
    assert [one.reason for one in outcomes] == ["its log is there and belongs to Tier 2: start the store"] * CONTAINERS
    plan_of = world.maintenance().plan
    with pytest.raises(ConfigurationError, match="Tier 2 was made with 2 containers"):
        await plan_of(3)
    with pytest.raises(ConfigurationError, match="containers 0 to 1"):
        await plan_of(CONTAINERS, [2])
    world.server.stop()
    with pytest.raises(Unavailable, match="start empty ones in their place"):
        await plan_of(CONTAINERS)
    world.server.start()
    await asyncio.to_thread(world.restore, None)
    (outcome, _) = await plan_of(CONTAINERS)
    assert outcome.plan is not None
    await world.cpo.renew_lease(SEGMENT_STORE_KIND, "store-7", {}, 60_000)
    with pytest.raises(ConfigurationError, match="running: store-7"):
        await plan_of(CONTAINERS)
    with pytest.raises(ConfigurationError, match="running: store-7"):
        await world.maintenance().carry_out(outcome.plan)


async def test_an_assigned_container_is_restored(world: World) -> None:
    """The CPO gives epochs to the store that a container is assigned to, and that store goes on."""
    await world.cpo.put_assignment(0, {0: "store"})
    container = await world.open(0)
    await container.create_segment("s")
    await container.append("s", [content(0)])
    await in_tier2(container)
    await container.stop()
    await asyncio.to_thread(world.restore, None)
    await world.restore_all()
    container = await world.open(0)
    assert await read_all(container, "s") == content(0)
    await container.stop()


async def test_the_command_restores(world: World, tmp_path: Path) -> None:
    await world.write_everything()
    await asyncio.to_thread(world.restore, None)
    settings = tmp_path / "store.toml"
    settings.write_text(
        f'[store]\ncontainers = {CONTAINERS}\n[cluster]\nname = "test"\ncpo = "{world.oracle.address}"\n'
        f'[tier1]\ngroups = {{ group = ["{world.server.address}"] }}\n[tier2]\nurl = "file://{tmp_path}/tier2"\n'
    )

    async def run(*arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pravega_spark", "store", "restore", "--config", str(settings), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, said = await process.communicate()
        assert "Traceback" not in said.decode(), said.decode()
        return process.returncode or 0, output.decode()

    status, output = await run()
    assert (status, world.server.call("DBSIZE")) == (1, b":0"), output
    assert "nothing was changed: give --yes" in output and f"with {len(content(0))} bytes" in output
    status, output = await run("--yes", "--json")
    assert status == 0 and [one["plan"]["segments"] for one in json.loads(output)["containers"]] == [1, 1], output
    await world.check_everything()
    status, output = await run("--yes")
    assert status == 0 and "nothing to restore" in output, output


@asynccontextmanager
async def world_of_three(tmp_path: Path) -> AsyncIterator[tuple[World, RedisServer, RedisServer, RedisServer]]:
    """A world whose one group has three servers, and these."""
    with (
        running_redis(tmp_path / "a") as first,
        running_redis(tmp_path / "b") as second,
        running_redis(tmp_path / "c") as third,
        running_redis(tmp_path / "oracle") as oracle,
    ):
        world = World(first, oracle, tmp_path / "tier2")
        world.groups = (PersistenceGroup("group", (first.address, second.address, third.address)),)
        await world.start()
        try:
            yield world, first, second, third
        finally:
            await world.close()


def lose_the_data_of(server: RedisServer) -> None:
    server.kill()
    shutil.rmtree(server.folder)
    server.folder.mkdir()


async def test_a_group_of_three_that_lost_two_servers(tmp_path: Path) -> None:
    """A majority is gone, so nothing of the log can come back: the new servers are put on record."""
    async with world_of_three(tmp_path) as (world, first, second, third):
        await world.write_everything()
        for server in (second, third):
            lose_the_data_of(server)
            server.start()
        with pytest.raises(DataCorruption, match="run pravega-spark store restore"):
            await world.open(0)
        outcomes = await world.restore_all()
        assert all(one.plan is not None for one in outcomes)
        await world.check_everything()
        first.stop()
        await world.check_everything()
        first.start()


async def test_a_restore_of_one_container_lets_no_other_one_go_on_without_what_it_lost(tmp_path: Path) -> None:
    """The servers that lost a majority are on record for the restored one alone: the server that is left may lack what
    the others had acknowledged."""
    async with world_of_three(tmp_path) as (world, first, second, third):
        await world.write_everything()
        log = world.make_log(1)
        await log.initialize(100)
        history = WriterHistory(0)
        await write_frames(log, history, 10)
        first.kill()
        await write_frames(log, history, 10)
        await log.close()
        assert (history.error, len(history.acked)) == (None, 20)
        for server in (second, third):
            lose_the_data_of(server)
        for server in (first, second, third):
            server.start()
        (outcome,) = await world.maintenance().plan(CONTAINERS, [0])
        assert outcome.plan is not None
        await world.maintenance().carry_out(outcome.plan)
        log = world.make_log(1)
        with pytest.raises(DataCorruption, match="run pravega-spark store restore"):
            await log.initialize(200)
        await log.close()
        await world.restore_all()
        await world.check_everything()


async def test_a_restore_puts_nothing_into_a_group_that_the_settings_no_longer_name(
    world: World, tmp_path: Path
) -> None:
    """It drains, and its server goes once it is empty."""
    with running_redis(tmp_path / "old") as old:
        world.groups = (PersistenceGroup("drained", (old.address,)),)
        await world.register()
        world.groups = (PersistenceGroup("group", (world.server.address,)),)
        await world.write_everything()
        await asyncio.to_thread(world.restore, None)
        await world.restore_all()
        plogs = [old.call("SCARD", f"pravega:plog:index:{container_id}") for container_id in range(CONTAINERS)]
        assert plogs == [b":0"] * CONTAINERS
    await world.check_everything()


class FileKit(ContainerKit):
    """Containers whose logs are in local files."""

    def __init__(self, folder: FileLogFolder) -> None:
        super().__init__()
        self.write_to_tier2()
        self.folder = folder

    def make_log(self, container_id: int) -> DurableDataLog:
        return FileDataLog(container_id, self.folder, self.clock)


async def test_a_log_in_files_that_is_gone(world: World, tmp_path: Path) -> None:
    root = tmp_path / "tier1"
    folder = FileLogFolder(root, plog_bytes=4_000_000, reserve_bytes=0)
    await folder.start()
    kit = FileKit(folder)
    await kit.stored.put("cluster/containers-1/x", [b"containers\n"])
    container = await kit.open()
    await container.create_segment("s")
    await container.append("s", [content(0)])
    await in_tier2(container)
    await container.stop()
    await folder.stop()

    async def restore() -> ContainerOutcome:
        maintenance = StoreRestore(
            world.cpo,
            kit.stored,
            FileLogSource(root),
            FileLogRestart(kit.folder, kit.clock),
            kit.clock,
        )
        (outcome,) = await maintenance.plan(1)
        if outcome.plan is not None:
            await maintenance.carry_out(outcome.plan)
        return outcome

    kit.folder = FileLogFolder(root, plog_bytes=4_000_000, reserve_bytes=0)
    await kit.folder.start()
    assert "its log is there" in (await restore()).reason
    await kit.folder.stop()
    shutil.rmtree(root)
    kit.folder = FileLogFolder(root, plog_bytes=4_000_000, reserve_bytes=0)
    await kit.folder.start()
    with pytest.raises(DataCorruption, match="Tier 1 was lost"):
        await kit.open()
    assert (await restore()).plan is not None
    for _ in range(2):
        container = await kit.open()
        assert await read_all(container, "s") == content(0)
        await container.stop()
    await kit.folder.stop()
