from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from controller_service.errors import WaitTimedOut
from controller_service.queue import handler_slots, table_request_queue
from controller_service.queue.request_queue import Answer, AnsweringHandler, Handler, Postpone, Request
from controller_service.queue.table_request_queue import REQUESTS_TABLE, StoredRequest, TableRequestQueue
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.serializer import encode
from controller_service.store.versioned_store import ABSENT
from pravega_common.errors import InvalidArgument, Throttled, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.stream_audit import requests_left


def request(number: int, key: str = "scope/stream", kind: str = "work") -> Request:
    return Request(f"id-{number}", kind, key, {"number": number})


async def nobody() -> set[str]:
    return set()


async def started(tables: InMemoryVersionedStore, owner: str, handler: Handler) -> TableRequestQueue:
    queue = TableRequestQueue(tables, owner, SystemClock(), nobody)
    queue.register("work", handler)
    await queue.start()
    return queue


@pytest.fixture
async def tables() -> InMemoryVersionedStore:
    return InMemoryVersionedStore()


@pytest.fixture
async def done() -> list[int]:
    return []


@pytest.fixture
async def queue(tables: InMemoryVersionedStore, done: list[int]) -> AsyncIterator[TableRequestQueue]:
    async def handler(request: Request) -> None:
        await asyncio.sleep(0)
        done.append(request.payload["number"])

    queue = await started(tables, "one", handler)
    yield queue
    await queue.stop()


