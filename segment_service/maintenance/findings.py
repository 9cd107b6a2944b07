"""Collects what an examination of a cluster's data found, each finding with its remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

findings_max: Final = 1_000
"""Findings of one container that are kept; more are counted."""

RESTORE_OBJECT: Final = "restore the object from a copy; without one, delete the segment"
ANNOUNCE_AGAIN: Final = (
    "before the store starts again, put an object of at least one byte at {name}: its next sweep then looks at all "
    "segments, and makes what is lost again"
)


@dataclass(slots=True)
class DataFinding:
    """One thing that is wrong."""

    kind: str
    """``mark``, ``table``, ``manifest``, ``chunk``, ``index``, ``name``, ``owner``, ``log`` or ``server``."""
    text: str
    remedy: str
    """One sentence: what an operator does."""
    segment_id: int | None = None
    segment: str = ""
    """Name of the segment, if the metadata table tells."""


@dataclass(slots=True)
class LogFacts:
    """Sums up the log of a container for people."""

    identity: str
    epoch: int
    """Epoch of the owner that wrote the last frame; 0 for an empty log."""
    first_operation: int
    last_operation: int
    next_segment_id: int
    frames: int
    length: int
    """Bytes of all frames from the truncation point on."""
    table_high_water: int


@dataclass(slots=True)
class ContainerReport:
    """The examination of one container."""

    container_id: int
    epoch: int = 0
    """Epoch of the newest mark; 0 for a container that never ran."""
    identity: str = ""
    """Identity of its log as Tier 2 knows it, hexadecimal."""
    high_water: int = 0
    """The last operation that Tier 2 knows to be durable."""
    next_segment_id: int = 1
    table_epoch: int = 0
    table_high_water: int = 0
    table_entries: int = 0
    table_indexes: int = 0
    """Key indexes of large tables."""
    attribute_indexes: int = 0
    """Indexes of segments with many writers."""
    segments: int = 0
    """Segments that Tier 2 holds."""
    chunks: int = 0
    length: int = 0
    """Bytes of data in these chunks."""
    orphans: int | None = 0
    """Chunks of earlier epochs that no manifest lists; a store's sweep deletes them. ``None`` if damage hides it."""
    deep: bool = False
    log: LogFacts | None = None
    """``None`` for a container without a log, or if it was not read."""
    log_note: str = ""
    findings: list[DataFinding] = field(default_factory=list)
    more_findings: int = 0

    def add(self, finding: DataFinding) -> None:
        if len(self.findings) < findings_max:
            self.findings.append(finding)
        else:
            self.more_findings += 1

    @property
    def damaged_segments(self) -> list[int]:
        """Ids of the segments that a store would quarantine."""
        found = {one.segment_id for one in self.findings if one.kind in ("manifest", "chunk")}
        return sorted(one for one in found if one is not None)


@dataclass(slots=True)
class StoreReport:
    """The examination of a cluster."""

    containers: list[ContainerReport]
    findings: list[DataFinding] = field(default_factory=list)
    """What is about no single container."""

    @property
    def count(self) -> int:
        """The number of all findings."""
        return len(self.findings) + sum(len(one.findings) + one.more_findings for one in self.containers)

    def to_json(self) -> dict[str, Any]:
        containers = [asdict(one) | {"damaged_segments": one.damaged_segments} for one in self.containers]
        return {
            "is_sound": not self.count,
            "findings": [asdict(one) for one in self.findings],
            "containers": containers,
        }
