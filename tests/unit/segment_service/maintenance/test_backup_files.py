"""The bytes of a backup's files do not change by accident, and damaged ones are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.maintenance.backup_files import (
    INVENTORY,
    LOGS,
    BackupHeader,
    ContainerInBackup,
    LogFile,
    read_log,
    verify,
    write_inventory,
)
from segment_service.maintenance.store_backup import claim_place

GOLDEN_INVENTORY = (
    b"pravega-spark backup 1\n"
    b'{"backup_id": "abababababababababababababababab", "cluster": "name", "begun_ms": 8, "containers": 2, "parts": '
    b'[{"container_id": 1, "epoch": 4, "identity": "00000000000000000000000000000000", "last_operation": 5, '
    b'"next_segment_id": 6, "tier2_from": [2, 3], "operations": 7}]}\n'
    b"c75d5110 35 log/c00001\n"
    b"end 1 634545c0\n"
)


def test_golden_bytes(tmp_path: Path) -> None:
    file = LogFile(tmp_path / LOGS / "c00001")
    file.append(LogEntry(LogAddress(2, 3), memoryview(b"frame")))
    file.sync()
    file.close()
    log = (tmp_path / LOGS / "c00001").read_bytes()
    assert log.hex() == "5056424c0001000000000000000200000000000000030000000507590bbf6672616d65"
    assert [(entry.address, bytes(entry.payload)) for entry in read_log(tmp_path / LOGS / "c00001")] == [
        (LogAddress(2, 3), b"frame")
    ]
    part = ContainerInBackup(1, 4, "00" * 16, 5, 6, (2, 3), 7)
    header = BackupHeader("ab" * 16, "name", 8, 2, (part,))
    assert write_inventory(tmp_path, header) == 1
    assert (tmp_path / INVENTORY).read_bytes() == GOLDEN_INVENTORY
    assert verify(tmp_path) == header


def test_a_log_of_another_version_or_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"PVBL\0\2")
    with pytest.raises(DataCorruption, match="if a newer one wrote it"):
        list(read_log(path))
    for foreign in (b"", b"PVB", b"XXXX\0\1"):
        path.write_bytes(foreign)
        with pytest.raises(DataCorruption, match="no copy of a log"):
            list(read_log(path))


def test_a_new_place_is_for_its_user_alone(tmp_path: Path) -> None:
    """It gets all events of a cluster."""
    before = os.umask(0o022)
    try:
        claim_place(tmp_path / "backups" / "today")
    finally:
        os.umask(before)
    assert (tmp_path / "backups" / "today").stat().st_mode & 0o077 == 0
