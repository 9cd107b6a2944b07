"""Implements the control plane oracle on one Redis server (6.2 or later), by short scripts on declared keys."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

import structlog
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pravega_common.errors import Fenced, Unavailable, UnknownOutcome, VersionConflict
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.deadline import Deadline
from pravega_common.services.cluster.codec import (
    checked_name,
    checked_ttl_ms,
    checked_value,
    cluster_from_json,
    cluster_to_json,
    payload_to_json,
    replaced_cluster,
)
from pravega_common.services.cluster.cpo import Assignment, PersistenceCluster
from pravega_common.services.cluster.redis_audit import (
    CONFIG_NAMES,
    INFO_SECTIONS,
    find_login_problems,
    find_problems,
    parse_info,
    refuse_unsafe,
)
from pravega_common.services.cluster.redis_script import Script
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess, RedisEndpoint
from pravega_common.services.retrying import RetryLimits, retry
from pravega_common.services.settings import lease_ms_max

call_timeout_s: Final = 5.0
audit_period_s: Final = 10.0
"""Time after which a call reads the server's settings again; not where unsafe ones are allowed, which is said once."""
connections_max: Final = 16
"""Connections of a process, and so calls at a time: one more waits, as the containers of a store all start together."""
turn_max_s: Final = 5.0
"""Time that a call waits until fewer others are under way."""
assignment_poll_s: Final = 2.0
"""Longest blocking read; between two of them the assignment itself is read, in case the wake-up was lost."""
call_limits: Final = RetryLimits(attempts_max=3, pause_s=lambda failed: 0.0)
"""Connections tried for one reading call."""

_LOST: Final = (RedisConnectionError, RedisTimeoutError, OSError)
Answer = Any


# A full server (maxmemory) must still let its stores recover and free it. Redis refuses a script's commands that need
# memory only until the script has called a command that writes and needs none: each script that changes something
# begins with one, on a key that never exists.
_ROOM = "redis.call('UNLINK', KEYS[#KEYS])"

_SET_FIELD = Script(
    _ROOM
    + """
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])"""
)

_REPLACE_FIELD = Script(
    _ROOM
    + """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1"""
)
"""ARGV field, the value that it has ('' for none), the new value."""

_SET_ONCE = Script(
    _ROOM
    + """
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])"""
)

_REPLACE_CONSTANT = Script(
    _ROOM
    + """
local current = redis.call('GET', KEYS[1]) or ''
if current ~= ARGV[2] then
  if current ~= ARGV[1] then return current end
  redis.call('SET', KEYS[1], ARGV[2])
end
return ARGV[2]"""
)
"""ARGV the value that it has ('' for none), the new value."""

_RAISE_EPOCH = Script(
    _ROOM
    + """
local epoch = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if epoch < tonumber(ARGV[2]) then
  epoch = tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', epoch))
end
return epoch"""
)

_TAKE_EPOCH = Script(
    _ROOM
    + """
local version = redis.call('HGET', KEYS[2], 'version')
if version then
  local owner = redis.call('HGET', KEYS[2], 'c' .. ARGV[1])
  if owner ~= ARGV[2] then return {'fenced', owner or ''} end
end
local epoch = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0') + 1
if epoch < tonumber(ARGV[3]) then epoch = tonumber(ARGV[3]) end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', epoch))
return {'ok', epoch}"""
)

_PUT_METADATA_PLOG = Script(
    _ROOM
    + """
local epoch = redis.call('HGET', KEYS[1], ARGV[1]) or '0'
if epoch ~= ARGV[2] then return {'fenced', epoch} end
local current = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if current == ARGV[4] then return {'ok', ''} end
if current ~= ARGV[3] then return {'conflict', current} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
return {'ok', ''}"""
)

# No lease ends later than this from now: one that seems to is of the time before the server's clock went back, and its
# holder may be gone.
_NOW = f"""
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local latest = now + {lease_ms_max}
local function text(time) return string.format('%.0f', time) end
"""
_HOLDER = f"""
local function holder_of(key)
  if redis.call('PTTL', key) > {lease_ms_max} then return false end
  return redis.call('GET', key)
end
"""

