"""Makes mutated frames of the wire protocol: from real ones, field by field, then byte by byte."""

from __future__ import annotations

import contextlib
import functools
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pravega_common.errors import InvalidArgument
from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import COMMANDS, Command, WireAttributeUpdate, WireTableEntry, WireTableKey
from pravega_common.wire.errors import TooManyItems, WireDecodeError
from tests.drills.fuzz.values import Target, Values
from tests.support.recordings import all_wire_frames

GOLDEN: Final = Path(__file__).parents[2] / "data" / "wire" / "commands.hex"
_APPENDS: Final = (wire.AppendBlock, wire.AppendBlockEnd, wire.ConditionalAppend, wire.ConditionalBlockEnd)
_REQUESTS: Final = (
    *_APPENDS,
    wire.Padding,
    wire.SetupAppend,
    wire.ReadSegment,
    wire.GetStreamSegmentInfo,
    wire.GetSegmentLengths,
    wire.CreateSegment,
    wire.SealSegment,
    wire.DeleteSegment,
    wire.UpdateSegmentPolicy,
    wire.GetSegmentAttribute,
    wire.UpdateSegmentAttribute,
    wire.TruncateSegment,
    wire.CreateTransientSegment,
    wire.LocateOffset,
    wire.MergeSegments,
    wire.MergeSegmentsBatch,
    wire.GetTableSegmentInfo,
    wire.CreateTableSegment,
    wire.DeleteTableSegment,
    wire.UpdateTableEntries,
    wire.RemoveTableKeys,
    wire.ReadTable,
    wire.ReadTableKeys,
    wire.ReadTableEntries,
    wire.ReadTableEntriesDelta,
    wire.RequestBatch,
    wire.KeepAlive,
)
"""What a port serves; all other types end the connection."""
_BATCHED: Final = (wire.GetStreamSegmentInfo, wire.CreateSegment, wire.SealSegment, wire.TruncateSegment)
frames_per_batch_max: Final = 64
writers_max: Final = 4
"""Ids of writers that one maker uses: each stays in a segment as an attribute."""
_HEADER: Final = struct.Struct(">ii")


@dataclass(frozen=True)
class Batch:
    """Frames for one connection. ``last``: the one behind them that ends the connection, empty for none."""

    frames: tuple[bytes, ...]
    last: bytes
    keep_alives: int
    """Frames that the server sends back, in order: each is an echo."""


@functools.cache
def corpus() -> tuple[Command, ...]:
    """Real commands: the golden ones of every type, and the recorded requests of every kind."""
    golden = [bytes.fromhex(line.split()[1]) for line in GOLDEN.read_text().splitlines()]
    found = [codec.decode_frame(frame) for frame in golden]
    for frame in all_wire_frames():
        if frame.is_request and frame.type_code in COMMANDS and not frame.is_cut_short:
            with contextlib.suppress(WireDecodeError):  # some were sent to see what a server says to them
                found.append(codec.decode(frame.type_code, memoryview(frame.payload)))
    return tuple(dict.fromkeys(found))


@functools.cache
def requests_by_type() -> tuple[tuple[Command, ...], ...]:
    """Real requests, by their type: each type is as likely as any other."""
    return tuple(tuple(one for one in corpus() if type(one) is kind) for kind in _REQUESTS)


