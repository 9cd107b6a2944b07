"""Joins the blocking clients of one cluster: controller, transaction sets, segments."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_name
from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.commit_operations import CommitOperationsClient
from pravega_streams.controller.transaction_sets import TransactionSetClient

if TYPE_CHECKING:
    from pravega_streams.segment.segment_client import SegmentClient


class StreamClient:
    """The clients of one cluster, sharing connections. Cheap to make: nothing connects before the first call.

    Not to be pickled or used across ``fork``: make one per process.
    """

    def __init__(self, controller_uri: str) -> None:
        self.controller = ControllerClient(controller_uri)
        self.sets = TransactionSetClient(self.controller.transport)
        self.operations = CommitOperationsClient(self.controller.transport)

    @cached_property
    def segments(self) -> SegmentClient:
        """The client of segments; the wire protocol is imported with it, which a question to the controller spares."""
        from pravega_streams.segment.segment_client import SegmentClient

        return SegmentClient(self.controller)

    def __enter__(self) -> StreamClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if "segments" in vars(self):
            self.segments.close()
        self.controller.close()

    def head_cut(self, scope: str, stream: str) -> SegmentOffsets:
        return self.controller.head_cut(scope, stream)

    def tail_cut(self, scope: str, stream: str) -> SegmentOffsets:
        """The present end of every open segment; of a sealed stream, the ends of its last segments."""
        current = [item.segment_id for item in self.controller.current_segments(scope, stream)]
        ids = current or self._last_segments(scope, stream)
        names = {item: segment_name(scope, stream, item) for item in ids}
        infos = self.segments.infos(names.values())
        return {item: (infos.get(name) or self.segments.info(name)).length for item, name in names.items()}

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
