"""Compares a controller's records with the segments that exist."""

from __future__ import annotations

from controller_service.queue.table_request_queue import REQUESTS_TABLE
from controller_service.segment_access.second_deletion import KIND
from controller_service.service import Controller
from controller_service.store.members import key_value_tables
from controller_service.store.records import (
    CONFIGURATION,
    TRANSITION,
    TRUNCATION,
    EpochRecord,
    StreamState,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.retained_streams import is_retained
from controller_service.store.scope_counts import COUNTS_TABLE, StreamUseRecord
from controller_service.store.scope_store import list_table_name
from controller_service.store.serializer import decode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import VersionedStore
from pravega_common.errors import StreamNotFound
from pravega_common.model.scope_quota import ScopeUse
from pravega_common.names import MARK_PREFIX, SYSTEM_SCOPE, is_transaction_segment, segment_name
from tests.support.fakes.segment_access import InMemorySegmentAccess


async def requests_left(tables: VersionedStore) -> int:
    """Those that wait by design, to delete segments a second time, are left out."""
    return len([key for key, _ in (await tables.scan(REQUESTS_TABLE)).entries if f"/{KIND}-" not in key])


async def audit(controller: Controller, access: InMemorySegmentAccess) -> None:
    """Every stream of a controller at rest."""
    await audit_streams(controller.store, access)


async def audit_streams(store: StreamStore, access: InMemorySegmentAccess) -> None:
    """Every stream at rest: states, epochs, sealed and deleted segments, and the index of those that have a retention
    policy. Fails on the first contradiction.

    Segments of transactions are left out.
    """
    expected: dict[str, bool] = {}
    retained = {(scope, stream) async for page in store.retained.pages() for scope, stream, _, _ in page}
    scopes, _ = await store.list_scopes()
    for scope in scopes:
        if scope == SYSTEM_SCOPE:
            continue
        streams, _ = await store.list_streams(scope)
        for stream, entry in streams:
            try:
                context = await store.open(scope, stream, TRANSITION, TRUNCATION)
            except StreamNotFound:
                raise AssertionError(f"{scope}/{stream} is listed and has no records") from None
            configuration = (await context.configuration()).configuration
            assert configuration.tags == entry.tags
            if stream.startswith(MARK_PREFIX):
                owner = stream.removeprefix(MARK_PREFIX)
                assert await store.entry(scope, owner) is not None, f"{scope}/{owner} is gone, its mark stream is not"
            if is_retained(configuration) and await context.state() is not StreamState.SEALED:
                assert (scope, stream) in retained, f"no run of retention would look at {scope}/{stream}"
            expected |= await _audit_stream(context, store.tables)
        await _audit_counts(store, scope, [stream for stream, _ in streams])
    found = {name: item.is_sealed for name, item in access.segments.items() if not is_transaction_segment(name)}
    difference = set(found.items()) ^ set(expected.items())
    assert not difference, f"segments that differ from the records: {sorted(difference)}"


async def _audit_counts(store: StreamStore, scope: str, streams: list[str]) -> None:
    """What counts against a quota is what there is."""
    record = await store.usable_scope(scope)
    if record.quota is None:
        return
    assert record.is_counted
    expected = {}
    for stream in streams:
        if not stream.startswith(MARK_PREFIX):
            context = await store.open(scope, stream)
            expected[context.stream_id] = (stream, len((await context.current_epoch()).segments))
    tables = (await key_value_tables(store).page(scope))[0]
    table = list_table_name(scope, record.scope_id, COUNTS_TABLE)
    entries = dict((await store.tables.scan(table)).entries)
    total = entries.pop("total", None)
    found = {key: decode(StreamUseRecord, value.value) for key, value in entries.items()}
    assert {key: (one.stream, one.segments) for key, one in found.items() if one.segments} == {
        **{f"stream/{stream_id}": counted for stream_id, counted in expected.items()},
        **{f"table/{one.table_id}": (name, one.partition_count) for name, one in tables},
    }
    use = ScopeUse() if total is None else decode(ScopeUse, total.value)
    in_tables = sum(one.partition_count for _, one in tables)
    assert use == ScopeUse(len(expected), in_tables + sum(segments for _, segments in expected.values()))


async def _audit_stream(context: StreamContext, tables: VersionedStore) -> dict[str, bool]:
    """Names of the segments that must exist, and whether each must be sealed."""
    state = await context.state()
    assert state in (StreamState.ACTIVE, StreamState.SEALED), f"{context.name} is left {state}"
    assert (await context.transition()).is_empty
    truncation = await context.truncation()
    assert not truncation.updating
    configuration = await context.read(CONFIGURATION)
    assert configuration is not None
    current = await context.current_epoch()
    oldest = (await context.history()).oldest_epoch
    epochs = [epoch async for epoch in context.walk_epochs(range(oldest, current.epoch + 1))]
    assert epochs[-1] == current
    for epoch in epochs:
        _check_cover(epoch)
    gone = _before_head(epochs, truncation.cut)
    names: dict[str, bool] = {}
    for epoch in epochs:
        for segment in epoch.segments:
            identifier = segment.segment_id
            if identifier in gone:
                continue
            is_active = current.find(identifier) is not None
            record = await context.read(sealed_segment_key(identifier))
            assert (record is None) == is_active
            assert record is None or record.size >= 0
            names[segment_name(context.scope, context.stream, identifier)] = (
                not is_active or state is StreamState.SEALED
            )
    await _check_removed(context, tables, epochs)
    return names


async def _check_removed(context: StreamContext, tables: VersionedStore, epochs: list[EpochRecord]) -> None:
    """There are records of the epochs that are on record and of their segments, and of none before, apart from those
    that a later run still has to remove."""
    known = {epoch_key(epoch.epoch).name for epoch in epochs}
    known |= {sealed_segment_key(identifier).name for epoch in epochs for identifier in epoch.segment_ids}
    found: set[str] = set()
    token = b""
    while True:
        page = await tables.scan(context.metadata_table, token, 1_000)
        found |= {key for key, _ in page.entries if key.startswith(("epoch/", "sealed/"))}
        token = page.continuation
        if not token:
            break
    history = await context.history()
    assert {epoch_key(epoch.epoch).name for epoch in epochs} <= found
    assert history.removed_till < history.oldest_epoch or found <= known, sorted(found - known)


def _check_cover(epoch: EpochRecord) -> None:
    edge = 0.0
    for segment in epoch.segments:
        assert segment.key_start == edge
        edge = segment.key_end
    assert edge == 1.0


def _before_head(epochs: list[EpochRecord], cut: dict[int, int]) -> set[int]:
    segments = {segment.segment_id: segment for epoch in epochs for segment in epoch.segments}
    return {
        identifier
        for identifier, segment in segments.items()
        if identifier not in cut and any(segment.overlaps(segments[other]) and identifier < other for other in cut)
    }
