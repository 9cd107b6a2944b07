"""Blocking clients: bounded threads, deadlines, and what a late answer means."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest

from pravega_common.errors import ConfigurationError, Unavailable, UnknownOutcome
from segment_service.storage import blocking
from segment_service.storage.blocking import BlockingCalls
from segment_service.storage.factory import make_chunk_storage
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.minio import MinioChunkStorage
from segment_service.storage.s3_access import S3Access


async def test_results_and_errors_come_through() -> None:
    calls = BlockingCalls("test", 2, 5.0)
    assert await calls.run(lambda: 7) == 7
    with pytest.raises(KeyError):
        await calls.run(lambda: os.environ["PRAVEGA_NO_SUCH_VARIABLE"])
    calls.close()


async def test_at_most_so_many_run_at_once() -> None:
    calls = BlockingCalls("test", 3, 5.0)
    lock = threading.Lock()
    running = most = 0
    all_three = threading.Barrier(3, timeout=5)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_three.wait()
        with lock:
            running -= 1

    await asyncio.gather(*(calls.run(work) for _ in range(9)))
    assert most == 3
    calls.close()


async def test_a_call_that_hangs_is_overdue_and_keeps_its_thread() -> None:
    calls = BlockingCalls("test", 1, 0.05)
    released = threading.Event()
    ended = threading.Event()

    def hang() -> None:
        released.wait(5)
        ended.set()

    with pytest.raises(UnknownOutcome, match=r"0\.05 s"):
        await calls.run(hang, overdue=UnknownOutcome)
    with pytest.raises(Unavailable, match="no thread was free"):
        await calls.run(lambda: 1)
    released.set()
    await asyncio.to_thread(ended.wait, 5)
    assert await calls.run(lambda: 2) == 2
    calls.close()


async def test_a_caller_that_left_is_not_answered_and_its_thread_is_free_in_the_end() -> None:
    calls = BlockingCalls("test", 1, 5.0)
    released = threading.Event()

    def fail_late() -> None:
        released.wait(5)
        raise OSError("nobody waits for this")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    left = asyncio.create_task(calls.run(fail_late))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    waiting = asyncio.create_task(calls.run(lambda: 3))
    await asyncio.sleep(0.01)  # time in which it would run if the thread were free
    assert not waiting.done()
    released.set()
    assert await waiting == 3
    del left
    gc.collect()
    assert reported == []
    calls.close()


async def test_only_so_many_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "waiting_calls_max", 2)
    calls = BlockingCalls("test", 1, 5.0)
    released = threading.Event()
    tasks = [asyncio.create_task(calls.run(lambda: released.wait(5))) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too slow"):
        await calls.run(lambda: None)
    released.set()
    assert await asyncio.gather(*tasks) == [True] * 3
    calls.close()


async def test_urls_name_their_storage(tmp_path: object) -> None:
    made = [
        make_chunk_storage("memory:"),
        make_chunk_storage(f"file://{tmp_path}/a%20folder"),
        make_chunk_storage("http://127.0.0.1:9000/bucket", s3=S3Access("key", "secret")),
    ]
    assert [type(one) for one in made] == [InMemoryChunkStorage, FilesystemChunkStorage, MinioChunkStorage]
    for one in made:
        await one.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/x", "unknown form"),
        ("", "unknown form"),
        ("file://relative/folder", "absolute folder"),
        ("http://host:9000/", "one bucket"),
        ("http://host:9000/a/b", "one bucket"),
    ],
)
def test_urls_that_name_none_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_chunk_storage(url)
