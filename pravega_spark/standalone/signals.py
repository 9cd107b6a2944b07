"""What a child process inherits of its parent's signals."""

from __future__ import annotations

import signal


def unblock_signals() -> None:
    """Let every signal through. A blocked signal stays blocked in each child over ``exec``: a parent that keeps SIGTERM
    away from one of its threads (a JVM does) would make children that cannot be ended in order, only killed."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
