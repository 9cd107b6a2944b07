"""Kills a writer process between every two durable steps of the Redis log; the next owner must find everything."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import segment_service.plog.redis_log  # noqa: F401  (registers the failpoints)
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.redis_cpo import RedisCPO
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.plog.redis_log import RedisDataLog
from tests.support.log_history import WriterHistory, check_history, frame_number, read_entries, write_frames
from tests.support.log_writer import settings
from tests.support.server_fixtures import redis_group as redis_group
from tests.support.server_fixtures import redis_server as redis_server
from tests.support.servers import RedisServer

_numbers = itertools.count()
_root = Path(__file__).resolve().parents[2]
_names = sorted(name for name in failpoints.KNOWN if name.startswith("plog.") and not name.startswith("plog.repair."))
"""Without those of repairs, which are stopped in ``test_plog_repair.py``."""
_hits = {"plog.metadata.recorded": 3, "plog.stream.spare_created": 2, "plog.stream.switch_sealed": 2}


Servers = tuple[RedisServer, ...]


def addresses(servers: Servers) -> tuple[str, ...]:
    return tuple(server.address for server in servers)


def run_writer(servers: Servers, prefix: str, writer: int, count: int, armed: str) -> tuple[WriterHistory, int, int]:
    """Its history, the first frame that must still be there, and its exit status."""
    command = [
        sys.executable,
        "-m",
        "tests.support.log_writer",
        ",".join(addresses(servers)),
        prefix,
        str(writer),
        str(count),
    ]
    environment = {**os.environ, **failpoints.environment_of(armed)}
    done = subprocess.run(command, cwd=_root, env=environment, capture_output=True, text=True, timeout=60, check=False)
    history, truncating = WriterHistory(writer, sent=count), 0
    for line in done.stdout.splitlines():
        word, *numbers = line.split()
        if word == "acked":
            number, plog, offset = (int(text) for text in numbers)
            history.acked[number] = LogAddress(plog, offset)
        elif word == "truncating":
            truncating = int(numbers[0])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return history, truncating, done.returncode


def without_truncation(entries: list[LogEntry], histories: list[WriterHistory]) -> list[LogEntry]:
    """Check what a truncation left of the first history, and hand back the rest."""
    first_writer, first = frame_number(entries[0].payload)
    kept = [history for history in histories if history.writer >= first_writer]
    expected = {number: address for number, address in kept[0].acked.items() if number >= first}
    found = {
        frame_number(entry.payload)[1]: entry.address
        for entry in entries
        if frame_number(entry.payload)[0] == first_writer
    }
    assert list(found) == list(range(first, first + len(found)))
    assert expected.items() <= found.items()
    rest = [entry for entry in entries if frame_number(entry.payload)[0] != first_writer]
    check_history(rest, kept[1:])
    return rest


@pytest.mark.parametrize("name", [name for name in _names if not name.startswith("plog.group.")])
async def test_killed_at(name: str, redis_server: RedisServer) -> None:
    await kill_and_recover(name, (redis_server,))


@pytest.mark.parametrize("name", [name for name in _names if name != "plog.group.copy_completed"])  # by chance only
async def test_killed_on_three_servers(name: str, redis_group: Servers) -> None:
    await kill_and_recover(name, redis_group)


async def kill_and_recover(name: str, servers: Servers) -> None:
    prefix = f"kill{next(_numbers)}:"
    before, _, status = run_writer(servers, prefix, 0, 8, "")
    assert (status, len(before.acked)) == (0, 8)
    killed, truncating, status = run_writer(servers, prefix, 1, 60, f"{name}=kill:{_hits.get(name, 1)}")
    assert status == -signal.SIGKILL, f"failpoint {name} was not reached"

    cpo = RedisCPO(servers[0].address, prefix=f"{prefix}cpo:")
    log = RedisDataLog(1, "recoverer", cpo, "test", settings(prefix))
    await log.initialize()
    entries = await read_entries(log)
    if frame_number(entries[0].payload)[0] == 0:
        check_history(entries, [before, killed])
    else:
        assert truncating == frame_number(entries[0].payload)[1] == 25
        without_truncation(entries, [before, killed])
    after = WriterHistory(2)
    await write_frames(log, after, 30)
    assert after.error is None
    await log.close()

    again = RedisDataLog(1, "recoverer again", cpo, "test", settings(prefix))
    await again.initialize()
    all_entries = await read_entries(again)
    assert [entry.address for entry in all_entries[: len(entries)]] == [entry.address for entry in entries]
    check_history(all_entries[len(entries) :], [after])
    await again.close()
    await cpo.close()


def test_every_step_has_its_failpoint() -> None:
    assert len(_names) >= 17
