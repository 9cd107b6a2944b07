"""Keeps the transactions of a batch open while a task of it runs, also one that has no row yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.model.transaction_sets import RegisterStatus, Registration

_log = logging.getLogger(__name__)

renewal_share: Final = 3
"""How many times a registration is renewed within the time it lasts, so that two failures in a row do no harm."""
renewal_interval_min_s: Final = 0.5
renewal_interval_max_s: Final = 30.0
"""Also the time from the begin of a task, and again from its first registration, to the first renewal."""
stop_time_max_s: Final = 5.0


class LeaseKeeper:
    """Calls ``renew`` from a thread of its own until ``stop``; a task's own thread is busy with rows.

    A failed call is repeated at the next turn. Once a renewal is refused the thread ends and ``refusal`` says why.
    """

    def __init__(self, renew: Callable[[], Registration]) -> None:
        self._renew = renew
        self._interval_s = renewal_interval_max_s
        self._is_stopped = False
        self._woken = threading.Event()
        """The interval changed, or the keeper is stopped."""
        self.refusal: Registration | None = None
        self._thread = threading.Thread(target=self._run, name="pravega-lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def renew_within(self, renewed_for_ms: int) -> None:
        """Take up the task's first registration, which was made now and lasts for so long."""
        interval_s = renewed_for_ms / 1000 / renewal_share
        self._interval_s = min(max(interval_s, renewal_interval_min_s), renewal_interval_max_s)
        self._woken.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(stop_time_max_s)

    def _run(self) -> None:
        while not self._is_stopped:
            if self._woken.wait(self._interval_s):
                self._woken.clear()
                continue
            try:
                answer = self._renew()
            except PravegaError as error:
                _log.warning("the transactions of a batch could not be renewed, trying again: %s", error)
                continue
            if answer.status is not RegisterStatus.REGISTERED:
                self.refusal = answer
                return
