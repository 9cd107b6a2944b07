"""Remembers recent merges, so that a merge made again is known for what it is.

A caller whose answer was lost merges again and finds its source gone. The target keeps a record of each merge: with
one, the answer is that of the first time; without one, the source is missing, and that is an error. The records are
made from the merges in the log and carried by checkpoints; how many a target keeps, and for how long, is limited.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

merge_records_max: Final = 512
"""Merges that a target remembers; the oldest is forgotten first. 32 bytes each in every checkpoint."""
merge_record_age_max_ms: Final = 7 * 24 * 3600 * 1000
"""Age at which a merge is forgotten. Made again after that, it finds its source missing."""
source_key_bytes: Final = 16


class MergeRecord(NamedTuple):
    """One merge: the length of the target just after it, and when it was."""

    target_length: int
    time_ms: int


MergeRecords = dict[bytes, MergeRecord]
"""By ``source_key`` of the source's name, oldest first."""


def source_key(name: str) -> bytes:
    """Stands for the name of a source, which may be long."""
    return hashlib.blake2b(name.encode(), digest_size=source_key_bytes).digest()


def remember(records: MergeRecords, key: bytes, record: MergeRecord) -> None:
    """Add a merge; the last one of a name counts."""
    records.pop(key, None)
    records[key] = record
    forget_old(records, record.time_ms)
    while len(records) > merge_records_max:
        del records[next(iter(records))]


def forget_old(records: MergeRecords, now_ms: int) -> None:
    """Drop what is older than ``merge_record_age_max_ms``."""
    while records:
        oldest = next(iter(records))
        if records[oldest].time_ms >= now_ms - merge_record_age_max_ms:
            return
        del records[oldest]
