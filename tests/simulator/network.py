"""Carries bytes and calls between stores, servers and clients: late, out of touch, or not at all."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from tests.simulator.processes import Process, current_process
from tests.simulator.virtual_loop import Factory, VirtualLoop

T = TypeVar("T")

look_s: Final = 0.05
"""Between two looks at whether a server is reachable."""


class Listener(Protocol):
    """A server that connections are made to."""

    @property
    def accepts(self) -> bool: ...

    def received(self, connection: Connection, data: bytes) -> None: ...

    def disconnected(self, connection: Connection) -> None: ...


class Pipe:
    """One direction of a connection: what is sent arrives later, in order, or never."""

    __slots__ = ("_last_due_s", "_network", "_owner", "_receive", "is_cut")

    def __init__(self, network: Network, owner: Process | None, receive: Callable[[Any], None]) -> None:
        self.is_cut = False
        """What is on its way, or sent from now on, is lost."""
        self._network = network
        self._owner = owner
        self._receive = receive
        self._last_due_s = 0.0

    def send(self, item: object) -> None:
        due_s = self._network.arrival_s()
        if due_s > self._last_due_s:
            self._last_due_s = due_s
        self._network.at(self._last_due_s, self._deliver, item)

    def _deliver(self, item: object) -> None:
        if self.is_cut:
            return
        held_until_s = self._network.held_until_s(self._owner)
        if held_until_s <= self._network.loop.time():
            self._receive(item)
            return
        self._last_due_s = max(self._last_due_s, held_until_s)
        self._network.at(held_until_s, self._deliver, item)


class RemoteCall(Generic[T]):
    """A request and its answer, each on its own way. The work is done in the world, even if its caller dies.

    It makes neither a task nor a timer where it can do without: nearly all of them are answered at once.
    """

    __slots__ = ("_context", "_ends_s", "_has_limit", "_late", "_network", "_owner", "_work", "answer")

    def __init__(
        self,
        network: Network,
        work: Coroutine[Any, Any, T],
        time_max_s: float,
        late: Callable[[], Exception],
    ) -> None:
        self.answer: asyncio.Future[T] = network.loop.create_future()
        self._network = network
        self._owner = current_process()
        self._context = contextvars.copy_context()
        self._work = work
        self._ends_s = network.loop.time() + time_max_s
        self._late = late
        self._has_limit = False
        if self._owner is None or self._owner.is_alive:
            network.at(network.arrival_s(), self._begin)

    def _begin(self) -> None:
        if self._network.is_held(self._owner, self._begin):
            self._limit()
        else:
            self._go_on()

    def _go_on(self, _: object = None) -> None:
        """Do the work up to its next wait."""
        network = self._network
        try:
            wait = self._work.send(None)
        except StopIteration as end:
            self._send_back(self._succeeded, end.value)
        except BaseException as error:  # also a broken invariant: the caller must hear of it
            self._send_back(self._failed, error)
        else:
            self._limit()
            if wait is None:  # a turn of the loop
                network.loop.call_soon(self._go_on, context=network.world)
            else:
                wait._asyncio_future_blocking = False  # as a task says that it has begun to wait
                wait.add_done_callback(self._go_on, context=network.world)

    def _send_back(self, deliver: Callable[[Any], None], what: object) -> None:
        arrives_s = self._network.arrival_s()
        if arrives_s > self._ends_s:
            self._limit()
        self._network.at(arrives_s, deliver, what)

    def _succeeded(self, result: T) -> None:
        if self._network.is_held(self._owner, self._succeeded, result):
            self._limit()
        elif not self.answer.done():
            self.answer.set_result(result)

    def _failed(self, error: BaseException) -> None:
        if self._network.is_held(self._owner, self._failed, error):
            self._limit()
        elif not self.answer.done():
            self.answer.set_exception(error)

    def _limit(self) -> None:
        """End the wait of the caller in time."""
        if not self._has_limit and self._ends_s < math.inf:
            self._has_limit = True
            self._network.loop.call_at(self._ends_s, self._give_up, context=self._context)

    def _give_up(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(self._late())


class Connection(asyncio.Transport):
    """A connection of a store to a server; it is the client's transport too."""

    def __init__(self, network: Network, server: Listener, protocol: asyncio.Protocol, owner: Process | None) -> None:
        super().__init__()
        self.owner = owner
        self.server_state: Any = None
        self.is_closed = False
        self._network = network
        self._server = server
        self._protocol = protocol
        self._context = owner.context.copy() if owner is not None else contextvars.Context()
        self._requests = Pipe(network, owner, lambda data: server.received(self, data))
        self._answers = Pipe(network, owner, self._answered)

    # --- the client's side

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if not self.is_closed and (self.owner is None or self.owner.is_alive):
            self._requests.send(b"".join(list_of_data))

    def abort(self) -> None:
        """Close; what was sent before may still arrive at the server."""
        self._shut(None, tells_client=False)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self.is_closed

    def _answered(self, data: bytes) -> None:
        if not self.is_closed:
            if self.owner is None:
                self._context.run(self._protocol.data_received, data)
            else:
                self.owner.run(self._protocol.data_received, data)

    # --- the server's side, and faults

    def answer(self, data: bytes) -> None:
        self._answers.send(data)

    def silence(self) -> None:
        """The client hears nothing any more, and cannot know why."""
        self._answers.is_cut = True

    def cut_off(self) -> None:
        """Nothing arrives any more, in either direction, and neither end can know why."""
        self._answers.is_cut = self._requests.is_cut = True

    @property
    def server(self) -> Listener:
        return self._server

    def reset(self) -> None:
        """Break the connection; both ends notice."""
        self._shut(ConnectionResetError("reset by peer"), tells_client=True)

    def _shut(self, error: Exception | None, *, tells_client: bool) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._answers.is_cut = True
        self._requests.is_cut = not self._network.arrives_late()
        self._network.connections.pop(self, None)
        self._server.disconnected(self)
        if tells_client:
            self._in_client(self._protocol.connection_lost, error)

    def _in_client(self, callback: Callable[..., object], *args: object) -> None:
        self._network.loop.call_soon(callback, *args, context=self._context.copy())