_RENEW_LEASE = Script(
    _ROOM
    + "\n"
    + _NOW
    + """
redis.call('ZADD', KEYS[1], text(now + tonumber(ARGV[3])), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for _, range in ipairs({{'-inf', text(now - 3600000)}, {'(' .. text(latest), '+inf'}}) do
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], range[1], range[2], 'LIMIT', 0, 100)) do
    redis.call('ZREM', KEYS[1], member)
    redis.call('HDEL', KEYS[2], member)
  end
end
return now"""
)

_RELEASE_LEASE = Script(
    _ROOM
    + """
redis.call('HDEL', KEYS[2], ARGV[1])
return redis.call('ZREM', KEYS[1], ARGV[1])"""
)

_MEMBERS = Script(
    _NOW
    + """
local result = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. text(now), text(latest))) do
  result[#result + 1] = member
  result[#result + 1] = redis.call('HGET', KEYS[2], member)
end
return result"""
)

_TRY_HOLD = Script(
    _ROOM
    + _HOLDER
    + """
local holder = holder_of(KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1"""
)

_LEADER = Script(_HOLDER + "return holder_of(KEYS[1])")

_GIVE_UP = Script(
    _ROOM
    + """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0"""
)

_PUT_ASSIGNMENT = Script(
    _ROOM
    + """
local version = redis.call('HGET', KEYS[1], 'version') or '0'
if version ~= ARGV[1] then return {'conflict', version} end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'version', ARGV[2])
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('XADD', KEYS[2], 'MAXLEN', 1, '*', 'version', ARGV[2])
return {'ok', ''}"""
)

_MOVE_TASK = Script(
    _ROOM
    + """
local payload = redis.call('HGET', KEYS[1], ARGV[1])
if not payload then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], payload)
redis.call('HDEL', KEYS[1], ARGV[1])
return 1"""
)


def _task_field(member_id: str, task_id: str) -> str:
    return json.dumps([checked_name("member", member_id), checked_name("task", task_id)])


def _pairs(answer: Iterable[bytes]) -> Iterable[tuple[str, bytes]]:
    items = iter(answer)
    return [(name.decode(), value) for name, value in zip(items, items, strict=True)]


def _pool(address: str, access: RedisAccess) -> ConnectionPool:
    common: dict[str, Any] = {
        "max_connections": connections_max,
        "socket_timeout": call_timeout_s,
        "socket_connect_timeout": call_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
        "username": access.username or None,
        "password": access.password.get_secret_value() or None,
    }
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        return ConnectionPool(connection_class=UnixDomainSocketConnection, path=path, **common)
    endpoint = RedisEndpoint.parse(address)
    place: dict[str, Any] = {"host": endpoint.host, "port": endpoint.port}
    if not endpoint.has_tls:
        return ConnectionPool(connection_class=Connection, **place, **common)
    trust: dict[str, Any] = {"ssl_ca_data": access.tls.ca_pem or None, "ssl_min_version": ssl.TLSVersion.TLSv1_2}
    return ConnectionPool(connection_class=SSLConnection, ssl_check_hostname=True, **trust, **place, **common)


