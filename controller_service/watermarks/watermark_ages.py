"""Keeps the ages of the newest watermarks, as the job that advances them found them: metrics cost nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pravega_common.runtime.clock import Clock

streams_max: Final = 100
"""Streams that are known; when there are more, those whose watermarks are older stay."""


@dataclass(frozen=True, slots=True)
class NewestWatermark:
    """The newest watermark of a stream."""

    lower_time: int
    upper_time: int
    written_ms: int
    """When it was written, by the store's clock."""
    is_held: bool = False
    """Whether a writer that is behind is waited for, while another one went on."""


class WatermarkAge(NamedTuple):
    """The age of a stream's newest watermark."""

    stream: str
    """``scope/stream``."""
    age_s: float
    is_held: bool


class WatermarkAges:
    """The streams of this controller that have writers noting time, as its last runs found them."""

    def __init__(self, clock: Clock, kept_s: float) -> None:
        """``kept_s``: a stream that was not seen for so long is another controller's, and is forgotten."""
        self._clock = clock
        self._kept_s = kept_s
        self._known: dict[str, tuple[NewestWatermark, float]] = {}
        """By stream, with the time at which each was seen."""

    def saw(self, stream: str, newest: NewestWatermark) -> None:
        """The newest watermark of a stream whose writers are active."""
        if stream not in self._known and len(self._known) >= streams_max:
            youngest = max(self._known, key=lambda one: self._known[one][0].written_ms)
            if self._known[youngest][0].written_ms <= newest.written_ms:
                return
            del self._known[youngest]
        self._known[stream] = (newest, self._clock.monotonic_s())

    def forget(self, stream: str) -> None:
        """The stream has no active writer."""
        self._known.pop(stream, None)

    def ages(self) -> list[WatermarkAge]:
        """The ages by the clock of now."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        self._known = {stream: one for stream, one in self._known.items() if now_s - one[1] <= self._kept_s}
        return [
            WatermarkAge(stream, max(0, now_ms - newest.written_ms) / 1000, newest.is_held)
            for stream, (newest, _) in self._known.items()
        ]
