"""Keeps other restores of the cluster, or rebuilds of its CPO, out for as long as one works."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pravega_common.errors import ConfigurationError, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.cpo import ControlPlaneOracle

LOCK: Final = "store-restore"
lock_ms: Final = 600_000
"""How long others are kept out after this process died; epochs keep two restores apart in any case."""
renew_period_s: Final = 60.0
"""Seconds between two renewals of the claim: nine may fail in a row."""


async def claimed(
    cpo: ControlPlaneOracle,
    clock: Clock,
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    lock: str = LOCK,
    doing: str = "restoring this cluster",
) -> None:
    """Do some work as the only one; it is stopped, to be made again, when the claim to that is lost.

    ``ConfigurationError`` if somebody else has the claim, ``Unavailable`` if it was lost on the way.
    """
    holder = secrets.token_hex(8)
    if not await cpo.try_lock(lock, holder, lock_ms):
        raise ConfigurationError(f"somebody else is {doing}; wait for the end of that")
    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(_keep(cpo, clock, lock, holder, doing))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = next(task for task in tasks if task.done())
        await ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cpo.unlock(lock, holder)


async def _keep(cpo: ControlPlaneOracle, clock: Clock, lock: str, holder: str, doing: str) -> None:
    """Renew the claim until it is lost, which is raised."""
    kept_s = clock.monotonic_s()
    while True:
        await clock.sleep(renew_period_s)
        now_s = clock.monotonic_s()
        try:
            is_kept = await cpo.try_lock(lock, holder, lock_ms)
        except (Unavailable, UnknownOutcome) as error:
            if now_s + renew_period_s - kept_s >= lock_ms / 1000:
                raise Unavailable(f"the CPO is away, and others may be {doing} soon: stopped; begin again") from error
            continue
        if not is_kept:
            raise Unavailable(f"somebody else is {doing} now: stopped; wait for the end of that")
        kept_s = now_s
