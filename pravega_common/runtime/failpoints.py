"""Names points between durable steps at which tests and drills can stop, delay or fail a process.

A failpoint costs one dictionary look-up while nothing is armed. Arm from a test with ``arm``, or in a child
process with ``PRAVEGA_FAILPOINTS="name=action,name=action"`` and ``PRAVEGA_ALLOW_FAILPOINTS=1`` (one without the other
is refused, so that a variable that was left behind kills no store), actions: ``kill`` (SIGKILL to the own process),
``kill:N`` (at the N-th hit), ``stop`` and ``stop:N`` (SIGSTOP, so that a test can look around and kill more than this
process), ``error``, ``error:N``, ``delay:SECONDS``, and ``take:PATH``: a drill decides at each hit, by files
``PATH.1``, ``PATH.2``, … whose content is ``pass``, ``kill``, ``stop``, ``error`` or ``hold`` (only the thread or the
coroutine that came there waits, until the file is gone). Each hit takes the first one that is left, whatever process
it is in, and renames it to ``PATH.N.taken.PID``; without one nothing happens. Files ``PATH@SCOPE.N`` are for the hits
of one scope, so that one of many queries can be hurt. Names are listed in ``KNOWN``: the list of names is the list of
crash tests.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from pravega_common.errors import ConfigurationError, FailedError
from pravega_common.invariants import check

ENVIRONMENT_VARIABLE = "PRAVEGA_FAILPOINTS"
PERMISSION_VARIABLE = "PRAVEGA_ALLOW_FAILPOINTS"
look_s = 0.02
"""Between two looks at the file that holds a hit."""

KNOWN: set[str] = set()
_armed: dict[str, Callable[[str], Path | None]] = {}
"""Each takes the owner of the hit, and returns the file that holds the hit, if one does."""


class FailpointError(FailedError):
    """The error that an armed failpoint raises."""


def register(name: str) -> str:
    """Declare a failpoint at import time and return its name."""
    KNOWN.add(name)
    return name


def failpoint(name: str, whose: str = "") -> None:
    """Do what was armed for this name; nothing by default. ``whose``: the ``scope`` or ``scope/stream`` it is about."""
    if _armed:
        held = _hit(name, whose)
        while held is not None and held.exists():
            time.sleep(look_s)


async def failpoint_async(name: str, whose: str = "") -> None:
    """The same in a coroutine: while it is held, others go on."""
    if _armed:
        import asyncio  # 15 ms of CPU, for processes that have no event loop.

        held = _hit(name, whose)
        while held is not None and held.exists():  # noqa: ASYNC110 - another process takes the file away
            await asyncio.sleep(look_s)


def _hit(name: str, whose: str) -> Path | None:
    action = _armed.get(name)
    return None if action is None else action(whose)


def arm(name: str, action: Callable[[], None]) -> None:
    """Arm a failpoint of this process with a callable."""

    def run(whose: str) -> None:
        action()

    _armed[name] = run


def disarm_all() -> None:
    _armed.clear()


def raise_on_hit(name: str, hit: int = 1) -> Callable[[], None]:
    """An action that raises ``FailpointError`` at the given hit, once."""
    return _on_hit(hit, lambda: _raise(name))


def _raise(name: str) -> None:
    raise FailpointError(f"failpoint {name}")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _on_hit(hit: int, action: Callable[[], None]) -> Callable[[], None]:
    count = 0

    def run() -> None:
        nonlocal count
        count += 1
        if count == hit:
            action()

    return run


def _take(path: Path, name: str) -> Callable[[str], Path | None]:
    def run(whose: str) -> Path | None:
        scope = whose.partition("/")[0]
        for prefix in (f"{path.name}@{scope}", path.name):
            waiting = [file for file in path.parent.glob(f"{prefix}.*") if ".taken." not in file.name]
            for file in sorted(waiting, key=lambda item: int(item.name.rpartition(".")[2])):
                taken = file.with_name(f"{file.name}.taken.{os.getpid()}")
                try:
                    file.rename(taken)
                except FileNotFoundError:
                    continue
                return _obey(taken.read_text(), name, taken)
        return None

    return run


def _obey(action: str, name: str, file: Path) -> Path | None:
    check(action in ("pass", "kill", "stop", "error", "hold"), "unknown failpoint action", name=name, action=action)
    if action == "hold":
        return file
    if action == "kill":
        _kill()
    elif action == "stop":
        _stop()
    elif action == "error":
        _raise(name)
    return None


def environment_of(armed: str) -> dict[str, str]:
    """Returns the variables that arm these failpoints in a child process; they allow it too."""
    return {ENVIRONMENT_VARIABLE: armed, PERMISSION_VARIABLE: "1"}


def arm_from_environment() -> None:
    """Arm what the environment names; called once by every service's main.

    ``ConfigurationError`` without the permission, which is a variable of its own.
    """
    armed = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if not armed:
        return
    if os.environ.get(PERMISSION_VARIABLE) != "1":
        raise ConfigurationError(
            f"{ENVIRONMENT_VARIABLE} is set: it makes this process fail on purpose. Unset it; "
            f"for a test or a drill also set {PERMISSION_VARIABLE}=1"
        )
    logging.getLogger(__name__).warning("FAILPOINTS ARE ARMED, this process fails on purpose: %s", armed)
    arm_text(armed)


def arm_text(text: str) -> None:
    """Arm ``name=action,name=action``."""
    for item in filter(None, text.split(",")):
        name, _, spec = item.partition("=")
        kind, _, argument = spec.partition(":")
        check(kind in ("kill", "stop", "error", "delay", "take"), "unknown failpoint action", name=name, action=spec)
        if kind == "delay":
            delay_s = float(argument)
            arm(name, lambda delay_s=delay_s: time.sleep(delay_s))  # type: ignore[misc]
        elif kind == "take":
            _armed[name] = _take(Path(argument), name)
        elif kind in ("kill", "stop"):
            arm(name, _on_hit(int(argument or 1), _kill if kind == "kill" else _stop))
        else:
            arm(name, raise_on_hit(name, int(argument or 1)))
