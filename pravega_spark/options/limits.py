"""Defines the limits of a read, its start and its end: a keyword, or stream cuts given as text.

A stream cut is Pravega's text of one, the JSON of an offset of a query or of its progress, or the checkpoint folder of
a query: the position that its last finished batch ended at.
"""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.stream_cut import StreamCut


class Keyword(enum.Enum):
    """The words for a position that every stream has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True)
class Limit:
    """A start or an end: a keyword, a cut for each stream (by ``scope/stream``), or where a query says that it stands.

    ``told``: JSON of an offset or a progress of a query, or the folder of its checkpoint (``source/told_cuts.py``).
    """

    keyword: Keyword | None
    cuts: dict[str, SegmentOffsets] = field(default_factory=dict)
    told: str = ""

    @property
    def is_latest(self) -> bool:
        return self.keyword is Keyword.LATEST


@dataclass(frozen=True)
class StartTimes:
    """Times in milliseconds since 1970: one for all streams, or one for each (by ``scope/stream`` or ``stream``)."""

    everywhere: int | None = None
    by_stream: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.by_stream.values()) if self.everywhere is None else self.everywhere

    def has(self, scope: str, stream: str) -> bool:
        """Whether a time is given for a stream."""
        return self.everywhere is not None or bool({f"{scope}/{stream}", stream} & self.by_stream.keys())

    def of(self, scope: str, stream: str) -> int:
        """The time of a stream; ``InvalidArgument`` where none is given for it."""
        for name in (f"{scope}/{stream}", stream):
            if name in self.by_stream:
                return self.by_stream[name]
        if self.everywhere is None:
            raise InvalidArgument(
                f"option 'start_time' has times of {', '.join(self.by_stream)}, but none of {scope}/{stream}"
            )
        return self.everywhere


EARLIEST = Limit(Keyword.EARLIEST)
LATEST = Limit(Keyword.LATEST)
UNBOUNDED = Limit(Keyword.UNBOUNDED)

_FOLDER: Final = re.compile(r"/|\.{1,2}/|[A-Za-z][A-Za-z0-9+.-]*:/|(?!H4sI)[^,]*/")
"""A path or URI of a checkpoint, which a stream cut is not: its text begins with the Base64 of a gzip, ``H4sI``."""


def parse_start(text: str) -> Limit:
    """``earliest``, ``unbounded`` (the same), ``latest`` in any case, or stream cuts (texts separated by commas)."""
    word = text.strip().lower()
    if word in ("earliest", "unbounded"):
        return EARLIEST
    return LATEST if word == "latest" else _cuts(text, "earliest, latest")


def parse_end(text: str) -> Limit:
    """``latest`` or ``unbounded`` in any case, or stream cuts (texts separated by commas)."""
    word = text.strip().lower()
    if word == "earliest":
        raise InvalidArgument("'earliest' is where a read may start, not where it ends")
    if word in ("latest", "unbounded"):
        return LATEST if word == "latest" else UNBOUNDED
    return _cuts(text, "latest, unbounded")


def _cuts(text: str, words: str) -> Limit:
    """``words``: what may stand there beside positions, named where the text is neither."""
    if text.lstrip().startswith("{"):
        _check_json(text)
        return Limit(None, told=text)
    if _FOLDER.match(text.strip()):
        return Limit(None, told=text.strip())
    cuts: dict[str, SegmentOffsets] = {}
    for part in text.split(","):
        try:
            cut = StreamCut.from_text(part.strip())
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{error}; give {words}, a stream cut as text, a checkpoint's folder or a query's offset or progress "
                "as JSON"
            ) from error
        if cut.is_unbounded:
            raise InvalidArgument("UNBOUNDED stands alone")
        if cut.scoped_stream in cuts:
            raise InvalidArgument(f"two stream cuts of {cut.scoped_stream}")
        cuts[cut.scoped_stream] = dict(cut.offsets)
    return Limit(None, cuts)


def _check_json(text: str) -> None:
    try:
        made = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"this JSON is damaged: {error}") from error
    if not made.keys() & {"streams", "sources"} or not isinstance(made.get("sources", []), list):
        raise InvalidArgument(
            "JSON must be an offset of a query (with streams) or a progress of one (with a list of sources)"
        )