async def test_handlers_that_wait_do_not_keep_others_from_running(
    tables: InMemoryVersionedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as one store that is away makes wait, and one of another stream."""
    monkeypatch.setattr(handler_slots, "slow_after_s", 0.01)
    monkeypatch.setattr(handler_slots, "slow_handlers_max", 150)
    gate, running, most = asyncio.Event(), 0, 0

    async def handler(request: Request) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if request.key != "quick":
            await gate.wait()
        running -= 1

    queue = await started(tables, "one", handler)
    waiting = [await queue.submit(request(number, f"away-{number}")) for number in range(120)]
    await (await queue.submit(request(1_000, "quick"))).outcome(10)
    waiting += [await queue.submit(request(number, f"away-{number}")) for number in range(120, 400)]
    await eventually(lambda: running == 250, "both limits are reached")
    gate.set()
    for item in waiting:
        await item.outcome(10)
    assert most == 250
    await queue.stop()


async def test_requests_of_one_key_run_in_order(
    queue: TableRequestQueue, tables: InMemoryVersionedStore, done: list[int]
) -> None:
    submitted = [await queue.submit(request(number)) for number in range(20)]
    await submitted[-1].outcome(5)
    assert done == list(range(20))
    assert await requests_left(tables) == 0


async def test_other_keys_do_not_wait(tables: InMemoryVersionedStore) -> None:
    gate = asyncio.Event()

    async def handler(request: Request) -> None:
        if request.key == "slow":
            await gate.wait()

    queue = await started(tables, "one", handler)
    slow = await queue.submit(request(1, "slow"))
    fast = await queue.submit(request(2, "fast"))
    await fast.outcome(5)
    with pytest.raises(WaitTimedOut, match="work of slow is not finished after 0 s; it continues"):
        await slow.outcome(0)
    gate.set()
    await slow.outcome(5)
    await queue.stop()


async def test_a_refusal_reaches_the_caller(tables: InMemoryVersionedStore) -> None:
    async def handler(request: Request) -> None:
        raise InvalidArgument("no")

    queue = await started(tables, "one", handler)
    submitted = await queue.submit(request(1))
    with pytest.raises(InvalidArgument):
        await submitted.outcome(5)
    with pytest.raises(InvalidArgument):
        await submitted.first_answer(5)
    assert await requests_left(tables) == 0
    await queue.stop()


async def test_a_refused_request_that_stays_stored_is_no_refusal_to_its_caller(
    tables: InMemoryVersionedStore, done: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep adopts it, and what refused it may have changed by then."""

    async def handler(request: Request) -> None:
        if refuses:
            raise InvalidArgument("too few")
        done.append(request.payload["number"])

    async def remove(*arguments: object) -> None:
        raise Unavailable("the container is away")

    refuses = True
    queue = await started(tables, "one", handler)
    with monkeypatch.context() as away:
        away.setattr(tables, "remove", remove)
        away.setattr(table_request_queue, "retry_delay_min_s", 0.0)
        submitted = await queue.submit(request(1))
        with pytest.raises(UnknownOutcome, match="may be carried out later: too few"):
            await submitted.outcome(5)
        with pytest.raises(UnknownOutcome):
            await submitted.first_answer(5)
    refuses = False
    assert await queue.sweep() == 1
    await eventually(lambda: done == [1])
    await queue.stop()


async def test_failures_are_tried_again(tables: InMemoryVersionedStore) -> None:
    attempts = 0

    async def handler(request: Request) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise Unavailable("down")
        if attempts == 2:
            raise KeyError("a bug")

    queue = await started(tables, "one", handler)
    submitted = await queue.submit(request(1))
    await submitted.outcome(5)
    assert attempts == 3
    await queue.stop()


async def test_a_postponed_request_lets_those_behind_it_pass(tables: InMemoryVersionedStore) -> None:
    order: list[int] = []

    async def handler(request: Request) -> None:
        number = request.payload["number"]
        if number == 1 and 2 not in order:
            raise Postpone("not yet")
        order.append(number)

    queue = await started(tables, "one", handler)
    submitted = await queue.submit(request(1))
    await queue.submit(request(2))
    await submitted.outcome(5)
    assert order == [2, 1]
    await queue.stop()


async def test_the_same_request_is_not_queued_twice(tables: InMemoryVersionedStore) -> None:
    gate = asyncio.Event()
    runs = 0

    async def handler(request: Request) -> None:
        nonlocal runs
        runs += 1
        await gate.wait()

    queue = await started(tables, "one", handler)
    submitted = await queue.submit(request(1))
    assert await queue.submit(request(1)) is submitted
    gate.set()
    await submitted.outcome(5)
    assert runs == 1
    await queue.stop()


async def test_what_a_dead_owner_left_is_adopted_in_order(tables: InMemoryVersionedStore, done: list[int]) -> None:
    async def hang(request: Request) -> None:
        await asyncio.Event().wait()

    first = await started(tables, "one", hang)
    for number in range(5):
        await first.submit(request(number))
    await first.stop()
    assert await requests_left(tables) == 5

    async def handler(request: Request) -> None:
        done.append(request.payload["number"])

    second = await started(tables, "two", handler)
    last = await second.submit(request(5))
    await last.outcome(5)
    assert done == [0, 1, 2, 3, 4, 5]
    assert await requests_left(tables) == 0
    await second.stop()


@pytest.mark.parametrize(
    ("table_key", "payload"),
    [
        ("dead/0000/id-0", "{not JSON"),
        ("dead/0000/id-0", "[]"),
        ("dead/0000", "{}"),
        ("dead", "{}"),
    ],
)
async def test_a_stored_request_that_cannot_be_read_keeps_no_other_back(
    tables: InMemoryVersionedStore, done: list[int], table_key: str, payload: str
) -> None:
    async def handler(request: Request) -> None:
        done.append(request.payload["number"])

    await tables.create_table(REQUESTS_TABLE)
    await tables.put(REQUESTS_TABLE, table_key, encode(StoredRequest("work", "scope/stream", payload)), ABSENT)
    good = encode(StoredRequest("work", "scope/stream", '{"number":1}'))
    await tables.put(REQUESTS_TABLE, "dead/0001/id-1", good, ABSENT)
    queue = await started(tables, "two", handler)
    await eventually(lambda: done == [1], "the other request is adopted")
    assert await queue.sweep() == 0
    assert await tables.get(REQUESTS_TABLE, table_key) is not None, "it stays for who repairs it"
    await queue.stop()


async def test_requests_of_the_living_are_left_alone(tables: InMemoryVersionedStore, done: list[int]) -> None:
    async def hang(request: Request) -> None:
        await asyncio.Event().wait()

    first = await started(tables, "one", hang)
    await first.submit(request(1))

    async def alive() -> set[str]:
        return {"one"}

    second = TableRequestQueue(tables, "two", SystemClock(), alive)
    second.register("work", hang)
    await second.start()
    assert await second.sweep() == 0
    assert await requests_left(tables) == 1
    await second.stop()
    await first.stop()


async def test_a_lost_answer_does_not_leave_a_request_behind_unknown(
    queue: TableRequestQueue, tables: InMemoryVersionedStore, done: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, lost = tables.put, [True]

    async def losing_put(table: str, key: str, value: bytes, expected: int) -> int:
        version = await put(table, key, value, expected)
        if lost:
            lost.pop()
            raise UnknownOutcome("connection lost")
        return version

    monkeypatch.setattr(tables, "put", losing_put)
    submitted = await queue.submit(request(1))
    await submitted.outcome(5)
    assert done == [1]
    assert await requests_left(tables) == 0


async def test_a_controller_starts_though_others_left_more_than_its_queue_takes(
    tables: InMemoryVersionedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, done = asyncio.Event(), set[int]()

    async def handler(request: Request) -> None:
        await gate.wait()
        done.add(request.payload["number"])

    dead = [await started(tables, f"dead-{number}", handler) for number in range(3)]
    for number in range(12):
        await dead[number % 3].submit(request(number, f"key-{number}"))
    for other in dead:
        await other.stop()
    assert await requests_left(tables) == 12
    monkeypatch.setattr(table_request_queue, "requests_queued_max", 5)
    queue = await started(tables, "one", handler)
    assert await requests_left(tables) == 12, "what has no room yet stays"
    gate.set()
    for _ in range(2):
        await eventually(lambda: queue._pending == 0, "those that were adopted are done")
        await queue.sweep()
    await eventually(lambda: len(done) == 12, "the sweeps come to all of them")
    await queue.stop()


async def test_too_many_requests_are_refused(tables: InMemoryVersionedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_request_queue, "requests_queued_max", 2)

    async def hang(request: Request) -> None:
        await asyncio.Event().wait()

    queue = await started(tables, "one", hang)
    await queue.submit(request(1))
    await queue.submit(request(2))
    with pytest.raises(Throttled):
        await queue.submit(request(3))
    await queue.stop()


async def test_callers_get_an_unknown_outcome_when_the_queue_stops(tables: InMemoryVersionedStore) -> None:
    async def hang(request: Request) -> None:
        await asyncio.Event().wait()

    queue = await started(tables, "one", hang)
    submitted = await queue.submit(request(1))
    waiting = asyncio.ensure_future(submitted.outcome(60))
    await asyncio.sleep(0)
    await queue.stop()
    with pytest.raises(UnknownOutcome):
        await waiting


async def answering(tables: InMemoryVersionedStore, handler: AnsweringHandler) -> TableRequestQueue:
    queue = TableRequestQueue(tables, "one", SystemClock(), nobody)
    queue.register_answering("work", handler)
    await queue.start()
    return queue


async def test_the_first_answer_comes_before_the_work_is_done(tables: InMemoryVersionedStore) -> None:
    gate = asyncio.Event()

    async def handler(request: Request, answer: Answer) -> None:
        answer("planned")
        answer("ignored")
        await gate.wait()

    queue = await answering(tables, handler)
    submitted = await queue.submit(request(1))
    assert await submitted.first_answer(5) == "planned"
    assert not submitted.is_finished
    gate.set()
    await submitted.outcome(5)
    assert await submitted.first_answer(5) == "planned"
    await queue.stop()


async def test_a_request_submitted_again_keeps_its_first_answer(tables: InMemoryVersionedStore) -> None:
    runs = 0

    async def handler(request: Request, answer: Answer) -> None:
        nonlocal runs
        runs += 1
        answer(runs)

    queue = await answering(tables, handler)
    first = await queue.submit(request(1))
    await first.outcome(5)
    again = await queue.submit(request(1))
    assert await again.first_answer(5) == 1
    await again.outcome(5)
    assert runs == 2
    await queue.stop()


async def test_two_submissions_that_race_have_one_first_answer(tables: InMemoryVersionedStore) -> None:
    runs = 0

    async def handler(request: Request, answer: Answer) -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise InvalidArgument("done already")
        answer("planned")
        await asyncio.sleep(0)

    queue = await answering(tables, handler)
    submitted = await asyncio.gather(queue.submit(request(1)), queue.submit(request(1)))
    assert await asyncio.gather(*(item.first_answer(5) for item in submitted)) == ["planned", "planned"]
    await queue.stop()


async def test_a_refused_request_is_answered_afresh(tables: InMemoryVersionedStore) -> None:
    runs = 0

    async def handler(request: Request, answer: Answer) -> None:
        nonlocal runs
        runs += 1
        answer(runs)
        if runs == 1:
            raise InvalidArgument("no")

    queue = await answering(tables, handler)
    refused = await queue.submit(request(1))
    with pytest.raises(InvalidArgument):
        await refused.outcome(5)
    again = await queue.submit(request(1))
    assert await again.first_answer(5) == 2
    await queue.stop()


async def test_a_submission_goes_on_when_its_caller_is_cut_off(
    queue: TableRequestQueue, tables: InMemoryVersionedStore, done: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, gate = tables.put, asyncio.Event()

    async def slow_put(table: str, key: str, value: bytes, expected: int) -> int:
        version = await put(table, key, value, expected)
        await gate.wait()
        return version

    monkeypatch.setattr(tables, "put", slow_put)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.submit(request(1))
    assert await requests_left(tables) == 1
    # Its key is known while it is being stored.
    assert await queue.sweep() == 0
    again = asyncio.ensure_future(queue.submit(request(1)))
    await asyncio.sleep(0)
    gate.set()
    await (await again).outcome(5)
    assert done == [1]
    assert await requests_left(tables) == 0


async def test_a_request_that_was_stored_after_all_is_run(
    queue: TableRequestQueue, tables: InMemoryVersionedStore, done: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = tables.put

    async def losing_put(table: str, key: str, value: bytes, expected: int) -> int:
        await put(table, key, value, expected)
        raise UnknownOutcome("connection lost")

    monkeypatch.setattr(tables, "put", losing_put)
    monkeypatch.setattr(table_request_queue, "retry_delay_min_s", 0.0)
    with pytest.raises(UnknownOutcome):
        await queue.submit(request(1))
    monkeypatch.undo()
    assert await queue.sweep() == 1
    await eventually(lambda: done == [1])
    assert await queue.sweep() == 0


async def test_requests_behind_one_that_cannot_end_are_forgotten(
    tables: InMemoryVersionedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_request_queue, "requests_remembered_max", 10)

    async def handler(request: Request) -> None:
        if request.key == "blocked":
            raise Postpone("an operator is needed")

    queue = await started(tables, "one", handler)
    blocked = [await queue.submit(request(number, "blocked")) for number in range(2)]
    for number in range(2, 100):
        await (await queue.submit(request(number, f"stream-{number}"))).outcome(5)
    assert len(queue._submitted) <= 10
    assert [await queue.submit(request(number, "blocked")) for number in range(2)] == blocked
    await queue.stop()


class Payload(dict[str, int]):
    """A payload that can be watched."""


async def test_a_finished_request_is_remembered_without_its_payload(queue: TableRequestQueue, done: list[int]) -> None:
    """Thousands are remembered for their first answers; a payload may name thousands of segments."""
    payload = Payload(number=1)
    freed = weakref.ref(payload)
    submitted = await queue.submit(Request("id-1", "work", "scope/stream", payload))
    del payload
    await submitted.outcome(5)
    gc.collect()
    assert done == [1] and freed() is None


async def test_a_refused_request_is_not_remembered(tables: InMemoryVersionedStore) -> None:
    """It would be with its error, whose frames know what it was about; submitted again it is another one anyway."""

    async def handler(request: Request) -> None:
        raise InvalidArgument("no")

    queue = await started(tables, "one", handler)
    payload = Payload(number=1)
    freed = weakref.ref(payload)
    submitted = await queue.submit(Request("id-1", "work", "scope/stream", payload))
    del payload
    with pytest.raises(InvalidArgument):
        await submitted.outcome(5)
    del submitted
    await eventually(lambda: gc.collect() >= 0 and freed() is None)
    await queue.stop()
