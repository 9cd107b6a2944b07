"""One run: a cluster, its clients and its faults, from a seed to a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from pravega_common.names import segment_name, table_segment_name
from pravega_common.runtime.joined import all_ended
from tests.simulator.audit import Auditor
from tests.simulator.clients import GivenUp
from tests.simulator.cluster import Cluster
from tests.simulator.crash_points import CrashPoints
from tests.simulator.determinism import repeatable, silent_destructors
from tests.simulator.history import History, Violation
from tests.simulator.late_sources import LateSources
from tests.simulator.leftovers import Leftovers
from tests.simulator.limits import in_force
from tests.simulator.losses import LossPlan
from tests.simulator.nemesis import Nemesis
from tests.simulator.network import Network
from tests.simulator.oracle import RemoteCPO
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.repairs import RepairPlan
from tests.simulator.replacements import ServerReplacements
from tests.simulator.segments import SegmentLife
from tests.simulator.settings import Settings
from tests.simulator.store import Store
from tests.simulator.tables import TableClient, TableHistory
from tests.simulator.tier1 import Tier1
from tests.simulator.tier2 import RemoteChunks, Tier2
from tests.simulator.trace import Trace
from tests.simulator.virtual_loop import Stuck, VirtualClock, VirtualLoop
from tests.support.fakes.cpo import InMemoryCPO

settle_time_max_s: Final = 300.0
"""Virtual time that a healed cluster has to bring every operation to an end."""
sweep_time_max_s: Final = 3_000.0
"""Virtual time in which three owners sweep: thousands of names of one segment are deleted one after the other."""
refusal_time_s: Final = 60.0
"""Virtual time after which containers that refuse to start are believed."""
table_clients: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a run."""

    seed: int
    family: str
    violations: Sequence[Violation]
    acked: int
    checked_bytes: int
    refused: bool
    """A container said that data is lost or damaged, and was right."""
    reached: dict[str, int]
    crashed: dict[str, int]
    trace: Sequence[str]
    callbacks: int


