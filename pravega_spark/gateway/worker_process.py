"""The Python processes that Spark starts: for tasks, for planning, for commits."""

from __future__ import annotations

import gc


def spare_collections() -> None:
    """Leaves what there is now out of every later search for garbage; again and again, it does so once.

    Spark looks for garbage in the whole process after each task and each plan (``pyspark/daemon.py``), and Python does
    so now and then during one. What was imported never is garbage, and looking through it costs 100 ms of CPU a time.
    """
    if not gc.get_freeze_count():
        gc.freeze()
