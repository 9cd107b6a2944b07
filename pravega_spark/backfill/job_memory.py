"""Joins the memory of a load job with the claim of its id in the cluster, or refuses the job.

The steps at a first run: the folder gets a query id (``query.json``), the cluster records it with the stream as it is
now, the checkpoint gets the query id, and the folder notes that it is claimed (``claimed.json``). A run that died
between two of them goes on with the next.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.ledger.job_claims import JobClaim, JobClaims

QUERY: Final = "query.json"
CLAIMED: Final = "claimed.json"
RECORD: Final = "job.json"
CHECKPOINT: Final = "checkpoint"
METADATA: Final = f"{CHECKPOINT}/metadata"
"""Spark's file with the id of a query, which a query takes over that finds it."""
memory_version: Final = 1
AFTER_QUERY: Final = register("spark.load.after_query")
AFTER_CLAIM: Final = register("spark.load.after_claim")
AFTER_METADATA: Final = register("spark.load.after_metadata")


class JobMisplaced(ConfigurationError):
    """A job's memory, its cluster and its stream do not belong together, so rows would be missing or there twice."""


class Memory(Protocol):
    """The folder of a job; ``JobFolder`` says more."""

    path: str

    def read(self, name: str) -> dict[str, Any] | None: ...

    def create(self, name: str, content: dict[str, Any]) -> None: ...


def recorded(memory: Memory, name: str, version: int) -> dict[str, Any] | None:
    """Reads a record of a job's folder, None if it is not there; ``JobMisplaced`` for one of another version."""
    found = memory.read(name)
    if found is not None and found.get("version") != version:
        raise JobMisplaced(
            f"{memory.path}/{name} has version {found.get('version')}, this program reads {version}: "
            "go on with the version of pravega-spark that wrote it"
        )
    return found


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that a job loads into.

    ``first_segment`` returns the id of the stream's first segment ever, None while there is no such stream. ``knows``
    tells whether the sink has batches of a query.
    """

    stream: str
    controller: str
    first_segment: Callable[[], int | None]
    create: Callable[[], None]
    knows: Callable[[str], bool]


class JobMemory:
    """The memory of one load job. ``is_of_files``: which files are written is known in its checkpoint alone."""

    def __init__(self, job_id: str, memory: Memory, claims: JobClaims, target: Target, *, is_of_files: bool) -> None:
        self._job_id = job_id
        self._memory = memory
        self._claims = claims
        self._target = target
        self._is_of_files = is_of_files

    def claimed(self, own: str) -> JobClaim:
        """Returns the claim under which this run may write, given the folder's query id.

        ``JobMisplaced`` says what to do where none may be had.
        """
        if recorded(self._memory, CLAIMED, memory_version) is not None:
            return self._claimed_before(own)
        failpoint(AFTER_QUERY)
        first_segment = self._first_segment_created()
        wanted = JobClaim(
            self._job_id, own, self._target.stream, first_segment, self._memory.path, socket.gethostname()
        )
        found = self._claims.read(self._target.stream, self._job_id)
        if found is None or found.first_segment != first_segment:
            if found is not None and found.query_id == own:
                # Of a run that died here. What a job of 0.1.0 had written before it went with the former stream.
                raise self._replaced(is_there=True)
            found = self._claims.put(wanted, found)
        if self._is_of_files and found.query_id != own:
            raise self._elsewhere(found)
        failpoint(AFTER_CLAIM)
        if self._is_of_files and self._memory.read(METADATA) is None:
            self._memory.create(METADATA, {"id": own})
        failpoint(AFTER_METADATA)
        self._memory.create(CLAIMED, {"version": memory_version, "query_id": found.query_id})
        return found

    def query_id(self) -> str:
        """Returns the id of the job's writer, made at the first run; that of a job of 0.1.0 is in its checkpoint.

        To be called before the job is recorded: a record without a query id is one of 0.1.0.
        """
        known = recorded(self._memory, QUERY, memory_version)
        if known is not None:
            return str(known["query_id"])
        query_id = str(uuid.uuid4())
        if self._memory.read(RECORD) is not None:
            query_id = self._query_id_of_before() or query_id
        self._memory.create(QUERY, {"version": memory_version, "query_id": query_id})
        return query_id

    def _query_id_of_before(self) -> str | None:
        if not self._is_of_files:
            return self._job_id
        metadata = self._memory.read(METADATA)
        if metadata is None:
            return None
        query_id = str(metadata["id"])
        if not self._target.knows(query_id):
            raise self._forgotten()
        return query_id

    def _claimed_before(self, own: str) -> JobClaim:
        found = self._claims.read(self._target.stream, self._job_id)
        if found is None or (self._is_of_files and found.query_id != own):
            raise self._forgotten()
        first_segment = self._target.first_segment()
        if first_segment != found.first_segment:
            raise self._replaced(is_there=first_segment is not None)
        if self._is_of_files and self._memory.read(METADATA) is None:
            raise JobMisplaced(
                f"the checkpoint {self._memory.path}/{CHECKPOINT} of job '{self._job_id}' is not there any more, so "
                f"nobody knows which files are in {self._target.stream}: restore it, or load everything again under "
                "another --job-id"
            )
        return replace(found, folder=self._memory.path, host=socket.gethostname())

    def _first_segment_created(self) -> int:
        first_segment = self._target.first_segment()
        if first_segment is None:
            self._target.create()
            first_segment = self._target.first_segment()
        if first_segment is None:
            raise self._replaced(is_there=False)
        return first_segment

    def _elsewhere(self, found: JobClaim) -> JobMisplaced:
        rows = f"{found.rows:,} rows" if found.rows else "rows, maybe none yet,"
        return JobMisplaced(
            f"job '{self._job_id}' has loaded {rows} into {self._target.stream} from another machine or folder, and "
            f"which files these are is known in {found.folder} of {found.host} alone, not in {self._memory.path}: "
            "give the folder above that with --checkpoint, or load everything again under another --job-id"
        )

    def _forgotten(self) -> JobMisplaced:
        return JobMisplaced(
            f"the cluster at {self._target.controller} has no record of job '{self._job_id}', but "
            f"{self._memory.path} remembers that it has loaded into {self._target.stream}: this is another cluster, or "
            "its data was replaced. Name the right controller, or delete that folder to load everything into this one"
        )

    def _replaced(self, *, is_there: bool) -> JobMisplaced:
        became = "was deleted and made again" if is_there else "was deleted"
        return JobMisplaced(
            f"stream {self._target.stream} {became} since job '{self._job_id}' began to load into it; delete "
            f"{self._memory.path} to load everything again, or use another --job-id"
        )
