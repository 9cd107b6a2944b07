"""Calls the controller: scopes, streams, segments and transactions (docs/controller-api.md 2)."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pravega_common.errors import (
    InvalidArgument,
    NotFound,
    PravegaError,
    RejectedError,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.model.segments import SegmentOffsets, SegmentRange, Successor
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transactions import NewTransaction, PingStatus, TransactionState
from pravega_common.names import SCOPE_NAME_RULE, USER_NAME_RULE, epoch_max, segment_epoch
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import (
    PING_STATUSES,
    TRANSACTION_STATES,
    cluster_time_key,
    configuration_from,
    configuration_to,
    from_wire,
    range_from,
    transaction_from,
    transaction_to,
)
from pravega_common.runtime.system_time import system_time_ms
from pravega_streams import errors
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.call_numbers import (
    check_configuration,
    checked_cut,
    checked_number,
    checked_text,
    long_max,
    named_scope,
    named_stream,
)
from pravega_streams.controller.scale_refusal import as_planned, lists_of_scale, made_by_scale, refusal_reason
from pravega_streams.controller.stream_tokens import StreamTokens
from pravega_streams.controller.transport import ControllerTransport

scale_time_max_s: Final = 120.0
scale_poll_s: Final = 0.05
epochs_per_commit: Final = 2
"""Epochs that a commit of transactions makes which were begun before a scale (docs/controller-api.md 4.5)."""
epochs_moved_max: Final = 1_000
"""Epochs that are looked at for the segments of a scale."""


class ControllerClient:
    """A blocking client, safe to use from several threads. Errors: see ``ControllerTransport``, and ``NotFound``.

    A stream's segments are given by id; ``{segment id: offset}`` is a stream cut without its stream.
    """

    def __init__(self, controller: str | ControllerAddress, **transport: Any) -> None:
        self._transport = ControllerTransport(controller, **transport)
        self.tokens = StreamTokens(self.delegation_token, needed=self._transport.credentials is not None)

    @property
    def transport(self) -> ControllerTransport:
        return self._transport

    def close(self) -> None:
        self._transport.close()

    def _ask(self, method: str, request: Any) -> Any:
        return self._transport.controller(method, request)

    def time_ms(self) -> int | None:
        """The time of the cluster, milliseconds since 1970; None where nobody tells it: a plain Pravega."""
        try:
            told = self._transport.metadata_behind("getControllerServerList", pb.ServerRequest()).get(cluster_time_key)
        except UnsupportedOperation:
            return None
        return None if told is None else _cluster_time(told)

    # Scopes

    def create_scope(self, scope: str) -> bool:
        """Whether it is new."""
        status = self._ask("createScope", named_scope(scope)).status
        return _decide("createScope", scope, status, pb.CreateScopeStatus.Status, existing="SCOPE_EXISTS")

    def delete_scope(self, scope: str) -> bool:
        """Whether it was there. ``ScopeNotEmpty``."""
        status = self._ask("deleteScope", named_scope(scope)).status
        return _decide("deleteScope", scope, status, pb.DeleteScopeStatus.Status, missing="SCOPE_NOT_FOUND")

    def scope_exists(self, scope: str) -> bool:
        return bool(self._ask("checkScopeExists", named_scope(scope)).exists)

    def list_scopes(self) -> Iterator[str]:
        def page(token: str) -> tuple[Sequence[str], str]:
            reply = self._ask("listScopes", pb.ScopesRequest(continuationToken=pb.ContinuationToken(token=token)))
            return reply.scopes, reply.continuationToken.token

        return _pages(page)

    def list_streams(self, scope: str) -> Iterator[str]:
        """Names within the scope, internal ones too."""

        def page(token: str) -> tuple[Sequence[str], str]:
            request = pb.StreamsInScopeRequest(
                scope=named_scope(scope), continuationToken=pb.ContinuationToken(token=token)
            )
            reply = self._ask("listStreamsInScope", request)
            _decide("listStreamsInScope", scope, reply.status, pb.StreamsInScopeResponse.Status)
            return [info.stream for info in reply.streams], reply.continuationToken.token

        return _pages(page)

    def list_streams_with_tag(self, scope: str, tag: str) -> Iterator[str]:
        """Names within the scope of the streams that have a tag."""

        def page(token: str) -> tuple[Sequence[str], str]:
            request = pb.StreamsInScopeWithTagRequest(
                scope=named_scope(scope),
                tag=checked_text("a tag", tag),
                continuationToken=pb.ContinuationToken(token=token),
            )
            reply = self._ask("listStreamsInScopeForTag", request)
            _decide("listStreamsInScopeForTag", scope, reply.status, pb.StreamsInScopeResponse.Status)
            return [info.stream for info in reply.streams], reply.continuationToken.token

        return _pages(page)

    # Streams

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration | None = None) -> bool:
        """Whether it is new."""
        message = _configuration(scope, stream, configuration or StreamConfiguration())
        status = self._ask("createStream", message).status
        name = f"{scope}/{stream}"
        return _decide("createStream", name, status, pb.CreateStreamStatus.Status, existing="STREAM_EXISTS")

    def update_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        status = self._ask("updateStream", _configuration(scope, stream, configuration)).status
        _decide("updateStream", f"{scope}/{stream}", status, pb.UpdateStreamStatus.Status)

    def stream_exists(self, scope: str, stream: str) -> bool:
        return bool(self._ask("checkStreamExists", named_stream(scope, stream)).exists)

    def stream_configuration(self, scope: str, stream: str) -> StreamConfiguration:
        return configuration_from(self._ask("getStreamConfiguration", named_stream(scope, stream)))

    def seal_stream(self, scope: str, stream: str) -> None:
        status = self._ask("sealStream", named_stream(scope, stream)).status
        _decide("sealStream", f"{scope}/{stream}", status, pb.UpdateStreamStatus.Status)

    def delete_stream(self, scope: str, stream: str) -> bool:
        """Whether it was there. ``StreamNotSealed``."""
        status = self._ask("deleteStream", named_stream(scope, stream)).status
        name = f"{scope}/{stream}"
        return _decide("deleteStream", name, status, pb.DeleteStreamStatus.Status, missing="STREAM_NOT_FOUND")

    def truncate_stream(self, scope: str, stream: str, cut: SegmentOffsets) -> None:
        """Forget everything before the cut."""
        status = self._ask("truncateStream", _cut(scope, stream, cut)).status
        _decide("truncateStream", f"{scope}/{stream}", status, pb.UpdateStreamStatus.Status)

    def is_cut_valid(self, scope: str, stream: str, cut: SegmentOffsets) -> bool:
        """Whether the cut's segments belong together and cover the key space."""
        return bool(self._ask("isStreamCutValid", _cut(scope, stream, cut)).response)

    def scale_stream(
        self, scope: str, stream: str, sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> list[SegmentRange]:
        """Replace segments by new ones over the same keys, and wait until that is done; returns the new ones.

        A scale that is done already is done: an attempt whose answer was lost is repeated.

        ``InvalidArgument`` for ranges that fit no stream, ``StreamNotFound``, ``StreamSealed``; ``ControllerRefused``
        says which of the stream's segments or limits the scale does not fit, as far as they show it, or that another
        change of the stream came first. ``UnknownOutcome`` for one that takes longer: it goes on.
        """
        sealed, new_ranges = lists_of_scale(sealed, new_ranges)
        info = named_stream(scope, stream)
        request = pb.ScaleRequest(
            streamInfo=info,
            sealedSegments=sealed,
            newKeyRanges=[pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in new_ranges],
            scaleTimestamp=system_time_ms(),
        )
        started = self._ask("scale", request)
        if started.status != pb.ScaleResponse.STARTED:
            refusal = pb.ScaleResponse.ScaleStreamStatus.Name(started.status)
            if made := self._made_by_scale(scope, stream, sealed, new_ranges):
                return made
            raise self._scale_refusal(scope, stream, refusal, sealed, new_ranges)
        deadline_s = time.monotonic() + scale_time_max_s
        while time.monotonic() < deadline_s:
            status = self._ask("checkScale", pb.ScaleStatusRequest(streamInfo=info, epoch=started.epoch)).status
            if status == pb.ScaleStatusResponse.SUCCESS:
                return self._scaled(scope, stream, [range_from(item) for item in started.segments])
            if status != pb.ScaleStatusResponse.IN_PROGRESS:
                raise errors.ControllerRefused(f"scale of {scope}/{stream}: status {status}")
            time.sleep(scale_poll_s)
        raise UnknownOutcome(f"scale of {scope}/{stream} did not finish within {scale_time_max_s:g} s; it goes on")

    def _scaled(self, scope: str, stream: str, planned: list[SegmentRange]) -> list[SegmentRange]:
        """The new segments as they were made: commits of transactions may have taken the epochs of the plan."""
        epoch = segment_epoch(planned[0].segment_id)
        for later in range(epoch, epoch + epochs_moved_max, epochs_per_commit):
            try:
                there = self.epoch_segments(scope, stream, later)
            except NotFound:
                break
            if made := as_planned(planned, there, later):
                return made
        raise errors.ControllerRefused(
            f"scale of {scope}/{stream} was begun and given up: another change of the stream came first"
        )

    def _made_by_scale(
        self, scope: str, stream: str, sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> list[SegmentRange]:
        """The segments of a scale that was refused as it is done; none where it was not, or nobody can tell."""
        try:
            following = self.successors(scope, stream, sealed[0])
            if not following or sealed[0] in {item.segment_id for item in self.current_segments(scope, stream)}:
                return []
            epoch = segment_epoch(following[0].segment.segment_id)
            before, after = (self.epoch_segments(scope, stream, number) for number in (epoch - 1, epoch))
        except PravegaError:
            return []
        return made_by_scale(sealed, new_ranges, before, after)

    def _scale_refusal(
        self, scope: str, stream: str, status: str, sealed: Sequence[int], new_ranges: Sequence[tuple[float, float]]
    ) -> RejectedError:
        """The error for a scale that was refused; that it was stays true when nobody can tell why."""
        what = f"scale of {scope}/{stream} refused"
        try:
            min_segments = self.stream_configuration(scope, stream).scaling.min_segments
            segments = self.current_segments(scope, stream)
        except NotFound:
            return StreamNotFound(f"{what}: the stream does not exist")
        except PravegaError as error:
            return errors.ControllerRefused(f"{what} ({status}); its segments could not be looked at: {error}")
        if not segments:
            return StreamSealed(f"{what}: the stream is sealed")
        reason = refusal_reason(sealed, new_ranges, segments, min_segments)
        return errors.ControllerRefused(f"{what} ({status}): {reason}")

    # Segments

    def current_segments(self, scope: str, stream: str) -> list[SegmentRange]:
        """By key; empty for a sealed stream."""
        reply = self._ask("getCurrentSegments", named_stream(scope, stream))
        return [range_from(item) for item in reply.segmentRanges]

    def epoch_segments(self, scope: str, stream: str, epoch: int) -> list[SegmentRange]:
        request = pb.GetEpochSegmentsRequest(
            streamInfo=named_stream(scope, stream), epoch=checked_number("an epoch", epoch, epoch_max)
        )
        return [range_from(item) for item in self._ask("getEpochSegments", request).segmentRanges]

    def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """The first position that is still there."""
        reply = self._ask("getSegments", pb.GetSegmentsRequest(streamInfo=named_stream(scope, stream)))
        return {item.segmentId.segmentId: item.offset for item in reply.segments}

    def successors(self, scope: str, stream: str, segment_id: int) -> list[Successor]:
        """Empty while the segment is open, and at the end of a sealed stream."""
        request = _segment(scope, stream, segment_id)
        reply = self._ask("getSegmentsImmediatelyFollowing", request)
        return [Successor(range_from(item.segment), tuple(item.value)) for item in reply.segments]

    def segments_between(self, scope: str, stream: str, start: SegmentOffsets, end: SegmentOffsets) -> list[int]:
        """Ids of all segments with bytes between the cuts, the cuts' own included; an empty cut is unbounded."""
        request = pb.StreamCutRange(streamInfo=named_stream(scope, stream), to=checked_cut(end))
        getattr(request, "from").update(checked_cut(start))
        return [item.segmentId for item in self._ask("getSegmentsBetween", request).segments]

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        """The store that owns the segment's container."""
        request = _segment(scope, stream, segment_id)
        reply = self._ask("getURI", request)
        return Endpoint(reply.endpoint, reply.port, self._transport.address.tls)

    def delegation_token(self, scope: str, stream: str) -> str:
        """The token to show segment stores for a stream; empty where there is no authentication.

        It permits as much as the user may do with the stream, and ``AccessDenied`` says that this is nothing.
        """
        return str(self._ask("getDelegationToken", named_stream(scope, stream)).delegationToken)

    # Transactions

    def create_transaction(self, scope: str, stream: str, lease_ms: int) -> NewTransaction:
        """``NotFound``, ``StreamSealed``, ``InvalidArgument`` for the lease."""
        request = pb.CreateTxnRequest(streamInfo=named_stream(scope, stream), lease=_lease(lease_ms))
        reply = self._transport.controller(
            "createTransaction", request, refusal=lambda: self._sealed_error(scope, stream)
        )
        segments = tuple(range_from(item) for item in reply.activeSegments)
        return NewTransaction(transaction_from(reply.txnId), segments)

    def _sealed_error(self, scope: str, stream: str) -> StreamSealed | None:
        """The error for a sealed stream: it has the status of one that is being created, for which waiting helps."""
        try:
            reply = self._transport.controller("getCurrentSegments", named_stream(scope, stream), attempts=1)
        except PravegaError:
            return None
        if reply.segmentRanges:
            return None
        return StreamSealed(f"stream {scope}/{stream} is sealed and takes no further transactions")

    def ping_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID, lease_ms: int) -> PingStatus:
        request = pb.PingTxnRequest(
            streamInfo=named_stream(scope, stream), txnId=transaction_to(transaction_id), lease=_lease(lease_ms)
        )
        return from_wire(PING_STATUSES, self._ask("pingTransaction", request).status)

    def commit_transaction(
        self, scope: str, stream: str, transaction_id: uuid.UUID, writer_id: str = "", time_ms: int = -(1 << 63)
    ) -> None:
        """Returns once the commit is decided. ``TransactionFailed``."""
        request = self._transaction(scope, stream, transaction_id, writer_id, time_ms)
        status = self._ask("commitTransaction", request).status
        if status != pb.TxnStatus.SUCCESS:
            raise errors.TransactionFailed(f"transaction {transaction_id} of {scope}/{stream} cannot be committed")

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        request = self._transaction(scope, stream, transaction_id, "", 0)
        if self._ask("abortTransaction", request).status != pb.TxnStatus.SUCCESS:
            raise errors.TransactionFailed(f"transaction {transaction_id} of {scope}/{stream} cannot be aborted")

    def transaction_state(self, scope: str, stream: str, transaction_id: uuid.UUID) -> TransactionState:
        request = self._transaction(scope, stream, transaction_id, "", 0)
        return from_wire(TRANSACTION_STATES, self._ask("checkTransactionState", request).state)

    # Times of writers

    def note_time(self, scope: str, stream: str, writer_id: str, position: SegmentOffsets, time_ms: int) -> None:
        """Report a writer's time, with a position behind its events. ``InvalidArgument`` if one goes back."""
        request = pb.TimestampFromWriter(
            writer=writer_id, timestamp=_time(time_ms), position=_cut(scope, stream, position)
        )
        result = self._ask("noteTimestampFromWriter", request).result
        if result != pb.TimestampResponse.SUCCESS:
            text = (
                f"time {time_ms} of writer {writer_id} of {scope}/{stream}: {pb.TimestampResponse.Status.Name(result)}"
            )
            is_wrong = result in (pb.TimestampResponse.INVALID_TIME, pb.TimestampResponse.INVALID_POSITION)
            raise InvalidArgument(text) if is_wrong else errors.ControllerRefused(text)

    def remove_writer(self, scope: str, stream: str, writer_id: str) -> bool:
        """Have nobody wait for a writer's time any more; whether it was known."""
        request = pb.RemoveWriterRequest(writer=writer_id, stream=named_stream(scope, stream))
        return bool(self._ask("removeWriter", request).result == pb.RemoveWriterResponse.SUCCESS)

    @staticmethod
    def _transaction(scope: str, stream: str, transaction_id: uuid.UUID, writer: str, time_ms: int) -> pb.TxnRequest:
        return pb.TxnRequest(
            streamInfo=named_stream(scope, stream),
            txnId=transaction_to(transaction_id),
            writerId=writer,
            timestamp=_time(time_ms),
        )


_STATUS_ERRORS: Final[dict[str, type[Exception]]] = {
    "SCOPE_NOT_FOUND": ScopeNotFound,
    "STREAM_NOT_FOUND": StreamNotFound,
    "STREAM_SEALED": StreamSealed,
    "STREAM_NOT_SEALED": StreamNotSealed,
    "SCOPE_NOT_EMPTY": ScopeNotEmpty,
    "INVALID_SCOPE_NAME": InvalidArgument,
    "INVALID_STREAM_NAME": InvalidArgument,
}
_TIME: Final = re.compile("[0-9]{1,18}")
_REMEDIES: Final = {
    "INVALID_SCOPE_NAME": SCOPE_NAME_RULE,
    "INVALID_STREAM_NAME": USER_NAME_RULE,
    "SCOPE_NOT_EMPTY": "delete its streams, reader groups and key-value tables first",
    "STREAM_NOT_SEALED": "seal it first",
}


def _configuration(scope: str, stream: str, configuration: StreamConfiguration) -> pb.StreamConfig:
    check_configuration(configuration)
    return configuration_to(checked_text("a scope", scope), checked_text("a stream", stream), configuration)


def _segment(scope: str, stream: str, segment_id: int) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=named_stream(scope, stream), segmentId=checked_number("a segment", segment_id))


