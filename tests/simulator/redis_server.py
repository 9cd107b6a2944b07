"""A simulated Redis server: it speaks the protocol, has a memory limit and a disk, crashes, and comes back altered.

Its disk is the list of writes since the beginning, as an append-only file that is synced before every answer. Coming
back means replaying it: all of it, without its last writes, up to an earlier point, or from an empty folder.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable
from typing import Any, Final

import hiredis

from pravega_common.services.cluster.redis_audit import aof_rewrite_min_size_bytes_min
from tests.simulator.network import Connection
from tests.simulator.redis_scripts import SCRIPTS
from tests.simulator.redis_values import (
    FREES,
    NEEDS_MEMORY,
    READS,
    CommandError,
    Database,
    Reply,
    Stream,
    as_bytes,
    commands_of,
)
from tests.support.fakes.cpo import InMemoryCPO

CONFIG: Final = {
    b"appendonly": b"yes",
    b"appendfsync": b"always",
    b"no-appendfsync-on-rewrite": b"no",
    b"maxmemory-policy": b"noeviction",
    b"auto-aof-rewrite-min-size": b"%d" % aof_rewrite_min_size_bytes_min,
}
OUT_OF_MEMORY: Final = "OOM command not allowed when used memory > 'maxmemory'."

Effect = tuple[str, tuple[Any, ...]]
"""A primitive command with its arguments, or ``cpo:`` and a method of the CPO with its arguments."""


class SimulatedRedis:
    """One server. ``make_cpo`` is given if the control plane oracle lives on it."""

    def __init__(self, address: str, make_cpo: Callable[[], InMemoryCPO], now_s: Callable[[], float] = float) -> None:
        self.address = address
        self.maxmemory = 0
        self.disk: list[tuple[float, tuple[Effect, ...]]] = []
        """One item for each request that wrote something, with its time."""
        self.unknown_commands: list[str] = []
        self.doubles_next_append = False
        self._make_cpo = make_cpo
        self._now_s = now_s
        self._connections: dict[Connection, hiredis.Reader] = {}
        self._scripts: set[str] = set()
        self._is_up = True
        self._starts = 0
        self._paused: list[tuple[Connection, bytes]] | None = None
        self._load()

    # --- life

    @property
    def accepts(self) -> bool:
        return self._is_up

    @property
    def is_full(self) -> bool:
        return 0 < self.maxmemory <= self.database.used

    @property
    def run_id(self) -> str:
        """The process that runs, as Redis names it: another for each start of each server."""
        return f"{zlib.crc32(self.address.encode()):08x}{self._starts:032x}"

    def crash(self) -> None:
        """Die; what was answered is on the disk."""
        self._is_up = False
        self._paused = None
        for connection in list(self._connections):
            connection.reset()

    def start(self, as_of_s: float = math.inf) -> int:
        """Come back with what was on the disk at that time, by default with all; returns the writes that are gone."""
        if self._is_up:
            return 0
        kept = [item for item in self.disk if item[0] <= as_of_s]
        gone, self.disk = len(self.disk) - len(kept), kept
        self._load()
        self._is_up = True
        return gone

    def has_all_of(self, other: SimulatedRedis) -> bool:
        """Whether each stream goes as far here as on the other one."""
        for key, there in other.database.values.items():
            if isinstance(there, Stream):
                here = self.database.values.get(key)
                if not isinstance(here, Stream) or here.last_id < there.last_id:
                    return False
        return True

    def before_last(self, writes: int) -> float:
        """A time before the last few writes."""
        return self.disk[-min(writes, len(self.disk))][0] - 1e-9 if self.disk else 0.0

    def pause(self) -> None:
        """Answer nothing until ``resume``."""
        if self._paused is None:
            self._paused = []

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for connection, data in waiting:
            self.received(connection, data)

    def _load(self) -> None:
        self.database = Database()
        self._commands = commands_of(self.database)
        self._scripts.clear()
        self._starts += 1
        self.cpo = self._make_cpo()
        for _, write in self.disk:
            for name, args in write:
                if name.startswith("cpo:"):
                    self._replay_cpo(name.removeprefix("cpo:"), args)
                else:
                    self._commands[name](*args)

    def _replay_cpo(self, method: str, args: tuple[Any, ...]) -> None:
        try:
            getattr(self.cpo, method)(*args).send(None)
        except StopIteration:
            return
        raise AssertionError(f"{method} of the CPO waits")

    def note_cpo_write(self, method: str, args: tuple[Any, ...]) -> None:
        """The CPO that lives here changed something."""
        self.disk.append((self._now_s(), ((f"cpo:{method}", args),)))

    # --- connections

    def received(self, connection: Connection, data: bytes) -> None:
        if not self._is_up:
            return
        if self._paused is not None:
            self._paused.append((connection, data))
            return
        reader = self._connections.get(connection)
        if reader is None:
            reader = self._connections[connection] = hiredis.Reader()
        reader.feed(data)
        answers = []
        while (request := reader.gets()) is not False:
            answers.append(self._answer(request))
        connection.answer(b"".join(answers))
        if connection.is_closed:
            del self._connections[connection]

    def disconnected(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def _answer(self, request: list[bytes]) -> bytes:
        name, args = request[0].decode().upper(), request[1:]
        effects: list[Effect] = []
        try:
            reply = encode_reply(self._execute(name, args, effects))
        except CommandError as error:
            reply = b"-%b\r\n" % str(error).encode()
        if effects:
            self.disk.append((self._now_s(), tuple(effects)))
        if name == "XADD" and self.doubles_next_append:
            self.doubles_next_append = False
            return reply + reply
        return reply

    # --- commands

    def _execute(self, name: str, args: list[bytes], effects: list[Effect]) -> Reply:
        if name in ("EVAL", "EVALSHA"):
            return self._run_script(name, args, effects)
        if name == "INFO":
            return self._info()
        if name == "CONFIG":
            wanted = args[1].lower()
            config = {**CONFIG, b"maxmemory": b"%d" % self.maxmemory}
            return [wanted, config[wanted]] if wanted in config else []
        if name == "PING":
            return b"PONG"
        return self._primitive(name, args, effects, is_full=self.is_full)

    def _primitive(self, name: str, args: list[bytes], effects: list[Effect], *, is_full: bool) -> Reply:
        command = self._commands.get(name)
        if command is None:
            self.unknown_commands.append(name)
            raise CommandError(f"ERR unknown command '{name}'")
        if is_full and name in NEEDS_MEMORY:
            raise CommandError(OUT_OF_MEMORY)
        reply = command(*args)
        if name not in READS and reply is not None and (reply != 0 or name == "HSET"):
            effects.append((name, tuple(args)))
        return reply

    def _run_script(self, name: str, args: list[bytes], effects: list[Effect]) -> Reply:
        digest = args[0].decode() if name == "EVALSHA" else hashlib.sha1(args[0]).hexdigest()
        if name == "EVALSHA" and digest not in self._scripts:
            raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
        body = SCRIPTS.get(digest)
        if body is None:
            self.unknown_commands.append(f"script {digest}")
            raise CommandError("ERR a script that the simulator does not know: add it to redis_scripts.py")
        self._scripts.add(digest)
        count = int(args[1])
        was_full = self.is_full
        is_dirty = False

        def call(command: str, *given: bytes | str | int) -> Reply:
            # As Redis does: a script that has written once goes on, whatever memory it needs.
            nonlocal is_dirty
            reply = self._primitive(command, as_bytes(given), effects, is_full=was_full and not is_dirty)
            is_dirty = is_dirty or command in NEEDS_MEMORY or command in FREES
            return reply

        return body(call, args[2 : 2 + count], args[2 + count :])

    def _info(self) -> bytes:
        lines = {
            "redis_version": "7.0.15",
            "run_id": self.run_id,
            "loading": "0",
            "role": "master",
            "cluster_enabled": "0",
            "used_memory": str(self.database.used),
            "maxmemory": str(self.maxmemory),
        }
        return "".join(f"{name}:{value}\r\n" for name, value in lines.items()).encode()


def encode_reply(reply: Reply) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(encode_reply, reply))
    return b"$%d\r\n%b\r\n" % (len(reply), reply)
