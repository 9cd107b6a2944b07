"""Sets up the Python processes that Spark starts for tasks, for planning and for commits."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Final

from pravega_common.runtime.failpoints import arm_from_environment
from pravega_common.runtime.heap import keep_freed_memory
from pravega_spark.gateway.connect import gateway_for
from pravega_spark.gateway.contract import StreamGateway
from pravega_streams.controller.address import Controller
from pravega_streams.event.write_budget import held_bytes_max

arrow_batch_bytes: Final = 64 * 1024 * 1024
"""What Spark hands to a task that writes at once, at most, by its default (``arrow.maxBytesPerBatch``)."""
heap_kept_bytes: Final = held_bytes_max + 2 * arrow_batch_bytes
"""Free memory that a worker keeps for the next blocks: as much as a task that writes may hold, beside the batch that it
comes from and the next one."""


_done: set[tuple[int, str]] = set()
"""What was done in which process: a fork of one where it was done is another."""
_modules_when_frozen: dict[int, int] = {}
"""How many modules each process had imported when their objects were frozen."""


def _once_in_a_process(set_up: Callable[[], None]) -> Callable[[], None]:
    """Have only the first call in a process do it."""

    @wraps(set_up)
    def once() -> None:
        done = (os.getpid(), set_up.__name__)
        if done not in _done:
            _done.add(done)
            set_up()

    return once


def worker_gateway(controller: Controller) -> StreamGateway:
    """The gateway for code that Spark runs, in a process that is set up.

    Spark's workers have no main function of ours: the first use of a store is where our code begins in them.
    """
    arm_failpoints()
    gateway = gateway_for(controller)
    freeze_imported_objects()
    keep_heap()
    return gateway


@_once_in_a_process
def arm_failpoints() -> None:
    """Arm the failpoints that the environment names."""
    arm_from_environment()


@_once_in_a_process
def keep_heap() -> None:
    """Keep freed memory with the process: tasks free and take batches of rows and blocks of them all the time.

    Spark ends a worker that had nothing to do for a minute.
    """
    keep_freed_memory(heap_kept_bytes, of_any_size=True)


def freeze_imported_objects() -> None:
    """Leave the objects that exist now out of every later garbage collection; again once more was imported.

    Spark collects garbage in the whole process after each task and each plan (``pyspark/daemon.py``), and Python does
    so now and then during one. Imported modules are never garbage, and looking through them costs 100 ms of CPU a time.
    Spark imports pandas only as its first task that writes ends: 40,000 objects, or 13 ms of each task.
    """
    modules = len(sys.modules)
    if _modules_when_frozen.get(os.getpid()) != modules:
        _modules_when_frozen[os.getpid()] = modules
        gc.freeze()
