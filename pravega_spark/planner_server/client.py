"""Hands a planner to the server of its session, or starts it as a process of its own.

``pravega-spark-python`` runs this file in place of a planner of a streaming query (``python -I -S``), and Spark waits
for it. So it imports nothing that is written in Python: ``typing``, ``socket``, ``signal`` or ``hashlib`` alone take as
long as an empty Python. Until the server's planner is there and waits for the word to begin, everything that is not as
expected leads to a process of its own; behind that word there is no second start.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has no stubs of it.
import _socket
import fcntl
import os
import select
import stat
import sys
import time
from _blake2 import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final, NoReturn

PROTOCOL: Final = b"pravega-planner-1"
"""Begins every request; a server of another version refuses it."""
SERVER_MODULE: Final = "pravega_spark.planner_server.server"
PER_PROCESS: Final = frozenset(
    {b"PYTHON_WORKER_FACTORY_PORT", b"PYTHON_WORKER_FACTORY_SECRET", b"PYTHON_WORKER_FACTORY_SOCK_PATH"}
)
"""Variables with another value for each planner; all others must be those that the server was started with."""
HELLO: Final = b"H"
READY: Final = b"R"
BEGIN: Final = b"B"
ENDED: Final = b"E"
start_max_s: Final = 0.2
"""A planner of a server is ready after that time, or one is started without it."""
WAIT: Final = b"PRAVEGA_PLANNER_SERVER_WAIT_MS"
"""Names another time, for machines that are busy: a planner that is started without the server costs them more."""
wait_max_ms: Final = 60_000
"""The longest time that it may name; with a longer one planners start without a server."""
retry_s: Final = 60.0
"""A server that did not come up is not tried again for that time."""
servers_max: Final = 4
"""Servers of a session: each has about 100 MB. Planners with yet another environment are started without one."""
status_max_s: Final = 1.0
"""The server tells the exit code of a planner that has ended within that time."""
least_wait_s: Final = 0.001
key_bytes: Final = 32
SOCKET: Final = b".socket"
LOCK: Final = b".lock"
socket_path_max_bytes: Final = 107
"""A Unix socket's address has 108 bytes on Linux, the last of them a zero."""
JVM: Final = b"java"
_signals_per_read_max: Final = 64
_FORWARDED: Final = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2)
_STATUS: Final = (
    b"Umask Uid Gid Groups SigBlk SigIgn CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Cpus_allowed "
    b"Mems_allowed"
).split()
"""Lines of ``/proc/self/status`` (proc(5)) that a process inherits and that change what it does or may do."""


class NotServedError(Exception):
    """Says that a planner cannot have a server, and is started without one."""


def hand_over(python: str, arguments: Sequence[str]) -> NoReturn:
    """Become the planner, or what stands for the one that a server has."""
    if _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # It must not interrupt what follows half-way.
    environment: Mapping[bytes, bytes] = os.environb
    try:
        environment = given_environment()
        planner = _served(python, arguments, environment)
        if planner is not None:
            _forward_signals(planner.process)
            planner.connection.sendall(BEGIN)
    except Exception:
        # Without a server a query starts as it did before there was one: a planner that got no word ends by itself.
        os.execvpe(python, [python, *arguments], environment)
    if planner is None:
        os.execvpe(python, [python, *arguments], environment)
    try:
        follow(planner)
    finally:
        os._exit(1)


def _served(python: str, arguments: Sequence[str], environment: Mapping[bytes, bytes]) -> Ready | None:
    """A planner that is ready; ``None`` without a server, which is then started for those that come."""
    require_plain_descriptors()
    jvm = os.getppid()
    session = session_of(jvm)
    folder = own_folder(environment.get(b"TMPDIR") or b"/tmp")
    key = own_key(folder)
    session_name = blake2b(session, key=key, digest_size=8).hexdigest()
    digest = blake2b(inherited(python, arguments, environment, session), key=key, digest_size=16).hexdigest()
    path = folder + f"/{session_name}-{digest}".encode()
    if len(path) + len(SOCKET) > socket_path_max_bytes:
        raise NotServedError
    planner = ask(path, arguments, environment)
    if planner is None:
        start_server(path, session_name, python, [str(jvm), session.rpartition(b" ")[2].decode()], environment)
    return planner


