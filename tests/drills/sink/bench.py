"""What all runs share: one set of services, one input, a driver to be hurt and one that takes over."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pravega_common.names import scoped_name
from pravega_spark.direct_writer import DIRECT_ROWS_DURABLE
from pravega_spark.service_gateway import ServiceGateway
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.controller.model import ScalingPolicy, StreamConfiguration
from pravega_streams.controller.transaction_sets import SetState, Sink, TransactionSet
from tests.drills.sink.audit import Tally, numbers_in, tally
from tests.drills.sink.cluster import SparkCluster, configuration, hosts
from tests.drills.sink.copy import Copy
from tests.drills.sink.driver import DrillFailed, Driver, Failpoints
from tests.drills.sink.processes import send

Seen = TypeVar("Seen")

SCOPE = "drill"
see_time_max_s = 60.0
poll_s = 0.02
batches_of_input = 2
tasks_of_batch = 2
events_of_batch = 100
events_of_input = batches_of_input * events_of_batch
first_file_time_s = 1_700_000_000


@dataclass
class Run:
    """One run of one point: its own targets and checkpoint."""

    name: str
    folder: Path
    random: random.Random
    copy: Copy
    expected: dict[str, list[int]] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return Path(self.copy.checkpoint)

    @property
    def target(self) -> str:
        return self.copy.targets[0]


class Bench:
    """``exactly_once=False`` runs the same with the sink's other mode, to see that its repetitions are seen."""

    def __init__(self, folder: Path, *, exactly_once: bool = True) -> None:
        self.folder = folder
        self.exactly_once = exactly_once
        self._made = 0
        self._cluster: SparkCluster | None = None
        self._drivers: dict[str, Driver] = {}
        self.controller_points = Failpoints(folder / "controller-failpoints")
        self.source = folder / "input"
        self.services = StandaloneProcess(folder / "services", containers=2)

    @contextmanager
    def running(self) -> Iterator[Bench]:
        names = {"pending_recorded", "members_bound", "commit_recorded", "members_ordered", "order_recorded"}
        names |= {"registration_written", "members_readable", "orphans_aborted"}
        environment = self.controller_points.environment({f"transaction_set.{name}" for name in names})
        with ExitStack() as ends:
            self.services.start(environment)
            ends.callback(self.services.stop)
            self.gateway = ServiceGateway(self.controller)
            ends.callback(self.gateway.close)
            ends.callback(self._end_spark)
            self._fill()
            self._driver("victim")
            self.rescuer.run()
            yield self

    def _fill(self) -> None:
        """Two files a batch, each one task's; Spark takes them in the order of their times."""
        self.source.mkdir()
        for number in range(batches_of_input * tasks_of_batch):
            batch, task = divmod(number, tasks_of_batch)
            first = batch * events_of_batch
            texts = [f"{item:06d}\n" for item in range(first, first + events_of_batch) if item % tasks_of_batch == task]
            file = self.source / f"batch{batch}-task{task}.txt"
            file.write_text("".join(texts))
            os.utime(file, (first_file_time_s + batch, first_file_time_s + batch))

    @property
    def controller(self) -> str:
        return self.services.controller_uri

    @property
    def input(self) -> list[int]:
        return list(range(events_of_input))

    # ---- drivers -----------------------------------------------------------------------------------------------------

    @property
    def victim(self) -> Driver:
        return self._driver("victim")

    @property
    def rescuer(self) -> Driver:
        """Lives as long as the drill: a new driver for the checkpoint, without a new JVM."""
        return self._driver("rescuer")

    def _driver(self, name: str) -> Driver:
        if name not in self._drivers:
            self._made += 1
            self._drivers[name] = Driver(self.folder / f"{name}-{self._made}", "local[2,4]")
        return self._drivers[name]

    def kill_victim(self) -> None:
        """The next one starts while this one's checkpoint is taken over."""
        self._drivers.pop("victim").kill()
        self._driver("victim")

    @property
    def cluster(self) -> SparkCluster:
        """Started when it is first asked for."""
        if self._cluster is None:
            self._cluster = SparkCluster(self.folder / "spark-cluster")
        return self._cluster

    @property
    def cluster_driver(self) -> Driver:
        """With both of its executors."""
        if "cluster" not in self._drivers:
            self._made += 1
            folder = self.folder / f"cluster-{self._made}"
            self._drivers["cluster"] = Driver(folder, self.cluster.master, configuration)
            self._drivers["cluster"].run()
        self.cluster.wait_executors(len(hosts))
        return self._drivers["cluster"]

    def kill_cluster_driver(self) -> None:
        self._drivers.pop("cluster").kill()

    def renew_all(self) -> None:
        """After a failed run nobody knows what the drivers still do."""
        self._end_spark()
        send(self.services.pid("controller"), signal.SIGCONT)
        self.controller_points.disarm()

    def _end_spark(self) -> None:
        with ExitStack() as ends:
            if self._cluster is not None:
                ends.callback(self._cluster.stop)
            for driver in self._drivers.values():
                ends.callback(driver.kill)
            self._cluster = None
            self._drivers = {}

    # ---- runs --------------------------------------------------------------------------------------------------------

    def new_run(self, name: str, seed: int) -> Run:
        self._made += 1
        label = f"run{self._made}"
        sink = {"exactly_once": str(self.exactly_once).lower()}
        folder = self.folder / label
        target = f"to-{label}"
        copy = Copy(label, self.controller, SCOPE, str(self.source), (target,), str(folder / "checkpoint"), sink)
        self.create(target)
        for driver in self._drivers.values():
            driver.failpoints.disarm()
        self.controller_points.disarm()
        return Run(name, folder, random.Random(f"{name}/{seed}"), copy, {target: self.input})

    def second_target(self, run: Run) -> str:
        target = f"{run.target}-b"
        self.create(target)
        run.expected[target] = self.input
        run.copy = replace(run.copy, targets=(run.target, target))
        return target

    def create(self, stream: str) -> None:
        self.gateway.create_scope(SCOPE)
        self.gateway.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy(2)))

    def numbers(self, stream: str) -> list[int]:
        return numbers_in(self.gateway, self.controller, SCOPE, stream)

    def audit(self, run: Run) -> Tally:
        total = Tally()
        for stream, expected in run.expected.items():
            total += tally(self.numbers(stream), expected)
        return total

    def point(self, name: str) -> str:
        """The failpoint of a task's step, in the mode that runs."""
        return name if self.exactly_once or name.startswith("drill.") else DIRECT_ROWS_DURABLE

    def finish(self, *copies: Copy) -> None:
        """The rescuer goes on from the checkpoint to the end of the input, without an error."""
        self.expect_success(self.rescuer.run(*copies))

    @staticmethod
    def expect_success(failures: Sequence[str | None]) -> None:
        for failure in failures:
            if failure is not None:
                raise DrillFailed(f"the query failed: {failure}")

    @staticmethod
    def expect_failure(failures: Sequence[str | None], *texts: str) -> None:
        """With one of these texts."""
        if not any(text in (failure or "") for failure in failures for text in texts):
            raise DrillFailed(f"no query failed with '{' or '.join(texts)}': {failures}")

    # ---- looking from outside ----------------------------------------------------------------------------------------

    def wait_finished(self, run: Run, batch_id: int) -> TransactionSet:
        """Until a decided batch can be read."""
        query_id = json.loads((run.checkpoint / "metadata").read_text())["id"]
        sink = Sink(query_id, scoped_name(SCOPE, run.target))
        return until(lambda: self._finished(sink, batch_id), f"batch {batch_id} is not readable")

    def _finished(self, sink: Sink, batch_id: int) -> TransactionSet | None:
        recorded, last = self.gateway.transaction_set(sink, batch_id)
        return recorded if recorded.state is SetState.FINISHED or last > batch_id else None

    def wait_controller(self, name: str, hit: int) -> int:
        """Until the controller has stopped itself there; returns its process."""
        return until(lambda: self.controller_points.taken_by(name, hit) or None, f"hit {hit} of {name} did not come")

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def until(look: Callable[[], Seen | None], otherwise: str) -> Seen:
    deadline_s = time.monotonic() + see_time_max_s
    while (seen := look()) is None:
        if time.monotonic() > deadline_s:
            raise DrillFailed(f"{otherwise} within {see_time_max_s:.0f} s")
        time.sleep(poll_s)
    return seen
