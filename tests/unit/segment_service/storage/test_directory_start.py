"""A start beside other stores, whose temporary files come and go in the directory."""

from __future__ import annotations

import os
import time
from pathlib import Path

from segment_service.storage.filesystem import TEMPORARY, FilesystemChunkStorage, temporary_age_max_s


async def test_a_file_that_goes_while_it_is_looked_at_is_no_error(tmp_path: Path) -> None:
    """Two stores that start together see each other's probes, and one of them was refused."""
    incoming = tmp_path / TEMPORARY
    incoming.mkdir()
    (incoming / "0-gone").symlink_to(tmp_path / "nothing")  # listed, and not there when it is asked for
    old, fresh = incoming / "1-old", incoming / "2-fresh"
    for file in (old, fresh):
        file.write_bytes(b"x")
    past_s = time.time() - temporary_age_max_s - 60
    os.utime(old, (past_s, past_s))
    storage = FilesystemChunkStorage(tmp_path, sync=False)
    await storage.start()
    assert not old.exists()
    assert fresh.exists()
    await storage.close()
