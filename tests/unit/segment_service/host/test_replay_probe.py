"""The recorded probe of a real store, replayed against ours: same requests, same order, same answers."""

from __future__ import annotations

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    ErrorMessage,
    LocateOffset,
    OffsetLocated,
    OperationUnsupported,
    SegmentsBatchMerged,
    TableEntriesDeltaRead,
    TableKeysRead,
    UpdateTableEntries,
    WireTableEntry,
    WireTableKey,
)
from segment_service.host.listener import WireServer
from tests.support.recordings import TRANSCRIPTS, RecordedFrame, frames_of
from tests.support.wire_client import WireClient
from tests.unit.segment_service.host.comparison import comparable

PROBE = TRANSCRIPTS / "probe-wire.wire.jsonl"
HASH_TABLE = "prbw/h_kvtable/0.#epoch.0"
# Recorded frames that are cut short, rebuilt: a key and a value one byte over their limits.
LONG_FRAMES = {
    294: UpdateTableEntries(1, HASH_TABLE, "", (WireTableEntry(WireTableKey(b"k" * 8193), b"v"),)),
    301: UpdateTableEntries(1, HASH_TABLE, "", (WireTableEntry(WireTableKey(b"k"), b"v" * (1024 * 1024 - 8192 + 1)),)),
}
# The recorded store (0.13) did not know LocateOffset and closed the connection; later ones answer.
LOCATE_OFFSET_LINE = 114
# A fixed-key table answered 5 keys for a suggested 2; ours stops at 2.
OVERSHOT_PAGE_LINE = 266
# Pages of a hash table: the order of its keys is every server's own, so only all pages together are comparable.
HASH_PAGE_LINES = (240, 242)
# A batch with a source that was merged before: a real store answers the present length of the target, ours the
# length just after that merge.
MERGED_AGAIN_LINE = 167
# A delta of two entries over a log with a superseded one: a store may leave that one out, it is gone by the next page.
DELTA_PAGE_LINE = 216
# A value one byte above the limit, which the recorded store let through and ours names.
LONG_VALUE_LINE = 302
# A writer on the segment of a table, which a real store sets up; ours refuses it, see its README.
TABLE_WRITER_LINE = 313
# Before this close the probe announced a frame of 0xFFFFFF bytes, which the recording holds no frame for.
OVERSIZED_FRAME_LINE = 341


class Replay:
    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: dict[int, WireClient] = {}
        self.closed: set[int] = set()
        self.compared = 0
        self.paged_keys: set[WireTableKey] = set()
        # Continuation tokens are ours to choose: a recorded one is replaced by the one that we gave in its place.
        self.tokens: dict[bytes, bytes] = {}

    async def request(self, frame: RecordedFrame) -> None:
        if frame.type_code is None:
            if frame.connection in self.clients and frame.connection not in self.closed:
                self.closed.add(frame.connection)
                await self.clients[frame.connection].close()
            return
        if frame.connection not in self.clients:
            self.clients[frame.connection] = await WireClient.connect(self.port, greet=False)
        client = self.clients[frame.connection]
        payload = frame.payload
        if frame.line in LONG_FRAMES:
            payload = codec.encode(LONG_FRAMES[frame.line])[8:]
        for recorded, given in self.tokens.items():
            payload = payload.replace(
                len(recorded).to_bytes(4, "big") + recorded, len(given).to_bytes(4, "big") + given
            )
        client.send_raw(codec.frame_header(frame.type_code, len(payload)) + payload)

    async def reply(self, frame: RecordedFrame) -> None:
        client = self.clients.get(frame.connection)
        if client is None or frame.connection in self.closed:
            return
        if frame.type_code is None:
            self.closed.add(frame.connection)
            if frame.line == OVERSIZED_FRAME_LINE:
                client.send_raw(codec.frame_header(3, 0xFFFFFF))
            assert await client.closed_by_server() == [], frame
            self.compared += 1
            return
        expected = codec.decode(frame.type_code, memoryview(frame.payload))
        actual = await client.reply()
        self.compared += 1
        if frame.line == OVERSHOT_PAGE_LINE:
            assert isinstance(actual, TableKeysRead) and isinstance(expected, TableKeysRead)
            assert actual.keys == expected.keys[:2]
            return
        if frame.line == MERGED_AGAIN_LINE:
            assert isinstance(actual, SegmentsBatchMerged) and isinstance(expected, SegmentsBatchMerged)
            assert (*actual.merged[:2], actual.merged[2].source) == (*expected.merged[:2], expected.merged[2].source)
            assert actual.merged[2].new_target_write_offset == 11
            return
        if frame.line == DELTA_PAGE_LINE:
            assert isinstance(actual, TableEntriesDeltaRead)
            assert (len(actual.entries), actual.should_clear, actual.reached_end) == (2, False, False)
            return
        if frame.line == LONG_VALUE_LINE and isinstance(actual, ErrorMessage):
            assert "1040385" in actual.message
            return
        if frame.line == TABLE_WRITER_LINE and isinstance(actual, OperationUnsupported):
            assert actual.operation_name == "setupAppend"
            return
        if frame.line in HASH_PAGE_LINES:
            assert isinstance(actual, TableKeysRead) and isinstance(expected, TableKeysRead)
            assert len(actual.keys) == len(expected.keys)
            self.paged_keys ^= {*actual.keys} ^ {*expected.keys}
        else:
            assert comparable(actual) == comparable(expected), frame
        if isinstance(expected, TableKeysRead) and isinstance(actual, TableKeysRead) and expected.continuation_token:
            self.tokens[expected.continuation_token] = actual.continuation_token


async def test_the_probe_gets_the_recorded_answers(any_server: WireServer) -> None:
    replay = Replay(any_server.port)
    for frame in frames_of(PROBE):
        if frame.line == LOCATE_OFFSET_LINE:
            request = codec.decode(LocateOffset.type_code, memoryview(frame.payload))
            located = await replay.clients[frame.connection].call(request, OffsetLocated)
            assert located.offset == 55
            replay.closed.add(frame.connection)
            await replay.clients[frame.connection].close()
        elif frame.is_request:
            await replay.request(frame)
        else:
            await replay.reply(frame)
    assert replay.compared > 160
    assert not replay.paged_keys
    for client in replay.clients.values():
        await client.close()
