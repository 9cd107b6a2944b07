"""The Lua scripts of the plog client, in Python. Each does what its script does, command by command.

``tests/integration/test_simulated_redis.py`` runs both on a real server and on the simulated one and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from segment_service.plog import plog
from segment_service.plog.plog import APPEND_SMALL, CREATE, DELETE, FENCE, REMAKE, SEAL, TRIM
from tests.simulator.redis_values import Reply

Call = Callable[..., Any]
"""``redis.call``."""
Body = Callable[[Call, Sequence[bytes], Sequence[bytes]], Reply]


def _create(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    if call("EXISTS", keys[0]) == 1:
        return b"exists"
    call("DEL", keys[1])
    return _make(call, keys, argv)


def _remake(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    epoch = call("HMGET", keys[0], "epoch")[0]
    if epoch is not None and int(epoch) > int(argv[0]):
        return b"fenced"
    call("UNLINK", keys[0], keys[1])
    return _make(call, keys, argv)


def _make(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    call("XADD", keys[1], "0-1", "h", argv[2])
    call("HSET", keys[0], "epoch", argv[0], "fences", argv[1], "created", argv[0], "run", argv[4])
    call("SADD", keys[2], argv[3])
    return b"ok"


def _refused_move(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> tuple[list[Any], Reply]:
    found = call("HMGET", keys[0], "epoch", "fences", "sealed")
    if found[0] is None:
        return found, [b"missing"]
    if found[0] != argv[0] or found[1] != argv[1]:
        return found, [b"moved"]
    if call("EXISTS", keys[1]) == 0:
        return found, [b"missing"]
    return found, None


def _fence(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    _, refused = _refused_move(call, keys, argv)
    if refused is not None:
        return refused
    if call("RENAMENX", keys[1], keys[2]) == 0:
        return [b"taken"]
    call("HSET", keys[0], "epoch", argv[2], "fences", argv[3])
    return [b"ok"]


def _seal(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    found, refused = _refused_move(call, keys, argv)
    if refused is not None:
        return refused
    whole = argv[5] == b"1"
    if found[2] is not None and not whole:
        return [b"ok", int(found[2])]
    last = call("XREVRANGE", keys[1], "+", "-", "COUNT", 1)
    length = int(last[0][0].partition(b"-")[0])
    if length < int(argv[4]) and whole:
        return [b"short", length]
    sealed = min(int(argv[4]), length)
    if call("RENAMENX", keys[1], keys[2]) == 0:
        return [b"taken"]
    call("HSET", keys[0], "epoch", argv[2], "fences", argv[3], "sealed", sealed)
    return [b"ok", sealed]


def _delete(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    found = call("HMGET", keys[0], "epoch", "fences")
    if found[0] is not None:
        if found[0] != argv[0] or found[1] != argv[1]:
            return b"moved"
        if int(found[0]) > int(argv[2]):
            return b"fenced"
    call("UNLINK", keys[0], keys[1])
    call("SREM", keys[2], argv[3])
    return b"ok"


def _append_small(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    call("UNLINK", keys[1])
    last = call("XREVRANGE", keys[0], "+", "-", "COUNT", 1)
    if not last or last[0][0].partition(b"-")[0] != argv[1]:
        return None
    added: Reply = call("XADD", keys[0], "NOMKSTREAM", argv[0], "s", argv[1], "d", argv[2])
    return added


def _trim(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    call("XDEL", keys[0], *argv[1:])
    call("XSETID", keys[0], argv[0])
    return b"ok"


def _set_identity(call: Call, keys: Sequence[bytes], argv: Sequence[bytes]) -> Reply:
    call("UNLINK", keys[1])
    answer: Reply = call("SET", keys[0], argv[0], "NX")
    return answer


SCRIPTS: Final[Mapping[str, Body]] = {
    CREATE.digest: _create,
    FENCE.digest: _fence,
    REMAKE.digest: _remake,
    SEAL.digest: _seal,
    TRIM.digest: _trim,
    DELETE.digest: _delete,
    APPEND_SMALL.digest: _append_small,
    **({plog.SET_IDENTITY.digest: _set_identity} if hasattr(plog, "SET_IDENTITY") else {}),
}
