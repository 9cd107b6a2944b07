"""Sends systemd the notices of a service: that it is ready, that its loop turns, that it stops.

The protocol is that of sd_notify(3): a datagram of assignments to the socket that NOTIFY_SOCKET names. WATCHDOG_USEC is
how many microseconds systemd waits for the next keep-alive before it ends the process, WATCHDOG_PID whose they are.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service

keep_alives_per_limit: Final = 4
"""Keep-alives within the time that systemd waits, so that one may be late."""


class SystemdNotices(Service):
    """Does nothing in a process that systemd did not start, or that asks for no notices.

    Keep-alives come from a task of the loop, and only while ``is_alive``: a loop that hangs sends none.
    """

    def __init__(
        self, is_alive: Callable[[], bool], clock: Clock, environment: Mapping[str, str] = os.environ, pid: int = 0
    ) -> None:
        """``pid``: of this process; 0 to ask the system."""
        super().__init__("systemd")
        self._is_alive = is_alive
        self._clock = clock
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._pause_s = _watchdog_s(environment, pid or os.getpid()) / keep_alives_per_limit

    async def on_start(self) -> None:
        if not self._address:
            return
        self._send("READY=1")
        if self._pause_s:
            self.spawn(self._keep_alive(), "keep-alive")

    async def on_stop(self) -> None:
        if self._address:
            self._send("STOPPING=1")

    async def _keep_alive(self) -> None:
        while True:
            if self._is_alive():
                self._send("WATCHDOG=1")
            await self._clock.sleep(self._pause_s)

    def _send(self, notice: str) -> None:
        """Send without waiting: a notice that cannot be sent is missed, and the next one follows."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(notice.encode(), self._address)
        except OSError as error:
            self.log.warning("systemd was not notified", notice=notice, error=repr(error))


def _address(named: str) -> str:
    """The address of a socket, of which ``@`` stands for the zero byte of the abstract ones."""
    return f"\0{named[1:]}" if named.startswith("@") else named


def _watchdog_s(environment: Mapping[str, str], pid: int) -> float:
    """The seconds that systemd waits for a keep-alive of this process; 0 if it asks for none."""
    microseconds, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(pid))
    return int(microseconds) / 1e6 if microseconds.isdecimal() and owner == str(pid) else 0.0
