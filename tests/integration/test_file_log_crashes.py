"""Kills processes that write a log in local files, and cuts the power of their machine.

The power is cut on copies: each file loses what was written after its last sync, or keeps a random part of it torn. In
both cases everything acknowledged must be found, in order and once.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pravega_common.runtime.failpoints import environment_of
from segment_service.file_log import container_files, plog_writer
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.folder import FileLogFolder
from tests.support.file_log_writer import plog_bytes
from tests.support.log_history import frame_number
from tests.support.repository import ROOT

kills = 6
writer_time_max_s = 60


@dataclass
class Heard:
    """The lines of one writer."""

    acked: int = -1
    truncated: int = 0
    synced: dict[str, int] = field(default_factory=dict)

    def line(self, line: str) -> None:
        kind, *words = line.split()
        if kind == "acked":
            self.acked = int(words[0])
        elif kind == "truncating":
            self.truncated = int(words[0])
        elif kind == "synced":
            self.synced[words[0]] = int(words[1])


def run_writer(folder: Path, writer: int, acked_min: int, failpoints: str = "") -> Heard:
    """Let a process write until it has so many acknowledgements, then kill it; or until a failpoint does."""
    heard = Heard()
    command = [sys.executable, "-m", "tests.support.file_log_writer", str(folder), str(writer)]
    environment = {**environment_of(failpoints), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            heard.line(line)
            if heard.acked >= acked_min:
                process.kill()
        assert process.wait(writer_time_max_s) == -signal.SIGKILL
    return heard


async def frames_in(folder: Path) -> list[bytes]:
    logs = FileLogFolder(folder, plog_bytes=plog_bytes, reserve_bytes=0)
    await logs.start()
    log = FileDataLog(1, logs)
    await log.initialize()
    found = [bytes(entry.payload) async for entry in log.read()]
    await log.close()
    await logs.stop()
    return found


def check_found(found: list[bytes], writer: int, heard: Heard) -> None:
    """All that was acknowledged and not truncated, once and in order; more only at the end."""
    numbers = [frame_number(memoryview(frame)) for frame in found]
    own = [number for owner, number in numbers if owner == writer]
    assert numbers == sorted(numbers)
    assert own == list(range(own[0], own[0] + len(own))) if own else heard.acked < 0
    assert not own or (own[0] <= heard.truncated and own[-1] >= heard.acked)


async def test_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    chooser = random.Random(5)
    for writer in range(kills):
        heard = run_writer(tmp_path / "log", writer, chooser.randrange(1, 350))
        check_found(await frames_in(tmp_path / "log"), writer, heard)


@pytest.mark.parametrize("seed", range(4))
async def test_power_cuts_under_load_lose_nothing(tmp_path: Path, seed: int) -> None:
    chooser = random.Random(seed)
    heard = run_writer(tmp_path / "log", 1, chooser.randrange(20, 300))
    for attempt in range(3):
        copy = tmp_path / f"cut-{attempt}"
        shutil.copytree(tmp_path / "log", copy)
        for plog in (copy / "c1").glob("*.plog"):
            synced = heard.synced.get(plog.name, 0)
            content = plog.read_bytes()
            assert synced >= 4096
            torn = chooser.choice([b"", content[synced : synced + chooser.randrange(60_000)], chooser.randbytes(5_000)])
            plog.write_bytes(content[:synced] + torn + bytes(chooser.randrange(10_000)))
        check_found(await frames_in(copy), 1, heard)


@pytest.mark.parametrize(
    "point",
    [
        container_files.EPOCH_TAKEN,
        container_files.FILE_NAMED,
        container_files.FILE_RECORDED,
        plog_writer.ENTRIES_WRITTEN,
        plog_writer.ENTRIES_SYNCED,
        container_files.TRUNCATE_RECORDED,
        container_files.TRUNCATE_DELETED,
    ],
)
async def test_a_kill_at_every_step_loses_nothing(tmp_path: Path, point: str) -> None:
    hit = {container_files.EPOCH_TAKEN: 1, container_files.TRUNCATE_RECORDED: 1}.get(point, 2)
    heard = run_writer(tmp_path / "log", 1, 10_000, f"{point}=kill:{hit}")
    check_found(await frames_in(tmp_path / "log"), 1, heard)
    check_found(await frames_in(tmp_path / "log"), 1, heard)