class RedisCPO:
    """``ControlPlaneOracle`` over the Redis server at ``address``, as ``redis_address`` makes it of a setting.

    ``prefix`` separates clusters that share a server. Leases are measured by the server's clock.
    """

    def __init__(
        self,
        address: str,
        *,
        prefix: str = "pravega:cpo:",
        allow_unsafe_redis: bool = False,
        clock: Clock | None = None,
        access: RedisAccess = OPEN_ACCESS,
    ) -> None:
        self._address = address
        self._prefix = prefix
        self._allow_unsafe = allow_unsafe_redis
        self._clock = clock or SystemClock()
        self._access = access
        self._pool = _pool(address, access)
        self._turns = asyncio.Semaphore(connections_max)
        self._audit_due_s = 0.0
        """Time of the next look at the server's settings, which others may change while it runs."""
        self._log = structlog.get_logger()

    async def close(self) -> None:
        await self._pool.disconnect()

    async def set_once(self, key: str, value: str) -> str:
        keys = (self._key("constant", checked_name("key", key)),)
        return str((await self._change(_SET_ONCE, keys, checked_value(value))).decode())

    async def get_constant(self, key: str) -> str | None:
        return _text(await self._read("GET", self._key("constant", key)))

    async def replace_constant(self, key: str, expected: str | None, value: str) -> None:
        keys = (self._key("constant", checked_name("key", key)),)
        current = (await self._change(_REPLACE_CONSTANT, keys, expected or "", checked_value(value))).decode()
        if current != value:
            raise VersionConflict(f"constant {key} is {current or 'not set'}, not {expected}")

    async def put_persistence_cluster(self, cluster: PersistenceCluster) -> PersistenceCluster:
        cluster_to_json(cluster)  # refuses what cannot be stored, before anything is asked
        key = self._key("persistence-clusters")
        while True:  # twice at most: a change in between has another version
            text = await self._read("HGET", key, cluster.name)
            registered = None if text is None else cluster_from_json(text)
            replaced = replaced_cluster(registered, cluster)
            if replaced is registered or await self._change(
                _REPLACE_FIELD, (key,), cluster.name, text or b"", cluster_to_json(replaced)
            ):
                return replaced

    async def get_persistence_cluster(self, name: str) -> PersistenceCluster | None:
        answer = await self._read("HGET", self._key("persistence-clusters"), name)
        return None if answer is None else cluster_from_json(answer)

    async def take_epoch(self, container_id: int, owner: str, at_least: int = 1) -> int:
        keys = (self._key("epochs"), self._key("assignment"))
        verdict, value = await self._change(_TAKE_EPOCH, keys, container_id, owner, at_least)
        if verdict == b"fenced":
            raise Fenced(f"container {container_id} is assigned to {value.decode() or 'no store'}, not to {owner}")
        return int(value)

    async def current_epoch(self, container_id: int) -> int:
        return int(await self._read("HGET", self._key("epochs"), container_id) or 0)

    async def raise_epoch(self, container_id: int, at_least: int) -> int:
        return int(await self._change(_RAISE_EPOCH, (self._key("epochs"),), container_id, at_least))

    async def get_metadata_plog(self, container_id: int) -> str | None:
        return _text(await self._read("HGET", self._key("metadata-plogs"), container_id))

    async def put_metadata_plog(self, container_id: int, epoch: int, expected: str | None, plog_id: str) -> None:
        checked_name("plog id", plog_id)
        keys = (self._key("epochs"), self._key("metadata-plogs"))
        verdict, value = await self._change(_PUT_METADATA_PLOG, keys, container_id, epoch, expected or "", plog_id)
        if verdict == b"fenced":
            raise Fenced(f"container {container_id}: epoch {epoch} was superseded by {value.decode()}")
        if verdict == b"conflict":
            raise VersionConflict(f"container {container_id}: metadata plog is {value.decode()}, not {expected}")

    async def time_of_day_ms(self) -> int:
        seconds, microseconds = map(int, await self._read("TIME"))
        return seconds * 1000 + microseconds // 1000

    async def renew_lease(self, kind: str, member_id: str, payload: dict[str, Any], ttl_ms: int) -> int:
        text = payload_to_json(payload)
        return int(
            await self._change(
                _RENEW_LEASE, self._lease_keys(kind), checked_name("member", member_id), text, checked_ttl_ms(ttl_ms)
            )
        )

    async def release_lease(self, kind: str, member_id: str) -> None:
        await self._change(_RELEASE_LEASE, self._lease_keys(kind), member_id)

    async def members(self, kind: str) -> dict[str, dict[str, Any]]:
        answer = await self._run(_MEMBERS, self._lease_keys(kind), (), changes=False)
        return {member: json.loads(payload) for member, payload in _pairs(answer)}

    async def try_lead(self, role: str, member_id: str, ttl_ms: int) -> bool:
        return await self._try_hold("leader", role, member_id, ttl_ms)

    async def resign(self, role: str, member_id: str) -> None:
        await self._change(_GIVE_UP, (self._key("leader", role),), member_id)

    async def leader(self, role: str) -> str | None:
        return _text(await self._run(_LEADER, (self._key("leader", role),), (), changes=False))

    async def try_lock(self, name: str, holder: str, ttl_ms: int) -> bool:
        return await self._try_hold("lock", name, holder, ttl_ms)

    async def unlock(self, name: str, holder: str) -> None:
        await self._change(_GIVE_UP, (self._key("lock", name),), holder)

    async def get_assignment(self) -> Assignment:
        fields = dict(_pairs(await self._read("HGETALL", self._key("assignment"))))
        version = int(fields.pop("version", b"0"))
        owners = {int(name[1:]): store.decode() for name, store in fields.items()}
        return Assignment(version, MappingProxyType(owners))

    async def put_assignment(self, expected_version: int, owners: Mapping[int, str]) -> int:
        keys = (self._key("assignment"), self._key("assignment-changes"))
        fields = [part for container, store in owners.items() for part in (f"c{container}", store)]
        version = expected_version + 1
        verdict, value = await self._change(_PUT_ASSIGNMENT, keys, expected_version, version, *fields)
        if verdict == b"conflict":
            raise VersionConflict(f"assignment is at version {value.decode()}, not at {expected_version}")
        return version

    async def wait_assignment(self, after_version: int, timeout_s: float) -> Assignment:
        deadline = Deadline.after(self._clock, timeout_s)
        changes = self._key("assignment-changes")
        while True:
            newest = await self._read("XREVRANGE", changes, "+", "-", "COUNT", 1)
            seen = newest[0][0] if newest else b"0-0"
            assignment = await self.get_assignment()
            if assignment.version > after_version or deadline.expired:
                return assignment
            block_ms = max(1, int(min(assignment_poll_s, deadline.remaining_s) * 1000))
            await self._read("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", changes, seen)

    async def add_task(self, member_id: str, task_id: str, payload: dict[str, Any]) -> None:
        field = _task_field(member_id, task_id)
        await self._change(_SET_FIELD, (self._key("tasks"),), field, payload_to_json(payload))

    async def remove_task(self, member_id: str, task_id: str) -> None:
        await self._write("HDEL", self._key("tasks"), _task_field(member_id, task_id))

    async def move_task(self, task_id: str, from_member: str, to_member: str) -> bool:
        fields = (_task_field(from_member, task_id), _task_field(to_member, task_id))
        return bool(await self._change(_MOVE_TASK, (self._key("tasks"),), *fields))

    async def tasks(self) -> dict[str, dict[str, dict[str, Any]]]:
        result: dict[str, dict[str, dict[str, Any]]] = {}
        for name, payload in _pairs(await self._read("HGETALL", self._key("tasks"))):
            member_id, task_id = json.loads(name)
            result.setdefault(member_id, {})[task_id] = json.loads(payload)
        return result

    def _key(self, *parts: str) -> str:
        return self._prefix + ":".join(parts)

    def _lease_keys(self, kind: str) -> tuple[str, str]:
        checked_name("kind", kind)
        return self._key("lease-times", kind), self._key("lease-payloads", kind)

    async def _try_hold(self, what: str, name: str, holder: str, ttl_ms: int) -> bool:
        keys = (self._key(what, checked_name(what, name)),)
        return bool(await self._change(_TRY_HOLD, keys, checked_name("holder", holder), checked_ttl_ms(ttl_ms)))

    async def _read(self, *command: Answer) -> Answer:
        return await self._call(command, changes=False)

    async def _write(self, *command: Answer) -> Answer:
        return await self._call(command, changes=True)

    async def _change(self, script: Script, keys: tuple[str, ...], *args: Answer) -> Answer:
        return await self._run(script, (*keys, self._key("none")), args, changes=True)

    async def _run(self, script: Script, keys: tuple[str, ...], args: tuple[Answer, ...], *, changes: bool) -> Answer:
        try:
            return await self._call(("EVALSHA", script.digest, len(keys), *keys, *args), changes=changes)
        except NoScriptError:
            return await self._call(("EVAL", script.body, len(keys), *keys, *args), changes=changes)

    async def _call(self, command: tuple[Answer, ...], *, changes: bool) -> Answer:
        """One command; tried again on another connection only if it changes nothing or was never sent."""
        return await retry(
            lambda: self._call_once(command, changes=changes),
            call_limits,
            self._clock,
            when=lambda error: error.retryable,
        )

    async def _call_once(self, command: tuple[Answer, ...], *, changes: bool) -> Answer:
        async with self._turn():
            return await self._ask(command, changes=changes)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until the pool has a connection left: it raises for one that it has not."""
        try:
            async with asyncio.timeout(turn_max_s):
                await self._turns.acquire()
        except TimeoutError as error:
            reason = f"{connections_max} calls are under way, and none ended within {turn_max_s:.0f} s"
            raise Unavailable(f"CPO at {self._address}: {reason}") from error
        try:
            yield
        finally:
            self._turns.release()

    async def _ask(self, command: tuple[Answer, ...], *, changes: bool) -> Answer:
        connection = await self._connect()
        try:
            await connection.send_command(*command)
            return await connection.read_response()
        except BusyLoadingError as error:
            raise Unavailable(f"CPO at {self._address} is loading its data") from error
        except _LOST as error:
            self._audit_due_s = 0.0  # the server may come back with other settings
            await connection.disconnect(nowait=True)
            kind = UnknownOutcome if changes else Unavailable
            raise kind(f"CPO at {self._address} did not answer {command[0]}: {error}") from error
        except NoScriptError:
            raise
        except ResponseError as error:
            raise Unavailable(f"CPO at {self._address} refused {command[0]}: {error}") from error
        finally:
            await self._pool.release(connection)

    async def _connect(self) -> Any:
        """A connected, audited connection of the pool."""
        try:
            connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except (*_LOST, RedisError) as error:
            self._audit_due_s = 0.0
            raise Unavailable(f"CPO at {self._address} is not reachable: {error}") from error
        if self._clock.monotonic_s() >= self._audit_due_s:
            try:
                await self._audit(connection)
            except BaseException:
                await self._pool.release(connection)
                raise
        return connection

    async def _audit(self, connection: Any) -> None:
        info: dict[str, str] = {}
        config: dict[str, str] = {}
        try:
            for section in INFO_SECTIONS:
                await connection.send_command("INFO", section)
                info.update(parse_info((await connection.read_response()).decode()))
            for name in CONFIG_NAMES:
                await connection.send_command("CONFIG", "GET", name)
                config.update((key, value.decode()) for key, value in _pairs(await connection.read_response()))
        except ResponseError as error:
            # A managed server without CONFIG: what could not be read counts as unsafe below.
            self._log.warning("the settings of the CPO cannot be read", address=self._address, error=str(error))
        except _LOST as error:
            await connection.disconnect(nowait=True)
            raise Unavailable(f"CPO at {self._address} did not answer the audit: {error}") from error
        if info.get("loading", "0") != "0":
            raise Unavailable(f"CPO at {self._address} is loading its data")
        problems = find_problems(info, config) + await self._login_problems(connection)
        refuse_unsafe(self._address, problems, allow_unsafe=self._allow_unsafe)
        self._audit_due_s = math.inf if self._allow_unsafe else self._clock.monotonic_s() + audit_period_s

    async def _login_problems(self, connection: Any) -> list[str]:
        if self._access.is_of_default_user:
            return []  # whatever this connection may do, a restart may replay
        try:
            await connection.send_command("ACL", "GETUSER", "default")
            return find_login_problems(await connection.read_response())
        except ResponseError:
            return find_login_problems(None)
        except _LOST as error:
            await connection.disconnect(nowait=True)
            raise Unavailable(f"CPO at {self._address} did not answer the audit: {error}") from error


def _text(answer: bytes | None) -> str | None:
    return None if answer is None else answer.decode()
