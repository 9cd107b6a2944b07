"""Whole recorded conversations of unmodified clients and a real controller with a store, replayed against ours.

Only scenarios that create every segment they use can be replayed on their own.
"""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.wire import codec
from pravega_common.wire.commands import Command
from segment_service.host.listener import WireServer
from tests.support.recordings import RecordedFrame, conversation
from tests.support.wire_client import WireClient
from tests.unit.segment_service.host.comparison import comparable

SCENARIOS = {"py-bytestream": 14, "java-bytes": 17, "java-retention": 75}
"""Scenario and number of replies compared."""


class Conversation:
    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: dict[tuple[str, int], WireClient] = {}
        # Replies to different requests of one connection may come in another order than they were recorded in.
        self.unmatched: dict[tuple[str, int], list[Command]] = {}
        self.closed: set[tuple[str, int]] = set()
        self.compared = 0

    async def play(self, frame: RecordedFrame) -> None:
        key = (frame.file, frame.connection)
        if key in self.closed or (key not in self.clients and (frame.type_code is None or not frame.is_request)):
            return
        if frame.type_code is None:
            self.closed.add(key)
            await self.clients[key].close()
        elif frame.is_request:
            if key not in self.clients:
                self.clients[key] = await WireClient.connect(self.port, greet=False)
                self.unmatched[key] = []
            self.clients[key].send_raw(
                codec.frame_header(frame.type_code, len(frame.padded_payload)) + frame.padded_payload
            )
        else:
            await self.expect(key, frame, codec.decode(frame.type_code, memoryview(frame.padded_payload)))

    async def expect(self, key: tuple[str, int], frame: RecordedFrame, expected: Command) -> None:
        wanted = comparable(expected)
        unmatched = self.unmatched[key]
        try:
            async with asyncio.timeout(5):
                while all(comparable(reply) != wanted for reply in unmatched):
                    unmatched.append(await self.clients[key].reply())
        except TimeoutError:
            pytest.fail(f"{frame}: expected {expected}, got {unmatched}")
        unmatched.remove(next(reply for reply in unmatched if comparable(reply) == wanted))
        self.compared += 1


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_recorded_conversation(any_server: WireServer, scenario: str) -> None:
    replay = Conversation(any_server.port)
    for frame in conversation(scenario):
        await replay.play(frame)
    assert replay.compared == SCENARIOS[scenario]
    assert not any(replay.unmatched.values())
    for key, client in replay.clients.items():
        if key not in replay.closed:
            await client.close()
