from __future__ import annotations

import asyncio

from segment_service.durable_log.operation_queue import OperationQueue, QueuedOperation
from segment_service.durable_log.operations import Append, Seal


def append(length: int) -> QueuedOperation:
    return QueuedOperation(Append(segment_id=1, data=[bytes(length)], length=length), None, "s")


async def test_first_in_first_out_with_bytes_counted() -> None:
    queue = OperationQueue()
    items = [append(3), QueuedOperation(Seal(segment_id=1), None, "s"), append(4)]
    queue.put(items[0], 3)
    queue.put(items[1])
    queue.put(items[2], 4)
    assert queue.bytes == 7
    assert [queue.pop(), queue.pop(), queue.pop(), queue.pop()] == [*items, None]
    assert queue.bytes == 0


async def test_it_is_full_by_count_and_by_bytes() -> None:
    queue = OperationQueue(count_max=2, bytes_max=10)
    queue.put(append(10), 10)
    assert queue.is_full
    queue.pop()
    queue.put(append(0))
    assert not queue.is_full
    queue.put(append(0))
    assert queue.is_full


async def test_the_consumer_is_woken() -> None:
    queue = OperationQueue()
    waiting = asyncio.ensure_future(queue.wait_not_empty())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.put(append(1), 1)
    await waiting
    await queue.wait_not_empty()


async def test_an_answer_for_a_caller_that_went_away_is_dropped() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    item = QueuedOperation(Seal(segment_id=1, offset=9), future, "s")
    future.cancel()
    item.complete()
    item.fail(ValueError())
    assert future.cancelled()
