"""Defines the contract between a container and its storage writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from segment_service.contracts.operations import Operation
from segment_service.contracts.segment_metadata import SegmentMetadata


class FlushingWriter(Protocol):
    """A storage writer as its container sees it: a service that can be asked to make haste."""

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call this when the writer failed by itself; at once if it has already."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def flush(self, sequence_number: int) -> None:
        """Bring everything up to this operation to Tier 2, and return when it is acknowledged. ``ContainerOffline`` if
        the writer stops before that."""
        ...


class WriterDataSource(Protocol):
    """A container as its storage writer sees it. All methods are called from the container's event loop."""

    @property
    def container_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def recovered_sequence_number(self) -> int:
        """Operations up to this number may be of earlier owners of the log; all later ones are this owner's."""
        ...

    async def read_operations(self, after: int, count_max: int) -> Sequence[Operation]:
        """Committed operations with sequence numbers above ``after``, in order: ``count_max`` of them, or as many as
        there are; waits until there is at least one.

        ``Append`` comes in its cached form (``data is None``).
        """
        ...

    def segment(self, segment_id: int) -> SegmentMetadata | None:
        """The segment as of the last *committed* operation, which may be ahead of the writer; ``None`` once the
        container forgot it."""
        ...

    def truncated_below(self, segment_id: int) -> int:
        """The offset of a segment below which its bytes are truncated, as of the last *committed* operation and where
        they live by then: nobody can read them any more, and they may be missing from the cache."""
        ...

    def read_cached(self, segment_id: int, offset: int, length: int) -> list[memoryview]:
        """Bytes that were committed and are not yet acknowledged as being in Tier 2, as views on cache blocks.

        Also for a source that was merged meanwhile: resolved to where its bytes live now. Bytes below
        ``truncated_below``, or of a deleted segment, may be missing: the writer must not ask for them.
        """
        ...

    def storage_length_changed(self, segment_id: int, length: int) -> None:
        """Bytes up to ``length`` are in Tier 2 and readable from there; the cache may now drop them."""
        ...

    def sealed_in_storage(self, segment_id: int) -> None: ...

    def merged_in_storage(self, target_id: int, source_id: int, target_length: int) -> None:
        """The source's bytes are part of the target in Tier 2, up to ``target_length``; the source may be forgotten."""
        ...

    def deleted_in_storage(self, segment_id: int) -> None: ...

    def hold(self, segment_id: int, reason: str) -> None:
        """Quarantine a segment that is damaged in Tier 2: its operations stay in Tier 1, further ones are refused."""
        ...

    def free(self, segment_id: int) -> None:
        """The writer goes on with a segment that was held."""
        ...

    def unreadable_reason(self, segment_id: int) -> str | None:
        """Why bytes of the segment in Tier 2 cannot be read; ``None`` if none are known that cannot."""
        ...

    async def acknowledge(self, sequence_number: int) -> None:
        """Say that Tier 2 has all up to this number; Tier 1 may be truncated up to a checkpoint at or below it."""
        ...

    async def check_owner(self) -> None:
        """See ``segment_service.contracts.data_log.DurableDataLog.check_owner``."""
        ...
