"""Random histories: several runs of one query, dying controllers, lost answers, expiring leases, a scale in between.

Checked at the end, from the events that are readable: every batch up to the last committed one is there once, whole
and from one attempt of one run, in batch order, in both streams; what was answered is what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from controller_service.sets.transaction_set import MemberRecord, SetRecord, SetRecordState, Verdict
from controller_service.sets.transaction_set_service import CommitAnswer
from controller_service.transactions.records import transaction_segments
from pravega_common.errors import PravegaError, Unavailable, UnknownOutcome
from tests.support.transaction_world import Crashed, CrashSwitch, Instance, World, event_bytes

R = TypeVar("R")

S, T, U = "scope", "stream", "other"
Q, D = "query", "scope/*"
batches_wanted = 4
pytestmark = pytest.mark.timeout(600)


class SlowCrashSwitch(CrashSwitch):
    """Operations take a random number of turns, so that every interleaving has its chance; some fail without an
    effect, and of some the answer is lost."""

    fault_chance = 0.01

    def __init__(self, world: World, random: Random) -> None:
        super().__init__(random.randrange(20, 400), random.random() < 0.5)
        self._world = world
        self._random = random

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        if self._random.random() < 0.02:
            await self._world.clock.sleep(self._random.random() * 0.2)
        if self._random.random() < self.fault_chance:
            raise Unavailable("nothing was done")
        result = await super().call(work, *args, **kwargs)
        if self._random.random() < self.fault_chance:
            raise UnknownOutcome("the answer was lost")
        return result


@dataclass
class Play:
    """One random history. Controllers die by their fuses and are replaced; clients repeat calls that were lost."""

    world: World
    random: Random
    controllers: list[Instance] = field(default_factory=list)
    answers: list[tuple[str, int, CommitAnswer]] = field(default_factory=list)
    runs: int = 0
    attempts: int = 0

    async def controller(self) -> Instance:
        for index, instance in enumerate(self.controllers):
            if instance.switch.crashed:
                await instance.kill()
                self.controllers[index] = await self._started()
        while len(self.controllers) < 2:
            self.controllers.append(await self._started())
        return self.random.choice(self.controllers)

    async def _started(self) -> Instance:
        while True:
            instance = Instance(self.world, f"c{self.random.getrandbits(40)}", SlowCrashSwitch(self.world, self.random))
            self.world.instances.append(instance)
            try:
                await instance.start()
                return instance
            except (Crashed, PravegaError):
                await instance.kill()

    async def call(self, work: Callable[[Instance], Awaitable[R]]) -> R:
        """The answer of some controller; a lost one is asked for again, also when the call took effect."""
        for _ in range(200):
            instance = await self.controller()
            try:
                async with asyncio.timeout(5):
                    answer = await work(instance)
                if self.random.random() < 0.9:
                    return answer
            except Crashed:
                pass
            except (PravegaError, asyncio.CancelledError):
                if not instance.switch.crashed and (current := asyncio.current_task()) and current.cancelling():
                    raise
                await self.world.clock.sleep(0.1)
        raise TimeoutError("no answer in 200 tries")

    # ---- a driver ----------------------------------------------------------------------------------------------------

    async def driver(self) -> None:
        """Runs of the query, each after the end of the one before, until enough batches are committed."""
        while True:
            self.runs += 1
            if await self.run_query(f"r{self.runs}"):
                return
            await self.world.clock.sleep(self.random.random() * 3)

    async def run_query(self, run: str) -> bool:
        """One start of the query; False when it failed, or another one displaced it."""
        decided = await self.call(lambda one: one.sets.get(Q, D, 0))
        # The checkpoint may lack the last batch: then it is replayed.
        batch = max(0, decided.last_batch_id + self.random.choice((0, 1)))
        while batch < batches_wanted:
            verdict = await self.run_batch(run, batch)
            if verdict in (Verdict.COMMITTED, Verdict.ALREADY_COMMITTED):
                batch += 1
            elif verdict in (Verdict.FENCED, Verdict.REFUSED) or verdict is Verdict.CHECKPOINT_BEHIND_SINK:
                return False
            else:
                raise AssertionError(f"{run}, batch {batch}: {verdict}")
            if self.random.random() < 0.15:
                return False
        return True

    async def run_batch(self, run: str, batch: int) -> Verdict:
        self.attempts += 1
        attempt = self.attempts
        tasks = [(T, 0), (T, 1), (U, 2)]
        attempts_made = [self.task(run, batch, attempt, stream, partition) for stream, partition in tasks]
        if self.random.random() < 0.3:
            # An attempt of which nobody hears again.
            attempts_made.append(self.task(run, batch, attempt, T, 1, speculative=True))
        made = await asyncio.gather(*attempts_made)
        members = [member for member in made[:3] if member is not None]
        if len(members) < 3:
            decided = await self.call(lambda one: one.sets.get(Q, D, batch))
            if decided.last_batch_id < batch:
                return Verdict.REFUSED
        if self.random.random() < 0.1:
            await self.world.clock.sleep(self.random.choice((30, 700)))
        answer = await self.call(lambda one: one.sets.commit(Q, D, run, batch, members, 3, 3 * event_bytes))
        self.answers.append((f"{run}.{batch}.{attempt}", batch, answer))
        return answer.verdict

    async def task(
        self, run: str, batch: int, attempt: int, stream: str, partition: int, speculative: bool = False
    ) -> MemberRecord | None:
        """One task: begin, write, register; None if its batch or run is over."""
        created = await self.call(lambda one: one.transactions.create(S, stream, 10_000))
        label = f"{run}.{batch}.{attempt}/{partition}" + ("!" if speculative else "")
        numbers = [segment.number for segment in created.segments]
        for name in transaction_segments(S, stream, created.id, numbers):
            self.world.segments.write(name, label)
        member = MemberRecord(f"{S}/{stream}", created.id.hex, partition, 1, event_bytes)
        taken = await self.call(lambda one: one.sets.register(Q, D, run, batch, [member]))
        await self.world.clock.sleep(self.random.random() * 2)
        return member if taken.verdict is Verdict.REGISTERED else None

    async def chaos(self) -> None:
        await self.world.clock.sleep(self.random.random() * 20)
        context = await self.world.streams.open(S, T)
        # Only when no commit holds the stream: what a scale waits for.
        if (await context.state()).value == "active" and self.random.random() < 0.5:
            await self.world.scale_to_one(S, T)


def labels_of(events: list[str], batch: int) -> list[str]:
    return [event for event in events if int(event.split("/")[0].split(".")[1]) == batch]


async def expect_batches(play: Play) -> None:
    """Compare what is readable with what was answered."""
    world = play.world
    context = await world.streams.open(S, T)
    last_epoch = (await context.current_epoch()).epoch
    in_other = world.segments.stream_events(S, U)[f"{S}/{U}/0.#epoch.0"]
    by_segment = world.segments.stream_events(S, T)
    whole: dict[int, str] = {}
    for batch in range(batches_wanted):
        found = labels_of(in_other, batch)
        assert len(found) == 1, (batch, found)
        whole[batch] = found[0].removesuffix("/2")
    assert in_other == [f"{whole[batch]}/2" for batch in range(batches_wanted)]
    sequences: dict[int, list[str]] = {}
    for epoch in range(last_epoch + 1):
        for segment in (await context.epoch(epoch)).segments:
            name = segment.name(S, T)
            if segment.creation_epoch == epoch:
                sequences.setdefault(segment.number, []).extend(by_segment.get(name, []))
    for number, events in sequences.items():
        expected = [f"{whole[batch]}/{partition}" for batch in range(batches_wanted) for partition in (0, 1)]
        # Before or after the scale: a part of all batches, in order, and together every one.
        assert events == [event for event in expected if event in events], (number, events)
    held = [event for events in sequences.values() for event in events]
    for batch, attempt in whole.items():
        for partition in (0, 1):
            assert 1 <= held.count(f"{attempt}/{partition}") <= 2, (batch, held)
    assert {event.split("/")[0] for event in held} == set(whole.values())
    for attempt, batch, answer in play.answers:
        if answer.verdict is Verdict.COMMITTED:
            assert whole[batch] == attempt
    assert world.segments.transaction_segments() == []


async def history(seed: int) -> None:
    random = Random(seed)
    world = World(seed)
    await world.create_stream(S, T)
    await world.create_stream(S, U, 1)
    play = Play(world, random)
    drivers = [play.driver() for _ in range(random.choice((1, 1, 2)))]
    await world.run(_all(*drivers, play.chaos()), 1_000_000)
    for instance in play.controllers:
        await world.run(instance.kill())
    final = await world.instance()
    await world.clock.pass_time(2_000)
    decided = (await world.run(final.sets.get(Q, D, batches_wanted - 1))).decision
    assert isinstance(decided, SetRecord) and decided.state is SetRecordState.FINISHED
    await expect_batches(play)
    await world.close()


async def _all(*work: Awaitable[None]) -> None:
    await asyncio.gather(*work)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
@example(0)
def test_histories_of_a_sink(seed: int) -> None:
    asyncio.run(history(seed))
