"""The index in memory: what it answers while keys are sorted, and how long it keeps the loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segment_service.contracts.table_store import TableEntry
from segment_service.tables import hash_table, key_index, log_reader
from segment_service.tables.key_index import InlineBudget, KeyIndex
from segment_service.tables.table_extension import TableExtension
from tests.support.fakes.segment_store import InMemorySegmentStore

T = "scope/table"
count = 3_000


class Turns:
    """Counts the calls of a function in each turn of the event loop."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.most = 0
        self._now = 0
        before: Callable[..., Any] = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self._now += 1
            self.most = max(self.most, self._now)
            return before(*arguments)

        patch.setattr(owner, name, counted)

    async def watch(self) -> None:
        while True:
            self._now = 0
            await asyncio.sleep(0)


async def filled_store() -> InMemorySegmentStore:
    store = InMemorySegmentStore()
    tables = TableExtension(store)
    await tables.create_table(T)
    for first in range(0, count, 100):
        await tables.put(T, [TableEntry(b"%d" % number, b"v") for number in range(first, first + 100)])
    return store


async def test_the_first_iteration_sorts_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await filled_store()
    tables = TableExtension(store)
    await tables.table_info(T)
    turns = Turns(monkeypatch, hash_table, "order_key")
    watching = asyncio.create_task(turns.watch())
    page = await tables.iterate(T, 10)
    watching.cancel()
    assert len(page.entries) == 10
    assert 0 < turns.most <= key_index.sorted_keys_per_turn


async def test_a_log_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await filled_store()
    turns = Turns(monkeypatch, KeyIndex, "put")
    watching = asyncio.create_task(turns.watch())
    assert (await TableExtension(store).table_info(T)).entry_count == count
    watching.cancel()
    assert 0 < turns.most <= log_reader.records_per_turn


async def test_two_first_iterations_sort_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = TableExtension(await filled_store())
    pages = await asyncio.gather(*(tables.iterate(T, 50) for _ in range(5)))
    assert all(page == pages[0] for page in pages)


@pytest.mark.parametrize("refilled", [0, 2_000])
async def test_no_first_iteration_takes_a_cleared_index_for_the_end(refilled: int) -> None:
    index = KeyIndex(lambda key: key, InlineBudget())
    for number in range(1_500):
        index.put(b"%d" % number, b"v", number, number)
    pages = [asyncio.create_task(index.page(b"", True, 50, 1_000_000, b"")) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    index.clear()
    for number in range(refilled):
        index.put(b"%d" % number, b"v", number, number)
    assert await asyncio.gather(*pages) == [None] * 3
    assert len(await index.page(b"", True, 50, 1_000_000, b"") or ()) == min(refilled, 50)


async def test_first_iterations_of_a_table_that_is_given_up_begin_again() -> None:
    store = await filled_store()
    tables = TableExtension(store)
    await tables.table_info(T)
    pages = [asyncio.create_task(tables.iterate(T, 50)) for _ in range(3)]
    for _ in range(4):
        await asyncio.sleep(0)
    await tables.container_gone(None)
    assert [len((await page).entries) for page in pages] == [50] * 3


async def test_a_cleared_index_holds_no_inline_bytes() -> None:
    budget = InlineBudget()
    index = KeyIndex(lambda key: key, budget)
    for number in range(100):
        index.put(b"%d" % (number % 30), b"v" * number, number, number * 100)
    index.remove(b"7")
    index.clear()
    assert (budget.bytes_used, index.live_bytes, len(index)) == (0, 0, 0)


async def sort_under_changes(seed: int) -> None:
    rng = random.Random(seed)
    index = KeyIndex(lambda key: key[::-1], InlineBudget(100))
    model: dict[bytes, int] = {}
    offset = 0

    def change() -> None:
        nonlocal offset
        key = b"%d" % rng.randint(0, 60)
        if rng.random() < 0.05:
            index.clear()
            model.clear()
        elif rng.random() < 0.3:
            index.remove(key)
            model.pop(key, None)
        else:
            offset += 50
            index.put(key, b"v" * rng.randint(0, 9), offset, offset)
            model[key] = offset

    for _ in range(100):
        change()
    sorting = [asyncio.create_task(index.sort()) for _ in range(2)]
    while not all(task.done() for task in sorting):
        change()
        if rng.random() < 0.02:
            sorting[0].cancel()
        await asyncio.sleep(0)
    await index.sort()
    for _ in range(30):
        change()
        if index.is_ordered:
            expected = sorted(model, key=lambda key: (key[::-1], key))
            assert [key for _, key, _ in index.ordered_from(b"", True)] == expected
        since = rng.randint(0, offset)
        live = sorted((place, key) for key, place in model.items() if place >= since)
        assert [(slot.offset, key) for key, slot in index.live_from(since)] == live


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_keys_that_change_while_they_are_sorted(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "sorted_keys_per_turn", 3)
        asyncio.run(sort_under_changes(seed))
