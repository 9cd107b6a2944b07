"""Describes the child processes of Redis (Tier 1 and the CPO) and MinIO (Tier 2)."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from pravega_common.errors import ConfigurationError
from pravega_common.services.cluster.redis_audit import aof_rewrite_min_size_bytes_min
from pravega_common.services.private_files import replace_file
from pravega_spark.standalone.binaries import find_minio, find_redis
from pravega_spark.standalone.data_folder import DataFolder
from pravega_spark.standalone.options import StandaloneOptions, redis_memory_mib_min, redis_names
from pravega_spark.standalone.supervisor import ChildSpec

probe_time_max_s: Final = 1.0
disk_bytes_min: Final = 2 * 1024 * 1024 * 1024
"""Redis rewrites its append-only file above 1 GiB and four times what is live: the old and the new one must fit."""
aof_rewrite_bytes_max: Final = 4 * 1024 * 1024 * 1024
"""Size of the append-only file from which on Redis rewrites it (``auto-aof-rewrite-min-size``) if the disk has room. A
rewrite slows writes down by a quarter while it lasts; a file of 4 GiB is loaded in some 6 s."""
aof_disk_share: Final = 0.25
"""Part of the free disk that is that size: the file grows beyond it, and a rewrite puts another one beside it."""
redis_allocator: Final = "dirty_decay_ms:60000,muzzy_decay_ms:-1"
"""Redis keeps memory that it freed for a minute (jemalloc; 10 s by itself); then the system may take it when it is
short of memory. Plogs are freed all the time, and the next one would take fresh pages, of which the system clears each.
With any other limit than -1 for the latter, jemalloc gives pieces of 8 MiB and more back at once, whatever the first
says: neighbours that are free make one piece."""
redis_allocator_variables: Final = ("JE_MALLOC_CONF", "MALLOC_CONF")
"""Where jemalloc looks: the one that Redis is built with, and one of the system."""
minio_bucket: Final = "pravega-spark"

_log = structlog.get_logger(service="standalone")

redis_configuration: Final = """\
# Written by pravega-spark standalone. An acknowledged append must survive a crash of the machine.
# Only the user of the standalone reaches it.
port 0
unixsocket "{socket}"
unixsocketperm 700
dir "{folder}"
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
auto-aof-rewrite-min-size {rewrite_bytes}
auto-aof-rewrite-percentage 300
maxmemory {maxmemory}
maxmemory-policy noeviction
save ""
rdbcompression no
"""
"""The settings of ``conf/redis.conf``, which says why; a test compares them."""


def aof_rewrite_bytes(free_bytes: int, servers: int) -> int:
    """The size of an append-only file at which it is rewritten, with this much free disk for all servers."""
    wanted = int(free_bytes / servers * aof_disk_share)
    return min(max(wanted, aof_rewrite_min_size_bytes_min), aof_rewrite_bytes_max)


@dataclass(frozen=True)
class RedisChild:
    """One Redis of the standalone: its name, its folder, its socket, its ``maxmemory`` in bytes, and the size of its
    append-only file at which it is rewritten."""

    name: str
    folder: Path
    socket: Path
    maxmemory: int
    rewrite_bytes: int

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"

    def spec(self, conf: Path, logs: Path) -> ChildSpec:
        """Write the settings, and describe the process."""
        configuration = conf / f"{self.name}.conf"
        configuration.write_text(
            redis_configuration.format(
                socket=_in_quotes(self.socket),
                folder=_in_quotes(self.folder.resolve()),
                maxmemory=self.maxmemory,
                rewrite_bytes=self.rewrite_bytes,
            )
        )
        command = [str(find_redis()), str(configuration)]
        return ChildSpec(
            self.name,
            command,
            logs / f"{self.name}.log",
            lambda: _redis_serves(self.socket, self.rewrite_bytes),
            {name: os.environ.get(name, redis_allocator) for name in redis_allocator_variables},
            is_loading=lambda: _redis_loads(self.socket),
        )


def redis_children(options: StandaloneOptions, folder: DataFolder, sockets: Path) -> list[RedisChild]:
    """The plog servers in their order, and last the server of the control plane, unless the only plog server is that
    too. ``ConfigurationError`` if the disk is too small."""
    names = redis_names(options.redis_servers)
    needed_bytes = disk_bytes_min * options.redis_servers
    free_bytes = shutil.disk_usage(folder.root).free
    if free_bytes < needed_bytes:
        raise ConfigurationError(
            f"{folder.root} has {free_bytes >> 20} MiB of free disk, Redis needs {needed_bytes >> 20} MiB;"
            " free some, or choose another --data-dir"
        )
    sizes = [options.redis_memory_bytes] * options.redis_servers + [redis_memory_mib_min << 20]
    rewrite_bytes = aof_rewrite_bytes(free_bytes, len(names))
    return [
        RedisChild(name, folder.folder(name), sockets / f"{name}.sock", size, rewrite_bytes)
        for name, size in zip(names, sizes, strict=False)
    ]


def _in_quotes(path: Path) -> str:
    """The path as Redis reads it between quotes, where a backslash begins an escape."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f"\\x{ord(char):02x}" if char < " " else char for char in text)