class Simulation:
    """``World`` of the clients."""

    def __init__(self, settings: Settings, loop: VirtualLoop, trace: Trace) -> None:
        seed = settings.seed
        self.settings = settings
        self.loop = loop
        self.trace = trace
        self.history = History(self.note)
        self.is_ending = False
        self._started_s = loop.time()
        self._pieces = 0
        clock = VirtualClock(loop)
        self.network = loop.network = Network(loop, random.Random(f"{seed} network"))
        self.tier1 = Tier1(settings.servers, lambda: InMemoryCPO(clock), loop.time)
        self.network.servers.update({server.address: server for server in self.tier1.servers})
        cpo_server = self.tier1.servers[0]
        if settings.cpo_shares_server:
            self.tier1.oracle = cpo_server
        else:
            cpo_server = SimulatedRedis("cpo:6379", lambda: InMemoryCPO(clock), loop.time)
        self.tier2 = Tier2(random.Random(f"{seed} tier 2"), clock)
        cpo = RemoteCPO(self.network, cpo_server, random.Random(f"{seed} cpo"))
        self._replacements = ServerReplacements(
            self.network, self.tier1, cpo, clock, random.Random(f"{seed} replacing"), self.note, settings.containers
        )
        chunks = RemoteChunks(self.network, self.tier2)
        self.cluster = Cluster(loop, clock, settings, self.tier1, cpo, chunks, self.history, self.note)
        self.crash_points = CrashPoints(seed, self.cluster.kill)
        self.nemesis = Nemesis(
            settings, self.cluster, self.network, self.tier1, self.tier2, self.crash_points, self.note
        )
        self._late_sources = LateSources(settings, self.cluster, self.tier2, self.history, self.crash_points, self.note)
        self._leftovers = Leftovers(self.cluster, self.tier2, clock, self.history.violated, self.note)
        self._lives: list[SegmentLife] = []
        self._tables: list[list[TableClient]] = []

    # --- for the clients

    def note(self, text: str) -> None:
        self.trace.note(text)

    def owner_of(self, segment: str) -> Store:
        return self.cluster.owner_of(segment)

    def epoch_of(self, segment: str) -> int:
        return self.cluster.epoch_of(segment)

    def zombies(self) -> list[Store]:
        return [] if self.is_ending else self.cluster.zombies()

    def event_acked(self, segment: str, epoch: int) -> None:
        self.cluster.event_acked(segment, epoch)

    def made(self, length: int) -> None:
        self._pieces += 1 + length // self.settings.piece_bytes

    @property
    def is_busy(self) -> bool:
        passed_s = self.loop.time() - self._started_s
        return not self.is_ending and self._pieces > self.settings.pieces_per_s_max * (passed_s + 1)

    def is_damaged(self, segment: str) -> bool:
        return bool(self.history.ids_in(segment) & self.cluster.damaged)

    def corruption_seen(self, segment: str, error: DataCorruption) -> bool:
        if self.is_damaged(segment):
            return True
        if not self.tier1.losses:
            self.history.violated("refused", f"{segment}: damage is reported, and it has none: {error}")
        return False

    # --- the run

    async def run(self) -> None:
        self.note(f"seed {self.settings.seed}, family {self.settings.family}")
        self.crash_points.arm()
        self.cluster.start_store()
        clients = self._start_clients()
        faults = [asyncio.ensure_future(self.nemesis.run())]
        if self.settings.has_late_sources:
            faults.append(asyncio.ensure_future(self._late_sources.run()))
        family_plan = self._family_plan()
        plan = asyncio.ensure_future(family_plan.run())
        await asyncio.sleep(self.settings.duration_s)
        self.is_ending = True
        for task in faults:
            task.cancel()
        for ended in await asyncio.gather(plan, *faults, return_exceptions=True):
            if isinstance(ended, Exception):
                self.history.violated("broken", f"a plan of faults ended: {ended!r}")
        await self.nemesis.heal()
        if await self._within(asyncio.gather(*clients), "clients end"):
            await self._audit()
            if isinstance(family_plan, RepairPlan) and not self.tier1.losses:
                await self._within(family_plan.repaired(), "repair")
        for life in self._lives:
            await life.stop_reading()

    def _family_plan(self) -> LossPlan | RepairPlan:
        if self.settings.family == "repair":
            return RepairPlan(self.settings, self.cluster, self.tier1, self._replacements, self.note)
        return LossPlan(self.settings, self.cluster, self.tier1, self.tier2, self.history, self.note)

    def _start_clients(self) -> list[asyncio.Future[None]]:
        self._lives = [
            SegmentLife(self, segment_name("scope", f"stream-{number}", 0)) for number in range(self.settings.slots)
        ]
        running: list[asyncio.Future[None]] = [asyncio.ensure_future(life.run()) for life in self._lives]
        for number in range(self.settings.tables):
            segment = self.history.new_segment(table_segment_name("scope", f"table-{number}", 0))
            table = TableHistory(segment)
            clients = [TableClient(self, table, client) for client in range(table_clients)]
            self._tables.append(clients)
            running.append(asyncio.ensure_future(self._run_table(clients)))
        return running

    async def _run_table(self, clients: list[TableClient]) -> None:
        with contextlib.suppress(GivenUp):
            await clients[0].create()
            await all_ended(client.run() for client in clients)

    async def _audit(self) -> None:
        """Read everything; then once more from Tier 2, in a new store."""
        for step in itertools.count(1):
            self.note(f"audit {step}")
            auditor = Auditor(self, f"auditor {step}")
            if not await self._within(self._check_all(auditor), "audit"):
                return
            if step == 2:
                break
            if not await self._within(self._drain(auditor), "drain"):
                return
            for store in self.cluster.alive:
                self.cluster.kill(store.process, "to read everything again")
            self.cluster.start_store()
        if not self.tier1.losses and not self.cluster.damaged:
            await self._within(self._leftovers.check(), "sweep", sweep_time_max_s)

    async def _check_all(self, auditor: Auditor) -> None:
        for life in self._lives:
            check(life.is_at_rest, "an audit begins while clients still write", segment=life.segment_name)
            if life.current is not None:
                with contextlib.suppress(GivenUp):
                    await auditor.check(life.current)
                    await auditor.check_sources(life.current)
        for clients in self._tables:
            with contextlib.suppress(GivenUp):
                await clients[0].check()

    async def _drain(self, auditor: Auditor) -> None:
        for life in self._lives:
            if life.current is not None:
                with contextlib.suppress(GivenUp):
                    await auditor.drained(life.current)

    async def _within(
        self,
        work: Coroutine[Any, Any, Any] | asyncio.Future[Any],
        what: str,
        time_max_s: float = settle_time_max_s,
    ) -> bool:
        """Do it, in the time that a healed cluster has; false if it cannot, which is right only after a loss."""
        task = asyncio.ensure_future(work)
        ends_s = self.loop.time() + time_max_s
        refused_since_s = self.loop.time()
        while not task.done():
            now_s = self.loop.time()
            if len(self.cluster.refusing) < self.settings.containers:
                refused_since_s = now_s
            if now_s > ends_s or now_s > refused_since_s + refusal_time_s:
                task.cancel()
                self._judge_standstill(what)
                return False
            await asyncio.wait([task], timeout=5.0)
        task.result()
        return True

    def _judge_standstill(self, what: str) -> None:
        refusing = self.cluster.refusing
        if refusing and self.tier1.losses:
            self.note(f"{what}: {len(refusing)} containers refuse, as they must: {next(iter(refusing.values()))}")
            return
        last = {attempt.container_id: repr(attempt.error) for attempt in self.cluster.attempts if attempt.error}
        self.history.violated("offline", f"{what}: no end in time after everything was healed: {last}")


def simulate(settings: Settings, *, in_detail: bool = False) -> Outcome:
    """Run one seed. ``in_detail``: the trace has every call of a client, and what the product logs."""
    loop = VirtualLoop()  # it has what the product asks of a loop
    trace = Trace(loop.time, in_detail=in_detail)
    with repeatable(settings.seed, trace.note if in_detail else None), in_force(settings.limits), silent_destructors():
        outcome = _run(Simulation(settings, loop, trace), loop)
        loop.forget()
    return outcome


def _run(run: Simulation, loop: VirtualLoop) -> Outcome:
    settings = run.settings
    main = loop.create_task(run.run())
    run.history.on_enough = main.cancel
    try:
        loop.run_until_complete(main)
    except Stuck as error:
        run.history.violated("offline", str(error))
    except asyncio.CancelledError:
        run.note("enough")
    finally:
        run.crash_points.disarm()
        loop.close()
    for context in loop.unhandled:
        if "callback" in context.get("message", ""):
            run.history.violated("broken", f"{context['message']}: {context.get('exception')!r}")
    for command in dict.fromkeys(run.tier1.unknown_commands):
        run.history.violated("broken", f"the simulated Redis does not know {command}")
    return Outcome(
        settings.seed,
        settings.family,
        run.history.violations,
        run.history.acked_events,
        run.history.checked_bytes,
        bool(run.cluster.refusing),
        run.crash_points.reached,
        run.crash_points.crashed,
        run.trace.lines,
        loop.callbacks,
    )
