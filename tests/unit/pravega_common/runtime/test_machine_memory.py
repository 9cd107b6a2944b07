"""Checks how much memory a process takes for its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.runtime.machine_memory import memory_bytes

ABSENT = Path("/nowhere/memory.max")


def test_the_machine_is_the_limit_without_a_control_group(tmp_path: Path) -> None:
    machine_bytes = memory_bytes([ABSENT])
    assert machine_bytes > 64 << 20
    unlimited = tmp_path / "memory.max"
    for text in ("max\n", f"{1 << 62}\n"):
        unlimited.write_text(text)
        assert memory_bytes([ABSENT, unlimited]) == machine_bytes


@pytest.mark.parametrize("order", [1, -1])
def test_the_least_limit_counts(tmp_path: Path, order: int) -> None:
    limits = [tmp_path / "v2", tmp_path / "v1"]
    limits[0].write_text("50000000\n")
    limits[1].write_text("70000000\n")
    assert memory_bytes(limits[::order]) == 50_000_000
