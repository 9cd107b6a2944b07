"""Finds the format of a load's source: by its ending, else by what lies in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pravega_common.errors import InvalidArgument
from pravega_spark.backfill.definition import FILE_FORMATS, format_of

files_looked_at_max: Final = 1_000
"""Files of a folder whose endings are looked at."""
_HEAD_BYTES: Final = 64
_MAGIC: Final = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}
"""The first bytes of the formats that begin with some."""
_OF_PATTERNS: Final = set("*?[{")
"""What makes a path a pattern of several."""


def found_format(source: str) -> str:
    """Returns the format that the ending names, else that of the files that lie there on this machine.

    ``InvalidArgument`` where nothing tells it, or the files of a folder are of several formats.
    """
    try:
        return format_of(source)
    except InvalidArgument as unnamed:
        files = list(_files(source.removeprefix("file://")))
        found = {_format_of_file(file) for file in files}
        if len(found) == 1 and None not in found:
            return str(found.pop())
        if not files:
            if _is_missing(source):
                raise InvalidArgument(
                    f"'{source}' is not there on this machine, so nothing tells its format: correct the path; give "
                    f"--format {'|'.join(FILE_FORMATS)}|… where Spark finds it elsewhere"
                ) from unnamed
            raise
        names = sorted(name or "files of which nothing tells it" for name in found)
        said = f"'{source}' has no ending that names its format"
        why = f"{files[0].name} begins as none that is known" if found == {None} else f"there are {' and '.join(names)}"
        raise InvalidArgument(f"{said}, and {why}; give --format {'|'.join(FILE_FORMATS)}|…") from unnamed


def _is_missing(source: str) -> bool:
    """Tells whether a source is a plain path of this machine, and nothing lies there."""
    path = source.removeprefix("file://")
    return path != "-" and ":/" not in path and not set(path) & _OF_PATTERNS and not os.path.lexists(path)


def _files(path: str) -> Iterator[Path]:
    """Yields the file, or files of the folder and those below, that Spark would read, up to the limit."""
    if os.path.isfile(path):
        yield Path(path)
        return
    count = 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if "=" in name and not name.startswith((".", "_")))
        for name in sorted(names):
            if not name.startswith((".", "_")):
                yield Path(folder, name)
                count += 1
                if count == files_looked_at_max:
                    return


def _format_of_file(file: Path) -> str | None:
    try:
        return format_of(file.name)
    except InvalidArgument:
        pass
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error}; give --format to leave that to Spark") from error
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    return "json" if head.lstrip().startswith(b"{") else None
