"""Sends mutated gRPC calls to a controller, and counts the statuses that come back."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from pravega_common.proto import (
    cluster_health_pb2,
    commit_operations_pb2,
    controller_pb2,
    scope_quotas_pb2,
    stream_lags_pb2,
    transaction_sets_pb2,
)
from tests.drills.fuzz.values import Target, Values
from tests.drills.fuzz.wire_peer import PeerCounts
from tests.support.bad_requests import BAD_REQUESTS
from tests.support.grpc_requests import raw_call
from tests.support.recordings import TRANSCRIPTS

calls_together: Final = 12
call_time_max_s: Final = 60.0
segments_max: Final = 8
"""Segments of a stream that a mutated request asks for, unless it asks for what no controller gives: a drill must not
spend its time on making segments."""
_COUNTS: Final = (0, -1, 1, 2, segments_max, 4_501, 2**31 - 1, -(2**31))
_COUNT_FIELDS: Final = ("minNumSegments", "partitionCount")
_FILES: Final = (
    *(controller_pb2, transaction_sets_pb2, commit_operations_pb2),
    *(scope_quotas_pb2, cluster_health_pb2, stream_lags_pb2),
)
nesting_max: Final = 4


@functools.cache
def methods() -> Mapping[str, Descriptor]:
    """The messages of all calls, by the paths of the calls."""
    return {
        f"/{service.full_name}/{method.name}": method.input_type
        for file in _FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


@functools.cache
def recorded() -> Mapping[str, tuple[bytes, ...]]:
    """Real requests, by the names of their calls, and those of the tests that ask for what cannot be."""
    found: dict[str, dict[bytes, None]] = {}
    for path in sorted(TRANSCRIPTS.glob("*.grpc.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            found.setdefault(entry["method"], {})[bytes.fromhex(entry["request_hex"])] = None
    for bad in BAD_REQUESTS:
        data = bad.request.SerializeToString(deterministic=True)
        if len(data) < 10_000:
            found.setdefault(bad.method, {})[data] = None
    return {method: tuple(requests) for method, requests in found.items()}


_FAILURES: Final = ("INTERNAL", "UNKNOWN", "DATA_LOSS")
"""Statuses that say that it is the server's fault."""


