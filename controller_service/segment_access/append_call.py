"""Sends the commands of a writer on a connection of its own, and waits for the answer in time."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from pravega_common.errors import UnknownOutcome
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import WireConnection
from pravega_streams.connection.replies import expected_reply
from pravega_streams.connection.requests import MakeCommand

append_time_max_s: Final = 30.0

R = TypeVar("R", bound=c.Command)


async def call_writer(connection: WireConnection, segment: str, make: MakeCommand, *expected: type[R]) -> R:
    """The answer, of one of the expected types; the error that another one stands for.

    ``UnknownOutcome``, and the connection is closed, if it is neither or does not come in time.
    """
    try:
        async with asyncio.timeout(append_time_max_s):
            reply = await connection.call(make)
    except TimeoutError as error:
        connection.close(f"no answer to an append within {append_time_max_s:.0f} s")
        raise UnknownOutcome(f"{segment}: no answer within {append_time_max_s:.0f} s") from error
    return expected_reply(reply, segment, expected, connection.close)
