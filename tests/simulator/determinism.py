"""Makes one run repeatable: seeded names, no collector in between, no output."""

from __future__ import annotations

import contextlib
import gc
import random
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final
from unittest import mock

import structlog

collections_max: Final = 4
"""Collections after a run: what a destructor let go of is garbage for the next one. Whatever is left would stay as long
as the process, for ``gc.freeze`` keeps it out of every later one."""


@contextlib.contextmanager
def repeatable(seed: int, heard: Callable[[str], None] | None) -> Iterator[None]:
    """Draw from the seed what the product draws from the machine, and collect cycles only afterwards.

    ``heard`` gets what the product logs.
    """

    def log(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        if heard is not None:
            rest = ", ".join(f"{name}={value}" for name, value in event.items() if name != "event")
            heard(f"    log: {event['event']}: {rest}")
        raise structlog.DropEvent

    rng = random.Random(f"{seed} secrets")
    log_settings = structlog.get_config()
    was_collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # what this process has imported: the collection after the run does not look at it
    structlog.configure(processors=[log], cache_logger_on_first_use=False)
    try:
        with (
            mock.patch.object(secrets, "token_hex", lambda count=32: rng.randbytes(count).hex()),
            mock.patch.object(secrets, "token_bytes", lambda count=32: rng.randbytes(count)),
        ):
            yield
    finally:
        structlog.configure(**log_settings)
        gc.unfreeze()
        if was_collecting:
            gc.enable()


@contextlib.contextmanager
def silent_destructors() -> Iterator[None]:
    """While the tasks of dead processes are thrown away, their last words are not heard."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            for _ in range(collections_max):
                if not gc.collect():
                    break
    finally:
        sys.unraisablehook = hook
