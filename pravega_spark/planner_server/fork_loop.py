"""Waits for clients on a server's socket, forks a process for each, and tells each client how its process ended."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import select
import signal
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pravega_spark.planner_server.client import ENDED, LOCK, SOCKET, peer_user, retry_s
from pravega_spark.planner_server.code_stamp import CodeStamp

idle_max_s: Final = 600.0
"""A server without planners ends after that time: it holds about 100 MB."""
planners_max: Final = 64
"""Planners at a time; further queries start theirs without the server."""
linger_max_s: Final = 5.0
"""Planners whose session has ended may go on for that time, since they notice it by themselves."""
backlog: Final = 16
EARLY: Final = b".early"
swept_files_max: Final = 64
FORKS_WELL: Final = "jemalloc_bg_thd"
"""The thread of Arrow's allocator, which stops at forks and begins again behind them (``pthread_atfork``)."""


class Planner:
    """A process that was forked for a client."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.connection = connection
        self.process = os.pidfd_open(pid)

    def kill(self) -> None:
        signal.pidfd_send_signal(self.process, signal.SIGKILL)

    def close(self) -> None:
        os.close(self.process)
        self.connection.close()


class ForkLoop:
    """Serves until the session has ended, nobody has come for a time, or code on disk has changed.

    ``lock`` is the descriptor of the locked file beside the socket, ``jvm`` one of the session's process (pidfd).
    """

    def __init__(
        self,
        path: bytes,
        lock: int,
        jvm: int,
        code: CodeStamp,
        *,
        clock: Callable[[], float] = time.monotonic,
        idle_s: float = idle_max_s,
        linger_s: float = linger_max_s,
        limit: int = planners_max,
    ) -> None:
        self._path = path
        self._lock = lock
        self._jvm = jvm
        self._code = code
        self._clock = clock
        self._idle_s = idle_s
        self._linger_s = linger_s
        self._limit = limit
        self._listener: socket.socket | None = None
        self._planners: dict[int, Planner] = {}
        """By the descriptor of the process."""
        self._by_connection: dict[int, Planner] = {}
        self._poll = select.poll()
        self._until: float | None = None

    def run(self) -> socket.socket | None:
        """In a forked process, its client's connection; in the server, ``None`` when it has ended."""
        _forget_pool_of_threads()
        gc.collect()
        gc.freeze()  # So that a planner's collections leave the pages of this process shared.
        self._sweep()
        self._listener = self._listen()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._jvm, select.POLLIN)
        self._until = self._clock() + self._idle_s
        while self._is_serving() or self._planners:
            events = self._poll.poll(self._wait_ms())
            if not events:
                self._time_is_up()
            # A new connection comes last: it may have the number of one that was closed in this round.
            for descriptor in sorted((number for number, _ in events), key=self._is_listener):
                connection = self._handle(descriptor)
                if connection is not None:
                    return connection
        return None

    def _wait_ms(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - self._clock()) * 1000 + 1

    def _is_serving(self) -> bool:
        return self._listener is not None

    def _is_listener(self, descriptor: int) -> bool:
        return self._listener is not None and descriptor == self._listener.fileno()

    def _handle(self, descriptor: int) -> socket.socket | None:
        if descriptor == self._jvm:
            self._poll.unregister(self._jvm)
            self._retire()
            self._until = self._clock() + self._linger_s
        elif self._listener is not None and self._is_listener(descriptor):
            return self._accept(self._listener)
        elif descriptor in self._planners:
            self._ended(self._planners[descriptor])
        elif descriptor in self._by_connection:  # Its client has gone; the kernel has killed it if it had begun.
            self._poll.unregister(descriptor)
            self._by_connection.pop(descriptor).kill()
        return None

    def _time_is_up(self) -> None:
        """Nobody came for a time, or planners outlived their session."""
        self._until = None
        self._retire()
        for planner in self._planners.values():
            planner.kill()

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        connection, _ = listener.accept()
        if self._code.changed() or not _forks_well():
            self._retire()
        elif peer_user(connection) == os.geteuid() and len(self._planners) < self._limit:
            return self._fork(connection)
        connection.close()
        return None

    def _fork(self, connection: socket.socket) -> socket.socket | None:
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads, and counts the one that is known to stand a fork.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError:  # No more processes: the client starts its planner, or fails as it would without a server.
            connection.close()
            return None
        if not pid:
            self._leave()
            return connection
        self._add(Planner(pid, connection))
        return None

    def _add(self, planner: Planner) -> None:
        self._until = None
        self._planners[planner.process] = planner
        self._by_connection[planner.connection.fileno()] = planner
        self._poll.register(planner.process, select.POLLIN)
        self._poll.register(planner.connection, select.POLLRDHUP)

    def _ended(self, planner: Planner) -> None:
        _, status = os.waitpid(planner.pid, 0)
        answer = ENDED + os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True)
        try:
            planner.connection.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:  # The client has gone first.
            pass
        del self._planners[planner.process]
        self._poll.unregister(planner.process)
        if self._by_connection.pop(planner.connection.fileno(), None) is not None:
            self._poll.unregister(planner.connection)
        planner.close()
        if not self._planners and self._listener is not None:
            self._until = self._clock() + self._idle_s

    def _leave(self) -> None:
        """In a forked process: close what is the server's."""
        if self._listener is not None:
            self._listener.close()
        os.close(self._jvm)
        os.close(self._lock)
        for planner in self._planners.values():
            planner.close()

    def _listen(self) -> socket.socket:
        """The socket is there under its name once it takes connections."""
        early = self._path + EARLY
        Path(os.fsdecode(early)).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(early)
        listener.listen(backlog)
        os.rename(early, self._path + SOCKET)
        return listener

    def _retire(self) -> None:
        """Take no more clients; another server may begin at once."""
        if self._listener is None:
            return
        self._poll.unregister(self._listener)
        self._listener.close()
        self._listener = None
        for ending in (SOCKET, LOCK):
            Path(os.fsdecode(self._path + ending)).unlink(missing_ok=True)
        os.close(self._lock)

    def _sweep(self) -> None:
        """Remove what servers left that were killed: their locks are free. A failed start is remembered a while."""
        folder, own = os.path.split(self._path + LOCK)
        with os.scandir(folder) as entries:
            found = [entry for entry in itertools.islice(entries, swept_files_max) if entry.name != own]
        for entry in found:
            if entry.name.endswith(LOCK):
                _remove_if_free(entry.path)


def _remove_if_free(lock: bytes) -> None:
    try:
        opened = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(opened).st_mtime < retry_s:
            return
        Path(os.fsdecode(lock.removesuffix(LOCK) + SOCKET)).unlink(missing_ok=True)
        Path(os.fsdecode(lock)).unlink(missing_ok=True)
    except BlockingIOError:  # Its server is there.
        pass
    finally:
        os.close(opened)


def _forget_pool_of_threads() -> None:
    """Have OpenBLAS end its threads, as it does before a fork; it starts them again at its next use."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def _forks_well() -> bool:
    """Whether this process has no thread but its first and those that are known to stand a fork."""
    tasks = (task for task in os.listdir("/proc/self/task") if int(task) != os.getpid())
    return all(map(_stands_forks, tasks))


def _stands_forks(task: str) -> bool:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip() == FORKS_WELL
    except OSError:  # It has ended.
        return True
