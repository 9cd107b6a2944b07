"""Kills one of two real controllers in the middle of handling events; the other one handles what is left."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller_service.event_processors import event_processor_group
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from pravega_common.names import REQUEST_STREAM, SYSTEM_SCOPE
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.integration.test_controller_failover import (  # noqa: F401
    Processes,
    channels,
    connected,
    processes,
    take_over_time_max_s,
)
from tests.support.eventually import eventually
from tests.support.server_fixtures import own_redis  # noqa: F401
from tests.support.servers import free_port

STREAMS = 6
online_time_max_s = 60.0
killed_at = 8
"""The number of the event behind which the first controller dies."""


def report(stream: int, turn: int) -> AutoScaleEvent:
    return AutoScaleEvent("s", f"t{stream}", turn, ScaleDirection.DOWN, 1, 0, False, stream * 1_000 + turn)


def handled_in(log: Path) -> Iterator[tuple[str, int]]:
    """Stream and segment id of each report, in the order in which a controller handled them."""
    for line in log.read_text().splitlines():
        found = re.search(r"event='traffic report' .*?stream='(s/t\d)' segment=(\d+)", line)
        if found is not None:
            yield found[1], int(found[2])


def is_online(log: Path) -> bool:
    return "reads events" in log.read_text()


async def test_events_of_a_killed_controller_are_handled_by_the_other(
    processes: Processes,  # noqa: F811
    channels: list[Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    ports = free_port(), free_port()
    logs = {name: tmp_path / f"{name}.log" for name in ("doomed", "heir")}
    processes.start_store()
    doomed = processes.start_controller("doomed", ports[0], f"{event_processor_group.HANDLED}=kill:{killed_at}")
    processes.start_controller("heir", ports[1])
    await connected(channels, ports[0])
    await eventually(lambda: all(map(is_online, logs.values())), "the readers", online_time_max_s)
    with StreamClient(f"tcp://127.0.0.1:{ports[1]}") as client:
        writer = EventWriter(client, SYSTEM_SCOPE, REQUEST_STREAM)
        turns = itertools.count()

        async def is_dead() -> bool:
            """The first controller may have to wait for its share of the segments: there is always more to read."""
            turn = next(turns)
            for stream in range(STREAMS):
                event = report(stream, turn)
                writer.write(event.to_bytes(), event.routing_key)
            await asyncio.to_thread(writer.flush)
            return doomed.poll() is not None

        await eventually(is_dead, "the death of the first controller", take_over_time_max_s)
    count = next(turns)
    wanted = {(f"s/t{stream}", turn) for stream in range(STREAMS) for turn in range(count)}
    of_dead = list(handled_in(logs["doomed"]))
    assert len(set(of_dead)) >= killed_at
    assert set(of_dead) < wanted
    await eventually(lambda: {*of_dead, *handled_in(logs["heir"])} == wanted, "the take-over", online_time_max_s)
    for log in logs.values():
        for stream in range(STREAMS):
            mine = [turn for name, turn in handled_in(log) if name == f"s/t{stream}"]
            assert mine == sorted(set(mine)), "in order"
