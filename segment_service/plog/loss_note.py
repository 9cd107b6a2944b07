"""Keeps in the CPO how many frames of a log were acknowledged, once its owner found some of them lost.

What is left of a log that lost frames beyond a minority of its copies may be consistent in itself, and Tier 2 need not
have more. The next owner compares what it recovers with the note, so that it does not go on unaware.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from pravega_common.errors import DataCorruption
from pravega_common.services.cluster.cpo import ControlPlaneOracle

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class LossNote:
    """One container's note. ``frames``: the frames below this number were acknowledged by the owner of ``epoch``."""

    epoch: int
    frames: int

    def encode(self) -> str:
        return json.dumps({"format": _FORMAT, **asdict(self)})

    @staticmethod
    def decode(text: str) -> LossNote:
        """``DataCorruption`` for text that is no note known here."""
        try:
            record = json.loads(text)
            if record["format"] == _FORMAT:
                return LossNote(int(record["epoch"]), int(record["frames"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataCorruption(f"the note of lost frames {text[:100]!r} cannot be read") from error
        raise DataCorruption(f"a note of lost frames of format {record['format']}; format {_FORMAT} is known here")


class LossNotes:
    """The note of one container, a constant of the CPO. There is one at most, which later ones replace."""

    def __init__(self, cpo: ControlPlaneOracle, container_id: int) -> None:
        self._cpo = cpo
        self._container_id = container_id
        self._key = f"log-acknowledged/{container_id}"

    async def put(self, note: LossNote) -> None:
        """Replace the note, unless a later owner, or a restore, wrote one; ``VersionConflict`` if one does so now."""
        standing = await self._cpo.get_constant(self._key)
        if standing is None or LossNote.decode(standing).epoch <= note.epoch:
            await self._cpo.replace_constant(self._key, standing, note.encode())

    async def begin_again(self, epoch: int) -> None:
        """A log without frames takes the place of the one before, from this epoch on: what an earlier owner still
        notes is not about it."""
        await self.put(LossNote(epoch, 0))

    async def compare(self, frames: int) -> None:
        """``DataCorruption`` if the log has fewer frames than the note says were acknowledged."""
        standing = await self._cpo.get_constant(self._key)
        note = LossNote(0, 0) if standing is None else LossNote.decode(standing)
        if frames < note.frames:
            raise DataCorruption(
                f"container {self._container_id}: the log ends at frame {frames}, but the owner of epoch {note.epoch} "
                f"had acknowledged {note.frames} frames before it found some of them lost. Give the servers the newest "
                "copy of Tier 1 (their append-only files); if that is gone for good, run pravega-spark store restore"
            )
