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
from pravega_spark.source.checkpoint import committed_position, told_position


class Keyword(enum.Enum):
    """The words for a position that every stream has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    UNBOUNDED = "unbounded"


@dataclass(frozen=True)
class Limit:
    """A start or an end: either a keyword, or a cut for each stream (by ``scope/stream``).

    ``checkpoint``: the folder that has the cuts; it is read when a cut is asked for.
    """

    keyword: Keyword | None
    cuts: dict[str, SegmentOffsets] = field(default_factory=dict)
    checkpoint: str = ""

    @property
    def is_latest(self) -> bool:
        return self.keyword is Keyword.LATEST

    def cut_of(self, scope: str, stream: str) -> SegmentOffsets:
        """The cut given for a stream; ``InvalidArgument`` if the stream has no cut here, or no checkpoint is there."""
        cuts = committed_position(self.checkpoint).position if self.checkpoint else self.cuts
        cut = cuts.get(f"{scope}/{stream}")
        if cut is None:
            raise InvalidArgument(f"the stream cut is of {', '.join(cuts)}, but the stream to read is {scope}/{stream}")
        return cut


@dataclass(frozen=True)
class StartTimes:
    """Times in milliseconds since 1970: one for all streams, or one for each (by ``scope/stream`` or ``stream``)."""

    everywhere: int | None = None
    by_stream: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.by_stream.values()) if self.everywhere is None else self.everywhere

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

_FOLDER: Final = re.compile(r"/|\.{1,2}/|[A-Za-z][A-Za-z0-9+.-]*:/")
"""How a path or URI of a checkpoint begins; the text of a stream cut never does."""


def parse_start(text: str) -> Limit:
    """``earliest``, ``unbounded`` (the same), ``latest`` in any case, or stream cuts (texts separated by commas)."""
    word = text.strip().lower()
    if word in ("earliest", "unbounded"):
        return EARLIEST
    return LATEST if word == "latest" else _cuts(text)


def parse_end(text: str) -> Limit:
    """``latest`` or ``unbounded`` in any case, or stream cuts (texts separated by commas)."""
    word = text.strip().lower()
    if word == "earliest":
        raise InvalidArgument("'earliest' is where a read may start, not where it ends")
    if word in ("latest", "unbounded"):
        return LATEST if word == "latest" else UNBOUNDED
    return _cuts(text)


def _cuts(text: str) -> Limit:
    if text.lstrip().startswith("{"):
        try:
            return Limit(None, dict(told_position(json.loads(text))))
        except json.JSONDecodeError as error:
            raise InvalidArgument(f"it begins as JSON, and is none: {error}") from error
    if _FOLDER.match(text.strip()):
        return Limit(None, checkpoint=text.strip())
    cuts: dict[str, SegmentOffsets] = {}
    for part in text.split(","):
        cut = StreamCut.from_text(part.strip())
        if cut.is_unbounded:
            raise InvalidArgument("UNBOUNDED stands alone")
        if cut.scoped_stream in cuts:
            raise InvalidArgument(f"two stream cuts of {cut.scoped_stream}")
        cuts[cut.scoped_stream] = dict(cut.offsets)
    return Limit(None, cuts)
