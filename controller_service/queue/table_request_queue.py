"""Keeps the request queue in a table of the versioned store.

A request is stored under ``<owner>/<sequence>/<request id>`` and removed when its handler has finished. An owner is one
run of one controller instance: what is found under an owner without a lease is adopted, at start and periodically.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from controller_service.queue.handler_slots import HandlerSlots
from controller_service.queue.request_queue import AnsweringHandler, Handler, Postpone, Request, SubmittedRequest
from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ANY_VERSION, Versioned, VersionedStore
from pravega_common.errors import DataCorruption, Outcome, PravegaError, RejectedError, Throttled, UnknownOutcome
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.retrying import RetryLimits, retry

REQUESTS_TABLE: Final = "requests"
requests_queued_max: Final = 10_000
requests_remembered_max: Final = 10_000
"""Requests whose first answer is kept, without their payloads, for a caller that submits the same one again."""
sweep_period_s: Final = 3.0
retry_delay_min_s: Final = 0.02
retry_delay_max_s: Final = 5.0
store_limits: Final = RetryLimits(attempts_max=8, pause_s=lambda failed: retry_delay_min_s * 2.0 ** (failed - 1))
"""Attempts to write or remove a stored request."""

SUBMITTED = register("controller.request_submitted")
HANDLED = register("controller.request_handled_before_removal")


@dataclass(frozen=True, slots=True)
class StoredRequest:
    kind: str
    key: str
    payload: str


@dataclass(slots=True)
class _Queued:
    submitted: SubmittedRequest
    """Its own: two submissions of one id that race are two runs with one first answer."""
    table_key: str
    failures: int = 0


class TableRequestQueue(Service):
    """``live_owners`` tells which owners hold a lease now; this one counts as alive by itself."""

    def __init__(
        self, tables: VersionedStore, owner: str, clock: Clock, live_owners: Callable[[], Awaitable[set[str]]]
    ) -> None:
        super().__init__("request-queue")
        check("/" not in owner, "an owner's id is part of keys", owner=owner)
        self._tables = tables
        self._owner = owner
        self._clock = clock
        self._live_owners = live_owners
        self._handlers: dict[str, AnsweringHandler] = {}
        self._sequence = itertools.count(1)
        self._waiting: dict[str, deque[_Queued]] = {}
        self._submitted: OrderedDict[str, SubmittedRequest] = OrderedDict()
        """The latest submission of each request id."""
        self._storing: dict[str, asyncio.Future[SubmittedRequest]] = {}
        """Submissions that are on their way into the table, by request id."""
        self._own_keys: set[str] = set()
        """Keys of this owner that are being stored, wait, run or are being removed."""
        self._pending = 0
        self._slots = HandlerSlots(clock, self.spawn)

    def register(self, kind: str, handler: Handler) -> None:
        self.register_answering(kind, lambda request, answer: handler(request))

    def register_answering(self, kind: str, handler: AnsweringHandler) -> None:
        check(kind not in self._handlers, "two handlers for one kind of request", kind=kind)
        self._handlers[kind] = handler

    async def on_start(self) -> None:
        await self._tables.create_table(REQUESTS_TABLE)
        await self.sweep()
        self.spawn(self._sweep_periodically(), "sweep")

    async def on_stop(self) -> None:
        """Callers get an answer now; the requests stay in the table for another instance."""
        for line in self._waiting.values():
            for queued in line:
                queued.submitted.fail(UnknownOutcome("this controller stops; another one completes the work"))

    async def submit(self, request: Request) -> SubmittedRequest:
        """As in ``RequestQueue``; ``Throttled`` when too many requests wait already."""
        check(request.kind in self._handlers, "no handler for this kind of request", kind=request.kind)
        pending = self._submitted.get(request.request_id)
        if pending is not None and not pending.is_finished and not pending.is_handled:
            return pending
        storing = self._storing.get(request.request_id)
        if storing is None:
            waiting = self._pending + len(self._storing)
            if waiting >= requests_queued_max:
                raise Throttled(f"{waiting} requests are waiting, at most {requests_queued_max} may")
            storing = self._storing[request.request_id] = asyncio.get_running_loop().create_future()
            storing.add_done_callback(lambda done: done.exception())
            # Not by the caller itself, who may be cut off at any moment: what is stored is run.
            task = self.spawn(self._store_and_enqueue(request, storing), f"submission of {request.request_id}")
            task.add_done_callback(lambda _: self._submission_ended(request, storing))
        return await asyncio.shield(storing)

    async def _store_and_enqueue(self, request: Request, result: asyncio.Future[SubmittedRequest]) -> None:
        table_key = f"{self._owner}/{self._clock.wall_ms():014d}{next(self._sequence):08d}/{request.request_id}"
        self._own_keys.add(table_key)
        try:
            await self._store(table_key, request)
            failpoint(SUBMITTED)
            submitted = SubmittedRequest(request)
            self._enqueue(_Queued(submitted, table_key))
            self._storing.pop(request.request_id, None)
            result.set_result(submitted)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Should it be stored after all, the sweep finds it.
            self._own_keys.discard(table_key)
            result.set_exception(error)

    def _submission_ended(self, request: Request, result: asyncio.Future[SubmittedRequest]) -> None:
        if not result.done():
            result.set_exception(UnknownOutcome("this controller stops; another one completes what is stored"))
        if self._storing.get(request.request_id) is result:
            del self._storing[request.request_id]

    async def _store(self, table_key: str, request: Request) -> None:
        """The key is this request's alone, so a put whose answer was lost is simply made again: a request must not
        lie in the table unknown to its owner, to be run long after its caller saw it fail."""
        value = encode(StoredRequest(request.kind, request.key, _payload_text(request.payload)))
        may_be_stored = False

        async def put() -> None:
            nonlocal may_be_stored
            try:
                await self._tables.put(REQUESTS_TABLE, table_key, value, ANY_VERSION)
            except PravegaError as error:
                if may_be_stored and error.outcome is not Outcome.UNKNOWN:
                    raise UnknownOutcome(f"request {request.request_id} may be stored: {error}") from error
                may_be_stored = True
                raise

        await retry(put, store_limits, self._clock, when=lambda error: error.outcome is Outcome.UNKNOWN)

    # ---- running -----------------------------------------------------------------------------------------------------

    def _enqueue(self, queued: _Queued) -> None:
        request = queued.submitted.request
        earlier = self._submitted.get(request.request_id)
        if earlier is not None and not earlier.is_refused:
            queued.submitted.share_answer(earlier)
        self._submitted[request.request_id] = queued.submitted
        self._submitted.move_to_end(request.request_id)
        self._pending += 1
        line = self._waiting.get(request.key)
        if line is None:
            self._waiting[request.key] = deque([queued])
            self.spawn(self._run_line(request.key), f"requests of {request.key}")
        else:
            line.append(queued)
        self._forget_old_submissions()

    def _forget_old_submissions(self) -> None:
        """Forget the oldest that are finished. One that is not goes to the end: it may stay unfinished for days."""
        for _ in range(len(self._submitted)):
            if len(self._submitted) <= requests_remembered_max:
                return
            oldest = next(iter(self._submitted))
            if self._submitted[oldest].is_finished:
                del self._submitted[oldest]
            else:
                self._submitted.move_to_end(oldest)

    async def _run_line(self, key: str) -> None:
        """Run the requests of one key until none is left."""
        line = self._waiting[key]
        while line:
            queued = line[0]
            delay_s = await self._run(queued)
            if delay_s is None:
                line.popleft()
                self._pending -= 1
                queued.submitted.forget_payload()
                continue
            queued.failures += 1
            # What is behind may be what this one waits for.
            line.rotate(-1)
            if line[0].failures:
                await self._clock.sleep(delay_s)
        del self._waiting[key]

    async def _run(self, queued: _Queued) -> float | None:
        """None when the request is finished with, else the seconds to wait before the next attempt."""
        submitted = queued.submitted
        request = submitted.request
        delay_s = min(retry_delay_max_s, retry_delay_min_s * 2.0 ** min(queued.failures, 16))
        try:
            async with self._slots.place():
                await self._handlers[request.kind](request, submitted.answer)
                submitted.is_handled = True
                failpoint(HANDLED)
        except Postpone as reason:
            self.log.debug("request postponed", kind=request.kind, key=request.key, reason=str(reason))
            return max(delay_s, reason.delay_s)
        except RejectedError as error:
            self.log.info("request refused", kind=request.kind, key=request.key, error=str(error))
            removed = await self._finish(queued)
            # Its caller must not rely on a refusal of what the sweep adopts: it may be carried out then.
            submitted.fail(error if removed else _still_stored(request, error))
            if self._submitted.get(request.request_id) is submitted:
                del self._submitted[request.request_id]  # submitted again it is answered afresh
            return None
        except Exception as error:
            # A handler's bug must not take everybody else's work down with it: it is retried and seen in the log.
            self.log.warning("request failed", kind=request.kind, key=request.key, error=repr(error), retry_s=delay_s)
            return delay_s
        await self._finish(queued)
        submitted.succeed()
        return None

    async def _finish(self, queued: _Queued) -> bool:
        """Remove the stored request; False for one that may stay. It is adopted and run again: one that was carried out
        finds nothing to do, one that was refused may be carried out."""

        async def remove() -> None:
            await self._tables.remove(REQUESTS_TABLE, queued.table_key)

        try:
            await retry(remove, store_limits, self._clock, when=lambda error: True)
        except PravegaError as error:
            self.log.warning("finished request is still stored", key=queued.table_key, error=repr(error))
            return False
        finally:
            self._own_keys.discard(queued.table_key)
        return True

    # ---- what others left --------------------------------------------------------------------------------------------

    async def _sweep_periodically(self) -> None:
        while True:
            await self._clock.sleep(sweep_period_s)
            try:
                await self.sweep()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("sweep failed", error=repr(error), retry_s=sweep_period_s)

    async def sweep(self) -> int:
        """Adopt the requests of owners that are gone, and those of this owner that it does not know: their storing or
        their removal seemed to fail. Returns how many; those for which there is no room stay for a later sweep. Two
        instances may adopt the same one: both run it, as handlers allow."""
        live = {self._owner, *await self._live_owners()}
        left: list[tuple[str, Versioned]] = []
        unknown: list[str] = []
        token = b""
        while True:
            page = await self._tables.scan(REQUESTS_TABLE, token)
            for table_key, found in page.entries:
                owner = table_key.partition("/")[0]
                if owner not in live:
                    left.append((table_key, found))
                elif owner == self._owner and table_key not in self._own_keys:
                    unknown.append(table_key)
            token = page.continuation
            if not token:
                break
        adopted = 0
        try:
            for table_key, found in sorted(left, key=lambda item: item[0].partition("/")[2]):
                adopted += await self._adopt(table_key, found)
            for table_key in sorted(unknown):
                adopted += await self._adopt_own(table_key)
        except Throttled as error:
            # The start of a controller sweeps too: it must not fail for what several others left.
            self.log.info("requests that others left wait for a later sweep", adopted=adopted, reason=str(error))
        return adopted

    async def _adopt_own(self, table_key: str) -> bool:
        """Run a request of this owner unless it is gone: it may have been finished while the table was read."""
        found = await self._tables.get(REQUESTS_TABLE, table_key)
        if found is None or table_key in self._own_keys:
            return False
        return await self._adopt(table_key, found)

    async def _adopt(self, table_key: str, found: Versioned) -> bool:
        """False for a request that cannot be read or carried out here: it stays, and keeps no other one back."""
        try:
            request = _stored_request(table_key, found.value)
        except DataCorruption as error:
            self.log.error("a stored request cannot be read", key=table_key, error=str(error))
            return False
        if request.kind not in self._handlers:
            self.log.error("request of a kind that this version does not know", key=table_key, kind=request.kind)
            return False
        self.log.info("request adopted", key=table_key, kind=request.kind)
        await self.submit(request)
        await self._tables.remove(REQUESTS_TABLE, table_key)
        return True


def _still_stored(request: Request, refusal: RejectedError) -> UnknownOutcome:
    return UnknownOutcome(
        f"{request.kind} of {request.key} was refused, but is still stored and may be carried out later: {refusal}"
    )


def _stored_request(table_key: str, value: bytes) -> Request:
    """The request under a key; ``DataCorruption`` for anything else."""
    stored = decode(StoredRequest, value)
    try:
        request_id = table_key.split("/", 2)[2]
        payload = json.loads(stored.payload)
    except (IndexError, ValueError) as error:
        raise DataCorruption(f"request {table_key}: its key or its payload is wrong: {error}") from error
    if not isinstance(payload, dict):
        raise DataCorruption(f"request {table_key}: its payload is no object: {stored.payload[:80]!r}")
    return Request(request_id, stored.kind, stored.key, payload)


def _payload_text(payload: dict[str, Any]) -> str:
    return json.dumps(payload, separators=(",", ":"))
