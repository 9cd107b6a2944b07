"""Keeps transactions open after their tasks have ended, as far as this process lives on.

This is a best effort for slow batches.

A plain controller knows nothing of batches: a task that is done leaves a transaction with its last lease, and the
slowest task of the batch may take longer. Spark keeps a Python worker for about a minute after its last task.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.model.transaction_sets import SetMember

_log = logging.getLogger(__name__)

extension_share: Final = 6
"""How many times a lease is renewed within its time."""
members_max: Final = 10_000
"""Transactions kept open at most; the oldest are given up first, and their last lease still runs."""


class LeaseExtender:
    """A thread that renews leases.

    ``renew`` renews one and says whether the transaction is still open; one that is not is forgotten.
    """

    def __init__(self, renew: Callable[[SetMember], bool], lease_s: float) -> None:
        self._renew = renew
        self._interval_s = lease_s / extension_share
        self._members: dict[uuid.UUID, SetMember] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, members: Sequence[SetMember]) -> None:
        """Keep these open too; the first ones start the thread."""
        with self._lock:
            for member in members:
                self._members[member.transaction_id] = member
            while len(self._members) > members_max:
                self._members.pop(next(iter(self._members)))
            if self._thread is None and self._members:
                self._thread = threading.Thread(target=self._run, name="pravega-lease-extender", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Stop renewing; does not wait for a renewal that is under way."""
        self._stopped.set()

    def renew_all(self) -> int:
        """Renew each lease once; returns how many are still open or could not be asked."""
        with self._lock:
            members = list(self._members.values())
        for member in members:
            if self._stopped.is_set():
                break
            try:
                is_open = self._renew(member)
            except PravegaError as error:
                _log.info("the lease of transaction %s was not renewed, trying again: %s", member.transaction_id, error)
                continue
            if not is_open:
                with self._lock:
                    self._members.pop(member.transaction_id, None)
        with self._lock:
            return len(self._members)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self.renew_all()
