"""A real Redis takes ``conf/redis.conf``, and a log works on it without ``allow_unsafe_redis``."""

from __future__ import annotations

import re
from pathlib import Path

from pravega_common.services.cluster.redis_audit import memory_of
from pravega_spark.standalone.redis_and_minio import RedisChild
from pravega_spark.standalone.supervisor import Supervisor
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.log_history import WriterHistory, check_history, recover, shared_cpo, write_frames
from tests.support.servers import RedisServer

CONF = Path(__file__).resolve().parents[2] / "conf" / "redis.conf"


class _FromFile(RedisServer):
    """Started with the file, at a port and in a folder of this machine."""

    def command(self) -> list[str]:
        text = re.sub(r"(?m)^port .*$", f"port {self.port}", CONF.read_text())
        text = re.sub(r"(?m)^dir .*$", f'dir "{self.folder}"', text)
        (self.folder / "redis.conf").write_text(text)
        return [super().command()[0], str(self.folder / "redis.conf")]


async def test_a_log_on_a_server_with_the_file(tmp_path: Path) -> None:
    server = _FromFile(tmp_path / "redis")
    server.start()
    try:
        assert memory_of(server.call("INFO", "memory").decode()).limit == 8 * 2**30
        cpo = await shared_cpo(server.address)
        log = RedisDataLog(1, "store", cpo, "test", PlogSettings(block_bytes=1_500_000))
        await log.initialize()
        history = WriterHistory(0)
        await write_frames(log, history, 40)
        assert (history.error, len(history.acked)) == (None, 40)
        server.kill()
        server.start()
        following, entries = await recover(cpo, PlogSettings(block_bytes=1_500_000))
        check_history(entries, [history])
        await log.close()
        await following.close()
    finally:
        server.kill()


async def test_a_redis_of_the_standalone_runs_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "q\"\\n\t'ä"
    folder.mkdir()
    child = RedisChild("redis", folder, folder / "r.sock", 64 << 20, 64 << 20)
    supervisor = Supervisor([[child.spec(tmp_path, tmp_path)]], lambda _: None)
    await supervisor.start()
    try:
        assert child.socket.is_socket()
        assert list(folder.glob("appendonly*"))
    finally:
        await supervisor.stop()
