"""Gives Python's cyclic garbage collector other thresholds for a while."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def thresholds_of_collector(youngest: int, middle: int, oldest: int) -> Iterator[None]:
    """As ``gc.set_threshold``, until the block ends. What was made before counts no more."""
    before = gc.get_threshold()
    gc.set_threshold(youngest, middle, oldest)
    gc.collect()
    try:
        yield
    finally:
        gc.set_threshold(*before)
