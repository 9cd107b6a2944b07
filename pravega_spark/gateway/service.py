"""Implements the gateway to a running Pravega cluster, over ``pravega_streams``."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pravega_common.names import is_internal_stream, segment_name
from pravega_common.runtime.made_once import MadeOnce
from pravega_streams.batch.range_reader import RangeReader, ReadSockets
from pravega_streams.client import StreamClient
from pravega_streams.connection.endpoints import Endpoint

if TYPE_CHECKING:
    from pravega_common.model.reader_groups import GroupRegistration
    from pravega_common.model.segments import SegmentInfo, SegmentOffsets, SegmentRange, Successor
    from pravega_common.model.stream_configuration import StreamConfiguration
    from pravega_common.model.transaction_sets import Registration, SetDecision, Sink, TransactionSet
    from pravega_common.model.transactions import NewTransaction
    from pravega_spark.gateway.contract import RangeSource, SegmentWriter
    from pravega_spark.ledger.batch import BatchCommit, BatchRegistration
    from pravega_spark.ledger.coordinator import TransactionCoordinator
    from pravega_streams.batch.pipelined_calls import PipelinedCalls
    from pravega_streams.controller.address import Controller
    from pravega_streams.controller.client import ControllerClient
    from pravega_streams.controller.reader_groups import ReaderGroupClient
    from pravega_streams.credentials import Credentials
    from pravega_streams.event.block_writer import BlockWriters
    from pravega_streams.segment.event_index import EventIndex
    from pravega_streams.segment.segment_client import SegmentClient
    from pravega_streams.segment.tail_watch import TailWatch


class ServiceGateway:
    """See ``StreamGateway``. ``controller``: as of ``StreamClient``.

    Each part is imported when it is first used: planners, readers and writers are processes of their own, often short.
    """

    def __init__(self, controller: Controller) -> None:
        self._client = StreamClient(controller)
        self._sockets = ReadSockets()

    @property
    def _controller(self) -> ControllerClient:
        return self._client.controller

    @property
    def _segments(self) -> SegmentClient:
        return self._client.segments

    @MadeOnce
    def _groups(self) -> ReaderGroupClient:
        from pravega_streams.controller.reader_groups import ReaderGroupClient

        return ReaderGroupClient(self._controller.transport)

    @MadeOnce
    def _coordinator(self) -> TransactionCoordinator:
        from pravega_spark.ledger.coordinator import TransactionCoordinator

        return TransactionCoordinator(self._client)

    @MadeOnce
    def _writers(self) -> BlockWriters:
        from pravega_streams.event.block_writer import BlockWriters

        return BlockWriters(self._segments.endpoints)

    @MadeOnce
    def _pipelined(self) -> PipelinedCalls:
        from pravega_streams.batch.pipelined_calls import PipelinedCalls

        return PipelinedCalls(self._segments.endpoints, self._sockets)

    @property
    def credentials(self) -> Credentials | None:
        return self._client.address.credentials

    def cluster_time_ms(self) -> int | None:
        return self._controller.time_ms()

    def create_scope(self, scope: str) -> bool:
        return self._controller.create_scope(scope)

    def scope_exists(self, scope: str) -> bool:
        return self._controller.scope_exists(scope)

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        return self._controller.create_stream(scope, stream, configuration)

    def stream_exists(self, scope: str, stream: str) -> bool:
        return self._controller.stream_exists(scope, stream)

    def list_streams(self, scope: str) -> list[str]:
        return sorted(name for name in self._controller.list_streams(scope) if not is_internal_stream(scope, name))

    def scale_stream(
        self, scope: str, stream: str, sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> list[SegmentRange]:
        return self._controller.scale_stream(scope, stream, sealed, new_ranges)

    def truncate_stream(self, scope: str, stream: str, cut: SegmentOffsets) -> None:
        self._controller.truncate_stream(scope, stream, dict(cut))

    def seal_stream(self, scope: str, stream: str) -> None:
        self._controller.seal_stream(scope, stream)

    def delete_stream(self, scope: str, stream: str) -> None:
        self._controller.delete_stream(scope, stream)

    def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        return self._client.head_cut(scope, stream)

    def tail_cut(self, scope: str, stream: str) -> SegmentOffsets:
        return self._client.tail_cut(scope, stream)

    def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        return self._controller.current_segments(scope, stream)

    def epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentRange]:
        return self._controller.epoch_segments(scope, stream, epoch)

    def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        return self._controller.segments_between(scope, stream, dict(start), dict(end))

    def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        return self._controller.successors(scope, stream, segment_id)

    def segment_info(self, scope: str, stream: str, segment_id: int) -> SegmentInfo:
        return self._segments.info(segment_name(scope, stream, segment_id))

    def segment_infos(self, scope: str, stream: str, segment_ids: Iterable[int]) -> dict[int, SegmentInfo]:
        return self._client.segment_infos(scope, stream, segment_ids)

    def segment_infos_of_streams(
        self, segment_ids: Mapping[tuple[str, str], Iterable[int]]
    ) -> dict[tuple[str, str], dict[int, SegmentInfo]]:
        named = {stream: {item: segment_name(*stream, item) for item in ids} for stream, ids in segment_ids.items()}
        found = self._segments.infos(name for names in named.values() for name in names.values())
        return {
            stream: {item: found[name] for item, name in names.items() if name in found}
            for stream, names in named.items()
        }

    def locate_offset(self, scope: str, stream: str, segment_id: int, offset: int) -> int:
        return self._segments.locate_offset(segment_name(scope, stream, segment_id), offset)

    def boundaries(self, scope: str, stream: str, segment_id: int) -> EventIndex:
        from pravega_streams.segment.event_index import EventIndex

        return EventIndex.of(self._segments, segment_name(scope, stream, segment_id))

    def boundaries_of_many(self, scope: str, stream: str, segment_ids: Sequence[int]) -> dict[int, EventIndex]:
        from pravega_streams.segment.event_index import EventIndex

        names = {item: segment_name(scope, stream, item) for item in segment_ids}
        found = EventIndex.of_many(self._segments, self._pipelined, names.values())
        return {item: found[name] for item, name in names.items() if name in found}

    def locate_offsets(self, scope: str, stream: str, offsets: Mapping[int, int]) -> dict[int, int]:
        names = {item: segment_name(scope, stream, item) for item in offsets}
        found = self._pipelined.locate({names[item]: offset for item, offset in offsets.items()})
        return {item: found[name] for item, name in names.items() if name in found}

    def read_heads(self, scope: str, stream: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, memoryview]:
        names = {item: segment_name(scope, stream, item) for item in ranges}
        found = self._pipelined.read({names[item]: span for item, span in ranges.items()})
        return {item: found[name] for item, name in names.items() if name in found}

    def create_transaction(self, scope: str, stream: str, lease_ms: int) -> NewTransaction:
        return self._controller.create_transaction(scope, stream, lease_ms)

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        self._controller.abort_transaction(scope, stream, transaction_id)

    def register_transactions(self, registration: BatchRegistration) -> Registration:
        return self._coordinator.register(registration)

    def commit_transaction_set(self, commit: BatchCommit) -> SetDecision:
        return self._coordinator.commit(commit)

    def transaction_set(self, sink: Sink, batch_id: int, wait_ms: int = 0) -> tuple[TransactionSet, int]:
        return self._coordinator.get(sink, batch_id, wait_ms)

    def note_time(self, scope: str, stream: str, writer_id: str, position: SegmentOffsets, time_ms: int) -> None:
        self._controller.note_time(scope, stream, writer_id, position, time_ms)

    def subscribe(self, scope: str, name: str, streams: Collection[tuple[str, str]]) -> GroupRegistration:
        return self._groups.subscribe(scope, name, streams)

    def release(self, subscription: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        self._groups.update_cut(subscription, scope, stream, dict(cut))

    def open_writer(self, segment: str) -> SegmentWriter:
        return self._writers.open(segment, uuid.uuid4().bytes)

    def open_range(self, segment: str, start: int, end: int) -> RangeSource:
        return RangeReader(segment, start, end, self._segments.endpoints, self._sockets)

    def open_watch(self) -> TailWatch:
        from pravega_streams.segment.tail_watch import TailWatch

        return TailWatch(self._segments.endpoints)

    def known_store(self, segment: str) -> str:
        return str(self._segments.endpoints.known(segment) or "")

    def expect_store(self, segment: str, store: str) -> None:
        self._segments.endpoints.note(segment, replace(Endpoint.parse(store), tls=self._client.address.tls))

    def close(self) -> None:
        for made in ("_writers", "_coordinator"):
            if made in vars(self):
                getattr(self, made).close()
        self._sockets.close()
        self._client.close()
