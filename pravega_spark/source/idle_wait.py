"""Waits before the looks of an idle source, until a store tells that something came or a pause is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pravega_common.names import offsets_by_name, split_scoped_name
from pravega_spark.gateway.contract import AppendWatch
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.source.idle_pause import IdlePause
from pravega_spark.source.offsets import OffsetsByStream
from pravega_streams.controller.address import Controller

watched_pause_min_s: Final = 0.02
"""Shorter pauses are slept through: to begin a watch costs as much as some looks."""


class IdleWait:
    """The waits of one query, whose stores are found through a controller."""

    def __init__(
        self, controller: Controller, monotonic_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._controller = controller
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._pause = IdlePause()
        self._watch: AppendWatch | None = None
        self._is_watched = False
        """Whether the last wait was before a store that tells what comes."""
        self._is_told = False
        """Whether it ended by such a tale, of which no look has shown yet that it was true."""

    def wait(self, start: dict[str, Any], tails: OffsetsByStream | None) -> None:
        """Wait before a look from ``start``, if the last one found nothing there.

        ``tails``: the segments of which an append is all that can bring something new, and their ends; None if there
        are others.
        """
        wait_s = self._pause.wait_s(start, self._monotonic_s())
        if not wait_s:
            return
        watch = self._begun(wait_s, tails)
        self._is_watched = watch is not None
        if watch is None:
            self._is_told = False
            self._sleep(wait_s)
        else:
            self._is_told = watch.wait(wait_s)

    def _begun(self, wait_s: float, tails: OffsetsByStream | None) -> AppendWatch | None:
        """The watch of these segments, where it is worth it.

        One that told what was not true is not asked for a pause: else each look would be followed by the next at once.
        """
        if tails is None or wait_s < watched_pause_min_s or self._is_told:
            return None
        self._watch = self._watch or worker_gateway(self._controller).open_watch()
        offsets = {
            name: offset
            for stream, cut in tails.items()
            for name, offset in offsets_by_name(*split_scoped_name(stream), cut).items()
        }
        return self._watch if self._watch.begin(offsets) else None

    def looked(self, start: dict[str, Any], began_s: float, *, is_found: bool) -> None:
        """Note what a look found from ``start``, and when it began by the clock."""
        if is_found:
            self._is_told = False
        else:
            self._pause.found_nothing(start, began_s, self._monotonic_s(), is_watched=self._is_watched)