class Network:
    """Every random choice is drawn from ``rng``, so a seed has one course of events."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.servers: dict[str, Listener] = {}
        self.connections: dict[Connection, None] = {}
        self.delay_max_s = 0.002
        self.unreachable: set[str] = set()
        """Addresses of servers that nothing gets to."""
        self.lost_answers = 0.0
        """Share of the calls to the CPO whose answer is lost, done or not."""
        self.world = contextvars.Context()
        """The context of what runs outside of every process."""
        self._rng = rng
        self._held_until_s: dict[Process, float] = {}

    def delay_s(self) -> float:
        return 0.0001 + self._rng.random() * self.delay_max_s

    def arrival_s(self) -> float:
        """The time at which what is sent now arrives."""
        return self.loop.time() + self.delay_s()

    def arrives_late(self) -> bool:
        """Whether what was on its way when its sender hung up still arrives."""
        return self._rng.random() < 0.7

    def hold(self, process: Process, duration_s: float) -> None:
        """Hold back what goes from or to this process for a while; then all of it arrives."""
        self._held_until_s[process] = self.loop.time() + duration_s

    def held_until_s(self, process: Process | None) -> float:
        return 0.0 if process is None else self._held_until_s.get(process, 0.0)

    def is_held(self, process: Process | None, deliver: Callable[..., object], *args: object) -> bool:
        """Whether deliveries from and to the process are held back; if so this one is made at the end of that."""
        held_until_s = self.held_until_s(process)
        if held_until_s <= self.loop.time():
            return False
        self.at(held_until_s, deliver, *args)
        return True

    def heal(self) -> None:
        self.delay_max_s = 0.002
        self.lost_answers = 0.0
        self._held_until_s.clear()
        self.unreachable.clear()

    def cut_off(self, address: str) -> None:
        """Let nothing get to a server, or back, until its address is reachable again."""
        self.unreachable.add(address)
        for connection in self.connections:
            if connection.server is self.servers[address]:
                connection.cut_off()

    def at(self, when_s: float, callback: Callable[..., object], *args: object) -> None:
        """Run a callback in the world, outside of every process."""
        self.loop.call_at(when_s, callback, *args, context=self.world)

    # --- connections

    async def connect(self, factory: Factory, address: str) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        owner = current_process()
        await asyncio.sleep(self.delay_s())
        await asyncio.sleep(max(0.0, self.held_until_s(owner) - self.loop.time()))
        while address in self.unreachable:  # noqa: ASYNC110 - the fault that ends it knows no one who waits
            await asyncio.sleep(look_s)
        server = self.servers.get(address)
        if server is None or not server.accepts:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        protocol = factory()
        assert isinstance(protocol, asyncio.Protocol)
        connection = Connection(self, server, protocol, owner)
        self.connections[connection] = None
        if owner is not None:
            owner.on_death(connection.reset)
        protocol.connection_made(connection)
        return connection, protocol

    # --- calls

    def call(
        self,
        work: Coroutine[Any, Any, T],
        time_max_s: float = math.inf,
        late: Callable[[], Exception] = TimeoutError,
    ) -> asyncio.Future[T]:
        """Do ``work`` in the world, after a delay there and before one back. It is done even if its caller dies.

        ``late`` makes the error of a call that has no answer after ``time_max_s``.
        """
        return RemoteCall(self, work, time_max_s, late).answer
