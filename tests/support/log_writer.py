"""Owns container 1's log on a real Redis, in a process that writes until it is done or a failpoint kills it.

``python -m tests.support.log_writer REDIS[,REDIS,REDIS] PREFIX WRITER COUNT``: one line per acknowledged frame on
standard output. The CPO is on the first server. On its way it has its connections cut by the servers once and truncates
once.
"""

from __future__ import annotations

import asyncio
import sys

from pravega_common.runtime.failpoints import arm_from_environment
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_connection import RedisConnection
from segment_service.plog.redis_log import RedisDataLog
from tests.support.log_history import numbered_frame

frame_bytes = 100_000
truncate_after = 30
cut_after = 20


def settings(prefix: str) -> PlogSettings:
    return PlogSettings(block_bytes=1_500_000, prefix=prefix, heal_time_max_s=10.0)


async def cut_connections(address: str) -> None:
    connection = await RedisConnection.open(address, connect_timeout_s=5.0, reply_timeout_s=5.0)
    await connection.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    connection.abort()


async def main(addresses: tuple[str, ...], prefix: str, writer: int, count: int) -> None:
    cpo = RedisCPO(addresses[0], prefix=f"{prefix}cpo:")
    await cpo.put_persistence_cluster(PersistenceCluster("test", (PersistenceGroup("g0", addresses),)))
    log = RedisDataLog(1, f"writer-{writer}", cpo, "test", settings(prefix))
    await log.initialize()
    print("begun", flush=True)
    acked: list[LogAddress] = []
    for number in range(0, count, 2):
        if number == cut_after:
            for address in addresses:
                await cut_connections(address)
        frames = [numbered_frame(writer, number + more, frame_bytes) for more in range(2)]
        for future in [log.append([frame]) for frame in frames]:
            where = await future
            print(f"acked {len(acked)} {where.plog_number} {where.offset}", flush=True)
            acked.append(where)
        if number == truncate_after:
            print("truncating 25", flush=True)
            await log.truncate(acked[25])
    await log.close()
    await cpo.close()
    print("done", flush=True)


if __name__ == "__main__":
    arm_from_environment()
    asyncio.run(main(tuple(sys.argv[1].split(",")), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
