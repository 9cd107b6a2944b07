"""Defines plogs: append-only, bounded logs on a Redis server, and their layout there.

On a server a plog is three keys: a small hash that says which name its stream has now (``m``), the stream itself, whose
name carries the fence token, and an entry in the container's index of plogs. The stream's header is entry ``0-1``; an
append that ends at byte ``e`` is entry ``e-0`` with the fields ``s`` (its start) and ``d`` (one plog entry).

Fencing renames the stream to the name of a higher token, so appends under the old name find nothing to append to.
The token is (epoch, fences within that epoch): the owner itself fences its plog when it lost track of an append.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.services.cluster.redis_script import Script

plog_block_bytes_tests: Final = 16 * 1024 * 1024
plog_block_bytes_service: Final = 64 * 1024 * 1024
_HEADER_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class PlogId:
    """From the id alone, a client finds the servers that hold the plog."""

    cluster: str
    group: str
    random: str
    """128 random bits in hexadecimal."""

    def __str__(self) -> str:
        return f"{self.cluster}/{self.group}/{self.random}"

    @classmethod
    def parse(cls, text: str) -> PlogId:
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise InvalidArgument(f"plog id {text!r}: cluster/group/random is expected")
        return cls(*parts)


@dataclass(frozen=True, slots=True, order=True)
class FenceToken:
    """The right to append: that of the owner with this epoch, after this many fences of its own."""

    epoch: int
    fences: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}.{self.fences}"


@dataclass(frozen=True, slots=True)
class PlogStatus:
    """The name and the state of a plog."""

    token: FenceToken
    sealed: int | None
    """Length in bytes at which the plog was sealed; ``None`` while it is open."""
    same_run: bool = True
    """Whether the server's process is still the one that made the plog: what it does not have, it never had."""


@dataclass(frozen=True, slots=True)
class PlogHeader:
    """The description that a plog holds of itself, so that it can be found again without the CPO."""

    plog_id: PlogId
    container_id: int
    stream: str
    """Name of the log stream that it belongs to."""
    number: int
    epoch: int
    block_bytes: int

    def to_json(self) -> str:
        record = {
            "format": _HEADER_FORMAT,
            "id": str(self.plog_id),
            "container": self.container_id,
            "stream": self.stream,
            "number": self.number,
            "epoch": self.epoch,
            "block": self.block_bytes,
        }
        return json.dumps(record, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes) -> PlogHeader:
        try:
            record: dict[str, Any] = json.loads(text)
            if record["format"] != _HEADER_FORMAT:
                raise DataCorruption(f"plog header of format {record['format']}; format {_HEADER_FORMAT} is known here")
            return cls(
                PlogId.parse(record["id"]),
                int(record["container"]),
                str(record["stream"]),
                int(record["number"]),
                int(record["epoch"]),
                int(record["block"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorruption(f"plog header {text[:100]!r} cannot be read") from error


@dataclass(frozen=True, slots=True)
class PlogKeys:
    """The names of one plog on a server."""

    prefix: str
    plog_id: PlogId

    @property
    def meta(self) -> str:
        return f"{self.prefix}{{{self.plog_id.random}}}:m"

    @property
    def none(self) -> str:
        """A name that never exists; see ``APPEND_SMALL``."""
        return f"{self.prefix}{{{self.plog_id.random}}}:none"

    def stream(self, token: FenceToken) -> str:
        return f"{self.prefix}{{{self.plog_id.random}}}:{token}"


def index_key(prefix: str, container_id: int) -> str:
    """Set of the ids of all plogs of a container on a server."""
    return f"{prefix}index:{container_id}"


def identity_key(prefix: str) -> str:
    """A random number that a server got when it was first used."""
    return f"{prefix}identity"


# A full server (maxmemory) must still let its owner recover and free it. Redis refuses a script's commands that need
# memory only until the script has called a command that writes and needs none: each script below begins with one.

CREATE = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 then return 'exists' end
redis.call('DEL', KEYS[2])
redis.call('XADD', KEYS[2], '0-1', 'h', ARGV[3])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'fences', ARGV[2], 'created', ARGV[1], 'run', ARGV[5])
redis.call('SADD', KEYS[3], ARGV[4])
return 'ok'""")
"""KEYS meta, stream, index; ARGV epoch, fences, header, id, the run of the server."""

REMAKE = Script("""
local m = redis.call('HMGET', KEYS[1], 'epoch')
if m[1] and tonumber(m[1]) > tonumber(ARGV[1]) then return 'fenced' end
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('XADD', KEYS[2], '0-1', 'h', ARGV[3])
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'fences', ARGV[2], 'created', ARGV[1], 'run', ARGV[5])
redis.call('SADD', KEYS[3], ARGV[4])
return 'ok'""")
"""As ``CREATE``, in the place of a copy that is damaged or not there."""

_MOVE = """
local m = redis.call('HMGET', KEYS[1], 'epoch', 'fences', 'sealed')
if not m[1] then return {'missing'} end
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return {'moved'} end
if redis.call('EXISTS', KEYS[2]) == 0 then return {'missing'} end
"""

FENCE = Script(
    _MOVE
    + """
if redis.call('RENAMENX', KEYS[2], KEYS[3]) == 0 then return {'taken'} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[3], 'fences', ARGV[4])
return {'ok'}"""
)
"""KEYS meta, stream, new stream; ARGV epoch, fences, new epoch, new fences."""

SEAL = Script(
    _MOVE
    + """
local whole = ARGV[6] == '1'
if m[3] and not whole then return {'ok', tonumber(m[3])} end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
local length = tonumber(string.match(last[1][1], '^(%d+)-'))
local sealed = tonumber(ARGV[5])
if length < sealed and whole then return {'short', length} end
if length < sealed then sealed = length end
if redis.call('RENAMENX', KEYS[2], KEYS[3]) == 0 then return {'taken'} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[3], 'fences', ARGV[4], 'sealed', string.format('%.0f', sealed))
return {'ok', sealed}"""
)
"""As ``FENCE``, and ARGV[5] the sealed offset; answers the smaller of it and of the plog's length. With ARGV[6] = 1 it
is that offset or nothing, and stands instead of an earlier one: one copy of several, whose length the group decides."""

TRIM = Script("""
redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
redis.call('XSETID', KEYS[1], ARGV[1])
return 'ok'""")
"""KEYS stream; ARGV the id that is the last one from now on, the ids behind it."""

DELETE = Script("""
local m = redis.call('HMGET', KEYS[1], 'epoch', 'fences')
if m[1] then
  if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return 'moved' end
  if tonumber(m[1]) > tonumber(ARGV[3]) then return 'fenced' end
end
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[3], ARGV[4])
return 'ok'""")
"""KEYS meta, stream, index; ARGV epoch, fences, the caller's epoch, id. Nothing of a higher epoch is deleted."""

SET_IDENTITY = Script("""
redis.call('UNLINK', KEYS[2])
return redis.call('SET', KEYS[1], ARGV[1], 'NX')""")
"""KEYS identity, a name that never exists; ARGV the identity."""

APPEND_SMALL = Script("""
redis.call('UNLINK', KEYS[2])
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if not last[1] or string.match(last[1][1], '^(%d+)-') ~= ARGV[2] then return false end
return redis.call('XADD', KEYS[1], 'NOMKSTREAM', ARGV[1], 's', ARGV[2], 'd', ARGV[3])""")
"""For metadata entries and urgent frames, which must find room on a full server, and for entries copied in a recovery.
Refused unless the entry before ends at its start. KEYS stream, none; ARGV id, start, entry."""
