"""Finds errors that keep themselves alive: a frame in their traceback holds them.

Only the cyclic garbage collector frees such an error, and with it everything that those frames hold: requests,
buffers, tasks. A store's collector seldom looks, so its paths that clients or Tier 2 can make fail have none.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PRODUCT: Final = ("segment_service/", "pravega_common/", "pravega_streams/")


@contextmanager
def no_held_errors() -> Iterator[None]:
    """Fail if errors that ended inside, and passed through the product's code, wait for the collector."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
        gc.enable()
        found = [one for one in gc.garbage if isinstance(one, BaseException)]
        gc.garbage.clear()
    texts = [_described(error) for error in found]
    found.clear()
    held = [text for text in texts if any(folder in text for folder in PRODUCT)]
    assert not held, f"{len(held)} errors hold themselves, such as this one:\n{held[0]}"


def _described(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