def given_environment() -> dict[bytes, bytes]:
    """The environment that this process was started with: Python may have added to its own (PEP 538)."""
    with open("/proc/self/environ", "rb") as file:
        entries = [entry.partition(b"=") for entry in file.read().split(b"\0") if entry]
    found = {name: value for name, _, value in entries}
    if len(found) != len(entries) or not all(equals for _, equals, _ in entries):
        raise NotServedError  # Names twice, or without a value: a server could not repeat it.
    return found


def require_plain_descriptors() -> None:
    """A planner gets its three standard streams, no terminal among them, and inherits no other descriptor."""
    others = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    if any(map(_is_inherited, others)) or any(map(os.isatty, range(3))):
        raise NotServedError


def _is_inherited(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # That of the list itself.
        return False


def session_of(jvm: int) -> bytes:
    """Process id and start time of the JVM that started this process: no other process ever has both."""
    with open(f"/proc/{jvm}/comm", "rb") as file:
        if file.read().strip() != JVM:
            raise NotServedError  # A program between Spark and this one, which ends with this planner.
    return b"%d %s" % (jvm, start_time(jvm))


def start_time(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19]


def own_folder(parent: bytes) -> bytes:
    """A folder for sockets that no other user can enter."""
    path = parent.rstrip(b"/") + b"/pravega-spark-planners-%d" % os.geteuid()
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    require_own_folder(path)
    return path


def require_own_folder(path: bytes) -> None:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise NotServedError


def own_key(folder: bytes) -> bytes:
    """Keeps those from guessing values of variables who see names of sockets (``/proc/net/unix``)."""
    path = folder + b"/key"
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        pass
    else:
        os.write(made, os.urandom(key_bytes))
        os.close(made)
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    key = os.read(opened, key_bytes)
    os.close(opened)
    if len(key) != key_bytes:
        raise NotServedError  # It is being written.
    return key


def inherited(python: str, arguments: Sequence[str], environment: Mapping[bytes, bytes], session: bytes) -> bytes:
    """Lists what a planner inherits or is given, without its standard streams and the variables of ``PER_PROCESS``."""
    parts = [PROTOCOL, session, os.fsencode(python), *map(os.fsencode, arguments), b""]
    parts += sorted(name + b"=" + value for name, value in environment.items() if name not in PER_PROCESS)
    parts += [b"", os.getcwdb(), b"%d %d" % (os.nice(0), os.sched_getscheduler(0))]
    parts += [_file_state(path) for path in (os.path.realpath(python), __file__, ".", "/")]
    parts += [os.fsencode(os.readlink(f"/proc/self/ns/{name}")) for name in sorted(os.listdir("/proc/self/ns"))]
    with open("/proc/self/status", "rb") as file:
        parts += [line for line in file.read().splitlines() if line.partition(b":")[0] in _STATUS]
    for name in ("limits", "cgroup", "oom_score_adj"):
        with open(f"/proc/self/{name}", "rb") as file:
            parts.append(file.read())
    return b"\0".join(b"%d:%s" % (len(part), part) for part in parts)


def _file_state(path: str) -> bytes:
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        return b"%d %d" % (found.st_dev, found.st_ino)
    return b"%d %d %d %d" % (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


class Ready:
    """A planner of a server that waits for the word to begin: its connection, and a descriptor of its process."""

    def __init__(self, connection: _socket.socket, process: int) -> None:
        self.connection = connection
        self.process = process


def wait_max_s(environment: Mapping[bytes, bytes]) -> float:
    """Returns how long both sides wait for each other: ``start_max_s``, or what ``WAIT`` names in milliseconds."""
    given = environment.get(WAIT)
    if not given:
        return start_max_s
    if not given.isdigit() or not 0 < int(given) <= wait_max_ms:
        raise NotServedError
    return int(given) / 1000


def ask(path: bytes, arguments: Sequence[str], environment: Mapping[bytes, bytes]) -> Ready | None:
    """A planner of the server at a path; ``None`` without one in time."""
    wait_s = wait_max_s(environment)
    until = time.monotonic() + wait_s
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(wait_s)
        connection.connect(path + SOCKET)
        if peer_user(connection) != os.geteuid():
            raise NotServedError
        # Streams that wait in the queue of a server that hangs would stay open as long as it does.
        if connection.recv(1) != HELLO:
            raise NotServedError
        connection.settimeout(max(until - time.monotonic(), least_wait_s))
        request = request_of(arguments, environment)
        streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
        sent = connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
        connection.settimeout(max(until - time.monotonic(), least_wait_s))
        connection.sendall(request[sent:])
        connection.settimeout(max(until - time.monotonic(), least_wait_s))
        answer, control, _, _ = connection.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        if answer != READY or len(control) != 1:
            raise NotServedError
    except (OSError, NotServedError):
        connection.close()
        return None
    return Ready(connection, int.from_bytes(control[0][2][:4], sys.byteorder))


def peer_user(connection: _socket.socket) -> int:
    """The user of the process at the other end (unix(7), ``SO_PEERCRED``: process, user, group)."""
    found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(found[4:8], sys.byteorder)


def request_of(arguments: Sequence[str], environment: Mapping[bytes, bytes]) -> bytes:
    """Four bytes of length, then version, number of arguments, arguments and variables, with zeros between them."""
    variables = [name + b"=" + value for name, value in environment.items()]
    body = b"\0".join([PROTOCOL, b"%d" % len(arguments), *map(os.fsencode, arguments), *variables])
    return len(body).to_bytes(4, "big") + body


def _forward_signals(planner: int) -> None:
    """Pass on what would end this process, if it does not ignore it."""

    def forward(number: int, _: object) -> None:
        try:
            _signal.pidfd_send_signal(planner, number)
        except ProcessLookupError:
            pass

    for number in _FORWARDED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, forward)


def follow(planner: Ready) -> NoReturn:
    """Stay until the planner has ended, and end as it did. The kernel kills it if this process goes first."""
    _wait_for_end(planner)
    planner.connection.settimeout(status_max_s)
    answer = b""
    while len(answer) < 5 and (received := planner.connection.recv(5 - len(answer))):
        answer += received
    if len(answer) < 5 or answer[:1] != ENDED:
        os.write(2, b"pravega-spark: the server that this planner came from is gone, and so is the exit code\n")
        os._exit(1)
    status = int.from_bytes(answer[1:], "big", signed=True)
    if status >= 0:
        os._exit(status)
    if -status not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    os._exit(128 - status)


def _wait_for_end(planner: Ready) -> None:
    """Wait until the planner's process has ended, or the server says so; signals are passed on meanwhile."""
    signalled, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    # A signal that comes right before ``poll`` does not interrupt it: Python would run its handler only behind it.
    _signal.set_wakeup_fd(waker)
    ended = select.poll()
    for descriptor in (planner.process, planner.connection, signalled):
        ended.register(descriptor, select.POLLIN)
    while all(descriptor == signalled for descriptor, _ in ended.poll()):
        os.read(signalled, _signals_per_read_max)


def start_server(
    path: bytes, session: str, python: str, jvm: Sequence[str], environment: Mapping[bytes, bytes]
) -> None:
    """Start a server in the background, if none is there or on its way; it outlives this process.

    It stays in the session of terminal and scheduler, so that a low priority counts beside Spark's processes
    (sched(7), autogroup). The server inherits the lock of its file, which is free again however it has ended.
    """
    lock = os.open(path + LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    found = os.fstat(lock)
    tried = found.st_size and 0 <= time.time() - found.st_mtime < retry_s
    others = (name for name in os.listdir(os.path.dirname(path)) if name.endswith(SOCKET))
    if (
        os.stat(path + LOCK).st_ino != found.st_ino
        or tried
        or sum(name.startswith(session.encode()) for name in others) >= servers_max
    ):
        return
    os.pwrite(lock, b"1", 0)
    os.utime(lock)
    started = os.fork()
    if started:
        os.waitpid(started, 0)
        return
    try:
        if os.fork():
            os._exit(0)
        os.setpgid(0, 0)  # A key that interrupts a terminal's programs is for the session's client, which passes it on.
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in range(3):
            os.dup2(nothing, number)
        os.set_inheritable(lock, True)
        given = [python, "-m", SERVER_MODULE, os.fsdecode(path), str(lock), *jvm]
        os.execve(python, given, {name: value for name, value in environment.items() if name not in PER_PROCESS})
    finally:
        os._exit(1)
