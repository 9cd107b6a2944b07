"""Parses the offsets of a query, each once: Spark gives the end of a batch as the start of the next one, too."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from pravega_spark.source.offsets import SourceOffset

offsets_kept_max: Final = 3
"""Offsets that are remembered: the two of the batch that is read, and the end of the one that is planned."""


class KnownOffsets:
    """The last offsets of one query, as JSON and parsed. At 1,000 segments to compare two takes a tenth of parsing."""

    def __init__(self) -> None:
        self._known: deque[tuple[Mapping[str, Any], SourceOffset]] = deque(maxlen=offsets_kept_max)

    def parsed(self, made: Mapping[str, Any]) -> SourceOffset:
        """The offset as ``SourceOffset.from_json`` has it, with its errors."""
        for known, offset in self._known:
            if known == made:
                return offset
        offset = SourceOffset.from_json(made)
        self._known.append((made, offset))
        return offset
