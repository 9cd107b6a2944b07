"""Holds what all runs share: one set of services, one input, a driver to be hurt and one that takes over."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final, Self, TypeVar

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import SetState, Sink, TransactionSet
from pravega_common.names import scoped_name
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.sink.direct_writer import DIRECT_ROWS_DURABLE
from pravega_spark.standalone.process import StandaloneProcess
from tests.drills.sink.arming import Failpoints
from tests.drills.sink.audit import Tally, numbers_in, tally
from tests.drills.sink.class_data import is_given, shared_class_data
from tests.drills.sink.cluster import SparkCluster, cluster_configuration, hosts
from tests.drills.sink.copy import Copy
from tests.drills.sink.driver import DrillFailed, Driver
from tests.drills.sink.processes import send
from tests.drills.sink.runs import Armed, Run, copies_of

Seen = TypeVar("Seen")

together_default: Final = 10
"""Runs that are hurt together: queries of one driver that stand at their points when it is killed."""
together_max: Final = 15
"""More queries need more memory than the drivers are given."""
slots_beside: Final = 6
"""Tasks at the same time, beside one of each run that was stopped."""
see_time_max_s = 60.0
poll_s = 0.02
batches_of_input = 2
tasks_of_batch = 2
events_of_batch = 100
events_of_input = batches_of_input * events_of_batch
first_file_time_s = 1_700_000_000
controller_points = ("pending_recorded", "members_bound", "commit_recorded", "order_recorded")


class Bench:
    """``exactly_once=False`` runs the same with the sink's other mode, to see that its repetitions are seen.

    ``as_records`` writes records (``format=record``), of which every part is compared.
    ``together`` is the most runs that are hurt together. ``shares_class_data`` costs half a minute at first, and makes
    every later JVM start quicker.
    """

    def __init__(
        self,
        folder: Path,
        *,
        exactly_once: bool = True,
        as_records: bool = False,
        together: int = together_default,
        shares_class_data: bool = False,
    ) -> None:
        self.folder = folder
        self._slots = together + slots_beside
        self._master = f"local[{self._slots},4]"
        self.exactly_once = exactly_once
        self.as_records = as_records
        self.controller = ""
        self.controller_points = Failpoints(folder / "controller-failpoints")
        self.source = folder / "input"
        self._shares_class_data = shares_class_data
        self._jvm = ""
        self._made = 0
        self._services: StandaloneProcess | None = None
        self._cluster: SparkCluster | None = None
        self._drivers: dict[str, Driver] = {}

    @contextmanager
    def running(self) -> Iterator[Self]:
        with ExitStack() as ends:
            self.controller = self._start_services(ends)
            self.gateway = ServiceGateway(self.controller)
            ends.callback(self.gateway.close)
            ends.callback(self._end_spark)
            self._fill()
            if self._shares_class_data and not is_given():
                copies = copies_of(self.new_runs("class-data", [0, 1]))
                data = shared_class_data(self.folder, self._master, *copies)
                self._jvm = f"-XX:SharedArchiveFile={data}"
            self._driver("victim")
            self.rescuer.run()
            yield self

    def _start_services(self, ends: ExitStack) -> str:
        """Returns the controller's address."""
        environment = self.controller_points.environment({f"transaction_set.{name}" for name in controller_points})
        self._services = StandaloneProcess(self.folder / "services", containers=2, hung_after_s=0)
        self._services.start(environment)
        ends.callback(self._services.stop)
        return self._services.controller_uri

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
            self._drivers[name] = Driver(self._new_folder(name), self._master, jvm=self._jvm)
        return self._drivers[name]

    def _new_folder(self, name: str) -> Path:
        self._made += 1
        return self.folder / f"{name}-{self._made}"

    def kill_victim(self) -> None:
        """The next one starts while this one's checkpoints are taken over."""
        self._drivers.pop("victim").kill()
        self._driver("victim")

    @property
    def cluster(self) -> SparkCluster:
        """Started when it is first asked for."""
        if self._cluster is None:
            self._cluster = SparkCluster(self.folder / "spark-cluster", self._slots)
        return self._cluster

    def cluster_driver(self, *, speculates: bool = False) -> Driver:
        """With both of its executors; one at a time has them."""
        name, other = ("cluster-speculative", "cluster")[:: 1 if speculates else -1]
        if other in self._drivers:
            self._drivers.pop(other).kill()
        if name not in self._drivers:
            settings = cluster_configuration(self._slots, self._jvm, speculates=speculates)
            self._drivers[name] = Driver(self._new_folder(name), self.cluster.master, settings, jvm=self._jvm)
            self._drivers[name].run()
        self.cluster.wait_executors(len(hosts))
        return self._drivers[name]

    def kill_cluster_driver(self) -> None:
        self._drivers.pop("cluster").kill()

    def renew_all(self) -> None:
        """After failed runs nobody knows what the drivers still do."""
        self._end_spark()
        if self._services is not None:
            send(self.controller_pid, signal.SIGCONT)
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

    def new_runs(self, point: str, seeds: Sequence[int]) -> list[Run]:
        """Makes runs of one point, to be hurt together, and disarms all failpoints."""
        for driver in self._drivers.values():
            driver.failpoints.disarm()
        self.controller_points.disarm()
        return [self._new_run(point, seed) for seed in seeds]

    def _new_run(self, point: str, seed: int) -> Run:
        folder = self._new_folder("run")
        sink = {"exactly_once": str(self.exactly_once).lower(), **({"format": "record"} if self.as_records else {})}
        checkpoint = str(folder / "checkpoint")
        copy = Copy(folder.name, self.controller, folder.name, str(self.source), ("to",), checkpoint, sink)
        run = Run(point, seed, (copy,), {"to": self.input})
        self.gateway.create_scope(run.scope)
        self.create(run, "to")
        return run

    def second_target(self, run: Run) -> str:
        other = "to-other"
        self.create(run, other)
        run.expected[other] = self.input
        run.change(targets=(run.target, other))
        return other

    def create(self, run: Run, stream: str) -> None:
        self.gateway.create_stream(run.scope, stream, StreamConfiguration(ScalingPolicy.fixed(2)))

    def numbers(self, run: Run, stream: str) -> list[int]:
        return numbers_in(self.gateway, self.controller, run.scope, stream, as_records=self.as_records)

    def audit(self, run: Run) -> Tally:
        total = Tally()
        for stream, expected in run.expected.items():
            total += tally(self.numbers(run, stream), expected)
        return total

    def finish(self, runs: Sequence[Run]) -> None:
        """The rescuer goes on from the checkpoints to the end of the input, without an error."""
        expect_success(self.rescuer.run(*copies_of(runs)))

    # ---- moments -----------------------------------------------------------------------------------------------------

    def point(self, name: str) -> str:
        """The failpoint of a task's step, in the mode that runs."""
        return name if self.exactly_once or name.startswith("drill.") else DIRECT_ROWS_DURABLE

    def arm(
        self,
        driver: Driver,
        runs: Sequence[Run],
        steps: Sequence[str],
        hits: Sequence[int],
        action: str,
        counted: int = 0,
    ) -> list[Armed]:
        """For each run one of the steps and one of the hits, in turn."""
        choices = list(product(dict.fromkeys(self.point(step) for step in steps), hits))
        armed = [Armed(run, *run.pick(choices)) for run in runs]
        for item in armed:
            driver.failpoints.arm(item.step, action, item.hit, item.run.scope, counted)
        return armed

    def hold(
        self,
        driver: Driver,
        runs: Sequence[Run],
        steps: Sequence[str],
        hits: Sequence[int],
        action: str = "stop",
        counted: int = 0,
    ) -> list[Armed]:
        """Begin the runs; returns when every one of them stands at its step."""
        armed = self.arm(driver, runs, steps, hits, action, counted)
        driver.begin(*copies_of(runs))
        return [replace(item, pid=driver.wait_hit(item.step, item.hit, item.run.scope)) for item in armed]

    @staticmethod
    def let_go(held: Sequence[Armed]) -> None:
        for item in held:
            send(item.pid, signal.SIGCONT)

    @staticmethod
    def expect_hits(driver: Driver, armed: Sequence[Armed]) -> None:
        """That what was armed has happened."""
        for item in armed:
            if not driver.failpoints.taken_by(item.step, item.hit, item.run.scope):
                raise DrillFailed(f"hit {item.hit} of {item.step} for {item.run.scope} did not come")

    # ---- looking from outside ----------------------------------------------------------------------------------------

    @property
    def controller_pid(self) -> int:
        if self._services is None:
            raise DrillFailed("the services are not the drill's own")
        return self._services.pid("controller")

    def wait_controller(self, name: str, hit: int, scope: str) -> None:
        """Until the controller holds itself there."""
        taken = self.controller_points.taken_by
        until(lambda: taken(name, hit, scope) or None, f"hit {hit} of {name} for {scope} did not come")

    def wait_finished(self, run: Run, batch_id: int) -> TransactionSet:
        """Until a decided batch can be read."""
        query_id = json.loads((run.checkpoint / "metadata").read_text())["id"]
        sink = Sink(query_id, scoped_name(run.scope, run.target))
        return until(lambda: self._finished(sink, batch_id), f"batch {batch_id} is not readable")

    def _finished(self, sink: Sink, batch_id: int) -> TransactionSet | None:
        recorded, last = self.gateway.transaction_set(sink, batch_id)
        return recorded if recorded.state is SetState.FINISHED or last > batch_id else None

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def expect_success(failures: Sequence[str | None]) -> None:
    for failure in failures:
        if failure is not None:
            raise DrillFailed(f"the query failed: {failure}")


def expect_failure(failures: Sequence[str | None], *texts: str) -> None:
    """Checks that every query failed, with one of these texts."""
    for failure in failures:
        if not any(text in (failure or "") for text in texts):
            raise DrillFailed(f"a query did not fail with '{' or '.join(texts)}': {failure}")


def until(look: Callable[[], Seen | None], otherwise: str) -> Seen:
    deadline_s = time.monotonic() + see_time_max_s
    while (seen := look()) is None:
        if time.monotonic() > deadline_s:
            raise DrillFailed(f"{otherwise} within {see_time_max_s:.0f} s")
        time.sleep(poll_s)
    return seen
