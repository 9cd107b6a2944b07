"""Makes one run repeatable: seeded names, no collector in between, no output."""

from __future__ import annotations

import contextlib
import gc
import random
import secrets
import sys
import warnings
from collections.abc import Iterator
from unittest import mock

import structlog


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Draw from the seed what the product draws from the machine, and collect cycles only afterwards."""
    rng = random.Random(f"{seed} secrets")
    log_settings = structlog.get_config()
    was_collecting = gc.isenabled()
    gc.disable()
    structlog.configure(processors=[_drop])
    try:
        with (
            mock.patch.object(secrets, "token_hex", lambda count=32: rng.randbytes(count).hex()),
            mock.patch.object(secrets, "token_bytes", lambda count=32: rng.randbytes(count)),
        ):
            yield
    finally:
        structlog.configure(**log_settings)
        if was_collecting:
            gc.enable()


def _drop(logger: object, method: str, event: object) -> str:
    raise structlog.DropEvent


@contextlib.contextmanager
def silent_destructors() -> Iterator[None]:
    """While the tasks of dead processes are thrown away, their last words are not heard."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook
