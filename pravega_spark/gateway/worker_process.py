"""Sets up the Python processes that Spark starts for tasks, for planning and for commits."""

from __future__ import annotations

import gc
import os

from pravega_common.runtime.failpoints import arm_from_environment
from pravega_spark.gateway.connect import gateway_for
from pravega_spark.gateway.contract import StreamGateway
from pravega_streams.controller.address import Controller

_armed_in: set[int] = set()
"""Ids of processes: a fork of one that is armed reads its own environment."""
_frozen_in: set[int] = set()
"""Ids of processes, as above."""


def worker_gateway(controller: Controller) -> StreamGateway:
    """The gateway for code that Spark runs, in a process that is set up.

    Spark's workers have no main function of ours: the first use of a store is where our code begins in them.
    """
    arm_failpoints()
    gateway = gateway_for(controller)
    freeze_imported_objects()
    return gateway


def arm_failpoints() -> None:
    """Arm the failpoints that the environment names, once per process."""
    process = os.getpid()
    if process not in _armed_in:
        _armed_in.add(process)
        arm_from_environment()


def freeze_imported_objects() -> None:
    """Leave the objects that exist now out of every later garbage collection; only the first call does so.

    Spark collects garbage in the whole process after each task and each plan (``pyspark/daemon.py``), and Python does
    so now and then during one. Imported modules are never garbage, and looking through them costs 100 ms of CPU a time.
    """
    # ``gc.get_freeze_count`` would tell it too, by walking through all of them.
    process = os.getpid()
    if process not in _frozen_in:
        _frozen_in.add(process)
        gc.freeze()
