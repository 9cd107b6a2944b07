"""The commit order as a head and blocks: the same order as one list, at a cost that does not grow with it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_service.store.serializer import decode, encode
from controller_service.transactions import commit_queue
from controller_service.transactions.commit_queue import (
    BlockReference,
    CommitQueue,
    OrderBlock,
    block_transactions_max,
    commit_queue_max,
)
from pravega_common import names
from pravega_common.errors import DataCorruption, Throttled


def of(epoch: int, number: int) -> uuid.UUID:
    return names.transaction_id(epoch, 0, number)


def test_golden_bytes() -> None:
    queue = CommitQueue(("0a",), 3, (BlockReference(1, 2, 0, 4),), 2)
    golden = (
        b'{"_v":2,"waiting":["0a"],"accepted":3,"blocks":[{"slot":1,"number":2,"epoch":0,"count":4}],"blocks_made":2}'
    )
    assert encode(queue) == golden and decode(CommitQueue, golden) == queue
    assert decode(CommitQueue, b'{"_v":1,"waiting":["0a"],"accepted":3}') == CommitQueue(("0a",), 3)
    block = OrderBlock(2, ("0a", "0b"))
    assert encode(block) == b'{"_v":1,"number":2,"ids":["0a","0b"]}'
    with pytest.raises(DataCorruption, match="newer controller"):
        decode(CommitQueue, golden.replace(b'"_v":2', b'"_v":3'))


class Order:
    """An order as the store keeps it: what is written replaces what was there."""

    def __init__(self, queue: CommitQueue | None = None) -> None:
        self.queue = queue or CommitQueue()
        self.blocks: dict[int, OrderBlock] = {}
        self.written_bytes = 0

    def add(self, ids: Sequence[uuid.UUID]) -> None:
        self._write(self.queue.adding(ids), {})

    def remove(self, ids: Sequence[uuid.UUID]) -> None:
        named = {reference.slot: self.blocks[reference.slot] for reference in self.queue.blocks_of(ids)}
        self._write(*self.queue.without(ids, named))

    def batch(self, count_max: int = 100) -> tuple[uuid.UUID, ...]:
        needed = {reference.slot: self.blocks[reference.slot] for reference in self.queue.next_blocks(count_max)}
        assert [block.number for block in needed.values()] == [
            reference.number for reference in self.queue.next_blocks(count_max)
        ]
        return self.queue.next_batch(needed, count_max)

    def _write(self, queue: CommitQueue, changed: dict[int, OrderBlock]) -> None:
        self.queue, made = queue.spilled()
        assert not made.keys() & changed.keys()
        records = {**changed, **made}
        self.blocks.update(records)
        self.written_bytes = sum(len(encode(record)) for record in (self.queue, *records.values()))
        assert decode(CommitQueue, encode(self.queue)) == self.queue


def test_the_lowest_epoch_commits_first_in_commit_order() -> None:
    order = Order()
    order.add([of(1, 1), of(0, 9), of(1, 2), of(0, 3)])
    assert order.batch() == (of(0, 9), of(0, 3)) and order.batch(1) == (of(0, 9),)
    order.remove(order.batch())
    assert order.batch() == (of(1, 1), of(1, 2))
    assert Order().batch() == ()


def test_who_waits_already_keeps_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = CommitQueue().adding([of(0, 1), of(0, 2)]).adding([of(0, 2), of(0, 1), of(0, 3)])
    assert queue.next_batch({}) == (of(0, 1), of(0, 2), of(0, 3)) and queue.accepted == 3
    monkeypatch.setattr(commit_queue, "commit_queue_max", 3)
    with pytest.raises(Throttled, match="3"):
        queue.adding([of(0, 4)])


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 130), st.sampled_from(["add", "round", "one"])),
        min_size=1,
        max_size=30,
    )
)
def test_it_is_the_order_of_one_list(steps: list[tuple[int, int, str]]) -> None:
    order, model, number = Order(), list[uuid.UUID](), 0
    for epoch, count, step in steps:
        if step == "add":
            ids = [of((epoch + index) % 4, number + index) for index in range(count)]
            number += count
            order.add(ids)
            model += ids
        elif model:
            lowest = min(map(names.transaction_epoch, model))
            expected = [item for item in model if names.transaction_epoch(item) == lowest][:count]
            assert list(order.batch(count)) == expected
            gone = expected if step == "round" else [model[count % len(model)]]
            order.remove(gone)
            model = [item for item in model if item not in gone]
        assert order.queue.count == len(model) and order.queue.accepted == number


def test_a_commit_writes_as_much_with_ten_thousand_waiting() -> None:
    order, sizes = Order(), []
    for number in range(commit_queue_max):
        order.add([of(0, number)])
        sizes.append(order.written_bytes)
    assert max(sizes) < 12_000
    with pytest.raises(Throttled):
        order.add([of(0, commit_queue_max)])
    while order.queue.count:
        order.remove(order.batch())
        assert order.written_bytes < 16_000
    assert len(order.blocks) <= commit_queue_max // block_transactions_max + 1


def test_an_order_of_version_1_goes_on() -> None:
    ids = [of(number % 2, number) for number in range(1_000)]
    stored = '{"_v":1,"waiting":[' + ",".join(f'"{item.hex}"' for item in ids) + '],"accepted":1200}'
    order = Order(decode(CommitQueue, stored.encode()))
    assert order.batch() == tuple(ids[:200:2])
    order.add([of(0, 5_000)])
    assert order.queue.count == 1_001 and order.queue.accepted == 1_201
    assert order.queue.waiting == (of(0, 5_000).hex,) and len(order.blocks) == 10
    assert order.batch(501)[-1] == of(0, 5_000)


def test_the_records_stay_as_they_are() -> None:
    order = Order()
    order.add([of(0, number) for number in range(block_transactions_max + 1)])
    assert encode(order.queue).decode() == (
        f'{{"_v":2,"waiting":["{of(0, 100).hex}"],"accepted":101,'
        '"blocks":[{"slot":0,"number":1,"epoch":0,"count":100}],"blocks_made":1}'
    )
    assert encode(OrderBlock(2, ("a", "b"))) == b'{"_v":1,"number":2,"ids":["a","b"]}'
    with pytest.raises(DataCorruption, match="newer controller"):
        decode(CommitQueue, b'{"_v":3}')