def _cut(scope: str, stream: str, cut: SegmentOffsets) -> pb.StreamCut:
    return pb.StreamCut(streamInfo=named_stream(scope, stream), cut=checked_cut(cut))


def _lease(lease_ms: int) -> int:
    return checked_number("the milliseconds of a transaction's lease", lease_ms)


def _time(time_ms: int) -> int:
    return checked_number("a writer's time in milliseconds", time_ms, minimum=-long_max - 1)


def _cluster_time(told: str | bytes) -> int:
    if not isinstance(told, str) or not _TIME.fullmatch(told):
        raise errors.ControllerRefused(f"the controller's time, {told[:40]!r}, is no number of milliseconds since 1970")
    return int(told)


def _decide(method: str, name: str, status: int, names: Any, *, existing: str = "", missing: str = "") -> bool:
    """True for success, False for the one refusal that the caller takes for an answer, else the error."""
    text = names.Name(status)
    if text == "SUCCESS":
        return True
    if text in (existing, missing):
        return False
    remedy = f"; {_REMEDIES[text]}" if text in _REMEDIES else ""
    raise _STATUS_ERRORS.get(text, errors.ControllerRefused)(f"{method} {name}: {text}{remedy}")


def _pages(page: Callable[[str], tuple[Sequence[str], str]]) -> Iterator[str]:
    """All items: the controller marks the end by an empty page."""
    token = ""
    while True:
        items, token = page(token)
        if not items:
            return
        yield from items
