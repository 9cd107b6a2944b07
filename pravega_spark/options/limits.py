"""Defines the limits of a read, its start and its end: a keyword, or stream cuts given as text."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

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
    """A start or an end: either a keyword, or a cut for each stream (by ``scope/stream``)."""

    keyword: Keyword | None
    cuts: dict[str, SegmentOffsets] = field(default_factory=dict)

    @property
    def is_latest(self) -> bool:
        return self.keyword is Keyword.LATEST

    def cut_of(self, scope: str, stream: str) -> SegmentOffsets:
        """The cut given for a stream; ``InvalidArgument`` if the stream has no cut here."""
        cut = self.cuts.get(f"{scope}/{stream}")
        if cut is None:
            raise InvalidArgument(
                f"the stream cut is of {', '.join(self.cuts)}, but the stream to read is {scope}/{stream}"
            )
        return cut


EARLIEST = Limit(Keyword.EARLIEST)
LATEST = Limit(Keyword.LATEST)
UNBOUNDED = Limit(Keyword.UNBOUNDED)


def parse_start(text: str) -> Limit:
    """``earliest``, ``unbounded`` (the same), ``latest`` in any case, or texts of stream cuts separated by commas."""
    word = text.strip().lower()
    if word in ("earliest", "unbounded"):
        return EARLIEST
    return LATEST if word == "latest" else _cuts(text)


def parse_end(text: str) -> Limit:
    """``latest`` or ``unbounded`` in any case, or texts of stream cuts separated by commas."""
    word = text.strip().lower()
    if word == "earliest":
        raise InvalidArgument("'earliest' is where a read may start, not where it ends")
    if word in ("latest", "unbounded"):
        return LATEST if word == "latest" else UNBOUNDED
    return _cuts(text)


def _cuts(text: str) -> Limit:
    cuts: dict[str, SegmentOffsets] = {}
    for part in text.split(","):
        cut = StreamCut.from_text(part.strip())
        if cut.is_unbounded:
            raise InvalidArgument("UNBOUNDED stands alone")
        if cut.scoped_stream in cuts:
            raise InvalidArgument(f"two stream cuts of {cut.scoped_stream}")
        cuts[cut.scoped_stream] = dict(cut.offsets)
    return Limit(None, cuts)
