"""Deletions that race with the calls that make segments: nothing of a deleted stream stays, nothing in use goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller_service.store.records import StreamState
from pravega_common.errors import StreamNotSealed
from pravega_common.names import mark_stream
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.workflow_steps import TWO, S, Scene, scene_of_two


class Gate:
    """Holds one call back: ``reached`` is set when it comes, and it goes on once ``opened`` is."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    def at(self, owner: Any, name: str, when: str = "") -> None:
        """Before the next call of this method, or the next one with these characters in its arguments."""
        method = getattr(owner, name)

        async def held(*args: Any, **kwargs: Any) -> Any:
            if not self.reached.is_set() and when in repr(args):
                self.reached.set()
                await self.opened.wait()
            return await method(*args, **kwargs)

        held.__name__ = name
        setattr(owner, name, held)

    async def come(self) -> None:
        await self.scene.world.run(self.reached.wait())


async def settled(scene: Scene) -> None:
    """Long after: records and segments agree, and nothing waits."""
    await scene.world.clock.pass_time(200)
    await audit_streams(scene.world.streams, scene.world.segments)
    assert scene.world.segments.transaction_segments() == []
    assert await requests_left(scene.world.store) == 0
    await scene.world.close()


async def test_a_stream_that_was_completed_since_its_deletion_was_asked_for_is_not_deleted() -> None:
    """The one that asks sees a half-made stream; until its request is carried out the stream is in use."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    creation, deletion = Gate(scene), Gate(scene)
    creation.at(world.segments, "create_segments", f"'{S}/stream/")
    deletion.at(second.queue, "submit", "delete_stream")
    created = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await creation.come()
    deleted = asyncio.ensure_future(second.delete.delete("delete", S, "stream"))
    await deletion.come()
    creation.opened.set()
    assert await world.run(created)
    begun = await world.run(first.transactions.create(S, "stream", 60_000))
    world.write(S, "stream", begun, "event")
    deletion.opened.set()
    with pytest.raises(StreamNotSealed):
        await world.run(deleted)
    assert await world.run(first.transactions.commit(S, "stream", begun.id))
    assert await scene.state("stream") is StreamState.ACTIVE
    assert await world.streams.entry(S, mark_stream("stream")) is not None
    await world.clock.pass_time(10)
    assert await world.readable(S, "stream") == ["event"] * 2
    await settled(scene)
