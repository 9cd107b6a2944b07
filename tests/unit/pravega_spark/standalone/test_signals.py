"""Tests that children can be ended in order, whatever signals the thread that starts them has blocked."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark.standalone import process, supervisor
from pravega_spark.standalone.process import StandaloneProcess
from pravega_spark.standalone.supervisor import ChildProcess, ChildSpec

STANDALONE_DOUBLE = """#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = --ready-file ] && echo '{}' > "$2"
    shift
done
exec sleep 60
"""


@pytest.fixture(autouse=True)
def blocked_sigterm() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def test_a_supervised_child_ends_by_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready() -> bool:
        return True

    monkeypatch.setattr(supervisor, "stop_time_max_s", 5.0)
    child = ChildProcess(
        ChildSpec("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log", ready)
    )
    await child.launch()
    await child.stop()
    assert child.process is not None
    assert child.process.returncode == -signal.SIGTERM


def test_a_standalone_ends_by_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "standalone"
    program.write_text(STANDALONE_DOUBLE)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(process, "stop_time_max_s", 5.0)
    standalone = StandaloneProcess(tmp_path / "data")
    standalone.start()
    assert standalone.stop() == -signal.SIGTERM