class FrameMaker:
    """Makes batches of mutated frames; the same for the same seed and target."""

    def __init__(self, seed: str, target: Target) -> None:
        self._chooser = random.Random(seed)
        self._values = Values(self._chooser, target)
        self._writers = [self._chooser.randbytes(16) for _ in range(writers_max)]
        self._event_number = 0

    def batch(self) -> Batch:
        chooser, keep_alives = self._chooser, 0
        frames: list[bytes] = []
        writers = [self._set_up(frames) for _ in range(chooser.choice((0, 1, 2)))]
        for _ in range(chooser.randrange(1, frames_per_batch_max)):
            for frame in self._next(writers):
                if ends_connection(frame):
                    return Batch(tuple(frames), frame, keep_alives)
                frames.append(frame)
                keep_alives += _HEADER.unpack_from(frame)[0] == wire.KeepAlive.type_code
        return Batch(tuple(frames), b"", keep_alives)

    def _set_up(self, frames: list[bytes]) -> bytes:
        """Set a writer up, mostly as its owner would; returns its id."""
        chooser, values = self._chooser, self._values
        segment, writer_id = values.segment(), chooser.choice(self._writers)
        if chooser.random() < 0.9:
            segment = values.own_segment()
        elif chooser.random() < 0.5:
            writer_id = values.identifier()
        frames.append(
            codec.encode(wire.SetupAppend(chooser.getrandbits(40), writer_id, segment, values.token(segment)))
        )
        return writer_id

    def _next(self, writers: list[bytes]) -> list[bytes]:
        """One frame; or a block and its end, as little else may stand between the two."""
        chooser = self._chooser
        if chooser.random() < 0.01:
            return [self._mangled_bytes(self._encoded(chooser.choice(corpus())))]
        kinds = requests_by_type()
        command: Any = chooser.choice(chooser.choice(kinds if writers else kinds[len(_APPENDS) + 1 :]))
        made: Any = self.mutated(command)
        frames = [made]
        if writers and isinstance(made, _APPENDS):
            frames = self._appends(command if chooser.random() < 0.8 else made, chooser.choice(writers))
        encoded = [self._encoded(frame) for frame in frames]
        if chooser.random() < 0.03:
            encoded[-1] = self._mangled_bytes(encoded[-1])
        return encoded

    def _appends(self, command: Any, writer_id: bytes) -> list[Any]:
        """An append as its writer could send it, with a number above the earlier ones."""
        chooser = self._chooser
        self._event_number += chooser.choice((1, 1, 1, 2, 100))
        number, request_id = self._event_number, chooser.getrandbits(40)
        event = _HEADER.pack(0, 8) + b"mutated!"
        if isinstance(command, wire.AppendBlock):
            data = event * chooser.choice((1, 2, 50))
            events = 1 if chooser.random() < 0.98 else self._values.integer(16)
            rest = event[: chooser.choice((0, 0, 5))]
            end = wire.AppendBlockEnd(writer_id, len(data), rest, events, number, request_id)
            return [wire.AppendBlock(writer_id, data), end]
        if isinstance(command, wire.AppendBlockEnd):
            return [wire.AppendBlockEnd(writer_id, len(event), event, 1, number, request_id)]
        fields: dict[str, Any] = {"writer_id": writer_id, "event_number": number, "request_id": request_id}
        if chooser.random() < 0.9:
            fields["expected_offset"] = chooser.choice((0, 16, 2**40))
        return [command.with_fields(**fields)]

    def mutated(self, command: Command) -> Command:
        """The command about segments of this cluster, with up to three of its fields hostile."""
        values, chooser = self._values, self._chooser
        fields: dict[str, Any] = {}
        values.is_ending = isinstance(command, wire.SealSegment | wire.TruncateSegment)
        about = values.segment()
        for name, kind in command.layout:
            if name == "token":
                fields[name] = values.token(about)
            elif name in ("segment", "parent_segment", "target"):
                fields[name] = about
            elif name == "requests":
                fields[name] = values.some(self._inner_frame)
            elif kind.name == "str":
                fields[name] = values.segment()
            elif name == "request_id":
                fields[name] = chooser.getrandbits(40)
        for _ in range(chooser.choice((0, 1, 1, 2, 3))):
            if command.layout:
                name, kind = chooser.choice(command.layout)
                if name != "requests":
                    fields[name] = self._value(kind.name)
        return command.with_fields(**fields)

    def _inner_frame(self) -> bytes:
        kinds = requests_by_type()
        if self._chooser.random() < 0.99:
            kinds = tuple(kinds[_REQUESTS.index(kind)] for kind in _BATCHED)
        return self._encoded(self.mutated(self._chooser.choice(self._chooser.choice(kinds))))

    def _value(self, kind: str) -> Any:
        values, chooser = self._values, self._chooser
        makers: Mapping[str, Callable[[], Any]] = {
            "i8": lambda: values.integer(8),
            "bool": lambda: chooser.random() < 0.5,
            "i32": lambda: values.integer(32),
            "i64": lambda: values.integer(64),
            "flags": lambda: values.integer(64),
            "uuid": values.identifier,
            "str": lambda: chooser.choice((values.name(), values.segment(), values.token())),
            "keys": lambda: values.some(self._key),
            "entries": lambda: values.some(lambda: WireTableEntry(self._key(), values.data())),
            "strings": lambda: values.some(values.segment),
            "updates": lambda: values.some(self._update),
            "versions": lambda: values.some(lambda: values.integer(64)),
        }
        return makers.get(kind, values.data)() if kind not in ("merged", "chunks", "frames") else ()

    def _key(self) -> WireTableKey:
        key = self._chooser.choice((b"", b"k", b"key-1", b"key-2", b"key-3", b"k" * 4_097, self._values.data()))
        return WireTableKey(key, self._values.integer(64))

    def _update(self) -> WireAttributeUpdate:
        values = self._values
        return WireAttributeUpdate(values.identifier(), values.integer(8), values.integer(64), values.integer(64))

    def _encoded(self, command: Command) -> bytes:
        try:
            return codec.encode(command)
        except InvalidArgument:
            # A value that no frame can carry: the smallest frame that says something about a segment.
            return codec.encode(wire.GetStreamSegmentInfo(1, self._values.segment()[:100], ""))

    def _mangled_bytes(self, frame: bytes) -> bytes:
        """The frame with another type, another length, or bytes changed, cut off or put in."""
        chooser = self._chooser
        type_code, length = _HEADER.unpack_from(frame)
        payload = bytearray(frame[8:])
        what = chooser.randrange(6)
        if what == 0:
            return _HEADER.pack(chooser.choice((*COMMANDS, self._values.integer(32))), length) + payload
        if what == 1:
            return _HEADER.pack(type_code, self._values.integer(32)) + payload
        if what == 2 and payload:
            del payload[chooser.randrange(len(payload)) :]
        elif what == 3:
            place = chooser.randrange(len(payload) + 1)
            payload[place:place] = self._values.data()
        else:
            for _ in range(min(len(payload), chooser.choice((1, 1, 2, 8)))):
                payload[chooser.randrange(len(payload))] = chooser.getrandbits(8)
        return _HEADER.pack(type_code, len(payload)) + payload


def ends_connection(frame: bytes) -> bool:
    """Whether a server has to end the connection at this frame, or waits for more of it."""
    type_code, length = _HEADER.unpack_from(frame)
    if length != len(frame) - _HEADER.size or COMMANDS.get(type_code) not in _REQUESTS:
        return True
    try:
        codec.decode(type_code, memoryview(frame)[_HEADER.size :], frames_per_batch_max)
    except TooManyItems:
        return False
    except WireDecodeError:
        return True
    return False
