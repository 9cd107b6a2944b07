"""Finds the index segments of a container: each belongs to a segment of a user's stream."""

from __future__ import annotations

from pravega_common.names import INDEX_SUFFIX, index_segment_name, is_index_segment, is_user_stream_segment
from segment_service.contracts.attributes import INDEX_OWNER
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.boundary_tracker import last_record
from segment_service.metadata.container_metadata import ContainerMetadata


def index_of(metadata: ContainerMetadata, segment: SegmentMetadata) -> SegmentMetadata | None:
    """The segment's index segment, unless it is missing, unread, or about an earlier segment of that name."""
    index = metadata.by_name(index_segment_name(segment.name))
    if index is None or index.attributes.get(INDEX_OWNER) != segment.segment_id:
        return None
    return index


def unread_index(metadata: ContainerMetadata, segment: SegmentMetadata) -> str | None:
    """Why nobody can tell whether the segment has an index segment; ``None`` if that is known."""
    if index_segment_name(segment.name) in metadata.ids:
        return None
    return metadata.unread_pairs.get(segment.name)


def recover_boundaries(metadata: ContainerMetadata) -> list[str]:
    """Find the segments whose index fell behind or is missing, once all operations are replayed.

    Returns the index segments that are left of segments which are gone. Pairs that were not read wait until they are.
    """
    tracker = metadata.boundaries
    left_over = []
    for name, segment_id in metadata.ids.items():
        if is_user_stream_segment(name):
            segment = metadata.segments[segment_id]
            if unread_index(metadata, segment) is not None:
                continue
            index = index_of(metadata, segment)
            tracker.written(segment, 0 if index is None else last_record(index).length)
            if index is None:
                tracker.lacks_index(segment)
        elif is_index_segment(name):
            owner = name.removesuffix(INDEX_SUFFIX)
            if owner not in metadata.ids and owner not in metadata.unread_pairs:
                left_over.append(name)
    tracker.keep_only(metadata.segments)
    return left_over
