"""Keeps gRPC from ending the processes that a program starts."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "GRPC_ENABLE_FORK_SUPPORT"


def keep_grpc_out_of_forks() -> None:
    """Switches gRPC's handlers of forks off in this process and those it starts, unless the environment says otherwise.

    To be called before gRPC's first channel or server. From 1.80 on the handlers start a thread in each forked child,
    which aborts the child where its descriptors are closed before it runs another program: one ``Popen`` with a
    ``preexec_fn`` in a hundred, such as PySpark's start of its JVM (https://github.com/grpc/grpc/issues/43055).
    Without them a child that runs no other program cannot use gRPC, so this is for programs of ours, which have no such
    children, and not for libraries that others import.
    """
    os.environ.setdefault(VARIABLE, "0")
