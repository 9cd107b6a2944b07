"""Compares the Redis log on one server, on three, and on three of which one is dead, with raw XADD; JSON on stdout.

``python -m tests.bench.bench_plog [--seconds 3] [--folder DIR]``. The sides alternate, round by round, so that noise of
the machine hits all; what counts is their ratio. The three servers share this machine's cores and its disk, so the log
on three costs more here than on machines of their own. The log with a dead server has servers of its own, and lost one
under load before it is measured. Lines for people go to standard error. Not part of the test suite.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from pravega_common.errors import PravegaError
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.contracts.data_log import frame_bytes_max, frames_in_flight_max
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_connection import RedisConnection, Reply, encode_command
from segment_service.plog.redis_log import RedisDataLog
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.servers import RedisServer, running_redis

rounds = 5
bytes_kept_max = 256 * 1024 * 1024
"""Bytes after which each side frees what it wrote, so that memory does not decide."""
Write = Callable[[bytes], Awaitable[None]]


async def measure(write: Write, payload: bytes, seconds: float) -> tuple[float, list[float]]:
    """MB/s, and the latency of each write in seconds, with ``frames_in_flight_max`` writes in flight."""
    latencies: list[float] = []
    deadline_s = time.perf_counter() + seconds

    async def worker() -> None:
        while (start_s := time.perf_counter()) < deadline_s:
            await write(payload)
            latencies.append(time.perf_counter() - start_s)

    begin_s = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(frames_in_flight_max)))
    return len(latencies) * len(payload) / (time.perf_counter() - begin_s) / 1e6, latencies


class RawSide:
    """``XADD`` of the same payload, nothing else."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._written = 0

    async def write(self, payload: bytes) -> None:
        head = encode_command("XADD", "raw", "*", "d", b"")[: -len(b"$0\r\n\r\n")]
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._connection.send([head, b"$%d\r\n" % len(payload), payload, b"\r\n"], future.set_result)
        assert isinstance(await future, bytes)
        self._written += len(payload)

    async def free(self) -> None:
        if self._written > bytes_kept_max:
            await self._connection.call("UNLINK", "raw")
            self._written = 0


class LogSide:
    def __init__(self, log: RedisDataLog) -> None:
        self.failed_appends = 0
        self._log = log
        self._written = 0

    async def write(self, payload: bytes) -> None:
        try:
            await self._log.append([payload])
        except PravegaError:
            self.failed_appends += 1
            raise
        self._written += len(payload)

    async def free(self) -> None:
        if self._written > bytes_kept_max:
            await self._log.truncate(await self._log.append([b"checkpoint"]))
            self._written = 0


def summary(rates: list[float], latencies: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "mb_per_s": round(statistics.median(rates), 1),
        "frames_per_s": 0.0,
        "p50_ms": round(cuts[49] * 1e3, 3),
        "p99_ms": round(cuts[98] * 1e3, 3),
    }


async def open_log(addresses: Sequence[str], prefix: str) -> RedisDataLog:
    cpo = InMemoryCPO()
    await cpo.put_persistence_cluster(PersistenceCluster("bench", (PersistenceGroup("g0", tuple(addresses)),)))
    log = RedisDataLog(1, "bench", cpo, "bench", PlogSettings(prefix=prefix))
    await log.initialize()
    return log


async def lose_one(side: LogSide, servers: Sequence[RedisServer], payload: bytes) -> float:
    """Kill a server under load; the longest append in milliseconds, that of the kill among them."""
    asyncio.get_running_loop().call_later(0.1, servers[-1].kill)
    _, latencies = await measure(side.write, payload, 0.5)
    return max(latencies) * 1e3


async def compare(
    servers: Sequence[RedisServer], maimed: Sequence[RedisServer], size: int, seconds: float
) -> dict[str, Any]:
    addresses = [server.address for server in servers]
    log = await open_log(addresses[:1], f"bench{size}:")
    log_of_three = await open_log(addresses, f"bench{size}-three:")
    log_of_two = await open_log([server.address for server in maimed], f"bench{size}-one-dead:")
    connection = await RedisConnection.open(addresses[0], connect_timeout_s=5.0, reply_timeout_s=30.0)
    payload = os.urandom(size)
    logs = {
        "redis_log": LogSide(log),
        "redis_log_on_three": LogSide(log_of_three),
        "redis_log_one_dead": LogSide(log_of_two),
    }
    sides: dict[str, RawSide | LogSide] = {"raw_xadd": RawSide(connection), **logs}
    slowest_ms = await lose_one(logs["redis_log_one_dead"], maimed, payload)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    latencies: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            rate, times = await measure(side.write, payload, seconds / rounds)
            rates[name].append(rate)
            latencies[name] += times
            await side.free()
    result: dict[str, Any] = {"frame_bytes": size, "in_flight": frames_in_flight_max}
    for name in sides:
        result[name] = summary(rates[name], latencies[name])
        result[name]["frames_per_s"] = round(result[name]["mb_per_s"] * 1e6 / size, 1)
    for name, side in logs.items():
        result[name]["failed_appends"] = side.failed_appends
    ratios = [ours / raw for ours, raw in zip(rates["redis_log"], rates["raw_xadd"], strict=True)]
    result["ratio"] = round(statistics.median(ratios), 3)
    of_three = [three / one for three, one in zip(rates["redis_log_on_three"], rates["redis_log"], strict=True)]
    result["ratio_three_to_one"] = round(statistics.median(of_three), 3)
    one_dead, healthy = result["redis_log_one_dead"], result["redis_log_on_three"]
    result["p99_one_dead_to_healthy"] = round(one_dead["p99_ms"] / healthy["p99_ms"], 2)
    result["slowest_append_at_the_kill_ms"] = round(slowest_ms, 1)
    connection.abort()
    for one in (log, log_of_three, log_of_two):
        await one.close()
    maimed[-1].start()
    return result


def describe(result: dict[str, Any]) -> str:
    lines = [f"{result['frame_bytes']} B, {result['in_flight']} in flight"]
    for name in ("raw_xadd", "redis_log", "redis_log_on_three", "redis_log_one_dead"):
        side = result[name]
        lines.append(f"  {name:20} {side['mb_per_s']:7} MB/s   p50 {side['p50_ms']:8} ms   p99 {side['p99_ms']:8} ms")
    failed = sum(result[name]["failed_appends"] for name in result if name.startswith("redis_log"))
    lines.append(
        f"  log to raw {result['ratio']}, three to one {result['ratio_three_to_one']}, p99 with one dead to "
        f"healthy {result['p99_one_dead_to_healthy']}, slowest append at the kill "
        f"{result['slowest_append_at_the_kill_ms']} ms, failed {failed}"
    )
    return "\n".join(lines)


async def main(folder: Path, seconds: float) -> None:
    results = []
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running_redis(folder / f"redis-{number}")) for number in range(6)]
        for size in (frame_bytes_max, 64 * 1024, 1024):
            results.append(await compare(servers[:3], servers[3:], size, seconds))
            print(describe(results[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "plog", "results": results}, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="per side and frame size")
    parser.add_argument("--folder", type=Path, default=None, help="where Redis keeps its files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own_folder:
        uvloop.run(main(options.folder or Path(own_folder), options.seconds))
