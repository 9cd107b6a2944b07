"""A model of streams against the controller: any calls in any order, on two kinds of tables, by one and two instances.

After every call: the active segments cover the key space, epochs only grow, every event that was written or committed
is readable from the epochs on record, a refusal changed nothing, and no request is left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from controller_service.buckets.history_expiry import HistoryExpiry
from controller_service.errors import IllegalState, PreconditionFailed
from controller_service.store import history_floor, stream_store
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import HistoryRecord, StreamState
from controller_service.store.table_backend import TableVersionedStore
from controller_service.store.versioned_store import VersionedStore
from controller_service.transactions.lifecycle import CreatedTransaction
from pravega_common.errors import InvalidArgument, PravegaError, SegmentSealed, StreamNotFound, StreamNotSealed
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_epoch
from tests.support.fakes.table_client import InMemoryTableClient
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.transaction_world import Instance, World
from tests.support.workflow_steps import GROUP_ID, S, group_config

NAMES = ("one", "two")
settle_s = 20.0
lease_ms = 600_000
"""Longer than a history: what ends a transaction is a call or the sealing of its stream."""

examples = int(os.environ.get("CONTROLLER_MODEL_EXAMPLES", "40"))
"""Histories on each kind of store; the environment variable is for longer runs by hand."""

pytestmark = pytest.mark.usefixtures("no_log")

streams = st.sampled_from(NAMES)
counts = st.integers(1, 3)


@dataclass
class ModelStream:
    configuration: StreamConfiguration
    is_sealed: bool = False
    events: list[str] = field(default_factory=list)
    epoch: int = 0
    truncated_to: dict[int, int] = field(default_factory=dict)


@dataclass
class ModelTransaction:
    stream: str
    created: CreatedTransaction
    label: str
    renewed_s: float
    """Time at which its lease began the last time."""


class ControllerMachine(RuleBasedStateMachine):
    instances = 1

    @staticmethod
    def store() -> VersionedStore:
        return InMemoryVersionedStore()

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World(store=self.store())
        self.model: dict[str, ModelStream] = {}
        self.open: list[ModelTransaction] = []
        self.labels = 0
        self.turn = 0
        self.has_group = False
        self.controllers = self.loop.run_until_complete(self._start())

    async def _start(self) -> list[Instance]:
        await self.world.streams.create_system_tables()
        await self.world.streams.create_scope(S)
        return [await self.world.instance() for _ in range(self.instances)]

    def teardown(self) -> None:
        self.loop.run_until_complete(self.world.close())
        self.loop.close()

    def call(self, work: Callable[[Instance], Awaitable[Any]]) -> Any:
        """Make a call on the next controller, and let what it began come to its end; an error is the answer, too."""
        self.turn += 1
        one = self.controllers[self.turn % len(self.controllers)]

        async def run() -> Any:
            try:
                answer = await self.world.run(work(one), 300)
            except PravegaError as error:
                answer = error
            await self.world.clock.pass_time(settle_s)
            await self._renew(one)
            return answer

        return self.loop.run_until_complete(run())

    async def _renew(self, one: Instance) -> None:
        """Renew the leases of the open transactions, as their writers do; the model knows of no other end of them."""
        now_s = self.world.clock.monotonic_s()
        for item in self.open:
            if now_s - item.renewed_s > lease_ms / 1000 / 4:
                item.renewed_s = now_s
                await self.world.run(one.transactions.ping(S, item.stream, item.created.id, lease_ms), 300)

    def label(self) -> str:
        self.labels += 1
        return f"event-{self.labels}"

    # ---- streams -----------------------------------------------------------------------------------------------------

    @rule(stream=streams, count=counts)
    def create(self, stream: str, count: int) -> None:
        configuration = StreamConfiguration(ScalingPolicy.fixed(count))
        answer = self.call(lambda one: one.create.create(S, stream, configuration))
        assert answer is (stream not in self.model)
        self.model.setdefault(stream, ModelStream(configuration))

    @rule(stream=streams, count=counts, fixed=st.booleans(), tags=st.sampled_from([(), ("a",), ("a", "b")]))
    def update(self, stream: str, count: int, fixed: bool, tags: tuple[str, ...]) -> None:
        policy = ScalingPolicy.fixed(count) if fixed else ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 5, 2, count)
        configuration = StreamConfiguration(policy, tags=tags)
        answer = self.call(lambda one: one.update.update(self.world.new_id(), S, stream, configuration))
        if self._refused(stream, answer):
            return
        assert answer is None
        self.model[stream].configuration = configuration

    @rule(stream=streams, index=st.integers(0, 5), merges=st.booleans())
    def scale(self, stream: str, index: int, merges: bool) -> None:
        async def start(one: Instance) -> Any:
            current = await (await one.streams.open(S, stream)).current_epoch()
            chosen = current.segments[index % len(current.segments) :][: 2 if merges else 1]
            low, high = chosen[0].key_start, chosen[-1].key_end
            ranges = [(low, high)] if merges else [(low, (low + high) / 2), ((low + high) / 2, high)]
            ids = [segment.segment_id for segment in chosen]
            return await one.scale.start(S, stream, ids, ranges)

        answer = self.call(start)
        if not self._refused(stream, answer) and isinstance(answer, PravegaError):
            # Fewer segments than the policy's minimum.
            assert merges and isinstance(answer, PreconditionFailed)

    @rule(stream=streams, wrong=st.booleans())
    def truncate(self, stream: str, wrong: bool) -> None:
        async def truncate(one: Instance) -> Any:
            current = await (await one.streams.open(S, stream)).current_epoch()
            cut = dict.fromkeys(current.segment_ids[: -1 if wrong else None], 0)
            return await one.truncate.truncate(self.world.new_id(), S, stream, cut)

        answer = self.call(truncate)
        if stream in self.model and self.model[stream].is_sealed and isinstance(answer, InvalidArgument):
            return
        if self._refused(stream, answer):
            return
        if wrong:
            assert isinstance(answer, InvalidArgument)
            return
        assert answer is None
        self.model[stream].events = self.loop.run_until_complete(self._held_now(stream))

    @rule(stream=streams, commits=st.booleans())
    def outlive_an_epoch(self, stream: str, commits: bool) -> None:
        """A transaction begins; a scale, a truncation at the tail and the sweep come before its end."""
        self.create(stream=stream, count=1)
        self.begin(stream=stream)
        for _ in range(2):
            self.scale(stream=stream, index=0, merges=False)
            self.truncate(stream=stream, wrong=False)
            self.expire(stream=stream)
        mine = next((item for item in self.open if item.stream == stream), None)
        if mine is not None:
            self._end(mine, commits)
            self.expire(stream=stream)

    @rule(stream=streams)
    def expire(self, stream: str) -> None:
        """The sweep of records of epochs that a truncation left behind, with nothing kept longer than it is needed."""

        async def expire(one: Instance) -> HistoryRecord:
            await HistoryExpiry(one.streams, one.transactions.records, 0).apply(S, stream)
            return await (await one.streams.open(S, stream)).history()

        answer = self.call(expire)
        if stream not in self.model:
            assert isinstance(answer, StreamNotFound)
            return
        needed = [segment_epoch(item.created.segments[0].segment_id) for item in self.open if item.stream == stream]
        assert answer.removed_till == min([answer.oldest_epoch, *needed])

    @rule(stream=streams)
    def seal(self, stream: str) -> None:
        answer = self.call(lambda one: one.seal.seal(self.world.new_id(), S, stream))
        if stream not in self.model:
            assert isinstance(answer, StreamNotFound)
            return
        assert answer is None
        self.model[stream].is_sealed = True
        self.open = [item for item in self.open if item.stream != stream]

    @rule(stream=streams)
    def delete(self, stream: str) -> None:
        answer = self.call(lambda one: one.delete.delete(self.world.new_id(), S, stream))
        if stream not in self.model:
            assert isinstance(answer, StreamNotFound)
        elif not self.model[stream].is_sealed:
            assert isinstance(answer, StreamNotSealed)
        else:
            assert answer is None
            del self.model[stream]

    @rule(stream=streams)
    def write(self, stream: str) -> None:
        """A writer appends an event to each active segment."""
        if stream not in self.model or self.model[stream].is_sealed:
            return

        async def write() -> list[str]:
            names = (await (await self.world.streams.open(S, stream)).current_epoch()).names(S, stream)
            return [self._written(name) for name in names]

        self.model[stream].events += self.loop.run_until_complete(write())

    def _written(self, segment: str) -> str:
        label = self.label()
        self.world.segments.write(segment, label)
        return label

    # ---- transactions ------------------------------------------------------------------------------------------------

    @rule(stream=streams)
    def begin(self, stream: str) -> None:
        answer = self.call(lambda one: one.transactions.create(S, stream, lease_ms))
        if stream not in self.model:
            assert isinstance(answer, StreamNotFound)
        elif self.model[stream].is_sealed:
            assert isinstance(answer, IllegalState)
        else:
            label = self.label()
            self.world.write(S, stream, answer, label)
            self.open.append(ModelTransaction(stream, answer, label, self.world.clock.monotonic_s()))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data: st.DataObject, commits: bool) -> None:
        self._end(self.open[data.draw(st.integers(0, len(self.open) - 1))], commits)

    def _end(self, chosen: ModelTransaction, commits: bool) -> None:
        self.open.remove(chosen)
        identifier = chosen.created.id
        if commits:
            assert self.call(lambda one: one.transactions.commit(S, chosen.stream, identifier)) is True
            self.model[chosen.stream].events += [chosen.label] * len(chosen.created.segments)
        else:
            assert self.call(lambda one: one.transactions.abort(S, chosen.stream, identifier)) is True
        assert self.call(lambda one: one.transactions.commit(S, chosen.stream, identifier)) is commits

    # ---- reader groups -----------------------------------------------------------------------------------------------

    @rule(stream=streams)
    def create_group(self, stream: str) -> None:
        answer = self.call(lambda one: one.groups.create(S, "group", GROUP_ID, group_config(stream)))
        if stream in self.model or isinstance(answer, PravegaError):
            assert isinstance(answer, StreamNotFound) is (stream not in self.model)
        self.has_group = self.has_group or stream in self.model

    @rule()
    def delete_group(self) -> None:
        assert self.call(lambda one: one.groups.delete(S, "group", GROUP_ID)) is self.has_group
        self.has_group = False

    # ---- two calls at the same time ----------------------------------------------------------------------------------

    @rule(stream=streams, commits=st.booleans())
    def scale_during_a_commit(self, stream: str, commits: bool) -> None:
        """The end of a transaction and a split, on one controller each."""
        mine = next((item for item in self.open if item.stream == stream), None)
        if mine is None:
            return
        self.open.remove(mine)
        first, last = self.controllers[0], self.controllers[-1]
        ending = first.transactions.commit if commits else first.transactions.abort

        async def both() -> None:
            answers = await self.world.run(
                _both(ending(S, stream, mine.created.id), self.world.split(last, S, stream)), 300
            )
            assert answers[0] is True
            await self.world.clock.pass_time(settle_s)

        self.loop.run_until_complete(both())
        if commits:
            self.model[stream].events += [mine.label] * len(mine.created.segments)

    # ---- what always holds -------------------------------------------------------------------------------------------

    def _refused(self, stream: str, answer: Any) -> bool:
        """Whether the call was refused because the stream is missing or sealed, as it must be then."""
        if stream not in self.model:
            assert isinstance(answer, StreamNotFound)
            return True
        if self.model[stream].is_sealed:
            assert isinstance(answer, SegmentSealed)
            return True
        return False

    async def _held_now(self, stream: str) -> list[str]:
        names = (await (await self.world.streams.open(S, stream)).current_epoch()).names(S, stream)
        return [event for name in names for event in self.world.segments.events.get(name, [])]

    @invariant()
    def streams_are_as_in_the_model(self) -> None:
        self.loop.run_until_complete(self._check())

    async def _check(self) -> None:
        world = self.world
        assert await requests_left(world.store) == 0
        assert [one.transactions.blocked for one in self.controllers] == [{}] * self.instances
        await audit_streams(world.streams, world.segments)
        for stream in NAMES:
            known = self.model.get(stream)
            if known is None:
                assert await world.streams.entry(S, stream) is None
                continue
            context = await world.streams.open(S, stream)
            assert (await context.state() is StreamState.SEALED) is known.is_sealed
            assert (await context.configuration()).configuration == known.configuration
            epoch = (await context.current_epoch()).epoch
            assert epoch >= known.epoch
            known.epoch = epoch
            assert sorted(await world.readable(S, stream)) == sorted(known.events)


async def _both(*work: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*work)


class TableMachine(ControllerMachine):
    @staticmethod
    def store() -> VersionedStore:
        return TableVersionedStore(InMemoryTableClient())  # type: ignore[arg-type]


class TwoControllersMachine(ControllerMachine):
    instances = 2


class TwoControllersTableMachine(TableMachine):
    instances = 2


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs before the head are kept for slow readers only, and memory for speed: nothing else may depend on them."""
    monkeypatch.setattr(history_floor, "epochs_before_head_max", 0)
    monkeypatch.setattr(stream_store, "epochs_cached_bytes_max", 0)


def test_a_transaction_stays_open_however_much_is_done_beside_it() -> None:
    """Each call lets time pass. A rule that makes many of them outlived a lease, which the model does not know."""
    machine = ControllerMachine()
    try:
        machine.create(stream="one", count=1)
        machine.begin(stream="one")
        for _ in range(2 * lease_ms // int(1000 * settle_s)):
            machine.expire(stream="one")
        machine._end(machine.open[0], commits=True)
    finally:
        machine.teardown()


@pytest.mark.parametrize(
    "machine", [ControllerMachine, TableMachine, TwoControllersMachine, TwoControllersTableMachine]
)
def test_streams_are_as_in_the_model(machine: type[ControllerMachine]) -> None:
    checked = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(machine, settings=checked)
