"""Our answers to every recorded table request, against those of a real Pravega 0.13.0.

Left out: what docs/wire-protocol.md 2.2 calls arbitrary (order of a hash table, continuation tokens, texts of errors,
pages of a fixed-key table that overshoot, its entry count), and delta pages that end early: ours never contain a value
that a later record replaced.
"""

from __future__ import annotations

from typing import Any

import pytest

from pravega_common.wire import commands
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.recordings import TRANSCRIPTS
from tests.unit.segment_service.tables.replay import Exchange, replay

RECORDINGS = ("probe-wire.wire.jsonl", "py-rgread.wire.jsonl", "java-kvt.wire.jsonl")
KVT_SEGMENTS = ("jscope/kv_kvtable/0.#epoch.0", "jscope/kv_kvtable/1.#epoch.0")


def entries_of(reply: Any) -> list[tuple[bytes, int, bytes]]:
    if isinstance(reply, commands.TableKeysRead):
        return [(bytes(key.key), key.version, b"") for key in reply.keys]
    return [(bytes(entry.key.key), entry.key.version, bytes(entry.value)) for entry in reply.entries]


def check_delta(exchange: Exchange) -> None:
    if exchange.recorded.reached_end:
        assert sorted(entries_of(exchange.ours)) == sorted(entries_of(exchange.recorded)), exchange
        assert exchange.ours.should_clear == exchange.recorded.should_clear
        assert exchange.ours.reached_end == exchange.recorded.reached_end
        assert exchange.ours.last_position == exchange.recorded.last_position


def check_page(exchange: Exchange) -> None:
    if exchange.request.continuation_token:
        return
    recorded, ours = entries_of(exchange.recorded), entries_of(exchange.ours)
    assert bool(exchange.ours.continuation_token) == bool(exchange.recorded.continuation_token), exchange
    if exchange.request.from_key:
        assert recorded[: len(ours)] == ours, exchange
    elif len(ours) == len(recorded) and len(ours) > 1:
        assert sorted(recorded) == sorted(ours), exchange


def check(exchange: Exchange) -> None:
    recorded, ours = exchange.recorded, exchange.ours
    assert type(ours) is type(recorded), exchange
    if isinstance(recorded, commands.TableEntriesDeltaRead):
        check_delta(exchange)
    elif isinstance(recorded, commands.TableKeysRead | commands.TableEntriesRead):
        check_page(exchange)
    elif isinstance(recorded, commands.TableSegmentInfo):
        assert (ours.start_offset, ours.length, ours.key_length) == (0, recorded.length, recorded.key_length)
        assert recorded.key_length or ours.entry_count == recorded.entry_count
    elif isinstance(recorded, commands.ErrorMessage):
        assert ours.error_code == recorded.error_code, exchange
    elif not isinstance(recorded, commands.OperationUnsupported):
        assert ours == recorded, exchange


@pytest.mark.parametrize("file", RECORDINGS)
async def test_answers_as_recorded(file: str) -> None:
    tables = TableExtension(InMemorySegmentStore())
    if file.startswith("java-kvt"):
        for segment in KVT_SEGMENTS:
            await tables.create_table(segment, key_length=8)
    compared = 0
    for exchange in await replay(TRANSCRIPTS / file, tables):
        is_foreign_continuation = bool(getattr(exchange.request, "continuation_token", b""))
        if exchange.recorded is None or is_foreign_continuation:
            continue
        check(exchange)
        compared += 1
    assert compared > 20