async def _redis_serves(socket: Path, rewrite_bytes: int) -> bool:
    if not (await _ping(socket)).startswith(b"+PONG"):
        return False
    await _rewrite_what_was_loaded(socket, rewrite_bytes)
    return True


async def _redis_loads(socket: Path) -> bool:
    return (await _ping(socket)).startswith(b"-LOADING")


async def _ping(socket: Path) -> bytes:
    return await exchange(lambda: asyncio.open_unix_connection(socket), b"PING\r\n")


async def _rewrite_what_was_loaded(socket: Path, rewrite_bytes: int) -> None:
    """Make Redis 6 rewrite a large file that it has loaded. It measures the growth that calls for a rewrite from the
    file as it was loaded, whatever of that is live: without this the file could grow fourfold with each start."""
    client = Redis(unix_socket_path=str(socket))
    try:
        if int(str((await client.info("server"))["redis_version"]).partition(".")[0]) >= 7:
            return
        found = await client.info("persistence")
        size = int(found["aof_current_size"])
        if size == int(found["aof_base_size"]) and size >= rewrite_bytes:
            await client.bgrewriteaof()
    except RedisError as error:
        _log.warning("Redis was not asked to rewrite its append-only file", error=str(error))
    finally:
        await client.aclose()


def minio_credentials(folder: Path) -> tuple[str, str]:
    """Returns access and secret key, made once for a data folder."""
    file = folder / "credentials"
    if not file.exists():
        replace_file(file, f"pravega\n{secrets.token_hex(16)}\n".encode())
    access, secret = file.read_text().split()
    return access, secret


def minio_spec(folder: Path, log_file: Path, host: str, port: int) -> ChildSpec:
    access, secret = minio_credentials(folder)
    data = folder / "data"
    data.mkdir(exist_ok=True)
    return ChildSpec(
        "minio",
        [str(find_minio()), "server", str(data), "--address", f"{host}:{port}", "--quiet"],
        log_file,
        lambda: _minio_answers(host, port),
        {"MINIO_ROOT_USER": access, "MINIO_ROOT_PASSWORD": secret, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"},
    )


async def _minio_answers(host: str, port: int) -> bool:
    request = f"GET /minio/health/ready HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    answer = await exchange(lambda: asyncio.open_connection(host, port), request.encode())
    return answer.startswith(b"HTTP/1.1 200")


async def exchange(
    connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]], request: bytes
) -> bytes:
    """Sends bytes and returns the first that come back; empty if nobody answers."""
    writer = None
    try:
        async with asyncio.timeout(probe_time_max_s):
            reader, writer = await connect()
            writer.write(request)
            return await reader.read(512)
    except (OSError, TimeoutError):
        return b""
    finally:
        if writer is not None:
            writer.close()


async def accepts_connections(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(probe_time_max_s):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
