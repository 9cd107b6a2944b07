"""Reads the position that a streaming query has committed from its checkpoint, without Spark.

A checkpoint has a file ``offsets/N`` for every planned batch, written before it runs, and ``commits/N`` for every
finished one. ``offsets/N`` has the end of batch N: a line with Spark's version, one with metadata, then the offset of
every source (version 2: preceded by a line with the source's name). Only the last batch with both files counts: what a
later one planned is read again when the query goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pravega_common.errors import InvalidArgument
from pravega_common.logins import without_login_of
from pravega_common.model.segments import SegmentOffsets
from pravega_spark.source.offsets import OffsetsByStream, SourceOffset

KNOWN_VERSIONS: Final = ("v1", "v2")


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """The position at which the last finished batch of a query ended, for every stream that it reads.

    ``checkpoint`` is the folder as it was given, without a password.
    """

    checkpoint: str
    batch_id: int
    position: OffsetsByStream

    def of(self, stream: str) -> SegmentOffsets:
        """The query's position in ``scope/stream``; ``InvalidArgument`` names what the query reads instead."""
        found = self.position.get(stream)
        if found is None:
            raise InvalidArgument(
                f"the query of checkpoint {self.checkpoint} reads {', '.join(sorted(self.position))}, not {stream}"
            )
        return found


def committed_position(folder: str) -> CommittedPosition:
    """Reads a checkpoint folder: a path, or a URI that Arrow can read (file, s3, gs, hdfs).

    ``InvalidArgument`` when it is no checkpoint, no batch is finished, or no source of the query reads streams.
    """
    files, root = _opened(folder)
    folder = without_login_of(folder, folder)
    batch_id = _last_finished(files, root, folder)
    lines = _read(files, f"{root}/offsets/{batch_id}", folder).splitlines()
    if not lines or lines[0] not in KNOWN_VERSIONS:
        raise InvalidArgument(
            f"{folder}/offsets/{batch_id} begins with {lines[0][:20] if lines else 'nothing'!r}, but this version "
            f"knows the versions {' and '.join(KNOWN_VERSIONS)}; it was written by another version of Spark"
        )
    positions = [offset.position for offset in map(_offset_of, lines[2:]) if offset is not None]
    if not positions:
        raise InvalidArgument(f"the query of checkpoint {folder} reads no stream of this connector")
    return CommittedPosition(folder, batch_id, _earliest(positions, f"the query of checkpoint {folder}"))


def told_position(made: Any) -> OffsetsByStream:
    """The position in parsed JSON: an offset of a source, or the progress of a query, where its batch ended.

    ``InvalidArgument`` for other JSON, and for a progress without a source of this connector.
    """
    if not isinstance(made, dict) or "sources" not in made:
        return SourceOffset.from_json(made).position
    ends = [source.get("endOffset") for source in made["sources"] if isinstance(source, dict)]
    found = [_offset_of(end if isinstance(end, str) else json.dumps(end)) for end in ends]
    positions = [offset.position for offset in found if offset is not None]
    if not positions:
        raise InvalidArgument("the progress has no source that reads streams of this connector, and has read something")
    return _earliest(positions, "the query of this progress")


def _opened(folder: str) -> tuple[Any, str]:
    from pyarrow import fs  # Options are parsed by every command, and this takes a while to import.

    try:
        if "://" in folder or folder.startswith("file:"):
            opened: tuple[Any, str] = fs.FileSystem.from_uri(folder)
            return opened[0], opened[1].rstrip("/")
        return fs.LocalFileSystem(), str(Path(folder).absolute())
    except (OSError, ValueError) as error:
        why = f"'{folder}' cannot be opened ({error}); give a path, or copy the folder here"
        raise InvalidArgument(without_login_of(folder, why)) from None  # The error shows the whole URI.


def _last_finished(files: Any, root: str, folder: str) -> int:
    from pyarrow import fs

    found = {}
    for name in ("commits", "offsets"):
        infos = files.get_file_info(fs.FileSelector(f"{root}/{name}", allow_not_found=True))
        found[name] = {int(info.base_name) for info in infos if info.base_name.isdecimal()}
    if not found["offsets"]:
        raise InvalidArgument(
            f"'{folder}' is no checkpoint of a streaming query: it has no folder offsets with batches"
        )
    finished = found["commits"] & found["offsets"]
    if not finished:
        raise InvalidArgument(f"the query of checkpoint {folder} has not finished any batch yet: it has no position")
    return max(finished)


def _read(files: Any, path: str, folder: str) -> str:
    try:
        with files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"checkpoint {folder}: {path} cannot be read: {error}") from error


def _offset_of(line: str) -> SourceOffset | None:
    """Parses a line; None for another kind of source, for a source's name, and for a source without an offset yet."""
    try:
        made = json.loads(line)
    except ValueError:
        return None
    if not isinstance(made, dict) or "streams" not in made:
        return None
    return SourceOffset.from_json(made)


def _earliest(positions: list[OffsetsByStream], query: str) -> OffsetsByStream:
    """Merges the positions of a query's sources: of a stream that is read twice, the one that both have passed."""
    merged: dict[str, SegmentOffsets] = {}
    for position in positions:
        for stream, cut in position.items():
            known = merged.setdefault(stream, dict(cut))
            if known.keys() != cut.keys():
                raise InvalidArgument(
                    f"{query} reads {stream} twice, and its sources stand in different segments; try again when they "
                    "are level"
                )
            merged[stream] = {item: min(offset, known[item]) for item, offset in cut.items()}
    return merged