class CallMaker:
    """Makes mutated calls; the same for the same seed and target."""

    def __init__(self, seed: str, target: Target) -> None:
        self._chooser = random.Random(seed)
        self._values = Values(self._chooser, target)

    def call(self) -> tuple[str, bytes]:
        """The path of a call, and the bytes of its request."""
        chooser = self._chooser
        path = chooser.choice(tuple(methods()))
        self._values.is_ending = any(word in path.lower() for word in ("seal", "delete", "truncate"))
        message: Any = message_factory.GetMessageClass(methods()[path])()
        real = recorded().get(path.rpartition("/")[2])
        if real:
            message.ParseFromString(chooser.choice(real))
        self._aim(message)
        for _ in range(chooser.choice((0, 1, 1, 2, 3))):
            self._mutate(message)
        data = message.SerializeToString(deterministic=True)
        return path, self._mangled(data, message) if chooser.random() < 0.1 else data

    def _aim(self, message: Message, depth: int = 0) -> None:
        """Name streams and scopes of this cluster wherever the message names any."""
        fields: Iterable[Any] = message.DESCRIPTOR.fields
        for field in fields:
            if field.is_repeated or depth > nesting_max:
                continue
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                if message.HasField(field.name) or depth < 2:
                    self._aim(getattr(message, field.name), depth + 1)
            elif field.type == FieldDescriptor.TYPE_STRING and self._chooser.random() < 0.9:
                self._set(message, field)
            elif field.name in _COUNT_FIELDS:
                setattr(message, field.name, self._chooser.choice(_COUNTS[:5]))

    def _mutate(self, message: Message, depth: int = 0) -> None:
        fields: Sequence[Any] = message.DESCRIPTOR.fields
        if not fields:
            return
        field = self._chooser.choice(fields)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            self._mutate_inner(message, field, depth)
        elif field.is_repeated:
            items = getattr(message, field.name)
            items.extend(self._value(field) for _ in range(self._chooser.choice((1, 2, 130))))
        else:
            self._set(message, field)

    def _mutate_inner(self, message: Message, field: Any, depth: int) -> None:
        chooser, inner = self._chooser, getattr(message, field.name)
        if field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            if value.type == FieldDescriptor.TYPE_MESSAGE:
                self._mutate(inner[self._value(key)])
            else:
                for _ in range(chooser.choice((1, 2, 40))):
                    inner[self._value(key)] = self._value(value)
        elif chooser.random() < 0.15:
            message.ClearField(field.name)
        elif field.is_repeated:
            for _ in range(chooser.choice((1, 2, 20))):
                self._mutate(inner.add(), depth + 1)
        elif depth < nesting_max:
            self._mutate(inner, depth + 1)

    def _set(self, message: Message, field: Any) -> None:
        setattr(message, field.name, self._value(field))

    def _value(self, field: Any) -> Any:
        values, chooser, kind = self._values, self._chooser, field.cpp_type
        if field.name in _COUNT_FIELDS:
            return chooser.choice(_COUNTS)
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return values.data()
            name = field.name.lower()
            return values.scope() if "scope" in name else values.token() if "token" in name else values.stream()
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return chooser.choice(field.enum_type.values).number if chooser.random() < 0.8 else values.integer(16)
        if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32):
            return values.integer(64 if kind == FieldDescriptor.CPPTYPE_INT64 else 32)
        if kind in (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_UINT32):
            return abs(values.integer(31))
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return chooser.random() < 0.5
        return chooser.choice((0.0, 0.5, 1.0, -1.0, 1e308, float("inf"), float("nan"), chooser.random()))

    def _mangled(self, data: bytes, message: Message) -> bytes:
        """The bytes with some changed, cut off or put in; as they are if that made an expensive request of them."""
        chooser, made = self._chooser, bytearray(data)
        what = chooser.randrange(3)
        if what == 0:
            del made[chooser.randrange(len(made) + 1) :]
        elif what == 1:
            place = chooser.randrange(len(made) + 1)
            made[place:place] = self._values.data()
        else:
            for _ in range(min(len(made), 4)):
                made[chooser.randrange(len(made))] = chooser.getrandbits(8)
        return data if _is_expensive(bytes(made), message) else bytes(made)


def _is_expensive(data: bytes, message: Any) -> bool:
    """Whether it asks for many segments."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        return False
    policy = getattr(message, "scalingPolicy", None)
    counts = (0 if policy is None else policy.minNumSegments, getattr(message, "partitionCount", 0))
    return any(segments_max < count <= 4_500 for count in counts)


class GrpcPeer:
    """One peer of a controller. ``header``: its credentials, empty for an anonymous one."""

    def __init__(self, seed: str, address: str, target: Target, header: str) -> None:
        self._maker = CallMaker(seed, target)
        self._chooser = random.Random(f"{seed}-headers")
        self._address = address
        self._header = header
        self.counts = PeerCounts(connections=1)

    async def run(self, calls: int) -> PeerCounts:
        """Make so many calls."""
        async with grpc.aio.insecure_channel(self._address) as channel:
            left = iter(range(calls))
            await asyncio.gather(*(self._worker(channel, left) for _ in range(calls_together)))
        return self.counts

    async def _worker(self, channel: grpc.aio.Channel, left: Any) -> None:
        for _ in left:
            path, data = self._maker.call()
            try:
                await raw_call(channel, path)(data, timeout=call_time_max_s, metadata=self._metadata())
                answer = "OK"
            except grpc.aio.AioRpcError as error:
                answer = error.code().name
                if answer in _FAILURES:
                    self.counts.note_failure(f"{path} {answer}: {error.details()}")
            self.counts.handled += answer not in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
            self.counts.stalled += answer == "DEADLINE_EXCEEDED"
            # Which call it was that nobody answered is what one has to know next.
            self.counts.note(f"{answer} of {path}" if answer == "DEADLINE_EXCEEDED" else answer)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", header),) if (header := header_of(self._header, self._chooser)) else ()


def header_of(header: str, chooser: random.Random) -> str:
    """The credentials to send: the peer's own, or rarely wrong ones, which take a second to be refused."""
    if chooser.random() > 0.002:
        return header
    wrong = base64.b64encode(b"admin:guessed").decode()
    return chooser.choice((f"Basic {wrong}", "Basic !!", "Bearer eyJ.a.b", "Negotiate", "x" * 5_000))
