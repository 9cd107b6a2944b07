"""Describes the child processes of Redis (Tier 1 and the CPO) and MinIO (Tier 2)."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_spark.standalone.binaries import find_minio, find_redis
from pravega_spark.standalone.supervisor import ChildSpec

probe_time_max_s: Final = 1.0
disk_bytes_min: Final = 2 * 1024 * 1024 * 1024
"""Redis rewrites its append-only file above 1 GiB and four times what is live: the old and the new one must fit."""
minio_bucket: Final = "pravega-spark"

_REDIS_CONFIGURATION: Final = """\
# Written by pravega-spark standalone. An acknowledged append must survive a crash of the machine.
bind {host}
port {port}
dir "{folder}"
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
auto-aof-rewrite-min-size 1gb
auto-aof-rewrite-percentage 300
maxmemory {maxmemory}
maxmemory-policy noeviction
save ""
rdbcompression no
"""


def redis_spec(folder: Path, log_file: Path, host: str, port: int, maxmemory: int) -> ChildSpec:
    program = find_redis()
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < disk_bytes_min:
        raise ConfigurationError(
            f"{folder} has {free_bytes >> 20} MiB of free disk, Redis needs {disk_bytes_min >> 20} MiB;"
            " free some, or choose another --data-dir"
        )
    configuration = folder / "redis.conf"
    text = _REDIS_CONFIGURATION.format(host=host, port=port, folder=folder.resolve(), maxmemory=maxmemory)
    configuration.write_text(text)
    return ChildSpec("redis", [str(program), str(configuration)], log_file, lambda: _redis_answers(host, port))


async def _redis_answers(host: str, port: int) -> bool:
    answer = await exchange(host, port, b"PING\r\n")
    return answer.startswith(b"+PONG")


def minio_credentials(folder: Path) -> tuple[str, str]:
    """Returns access and secret key, made once for a data folder."""
    file = folder / "credentials"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(f"pravega\n{secrets.token_hex(16)}\n")
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
    answer = await exchange(host, port, request.encode())
    return answer.startswith(b"HTTP/1.1 200")


async def exchange(host: str, port: int, request: bytes) -> bytes:
    """Sends bytes and returns the first that come back; empty if nobody answers."""
    writer = None
    try:
        async with asyncio.timeout(probe_time_max_s):
            reader, writer = await asyncio.open_connection(host, port)
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
