"""The simulator's Redis answers as a real one does: the same random requests to both, also when they are full."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest

from pravega_common.services.cluster.redis_script import Script
from segment_service.plog.plog import APPEND_SMALL, CREATE, DELETE, FENCE, REMAKE, SEAL, TRIM
from segment_service.plog.redis_connection import encode_command
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.redis_values import Stream
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.server_fixtures import own_redis
from tests.support.servers import RedisServer

__all__ = ["own_redis"]

PLOGS = 3
STEPS = 1_500


class RealRedis:
    def __init__(self, server: RedisServer) -> None:
        host, _, port = server.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._reader = hiredis.Reader(replyError=Exception)

    def ask(self, request: list[bytes]) -> Any:
        self._socket.sendall(encode_command(*request))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return reply

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def real(own_redis: RedisServer) -> Iterator[RealRedis]:
    connection = RealRedis(own_redis)
    yield connection
    connection.close()


def ask_simulated(server: SimulatedRedis, request: list[bytes]) -> Any:
    reader = hiredis.Reader(replyError=Exception)
    reader.feed(server._answer(request))
    return reader.gets()


def script(which: Script, keys: list[bytes], *args: object) -> list[bytes]:
    return [b"EVAL", which.body.encode(), b"%d" % len(keys), *keys, *(str(arg).encode() for arg in args)]


class Requests:
    """Requests as a plog client makes them, in an order and with tokens that are often wrong."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ends = dict.fromkeys(range(PLOGS), 0)
        self._last: dict[bytes, int] = {}
        """Where an append to a stream may follow, unless it was refused."""

    def next(self) -> list[bytes]:
        plog = self._rng.randrange(PLOGS)
        meta, none, index = b"m:%d" % plog, b"none", b"index"
        old, new = self._rng.randrange(4), self._rng.randrange(4)
        stream, moved = b"s:%d:%d" % (plog, old), b"s:%d:%d" % (plog, new)
        end = self._ends[plog] = self._ends[plog] + self._rng.randrange(0, 50)
        first, last = sorted(self._rng.randrange(0, 3_000) for _ in range(2))
        self._last[stream] = self._rng.choice((self._last.get(stream, 0), end))
        return self._rng.choice(
            (
                script(CREATE, [meta, stream, index], old, 0, "header", f"id-{plog}", "run"),
                script(REMAKE, [meta, stream, index], old, 0, "header", f"id-{plog}", "run"),
                script(TRIM, [stream], f"{first}-0", f"{last}-0", f"{end}-0"),
                script(FENCE, [meta, stream, moved], old, 0, new, 0),
                script(SEAL, [meta, stream, moved], old, 0, new, 0, self._rng.randrange(3_000), end % 2),
                script(DELETE, [meta, stream, index], old, 0, new, f"id-{plog}"),
                script(APPEND_SMALL, [stream, none], f"{end}-0", self._last.get(stream, 0), "frame"),
                *[[b"XADD", stream, b"NOMKSTREAM", b"%d-0" % end, b"s", b"%d" % end, b"d", b"frame"]] * 4,
                [b"XRANGE", stream, b"(%d-0" % first, b"%d-0" % last],
                [b"XRANGE", stream, b"%d-0" % first, b"%d-0" % last, b"COUNT", b"2"],
                [b"XRANGE", stream, b"0-1", b"0-1"],
                [b"HMGET", meta, b"epoch", b"fences", b"sealed"],
                [b"SMEMBERS", index],
                [b"SET", b"identity", b"%d" % plog, b"NX"],
                [b"GET", b"identity"],
            )
        )


def comparable(reply: Any, request: list[bytes]) -> Any:
    """An error by its code; the members of a set in one order."""
    if isinstance(reply, Exception):
        return str(reply).partition(" ")[0]
    return sorted(reply) if request[0] == b"SMEMBERS" else reply


def contents(server: SimulatedRedis) -> dict[bytes, Any]:
    values = server.database.values.items()
    return {key: (value.ids, value.fields) if isinstance(value, Stream) else value for key, value in values}


@pytest.mark.parametrize("seed", range(4))
def test_both_answer_alike(real: RealRedis, seed: int) -> None:
    rng = random.Random(seed)
    simulated, requests = SimulatedRedis("simulated", InMemoryCPO), Requests(rng)
    for step in range(STEPS):
        if step % 150 == 100:
            simulated.maxmemory = 1
            real.ask([b"CONFIG", b"SET", b"maxmemory", b"1"])
        elif step % 150 == 0:
            simulated.maxmemory = 0
            real.ask([b"CONFIG", b"SET", b"maxmemory", b"0"])
        request = requests.next()
        expected, found = real.ask(request), ask_simulated(simulated, request)
        assert comparable(found, request) == comparable(expected, request), (step, request)
    kept = len(simulated.disk)
    before = contents(simulated)
    simulated.crash()
    simulated.start()
    assert len(simulated.disk) == kept
    assert contents(simulated) == before
