"""Runs logs, the control plane oracle and whole services on a Redis that wants TLS and a login."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pravega_common.errors import ConfigurationError, Unavailable
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.cluster.cpo import PersistenceGroup
from pravega_common.services.cluster.factory import make_cpo
from pravega_common.services.cluster.redis_cpo import RedisCPO
from pravega_common.services.ports import free_ports
from pravega_common.services.redis_access import RedisAccess
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from segment_service.plog.cluster_registration import ask_redis, asking_with, register_groups
from segment_service.plog.plog_client import PlogClient, PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from tests.support.eventually import eventually_blocking
from tests.support.locked_redis import PASSWORD, LockedRedis, running_locked_redis
from tests.support.log_history import WriterHistory, check_history, read_entries, write_frames

start_time_max_s = 60.0


@pytest.fixture(scope="module")
def locked_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedRedis]:
    with running_locked_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


async def test_the_oracle_and_a_log_go_through(locked_redis: LockedRedis) -> None:
    access = locked_redis.section.access()
    cpo = make_cpo(locked_redis.url, allow_unsafe_redis=False, clock=SystemClock(), access=access)
    assert await cpo.set_once("containers", "1") == "1"
    facts = await ask_redis(locked_redis.url, access)
    assert facts.run_id
    await cpo.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"password": "wrong"}, "refused the login of user 'pravega' .WRONGPASS.: check redis.username"),
        ({"username": "", "password": ""}, "NOAUTH.*set redis.username and redis.password_file"),
        ({"ca": ""}, "certificate is not trusted .*check redis.ca_file"),
    ],
)
async def test_what_is_wrong_is_said_without_the_password(
    locked_redis: LockedRedis, change: dict[str, str], said: str
) -> None:
    section = locked_redis.section
    update: dict[str, Any] = {"ca_file": "" if "ca" in change else section.ca_file}
    if "password" in change:
        update |= {"password_file": "", "password": change["password"], "username": change.get("username", "pravega")}
    access = type(section)(**{**section.model_dump(exclude={"password"}), **update}).access()
    with pytest.raises(Unavailable, match=said) as of_log:
        await ask_redis(locked_redis.url, access)
    cpo = make_cpo(locked_redis.url, allow_unsafe_redis=False, clock=SystemClock(), access=access)
    with pytest.raises(Unavailable) as of_cpo:
        await cpo.get_constant("containers")
    await cpo.close()
    for error in (of_log.value, of_cpo.value):
        assert PASSWORD not in f"{error!r} {error.__cause__!r}"


def test_the_access_shows_no_password(locked_redis: LockedRedis) -> None:
    access = locked_redis.section.access()
    assert PASSWORD in access.credentials
    assert PASSWORD not in f"{access} {access!r} {locked_redis.section!r} {locked_redis.section.model_dump()}"
    assert RedisAccess().credentials == ()


async def test_a_default_user_without_permissions_is_refused(tmp_path: Path) -> None:
    """A restart would skip every transaction of the append-only file, and so lose what was acknowledged."""
    with running_locked_redis(tmp_path, "off") as redis:
        access = redis.section.access()
        cpo = RedisCPO(redis.url, access=access)
        with pytest.raises(ConfigurationError, match="default user lacks permissions"):
            await cpo.get_constant("containers")
        await cpo.close()
        client = PlogClient(redis.url, PlogSettings(access=access), no_identity)
        with pytest.raises(ConfigurationError, match="default user lacks permissions"):
            await client.connections.control()


async def no_identity(_shown: str | None) -> str | None:
    return None


class Services:
    """A store and a controller as processes of their own, with settings files."""

    def __init__(self, folder: Path, redis: LockedRedis) -> None:
        self.folder = folder
        self.grpc, self.rest, self.wire, self.metrics = free_ports("127.0.0.1", 4)
        login = {"username": "pravega", "password_file": str(redis.password_file), "ca_file": str(redis.ca_file)}
        cluster = {"cpo": redis.url}
        store = {"listen": f"127.0.0.1:{self.wire}", "containers": 1, "metrics": f"127.0.0.1:{self.metrics}"}
        controller = {"listen": f"127.0.0.1:{self.grpc}", "rest": f"127.0.0.1:{self.rest}", "containers": 1}
        self._write(
            "segment_service",
            store=store,
            cluster=cluster,
            redis=login,
            tier1={"servers": [redis.url]},
            tier2={"url": f"file://{folder}/tier2"},
        )
        self._write("controller_service", controller=controller, cluster=cluster, redis=login)
        (folder / "tier2").mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []

    def _write(self, name: str, **sections: dict[str, Any]) -> None:
        lines = [
            line
            for section, values in sections.items()
            for line in (f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()))
        ]
        (self.folder / f"{name}.toml").write_text("\n".join(lines))

    def start(self) -> None:
        for name in ("segment_service", "controller_service"):
            with (self.folder / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", name, "--config", str(self.folder / f"{name}.toml")]
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)


def test_services_run_and_no_password_is_seen(tmp_path: Path, locked_redis: LockedRedis) -> None:
    services = Services(tmp_path, locked_redis)
    services.start()
    try:
        with StreamClient(f"tcp://127.0.0.1:{services.grpc}") as client:

            def is_up() -> bool:
                assert all(process.poll() is None for process in services.processes), services.logs()
                return "controller serves" in services.logs()

            eventually_blocking(is_up, "services", start_time_max_s)
            client.controller.create_scope("s")
            client.controller.create_stream("s", "t")
            with EventWriter(client, "s", "t") as writer:
                writer.write(b"event", "key")
            assert client.tail_cut("s", "t") == {0: 8 + len(b"event")}
        arguments = [Path(f"/proc/{process.pid}/cmdline").read_text() for process in services.processes]
        variables = [Path(f"/proc/{process.pid}/environ").read_text() for process in services.processes]
    finally:
        services.stop()
    for text in (services.logs(), *arguments, *variables):
        assert PASSWORD not in text
    assert str(locked_redis.password_file) in services.logs()


async def test_a_log_is_written_and_recovered(locked_redis: LockedRedis) -> None:
    access = locked_redis.section.access()
    cpo = RedisCPO(locked_redis.url, prefix="pravega:log-test:", access=access)
    groups = (PersistenceGroup("group-0", (locked_redis.url,)),)
    await register_groups(cpo, "log-test", groups, asking_with(access))
    settings = PlogSettings(block_bytes=1_500_000, access=access)
    log = RedisDataLog(1, "store", cpo, "log-test", settings)
    await log.initialize()
    history = WriterHistory(0)
    await write_frames(log, history, 40)
    assert (history.error, len(history.acked)) == (None, 40)
    locked_redis.kill()
    locked_redis.start()
    following = RedisDataLog(1, "next", cpo, "log-test", settings)
    await following.initialize()
    check_history(await read_entries(following), [history])
    await log.close()
    await following.close()
    await cpo.close()
