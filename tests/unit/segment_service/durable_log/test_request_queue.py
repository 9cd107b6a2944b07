from __future__ import annotations

import asyncio

from segment_service.contracts.operations import Seal
from segment_service.durable_log.request_queue import LogRequestQueue
from segment_service.durable_log.requests import AnyRequest, AppendRequest, SealRequest


def append(length: int) -> AppendRequest:
    return AppendRequest(segment="s", data=[bytes(length)], length=length)


async def test_first_in_first_out_with_bytes_counted() -> None:
    queue = LogRequestQueue()
    items: list[AnyRequest] = [append(3), SealRequest("s"), append(4)]
    for item in items:
        queue.put(item)
    assert queue.bytes == 7
    assert [queue.pop(), queue.pop(), queue.pop(), queue.pop()] == [*items, None]
    assert queue.bytes == 0


async def test_it_is_full_by_count_and_by_bytes() -> None:
    queue = LogRequestQueue(count_max=2, bytes_max=10)
    queue.put(append(10))
    assert queue.is_full
    queue.pop()
    queue.put(append(0))
    assert not queue.is_full
    queue.put(append(0))
    assert queue.is_full


async def test_the_consumer_is_woken() -> None:
    queue = LogRequestQueue()
    waiting = asyncio.ensure_future(queue.wait_not_empty())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.put(append(1))
    await waiting
    await queue.wait_not_empty()


async def test_an_answer_for_a_caller_that_went_away_is_dropped() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    item = SealRequest("s", future=future)
    item.operation = Seal(sequence_number=1, segment_id=1, offset=9)
    future.cancel()
    item.complete()
    item.fail(ValueError())
    assert future.cancelled()
