"""Serves the adapters that write files: writes that end early, names of chunks."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pravega_common.errors import SegmentNotFound
from pravega_common.invariants import check

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Whether a file system says that it has no room."""
    return isinstance(error, OSError) and error.errno in _FULL


def remove_file(path: str | Path) -> None:
    """Remove the file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def drop_written(views: list[memoryview], written: int) -> None:
    """Take the first ``written`` bytes off ``views``, which are then what is left to write."""
    done = 0
    while done < len(views) and written >= len(views[done]):
        written -= len(views[done])
        done += 1
    del views[:done]
    if written:
        views[0] = views[0][written:]


def chunk_name_parts(name: str) -> list[str]:
    """The folders of a chunk and its last name; none of them leads out of the root."""
    parts = name.split("/")
    check(all(part not in ("", ".", "..") for part in parts), "not a chunk name", name=name)
    return parts


@contextlib.contextmanager
def missing_is(name: str) -> Iterator[None]:
    """Turn a missing file into ``SegmentNotFound``."""
    try:
        yield
    except FileNotFoundError as error:
        raise SegmentNotFound(name) from error
