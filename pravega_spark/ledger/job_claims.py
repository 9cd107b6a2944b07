"""Records in the cluster which job memory writes under a job id, by compare-and-set.

A load is exactly once by what its folder remembers. Another machine has another folder, and a cluster whose data was
replaced has forgotten what the folder remembers: so the folder's query id is on record in a table segment of the scope,
with the stream as it was at the first run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pravega_common.errors import (
    BadKeyVersion,
    DataCorruption,
    InvalidArgument,
    KeyNotFound,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_spark.ledger.record_table import RecordTable, read_or_create
from pravega_streams.table.table_client import NOT_EXISTS

claim_version: Final = 1
TABLE_NAME: Final = "pravega-spark-jobs_kvtable"
"""With the ending that tells table segments from streams (docs/wire-protocol.md 6.2)."""
folder_chars_max: Final = 2_000
"""A longer path is cut: it is for people, and the record stays within a few KB."""
attempts_max: Final = 20
"""Attempts to change a record that others change too: each that fails means that another change was made."""


@dataclass(frozen=True, slots=True)
class JobClaim:
    """The claim of a job's memory on its id.

    ``query_id`` names the writer whose batches the sink knows. ``first_segment`` is the id of the stream's first
    segment ever, which a stream that was deleted and made again never has. ``folder`` and ``host`` are for people.
    ``rows`` were written by runs that ended, up to ``last_batch``; ``is_exact``: and by no others.
    """

    job_id: str
    query_id: str
    stream: str
    first_segment: int
    folder: str
    host: str
    rows: int = 0
    last_batch: int = -1
    is_exact: bool = True
    touched_ms: int = 0


def claims_segment(scope: str) -> str:
    """One table for all jobs that load into a scope."""
    return f"{scope}/{TABLE_NAME}/0.#epoch.0"


def to_bytes(claim: JobClaim) -> bytes:
    value = {"version": claim_version, **asdict(claim), "folder": claim.folder[:folder_chars_max]}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> JobClaim:
    """Parse a record. ``DataCorruption`` for other bytes, ``InvalidArgument`` for a newer version."""
    try:
        value: dict[str, Any] = json.loads(data)
        version = value.pop("version")
        if version == claim_version:
            return JobClaim(**value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorruption(f"the claim of a job cannot be read ({error}): {data[:80]!r}") from error
    raise InvalidArgument(f"the claim of this job has version {version}, this program reads {claim_version}")


class JobClaims:
    """The claims of one stream's jobs. Calls raise ``Unavailable``: call again."""

    def __init__(self, table: RecordTable, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._now_ms = now_ms

    def read(self, stream: str, job_id: str) -> JobClaim | None:
        """Returns the claim on record; None where nobody claimed the id for this stream."""
        return self._read(_key(stream, job_id))[0]

    def names(self) -> dict[str, str]:
        """The job id of each writer that this scope knows, by the writer's query id; read to the end."""
        try:
            claims = [from_bytes(item.value) for item in self._table.items()]
        except SegmentNotFound:
            return {}
        return {claim.query_id: claim.job_id for claim in claims}

    def put(self, wanted: JobClaim, instead_of: JobClaim | None) -> JobClaim:
        """Records a claim in the place of one that was read (None: of nothing); returns what is on record then.

        That is another's claim where another was faster.
        """
        key = _key(wanted.stream, wanted.job_id)
        for _ in range(attempts_max):
            found, version = self._read(key)
            if found is not None and (instead_of is None or found.query_id != instead_of.query_id):
                return found
            if self._written(key, wanted, version):
                return wanted
        raise Unavailable(f"the claim of job '{wanted.job_id}' changed under each of {attempts_max} attempts")

    def note_rows(self, claim: JobClaim, rows: int, last_batch: int, *, is_exact: bool) -> None:
        """Adds the rows of a run that ended, unless the id was claimed by another meanwhile."""
        key = _key(claim.stream, claim.job_id)
        for _ in range(attempts_max):
            found, version = self._read(key)
            if found is None or found.query_id != claim.query_id:
                return
            total = replace(
                found,
                rows=claim.rows + rows,
                last_batch=max(claim.last_batch, last_batch),
                is_exact=is_exact,
                folder=claim.folder,
                host=claim.host,
            )
            if self._written(key, total, version):
                return
        raise Unavailable(f"the claim of job '{claim.job_id}' changed under each of {attempts_max} attempts")

    def _read(self, key: bytes) -> tuple[JobClaim | None, int]:
        item = read_or_create(self._table, key)
        return (None, NOT_EXISTS) if item.version == NOT_EXISTS else (from_bytes(item.value), item.version)

    def _written(self, key: bytes, claim: JobClaim, version: int) -> bool:
        """Writes a claim if the record has this version still; False to read it again, also when nobody can tell."""
        try:
            self._table.put(key, to_bytes(replace(claim, touched_ms=self._now_ms())), version)
        except (BadKeyVersion, KeyNotFound, UnknownOutcome):
            return False
        return True


def _key(stream: str, job_id: str) -> bytes:
    return json.dumps([job_id, stream], ensure_ascii=False, separators=(",", ":")).encode()
