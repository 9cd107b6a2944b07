"""Reads recorded conversations between a real Pravega and its clients (tests/data/transcripts)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "transcripts"


@dataclass(frozen=True)
class RecordedFrame:
    """One wire frame; without a ``type_code``, a side closed the connection."""

    file: str
    line: int
    time_ms: float
    connection: int
    is_request: bool
    type_code: int | None
    name: str
    payload: bytes
    is_cut_short: bool
    whole_length: int
    """Length of the payload as it was sent; more than ``payload`` has when that is cut short."""

    @property
    def padded_payload(self) -> bytes:
        """The payload, with zeros for what the recording left out."""
        return self.payload.ljust(self.whole_length, b"\0")

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}"


def wire_files() -> list[Path]:
    return sorted([*TRANSCRIPTS.glob("*.wire.jsonl"), *TRANSCRIPTS.glob("*.store-internal.jsonl")])


def frames_of(path: Path) -> Iterator[RecordedFrame]:
    with path.open() as lines:
        for number, text in enumerate(lines, 1):
            entry = json.loads(text)
            yield RecordedFrame(
                file=path.name,
                line=number,
                time_ms=entry["t"],
                connection=entry["conn"],
                is_request=entry["dir"] == "c>s",
                type_code=entry["type"],
                name=entry["name"],
                payload=bytes.fromhex(entry["hex"]),
                is_cut_short="len" in entry,
                whole_length=entry.get("len", len(entry["hex"]) // 2),
            )


def conversation(scenario: str) -> list[RecordedFrame]:
    """A client's frames and the controller's, of one scenario, in the order in which they were seen."""
    paths = [path for path in wire_files() if path.name.split(".")[0] == scenario]
    return sorted((frame for path in paths for frame in frames_of(path)), key=lambda frame: frame.time_ms)


def all_wire_frames() -> list[RecordedFrame]:
    return [frame for path in wire_files() for frame in frames_of(path)]
