"""Runs the demo of automatic scaling: a load rises, stays and ends, and the stream follows it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.scaling_picture import ScalingPicture
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter

SCOPE, STREAM = "demo", "scaling"
KEYS = 100
TARGET = 100
"""Events a second of one segment, by the policy."""
FACTOR = 2
slot_s = 0.1
"""The load is written in slots of this length."""
down_time_max_s = 120.0

TIMES = {
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__TICK_MS": "250",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__WINDOW_MS": "1000",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__COOLDOWN_MS": "2500",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__MUTE_MS": "2500",
    "PRAVEGA_SEGMENT_STORE_AUTO_SCALE__IDLE_MS": "4000",
    "PRAVEGA_CONTROLLER_AUTO_SCALE__COOLDOWN_MS": "2000",
    "PRAVEGA_CONTROLLER_AUTO_SCALE__REPORT_VALID_MS": "20000",
}
"""Windows of 1 to 10 seconds in place of 2 to 20 minutes, so that there is something to see."""


@dataclass(frozen=True)
class Outcome:
    """The events of the stream against those that were written."""

    written: int
    lost: int
    duplicated: int
    out_of_order: int
    most_segments: int
    last_segments: int
    epochs: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order) and self.last_segments == 1 < self.most_segments


def load_at(seconds: float, peak: int, length_s: float) -> int:
    """Events a second: rising for the first half, at the peak until four fifths, then falling to nothing."""
    share = seconds / length_s
    if share < 0.5:
        return int(peak * share / 0.5)
    return peak if share < 0.8 else max(int(peak * (1 - share) / 0.2), 0)


class ScalingDemo:
    """One run. Every event is durable before the next look at the stream."""

    def __init__(self, client: StreamClient, console: Console, peak: int, length_s: float) -> None:
        self.client = client
        self.console = console
        self.peak = peak
        self.length_s = length_s
        self.picture = ScalingPicture(TARGET)
        self.written = 0
        self._started_s = 0.0
        self._looked = (0.0, 0)

    def run(self) -> Outcome:
        self.client.controller.create_scope(SCOPE)
        policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, TARGET, FACTOR, 1)
        self.client.controller.create_stream(SCOPE, STREAM, StreamConfiguration(policy))
        self._started_s = time.monotonic()
        with Live(self.picture, console=self.console, refresh_per_second=4):
            self._write()
            self._wait(lambda: self.picture.samples[-1].segments == 1)
        return self._compare()

    def _write(self) -> None:
        with EventWriter(self.client, SCOPE, STREAM) as writer:
            due = 0.0
            while self._seconds() < self.length_s:
                due += load_at(self._seconds(), self.peak, self.length_s) * slot_s
                for _ in range(int(due)):
                    writer.write(b"%d" % self.written, f"key-{self.written % KEYS}")
                    self.written += 1
                due -= int(due)
                writer.flush()
                self._look()
                time.sleep(slot_s)

    def _wait(self, done: Callable[[], bool]) -> None:
        end_s = self._seconds() + down_time_max_s
        self._look()
        while not done() and self._seconds() < end_s:
            time.sleep(slot_s)
            self._look()

    def _seconds(self) -> float:
        return time.monotonic() - self._started_s

    def _look(self) -> None:
        """Every second slot or so: a rate over a shorter time says nothing."""
        now_s = self._seconds()
        before_s, before = self._looked
        if now_s - before_s < 2 * slot_s:
            return
        segments = self.client.controller.current_segments(SCOPE, STREAM)
        self.picture.see(now_s, (self.written - before) / (now_s - before_s), segments)
        self._looked = (now_s, self.written)

    def _compare(self) -> Outcome:
        numbers = [int(event.data) for event in read_events(self.client, SCOPE, STREAM)]
        last = [-1] * KEYS
        out_of_order = 0
        for number in numbers:
            out_of_order += number <= last[number % KEYS]
            last[number % KEYS] = number
        counts = [sample.segments for sample in self.picture.samples]
        unique = len(set(numbers))
        return Outcome(
            self.written,
            self.written - unique,
            len(numbers) - unique,
            out_of_order,
            max(counts),
            counts[-1],
            len(self.picture.epochs),
        )


def show(console: Console, outcome: Outcome) -> None:
    table = Table(title="What came back from the stream", show_header=False)
    for name, value in {
        "events written": f"{outcome.written:,}",
        "lost": outcome.lost,
        "duplicated": outcome.duplicated,
        "out of order within their key": outcome.out_of_order,
        "segments: most, at the end": f"{outcome.most_segments}, {outcome.last_segments}",
        "epochs seen": outcome.epochs,
    }.items():
        table.add_row(name, str(value))
    console.print(table)
    console.print("[bold green]scaling: held" if outcome.holds else "[bold red]scaling: BROKEN")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo --scaling", description=__doc__)
    parser.add_argument("--scaling", action="store_true", help="this demo")
    parser.add_argument("--peak", type=int, default=800, help="events a second at the peak (default 800)")
    parser.add_argument("--seconds", type=float, default=40.0, help="length of the load (default 40)")
    args = parser.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="pravega-spark-scaling-"))
    cluster = StandaloneProcess(folder, segment_stores=2)
    try:
        cluster.start(TIMES)
        console.print(
            f"[bold cyan]demo[/] standalone with two stores is ready; the policy: {TARGET} events/s a segment"
        )
        with StreamClient(cluster.controller_uri) as client:
            outcome = ScalingDemo(client, console, args.peak, args.seconds).run()
    except BaseException:
        console.print(f"[bold cyan]demo[/] failed; logs are in {folder}")
        raise
    finally:
        cluster.stop()
    show(console, outcome)
    if outcome.holds:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
