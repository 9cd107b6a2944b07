"""Holds one call of a controller back, until a test lets it go on."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.transaction_world import World


class Gate:
    """Holds one call back: ``reached`` is set when it comes, and it goes on once ``opened`` is."""

    def __init__(self, world: World) -> None:
        self.world = world
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
        await self.world.run(self.reached.wait())
