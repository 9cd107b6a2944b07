"""The open loop of the latency cases, as a process of its own: so many events a second, each stamped when it was due.

usage: python -m tests.bench.latency_writer ours|kafka ADDRESS TARGET RATE SECONDS EVENT_BYTES; prints how many it wrote

An event that waits because the writer or the store stalls keeps the stamp of its due time, so a stall is seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.bench.sides import SCOPE
from tests.bench.stamps import stamped
from tests.bench.workload import keys

tick_s: Final = 0.005
flush_time_max_s: Final = 60.0
Send = Callable[[str, bytes], None]
"""Add an event with its key."""
Tick = Callable[[], object]
"""Let what was added go."""


def run(
    send: Send,
    tick: Tick,
    rate: int,
    seconds: int,
    size_bytes: int,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], Any] = time.sleep,
) -> int:
    """Returns how many events were sent."""
    started_s = clock()
    sent, total = 0, rate * seconds
    while sent < total:
        due = min(total, int((clock() - started_s) * rate))
        while sent < due:
            send(str(sent % keys), stamped(started_s + sent / rate, size_bytes))
            sent += 1
        tick()
        sleep(tick_s)
    return sent


@contextmanager
def pravega(address: str, target: str) -> Iterator[tuple[Send, Tick]]:
    """Every tick waits until its events are durable."""
    from pravega_streams.event.event_writer import EventWriter
    from pravega_streams.sync import StreamClient

    with StreamClient(address) as client, EventWriter(client, SCOPE, target) as writer:
        yield lambda key, event: writer.write(event, key), writer.flush


@contextmanager
def kafka(address: str, target: str) -> Iterator[tuple[Send, Tick]]:
    """Acknowledged when durable too; sent at once."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 1})
    yield lambda key, event: producer.produce(target, event, key), lambda: producer.poll(0)
    left = producer.flush(flush_time_max_s)
    if left:
        raise TimeoutError(f"Kafka did not take {left} events within {flush_time_max_s:.0f} s")


def main(side: str, address: str, target: str, rate: str, seconds: str, size: str) -> None:
    opened = {"ours": pravega, "kafka": kafka}[side]
    with opened(address, target) as (send, tick):
        sent = run(send, tick, int(rate), int(seconds), int(size))
    print(sent)


if __name__ == "__main__":
    main(*sys.argv[1:])
