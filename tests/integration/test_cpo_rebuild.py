"""The CPO loses its data: containers are refused, the rebuild registers them again, and everything is there."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, FailedError, Unavailable
from pravega_common.runtime import failpoints
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.cluster.cpo import PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND
from segment_service.contracts.data_log import DurableDataLog
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.maintenance import cpo_rebuild
from segment_service.maintenance.cpo_rebuild import ClusterPlan, CPORebuild
from segment_service.plog.cluster_registration import ask_redis, register_groups
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.plog.redis_log import RedisDataLog
from segment_service.store import check_container_count
from tests.support.containers import read_all
from tests.support.redis_kit import SETTINGS, RedisKit
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer, running_redis

CONTAINERS = 3
LEASE_MS = 50
STEPS = [
    cpo_rebuild.IDENTITIES_SET,
    cpo_rebuild.CLUSTER_REGISTERED,
    cpo_rebuild.EPOCH_RAISED,
    cpo_rebuild.CONTAINER_REGISTERED,
]


def content(container_id: int) -> bytes:
    return b"".join(b"%d-%06d" % (container_id, number) * 2_000 for number in range(300))


class World(RedisKit):
    """Containers whose plogs are in two groups, and whose CPO is a Redis of its own."""

    def __init__(self, plog_servers: list[RedisServer], oracle: RedisServer, folder: Path) -> None:
        super().__init__(plog_servers[0], folder, CheckpointPolicy(operations_max=100, bytes_max=500_000))
        self.oracle = oracle
        self.cpo = RedisCPO(oracle.address)
        self.groups = [PersistenceGroup(f"g{n}", (server.address,)) for n, server in enumerate(plog_servers)]
        self.choice = ChoiceByUse(self.groups)

    async def register(self) -> None:
        await register_groups(self.cpo, "test", self.groups, ask_redis)
        await check_container_count(self.cpo, self.tier2, CONTAINERS, "incarnation")

    def make_log(self, container_id: int) -> DurableDataLog:
        return RedisDataLog(container_id, "store", self.cpo, "test", SETTINGS, choice=self.choice)

    async def write_everything(self) -> None:
        for container_id in range(CONTAINERS - 1):  # the last one never ran
            for _ in range(2):
                container = await self.open(container_id)
                await container.stop()
            container = await self.open(container_id)
            await container.create_segment("s")
            data = content(container_id)
            for start in range(0, len(data), 20_000):
                await container.append("s", [data[start : start + 20_000]])
            await container.stop()

    async def lose_cpo(self) -> None:
        await self.cpo.close()  # its connections; it opens new ones
        self.oracle.kill()
        shutil.rmtree(self.oracle.folder)
        self.oracle.folder.mkdir()
        self.oracle.start()

    def rebuild(self) -> CPORebuild:
        return CPORebuild(self.cpo, self.tier2, "test", self.groups, SETTINGS, self.clock, LEASE_MS)

    async def plan(self, containers: int = CONTAINERS) -> ClusterPlan:
        return await self.rebuild().plan(containers)

    async def carry_out(self, *, replace: bool = False) -> ClusterPlan:
        plan = await self.plan()
        await self.rebuild().carry_out(plan, ask_redis, replace=replace)
        return plan

    async def check_everything(self) -> None:
        for container_id in range(CONTAINERS):
            container = await self.open(container_id)
            if container_id == CONTAINERS - 1:
                await container.create_segment("s")
            before = content(container_id) if container_id < CONTAINERS - 1 else b""
            assert await read_all(container, "s") == before
            await container.append("s", [b"and on"])
            assert await read_all(container, "s") == before + b"and on"
            await container.stop()


@pytest.fixture
async def world(own_redis: RedisServer, tmp_path: Path) -> AsyncIterator[World]:
    with running_redis(tmp_path / "second") as second, running_redis(tmp_path / "oracle") as oracle:
        world = World([own_redis, second], oracle, tmp_path / "tier2")
        await world.start()
        yield world
        await world.close()


async def test_a_cpo_that_lost_its_data_is_rebuilt_from_the_servers(world: World) -> None:
    await world.write_everything()
    epochs = [await world.cpo.current_epoch(container_id) for container_id in range(CONTAINERS)]
    plogs = [await world.cpo.get_metadata_plog(container_id) for container_id in range(CONTAINERS)]
    identities = [await world.cpo.get_constant(f"plog-server/test/g{n}/0") for n in range(2)]
    await world.lose_cpo()
    await world.register()
    for container_id in range(CONTAINERS - 1):
        with pytest.raises(DataCorruption, match="the CPO lost its data"):
            await world.open(container_id)
    plan = await world.carry_out()
    assert plan.warnings == ()
    assert [await world.cpo.get_metadata_plog(container_id) for container_id in range(CONTAINERS)] == plogs
    assert [await world.cpo.get_constant(f"plog-server/test/g{n}/0") for n in range(2)] == identities
    for container_id, epoch in enumerate(epochs):
        assert await world.cpo.current_epoch(container_id) >= epoch
    await world.check_everything()


async def test_a_plan_changes_nothing(world: World) -> None:
    await world.write_everything()
    await world.lose_cpo()
    keys = world.oracle.call("DBSIZE")
    assert len((await world.plan()).containers) == CONTAINERS
    assert world.oracle.call("DBSIZE") == keys == b":0"


@pytest.mark.parametrize("step", STEPS)
async def test_an_interrupted_rebuild_is_made_again(world: World, step: str) -> None:
    await world.write_everything()
    await world.lose_cpo()
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(FailedError):
        await world.carry_out()
    failpoints.disarm_all()
    await world.carry_out()
    await world.check_everything()


async def test_a_cpo_with_other_registrations_is_left_alone(world: World) -> None:
    await world.write_everything()
    before = [await world.cpo.get_metadata_plog(container_id) for container_id in range(CONTAINERS)]
    await world.carry_out()  # finds all as it is
    epoch = await world.cpo.take_epoch(0, "somebody")
    await world.cpo.put_metadata_plog(0, epoch, before[0], "test/g0/other")
    with pytest.raises(ConfigurationError, match=r"still has registrations: metadata plog test/g0/other .*--replace"):
        await world.carry_out()
    await world.carry_out(replace=True)
    assert [await world.cpo.get_metadata_plog(container_id) for container_id in range(CONTAINERS)] == before
    await world.check_everything()


async def test_a_running_store_is_seen(world: World) -> None:
    await world.write_everything()
    await world.lose_cpo()
    await world.cpo.renew_lease(SEGMENT_STORE_KIND, "store-7", {}, 60_000)
    with pytest.raises(ConfigurationError, match="running: store-7"):
        await world.plan()
    await world.cpo.release_lease(SEGMENT_STORE_KIND, "store-7")

    class StoreWakesUp(SystemClock):
        async def sleep(self, seconds: float) -> None:
            await world.cpo.renew_lease(SEGMENT_STORE_KIND, "store-8", {}, 60_000)

    world.clock = StoreWakesUp()
    with pytest.raises(ConfigurationError, match="running: store-8"):
        await world.plan()


@pytest.mark.parametrize("has_lease", [True, False])
async def test_a_store_that_starts_behind_the_plan_loses_nothing(world: World, has_lease: bool) -> None:
    """Its owner registered a metadata plog that the plan does not know: replaced, what it acknowledged was lost."""
    await world.write_everything()
    plan = await world.plan()
    container = await world.open(0)
    await container.append("s", [b"late"])
    await container.stop()
    if has_lease:
        await world.cpo.renew_lease(SEGMENT_STORE_KIND, "store-9", {}, 60_000)
    with pytest.raises(ConfigurationError, match="stop all stores"):
        await world.rebuild().carry_out(plan, ask_redis, replace=True)
    await world.cpo.release_lease(SEGMENT_STORE_KIND, "store-9")
    await world.carry_out(replace=True)
    container = await world.open(0)
    assert await read_all(container, "s") == content(0) + b"late"
    await container.stop()


async def test_what_does_not_fit_is_refused_before_anything_is_registered(world: World) -> None:
    await world.write_everything()
    await world.lose_cpo()
    with pytest.raises(ConfigurationError, match="Tier 2 was made with 3 containers"):
        await world.plan(containers=2)
    groups = world.groups
    world.groups = groups[:1]
    with pytest.raises(ConfigurationError, match=r"group g1: set cluster.name .* tier1.groups"):
        await world.plan()
    world.groups = groups
    world.server.stop()
    with pytest.raises(Unavailable, match="group g0: 0 of 1 servers are there"):
        await world.plan()
    shutil.rmtree(world.server.folder)
    world.server.folder.mkdir()
    world.server.start()
    with pytest.raises(DataCorruption, match=r"its log was lost|names plogs that no server has"):
        await world.plan()
    assert world.oracle.call("DBSIZE") == b":0"


async def test_the_command_rebuilds(world: World, tmp_path: Path) -> None:
    await world.write_everything()
    await world.lose_cpo()
    settings = tmp_path / "store.toml"
    groups = ", ".join(f'{group.name} = ["{group.servers[0]}"]' for group in world.groups)
    settings.write_text(
        f'[store]\ncontainers = {CONTAINERS}\n[cluster]\nname = "test"\ncpo = "{world.oracle.address}"\n'
        f'lease_ms = 1000\n[tier1]\ngroups = {{ {groups} }}\n[tier2]\nurl = "file://{tmp_path}/tier2"\n'
    )

    async def run(*arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pravega_spark", "cluster", "rebuild-cpo", "--config", str(settings), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    status, output = await run("--dry-run")
    assert (status, world.oracle.call("DBSIZE")) == (0, b":0"), output
    assert "container 0: epoch 3" in output and "container 2: never ran" in output and "dry run" in output
    status, output = await run()
    assert status == 0 and "start the stores" in output, output
    await world.check_everything()
    await world.cpo.renew_lease(SEGMENT_STORE_KIND, "store", {}, 60_000)
    status, output = await run()
    assert (status, "stores are running: store" in output, "Traceback" in output) == (1, True, False), output
