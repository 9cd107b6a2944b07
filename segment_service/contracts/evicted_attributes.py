"""Defines the contract between the log of a container and the writers' attributes that are not in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pravega_common.errors import PravegaError
from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.segment_metadata import SegmentMetadata


class EvictedAttributes(Protocol):
    """Writers' attributes of segments that are in memory themselves.

    An attribute leaves memory only while the index has its last durable value, and nothing changes it before it is
    back: what is brought is never older than what left.

    What is asked of one segment at the same time is one look-up in Tier 2 (of at most ``look_up_attributes_max``
    attributes), and so is what is asked while the segment's look-ups are under way. ``Throttled`` for more than
    ``reads_max`` attributes that are being read. An error is one of the attributes that it is about. A sealed segment's
    attributes are read, and not put into memory.
    """

    def bring(
        self,
        segment: SegmentMetadata,
        attribute_ids: Sequence[AttributeId],
        then: Callable[[PravegaError | None], None],
    ) -> None:
        """Put the attributes into memory, ``NULL_ATTRIBUTE_VALUE`` for one that is absent; then call ``then``, in a
        later turn of the loop, with the error if they could not be read: those of ``get``, and ``Throttled`` if the
        segment holds ``held_hard_max`` attributes and none can leave. Reads of one attribute at the same time are
        one."""
        ...

    async def get(self, segment: SegmentMetadata, attribute_id: AttributeId) -> int:
        """Returns the last durable value; ``NULL_ATTRIBUTE_VALUE`` if it is absent. ``Unavailable`` if Tier 2 does not
        answer, ``DataCorruption`` if the index is damaged or older than the log."""
        ...
