"""Runs the open loop of the latency cases: a fixed number of events a second, each stamped when it was due.

usage: python -m tests.bench.latency_writer ours|kafka ADDRESS TARGET RATE SECONDS EVENT_BYTES
Prints how many it wrote, and how long they took to be durable, as JSON.

An event that waits because the writer or the store stalls keeps the stamp of its due time, so a stall is seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.bench.figures import spread
from tests.bench.sides import SCOPE
from tests.bench.stamps import stamp_of, stamped
from tests.bench.workload import keys

tick_s: Final = 0.005
flush_time_max_s: Final = 60.0
kafka_linger_ms: Final = 1
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
def pravega(address: str, target: str, waits_s: list[float]) -> Iterator[tuple[Send, Tick]]:
    """Every tick waits until its events are durable."""
    from pravega_streams.client import StreamClient
    from pravega_streams.event.event_writer import EventWriter

    with StreamClient(address) as client, EventWriter(client, SCOPE, target) as writer:
        sent_s: list[float] = []

        def send(key: str, event: bytes) -> None:
            writer.write(event, key)
            sent_s.append(stamp_of(event))

        def tick() -> None:
            writer.flush()
            now_s = time.time()
            waits_s.extend(now_s - stamp_s for stamp_s in sent_s)
            sent_s.clear()

        yield send, tick


@contextmanager
def kafka(address: str, target: str, waits_s: list[float]) -> Iterator[tuple[Send, Tick]]:
    """Acknowledged when durable too. Idempotent, as Kafka's Java producer is by default: without its bound on requests
    in flight, small ones pile up before a broker that syncs each of them.
    """
    from confluent_kafka import KafkaError, Message, Producer

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"Kafka did not take an event: {error}")
        waits_s.append(time.time() - stamp_of(message.value() or b""))

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": kafka_linger_ms})
    yield lambda key, event: producer.produce(target, event, key, on_delivery=answered), lambda: producer.poll(0)
    left = producer.flush(flush_time_max_s)
    if left:
        raise TimeoutError(f"Kafka did not take {left} events within {flush_time_max_s:.0f} s")


def main(side: str, address: str, target: str, rate: str, seconds: str, size: str) -> None:
    opened, waits_s = {"ours": pravega, "kafka": kafka}[side], list[float]()
    with opened(address, target, waits_s) as (send, tick):
        sent = run(send, tick, int(rate), int(seconds), int(size))
    print(json.dumps({"events": sent, "durable_ms": spread([wait_s * 1000 for wait_s in waits_s])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
