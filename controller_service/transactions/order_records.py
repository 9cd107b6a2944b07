"""Reads and writes the commit order of a stream: its head, its blocks and the round in progress, in one table."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT, ANY_VERSION, Put, Versioned, VersionedStore
from controller_service.transactions.commit_queue import (
    BlockReference,
    Blocks,
    CommitQueue,
    OrderBlock,
    held_in,
    is_block_of,
)
from controller_service.transactions.records import CommittingRecord
from pravega_common.errors import VersionConflict

COMMITS_KEY: Final = "commits"
COMMITTING_KEY: Final = "committing"
_BLOCK_PREFIX: Final = f"{COMMITS_KEY}."

order_keys: Final = (COMMITS_KEY, COMMITTING_KEY)
blocks_per_search: Final = 4
"""Blocks that are read at once to find transactions that leave the order; those of a round lie in the first two."""


@dataclass(frozen=True, slots=True)
class CommitState:
    """The commit order and the round of a stream, with the versions that their next change must name.

    ``table``: where they were read, and where that change is written: the next stream of the name has another one.
    ``blocks``: those of the order that were read with it.
    """

    queue: CommitQueue
    queue_version: int
    committing: CommittingRecord
    committing_version: int
    table: str
    blocks: Blocks = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being merged."""
        return not self.queue.count and self.committing.is_idle


def is_order_key(key: str) -> bool:
    """Whether a key of a stream's table is of the commit order, not of a transaction."""
    return key in order_keys or key.startswith(_BLOCK_PREFIX)


def state_of(table: str, queue: Versioned | None, committing: Versioned | None) -> CommitState:
    """The state as ``order_keys`` of the table have it."""
    return CommitState(
        CommitQueue() if queue is None else decode(CommitQueue, queue.value),
        ABSENT if queue is None else queue.version,
        CommittingRecord() if committing is None else decode(CommittingRecord, committing.value),
        ABSENT if committing is None else committing.version,
        table,
    )


async def read_blocks(store: VersionedStore, table: str, references: Sequence[BlockReference]) -> dict[int, OrderBlock]:
    """The blocks by slot; ``VersionConflict`` when the order moved on since its head was read."""
    if not references:
        return {}
    found = await store.get_many(table, [_block_key(reference.slot) for reference in references])
    blocks = {}
    for reference, value in zip(references, found, strict=True):
        block = None if value is None else decode(OrderBlock, value.value)
        if block is None or not is_block_of(reference, block):
            raise VersionConflict(f"{table}: the commit order moved on while it was read")
        blocks[reference.slot] = block
    return blocks


def order_puts(queue: CommitQueue, version: int, changed: Blocks | None = None) -> list[Put]:
    """The writes that replace the order of this version. ``changed``: blocks that are to be written beside new ones.

    A block has no version of its own: that of the head guards it.
    """
    queue, made = queue.spilled()
    blocks = {**(changed or {}), **made}
    puts = [Put(_block_key(slot), encode(block), ANY_VERSION) for slot, block in blocks.items()]
    return [*puts, Put(COMMITS_KEY, encode(queue), version)]


async def removal_puts(store: VersionedStore, state: CommitState, ids: Collection[uuid.UUID]) -> list[Put]:
    """The writes that take transactions out of the order; ``VersionConflict`` when it moved on.

    Reads as many blocks as it takes to find all of them: the first ones, except when one is taken out of the middle.
    """
    head = set(state.queue.waiting)
    left = {identifier for identifier in ids if identifier.hex not in head}
    blocks = dict(state.blocks)
    left -= held_in(left, blocks.values())
    unread = [reference for reference in state.queue.blocks_of(ids) if reference.slot not in blocks]
    while left and unread:
        found = await read_blocks(store, state.table, unread[:blocks_per_search])
        unread = unread[blocks_per_search:]
        left -= held_in(left, found.values())
        blocks.update(found)
    queue, changed = state.queue.without(ids, blocks)
    return order_puts(queue, state.queue_version, changed)


def _block_key(slot: int) -> str:
    return f"{_BLOCK_PREFIX}{slot}"
