"""A controller's garbage collector leaves alone what was imported, so that full collections find little to look at."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from controller_service import service
from controller_service.__main__ import main
from controller_service.config import ControllerConfig

imported_objects_min = 50_000


def test_imported_modules_are_frozen_before_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "controller.toml"
    settings.write_text("")
    looked_at: list[int] = []

    async def serve(_: ControllerConfig) -> None:
        looked_at.append(len(gc.get_objects()))

    monkeypatch.setattr(service, "serve", serve)
    monkeypatch.setattr(service, "set_up_log", lambda _: None)  # the log is the whole test process's
    monkeypatch.setattr(sys, "argv", ["controller_service", "--config", str(settings)])
    before = len(gc.get_objects())
    try:
        assert main() == 0
    finally:
        gc.unfreeze()
    assert before > imported_objects_min
    assert looked_at[0] < before // 10
