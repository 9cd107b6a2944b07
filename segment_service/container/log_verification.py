"""Compares the log that a container recovered with what Tier 2 knows of its log, before anything is written.

A log that was lost, replaced by an older copy of itself or exchanged for another one is consistent in itself. Going on
with it would give ids and offsets a second time whose bytes are in Tier 2 already. Pure.
"""

from __future__ import annotations

from typing import Final

from segment_service.contracts.log_identity import unknown_identity
from segment_service.contracts.segment_storage import EpochMark, LogState
from segment_service.durable_log.recovery import Recovered
from segment_service.metadata.container_metadata import ContainerMetadata

_WAY_OUT = (
    "Nothing was written, acknowledged or deleted. Stop the store, and give it the newest copy of its Tier 1 (the "
    "append-only file of its Redis servers) or the Tier 2 that belongs to this log (tier2.url); if Tier 1 is gone for "
    "good, run pravega-spark store restore"
)
RESTORE_AGAIN: Final = "run pravega-spark store restore --from again, with the same backup"
_RESTORE_INTERRUPTED = (
    "a restore of a backup was interrupted, so that Tier 2 and the log may have a part of it. Stop all stores, and "
    f"{RESTORE_AGAIN}"
)


def find_contradiction(
    metadata: ContainerMetadata,
    recovered: Recovered,
    mark: EpochMark | None,
    first_object: str,
    table: LogState | None = None,
) -> str | None:
    """The reason why this log must not be used with this Tier 2; ``None`` if they belong together.

    ``mark`` is the newest one, ``first_object`` the name of some object of the container in Tier 2, empty if there is
    none (asked only if the log is empty), ``table`` the stamp of the metadata table.
    """
    if mark is not None and mark.is_blocking:
        return f"container {metadata.container_id}: {_RESTORE_INTERRUPTED}"
    problem = _problem(metadata, recovered, mark, first_object)
    if problem is None and table is not None:
        problem = _difference(metadata, recovered, table, "the metadata table in Tier 2")
    if problem is None and metadata.table_high_water > (0 if table is None else table.high_water):
        problem = _lost_table(metadata, table)
    return None if problem is None else f"container {metadata.container_id}: {problem}. {_WAY_OUT}"


def _problem(
    metadata: ContainerMetadata, recovered: Recovered, mark: EpochMark | None, first_object: str
) -> str | None:
    if mark is not None and mark.log is not None and mark.log.high_water == 0:
        return None  # the first checkpoint of all waited for room: nothing was acknowledged, nothing shows in Tier 2
    if recovered.operations == 0:
        if mark is None and not first_object:
            return None
        found = f"a mark of epoch {mark.epoch}" if mark is not None else first_object
        return f"Tier 1 was lost: the log is empty, but Tier 2 has {found}"
    if mark is None:
        return None
    if mark.log is None:  # an owner of that time wrote a checkpoint before it left its mark
        if recovered.last_epoch < mark.epoch:
            return (
                f"an older copy of Tier 1 came back: the log ends in epoch {recovered.last_epoch}, but Tier 2 was "
                f"opened in epoch {mark.epoch}"
            )
        return None
    return _difference(metadata, recovered, mark.log, f"the mark of epoch {mark.epoch} in Tier 2")


def _lost_table(metadata: ContainerMetadata, table: LogState | None) -> str:
    found = "has no metadata table" if table is None else f"has a metadata table as of operation {table.high_water}"
    return (
        f"Tier 2 was lost, or an older copy of it came back: it {found}, but the log says that it had one as of "
        f"operation {metadata.table_high_water}"
    )


def _difference(metadata: ContainerMetadata, recovered: Recovered, known: LogState, where: str) -> str | None:
    """The contradiction between the recovered log and what ``where`` knows of it."""
    if known.identity not in (metadata.identity, unknown_identity):
        if metadata.identity == unknown_identity:
            return (
                f"an older copy of Tier 1 came back: the log has no identity yet, but {where} knows it as "
                f"{known.identity.hex()}"
            )
        return (
            f"another log came back: its identity is {metadata.identity.hex()}, but {where} says {known.identity.hex()}"
        )
    if recovered.last_sequence_number < known.high_water:
        return (
            f"an older copy of Tier 1 came back: the log ends at operation {recovered.last_sequence_number}, but "
            f"{where} says that operation {known.high_water} was durable"
        )
    if metadata.next_segment_id < known.next_segment_id:
        return (
            f"an older copy of Tier 1 came back: the next segment of the log gets id {metadata.next_segment_id}, but "
            f"{where} says that ids below {known.next_segment_id} are used"
        )
    return None
