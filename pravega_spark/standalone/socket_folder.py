"""Chooses the folder of the Unix sockets on which the standalone's Redis servers listen: the user's alone, and short.

The address of a Unix socket is limited to 107 bytes on Linux and 103 on macOS. A data folder that lies deeper has its
sockets in a folder of the runtime directory, or of the temporary one, whose name is made of the data folder's path.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.services.private_files import private_mode

address_bytes_max: Final = 103
"""Longest address of a Unix socket that every system takes."""
name_bytes_max: Final = 16
"""Longest name of a socket with the slash before it: ``/redis-cpo.sock``."""


def socket_folder(root: Path) -> Path:
    """Makes the folder for a data folder and returns it; ``ConfigurationError`` if it is not this user's alone."""
    inside = root.resolve() / "run"
    folder = inside if _fits(inside) else _short_folder(root)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=private_mode)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigurationError(f"{folder} is no folder of this user: remove it, or choose a shorter --data-dir")
    folder.chmod(private_mode)
    return folder


def remove_socket_folder(root: Path) -> None:
    """Removes the folder of a first start that failed, if it lies outside the data folder and nothing is in it."""
    if not _fits(root.resolve() / "run"):
        with contextlib.suppress(OSError):
            _short_folder(root).rmdir()


def _short_folder(root: Path) -> Path:
    made_of = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for base in filter(None, (runtime, tempfile.gettempdir(), "/tmp")):
        folder = Path(base) / f"pravega-spark-{os.geteuid()}-{made_of}"
        if Path(base).is_dir() and _fits(folder):
            return folder
    raise ConfigurationError(
        f"data folder {root} is too deep for a Unix socket of {address_bytes_max} bytes, and so are XDG_RUNTIME_DIR "
        "and the temporary folder: choose another with --data-dir"
    )


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) + name_bytes_max <= address_bytes_max
