"""Recorded conversations between a real Pravega and its clients (tests/data/transcripts)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "transcripts"


@dataclass(frozen=True)
class RecordedFrame:
    """One wire frame; ``type_code`` is None where a side closed the connection."""

    file: str
    line: int
    connection: int
    is_request: bool
    type_code: int | None
    name: str
    payload: bytes
    is_cut_short: bool

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
                connection=entry["conn"],
                is_request=entry["dir"] == "c>s",
                type_code=entry["type"],
                name=entry["name"],
                payload=bytes.fromhex(entry["hex"]),
                is_cut_short="len" in entry,
            )


def all_wire_frames() -> list[RecordedFrame]:
    return [frame for path in wire_files() for frame in frames_of(path)]
