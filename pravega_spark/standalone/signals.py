"""Unblocks signals, so that a child process can be ended in order."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


def unblock_signals() -> None:
    """Lets every signal through.

    A blocked signal stays blocked in each child over ``exec``: a parent that keeps SIGTERM away from one of its threads
    (a JVM does) would make children that cannot be ended in order, only killed.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextlib.contextmanager
def signals_unblocked() -> Iterator[None]:
    """Lets every signal through to the children that are started inside, by the mask of the thread that starts them.

    For parents that use gRPC: code of ours between fork and exec makes Python fork the whole process, and gRPC's
    threads, which restart in the fork, may keep it from ever getting to the exec.
    """
    before = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
