"""Keeps the commit order of a stream in a head of bounded size and blocks of transactions, without I/O.

The head has the newest transactions; when they are too many for it they move into blocks, each of one epoch and under
a key of its own. So entering the order and leaving it costs the same however many wait.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pravega_common import names
from pravega_common.errors import Throttled
from pravega_common.invariants import check

commit_batch_max: Final = 100
"""Transactions that one commit round makes readable (docs/controller-api.md 10)."""
commit_queue_max: Final = 10_000
"""Transactions of one stream that may wait for their commit round."""
block_transactions_max: Final = 100
"""Transactions of one block, and those that stay in the head: 3.5 KB."""


@dataclass(frozen=True, slots=True)
class OrderBlock:
    """Transactions of one epoch in commit order; ``number`` is never given to another block of the stream."""

    number: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockReference:
    """A block in the head. ``slot`` names its key, which another block takes once this one is gone."""

    slot: int
    number: int
    epoch: int
    count: int


Blocks = Mapping[int, OrderBlock]
"""Blocks by slot."""


@dataclass(frozen=True, slots=True)
class CommitQueue:
    """The head of the commit order of one stream: transactions marked committing and not yet completed.

    ``waiting``: the newest, oldest first. ``blocks``: those before them, oldest first within an epoch. A record of
    version 1 has all of them in ``waiting`` and is read as it is.
    """

    record_version: ClassVar[int] = 2

    waiting: tuple[str, ...] = ()
    accepted: int = 0
    """How many were ever added; only grows."""
    blocks: tuple[BlockReference, ...] = ()
    blocks_made: int = 0

    @property
    def count(self) -> int:
        return len(self.waiting) + sum(block.count for block in self.blocks)

    def adding(self, ids: Sequence[uuid.UUID]) -> CommitQueue:
        """With ``ids`` at the end; ``Throttled`` above the limit.

        Those that wait in the head stay where they are. That none of them waits in a block is known from its record,
        which changes in the same step as the order.
        """
        present = set(self.waiting)
        added = tuple(identifier.hex for identifier in ids if identifier.hex not in present)
        if self.count + len(added) > commit_queue_max:
            raise Throttled(f"{self.count} transactions of the stream wait for their commit; {commit_queue_max} may")
        return dataclasses.replace(self, waiting=self.waiting + added, accepted=self.accepted + len(added))

    def spilled(self) -> tuple[CommitQueue, dict[int, OrderBlock]]:
        """The head as it is to be written, and the new blocks, to be written in the same step."""
        parts, head = _parts(self.waiting)
        used = {block.slot for block in self.blocks}
        slots = (slot for slot in itertools.count() if slot not in used)
        references: list[BlockReference] = []
        blocks: dict[int, OrderBlock] = {}
        for number, part in enumerate(parts, self.blocks_made + 1):
            made = BlockReference(next(slots), number, _epoch(part[0]), len(part))
            references.append(made)
            blocks[made.slot] = OrderBlock(number, part)
        made_now = self.blocks_made + len(references)
        return dataclasses.replace(self, waiting=head, blocks=(*self.blocks, *references), blocks_made=made_now), blocks

    # ---- the next round ----------------------------------------------------------------------------------------------

    def next_epoch(self) -> int | None:
        """The lowest epoch of which a transaction waits."""
        return min(itertools.chain((block.epoch for block in self.blocks), map(_epoch, self.waiting)), default=None)

    def next_blocks(self, count_max: int) -> list[BlockReference]:
        """The blocks that the next ``count_max`` transactions of the lowest epoch lie in."""
        needed, epoch = [], self.next_epoch()
        for block in self.blocks:
            if block.epoch == epoch and count_max > 0:
                needed.append(block)
                count_max -= block.count
        return needed

    def next_batch(self, blocks: Blocks, count_max: int = commit_batch_max) -> tuple[uuid.UUID, ...]:
        """Up to ``count_max`` transactions of the lowest epoch that has any, in commit order.

        See docs/controller-api.md 4.5. ``blocks``: those of ``next_blocks`` at least.
        """
        epoch = self.next_epoch()
        held = [item for block in self.next_blocks(count_max) for item in blocks[block.slot].ids]
        held += [item for item in self.waiting if _epoch(item) == epoch]
        return tuple(uuid.UUID(hex=item) for item in held[:count_max])

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def blocks_of(self, ids: Collection[uuid.UUID]) -> list[BlockReference]:
        """The blocks that may hold these transactions, in the order in which rounds take them."""
        epochs = {names.transaction_epoch(identifier) for identifier in ids}
        return [block for block in self.blocks if block.epoch in epochs]

    def without(self, ids: Collection[uuid.UUID], blocks: Blocks) -> tuple[CommitQueue, dict[int, OrderBlock]]:
        """The head without these transactions, and the blocks that changed, to be written in the same step."""
        gone = {identifier.hex for identifier in ids}
        references, changed, made = [], {}, self.blocks_made
        for reference in self.blocks:
            block = blocks.get(reference.slot)
            left = () if block is None else tuple(item for item in block.ids if item not in gone)
            if block is None or len(left) == reference.count:
                references.append(reference)
            elif left:
                made += 1
                references.append(dataclasses.replace(reference, number=made, count=len(left)))
                changed[reference.slot] = OrderBlock(made, left)
        head = tuple(item for item in self.waiting if item not in gone)
        return dataclasses.replace(self, waiting=head, blocks=tuple(references), blocks_made=made), changed


def is_block_of(reference: BlockReference, block: OrderBlock | None) -> bool:
    """Whether a block that was read is the one that the head names; it may have left the order meanwhile."""
    if block is None or block.number != reference.number:
        return False
    check(len(block.ids) == reference.count, "block differs from the head", slot=reference.slot, found=len(block.ids))
    return True


def held_in(ids: Collection[uuid.UUID], blocks: Iterable[OrderBlock]) -> set[uuid.UUID]:
    """The transactions of these that lie in the blocks."""
    held = {item for block in blocks for item in block.ids}
    return {identifier for identifier in ids if identifier.hex in held}


def _parts(waiting: tuple[str, ...]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Splits the head: whole blocks leave it, and all of it does when too many transactions are left of them."""
    if len(waiting) < block_transactions_max:
        return [], waiting
    by_epoch: dict[int, list[str]] = {}
    for item in waiting:
        by_epoch.setdefault(_epoch(item), []).append(item)
    parts = [
        tuple(items[start : start + block_transactions_max])
        for items in by_epoch.values()
        for start in range(0, len(items), block_transactions_max)
    ]
    whole = [part for part in parts if len(part) == block_transactions_max]
    if len(waiting) - len(whole) * block_transactions_max >= block_transactions_max:
        return parts, ()
    left = {item for part in parts if len(part) < block_transactions_max for item in part}
    return whole, tuple(item for item in waiting if item in left)


def _epoch(item: str) -> int:
    return names.transaction_epoch(uuid.UUID(hex=item))
