"""Refuses a Redis server that could lose data it acknowledged.

Pure rules over the answers of ``INFO`` and ``CONFIG GET``; the caller connects and asks the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from pravega_common.errors import ConfigurationError

version_min: Final = (6, 2)
aof_rewrite_min_size_bytes_min: Final = 1024**3
"""A rewrite below this size would cost more than the log it compacts; disk for twice this size is needed."""

INFO_SECTIONS: Final = ("server", "persistence", "replication", "cluster")
CONFIG_NAMES: Final = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory-policy",
    "auto-aof-rewrite-min-size",
)
_HARMLESS_REMOVALS: Final = {"-@dangerous", "-@admin"}
"""Categories with none of the commands that the append-only file of a service's server has."""
_REQUIRED: Final = {
    "appendonly": ("yes", "acknowledged data would be gone after a restart"),
    "appendfsync": ("always", "acknowledged data would be lost in a crash of the machine"),
    "no-appendfsync-on-rewrite": ("no", "acknowledged data would not be synced during a rewrite"),
    "maxmemory-policy": ("noeviction", "a full server would delete acknowledged data"),
}


def parse_info(text: str) -> dict[str, str]:
    """The ``name:value`` lines of an ``INFO`` answer."""
    pairs = (line.partition(":") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class RedisMemory:
    """The memory of a server, in bytes; ``limit`` 0 if it has none."""

    used: int
    limit: int

    @property
    def used_share(self) -> float:
        """Used part of the limit; 0 without one."""
        return self.used / self.limit if self.limit else 0.0

    @property
    def has_room(self) -> bool:
        """Whether the server takes commands that need memory."""
        return not self.limit or self.used < self.limit


def memory_of(info: str) -> RedisMemory:
    """The numbers in the answer to ``INFO memory``; buffers that the limit does not count are left out."""
    values = parse_info(info)
    used = int(values.get("used_memory", "0")) - int(values.get("mem_not_counted_for_evict", "0"))
    return RedisMemory(max(used, 0), int(values.get("maxmemory", "0")))


def find_problems(info: Mapping[str, str], config: Mapping[str, str]) -> list[str]:
    """One sentence, with the remedy, for each reason not to trust the server; empty if it is safe."""
    problems = []
    version = info.get("redis_version", "0.0")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < version_min:
        problems.append(f"version {version} is too old; 6.2 is the oldest supported, 7 or later is preferred")
    for name, (wanted, reason) in _REQUIRED.items():
        value = config.get(name)
        if value != wanted:
            problems.append(f"{name} is {value or 'not readable'}: {reason}; set it to {wanted}")
    rewrite_min = config.get("auto-aof-rewrite-min-size", "0")
    if not rewrite_min.isdigit() or int(rewrite_min) < aof_rewrite_min_size_bytes_min:
        problems.append(
            f"auto-aof-rewrite-min-size is {rewrite_min}; set it to 1gb or more, else the log is rewritten all the time"
        )
    if info.get("role", "master") != "master":
        problems.append(f"the server is a {info['role']}; connect to a server that is not a replica")
    if info.get("cluster_enabled", "0") != "0":
        problems.append("the server runs in cluster mode; use single servers, replication is done by the client")
    return problems


def find_login_problems(default_user: Sequence[Any] | None) -> list[str]:
    """As ``find_problems``, for a server that has users. ``default_user``: its answer to ``ACL GETUSER default``, pairs
    of names and values as bytes; ``None`` if it did not answer that.

    Redis replays its append-only file with the permissions of the default user. A transaction in it that these do not
    allow, as that of each script, is skipped with a line in its log, and what was acknowledged is gone.
    """
    if default_user is None:
        return ["the permissions of the default user are not readable: permit acl|getuser to the user of the service"]
    answer = {bytes(name).decode(): value for name, value in zip(default_user[::2], default_user[1::2], strict=False)}
    commands = bytes(answer.get("commands", b"")).decode().split()
    keys = answer.get("keys", b"")
    is_all_keys = keys == b"~*" or (isinstance(keys, list) and b"*" in keys)
    is_all_commands = commands[:1] == ["+@all"] and set(commands[1:]) <= _HARMLESS_REMOVALS
    if is_all_commands and is_all_keys:
        return []
    return [
        "the default user lacks permissions, and with those a restart replays the append-only file: the rest would be "
        "skipped; set it to 'off resetpass ~* &* +@all', which lets nobody log in"
    ]


def refuse_unsafe(address: str, problems: list[str], *, allow_unsafe: bool) -> None:
    """``ConfigurationError`` if there are problems; a loud warning instead with ``allow_unsafe``."""
    if not problems:
        return
    text = "; ".join(problems)
    if not allow_unsafe:
        raise ConfigurationError(f"Redis at {address} may lose acknowledged data: {text} (or allow_unsafe_redis=true)")
    structlog.get_logger().warning(
        "UNSAFE REDIS: acknowledged data may be lost", address=address, problems=text, allowed_by="allow_unsafe_redis"
    )
