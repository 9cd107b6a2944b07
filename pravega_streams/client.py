"""Joins the blocking clients of one cluster: controller, transaction sets, segments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pravega_common.model.segments import SegmentInfo, SegmentOffsets
from pravega_common.names import segment_name
from pravega_common.runtime.closing import Closing
from pravega_common.runtime.made_once import MadeOnce
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.stream_tokens import StreamTokens
from pravega_streams.credentials import Credentials, credentials_from

if TYPE_CHECKING:
    from pravega_streams.controller.client import ControllerClient
    from pravega_streams.controller.cluster_health import ClusterHealthClient
    from pravega_streams.controller.commit_operations import CommitOperationsClient
    from pravega_streams.controller.scope_quotas import ScopeQuotaClient
    from pravega_streams.controller.stream_lags import StreamLagClient
    from pravega_streams.controller.transaction_sets import TransactionSetClient
    from pravega_streams.segment.segment_client import SegmentClient
    from pravega_streams.table.key_value_tables import KeyValueTableClient


class StreamClient:
    """The clients of one cluster, sharing connections. Cheap to make: nothing connects before the first call.

    What a client needs is imported with its first use: a process that only reads segments does without gRPC.
    ``controller``: ``tcp://host:port[,host:port…]``, or ``tls://…``; ``ca_file`` and ``verify_host`` as of
    ``ControllerAddress.parse``, ``credentials`` by default those that the environment names (``credentials.py``). Not
    to be pickled or used across ``fork``: make one per process.
    """

    def __init__(
        self,
        controller: str | ControllerAddress,
        *,
        ca_file: str | Path = "",
        verify_host: bool = True,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = ControllerAddress.of(controller, ca_file=ca_file, verify_host=verify_host)
        self._credentials = credentials or self.address.credentials or credentials_from()
        self._closing = Closing(f"the client of {self.address}")

    @MadeOnce
    def controller(self) -> ControllerClient:
        from pravega_streams.controller.client import ControllerClient

        made = ControllerClient(self.address, credentials=self._credentials)
        return self._closing.keep(made, made.close)

    @MadeOnce
    def sets(self) -> TransactionSetClient:
        from pravega_streams.controller.transaction_sets import TransactionSetClient

        return TransactionSetClient(self.controller.transport)

    @MadeOnce
    def operations(self) -> CommitOperationsClient:
        from pravega_streams.controller.commit_operations import CommitOperationsClient

        return CommitOperationsClient(self.controller.transport)

    @MadeOnce
    def health(self) -> ClusterHealthClient:
        from pravega_streams.controller.cluster_health import ClusterHealthClient

        return ClusterHealthClient(self.controller.transport)

    @MadeOnce
    def quotas(self) -> ScopeQuotaClient:
        from pravega_streams.controller.scope_quotas import ScopeQuotaClient

        return ScopeQuotaClient(self.controller.transport)

    @MadeOnce
    def lags(self) -> StreamLagClient:
        from pravega_streams.controller.stream_lags import StreamLagClient

        return StreamLagClient(self.controller.transport)

    @MadeOnce
    def key_value_tables(self) -> KeyValueTableClient:
        from pravega_streams.table.key_value_tables import KeyValueTableClient

        return KeyValueTableClient(self.controller.transport)

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        """The store that owns the segment's container."""
        return self.controller.endpoint(scope, stream, segment_id)

    @MadeOnce
    def tokens(self) -> StreamTokens:
        """The tokens for requests to stores; a client without credentials asks no controller for them."""
        if self._credentials is not None:
            return self.controller.tokens
        return StreamTokens(lambda scope, stream: self.controller.delegation_token(scope, stream), needed=False)

    @MadeOnce
    def segments(self) -> SegmentClient:
        """The client of segments; the wire protocol is imported with it, which a question to the controller spares."""
        from pravega_streams.segment.segment_client import SegmentClient

        made = SegmentClient(self)
        return self._closing.keep(made, made.close)

    def __enter__(self) -> StreamClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections up, for good. Calls of other threads that are under way end, and later ones are refused
        with ``InvalidArgument``; a change whose answer did not come by then is ``UnknownOutcome``. Close event writers
        and byte streams before: they have connections of their own, which go on until they need a controller."""
        self._closing.close()

    def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """The first position that is still there.

        Byte streams, and others whose clients truncate the segment at its store, have none of it in the controller's.
        """
        head = self.controller.head_cut(scope, stream)
        infos = self.segment_infos(scope, stream, head)
        return {item: max(offset, infos[item].start_offset if item in infos else 0) for item, offset in head.items()}

    def tail_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """The present end of every open segment; of a sealed stream, the ends of its last segments."""
        current = [item.segment_id for item in self.controller.current_segments(scope, stream)]
        ids = current or self._last_segments(scope, stream)
        infos = self.segment_infos(scope, stream, ids)
        for item in ids:
            if item not in infos:
                infos[item] = self.segments.info(segment_name(scope, stream, item))
        return {item: infos[item].length for item in ids}

    def segment_infos(self, scope: str, stream: str, segment_ids: Iterable[int]) -> dict[int, SegmentInfo]:
        """Lengths, starts and states of many segments of a stream, by id; those that do not exist are left out.

        One call for 1,000 segments of a store. Errors: those of ``SegmentClient.infos``.
        """
        names = {item: segment_name(scope, stream, item) for item in segment_ids}
        found = self.segments.infos(names.values())
        return {item: found[name] for item, name in names.items() if name in found}

    def _last_segments(self, scope: str, stream: str) -> list[int]:
        """A sealed stream lists no current segments: walk from the head to those without successors."""
        frontier, last = list(self.controller.head_cut(scope, stream)), []
        seen = set(frontier)
        while frontier:
            segment_id = frontier.pop()
            successors = self.controller.successors(scope, stream, segment_id)
            if not successors:
                last.append(segment_id)
            for successor in successors:
                if successor.segment.segment_id not in seen:
                    seen.add(successor.segment.segment_id)
                    frontier.append(successor.segment.segment_id)
        return sorted(last)
