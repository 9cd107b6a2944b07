"""Remembers a look that found nothing, so that an idle source does not work out again what cannot have changed."""

from __future__ import annotations

from pravega_spark.source.infos_together import Infos
from pravega_spark.source.offsets import OffsetsByStream


class QuietLook:
    """The last look of one query, if all was read then and nothing was to come but by an append."""

    def __init__(self) -> None:
        self._seen: tuple[OffsetsByStream, Infos] | None = None

    @property
    def tails(self) -> OffsetsByStream | None:
        """The ends of all segments, as far as that look knows; None if something else than an append may come."""
        return self._seen and self._seen[0]

    def is_repeated(self, position: OffsetsByStream, infos: Infos) -> bool:
        """Whether the stores say of these segments what they said then, so that there is nothing to read again."""
        return self._seen == (position, infos)

    def looked(self, position: OffsetsByStream, available: OffsetsByStream, infos: Infos) -> None:
        """Remember a look: how far may be read from a position. A sealed segment may get successors, unseen in it."""
        is_sealed = any(info.is_sealed for known in infos.values() for info in known.values())
        self._seen = None if available != position or is_sealed else (position, infos)
