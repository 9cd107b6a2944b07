"""Reads pages of names, without those that the caller may not read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pravega_common.services.security.principal import may_see

ReadPage = Callable[[bytes], Awaitable[tuple[Sequence[str], bytes]]]
"""The names from a place on, and the place of the next page; empty at the end."""


async def visible_page(read: ReadPage, start: bytes, resource: Callable[[str], str]) -> tuple[list[str], bytes]:
    """A page as ``read`` gives it. An empty one is the end to clients, so one of which nothing is seen is skipped."""
    while True:
        names, start = await read(start)
        seen = [name for name in names if may_see(resource(name))]
        if seen or not start:
            return seen, start
