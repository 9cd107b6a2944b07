"""Warns that a call waits for a controller, so that no one looks at a program that stands still in silence."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

import grpc

from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.failed_attempts import was_unsent

notice_time_max_s: Final = 1.5
"""A call that has waited this long, or is about to, says so."""
notice_every_s: Final = 5.0
"""At most one warning in this time, however many calls wait."""

_log = logging.getLogger(__name__)


class WaitNotice:
    """Writes the warnings of all calls to one cluster. Safe to use from several threads.

    ``now_s`` is a monotonic clock in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told_s: float | None = None
        self._lock = threading.RLock()  # As a Ctrl-C in Python 3.14 may leave it held by its thread.

    def failed(self, endpoint: Endpoint, failure: grpc.RpcError, left_s: float) -> None:
        """A call failed and is repeated, for ``left_s`` seconds at most."""
        code, reason = failure.code(), short_reason(failure)
        is_silent = was_unsent(failure) or code is grpc.StatusCode.CANCELLED
        what = f"does not answer ({reason})" if is_silent else f"cannot serve a call now ({reason})"
        self._tell(f"controller {endpoint} {what}; asking again for up to {max(1, round(left_s))} s")

    def silent(self, endpoint: Endpoint, waited_s: float) -> None:
        """A controller has answered nothing since a call began."""
        self._tell(f"controller {endpoint} has answered nothing for {waited_s:.1f} s; waiting for it")

    def _tell(self, text: str) -> None:
        with self._lock:
            now_s = self._now_s()
            if self._told_s is not None and now_s - self._told_s < notice_every_s:
                return
            self._told_s = now_s
        _log.warning("%s", text)


def short_reason(failure: grpc.RpcError) -> str:
    """Names what failed in a call, without gRPC's list of the layers that it went through."""
    details = str(failure.details() or failure.code().name)
    return details.rsplit(": ", 1)[-1] if "last error: " in details else details
