"""``store doctor`` on a real Redis and a directory: sound while a container works, and what it says of damage."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.services.cluster.cpo import PersistenceGroup
from segment_service.container.segment_container import SegmentContainer
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.log_reading import summarize
from segment_service.maintenance.redis_log_reading import RedisLogSource
from tests.support.redis_kit import SETTINGS, RedisKit
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer

block = b"%07d," * 2_000
rounds = 60


@pytest.fixture
async def kit(own_redis: RedisServer, tmp_path: Path) -> AsyncIterator[RedisKit]:
    kit = RedisKit(own_redis, tmp_path / "tier2", CheckpointPolicy(operations_max=50, bytes_max=1_000_000))
    kit.background = True
    await kit.start()
    yield kit
    await kit.close()


def source(kit: RedisKit) -> RedisLogSource:
    return RedisLogSource((PersistenceGroup("group", (kit.server.address,)),), 1, SETTINGS)


async def work(container: SegmentContainer) -> None:
    """Several plogs of appends, of which most are truncated away; merges and deletions."""
    for number in range(rounds):
        await asyncio.gather(*(container.append("s", [block[:15_000] * 8]) for _ in range(2)))
        await container.create_segment(f"transaction-{number}")
        await container.append(f"transaction-{number}", [block])
        if number % 2:
            await container.merge("s", f"transaction-{number}")
        else:
            await container.delete(f"transaction-{number}")


async def test_a_container_at_work_is_sound(kit: RedisKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    working = asyncio.ensure_future(work(container))
    looks = 0
    while not working.done():
        looks += 1
        report = await StoreDoctor(kit.chunks, source(kit), kit.clock).examine_container(0, deep=bool(looks % 2))
        assert report.findings == []
        assert report.log is not None and report.log.last_operation >= report.high_water
    await working
    summary = await summarize(source(kit), 0)
    assert summary.last_operation == container.durable_log.last_durable and summary.epoch == container.epoch == 1
    assert summary.next_segment_id == container.metadata.next_segment_id
    await container.append("s", [b"not fenced"])
    await container.stop()
    container = await kit.open()
    assert (await container.get_info("s")).length > 0
    summary = await summarize(source(kit), 0)
    assert (summary.epoch, summary.identity) == (2, container.metadata.identity)
    await container.stop()


async def run(kit: RedisKit, tmp_path: Path, *arguments: str) -> tuple[int, str]:
    settings = tmp_path / "store.toml"
    settings.write_text(
        f'[store]\ncontainers = 1\n[cluster]\nname = "test"\ncpo = "{kit.server.address}"\n'
        f'[tier1]\ngroups = {{ group = ["{kit.server.address}"] }}\n[tier2]\nurl = "file://{tmp_path}/tier2"\n'
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pravega_spark", "store", "doctor", "--config", str(settings), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, said = await process.communicate()
    assert "Traceback" not in said.decode(), said.decode()
    return process.returncode or 0, output.decode()


async def test_the_command_examines(kit: RedisKit, tmp_path: Path) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await work(container)
    await container.table.flush()
    status, output = await run(kit, tmp_path)
    assert status == 0 and output.endswith("sound\n"), output
    assert container.metadata.identity.hex() in output
    await container.stop()
    for chunk in (path for path in (tmp_path / "tier2" / "c00000" / "d").rglob("*") if path.is_file()):
        data = bytearray(chunk.read_bytes())
        data[5] ^= 1
        chunk.write_bytes(data)
    assert (await run(kit, tmp_path))[0] == 0
    status, output = await run(kit, tmp_path, "--deep", "--json")
    (found,) = json.loads(output)["containers"]
    assert (status, [one["kind"] for one in found["findings"]]) == (1, ["chunk"]), output
    assert found["findings"][0]["segment"] == "s" and "block 0" in found["findings"][0]["text"]
    kit.server.stop()
    status, output = await run(kit, tmp_path)
    assert status == 1 and "server: persistence group group: 1 of 1 servers do not answer" in output, output
    assert (await run(kit, tmp_path, "--tier2-only"))[0] == 0
    kit.server.start()


async def test_a_lost_and_an_older_log_are_found(kit: RedisKit, tmp_path: Path) -> None:
    container = await kit.open()
    await container.create_segment("s")
    await container.stop()
    await asyncio.to_thread(kit.back_up, tmp_path / "backup")
    container = await kit.open()
    await work(container)
    await container.stop()
    await asyncio.to_thread(kit.restore, tmp_path / "backup")
    status, output = await run(kit, tmp_path)
    assert status == 1 and "an older copy of Tier 1 came back" in output, output
    await asyncio.to_thread(kit.restore, None)
    status, output = await run(kit, tmp_path)
    assert status == 1 and "Tier 1 was lost: the log is empty" in output, output
    assert kit.server.call("DBSIZE") == b":0"
