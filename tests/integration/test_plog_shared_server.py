"""Two clusters, each with a control plane oracle of its own, name the same Redis server by mistake."""

from __future__ import annotations

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_history import WriterHistory, check_history, close_all, read_entries, write_frames
from tests.support.server_fixtures import own_redis as own_redis
from tests.support.servers import RedisServer

SETTINGS = PlogSettings(block_bytes=1_500_000, heal_time_max_s=10.0, reply_timeout_s=1.0)


class ClusterOfOne:
    """A cluster with one container."""

    def __init__(self, name: str, server: RedisServer) -> None:
        self.name = name
        self.cpo = InMemoryCPO()
        self._group = PersistenceGroup("g0", (server.address,))

    async def owner(self) -> RedisDataLog:
        await self.cpo.put_persistence_cluster(PersistenceCluster(self.name, (self._group,)))
        log = RedisDataLog(1, "store", self.cpo, self.name, SETTINGS)
        await log.initialize()
        return log


async def test_a_server_with_data_of_another_cluster_is_refused(own_redis: RedisServer) -> None:
    first, history = await ClusterOfOne("first", own_redis).owner(), WriterHistory(0)
    await write_frames(first, history, 5)
    with pytest.raises(ConfigurationError, match=r"data of container 1 of cluster first .* not of cluster second"):
        await ClusterOfOne("second", own_redis).owner()
    await first.close()


async def test_a_cluster_deletes_nothing_of_another(own_redis: RedisServer) -> None:
    """Both were new, so neither could see the other's data."""
    clusters = [ClusterOfOne("first", own_redis), ClusterOfOne("second", own_redis)]
    logs = [await cluster.owner() for cluster in clusters]
    histories = [WriterHistory(number) for number in range(len(clusters))]
    for log, history in zip(logs, histories, strict=True):
        await write_frames(log, history, 20)
    for _ in range(2):
        for number, cluster in enumerate(clusters):
            await logs[number].close()
            logs[number] = await cluster.owner()
            check_history(await read_entries(logs[number]), [histories[number]])
    await close_all(*logs)
